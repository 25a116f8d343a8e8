//! What a policy says about itself: its name, parameters and options, and the facts that others ask for.

use alloc::boxed::Box;
use core::borrow::Borrow;

use crate::background::Background;
use crate::contract::{Charges, checked, in_turns, in_vm_servers};
use crate::params::UnitParams;
#[cfg(doc)]
use crate::policy::Account;
use crate::policy::Policy;
use crate::time::Duration;
#[cfg(doc)]
use crate::turns::Turns;
use crate::wrap::Wrapped;

/// What kind of value a parameter takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParamKind {
    /// A length of time with its unit: `"4ms"`.
    Duration,
    /// A length of time, or one of these words: `quantum = "exact"`.
    DurationOr(&'static [&'static str]),
    /// A whole number between the bounds, both included.
    Count {
        /// Smallest value.
        min: u64,
        /// Largest value.
        max: u64,
    },
    /// `true` or `false`.
    Flag,
    /// One of these words.
    Choice(&'static [&'static str]),
}

/// A parameter of a policy, or of a unit under a policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParamInfo {
    /// Its name in the host file.
    pub name: &'static str,
    /// What it takes.
    pub kind: ParamKind,
    /// The value if none is given. `None`: the parameter must be given, or the policy does without it.
    pub default: Option<ParamDefault>,
    /// One sentence.
    pub help: &'static str,
}

impl ParamInfo {
    /// The default as a value. `None` where there is no default, or only one in words.
    pub const fn default_value(&self) -> Option<OptionValue> {
        match self.default {
            Some(ParamDefault::Value(value)) => Some(value),
            Some(ParamDefault::Words(_)) | None => None,
        }
    }

    /// The default, if it is a length of time.
    pub const fn default_duration(&self) -> Option<Duration> {
        match self.default_value() {
            Some(OptionValue::Duration(duration)) => Some(duration),
            _ => None,
        }
    }

    /// The default, if it is a number.
    pub const fn default_count(&self) -> Option<u64> {
        match self.default_value() {
            Some(OptionValue::Count(count)) => Some(count),
            _ => None,
        }
    }

    /// The default, if it is a flag.
    pub const fn default_flag(&self) -> Option<bool> {
        match self.default_value() {
            Some(OptionValue::Flag(flag)) => Some(flag),
            _ => None,
        }
    }
}

/// The value of a parameter that is not given. Displayed as users read it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParamDefault {
    /// This value.
    Value(OptionValue),
    /// No value of the parameter itself, but what these words say: "no limit".
    Words(&'static str),
}

impl core::fmt::Display for ParamDefault {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            ParamDefault::Value(value) => value.fmt(f),
            ParamDefault::Words(words) => f.pad(words),
        }
    }
}

/// The value of a parameter or an option. Displayed as it is written in the host file, without quotes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OptionValue {
    /// For [`ParamKind::Duration`] and [`ParamKind::DurationOr`].
    Duration(Duration),
    /// For [`ParamKind::Count`].
    Count(u64),
    /// For [`ParamKind::Flag`].
    Flag(bool),
    /// For [`ParamKind::Choice`] and the words of [`ParamKind::DurationOr`].
    Word(&'static str),
}

impl core::fmt::Display for OptionValue {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            OptionValue::Duration(duration) => duration.fmt(f),
            OptionValue::Count(count) => count.fmt(f),
            OptionValue::Flag(flag) => flag.fmt(f),
            OptionValue::Word(word) => f.pad(word),
        }
    }
}

/// The options given to a policy instance: name and value, each name at most once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Every domain has some, for its guest, and they hardly ever change.
    given: Box<[(&'static str, OptionValue)]>,
}

impl Options {
    /// No option given: every default.
    pub fn new() -> Self {
        Options::default()
    }

    /// Sets an option, replacing an earlier value.
    pub fn set(&mut self, name: &'static str, value: OptionValue) {
        match self.given.iter_mut().find(|(n, _)| *n == name) {
            Some(slot) => slot.1 = value,
            None => {
                let given = core::mem::take(&mut self.given).into_iter();
                self.given = given.chain([(name, value)]).collect();
            }
        }
    }

    /// Sets an option and returns the whole, for chaining in tests and tables.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: OptionValue) -> Self {
        self.set(name, value);
        self
    }

    /// The value given for `name`, if any.
    pub fn get(&self, name: &str) -> Option<OptionValue> {
        self.given.iter().find(|(n, _)| *n == name).map(|(_, v)| *v)
    }

    /// The duration given for `option`, or its default.
    ///
    /// # Panics
    /// Here and below: when `option` has no default of this kind, which is a mistake in its table.
    pub fn duration(&self, option: &ParamInfo) -> Duration {
        match self.value(option) {
            OptionValue::Duration(duration) => duration,
            other => panic!("`{}` is no duration: {other}", option.name),
        }
    }

    /// The number given for `option`, or its default.
    pub fn count(&self, option: &ParamInfo) -> u64 {
        match self.value(option) {
            OptionValue::Count(count) => count,
            other => panic!("`{}` is no number: {other}", option.name),
        }
    }

    /// The flag given for `option`, or its default.
    pub fn flag(&self, option: &ParamInfo) -> bool {
        match self.value(option) {
            OptionValue::Flag(flag) => flag,
            other => panic!("`{}` is no flag: {other}", option.name),
        }
    }

    /// The word given for `option`, or its default.
    pub fn word(&self, option: &ParamInfo) -> &'static str {
        match self.value(option) {
            OptionValue::Word(word) => word,
            other => panic!("`{}` is no word: {other}", option.name),
        }
    }

    /// The value given for `option`, or its default.
    pub fn value(&self, option: &ParamInfo) -> OptionValue {
        let value = self.get(option.name).or(option.default_value());
        value.unwrap_or_else(|| panic!("`{}` has no default", option.name))
    }

    /// All given options in the order they were set.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, OptionValue)> + '_ {
        self.given.iter().copied()
    }
}

/// What a policy promises about idle processors; the simulator checks it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkConservation {
    /// No processor idles while a runnable unit that may run there waits.
    Always,
    /// No processor idles while a runnable unit *with budget left* that may run there waits.
    WithinBudget,
    /// No promise (periodic server).
    Never,
}

/// How a unit gets its processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// The policy puts each unit on one processor of its affinity, where it stays: [`Account::home`] names
    /// it.
    Partitioned,
    /// Units run on any processor that their affinity allows.
    Global,
}

/// What a policy does with the budgets of its units.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Budgets {
    /// Nothing: it does not limit units, or limits them by a share without a period (Credit).
    None,
    /// A unit is a server: it has its budget in every period.
    Server {
        /// The smallest budget that the policy accepts, apart from 0 for best effort.
        min: Duration,
    },
    /// A unit has a bandwidth, budget / period; a period may start with any wake-up (CBS).
    Bandwidth {
        /// The smallest budget that the policy accepts.
        min: Duration,
    },
}

impl Budgets {
    /// The smallest budget that the policy accepts, if it keeps budgets.
    pub const fn min(self) -> Option<Duration> {
        match self {
            Budgets::None => None,
            Budgets::Server { min } | Budgets::Bandwidth { min } => Some(min),
        }
    }
}

/// The fixed-priority servers, which differ in how budget is consumed and comes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServerKind {
    /// [`crate::servers::deferrable`].
    Deferrable,
    /// [`crate::servers::periodic`].
    Periodic,
    /// [`crate::servers::polling`].
    Polling,
    /// [`crate::servers::sporadic`].
    Sporadic,
}

impl ServerKind {
    /// Does a unit lose budget while it has no work? The others keep it.
    pub const fn budget_idles_away(self) -> bool {
        matches!(self, ServerKind::Periodic | ServerKind::Polling)
    }
}

/// The test that says what the units of a pool, or the tasks of a guest, are guaranteed under a policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SchedulabilityTest {
    /// Servers of this kind by fixed priority, on one processor each.
    FixedPriorityServers(ServerKind),
    /// Servers that keep their budget while they sleep, by earliest deadline.
    EdfServers,
    /// Bandwidth servers by earliest deadline.
    BandwidthServers,
    /// Fixed priority without budgets.
    FixedPriority,
    /// Earliest deadline first without budgets.
    Edf,
    /// No test. Why not, as the user reads it.
    None(&'static str),
}

/// A scheduling class of Linux.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinuxClass {
    /// `SCHED_FIFO` in the order of the units' priorities.
    Fifo,
    /// `SCHED_RR`, all units alike.
    RoundRobin,
    /// The fair class, with the units' weights and caps if the policy reads any.
    Fair,
}

/// What becomes of a policy when Linux's own classes stand in for it. Losses are phrases for the user;
/// `None`: nothing is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OnLinux {
    /// The class of units whose budgets are not kept.
    pub class: LinuxClass,
    /// What the class loses, apart from budgets.
    pub class_loss: Option<&'static str>,
    /// What is lost when quotas of the fair class keep the budgets.
    pub quota_loss: Option<&'static str>,
    /// What is lost when `SCHED_DEADLINE` keeps the budgets.
    pub deadline_loss: Option<&'static str>,
}

impl OnLinux {
    /// The loss of deadlines among units that have quotas.
    pub const NO_DEADLINES: &str = "among units with quota left Linux is fair; it knows no deadlines";
    /// The loss of a server's own rule of replenishment among units that have quotas.
    pub const KEPT_WHILE_IDLE: &str =
        "an idle unit keeps its quota until the period ends, like a deferrable server's";
    /// The loss of a server's own rules under `SCHED_DEADLINE`.
    pub const BANDWIDTH_SERVER: &str = "SCHED_DEADLINE is a constant bandwidth server: a unit that wakes up \
                                        when its budget no longer fits its deadline starts a period of its \
                                        own";

    /// A policy without budgets.
    pub const fn without_budgets(class: LinuxClass, class_loss: Option<&'static str>) -> OnLinux {
        OnLinux { class, class_loss, quota_loss: None, deadline_loss: None }
    }

    /// Servers other than bandwidth servers; `class` is what remains of them without their budgets.
    pub const fn servers(class: LinuxClass, quota_loss: Option<&'static str>) -> OnLinux {
        OnLinux { class, class_loss: None, quota_loss, deadline_loss: Some(OnLinux::BANDWIDTH_SERVER) }
    }
}

/// A scheduler of Xen that is also a policy here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum XenScheduler {
    /// RTDS, the only one with budgets.
    Rtds,
    /// Credit.
    Credit,
}

/// Why a policy instance could not be built from its options.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OptionError {
    /// The option's name.
    pub option: &'static str,
    /// What was expected, as a phrase: "longer than zero".
    pub expected: Box<str>,
}

impl core::fmt::Display for OptionError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "option `{}` must be {}", self.option, self.expected)
    }
}

impl core::error::Error for OptionError {}

/// Builds a policy instance for a pool of `cpus` processors (at least one).
pub type Build = fn(cpus: usize, options: &Options) -> Result<Box<dyn Policy>, OptionError>;

/// Everything there is to know about a policy without reading its code.
#[derive(Clone, Copy)]
pub struct PolicyInfo {
    /// Name in host files and on the command line.
    pub name: &'static str,
    /// One line: what it is.
    pub summary: &'static str,
    /// Where its rules come from: paper and section, or file in Xen or Linux.
    pub source: &'static str,
    /// Parameters of a unit that this policy reads.
    pub unit_params: &'static [ParamInfo],
    /// Options of the policy itself.
    pub options: &'static [ParamInfo],
    /// What it promises about idle processors.
    pub work_conservation: WorkConservation,
    /// Do all processors of a pool share one run queue, and so one lock? (The simulated machine's lock cost.)
    pub shared_queue: bool,
    /// How a unit gets its processor.
    pub placement: Placement,
    /// What it does with budgets.
    pub budgets: Budgets,
    /// With these options, do its decisions depend on whether the driver reports that a unit ran out of work?
    /// `false`: they are the same whether such a unit sleeps, or stays eligible and never uses its processor.
    /// A live driver then need not read at every look whether each thread sleeps.
    pub sleep_matters: fn(&Options) -> bool,
    /// Does it act at instants of its own, by [`Policy::next_timer`] or at the end of a slice? `false`: only
    /// wake-ups, sleeps and new deadlines cause decisions, so counting them bounds its cost as a guest's
    /// scheduler.
    pub has_timers: bool,
    /// The test that answers for its units.
    pub test: SchedulabilityTest,
    /// What Linux's own classes keep of it.
    pub linux: OnLinux,
    /// The scheduler of Xen that it is. `None`: Xen's nearest is RTDS for policies that read a budget, else
    /// Credit.
    pub xen: Option<XenScheduler>,
    /// Builds an instance without the checks of [`PolicyInfo::build`].
    pub construct: Build,
}

impl PolicyInfo {
    /// A policy that keeps no budgets and promises nothing. A policy's `INFO` is this with the facts in which
    /// the policy differs.
    pub const fn new(
        name: &'static str,
        summary: &'static str,
        source: &'static str,
        construct: Build,
    ) -> PolicyInfo {
        PolicyInfo {
            name,
            summary,
            source,
            unit_params: &[],
            options: &[],
            work_conservation: WorkConservation::Never,
            shared_queue: true,
            placement: Placement::Global,
            budgets: Budgets::None,
            sleep_matters: |_| true,
            has_timers: true,
            test: SchedulabilityTest::None("no guarantee: no test is known for this policy"),
            linux: OnLinux::without_budgets(
                LinuxClass::Fair,
                Some("Linux has no such policy; Linux's fair class decides"),
            ),
            xen: None,
            construct,
        }
    }

    /// Builds an instance for a pool of `cpus` processors (at least one). In builds with debug assertions it
    /// checks the [contract](crate::contract).
    ///
    /// # Errors
    /// [`OptionError`] names the option.
    pub fn build(&self, cpus: usize, options: &Options) -> Result<Box<dyn Policy>, OptionError> {
        let policy = (self.construct)(cpus, options)?;
        Ok(checked(policy, cpus, Charges::Reported))
    }

    /// Builds an instance for these `units`: with best-effort ones among them, the policy stands in a
    /// [`Background`]; with several vCPUs of a VM, in [`Turns`] around that; if these share a budget, in
    /// [`VmServers`](crate::vm_server::VmServers) around all.
    ///
    /// # Errors
    /// Those of [`PolicyInfo::build`].
    pub fn build_for(
        &self,
        cpus: usize,
        options: &Options,
        units: impl IntoIterator<Item: Borrow<UnitParams>>,
    ) -> Result<Box<dyn Policy>, OptionError> {
        let mut policy = self.build(cpus, options)?;
        let (mut has_best_effort, mut has_vms, mut share_budgets) = (false, false, false);
        for params in units {
            let params: &UnitParams = params.borrow();
            has_best_effort |= params.best_effort;
            has_vms |= params.vm.is_some();
            share_budgets |= params.vm.is_some() && params.shares_budget;
        }
        if has_best_effort {
            let wrapped = Wrapped::new(Background::new(cpus), policy);
            policy = checked(Box::new(wrapped), cpus, Charges::Reported);
        }
        Ok(match (has_vms, share_budgets) {
            (_, true) => in_vm_servers(policy, cpus, Charges::Reported),
            (true, false) => in_turns(policy, cpus, Charges::Reported),
            (false, false) => policy,
        })
    }

    /// Builds an instance for units that come later, also several vCPUs of a VM, with one budget or not.
    ///
    /// # Errors
    /// Those of [`PolicyInfo::build`].
    pub fn build_in_turns(&self, cpus: usize, options: &Options) -> Result<Box<dyn Policy>, OptionError> {
        Ok(in_vm_servers(self.build(cpus, options)?, cpus, Charges::Reported))
    }

    /// The unit's parameter called `name`, if the policy reads it.
    pub fn unit_param(&self, name: &str) -> Option<&'static ParamInfo> {
        self.unit_params.iter().find(|param| param.name == name)
    }

    /// Does the policy read the unit's parameter called `name`?
    pub fn reads(&self, name: &str) -> bool {
        self.unit_param(name).is_some()
    }

    /// The policy's option called `name`, if it has one.
    pub fn option(&self, name: &str) -> Option<&'static ParamInfo> {
        self.options.iter().find(|option| option.name == name)
    }

    /// Does a unit lose budget while it has no work?
    pub const fn budget_idles_away(&self) -> bool {
        match self.test {
            SchedulabilityTest::FixedPriorityServers(kind) => kind.budget_idles_away(),
            _ => false,
        }
    }

    /// The unit's budget under this policy: as given, or the default. `None` where the policy reads none, or
    /// none is given and there is no default, and of a best-effort unit.
    pub fn budget(&self, params: &UnitParams) -> Option<Duration> {
        let info = self.unit_param(UnitParams::BUDGET).filter(|_| !params.best_effort)?;
        params.budget.or(info.default_duration())
    }

    /// The unit's period under this policy, as [`PolicyInfo::budget`].
    pub fn period(&self, params: &UnitParams) -> Option<Duration> {
        let info = self.unit_param(UnitParams::PERIOD).filter(|_| !params.best_effort)?;
        params.period.or(info.default_duration())
    }

    /// May the unit run, under this policy, on time that no other unit wants after its budget is used up?
    pub fn extratime(&self, params: &UnitParams) -> bool {
        let info = self.unit_param(UnitParams::EXTRATIME);
        info.is_some_and(|info| params.extratime.or(info.default_flag()) == Some(true))
    }
}

impl core::fmt::Debug for PolicyInfo {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "PolicyInfo({})", self.name)
    }
}

impl PartialEq for PolicyInfo {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for PolicyInfo {}
