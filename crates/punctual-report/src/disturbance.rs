//! In words, whether the machine disturbed a live run, and which late jobs met that.

use punctual_model::Results;
use punctual_model::results::{BlameSum, Cause, CauseTime, Disturbance};

use crate::format::{fmt_count, fmt_ns, fmt_share};

/// How many causes a sentence names.
const NAMED: usize = 3;

/// A sentence for each processor that was taken away, then one about the late jobs; nothing where none of
/// this was measured.
pub fn sentences(results: &Results) -> Vec<String> {
    let measured =
        || results.processors.iter().filter_map(|of| Some((of.processor, of.disturbance.as_ref()?)));
    if measured().next().is_none() {
        return Vec::new();
    }
    let length_ns = results.duration_ns.saturating_mul(results.runs.into());
    let taken = measured().filter(|(_, disturbance)| disturbance.count > 0);
    let mut sentences: Vec<String> =
        taken.map(|(processor, disturbance)| taken_away(processor, disturbance, length_ns)).collect();
    if sentences.is_empty() {
        let numbers: Vec<String> = measured().map(|(processor, _)| processor.to_string()).collect();
        let (noun, verb) = if numbers.len() == 1 { ("Processor", "was") } else { ("Processors", "were") };
        sentences.push(format!("{noun} {} {verb} never taken away.", numbers.join(", ")));
    }
    sentences.extend(late_jobs(results));
    sentences
}

fn taken_away(processor: usize, disturbance: &Disturbance, length_ns: u64) -> String {
    let share = fmt_share(disturbance.time_ns, length_ns);
    let times = match disturbance.count {
        1 => "once".to_owned(),
        count => format!("{} times", fmt_count(count)),
    };
    let longest = fmt_ns(disturbance.longest_ns);
    let causes: Vec<String> = disturbance.causes.iter().take(NAMED).map(cause).collect();
    let causes = causes.join(", ");
    format!(
        "Something else had processor {processor} for {share} of the time, {times}, for {longest} at most \
         ({causes})."
    )
}

/// A cause with its time: `others on the processor 30.0 ms: spinner`.
pub fn cause(cause: &CauseTime) -> String {
    let time = fmt_ns(cause.time_ns);
    match &cause.by {
        Some(by) => format!("{} {time}: {by}", cause.cause.words()),
        None => format!("{} {time}", cause.cause.words()),
    }
}

/// Which of the late jobs met a disturbance, with the miss ratio of those that met none.
fn late_jobs(results: &Results) -> Option<String> {
    let misses = results.misses()?;
    let (all, disturbed) = (misses.all, misses.disturbed);
    if all.missed == 0 {
        return None;
    }
    let ours = fmt_share(misses.ours(), misses.ours_due());
    Some(format!(
        "{} of {} late jobs coincided with a disturbance, {} did not. Jobs missed: {} of all; {} of those \
         without a disturbance.",
        fmt_count(disturbed.missed),
        fmt_count(all.missed),
        fmt_count(misses.ours()),
        fmt_share(all.missed, all.due),
        ours
    ))
}

/// What jobs that took long waited for, in the order of [`Cause::ALL`]: each cause with its time.
pub(crate) fn by_cause(sum: &BlameSum) -> impl Iterator<Item = (Cause, u64)> {
    Cause::ALL.into_iter().map(|cause| (cause, sum.time_ns(cause)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::{disturbed, results};

    #[test]
    fn a_disturbed_run_says_so_and_which_late_jobs_met_it() {
        insta::assert_snapshot!(sentences(&disturbed(results("rtds", 240))).join("\n"));
    }

    #[test]
    fn a_simulated_run_says_nothing_and_an_undisturbed_one_that_it_was() {
        assert!(sentences(&results("rtds", 240)).is_empty());
        let mut quiet = disturbed(results("rtds", 0));
        quiet.processors.iter_mut().for_each(|of| of.disturbance = Some(Disturbance::default()));
        assert_eq!(sentences(&quiet), ["Processors 0, 1 were never taken away."]);
    }
}
