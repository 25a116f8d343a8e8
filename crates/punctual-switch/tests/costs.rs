//! The costs of a switch's steps, under every discipline.

use std::sync::Arc;
use std::time::{Duration, Instant};

use punctual_net::registry;
use punctual_sched::registry::Options;
use punctual_switch::costs::{Setting, measure};

fn setting(discipline: &str, time: Duration) -> Setting {
    Setting {
        discipline: registry::find(discipline).expect("a discipline"),
        options: Options::new(),
        plane: Arc::new(|| ()),
        drivers: Arc::new(|| ()),
        time,
    }
}

#[test]
fn every_step_is_measured_under_every_discipline() {
    for discipline in ["netback", "rtca", "preemptive"] {
        let costs = measure(&setting(discipline, Duration::from_millis(200)), &|| false).expect("measured");
        let bursts = costs.wake.count();
        assert!(bursts > 10, "{discipline}: {bursts} bursts");
        let steps = [&costs.tx, &costs.softnet, &costs.rx, &costs.rx_long];
        for (step, times) in steps.into_iter().enumerate() {
            // Bursts of four; every second one has long frames.
            assert!(times.count() >= bursts, "{discipline}: {} of step {step}", times.count());
        }
        assert!(costs.event.count() >= bursts / 2, "{discipline}: {} told", costs.event.count());
        assert!(costs.wake.quantile_ppm(500_000) > costs.tx.quantile_ppm(500_000), "{discipline}");
        let keys = costs.keys().map(|(key, _)| key);
        assert_eq!(keys, ["event", "interrupt", "tx", "softnet", "rx", "round", "copy_per_kib"]);
    }
}

#[test]
fn it_stops_on_request() {
    let start = Instant::now();
    measure(&setting("netback", Duration::from_secs(3_600)), &|| true).expect("ended");
    assert!(start.elapsed() < Duration::from_secs(60));
}
