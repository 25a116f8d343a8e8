//! When tasks begin: with the periods of all servers, as in simulation.

use punctual_model::Host;
use punctual_sched::Duration;

/// The time after which the periods of all vCPUs begin together again; `None`: that is more than `most_ns`.
pub fn common_ns(host: &Host, most_ns: u64) -> Option<u64> {
    let periods = host.vcpus.iter().filter_map(|vcpu| vcpu.params.period).map(Duration::as_ns);
    periods.filter(|ns| *ns > 0).try_fold(1, |common: u64, period| {
        let (mut a, mut b) = (common, period);
        while b > 0 {
            (a, b) = (b, a % b);
        }
        (common / a).checked_mul(period).filter(|ns| *ns <= most_ns)
    })
}

/// The first instant from `earliest_ns` on that is a whole number of periods after `begun_ns`.
pub fn next_ns(begun_ns: u64, period_ns: u64, earliest_ns: u64) -> u64 {
    begun_ns + earliest_ns.saturating_sub(begun_ns).div_ceil(period_ns) * period_ns
}

#[cfg(test)]
mod tests {
    use punctual_model::file::{self, Overrides};

    use super::*;

    #[test]
    fn tasks_begin_when_all_periods_do() {
        let domain = |name: &str, period: &str| {
            let params = format!("budget = \"1ms\"\nperiod = \"{period}\"\npriority = 1");
            format!("[domain.{name}]\n{params}\ntask.t = {{ hog = true }}\n")
        };
        let host = |second: &str| {
            let text = format!(
                "[machine]\nprocessors = 1\n[pool.p]\nprocessors = [0]\npolicy = \"rtds\"\n{}{}",
                domain("one", "6ms"),
                domain("two", second)
            );
            file::parse(&text, "h.toml", &Overrides::default()).expect("a host")
        };
        assert_eq!(common_ns(&host("10ms"), 30_000_000), Some(30_000_000));
        // Longer than a run should wait.
        assert_eq!(common_ns(&host("10ms"), 29_999_999), None);
        assert_eq!(next_ns(1_000, 30, 1_000), 1_000);
        assert_eq!(next_ns(1_000, 30, 1_001), 1_030);
        assert_eq!(next_ns(1_000, 30, 900), 1_000);
    }
}
