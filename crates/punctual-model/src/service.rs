//! What the service of a host is told by `/etc/punctual`: classes of VMs and of other control groups, and the
//! pools that they name.

use std::fmt;

use punctual_sched::{Duration, Instant, UnitParams};
use serde::{Deserialize, Serialize};

use crate::file::{DURATION_MAX, PERIOD_MIN};
use crate::host::Pool;
use crate::index::PoolIx;
use crate::live::HelperPolicy;
use crate::placement::Slot;

/// The validated configuration of the service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceConfig {
    /// What the service does.
    pub mode: Mode,
    /// Is a VM left as it is, beside which not all budgets are guaranteed?
    pub is_strict: bool,
    /// Where it knows from what VMs wait for.
    pub waits: WaitSource,
    /// Pools, each processor in at most one.
    pub pools: Vec<Pool>,
    /// Names for processors, in the order of the files.
    pub slots: Vec<Slot>,
    /// Classes, in the order of the files.
    pub classes: Vec<Class>,
    /// Who joins which slot, in the order of the files: pools, then classes.
    pub joins: Vec<Join>,
}

/// Somebody whose place a slot decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Join {
    /// The slot, by name.
    pub slot: String,
    /// Who joins it.
    pub by: Joiner,
}

/// Who joins a slot, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Joiner {
    /// A pool whose processors are chosen near it.
    Pool(String),
    /// A class whose vCPUs or units are near it.
    Class(String),
    /// The helper threads of a class, which are in it.
    Helpers(String),
    /// The interrupts that a class matches, which go to it.
    Interrupts(String),
}

impl fmt::Display for Joiner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Joiner::Pool(name) => write!(f, "pool {name}"),
            Joiner::Class(name) => write!(f, "class {name}"),
            Joiner::Interrupts(class) => write!(f, "interrupts of class {class}"),
            Joiner::Helpers(class) => write!(f, "helper threads of class {class}"),
        }
    }
}

/// What the service does with VMs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// It changes nothing.
    #[default]
    Observe,
    /// VMs of a class with a pool are under enforcement.
    Enforce,
}

/// Where the service knows from what VMs wait for. What the machine refuses is replaced by the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WaitSource {
    /// Programs in the kernel (BPF), which add up.
    #[default]
    Bpf,
    /// The kernel's tracepoints.
    Tracepoints,
    /// The kernel's records of context switches.
    Switches,
    /// Samples of the kernel's counters.
    Samples,
    /// It does not know.
    Off,
}

/// What VMs and cgroups of a kind are to get, and which are of that kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// Name.
    pub name: String,
    /// A VM or a cgroup belongs to the class when one of these fits.
    pub matches: Vec<Match>,
    /// The pool of its VMs' vCPUs; `None` without pools.
    pub pool: Option<PoolIx>,
    /// The parameters of each vCPU, or of all threads of a cgroup together: `budget`, `period`, `priority`,
    /// `best_effort`; with `near`, the affinity.
    pub params: UnitParams,
    /// What its VMs' threads get that are no vCPUs.
    pub threads: Threads,
    /// Where the interrupts go that it matches.
    pub interrupts: ThreadPlace,
}

impl Class {
    /// The devices whose interrupts it matches.
    pub fn devices(&self) -> impl Iterator<Item = &str> {
        self.matches.iter().filter_map(|one| match one {
            Match::Interrupts(device) => Some(device.as_str()),
            _ => None,
        })
    }
}

/// What the threads of a VM get that are no vCPUs, by their role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Threads {
    /// The event loop.
    pub main_loop: Helper,
    /// I/O threads and workers.
    pub io: Helper,
    /// vhost workers.
    pub vhost: Helper,
    /// QEMU's RCU thread.
    pub rcu: Helper,
    /// All others.
    pub other: Helper,
}

impl Threads {
    /// What each role gets.
    pub fn all(&self) -> [&Helper; 5] {
        let Threads { main_loop, io, vhost, rcu, other } = self;
        [main_loop, io, vhost, rcu, other]
    }

    /// Do all roles get the same?
    pub fn are_alike(&self) -> bool {
        self.all().into_iter().all(|one| one == &self.main_loop)
    }
}

impl From<Helper> for Threads {
    /// The same for all roles.
    fn from(helper: Helper) -> Threads {
        let [main_loop, io, vhost, rcu] = [(); 4].map(|()| helper.clone());
        Threads { main_loop, io, vhost, rcu, other: helper }
    }
}

/// What a thread of a VM gets that is no vCPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Helper {
    /// Where it runs.
    pub place: ThreadPlace,
    /// How Linux schedules it there.
    pub policy: HelperPolicy,
}

/// Where a thread of a VM runs that is no vCPU, or an interrupt goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ThreadPlace {
    /// On all processors that no pool has.
    #[default]
    Host,
    /// On those of them that are [closest](crate::placement::closest) to the pool's.
    Near,
    /// On those of a slot that no pool has.
    Slot {
        /// The slot's name.
        name: String,
        /// The processors, ascending; none where the machine does not tell.
        processors: Vec<usize>,
    },
}

/// What a VM gets instead of what its class gives. What is `None` is as in the class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adjustment {
    /// Processor time of each vCPU per period, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_ns: Option<u64>,
    /// Replenishment period, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period_ns: Option<u64>,
    /// Fixed priority; a smaller number is more urgent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
}

impl Adjustment {
    /// Is all as in the class?
    pub fn is_empty(&self) -> bool {
        *self == Adjustment::default()
    }

    /// This one where it says something, elsewhere the other one.
    pub fn over(self, other: Adjustment) -> Adjustment {
        Adjustment {
            budget_ns: self.budget_ns.or(other.budget_ns),
            period_ns: self.period_ns.or(other.period_ns),
            priority: self.priority.or(other.priority),
        }
    }
}

impl ServiceConfig {
    /// The class of this name.
    pub fn class(&self, name: &str) -> Option<&Class> {
        self.classes.iter().find(|class| class.name == name)
    }

    /// The parameters of a vCPU of a class with an adjustment.
    ///
    /// # Errors
    /// Why they are not possible, as a sentence about the VM without its beginning.
    pub fn adjusted(&self, class: &Class, adjustment: &Adjustment) -> Result<UnitParams, String> {
        let mut params = class.params.clone();
        if adjustment.is_empty() {
            return Ok(params);
        }
        if params.best_effort {
            return Err(format!("class {} is best effort, which has no budget to adjust", class.name));
        }
        params.budget = adjustment.budget_ns.map(Duration::from_ns).or(params.budget);
        params.period = adjustment.period_ns.map(Duration::from_ns).or(params.period);
        params.priority = adjustment.priority.or(params.priority);
        let (budget, period) = match (params.budget, params.period) {
            (Some(budget), Some(period)) => (budget, period),
            (None, None) => return self.accepted(class, params),
            (Some(_), None) => return Err("a budget takes a period, and there is none".into()),
            (None, Some(_)) => return Err("a period takes a budget, and there is none".into()),
        };
        if budget == Duration::ZERO {
            return Err("a budget of 0 is none".into());
        }
        if period < PERIOD_MIN || period > DURATION_MAX {
            return Err(format!("a period is from {PERIOD_MIN} to {DURATION_MAX}, not {period}"));
        }
        if budget > period {
            return Err(format!("the budget, {budget}, is more than the period, {period}"));
        }
        self.accepted(class, params)
    }

    /// Has the policy of the class's pool check the parameters.
    fn accepted(&self, class: &Class, params: UnitParams) -> Result<UnitParams, String> {
        let Some(pool) = class.pool.map(|pool| &self.pools[pool.0]) else { return Ok(params) };
        let (info, options) = (pool.policy.info, &pool.policy.options);
        let built = info.build_for(pool.processors.len(), options, std::iter::once(&params));
        let inserted = built
            .map_err(|error| error.to_string())
            .and_then(|mut policy| policy.insert(Instant::ZERO, &params).map_err(|error| error.to_string()));
        match inserted {
            Ok(_) => Ok(params),
            Err(error) => Err(format!("policy {} of pool {} refuses that: {error}", info.name, pool.name)),
        }
    }
}

/// What tells that a VM or a cgroup belongs to a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    /// Its name, whether libvirt runs it or not.
    Name(Pattern),
    /// Its name, if libvirt runs it.
    Libvirt(Pattern),
    /// Its UUID in lower case.
    Uuid(String),
    /// The class that its metadata in libvirt names.
    Metadata(String),
    /// The systemd unit of its process; or a unit, whose processes are not a VM's.
    Unit(Pattern),
    /// The cgroup of its process, or one around that; or a cgroup, whose processes are not a VM's.
    Cgroup(PathPattern),
    /// The interrupts of the network interface or PCI device of this name.
    Interrupts(String),
    /// The scope in which `punctual exec NAME` starts a program.
    Exec(ExecName),
}

impl Match {
    /// The names of systemd units that it fits; `None` where it asks for something else.
    pub fn unit_pattern(&self) -> Option<Pattern> {
        match self {
            Match::Unit(pattern) => Some(pattern.clone()),
            Match::Exec(name) => Some(Pattern::new(name.scope("*"))),
            _ => None,
        }
    }
}

/// A name for programs that `punctual exec` starts: letters, digits, `-` and `_`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecName(String);

impl ExecName {
    /// At most this long: with the rest of the scope's name it is far below the 255 bytes that systemd takes.
    const LENGTH_MAX: usize = 64;

    /// A name as a file or the command line spells it.
    ///
    /// # Errors
    /// What was expected.
    pub fn parse(text: &str) -> Result<ExecName, &'static str> {
        let is_fitting = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if text.is_empty() || text.len() > ExecName::LENGTH_MAX || !text.bytes().all(is_fitting) {
            return Err("expected 1 to 64 letters, digits, `-` and `_`");
        }
        Ok(ExecName(text.to_owned()))
    }

    /// The name alone.
    pub fn name(&self) -> &str {
        &self.0
    }

    /// The scope for a process, by its id. No name has a point, so none is the beginning of another's scope.
    pub fn scope(&self, process: impl fmt::Display) -> String {
        format!("punctual-exec.{}.{process}.scope", self.0)
    }
}

/// A text in which `*` matches any characters and `?` one, as in a shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// A pattern as a file spells it.
    pub fn new(text: impl Into<String>) -> Pattern {
        Pattern(text.into())
    }

    /// The only text that it matches; `None` where it has a `*` or `?`.
    pub fn literal(&self) -> Option<&str> {
        (!self.0.contains(['*', '?'])).then_some(self.0.as_str())
    }

    /// Does it match the whole of `text`? Takes at most the product of both lengths.
    pub fn matches(&self, text: &str) -> bool {
        let (pattern, text): (Vec<char>, Vec<char>) = (self.0.chars().collect(), text.chars().collect());
        let (mut p, mut t) = (0, 0);
        // The last `*`, and where the characters begin for which it does not stand yet.
        let mut star: Option<(usize, usize)> = None;
        while t < text.len() {
            match pattern.get(p) {
                Some('*') => {
                    star = Some((p, t));
                    p += 1;
                }
                Some(&c) if c == '?' || c == text[t] => (p, t) = (p + 1, t + 1),
                _ => {
                    let Some((at, begin)) = star else { return false };
                    star = Some((at, begin + 1));
                    (p, t) = (at + 1, begin + 1);
                }
            }
        }
        pattern[p..].iter().all(|&c| c == '*')
    }
}

/// The path of a cgroup below the root of version 2, a [`Pattern`] for each name in it. As in a shell, `*`
/// and `?` do not match `/`: a program that may make cgroups in one that matches can make none that does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern(Vec<Pattern>);

impl PathPattern {
    /// A path as a file spells it: `/` and a name, once or more.
    ///
    /// # Errors
    /// What is wrong with it, as what was expected instead.
    pub fn parse(text: &str) -> Result<PathPattern, String> {
        const EXAMPLE: &str = "for example \"/kubepods.slice/*/cri-containerd-*.scope\"";
        if text.starts_with("/sys/fs/cgroup") {
            return Err(format!("expected a path below the root of the cgroups, {EXAMPLE}"));
        }
        let Some(below) = text.strip_prefix('/') else {
            return Err(format!("expected a path that starts with `/`, {EXAMPLE}"));
        };
        let names: Vec<&str> = below.split('/').collect();
        if names.iter().any(|name| matches!(*name, "" | "." | "..")) {
            return Err(format!("expected a path of names that are not empty, {EXAMPLE}"));
        }
        match names[0] {
            USER_SLICE => Err("expected a cgroup outside user.slice: users make those below it".into()),
            INIT_SCOPE => Err("expected another cgroup: init.scope has process 1".into()),
            _ => Ok(PathPattern(names.into_iter().map(Pattern::new).collect())),
        }
    }

    /// The patterns of its names, the outermost first.
    pub fn names(&self) -> &[Pattern] {
        &self.0
    }

    /// Does it match a cgroup with this path, or one around that?
    pub fn covers(&self, path: &str) -> bool {
        let mut names = path.split('/').skip(1);
        self.0.iter().all(|pattern| names.next().is_some_and(|name| pattern.matches(name)))
    }

    /// Does it match the whole of this path?
    pub fn matches(&self, path: &str) -> bool {
        self.covers(path) && path.split('/').skip(1).count() == self.0.len()
    }
}

/// The slice of systemd whose cgroups belong to users.
pub const USER_SLICE: &str = "user.slice";
/// The unit of process 1.
pub const INIT_SCOPE: &str = "init.scope";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_matches_name_by_name() {
        let pattern = PathPattern::parse("/kubepods.slice/*pod1?").expect("valid");
        for (path, matches, covers) in [
            ("/kubepods.slice/kubepods-pod12", true, true),
            ("/kubepods.slice/kubepods-pod12/cri.scope", false, true),
            ("/kubepods.slice/kubepods-pod1", false, false),
            ("/kubepods.slice/x/pod12", false, false),
            ("/kubepods.slice", false, false),
            ("/", false, false),
        ] {
            assert_eq!((pattern.matches(path), pattern.covers(path)), (matches, covers), "{path}");
        }
    }

    #[test]
    fn an_adjustment_is_checked_as_a_class_is() {
        use crate::file::{ConfigFile, parse_service};
        use crate::topology::Topology;
        let text = "[pool.rt]\nprocessors = [1]\npolicy = 'deferrable'\n\
                    [class.a]\nmatch = [{ name = 'a' }]\nbudget = '2ms'\nperiod = '10ms'\npriority = 1\n\
                    [class.b]\nmatch = [{ name = 'b' }]\nbest_effort = true\n";
        let file = ConfigFile { name: "host.toml".into(), bytes: text.into() };
        let config = parse_service(&[file], &Topology::flat(4)).expect("valid");
        let adjusted = |class: &str, budget_ns, period_ns, priority| {
            let adjustment = Adjustment { budget_ns, period_ns, priority };
            config.adjusted(config.class(class).expect("there"), &adjustment)
        };
        let params = adjusted("a", Some(3_000_000), None, Some(7)).expect("possible");
        let expected = (Some(Duration::from_ms(3)), Some(Duration::from_ms(10)), Some(7));
        assert_eq!((params.budget, params.period, params.priority), expected);
        assert!(adjusted("b", None, None, None).is_ok(), "it changes nothing");
        for (class, budget_ns, period_ns, expected) in [
            ("a", Some(11_000_000), None, "the budget, 11ms, is more than the period, 10ms"),
            ("a", Some(0), None, "a budget of 0"),
            ("a", Some(1), Some(10), "a period is from"),
            ("a", Some(1), Some(u64::MAX), "a period is from"),
            ("b", Some(1), None, "class b is best effort"),
        ] {
            let error = adjusted(class, budget_ns, period_ns, None).expect_err("impossible");
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn patterns_match_as_in_a_shell() {
        for (pattern, text, expected) in [
            ("relay-*", "relay-1", true),
            ("relay-*", "relay-", true),
            ("relay-*", "relay", false),
            ("relay", "relay-1", false),
            ("*", "", true),
            ("", "", true),
            ("?", "", false),
            ("?-*-b", "a-b-b", true),
            ("*a*b", "xaxbxab", true),
            ("*a*b", "xaxbxa", false),
            ("gr?n", "grün", true),
        ] {
            assert_eq!(Pattern::new(pattern).matches(text), expected, "{pattern} {text}");
        }
        // The time is bounded by the product of the lengths.
        let (many, long) = ("*a".repeat(500) + "b", "a".repeat(5_000));
        assert!(!Pattern::new(many).matches(&long));
    }

    #[test]
    fn a_name_of_exec_fits_its_own_scopes_alone() {
        let pattern =
            |name| Match::Exec(ExecName::parse(name).expect("valid")).unit_pattern().expect("units");
        let scope = ExecName::parse("capture").expect("valid").scope(4711);
        assert_eq!(scope, "punctual-exec.capture.4711.scope");
        assert!(pattern("capture").matches(&scope));
        assert!(!pattern("cap").matches(&scope) && !pattern("capture-2").matches(&scope));
        for wrong in ["", "a.b", "a/b", "a*", "a b", "\u{fc}", &"a".repeat(65)] {
            assert!(ExecName::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
