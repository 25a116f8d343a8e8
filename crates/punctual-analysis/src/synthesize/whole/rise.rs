//! Budgets that rise until every deadline holds, and then fall as far as they may.

use punctual_model::Host;
use punctual_model::index::VcpuIx;
use punctual_sched::Duration;

use super::super::chosen::share;
use super::super::error::{Error, Shortfall};
use super::super::options::Options;
use super::super::trial::{least_budget, params_mut};
use super::blocks::{Blocks, pool_of};
use crate::analyse::answers;
use crate::answer::{Answer, Answers};
use crate::demand::NANOSECOND;
use crate::inputs::{UnitIx, name, params};
use crate::needs::Need;
use crate::reason::Reason;
use crate::watch::{Stage, Stopped, Watch, report};

/// A budget that is too small grows by at least a granule and this part of itself.
const PARTS: u64 = 4;

/// So often other budgets make room for one that can rise no further.
const MAKE_ROOM_MAX: u32 = 8;

/// By how much budgets are lowered at a time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Steps {
    /// All by the same time.
    Alike,
    /// Each by the same part of what it has.
    Parts,
}

/// Which budgets are lowered first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    ShortPeriodsFirst,
    LongPeriodsFirst,
}

/// Each may end in another combination of budgets.
const WAYS: [(Steps, Order); 4] = [
    (Steps::Alike, Order::ShortPeriodsFirst),
    (Steps::Alike, Order::LongPeriodsFirst),
    (Steps::Parts, Order::ShortPeriodsFirst),
    (Steps::Parts, Order::LongPeriodsFirst),
];

/// Exchanges of one budget for others, each of which makes the host cheaper.
const EXCHANGES_MAX: u32 = 32;

/// By one in so many parts of itself a budget is raised in an exchange.
const RAISES: [u64; 3] = [8, 2, 1];

/// A search on one host.
pub(super) struct Rise<'a> {
    host: Host,
    blocks: &'a Blocks,
    granule: Duration,
    watch: Watch<'a>,
    analyses: u64,
    /// Analyses after which the search is content with what it has.
    end: u64,
    /// What the analysis says of `host`.
    now: Answers,
}

impl<'a> Rise<'a> {
    /// The host has the budgets to start from.
    pub(super) fn new(host: Host, blocks: &'a Blocks, options: &Options, watch: Watch<'a>) -> Self {
        let granule = options.granularity.max(NANOSECOND);
        let now = answers(&host);
        Rise { host, blocks, granule, watch, analyses: 1, end: options.effort, now }
    }

    /// Finds budgets with which all deadlines hold, from those of the host or else from the `others`, each by
    /// block; can none of them be a granule smaller?
    ///
    /// # Errors
    /// Which deadline does not hold from the first start, or that the watch stopped the search.
    pub(super) fn search(&mut self, others: &[Vec<Duration>], options: &Options) -> Result<bool, Error> {
        let (host, now) = (self.host.clone(), self.now.clone());
        let mut risen = self.rise(options);
        let unmet = risen.as_ref().err().cloned();
        for start in others {
            if !matches!(risen, Err(Error::Unmet { .. })) {
                break;
            }
            (self.host, self.now) = (host.clone(), now.clone());
            (0..self.blocks.all.len()).zip(start).for_each(|(block, budget)| self.set(block, *budget));
            self.now = self.judge()?;
            risen = self.rise(options);
        }
        match (risen, unmet) {
            (Err(Error::Unmet { .. }), Some(first)) => Err(first),
            (Err(error), _) => Err(error),
            (Ok(()), _) => self.fall(options),
        }
    }

    /// Raises budgets until all deadlines hold.
    fn rise(&mut self, options: &Options) -> Result<(), Error> {
        let mut left = MAKE_ROOM_MAX;
        loop {
            let unmet = self.unmet();
            let Some(first) = unmet.first() else { return Ok(()) };
            if self.analyses > self.end {
                return Err(self.unmet_error(first.0, Shortfall::Effort));
            }
            let mut at: Vec<usize> = unmet.iter().flat_map(|(_, at)| at.iter().copied()).collect();
            at.sort_unstable();
            at.dedup();
            if self.raise(&at)? {
                continue;
            }
            let others: Vec<usize> = (0..self.blocks.all.len()).filter(|other| !at.contains(other)).collect();
            if left == 0 || !self.lower(&others, Steps::Alike, options)?.0 {
                return Err(self.why_not(first));
            }
            left -= 1;
        }
    }

    /// Lowers all budgets in each of the ways, from where they are now, and keeps the cheapest outcome; can
    /// none of its budgets be a granule smaller?
    fn fall(&mut self, options: &Options) -> Result<bool, Error> {
        let (start, now) = (self.host.clone(), self.now.clone());
        let mut best: Option<(u64, bool, Host, Answers)> = None;
        for (steps, order) in WAYS {
            (self.host, self.now) = (start.clone(), now.clone());
            let is_least = self.lower(&self.in_order(order), steps, options)?.1;
            let share = self.share();
            if best.as_ref().is_none_or(|(least, ..)| share < *least) {
                best = Some((share, is_least, self.host.clone(), self.now.clone()));
            }
        }
        let Some((_, is_least, host, answers)) = best else { return Ok(false) };
        (self.host, self.now) = (host, answers);
        Ok(is_least && self.exchange(options)?)
    }

    /// Raises one budget and lowers the others as far as that permits, as long as it makes the host cheaper;
    /// was the search complete?
    fn exchange(&mut self, options: &Options) -> Result<bool, Stopped> {
        let order = self.in_order(Order::ShortPeriodsFirst);
        for _ in 0..EXCHANGES_MAX {
            let (host, now, share) = (self.host.clone(), self.now.clone(), self.share());
            let mut is_cheaper = false;
            for (block, parts) in order.iter().flat_map(|block| RAISES.map(|parts| (*block, parts))) {
                if self.raise_by(&[block], |own, granule| granule * (own / parts).div_ceil(granule).max(1))?
                    && self.unmet().is_empty()
                {
                    let others: Vec<usize> = order.iter().copied().filter(|other| *other != block).collect();
                    self.lower(&others, Steps::Alike, options)?;
                    is_cheaper = self.lower(&order, Steps::Alike, options)?.1 && self.share() < share;
                }
                if is_cheaper {
                    break;
                }
                (self.host, self.now) = (host.clone(), now.clone());
                if self.analyses > self.end {
                    return Ok(false);
                }
            }
            if !is_cheaper {
                break;
            }
        }
        Ok(true)
    }

    /// All blocks.
    fn in_order(&self, order: Order) -> Vec<usize> {
        let mut all: Vec<usize> = (0..self.blocks.all.len()).collect();
        // A step counts most where periods are short.
        all.sort_by_key(|block| self.period(*block));
        if order == Order::LongPeriodsFirst {
            all.reverse();
        }
        all
    }

    /// What all blocks have, in parts of 10^12 of a processor.
    fn share(&self) -> u64 {
        let of_unit = |unit: UnitIx| {
            let own = params(&self.host, unit);
            share(own.budget.unwrap_or_default(), own.period.unwrap_or(NANOSECOND), 1_000_000_000_000)
        };
        self.blocks.units().map(of_unit).sum()
    }

    /// Gives a unit of `host` the budget that was found.
    pub(super) fn give_budget(&self, unit: UnitIx, host: &mut Host) {
        params_mut(host, unit).budget = params(&self.host, unit).budget;
    }

    fn unmet(&self) -> Vec<&'a (Need, Vec<usize>)> {
        self.blocks.needs.iter().filter(|(need, _)| !need.is_met(&self.host, &self.now)).collect()
    }

    fn budget(&self, block: usize) -> Duration {
        params(&self.host, self.blocks.all[block].units[0]).budget.unwrap_or_default()
    }

    fn period(&self, block: usize) -> Duration {
        params(&self.host, self.blocks.all[block].units[0]).period.unwrap_or(NANOSECOND)
    }

    /// Gives the block's first unit the budget, and its others as much of a processor.
    fn set(&mut self, block: usize, budget: Duration) {
        let (granule, period) = (self.granule, self.period(block));
        for unit in &self.blocks.all[block].units {
            let params = params_mut(&mut self.host, *unit);
            let own = params.period.unwrap_or(period);
            let ns = (u128::from(budget.as_ns()) * u128::from(own.as_ns())).div_ceil(period.as_ns().into());
            let share = u64::try_from(ns).map_or(own, Duration::from_ns);
            let most = granule * own.div_floor(granule);
            params.budget =
                Some(if own == period { budget } else { (granule * share.div_ceil(granule)).min(most) });
        }
    }

    fn judge(&mut self) -> Result<Answers, Stopped> {
        self.analyses += 1;
        report(&mut self.watch, Stage::Search { analyses: self.analyses })?;
        Ok(answers(&self.host))
    }

    /// Blocks whose budgets are not surely delivered beside the others.
    fn short(&self, found: &Answers) -> Vec<usize> {
        let is_short = |unit: &UnitIx| {
            let answer = match unit {
                UnitIx::Vcpu(vcpu) => found.vcpus.get(vcpu).map(|of| &of.answer),
                UnitIx::Task(task) => found.tasks.get(task).map(|of| &of.answer),
            };
            let is_vcpu = matches!(unit, UnitIx::Vcpu(VcpuIx(_)));
            match answer {
                Some(Answer::Unknown(reason)) => matches!(
                    reason,
                    Reason::MoreUrgentVcpus { .. } | Reason::OtherVcpus { .. } | Reason::Bandwidths
                ),
                Some(Answer::Refuted(_)) => is_vcpu,
                _ => false,
            }
        };
        let blocks = self.blocks.all.iter().enumerate();
        blocks.filter(|(_, block)| block.units.iter().any(is_short)).map(|(at, _)| at).collect()
    }

    /// Gives these blocks more, as far as all budgets are still delivered; was that possible for any?
    fn raise(&mut self, at: &[usize]) -> Result<bool, Stopped> {
        let is_open = |block: &usize| self.budget(*block) + self.granule <= self.period(*block);
        let open: Vec<usize> = at.iter().copied().filter(is_open).collect();
        if open.is_empty() {
            return Ok(false);
        }
        // All of them at once saves most of the analyses.
        if self.raise_by(&open, |own, granule| granule * (own / PARTS).div_ceil(granule).max(1))? {
            return Ok(true);
        }
        let mut any = false;
        for block in open {
            let mut granules = (self.budget(block) / PARTS).div_ceil(self.granule).max(1);
            while granules > 0 {
                if self.raise_by(&[block], |_, granule| granule * granules)? {
                    any = true;
                    break;
                }
                granules /= 2;
            }
        }
        Ok(any)
    }

    /// Gives these blocks `more`, at most their periods; or leaves all as it was.
    fn raise_by(
        &mut self,
        at: &[usize],
        more: impl Fn(Duration, Duration) -> Duration,
    ) -> Result<bool, Stopped> {
        let before: Vec<Duration> = at.iter().map(|block| self.budget(*block)).collect();
        for (block, own) in at.iter().zip(&before) {
            let most = self.granule * self.period(*block).div_floor(self.granule);
            self.set(*block, (*own + more(*own, self.granule)).min(most).max(*own));
        }
        let found = self.judge()?;
        let (short_before, short) = (self.short(&self.now), self.short(&found));
        let is_fine = short.iter().all(|block| short_before.contains(block) && !at.contains(block));
        if is_fine {
            self.now = found;
        } else {
            at.iter().zip(before).for_each(|(block, own)| self.set(*block, own));
        }
        Ok(is_fine)
    }

    /// Takes from these blocks what all deadlines that hold now can do without, in ever smaller steps; was
    /// that anything, and can none be a granule smaller?
    fn lower(&mut self, at: &[usize], steps: Steps, options: &Options) -> Result<(bool, bool), Stopped> {
        let is_met = |need: &Need| need.is_met(&self.host, &self.now);
        let met: Vec<Need> = self.blocks.needs.iter().map(|(need, _)| *need).filter(is_met).collect();
        let most = at.iter().map(|block| self.budget(*block).div_floor(self.granule)).max().unwrap_or(0);
        let mut granules = most.max(1).next_power_of_two() / 2;
        let (mut any, mut parts) = (false, 2);
        while granules > 0 {
            let mut changed = false;
            for &block in at {
                if self.analyses > self.end {
                    return Ok((any, false));
                }
                let step = match steps {
                    Steps::Alike => granules,
                    Steps::Parts => (self.budget(block) / parts).div_floor(self.granule).clamp(1, granules),
                };
                changed |= self.lower_by(block, self.granule * step, &met, options)?;
            }
            any |= changed;
            if !changed {
                (granules, parts) = (granules / 2, parts * 2);
            }
        }
        Ok((any, true))
    }

    fn lower_by(
        &mut self,
        block: usize,
        less: Duration,
        met: &[Need],
        options: &Options,
    ) -> Result<bool, Stopped> {
        let own = self.budget(block);
        let pool = pool_of(&self.host, self.blocks.all[block].units[0]);
        let least = least_budget(self.host.pools[pool.0].policy.info, options);
        if own < least + less {
            return Ok(false);
        }
        self.set(block, own - less);
        let found = self.judge()?;
        let is_enough = met.iter().all(|need| need.is_met(&self.host, &found));
        if is_enough {
            self.now = found;
        } else {
            self.set(block, own);
        }
        Ok(is_enough)
    }

    /// Why nothing more can be done for a deadline.
    fn why_not(&self, (need, at): &(Need, Vec<usize>)) -> Error {
        let with = |block: &usize| {
            let unit = self.blocks.all[*block].units[0];
            Shortfall::WithUnit {
                name: name(&self.host, unit).to_owned(),
                budget: self.budget(*block),
                period: self.period(*block),
            }
        };
        let mut why: Vec<Shortfall> = at.iter().map(with).collect();
        why.push(Shortfall::of(*need, &self.host, &self.now));
        Error::Unmet { name: need.name(&self.host).to_owned(), why }
    }

    fn unmet_error(&self, need: Need, why: Shortfall) -> Error {
        Error::Unmet { name: need.name(&self.host).to_owned(), why: vec![why] }
    }
}
