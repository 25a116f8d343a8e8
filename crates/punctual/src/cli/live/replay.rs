//! A live run once more in the simulator, on a machine that is taken away as the real one was.

use punctual_model::Host;
use punctual_report::format::fmt_share;
use punctual_report::{Column, table};

use super::super::error::Error;

/// Simulates what `live` measured of `host`.
///
/// # Errors
/// When it cannot be simulated.
pub(crate) fn replay(host: &Host, live: &Column) -> Result<Column, Error> {
    // A run that was stopped is as long as it was.
    let duration = punctual_sched::Duration::from_ns(live.results.duration_ns);
    let results = punctual_sim::simulate_disturbed(&Host { duration, ..host.clone() }, &live.results)?;
    Ok(Column { label: format!("{} replayed", live.label), results })
}

/// Live results and their replays side by side, and what that shows.
pub(crate) fn text(pairs: &[Column], colour: bool) -> String {
    let mut taken = (0u64, 0u64);
    let disturbances = pairs.iter().flat_map(|column| &column.results.processors).filter_map(|processor| {
        // Replays have it too.
        processor.disturbance.as_ref()
    });
    for disturbance in disturbances {
        taken.0 += disturbance.intervals.iter().map(|interval| interval.length_ns()).sum::<u64>();
        taken.1 += disturbance.time_ns;
    }
    let covered = match taken.1 {
        0 => "They were never unavailable.".to_owned(),
        all => format!(
            "That is {} of the time for which they were unavailable. Deadlines missed here too were \
             missed because of the machine.",
            fmt_share(taken.0, all)
        ),
    };
    let what = "Replayed: the same jobs in the simulator, with processors unavailable \
                when they were measured to be.";
    let note = format!("{what} {covered}");
    format!("\n{}\n{}", table::miss_columns(pairs, colour), table::paragraph(&note))
}
