//! Policies enforced on real threads of this machine. Units that spin are confined to processor 1.

mod common;

use std::time::Duration as StdDuration;

use common::live::{Bench, needs};
use punctual_sched::{Duration, UnitParams};

fn server(budget_us: u64, period_us: u64, priority: u32) -> UnitParams {
    UnitParams {
        budget: Some(Duration::from_us(budget_us)),
        period: Some(Duration::from_us(period_us)),
        priority: Some(priority),
        extratime: Some(false),
        ..UnitParams::default()
    }
}

#[test]
fn a_budget_holds_though_the_processor_is_idle_otherwise() {
    if !needs() {
        return;
    }
    for policy in ["deferrable", "periodic", "polling", "sporadic", "rtds", "sedf"] {
        let mut bench = Bench::start(policy, &[]);
        bench.spin("a", &server(2_000, 10_000, 1));
        let (shares, report) = bench.run(StdDuration::from_secs(1));
        let share_ppm = shares[0];
        println!(
            "{policy}: share {share_ppm} ppm, {:?}",
            report.pools[0].evidence.overrun.quantile_ppm(990_000)
        );
        assert!((150_000..=215_000).contains(&share_ppm), "{policy}: {share_ppm} ppm of the processor");
        assert!(report.restored.failures.is_empty(), "{:?}", report.restored);
    }
}
