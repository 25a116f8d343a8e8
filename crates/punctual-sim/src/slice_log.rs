//! The observer that lists slices.

use punctual_model::Host;
use punctual_model::index::{TaskIx, VcpuIx};
use punctual_model::trace::{Entity, SlicePlace, SliceRecord};
use punctual_sched::Instant;

use crate::observe::{Event, Observer, Occupant, ProcessorIx};

/// Gives each slice of processors and vCPUs to a sink when it has ended. Idle processors have no slices.
///
/// The machine accounts for a slice in pieces; those that follow each other without a break are one slice.
pub struct SliceLog<F> {
    sink: F,
    processors: usize,
    vcpus: usize,
    /// By processor, vCPUs behind the physical ones.
    open: Vec<Option<SliceRecord>>,
}

impl<F: FnMut(&SliceRecord)> SliceLog<F> {
    /// For a machine that simulates `host`.
    pub fn new(host: &Host, sink: F) -> Self {
        let (processors, vcpus) = (host.processors, host.vcpus.len());
        SliceLog { sink, processors, vcpus, open: vec![None; processors + vcpus] }
    }

    /// What `occupant` does on `processor` from `from` to `end`.
    fn record(
        &self,
        processor: ProcessorIx,
        occupant: Occupant,
        [from, start, end]: [Instant; 3],
    ) -> Option<SliceRecord> {
        let unit = occupant.charged()?.index();
        let unit = match unit.checked_sub(self.vcpus) {
            Some(task) => Entity::Task(TaskIx(task)),
            None => Entity::Vcpu(VcpuIx(unit)),
        };
        let place = match processor.index().checked_sub(self.processors) {
            Some(vcpu) => SlicePlace::Vcpu(VcpuIx(vcpu)),
            None => SlicePlace::Processor(processor.index()),
        };
        let idled_away = occupant.runs().is_none();
        // The run may end while scheduling takes its time.
        Some(SliceRecord { place, unit, idled_away, from, start: start.min(end), end })
    }

    fn slice(&mut self, processor: ProcessorIx, next: Option<SliceRecord>) {
        let open = &mut self.open[processor.index()];
        let continues = |open: &SliceRecord, next: &SliceRecord| {
            let same = open.unit == next.unit && open.idled_away == next.idled_away;
            same && next.from == open.end && next.start == next.from
        };
        match (open.as_mut(), next) {
            (Some(open), Some(next)) if continues(open, &next) => open.end = next.end,
            _ => {
                if let Some(ended) = std::mem::replace(open, next) {
                    (self.sink)(&ended);
                }
            }
        }
    }
}

impl<F: FnMut(&SliceRecord)> Observer for SliceLog<F> {
    const STEPS: bool = false;

    fn observe(&mut self, now: Instant, event: Event<'_>) {
        match event {
            Event::Slice { processor, occupant, from, start } if now > from => {
                let next = self.record(processor, occupant, [from, start, now]);
                self.slice(processor, next);
            }
            Event::End => {
                for ended in std::mem::take(&mut self.open).into_iter().flatten() {
                    (self.sink)(&ended);
                }
            }
            _ => {}
        }
    }
}
