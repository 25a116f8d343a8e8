//! Switches that work without a run, watched: what `punctual top` shows of them.

use std::time::Instant;

use punctual_linux::Stop;
use punctual_model::text::printable;

use super::control::Client;
use crate::network::{INTERVAL, Status};
use crate::status::Snapshot;

/// Passes a snapshot of these switches to `each` every half second, until all have ended, `each` returns
/// false or `stop` returns true.
pub fn follow(switches: &[Client], stop: Stop, mut each: impl FnMut(Snapshot) -> bool) {
    let start = Instant::now();
    let mut before = vec![Status::default(); switches.len()];
    // Rates need two counts.
    let mut is_first = true;
    loop {
        let asked = Instant::now();
        let mut snapshot = Snapshot::default();
        for (client, before) in switches.iter().zip(&mut before) {
            let Some(counted) = client.count() else { continue };
            let now = Status::of(&counted.result, before);
            let name = printable(&counted.result.network);
            let comma = if snapshot.host.is_empty() { "" } else { ", " };
            snapshot.host += &format!("{comma}switch of {name} (process {})", client.process);
            snapshot.ports.extend(now.ports.iter().cloned());
            snapshot.planes.extend(now.planes.iter().cloned());
            *before = now;
        }
        snapshot.elapsed_ns = start.elapsed().as_nanos() as u64;
        let has_ended = snapshot.host.is_empty();
        if has_ended || (!std::mem::take(&mut is_first) && !each(snapshot)) || stop() {
            return;
        }
        std::thread::sleep(INTERVAL.saturating_sub(asked.elapsed()));
    }
}
