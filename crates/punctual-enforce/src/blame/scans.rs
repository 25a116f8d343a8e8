//! What a unit waited for beside the other units: matched with what the observer saw in the same time. Where
//! context switches were read, which other thread had the processor is known exactly; else samples of every
//! thread's account say how long each ran since the sample before.

use punctual_model::results::Cause;

use super::jobs::{Vcpu, overlap};
use super::supply::{Piece, State};
use crate::enforcer::{Occupant, Occupants, Sample};
use crate::spans::Span;

/// A shorter sleep of a unit with work is its guest's own, and a shorter wait is what a switch takes.
const PIECE_MIN_NS: u64 = 50_000;
/// `/proc/stat` counts steal in ticks: so much more may have been stolen than it says, if it says any.
const TICK_NS: u64 = 10_000_000;

/// How far around a span steal is looked for: what is stolen is counted only when a tick of it is full.
const AROUND_NS: u64 = 500_000_000;

/// Was time of the processor stolen around `span`, or is that not known? The kernel must know what is stolen.
pub(super) fn may_be_stolen<'s>(
    samples: impl IntoIterator<Item = &'s Sample>,
    processor: usize,
    span: Span,
) -> bool {
    let around = (span.0.saturating_sub(AROUND_NS), span.1 + AROUND_NS);
    let mut known_ns = 0;
    for sample in samples.into_iter().skip_while(|sample| sample.until_ns <= around.0) {
        if sample.from_ns >= around.1 {
            break;
        }
        if sample.loads.get(processor).is_none_or(|load| load.steal_ns > 0) {
            return true;
        }
        known_ns += overlap((sample.from_ns, sample.until_ns), span);
    }
    known_ns < span.1 - span.0
}

/// Why something waited, and for whom.
type Wait = (Cause, Option<String>);

/// What can explain that a unit did not run, and for how long.
#[derive(Default)]
struct Explanations {
    /// The real-time thread that ran longest.
    above: Option<String>,
    foreign: Vec<(String, u64)>,
    stolen_ns: u64,
    helpers: Vec<(String, u64)>,
}

impl Explanations {
    /// By a sample, for a unit on `processor` of its pool, or on any.
    fn of(sample: &Sample, unit: &str, place: Place<'_>) -> Explanations {
        let is_there = |at: usize| place.processor.is_none_or(|processor| processor == at);
        let known = |state: State| -> u64 {
            let span = (sample.from_ns, sample.until_ns);
            place.taken.iter().filter(|(_, of)| *of == state).map(|(of, _)| overlap(*of, span)).sum()
        };
        let stolen: u64 =
            sample.loads.iter().enumerate().filter(|(at, _)| is_there(*at)).map(|(_, l)| l.steal_ns).sum();
        let mut there: Vec<_> = sample.foreign.iter().filter(|foreign| is_there(foreign.processor)).collect();
        there.sort_by_key(|foreign| core::cmp::Reverse((foreign.is_real_time, foreign.ran_ns)));
        let above = there.first().filter(|first| first.is_real_time).map(|first| first.name.clone());
        let foreign = match place.occupants {
            // Where none of them had the processor is known.
            Some(_) => Vec::new(),
            None => there.iter().map(|foreign| (foreign.name.clone(), foreign.ran_ns)).collect(),
        };
        let is_helper = |helper: &&crate::enforcer::Helper| helper.units.iter().any(|known| known == unit);
        let mut helpers: Vec<(String, u64)> = sample
            .helpers
            .iter()
            .filter(is_helper)
            .map(|helper| (helper.name.clone(), helper.busy_ns))
            .collect();
        helpers.sort_by_key(|(_, busy_ns)| core::cmp::Reverse(*busy_ns));
        let stolen_ns = match stolen {
            0 => 0,
            ns => (ns + TICK_NS).saturating_sub(known(State::Standstill)),
        };
        Explanations { above, foreign, stolen_ns, helpers }
    }

    /// The first that had this much time left, which is taken from it.
    fn take(of: &mut [(String, u64)], time_ns: u64) -> Option<String> {
        let found = of.iter_mut().find(|(_, left)| left.saturating_mul(2) >= time_ns)?;
        found.1 = found.1.saturating_sub(time_ns);
        Some(found.0.clone())
    }

    fn take_stolen(&mut self, time_ns: u64) -> bool {
        let enough = self.stolen_ns.saturating_mul(2) >= time_ns;
        self.stolen_ns = if enough { self.stolen_ns.saturating_sub(time_ns) } else { self.stolen_ns };
        enough
    }

    fn explain(&mut self, piece: Piece) -> Option<Wait> {
        let time_ns = piece.span.1 - piece.span.0;
        let stolen = (Cause::Standstill, None);
        match piece.state {
            // Only a real-time thread can be above an enforcer; one that has ended since is not named.
            State::OtherThread => Some((Cause::OtherThread, self.above.clone())),
            State::Waited if time_ns < PIECE_MIN_NS => Some((Cause::Overhead, None)),
            State::Waited => match Explanations::take(&mut self.foreign, time_ns) {
                Some(name) => Some((Cause::OtherThread, Some(name))),
                None => self.take_stolen(time_ns).then_some(stolen),
            },
            State::Asleep if time_ns >= PIECE_MIN_NS => {
                // Threads have their time to the ns, steal comes in ticks.
                let has_all = self.helpers.first().is_some_and(|(_, left)| *left >= time_ns);
                if !has_all && self.take_stolen(time_ns) {
                    return Some(stolen);
                }
                let name = Explanations::take(&mut self.helpers, time_ns)?;
                Some((Cause::HelperThread, Some(name)))
            }
            _ => None,
        }
    }
}

/// The processor on which something is explained.
#[derive(Clone, Copy, Default)]
pub(super) struct Place<'a> {
    /// Its place in the pool; `None`: any of the pool's.
    pub processor: Option<usize>,
    /// When it was taken away.
    pub taken: &'a [(Span, State)],
    /// Which other threads had it, where context switches were read.
    pub occupants: Option<&'a Occupants>,
}

/// Cuts pieces in which something waited where another thread got the processor or left it; returns the
/// pieces, and for each the name of that thread.
fn cut(pieces: &[Piece], occupants: &Occupants) -> (Vec<Piece>, Vec<Option<Wait>>) {
    let (mut cut, mut waits) = (Vec::with_capacity(pieces.len()), Vec::with_capacity(pieces.len()));
    for &piece in pieces {
        let mut from = piece.span.0;
        let mut add = |span: Span, wait: Option<Wait>| {
            if span.0 < span.1 {
                cut.push(Piece { span, state: piece.state });
                waits.push(wait);
            }
        };
        if matches!(piece.state, State::OtherThread | State::Waited) {
            for Occupant { span, name, .. } in occupants.within(piece.span) {
                add((from, span.0), None);
                add(span, Some((Cause::OtherThread, Some(name.to_owned()))));
                from = span.1;
            }
        }
        add((from, piece.span.1), None);
    }
    (cut, waits)
}

/// The pieces before `end` in which the vCPU slept without a break but for looks, as far as not explained.
fn asleep_before(vcpu: &Vcpu, end: usize) -> Vec<usize> {
    let is_asleep = |at: &usize| vcpu.pieces[*at].state == State::Asleep && vcpu.waits[*at].is_none();
    let goes_on = |at: &usize| vcpu.pieces[*at].state == State::Look || is_asleep(at);
    let mut asleep: Vec<usize> = (0..end).rev().take_while(goes_on).filter(is_asleep).collect();
    asleep.reverse();
    asleep
}

/// Finds out what the vCPU with this unit's name waited for.
pub(super) fn explain_waits<'s>(
    vcpu: &mut Vcpu,
    unit: &str,
    place: Place<'_>,
    samples: impl IntoIterator<Item = &'s Sample>,
) {
    vcpu.waits = vec![None; vcpu.pieces.len()];
    if let Some(occupants) = place.occupants {
        (vcpu.pieces, vcpu.waits) = cut(&vcpu.pieces, occupants);
    }
    let mut next = 0;
    for sample in samples {
        let mut explanations = None;
        // A thread's account has what it waited only when it waits no more, perhaps in this sample.
        for at in asleep_before(vcpu, next) {
            let of_sample = explanations.get_or_insert_with(|| Explanations::of(sample, unit, place));
            vcpu.waits[at] = of_sample.explain(vcpu.pieces[at]);
        }
        while let Some(piece) = vcpu.pieces.get(next).filter(|piece| piece.span.0 < sample.until_ns) {
            let needs_one = matches!(piece.state, State::OtherThread | State::Waited | State::Asleep);
            if needs_one && vcpu.waits[next].is_none() && piece.span.1 > sample.from_ns {
                let of_sample = explanations.get_or_insert_with(|| Explanations::of(sample, unit, place));
                vcpu.waits[next] = of_sample.explain(*piece);
            }
            next += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::enforcer::{Foreign, Helper};
    use punctual_linux::os::load::Load;

    const MS: u64 = 1_000_000;

    fn explained(state: State, sample: &Sample) -> Option<(Cause, Option<String>)> {
        let mut vcpu = Vcpu { pieces: vec![Piece { span: (10 * MS, 13 * MS), state }], ..Vcpu::default() };
        explain_waits(&mut vcpu, "vm.0", Place { processor: Some(0), ..Place::default() }, [sample]);
        vcpu.waits[0].clone()
    }

    #[test]
    fn with_context_switches_exactly_what_another_thread_had_is_that_threads() {
        let mut occupants = Occupants::default();
        for (span, name) in [((9 * MS, 11 * MS), "early"), ((12 * MS, 12 * MS + 500), "late")] {
            occupants.push(Occupant { span, name, is_above: true });
        }
        let sample = Sample { until_ns: 100 * MS, loads: vec![Load::default()], ..Sample::default() };
        let pieces = |state| vec![Piece { span: (10 * MS, 13 * MS), state }];
        let place = Place { processor: Some(0), occupants: Some(&occupants), ..Place::default() };
        let mut vcpu = Vcpu { pieces: pieces(State::Waited), ..Vcpu::default() };
        explain_waits(&mut vcpu, "vm.0", place, [&sample]);
        let by = |name: &str| Some((Cause::OtherThread, Some(name.to_owned())));
        let known: Vec<_> = vcpu.pieces.iter().map(|piece| piece.span).zip(vcpu.waits).collect();
        assert_eq!(
            known,
            [
                ((10 * MS, 11 * MS), by("early")),
                ((11 * MS, 12 * MS), None),
                ((12 * MS, 12 * MS + 500), by("late")),
                ((12 * MS + 500, 13 * MS), None),
            ]
        );
        let mut asleep = Vcpu { pieces: pieces(State::Asleep), ..Vcpu::default() };
        explain_waits(&mut asleep, "vm.0", place, [&sample]);
        assert_eq!((asleep.pieces.len(), &asleep.waits[..]), (1, &[None][..]));
    }

    #[test]
    fn a_span_may_be_stolen_unless_nothing_was_all_around_it() {
        let sample = |from_ms: u64, until_ms: u64, steal_ns: u64| Sample {
            from_ns: from_ms * MS,
            until_ns: until_ms * MS,
            loads: vec![Load { steal_ns, ..Load::default() }],
            ..Sample::default()
        };
        let may_be = |samples: &[Sample]| may_be_stolen(samples, 0, (1_000 * MS, 1_030 * MS));
        assert!(!may_be(&[sample(0, 1_020, 0), sample(1_020, 2_000, 0)]));
        assert!(may_be(&[sample(0, 1_020, 0), sample(1_020, 1_100, 0), sample(1_100, 2_000, TICK_NS)]));
        assert!(!may_be(&[sample(0, 1_600, 0), sample(1_600, 2_000, TICK_NS)]));
        assert!(may_be(&[sample(0, 1_020, 0)]), "nobody knows of the rest");
        assert!(may_be_stolen(&[sample(0, 2_000, 0)], 1, (MS, 2 * MS)), "of another processor");
    }

    #[test]
    fn waiting_is_explained_by_what_ran_was_stolen_or_kept_the_vmm_waiting() {
        let empty = Sample { until_ns: 100 * MS, loads: vec![Load::default()], ..Sample::default() };
        let thread = |processor| Sample {
            foreign: vec![
                Foreign { processor, name: "fair".into(), ran_ns: 80 * MS, is_real_time: false },
                Foreign { processor, name: "spinner".into(), ran_ns: 3 * MS, is_real_time: true },
            ],
            ..empty.clone()
        };
        let named = |cause, name: &str| Some((cause, Some(name.to_owned())));
        assert_eq!(explained(State::Waited, &thread(0)), named(Cause::OtherThread, "spinner"));
        assert_eq!(explained(State::OtherThread, &thread(0)), named(Cause::OtherThread, "spinner"));
        assert_eq!(explained(State::Waited, &thread(1)), None);
        assert_eq!(explained(State::OtherThread, &thread(1)), Some((Cause::OtherThread, None)));
        let stolen = Sample { loads: vec![Load { steal_ns: TICK_NS, ..Load::default() }], ..empty.clone() };
        assert_eq!(explained(State::Asleep, &stolen), Some((Cause::Standstill, None)));
        let helper = |unit: &str| Sample {
            helpers: vec![Helper { units: vec![unit.into()], name: "io".into(), busy_ns: 3 * MS }],
            ..empty.clone()
        };
        assert_eq!(explained(State::Asleep, &helper("vm.0")), named(Cause::HelperThread, "io"));
        assert_eq!(explained(State::Asleep, &helper("vm2.0")), None);
        assert_eq!(explained(State::Asleep, &thread(0)), None);
    }

    #[test]
    fn a_wait_that_ends_in_a_later_sample_is_explained_by_that() {
        let sample = |from_ms: u64, busy_ns: u64| Sample {
            from_ns: from_ms * MS,
            until_ns: (from_ms + 100) * MS,
            loads: vec![Load::default()],
            helpers: vec![Helper { units: vec!["vm.0".into()], name: "io".into(), busy_ns }],
            ..Sample::default()
        };
        let piece = |from_ms: u64, until_ms: u64, state| Piece { span: (from_ms * MS, until_ms * MS), state };
        let pieces = vec![
            piece(70, 80, State::Asleep),
            piece(80, 90, State::Ran),
            piece(90, 95, State::Asleep),
            piece(95, 96, State::Look),
            piece(96, 104, State::Asleep),
            piece(104, 110, State::Ran),
            piece(110, 120, State::Asleep),
        ];
        let mut vcpu = Vcpu { pieces, ..Vcpu::default() };
        explain_waits(&mut vcpu, "vm.0", Place::default(), [&sample(0, 0), &sample(100, 13 * MS)]);
        let by_helper: Vec<bool> = vcpu.waits.iter().map(Option::is_some).collect();
        // What goes on until the helper's account had it, not what was over before, nor more than it had.
        assert_eq!(by_helper, [false, false, true, false, true, false, false]);
    }
}
