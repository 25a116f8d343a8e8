//! The papers' data, embedded in the program: citation, tables, claims and host files.

use std::collections::BTreeMap;

use punctual_sched::servers::{deferrable, periodic, polling, sporadic};
use punctual_sched::{credit, sedf};
use serde::{Deserialize, Serialize};

use crate::claims::Claim;

/// Where a paper can be found.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Citation {
    /// Short name, also the directory under `papers/`.
    pub short: String,
    /// Authors, where the paper names them.
    #[serde(default)]
    pub authors: String,
    pub title: String,
    /// Where and when it appeared.
    pub venue: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RtXen {
    pub citation: Citation,
    pub table1: Table1,
    pub table2: Table2,
    pub table3: Table3,
    pub table4: Table4,
    /// First misses printed in s.5.2.
    pub figure5: Vec<FirstMiss>,
}

/// Table 1: overhead in 10 s, one column for each policy.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table1 {
    pub policies: Vec<String>,
    pub decision_total_us: Vec<f64>,
    /// Total time in context switches.
    pub switch_total_us: Vec<f64>,
    pub combined_total_us: Vec<f64>,
    /// Both, as share of 10 s.
    pub loss_percent: Vec<f64>,
    pub decision_max_ns: Vec<f64>,
    pub decision_median_ns: Vec<f64>,
    pub decision_p99_ns: Vec<f64>,
    pub decisions: Vec<f64>,
    pub switch_max_ns: Vec<f64>,
    pub switch_median_ns: Vec<f64>,
    pub switch_p99_ns: Vec<f64>,
    pub switches: Vec<f64>,
}

impl Table1 {
    pub fn column(&self, policy: &str) -> Option<usize> {
        self.policies.iter().position(|p| p == policy)
    }
}

/// Table 2: deadline miss ratios in percent.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table2 {
    pub normal: MissRatios,
    /// Domain 3's most urgent task misconfigured.
    pub overloaded: MissRatios,
}

/// Miss ratios in percent of domains 1 to 5.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "each field is the policy of its name")]
pub struct MissRatios {
    pub sporadic: [f64; 5],
    pub periodic: [f64; 5],
    pub polling: [f64; 5],
    pub deferrable: [f64; 5],
    pub credit: [f64; 5],
    pub sedf: [f64; 5],
}

impl MissRatios {
    pub fn row(&self, policy: &str) -> Option<&[f64; 5]> {
        Some(match policy {
            sporadic::NAME => &self.sporadic,
            periodic::NAME => &self.periodic,
            polling::NAME => &self.polling,
            deferrable::NAME => &self.deferrable,
            credit::NAME => &self.credit,
            sedf::NAME => &self.sedf,
            _ => return None,
        })
    }
}

/// Table 3: the five domains.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table3 {
    pub priority: [u32; 5],
    pub budget_ms: [u64; 5],
    pub period_ms: Cases<[u64; 5]>,
}

/// Table 4: ranges of loads in percent that the analysis guarantees, both ends included.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table4 {
    pub deferrable: Cases<Vec<[u32; 2]>>,
    pub periodic: Cases<Vec<[u32; 2]>>,
}

/// Something for each share case.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cases<T> {
    /// Domain 1 has the largest share.
    pub decreasing: T,
    /// All domains have the same share.
    pub even: T,
    /// Domain 5 has the largest share.
    pub increasing: T,
}

/// Where deadline misses start (s.5.2).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FirstMiss {
    pub quantum_us: u64,
    pub first_miss_percent: f64,
}

/// The outputs of cyclictest and the round trips in the Nautilus paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nautilus {
    pub citation: Citation,
    #[serde(rename = "listing")]
    pub listings: Vec<Listing>,
    pub round_trips: RoundTrips,
}

/// Its two tables of round trips in ms, at its four loads.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoundTrips {
    /// Four lines without a name.
    pub credit_ms: [[f64; 4]; 4],
    pub partitioned_max_ms: [f64; 4],
    pub partitioned_mean_ms: [f64; 4],
}

/// What cyclictest measured in a real Xen in one configuration, in us.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredLatency {
    pub avg_us: f64,
    /// The 99 % quantile.
    pub p99_us: f64,
    pub max_us: f64,
}

/// Round trips through domain 0 of a real Xen, in us, at the four levels of interference.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "each field is the quantile of its name")]
pub struct MeasuredRoundTrips {
    pub median_us: [f64; 4],
    pub p75_us: [f64; 4],
    pub p95_us: [f64; 4],
    pub p99_us: [f64; 4],
    pub max_us: [f64; 4],
}

/// One output of cyclictest: latencies by thread.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listing {
    pub id: String,
    pub what: String,
    pub interval_us: Vec<u64>,
    pub min_us: Vec<f64>,
    pub avg_us: Vec<f64>,
    pub max_us: Vec<f64>,
}

/// What the RTCA report prints.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rtca {
    pub citation: Citation,
    pub table1: RtcaTable1,
    pub table2: RtcaTable2,
    pub figure8: RtcaFigure8,
}

/// Table I: round trips in us by quantile.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RtcaTable1 {
    pub median: RtcaLevels,
    pub p75: RtcaLevels,
    pub p95: RtcaLevels,
}

/// By level: as shipped, RTCA with batches of 1, 64, 238.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "each field is the level of its name")]
pub struct RtcaLevels {
    pub base: [f64; 4],
    pub light: [f64; 4],
    pub medium: [f64; 4],
    pub heavy: [f64; 4],
}

impl RtcaTable1 {
    /// The row of a quantile at a level, from 0 for base.
    pub fn row(&self, quantile: &str, level: usize) -> &[f64; 4] {
        let of = match quantile {
            "median" => &self.median,
            "p75" => &self.p75,
            _ => &self.p95,
        };
        [&of.base, &of.light, &of.medium, &of.heavy][level]
    }
}

/// Table II: miss ratios in percent of tasks 2, 3 and 4, each at the four levels.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[expect(missing_docs, reason = "each field is the combination of its name")]
pub struct RtcaTable2 {
    pub original_credit: [[f64; 4]; 3],
    pub original_rt_xen: [[f64; 4]; 3],
    pub rtca_credit: [[f64; 4]; 3],
    pub rtca_rt_xen: [[f64; 4]; 3],
}

impl RtcaTable2 {
    /// The three tasks at a level.
    pub fn cell(&self, original: bool, policy: &str, level: usize) -> [f64; 3] {
        let of = match (original, policy) {
            (true, credit::NAME) => &self.original_credit,
            (true, _) => &self.original_rt_xen,
            (false, credit::NAME) => &self.rtca_credit,
            (false, _) => &self.rtca_rt_xen,
        };
        of.map(|levels| levels[level])
    }
}

/// Gbit/s in the text on Fig. 8.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RtcaFigure8 {
    pub base: f64,
    pub original_with_interference_max: f64,
    /// RTCA with batches of 64 and 238, with interference.
    pub rtca_64_and_238_with_interference: f64,
}

/// What Scheduling I/O in Virtual Machine Monitors prints.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VmmIo {
    pub citation: Citation,
    pub ping: Vec<PrintedPing>,
}

/// A mean ping latency that is printed.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrintedPing {
    pub test: u32,
    pub configuration: String,
    pub mean_ms: f64,
}

/// The tables of rt-stack: mean, 99 % quantile and standard deviation in us, by method.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RtStack {
    pub citation: Citation,
    /// Tables 3.1 and 6.3.
    pub undisturbed: BTreeMap<String, [f64; 3]>,
    /// Tables 3.2 and 6.4.
    pub loaded: BTreeMap<String, [f64; 3]>,
    /// Table 6.5.
    pub techniques: BTreeMap<String, [f64; 3]>,
    /// Table 6.6.
    pub containers: BTreeMap<String, [f64; 3]>,
    /// s.3.3 and 6.2, in Gbit/s.
    pub throughput: BTreeMap<String, f64>,
    /// s.6.7.2: by how many per cent outsourcing's 99 % quantile of memcached is below each method's.
    pub memcached_less_percent: BTreeMap<String, f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Claims {
    claim: Vec<Claim>,
}

/// The data of RT-Xen and its claims.
///
/// # Panics
/// Never in a tested build: the embedded files are parsed by this crate's tests.
pub fn rt_xen() -> (RtXen, Vec<Claim>) {
    let paper = toml::from_str(include_str!("../../../papers/rt-xen/paper.toml"));
    let claims = toml::from_str::<Claims>(include_str!("../../../papers/rt-xen/claims.toml"));
    (paper.expect("papers/rt-xen/paper.toml"), claims.expect("papers/rt-xen/claims.toml").claim)
}

/// The data of the RTCA report and its claims.
///
/// # Panics
/// Never in a tested build: the embedded files are parsed by this crate's tests.
pub fn rtca() -> (Rtca, Vec<Claim>) {
    let paper = toml::from_str(include_str!("../../../papers/rtca/paper.toml"));
    let claims = toml::from_str::<Claims>(include_str!("../../../papers/rtca/claims.toml"));
    (paper.expect("papers/rtca/paper.toml"), claims.expect("papers/rtca/claims.toml").claim)
}

/// The data of Scheduling I/O in Virtual Machine Monitors and its claims.
///
/// # Panics
/// Never in a tested build: the embedded files are parsed by this crate's tests.
pub fn vmm_io() -> (VmmIo, Vec<Claim>) {
    let paper = toml::from_str(include_str!("../../../papers/vmm-io/paper.toml"));
    let claims = toml::from_str::<Claims>(include_str!("../../../papers/vmm-io/claims.toml"));
    (paper.expect("papers/vmm-io/paper.toml"), claims.expect("papers/vmm-io/claims.toml").claim)
}

/// The data of rt-stack and its claims.
///
/// # Panics
/// Never in a tested build: the embedded files are parsed by this crate's tests.
pub fn rt_stack() -> (RtStack, Vec<Claim>) {
    let paper = toml::from_str(include_str!("../../../papers/rt-stack/paper.toml"));
    let claims = toml::from_str::<Claims>(include_str!("../../../papers/rt-stack/claims.toml"));
    (paper.expect("papers/rt-stack/paper.toml"), claims.expect("papers/rt-stack/claims.toml").claim)
}

/// cyclictest in a real Xen, by configuration of `reproduce nautilus`
/// (`measurements/2026-11-26-xen-reproduce`).
///
/// # Panics
/// Never: a test reads the file.
pub fn nautilus_measured() -> BTreeMap<String, MeasuredLatency> {
    let measured = toml::from_str(include_str!("../../../papers/nautilus/measured.toml"));
    measured.expect("papers/nautilus/measured.toml")
}

/// Round trips of RTCA's urgent pair in a real Xen, by scheduler and kernel
/// (`measurements/2026-11-28-rtca-xen`).
///
/// # Panics
/// Never: a test reads the file.
pub fn rtca_measured() -> BTreeMap<String, BTreeMap<String, MeasuredRoundTrips>> {
    let measured = toml::from_str(include_str!("../../../papers/rtca/measured.toml"));
    measured.expect("papers/rtca/measured.toml")
}

/// The data of the Nautilus paper and its claims.
///
/// # Panics
/// Never in a tested build: the embedded files are parsed by this crate's tests.
pub fn nautilus() -> (Nautilus, Vec<Claim>) {
    let paper = toml::from_str(include_str!("../../../papers/nautilus/paper.toml"));
    let claims = toml::from_str::<Claims>(include_str!("../../../papers/nautilus/claims.toml"));
    (paper.expect("papers/nautilus/paper.toml"), claims.expect("papers/nautilus/claims.toml").claim)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_column_of_table_1_covers_the_six_policies() {
        let t = rt_xen().0.table1;
        let columns = [
            &t.decision_total_us,
            &t.switch_total_us,
            &t.combined_total_us,
            &t.loss_percent,
            &t.decision_max_ns,
            &t.decision_median_ns,
            &t.decision_p99_ns,
            &t.decisions,
            &t.switch_max_ns,
            &t.switch_median_ns,
            &t.switch_p99_ns,
            &t.switches,
        ];
        assert_eq!(t.policies.len(), 6);
        assert!(columns.iter().all(|c| c.len() == 6));
    }

    /// The paper rounds each row by itself, so a sum may be 1 us off.
    #[test]
    fn both_parts_of_table_1_add_up_to_its_totals() {
        let t = rt_xen().0.table1;
        for i in 0..6 {
            let sum = t.decision_total_us[i] + t.switch_total_us[i];
            assert!((sum - t.combined_total_us[i]).abs() <= 1.0, "{}", t.policies[i]);
        }
    }

    #[test]
    fn the_shares_of_table_3_add_up_to_the_whole_processor() {
        let t = rt_xen().0.table3;
        for periods in [t.period_ms.decreasing, t.period_ms.even, t.period_ms.increasing] {
            let share: f64 = t.budget_ms.iter().zip(periods).map(|(&b, p)| b as f64 / p as f64).sum();
            assert!((share - 1.0).abs() < 1e-12, "{share}");
        }
    }

    #[test]
    fn ids_of_claims_are_unique_and_every_claim_says_something() {
        for claims in [rt_xen().1, nautilus().1, rtca().1, vmm_io().1, rt_stack().1] {
            let ids: BTreeSet<_> = claims.iter().map(|c| c.id.as_str()).collect();
            assert_eq!(ids.len(), claims.len());
            for c in &claims {
                assert!(!c.statement.is_empty() && !c.section.is_empty() && !c.paper.is_empty(), "{}", c.id);
                assert!(!c.check.is_empty() || !c.because.is_empty(), "{} needs a check or a reason", c.id);
            }
        }
    }

    #[test]
    fn the_host_files_of_rtca_have_the_costs_of_its_calibration() {
        let table = |text: &str| text.parse::<toml::Table>().unwrap();
        let calibration = table(include_str!("../../../papers/rtca/calibration.toml"));
        let files = [
            include_str!("../../../papers/rtca/same-core.toml"),
            include_str!("../../../papers/rtca/other-cores.toml"),
            include_str!("../../../papers/rtca/end-to-end.toml"),
        ];
        for file in files {
            assert_eq!(table(file)["network"]["lan"]["costs"], calibration["costs"]);
        }
    }

    #[test]
    fn cyclictest_columns_have_one_entry_for_each_thread() {
        for l in nautilus().0.listings {
            let n = l.interval_us.len();
            assert_eq!([l.min_us.len(), l.avg_us.len(), l.max_us.len()], [n; 3], "{}", l.id);
        }
    }
}
