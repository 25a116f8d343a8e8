//! Reconstructs from the looks of its enforcers when each unit of a pool ran.
//!
//! A look says exactly how long every unit ran since the previous look, but not when. Between two looks the
//! kernel alone schedules, by real-time priorities, so units are placed into that interval in order of
//! urgency, each as early as it had work. A guest reports when it had work: from the release of each job
//! until the job's completion.

use crate::driver::Order;
use crate::enforcer::Entry;
use crate::spans::{Span, Spans};

/// A look that comes later than this is judged; a timer's usual lateness is below.
pub(super) const LATE_MIN_NS: u64 = 200_000;

/// What was the case for a unit, over a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// It ran.
    Ran,
    /// The enforcer looked.
    Look,
    /// It could run, waited for no processor and did not run: it slept.
    Asleep,
    /// It waited for its processor, and no unit explains that.
    Waited,
    /// A more urgent unit ran.
    Preempted {
        /// Its number.
        by: u32,
    },
    /// It had budget, and a more urgent unit idled its own away (periodic server).
    IdledAwayBy {
        /// Its number.
        unit: u32,
    },
    /// It had none, or was parked.
    NoBudget,
    /// It was about to be allowed to run, and the look was late.
    LookLate,
    /// A thread above the enforcer had the processor.
    OtherThread,
    /// The machine stood still.
    Standstill,
}

/// Something that was the case for a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// When.
    pub span: Span,
    /// What.
    pub state: State,
}

/// A unit of the pool, as the driver numbers them.
#[derive(Clone, Debug, Default)]
pub struct UnitWork {
    /// When its guest had jobs; `None` if no guest reports jobs, so that no job of it is explained.
    pub ready: Option<Spans>,
}

/// What all units of a pool got.
#[derive(Clone, Debug, Default)]
pub struct Supply {
    /// By unit: pieces in order of time, which do not overlap. Time that is in none is not known.
    pub pieces: Vec<Vec<Piece>>,
    /// By processor of the pool: when it was taken away by a standstill, or by a thread above the enforcer.
    pub taken: Vec<Vec<(Span, State)>>,
    /// By processor of the pool: from when a look was due until it came, where only the enforcer or its timer
    /// was late.
    pub late: Vec<Vec<Span>>,
    /// By unit: the number of its run queue, which is that of its processor where each has one.
    pub queues: Vec<usize>,
}

/// The time between two looks of a run queue, and the look that ended it.
#[derive(Clone, Debug, Default)]
struct Gap {
    span: Span,
    look: Span,
    late_ns: u64,
    cpu: usize,
    ran: Vec<(u32, u64, u64)>,
    late: Option<(u64, bool)>,
    /// Orders before the look, by unit; `None` for units of other queues.
    orders: Vec<Option<(Order, bool)>>,
}

/// What was seen beside the enforcers' looks.
#[derive(Clone, Copy)]
pub struct Seen<'a> {
    /// May a processor have stood still over a span? `false`: something speaks against it.
    pub may_have_stood_still: &'a dyn Fn(usize, Span) -> bool,
    /// When other threads that are more urgent than every unit had a processor within a span, as far as that
    /// is known.
    pub above: &'a dyn Fn(usize, Span) -> Spans,
}

/// Rebuilds a pool's supply.
pub struct Builder<'a> {
    units: &'a [UnitWork],
    shared_queue: bool,
    processors: usize,
    supply: Supply,
    /// By unit: its order, whether it has budget, and the queue that decides about it.
    orders: Vec<Option<(Order, bool, usize)>>,
    /// By queue: when its last look ended.
    last_end: Vec<Option<u64>>,
    ran: Vec<(u32, u64, u64)>,
    late: Option<(u64, bool)>,
    /// The last gap, until the orders are known that its look gave.
    pending: Option<Gap>,
    seen: Seen<'a>,
}

impl<'a> Builder<'a> {
    /// For a pool of `processors`, with one run queue for all of them or one for each.
    pub fn new(units: &'a [UnitWork], processors: usize, shared_queue: bool, seen: Seen<'a>) -> Builder<'a> {
        Builder {
            units,
            shared_queue,
            processors,
            supply: Supply {
                pieces: vec![Vec::new(); units.len()],
                taken: vec![Vec::new(); processors],
                late: vec![Vec::new(); processors],
                queues: vec![0; units.len()],
            },
            orders: vec![None; units.len()],
            last_end: vec![None; processors],
            ran: Vec::new(),
            late: None,
            pending: None,
            seen,
        }
    }

    /// The supply by these entries.
    pub fn build(mut self, entries: impl IntoIterator<Item = Entry>) -> Supply {
        let mut queue = 0;
        for entry in entries {
            if !matches!(entry, Entry::Order { .. }) {
                self.finish_gap();
            }
            match entry {
                Entry::Ran { unit, ran_ns, waited_ns, .. } => {
                    self.ran.push((unit, ran_ns.into(), waited_ns.into()));
                }
                Entry::Late { waited_ns, ran_on, .. } => {
                    self.late = Some((waited_ns.into(), ran_on));
                }
                Entry::Look { at_ns, late_ns, took_ns, cpu } => {
                    queue = if self.shared_queue { 0 } else { usize::from(cpu) };
                    self.look(queue, cpu.into(), at_ns, late_ns.into(), took_ns.into());
                }
                Entry::Order { unit, order, has_budget } => {
                    if let Some(known) = self.orders.get_mut(unit as usize) {
                        *known = Some((order, has_budget, queue));
                        self.supply.queues[unit as usize] = queue;
                    }
                }
                Entry::Lost => {
                    self.last_end.fill(None);
                    self.ran.clear();
                    self.late = None;
                }
            }
        }
        self.finish_gap();
        self.supply
    }

    fn look(&mut self, queue: usize, cpu: usize, at_ns: u64, late_ns: u64, took_ns: u64) {
        let (ran, late) = (std::mem::take(&mut self.ran), self.late.take());
        if cpu >= self.processors {
            return;
        }
        let end_ns = at_ns + took_ns;
        let Some(last_end) = self.last_end.get_mut(queue) else { return };
        let Some(from) = last_end.replace(end_ns) else { return };
        let in_queue = |known: &Option<(Order, bool, usize)>| {
            known.filter(|(_, _, of)| *of == queue).map(|(order, has_budget, _)| (order, has_budget))
        };
        self.pending = Some(Gap {
            span: (from.min(at_ns), at_ns),
            look: (at_ns, end_ns),
            late_ns,
            cpu,
            ran,
            late,
            orders: self.orders.iter().map(in_queue).collect(),
        });
    }

    fn finish_gap(&mut self) {
        let Some(gap) = self.pending.take() else { return };
        let blocked = gap.blocked(self.seen.may_have_stood_still);
        match (blocked, gap.late_span()) {
            (Some(blocked), _) => self.supply.taken[gap.cpu].push(blocked),
            (None, Some(late)) => self.supply.late[gap.cpu].push(late),
            (None, None) => {}
        }
        let above = (self.seen.above)(gap.cpu, gap.span);
        let lanes = if self.shared_queue { self.processors } else { 1 };
        let mut away = blocked.map(|(span, _)| Spans::of(span)).unwrap_or_default();
        if lanes == 1 {
            away.add(&above);
        }
        let placed = gap.place(self.units, lanes, &away);
        for unit in 0..self.units.len() {
            let Some(ready) = &self.units[unit].ready else { continue };
            let Some((order, has_budget)) = gap.orders[unit] else { continue };
            let may_run_now = matches!(self.orders[unit], Some((Order::Ranked(_), _, _)));
            let mut pieces = Pieces::new(&gap, &above, ready, &placed[unit]);
            if let Some((span, state)) = blocked {
                pieces.put(&Spans::of(span), state);
            }
            match order {
                Order::Parked => pieces.parked(has_budget, may_run_now, &placed),
                Order::Ranked(rank) => pieces.ranked(unit, rank, &placed),
            }
            pieces.of_look(order, may_run_now);
            self.supply.pieces[unit].extend(pieces.sorted());
        }
    }
}

impl Gap {
    /// The end of the gap in which its look was due and did not come, if that is long enough to be judged.
    fn late_span(&self) -> Option<Span> {
        let late_ns = self.late_ns.min(self.span.1 - self.span.0);
        (late_ns >= LATE_MIN_NS).then(|| (self.span.1 - late_ns, self.span.1))
    }

    /// The end of the gap in which the processor was taken away, if it was.
    fn blocked(&self, may_have_stood_still: &dyn Fn(usize, Span) -> bool) -> Option<(Span, State)> {
        let span = self.late_span()?;
        let (waited_ns, ran_on) = self.late.unwrap_or_default();
        if waited_ns.saturating_mul(2) >= span.1 - span.0 {
            return Some((span, State::OtherThread));
        }
        (!ran_on && may_have_stood_still(self.cpu, span)).then_some((span, State::Standstill))
    }

    fn rank(&self, unit: usize) -> Option<u16> {
        match self.orders.get(unit).copied().flatten() {
            Some((Order::Ranked(rank), _)) => Some(rank),
            _ => None,
        }
    }

    /// Lays what the units ran into the gap, but for the time in which the processor was away: by unit, when
    /// it ran. Parked units come first, for they ran only
    /// until the freezer had them.
    fn place(&self, units: &[UnitWork], lanes: usize, away: &Spans) -> Vec<Placed> {
        let mut placed: Vec<Placed> =
            (0..units.len()).map(|unit| Placed { rank: self.rank(unit), ..Placed::default() }).collect();
        let all = Spans::of(self.span).without(away);
        let mut free = vec![all; lanes];
        let mut order: Vec<&(u32, u64, u64)> = self.ran.iter().collect();
        order.sort_by_key(|(unit, ..)| self.rank(*unit as usize).map_or(0, |rank| u32::from(rank) + 1));
        for &&(unit, ran_ns, waited_ns) in &order {
            let Some(work) = units.get(unit as usize) else { continue };
            let whole = Spans::of(self.span);
            let ready = work.ready.as_ref().map_or_else(|| whole.clone(), |ready| ready.within(self.span));
            let mut left = ran_ns;
            let mut ran = Spans::default();
            for windows in [&ready, &whole] {
                for lane in &mut free {
                    let part = lane.and(windows).without(&ran).first(left);
                    left -= part.length();
                    *lane = lane.without(&part);
                    ran.add(&part);
                }
            }
            placed[unit as usize].ran = ran;
            placed[unit as usize].waited_ns = waited_ns;
        }
        placed
    }
}

/// When a unit ran within a gap.
#[derive(Clone, Debug, Default)]
struct Placed {
    ran: Spans,
    waited_ns: u64,
    /// As its enforcer had ordered; `None` when it was parked, or is of another queue.
    rank: Option<u16>,
}

/// The pieces of one unit in a gap.
struct Pieces<'g> {
    gap: &'g Gap,
    above: &'g Spans,
    /// Time with work that no piece has yet.
    rest: Spans,
    of_look: Spans,
    waited_ns: u64,
    pieces: Vec<Piece>,
}

impl<'g> Pieces<'g> {
    fn new(gap: &'g Gap, above: &'g Spans, ready: &Spans, placed: &Placed) -> Pieces<'g> {
        let rest = ready.within(gap.span).without(&placed.ran);
        let pieces = placed.ran.iter().map(|span| Piece { span, state: State::Ran }).collect();
        Pieces { gap, above, rest, of_look: ready.within(gap.look), waited_ns: placed.waited_ns, pieces }
    }

    /// What of `spans` has no piece yet gets this state.
    fn put(&mut self, spans: &Spans, state: State) {
        let part = self.rest.and(spans);
        self.pieces.extend(part.iter().map(|span| Piece { span, state }));
        self.rest = self.rest.without(&part);
    }

    /// A unit that was parked; `may_run_now`: since the look at the end of the gap it is not.
    fn parked(&mut self, has_budget: bool, may_run_now: bool, placed: &[Placed]) {
        let (from, until) = self.gap.span;
        if may_run_now {
            self.put(&Spans::of((until.saturating_sub(self.gap.late_ns).max(from), until)), State::LookLate);
        }
        let most_urgent = placed.iter().position(|other| other.rank == Some(0));
        if let (true, Some(top)) = (has_budget, most_urgent) {
            self.put(&placed[top].ran, State::Preempted { by: top as u32 });
            self.put(&Spans::of(self.gap.span), State::IdledAwayBy { unit: top as u32 });
        }
        self.put(&Spans::of(self.gap.span), State::NoBudget);
    }

    /// A unit that was allowed to run.
    fn ranked(&mut self, unit: usize, rank: u16, placed: &[Placed]) {
        let mut by_units_ns = 0;
        for (other, of_other) in placed.iter().enumerate() {
            // A parked one ran until the freezer had it.
            if other != unit && of_other.rank.is_none_or(|other| other < rank) {
                by_units_ns += of_other.ran.length();
                self.put(&of_other.ran, State::Preempted { by: other as u32 });
            }
        }
        let above = self.rest.and(self.above);
        self.put(&above, State::Waited);
        let known_ns = by_units_ns + above.length();
        let waited = self.rest.first(self.waited_ns.saturating_sub(known_ns));
        self.put(&waited, State::Waited);
        self.put(&Spans::of(self.gap.span), State::Asleep);
    }

    /// The look itself.
    fn of_look(&mut self, order: Order, may_run_now: bool) {
        let state = match (order, may_run_now) {
            (Order::Parked, false) => State::NoBudget,
            _ => State::Look,
        };
        let look = std::mem::take(&mut self.of_look);
        self.pieces.extend(look.iter().map(|span| Piece { span, state }));
    }

    fn sorted(mut self) -> Vec<Piece> {
        self.pieces.sort_unstable_by_key(|piece| piece.span);
        self.pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: u64 = 1_000;
    /// Nothing speaks against a standstill, and nobody else is known.
    const BLIND: Seen<'static> =
        Seen { may_have_stood_still: &|_, _| true, above: &|_, _| Spans::of((0, 0)) };

    fn look(at_ns: u64, late_ns: u32) -> Entry {
        Entry::Look { at_ns, late_ns, took_ns: LOOK as u32, cpu: 0 }
    }

    fn ran(unit: u32, ran_ns: u32) -> Entry {
        Entry::Ran { unit, ran_ns, waited_ns: 0, arrivals: 1 }
    }

    fn order(unit: u32, rank: Option<u16>) -> Entry {
        let order = rank.map_or(Order::Parked, Order::Ranked);
        Entry::Order { unit, order, has_budget: rank.is_some() }
    }

    fn units(ready: &[&[Span]]) -> Vec<UnitWork> {
        ready.iter().map(|spans| UnitWork { ready: Some(Spans::union(spans.to_vec())) }).collect()
    }

    fn pieces(supply: &Supply, unit: usize) -> Vec<(u64, u64, State)> {
        supply.pieces[unit].iter().map(|piece| (piece.span.0, piece.span.1, piece.state)).collect()
    }

    #[test]
    fn units_run_in_order_of_urgency_as_soon_as_they_have_work() {
        let units = units(&[&[(5_000, 8_000)], &[(2_000, 12_000)]]);
        let entries =
            [look(0, 0), order(0, Some(0)), order(1, Some(1)), ran(0, 2_000), ran(1, 5_000), look(11_000, 0)];
        let supply = Builder::new(&units, 1, false, BLIND).build(entries);
        assert_eq!(
            pieces(&supply, 1),
            [
                (2_000, 5_000, State::Ran),
                (5_000, 7_000, State::Preempted { by: 0 }),
                (7_000, 9_000, State::Ran),
                (9_000, 11_000, State::Asleep),
                (11_000, 12_000, State::Look),
            ]
        );
        assert_eq!(pieces(&supply, 0), [(5_000, 7_000, State::Ran), (7_000, 8_000, State::Asleep)]);
    }

    #[test]
    fn a_unit_waits_while_a_thread_above_all_units_has_its_processor() {
        let units = units(&[&[(0, 10_000)]]);
        let entries = [look(0, 0), order(0, Some(0)), ran(0, 6_000), look(10_000, 0)];
        let above = |_: usize, span: Span| Spans::of((6_000, 8_000)).within(span);
        let supply = Builder::new(&units, 1, false, Seen { above: &above, ..BLIND }).build(entries);
        let expected = [
            (LOOK, 6_000, State::Ran),
            (6_000, 8_000, State::Waited),
            (8_000, 9_000, State::Ran),
            (9_000, 10_000, State::Asleep),
        ];
        assert_eq!(pieces(&supply, 0), expected);
    }

    #[test]
    fn a_late_look_is_blamed_on_a_thread_above_a_standstill_or_enforcement() {
        let late = |waited_ns: u32, ran_on: bool| {
            let units = units(&[&[(0, 3_000_000)], &[(0, 3_000_000)]]);
            let entries = [
                look(0, 0),
                order(0, Some(0)),
                order(1, None),
                ran(0, if ran_on { 1_999_000 } else { 999_000 }),
                Entry::Late { waited_ns, stolen_ns: 0, ran_on },
                look(2_000_000, 1_000_000),
                order(1, Some(1)),
            ];
            let supply = Builder::new(&units, 1, false, BLIND).build(entries);
            let states = |unit: usize| pieces(&supply, unit).split_off(1);
            (states(0), states(1), supply.taken[0].clone())
        };
        let span = (1_000_000, 2_000_000);
        let (ran, parked, taken) = late(990_000, false);
        assert_eq!(taken, [(span, State::OtherThread)]);
        assert_eq!(
            (ran[0], parked[0]),
            ((span.0, span.1, State::OtherThread), (span.0, span.1, State::OtherThread))
        );
        let (ran, _, taken) = late(0, false);
        assert_eq!((ran[0].2, taken[0].1), (State::Standstill, State::Standstill));
        let (_, parked, taken) = late(0, true);
        assert_eq!((parked[0].2, taken), (State::LookLate, Vec::new()));
    }

    #[test]
    fn a_late_look_of_a_machine_that_did_not_stand_still_was_late_itself() {
        let units = units(&[&[(0, 3_000_000)]]);
        let entries = [look(0, 0), order(0, None), look(2_000_000, 1_000_000), order(0, Some(0))];
        let build = |stood_still: &dyn Fn(usize, Span) -> bool| {
            let supply = Builder::new(&units, 1, false, Seen { may_have_stood_still: stood_still, ..BLIND })
                .build(entries);
            (pieces(&supply, 0)[1], supply.taken[0].clone(), supply.late[0].clone())
        };
        let span = (1_000_000, 2_000_000);
        let state = |state: State| (span.0, span.1, state);
        assert_eq!(build(&|_, _| false), (state(State::LookLate), vec![], vec![span]));
        let stood_still = build(&|cpu, asked| cpu == 0 && asked == span);
        assert_eq!(stood_still, (state(State::Standstill), vec![(span, State::Standstill)], vec![]));
    }

    #[test]
    fn a_unit_without_budget_is_parked_and_nothing_is_known_across_lost_entries() {
        let units = units(&[&[(0, 100_000)]]);
        let entries =
            [look(0, 0), order(0, None), look(10_000, 0), Entry::Lost, look(50_000, 0), look(60_000, 0)];
        let supply = Builder::new(&units, 1, false, BLIND).build(entries);
        let known = pieces(&supply, 0);
        assert!(known.iter().all(|piece| piece.2 == State::NoBudget), "{known:?}");
        assert_eq!(known.iter().map(|piece| piece.1 - piece.0).sum::<u64>(), 9_000 + LOOK + 9_000 + LOOK);
    }
}
