//! What can enforce the policies of a run, what each can and cannot, and which one a run takes.
//!
//! Policies decide in user space in either case ([`crate::driver`]); a back end carries their orders out.

use std::fmt;

use punctual_doctor::doctor::NoSchedExt;
use punctual_model::host::{Enforce, Host, Parent, Pool};
use punctual_model::index::{DomainIx, PoolIx};
use punctual_sched::Duration;
use punctual_sched::registry::Budgets;

/// What enforces the policies of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// Real-time priorities and the freezer of cgroups, set by a thread on each processor.
    #[default]
    Freezer,
    /// A scheduler in the kernel (sched_ext), told by a thread of the host.
    SchedExt,
}

/// Has this program the loader of [`Backend::SchedExt`]?
pub const HAS_SCHED_EXT: bool = punctual_scx::HAS_OBJECT;

/// How a back end knows what a unit ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// By reading its processor time at each look.
    Looks,
    /// By charging it in the kernel at each switch.
    Switches,
}

/// What a back end can and cannot. [`choose`] compares it with a host and a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// Does it enforce policies without a budget in every period?
    pub without_budgets: bool,
    /// Pools of a run at most, and processors of each.
    pub pools_max: usize,
    pub processors_max: usize,
    /// Do units without a budget (best effort) get what the others leave?
    pub best_effort: bool,
    /// May several vCPUs draw from one budget?
    pub shared_budgets: bool,
    /// May a host change while it runs (`[event]`)?
    pub events: bool,
    /// The longest period of a budget.
    pub period_max: Duration,
    /// The most that the budgets of a pool's units may add up to, in millionths of a processor.
    pub demand_max_ppm: u64,
    /// Does it need a kernel into which it can load a scheduler? Not every kernel is one, and none with
    /// PREEMPT_RT.
    pub needs_sched_ext: bool,
    /// How it knows what a unit ran.
    pub evidence: Evidence,
}

/// From the end of the scheduler in the kernel until the freezer has taken over. The kernel reports the end
/// once all threads are in the fair class, and that ends the enforcer's sleep; a look comes every 100 ms at
/// least.
pub const TAKEN_OVER_WITHIN: Duration = Duration::from_ms(250);

/// The kernel's watchdog ends a scheduler under which a thread with work waits for 30 s
/// (`SCX_WATCHDOG_MAX_TIMEOUT` in `kernel/sched/ext.c`). A unit that owes time waits five periods at most.
const SCHED_EXT_PERIOD_MAX: Duration = Duration::from_secs(5);

const FREEZER: Abilities = Abilities {
    without_budgets: true,
    pools_max: usize::MAX,
    processors_max: usize::MAX,
    best_effort: true,
    shared_budgets: true,
    events: true,
    period_max: Duration::MAX,
    demand_max_ppm: u64::MAX,
    needs_sched_ext: false,
    evidence: Evidence::Looks,
};

const SCHED_EXT: Abilities = Abilities {
    without_budgets: false,
    pools_max: 1,
    processors_max: 1,
    best_effort: false,
    shared_budgets: false,
    events: false,
    period_max: SCHED_EXT_PERIOD_MAX,
    demand_max_ppm: 1_000_000,
    needs_sched_ext: true,
    evidence: Evidence::Switches,
};

impl Backend {
    /// All of them, the preferred one first.
    pub const ALL: [Backend; 2] = [Backend::SchedExt, Backend::Freezer];

    /// Its name in the host file and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Backend::Freezer => Enforce::Freezer.name(),
            Backend::SchedExt => Enforce::SchedExt.name(),
        }
    }

    /// What it can and cannot.
    pub const fn abilities(self) -> &'static Abilities {
        match self {
            Backend::Freezer => &FREEZER,
            Backend::SchedExt => &SCHED_EXT,
        }
    }
}

/// Why a back end cannot enforce a run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// The user has not allowed it.
    #[error("--allow-sched-ext is not given")]
    NotAllowed,
    /// This program has no loader.
    #[error("this program is built without it (cargo feature `sched-ext`)")]
    NotBuilt,
    /// The kernel does not permit it.
    #[error("{0}")]
    Kernel(NoSchedExt),
    /// There are too many pools.
    #[error("the run has {0} pools, and it enforces one")]
    Pools(usize),
    /// A pool is too large.
    #[error("pool `{pool}` has {processors} processors, and it enforces one")]
    Processors { pool: String, processors: usize },
    /// A policy has no budgets.
    #[error("policy `{policy}` has no budget in every period: a unit without time would be ejected")]
    Policy { policy: &'static str },
    /// A domain has no budget.
    #[error("domain `{domain}` is best effort: in the fair class it would come before all units")]
    BestEffort { domain: String },
    /// Several vCPUs have one budget.
    #[error("the vCPUs of domain `{domain}` share one budget")]
    SharedBudget { domain: String },
    /// The host changes.
    #[error("the host has events")]
    Events,
    /// A budget may come back too late.
    #[error("the period of domain `{domain}` is {period}, longer than {}", SCHED_EXT_PERIOD_MAX)]
    Period { domain: String, period: Duration },
    /// Units may wait without end.
    #[error("the budgets of pool `{pool}` add up to more than its processor")]
    Demand { pool: String },
}

/// What a user wants, and what the program and the kernel have.
#[derive(Clone, Debug)]
pub struct Wish {
    /// The back end that is asked for.
    pub enforce: Enforce,
    /// May `auto` load a scheduler?
    pub allows_sched_ext: bool,
    /// Has this program the loader?
    pub is_built: bool,
    /// Does the kernel permit it?
    pub kernel: Result<(), NoSchedExt>,
}

/// The back end of a run, and why it is not a better one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chosen {
    /// The back end.
    pub backend: Backend,
    /// Each better one that it could not be, with what stands against it.
    pub why_not: Vec<(Backend, Obstacle)>,
}

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.backend.name())?;
        let mut why_not = self.why_not.iter();
        why_not.try_for_each(|(better, obstacle)| write!(f, "; not {}: {obstacle}", better.name()))
    }
}

/// What was asked for cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` cannot enforce this run: {obstacle}", backend.name())]
pub struct Refused {
    /// What was asked for.
    pub backend: Backend,
    /// What stands against it first.
    pub obstacle: Obstacle,
}

/// Chooses what enforces these pools of a host.
///
/// # Errors
/// The back end that was asked for cannot.
pub fn choose(wish: &Wish, host: &Host, pools: &[PoolIx]) -> Result<Chosen, Refused> {
    let mut chosen = Chosen::default();
    for backend in Backend::ALL {
        let is_named = wish.enforce.name() == backend.name();
        if wish.enforce != Enforce::Auto && !is_named {
            continue;
        }
        match obstacle(backend, wish, host, pools) {
            None => return Ok(Chosen { backend, ..chosen }),
            Some(obstacle) if is_named => return Err(Refused { backend, obstacle }),
            Some(obstacle) => chosen.why_not.push((backend, obstacle)),
        }
    }
    Ok(chosen)
}

/// What stands first against a back end: the user, the host, the program, the kernel.
fn obstacle(backend: Backend, wish: &Wish, host: &Host, pools: &[PoolIx]) -> Option<Obstacle> {
    let abilities = backend.abilities();
    if abilities.needs_sched_ext && wish.enforce == Enforce::Auto && !wish.allows_sched_ext {
        return Some(Obstacle::NotAllowed);
    }
    if pools.len() > abilities.pools_max {
        return Some(Obstacle::Pools(pools.len()));
    }
    if !abilities.events && !host.events.is_empty() {
        return Some(Obstacle::Events);
    }
    let of_pools = pools.iter().find_map(|&ix| of_pool(abilities, host, ix));
    of_pools.or_else(|| match &wish.kernel {
        _ if !abilities.needs_sched_ext => None,
        _ if !wish.is_built => Some(Obstacle::NotBuilt),
        kernel => kernel.clone().err().map(Obstacle::Kernel),
    })
}

fn of_pool(abilities: &Abilities, host: &Host, ix: PoolIx) -> Option<Obstacle> {
    let Pool { name, processors, policy, .. } = &host.pools[ix.0];
    if processors.len() > abilities.processors_max {
        return Some(Obstacle::Processors { pool: name.clone(), processors: processors.len() });
    }
    if !abilities.without_budgets && !matches!(policy.info.budgets, Budgets::Server { .. }) {
        return Some(Obstacle::Policy { policy: policy.info.name });
    }
    let mut demand_ppm = 0u64;
    for (index, domain) in host.domains.iter().enumerate() {
        if domain.parent != Parent::Pool(ix) {
            continue;
        }
        if let Some(obstacle) = of_domain(abilities, host, DomainIx(index)) {
            return Some(obstacle);
        }
        for vcpu in &host.vcpus[domain.vcpus.clone()] {
            let share = |(budget, period): (Duration, Duration)| {
                (u128::from(budget.as_ns()) * 1_000_000).div_ceil(u128::from(period.as_ns().max(1)))
            };
            let share = vcpu.params.budget.zip(vcpu.params.period).map_or(0, share);
            demand_ppm = demand_ppm.saturating_add(u64::try_from(share).unwrap_or(u64::MAX));
        }
    }
    let is_much = demand_ppm > abilities.demand_max_ppm;
    is_much.then(|| Obstacle::Demand { pool: name.clone() })
}

fn of_domain(abilities: &Abilities, host: &Host, ix: DomainIx) -> Option<Obstacle> {
    let domain = &host.domains[ix.0];
    let name = || domain.name.clone();
    host.vcpus[domain.vcpus.clone()].iter().find_map(|vcpu| {
        let params = &vcpu.params;
        let period = params.period.unwrap_or(Duration::ZERO);
        if params.best_effort && !abilities.best_effort {
            Some(Obstacle::BestEffort { domain: name() })
        } else if params.shares_budget && !abilities.shared_budgets {
            Some(Obstacle::SharedBudget { domain: name() })
        } else if period > abilities.period_max {
            Some(Obstacle::Period { domain: name(), period })
        } else {
            None
        }
    })
}

#[cfg(test)]
mod tests {
    use punctual_model::file::{Overrides, parse};

    use super::*;

    const POOL: &str = "[machine]\nprocessors = 2\n[pool.guests]\nprocessors = [1]\n";
    const UNIT: &str = "[domain.a]\nbudget = \"2ms\"\nperiod = \"10ms\"\npriority = 1\n";

    /// The choice for a host with this policy and text, on a kernel and by a program that have everything.
    fn of(policy: &str, text: &str, change: impl FnOnce(&mut Wish)) -> Result<Chosen, Refused> {
        let text = format!("{POOL}policy = \"{policy}\"\n{text}");
        let host = parse(&text, "host.toml", &Overrides::default()).expect("a host");
        let mut wish =
            Wish { enforce: Enforce::Auto, allows_sched_ext: true, is_built: true, kernel: Ok(()) };
        change(&mut wish);
        choose(&wish, &host, &[PoolIx(0)])
    }

    #[test]
    fn auto_takes_the_kernels_scheduler_only_where_the_user_allows_it() {
        assert_eq!(of("deferrable", UNIT, |_| ()).map(|chosen| chosen.backend), Ok(Backend::SchedExt));
        let chosen = of("deferrable", UNIT, |wish| wish.allows_sched_ext = false).expect("a choice");
        assert_eq!(chosen.to_string(), "freezer; not sched-ext: --allow-sched-ext is not given");
        let asked = |wish: &mut Wish| (wish.enforce, wish.allows_sched_ext) = (Enforce::SchedExt, false);
        assert_eq!(of("deferrable", UNIT, asked).map(|chosen| chosen.backend), Ok(Backend::SchedExt));
        let chosen = of("deferrable", UNIT, |wish| wish.enforce = Enforce::Freezer);
        assert_eq!(chosen, Ok(Chosen::default()));
    }

    #[test]
    fn what_stands_against_a_back_end_is_named_and_refused_if_that_one_was_asked_for() {
        let against = |policy: &str, text: &str, change: fn(&mut Wish)| {
            let chosen = of(policy, text, change).expect("auto has a choice");
            let asked = of(policy, text, |wish| {
                change(wish);
                wish.enforce = Enforce::SchedExt;
            });
            let refused = asked.expect_err("it cannot");
            assert_eq!(chosen.why_not, [(Backend::SchedExt, refused.obstacle.clone())]);
            assert_eq!(chosen.backend, Backend::Freezer);
            refused.to_string()
        };
        for (policy, text, change, expected) in [
            ("deferrable", UNIT, (|wish| wish.is_built = false) as fn(&mut Wish), "cargo feature"),
            ("deferrable", UNIT, |wish| wish.kernel = Err(NoSchedExt::InUse("lavd".into())), "`lavd`"),
            ("fixed-priority", "[domain.a]\npriority = 1\n", |_| (), "`fixed-priority` has no budget"),
            ("deferrable", "[domain.a]\nbest_effort = true\n", |_| (), "`a` is best effort"),
            ("sedf", "[domain.a]\nbudget = \"1s\"\nperiod = \"6s\"\n", |_| (), "`a` is 6s, longer than 5s"),
        ] {
            let refused = against(policy, text, change);
            assert!(refused.contains(expected), "{refused}");
        }
        let full = UNIT.replace("2ms", "6ms");
        let more = full.replace("domain.a", "domain.b");
        let refused = against("deferrable", &format!("{full}{more}"), |_| ());
        assert!(refused.contains("pool `guests` add up to more"), "{refused}");
    }
}
