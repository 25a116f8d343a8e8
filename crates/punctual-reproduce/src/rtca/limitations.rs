//! RTCA s.III: what two domains that bounce a packet get under RT-Xen's accounting of 2011, and what a
//! network card beside local traffic does to the queue that they share.

use punctual_model::host::Host;
use punctual_model::results::Results;
use punctual_sched::Duration;
use punctual_sched::servers::{ACCOUNTING, EXACT, IN_QUANTA};

use super::ORIGINAL;
use super::readings::{SPLITS, Split};
use crate::error::Error;
use crate::measures::number;
use crate::reproduction::{Outcome, Table};
use crate::scenario::{Progress, Scenario, as_written, run_all};

/// One second is 10,000 and more bounces, and as many packets of each storm.
const DURATION: Duration = Duration::from_secs(1);

/// Where a round trip's time goes, beside [`SPLITS`]: s.III counts the guests' time alone.
const NO_DRIVER: Split = Split {
    id: "no-driver",
    title: "a guest 5.5 us, domain 0 none",
    costs: &[
        ("stage", "0ns"),
        ("round", "0ns"),
        ("event", "0ns"),
        ("interrupt", "0ns"),
        ("copy_per_kib", "0ns"),
    ],
};

/// Both tables.
pub(crate) fn run(progress: Progress<'_>) -> Result<Outcome, Error> {
    Ok(Outcome::merged(vec![accounting(progress)?, mismatch(progress)?]))
}

/// Two domains on one processor that bounce a packet: one may have 1 ms in 10 ms, the other 2 ms.
fn accounting(progress: Progress<'_>) -> Result<Outcome, Error> {
    let mut cells = Vec::new();
    let mut scenarios = Vec::new();
    for accounting in [IN_QUANTA, EXACT] {
        for split in [&SPLITS[0], &SPLITS[3], &NO_DRIVER] {
            let pair = Scenario::new("rtca", "same-core").duration(DURATION).set("domain.d4.budget=2ms");
            let pair = ["probe", "bounce5", "bounce7", "bounce9"]
                .iter()
                .fold(pair, |s, flow| s.set(format!("flow.{flow}.start=1000s")));
            let pair = pair.set(format!("pool.guests.deferrable.accounting={accounting}"));
            scenarios.push(split.set(ORIGINAL.set(pair)));
            cells.push((accounting, split));
        }
    }
    let keep = |_: &Host, results: &Results| ["d3", "d4"].map(|name| share(results, name));
    let all = run_all("s.III", &scenarios, progress, as_written, keep)?;
    let mut out = Outcome::default();
    let columns = [ACCOUNTING.name, "costs", "1 ms in 10 ms, %", "2 ms in 10 ms, %"];
    let title = "s.III: processor shares of two domains that bounce a packet, by accounting";
    let mut table = Table::new("limitations-accounting", title, &columns);
    for ((accounting, split), shares) in cells.into_iter().zip(all) {
        for (domain, share) in ["d3", "d4"].into_iter().zip(shares) {
            out.measures.set_one(format!("accounting.{accounting}.{}.{domain}_percent", split.id), share);
        }
        let mut row = vec![accounting.to_string(), split.title.to_string()];
        row.extend(shares.map(number));
        table.rows.push(row);
    }
    out.tables.push(table);
    Ok(out)
}

/// Processor time of a domain in percent.
fn share(results: &Results, name: &str) -> f64 {
    let domain = results.domains.iter().find(|domain| domain.name == name);
    domain.map_or(0.0, |domain| domain.cpu_time_ns as f64 / results.duration_ns as f64 * 100.0)
}

/// A card that brings a full frame every 10 us, more than half of a softnet round can take.
const CARD: &str = r#"
[network.lan.nic]
bandwidth = "10Gbit/s"

[network.lan.outside.pc]

[flow.wire]
kind = "storm"
from = "pc"
to = "n9"
interval = "10us"
"#;

/// Heavy local traffic as shipped, without and with a busy card.
fn mismatch(progress: Progress<'_>) -> Result<Outcome, Error> {
    let local = || ORIGINAL.set(Scenario::new("rtca", "other-cores")).duration(DURATION);
    let scenarios = [local(), local().append(CARD)];
    let all = run_all("s.III", &scenarios, progress, as_written, |_, results| backlog(results))?;
    let mut out = Outcome::default();
    let columns = ["traffic", "dropped in softnet, %"];
    let title = "s.III: local packets that domain 0 drops in softnet's queue, as shipped, heavy interference";
    let mut table = Table::new("limitations-sizes", title, &columns);
    for ((id, title), dropped) in [("local", "local"), ("card", "local and a card")].into_iter().zip(all) {
        out.measures.set_one(format!("sizes.{id}.dropped_percent"), dropped);
        table.rows.push(vec![title.into(), number(dropped)]);
    }
    table
        .notes
        .push("A round of TX brings 238 packets; half a round of softnet takes 150 of them: 63 %.".into());
    out.tables.push(table);
    Ok(out)
}

/// Packets of the local storms that softnet dropped, in percent of those that left the senders.
fn backlog(results: &Results) -> f64 {
    let storms = results.flows.iter().filter(|flow| flow.name.starts_with("storm"));
    let (dropped, sent) = storms.fold((0, 0), |(dropped, sent), storm| {
        let packets = &storm.packets;
        (dropped + packets.dropped.softnet, sent + packets.delivered + packets.dropped.total())
    });
    if sent == 0 { 0.0 } else { dropped as f64 / sent as f64 * 100.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::{Verdict, verdict_on};

    #[test]
    fn exact_accounting_turns_the_claim_about_budgets_that_are_not_consumed() {
        let claims = crate::papers::rtca().1;
        let taken = accounting(&|_, _, _| ()).unwrap().measures;
        let of = |accounting: &str| {
            let mut measures = crate::measures::Measures::default();
            for domain in ["d3", "d4"] {
                let name = |accounting: &str| format!("accounting.{accounting}.calibrated.{domain}_percent");
                measures.set(name(IN_QUANTA), taken.get(&name(accounting)).unwrap().to_vec());
            }
            verdict_on(&claims, "quantum-accounting-breaks-isolation", &measures)
        };
        assert_eq!((of(IN_QUANTA), of(EXACT)), (Verdict::Agrees, Verdict::Differs));
    }
}
