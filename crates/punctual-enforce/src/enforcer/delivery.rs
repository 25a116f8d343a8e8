//! What each unit of a pool was delivered, whether or not its guest reports anything: during a run for
//! `punctual top`, and afterwards for the results.

use punctual_model::results::Delivery;
use punctual_sched::Duration;

use super::history::Entry;
use crate::driver::Order;
use crate::spans::Span;

/// A budget counts as delivered when less than this part of it is missing: looks are late by that.
const MISSING_PARTS: u64 = 50;

/// A unit while its entries are read.
#[derive(Clone, Debug, Default)]
struct Account {
    delivery: Delivery,
    /// Its budget and period, in ns.
    budget: Option<(u64, u64)>,
    /// The period that goes on: when it began, what the unit ran in it, and how long it waited.
    period: Option<(u64, u64, u64)>,
    /// Since when it is parked although it had just run.
    parked_ns: Option<u64>,
    /// How long it was parked before it might run again.
    was_parked_ns: u64,
    has_run: bool,
    is_parked: bool,
}

impl Account {
    fn ran(&mut self, ran_ns: u64, waited_ns: u64, arrivals: u16) {
        if let Some(mean_ns) = waited_ns.checked_div(arrivals.into()) {
            self.delivery.wait.record_n(Duration::from_ns(mean_ns), arrivals.into());
        }
        let without_ns = std::mem::take(&mut self.was_parked_ns) + waited_ns;
        self.delivery.longest_without_ns = self.delivery.longest_without_ns.max(without_ns);
        self.has_run = ran_ns > 0;
        if let Some((_, ran, waited)) = &mut self.period {
            *ran += ran_ns;
            *waited += waited_ns;
        }
    }

    fn order(&mut self, is_parked: bool, at_ns: u64) {
        match (self.is_parked, is_parked) {
            (false, true) => self.parked_ns = self.has_run.then_some(at_ns),
            (true, false) => {
                self.was_parked_ns = self.parked_ns.take().map_or(0, |since| at_ns.saturating_sub(since));
            }
            _ => {}
        }
        self.is_parked = is_parked;
    }

    /// Ends the periods that are over at a look.
    fn look(&mut self, at_ns: u64) {
        let Some((budget_ns, period_ns)) = self.budget else { return };
        let (began, ran, waited) = self.period.get_or_insert((at_ns, 0, 0));
        let elapsed = at_ns.saturating_sub(*began);
        if elapsed < period_ns.max(1) {
            return;
        }
        let missing_ns = budget_ns.saturating_sub(*ran);
        // It wanted the rest only if it waited for it.
        let is_delivered = missing_ns <= budget_ns / MISSING_PARTS || *waited < missing_ns;
        let periods = elapsed / period_ns.max(1);
        self.delivery.periods += periods;
        self.delivery.delivered += if is_delivered { periods } else { periods - 1 };
        self.period = Some((*began + periods * period_ns.max(1), 0, 0));
    }
}

/// Reads what enforcers saw, entry by entry, and keeps what each unit was delivered so far.
#[derive(Debug)]
pub struct Deliveries {
    /// What happened before and after it does not count.
    window: Span,
    /// By number of a unit.
    accounts: Vec<Account>,
    /// What units ran until the look that comes next: unit, time, time of waiting, arrivals.
    ran: Vec<(u32, u64, u64, u16)>,
    /// Was the last look within the window?
    is_within: bool,
    look_ns: u64,
}

impl Deliveries {
    /// Nothing yet, of what happens within `window`.
    pub fn within(window: Span) -> Deliveries {
        Deliveries { window, accounts: Vec::new(), ran: Vec::new(), is_within: false, look_ns: 0 }
    }

    /// The unit with this number has this budget and period from now on, both in ns. Where they change, the
    /// period that goes on is not judged.
    pub fn set_budget(&mut self, unit: usize, budget: Option<(u64, u64)>) {
        let account = self.account(unit);
        if std::mem::replace(&mut account.budget, budget) != budget {
            account.period = None;
        }
    }

    /// Another unit has this number from now on.
    pub fn forget(&mut self, unit: usize) {
        *self.account(unit) = Account::default();
    }

    fn account(&mut self, unit: usize) -> &mut Account {
        if self.accounts.len() <= unit {
            self.accounts.resize_with(unit + 1, Account::default);
        }
        &mut self.accounts[unit]
    }

    /// Reads what comes after all that was read before.
    pub fn read(&mut self, entry: Entry) {
        match entry {
            Entry::Ran { unit, ran_ns, waited_ns, arrivals } => {
                self.ran.push((unit, ran_ns.into(), waited_ns.into(), arrivals));
            }
            Entry::Look { at_ns, .. } => self.look(at_ns),
            Entry::Order { unit, order, .. } => {
                let at_ns = if self.is_within { self.look_ns } else { self.window.0 };
                self.account(unit as usize).order(order == Order::Parked, at_ns);
            }
            Entry::Late { .. } | Entry::Lost => {}
        }
    }

    fn look(&mut self, at_ns: u64) {
        let is_within = (self.window.0..=self.window.1).contains(&at_ns);
        (self.is_within, self.look_ns) = (is_within, at_ns);
        let mut ran = std::mem::take(&mut self.ran);
        for (unit, ran_ns, waited_ns, arrivals) in ran.drain(..).filter(|_| is_within) {
            self.account(unit as usize).ran(ran_ns, waited_ns, arrivals);
        }
        self.ran = ran;
        if is_within {
            self.accounts.iter_mut().for_each(|account| account.look(at_ns));
        }
    }

    /// By number of a unit, what it was delivered so far.
    pub fn by_unit(&self) -> impl ExactSizeIterator<Item = &Delivery> {
        self.accounts.iter().map(|account| &account.delivery)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn delivered(entries: &[Entry]) -> Delivery {
        let mut deliveries = Deliveries::within((0, 100 * MS));
        deliveries.set_budget(0, Some((2 * MS, 10 * MS)));
        entries.iter().for_each(|entry| deliveries.read(*entry));
        deliveries.by_unit().next().expect("one unit").clone()
    }

    fn look(at_ms: u64) -> Entry {
        Entry::Look { at_ns: at_ms * MS, late_ns: 0, took_ns: 0, cpu: 0 }
    }

    fn ran(ran_ms: u64, waited_ms: u64) -> Entry {
        let ns = |ms: u64| (ms * MS) as u32;
        Entry::Ran { unit: 0, ran_ns: ns(ran_ms), waited_ns: ns(waited_ms), arrivals: 1 }
    }

    fn order(order: Order) -> Entry {
        Entry::Order { unit: 0, order, has_budget: true }
    }

    #[test]
    fn a_budget_is_delivered_whole_not_wanted_or_not_delivered() {
        let run = Order::Ranked(0);
        // Whole; little and not wanted; little though it waited.
        let entries = [look(0), order(run), ran(2, 0), look(10), ran(1, 0), look(20), ran(1, 9), look(30)];
        let delivery = delivered(&entries);
        assert_eq!((delivery.periods, delivery.delivered), (3, 2));
        assert_eq!((delivery.longest_without_ns, delivery.wait.count()), (9 * MS, 3));
    }

    #[test]
    fn a_unit_is_without_the_processor_while_it_is_parked_after_it_ran_and_waits_after_that() {
        let (run, parked) = (Order::Ranked(0), Order::Parked);
        let entries = [
            look(0),
            order(run),
            ran(2, 0),
            look(2),
            order(parked),
            look(10),
            order(run),
            ran(2, 1),
            look(13),
        ];
        assert_eq!(delivered(&entries).longest_without_ns, 9 * MS);
    }
}
