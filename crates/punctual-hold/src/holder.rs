//! Makes what is held become what is wanted, a step at a time.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use punctual_enforce::backend::Chosen;
use punctual_enforce::driver::Settings;
use punctual_enforce::enforcer::Observed;
use punctual_enforce::journal::{Identity, Restored};
use punctual_enforce::notice::Notice;
use punctual_enforce::session::{self, Failed, PoolScheduler, Session, Setup};
use punctual_enforce::unit::UnitThreads;
use punctual_linux::cpuset::Cpusets;
use punctual_linux::os::{cgroup, proc};
use punctual_linux::preflight;
use punctual_model::file::{ConfigFile, parse_service};
use punctual_model::host::{PolicyChoice, Pool};
use punctual_model::placement::closest;
use punctual_model::service::{Mode, ServiceConfig};
use punctual_sched::UnitParams;
use rustix::time::{ClockId, clock_gettime};

use crate::held::{GIVEN_UP_REST, Held, Places, parse_unit_name, unit_name};
use crate::interrupts::{Happened, Interrupts, Sent};
use crate::plan::{self, Action, HeldAs, Place, id};
use crate::protocol::{Event, EventKind, HeldActor, Report, Wanted, WantedActor, WantedVcpu};

/// A VM that could not be held is tried again after this.
const REST: Duration = Duration::from_secs(5);
/// A session that could not start, or failed, is tried again after this.
const FAILURE_REST: Duration = Duration::from_secs(5);
/// How often the threads of VMs are compared with those placed.
const HELPERS_INTERVAL: Duration = Duration::from_millis(250);
/// Enforcers that stand still for so long are ended by the guardian.
const SILENCE: Duration = Duration::from_secs(2);
/// Events that are kept for a service that is not there.
const EVENTS_MAX: usize = 10_000;

/// What a holder needs of its process.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    /// This program, for the guardian.
    pub program: PathBuf,
    /// Ends this process, when the guardian asks for that.
    pub end: fn() -> !,
}

/// Enforcement at work.
struct Running {
    session: Session,
    /// The pools that it has, in the order of its numbers.
    pools: Vec<Pool>,
    /// The processors for everything else: no pool has them, and they are not to be idle.
    left: Vec<usize>,
    /// Those of them that are closest to each pool.
    near: Vec<Vec<usize>>,
    interrupts: Interrupts,
}

/// Why nothing is held, and when that is tried again.
struct Failure {
    text: String,
    until: Instant,
}

/// A VM that could not be held.
struct Resting {
    process: Identity,
    reason: String,
    until: Instant,
}

/// Holds what is wanted.
pub(crate) struct Holder {
    process: Process,
    wanted: Wanted,
    config: ServiceConfig,
    running: Option<Running>,
    held: BTreeMap<u32, Held>,
    resting: BTreeMap<u32, Resting>,
    failure: Option<Failure>,
    next_helpers: Instant,
    events: Vec<Event>,
}

impl Holder {
    pub(crate) fn new(process: Process) -> Holder {
        Holder {
            process,
            wanted: Wanted::default(),
            config: ServiceConfig::default(),
            running: None,
            held: BTreeMap::new(),
            resting: BTreeMap::new(),
            failure: None,
            next_helpers: Instant::now(),
            events: Vec::new(),
        }
    }

    /// Takes what is wanted from now on. A configuration that cannot be read changes nothing.
    pub(crate) fn want(&mut self, wanted: Wanted) {
        if wanted.files != self.wanted.files || wanted.topology != self.wanted.topology {
            let file = |file: &crate::protocol::File| ConfigFile {
                name: file.name.clone(),
                bytes: file.text.clone().into(),
            };
            let files: Vec<ConfigFile> = wanted.files.iter().map(file).collect();
            match parse_service(&files, &wanted.topology) {
                Ok(config) => self.config = config,
                Err(errors) => {
                    let text = format!("the service sent a configuration that is not valid here: {errors}");
                    return self.say(None, EventKind::Notice, text);
                }
            }
            // Somebody may have mended what failed.
            self.failure = None;
            self.resting.clear();
        }
        self.resting.retain(|_, resting| wanted.actors.iter().any(|actor| actor.process == resting.process));
        self.wanted = wanted;
    }

    /// Is a session at work?
    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Does one thing that is to be done; true when there may be more.
    pub(crate) fn step(&mut self, now: Instant) -> bool {
        self.poll(now);
        let is_wanted = self.config.mode == Mode::Enforce && !self.config.pools.is_empty();
        match &self.running {
            Some(running) if !is_wanted || !are_same(&running.pools, &self.config.pools) => {
                let text = if is_wanted { "its pools changed" } else { "nothing is to be held any more" };
                self.end_session(text);
                return true;
            }
            Some(_) => {}
            None if !is_wanted => return false,
            None if self.failure.as_ref().is_some_and(|failure| now < failure.until) => return false,
            None => return self.start_session(now),
        }
        if now >= self.next_helpers {
            self.next_helpers = now + HELPERS_INTERVAL;
            self.place_helpers();
            self.follow(now);
            self.send_interrupts();
        }
        let over = self.held.iter().find(|(_, held)| held.retry_at.is_some_and(|at| at <= now));
        if let Some(process) = over.map(|(process, _)| *process) {
            self.let_go(process);
            return true;
        }
        let held = self.held.iter().map(|(process, held)| (*process, held.held_as.clone())).collect();
        let rests = |process: u32| self.resting.get(&process).is_some_and(|resting| now < resting.until);
        let Some(action) = plan::next(&self.config, &self.wanted.actors, &held, rests) else { return false };
        match action {
            Action::LetGo { process } => self.let_go(process),
            Action::Adjust { process, params } => self.adjust(process, params),
            Action::Move { process, threads } => {
                if let Some(held) = self.held.get_mut(&process) {
                    held.held_as.place.threads = *threads;
                    held.forget_helpers();
                }
                self.place_helpers();
            }
            Action::Hold { actor, place } => self.hold(&actor, *place, now),
            Action::Add { process, vcpus } => self.add(process, &vcpus),
        }
        true
    }

    /// Ends enforcement; everything is as it was. Returns what was put back.
    pub(crate) fn end(mut self) -> Result<Option<Restored>, Failed> {
        let Some(running) = self.running.take() else { return Ok(None) };
        running.session.finish().map(|report| Some(report.restored))
    }

    /// How things are.
    pub(crate) fn report(&mut self) -> Report {
        let actor = |actor: &WantedActor| {
            let process = id(actor.process);
            let held = self.held.get(&process);
            let reason = || match (&self.failure, self.resting.get(&process)) {
                (Some(failure), _) => failure.text.clone(),
                (None, Some(resting)) => resting.reason.clone(),
                (None, None) if actor.vcpus.is_empty() => NO_VCPUS.into(),
                (None, None) => "it is about to be held".into(),
            };
            HeldActor {
                process,
                not_held: held.is_none().then(reason),
                vcpus: held.map(Held::vcpus).unwrap_or_default(),
                helpers: held.map(|held| held.helpers.clone()).unwrap_or_default(),
            }
        };
        let time = clock_gettime(ClockId::ProcessCPUTime);
        Report {
            actors: self.wanted.actors.iter().map(actor).collect(),
            interrupts: self.running.as_ref().map(|one| one.interrupts.report()).unwrap_or_default(),
            events: std::mem::take(&mut self.events),
            backend: self.running.as_ref().map(|_| chosen().backend.name().to_owned()),
            failure: self.failure.as_ref().map(|failure| failure.text.clone()),
            cpu_ns: time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs(),
        }
    }

    /// Has something happened since the last report?
    pub(crate) fn has_news(&self) -> bool {
        !self.events.is_empty()
    }

    fn say(&mut self, process: Option<u32>, kind: EventKind, text: impl Into<String>) {
        if self.events.len() < EVENTS_MAX {
            self.events.push(Event { process, kind, text: text.into() });
        }
    }

    fn start_session(&mut self, now: Instant) -> bool {
        let pools = self.config.pools.clone();
        match start(&self.process, &pools) {
            Ok((session, left)) => {
                let topology = &self.wanted.topology;
                let near = pools.iter().map(|pool| closest(topology, &pool.processors, &left)).collect();
                let interrupts = Interrupts::default();
                self.running = Some(Running { session, pools, left, near, interrupts });
                self.failure = None;
                true
            }
            Err(text) => {
                self.fail(format!("nothing can be held: {text}"), now);
                false
            }
        }
    }

    fn fail(&mut self, text: String, now: Instant) {
        let is_new = self.failure.as_ref().is_none_or(|failure| failure.text != text);
        self.failure = Some(Failure { text: text.clone(), until: now + FAILURE_REST });
        if is_new {
            self.say(None, EventKind::Notice, text);
        }
    }

    fn end_session(&mut self, why: &str) {
        let Some(Running { session, .. }) = self.running.take() else { return };
        for process in std::mem::take(&mut self.held).into_keys() {
            self.say(Some(process), EventKind::LetGo, format!("is as it was: {why}"));
        }
        match session.finish() {
            Ok(report) => self.say_failures(None, &report.restored),
            Err(failed) => self.say(None, EventKind::Notice, failed.to_string()),
        }
    }

    fn say_failures(&mut self, process: Option<u32>, restored: &Restored) {
        for failure in &restored.failures {
            self.say(process, EventKind::Notice, format!("could not be put back: {failure}"));
        }
    }

    /// Takes what happened in the session.
    fn poll(&mut self, now: Instant) {
        let Some(running) = &mut self.running else { return };
        match running.session.poll() {
            Ok(notices) => notices.into_iter().for_each(|notice| self.take(&notice, now)),
            Err(error) => {
                let Some(Running { session, .. }) = self.running.take() else { return };
                let restored = session.abort();
                let text = format!("enforcement failed: {error}");
                for process in std::mem::take(&mut self.held).into_keys() {
                    self.say(Some(process), EventKind::LetGo, "is as it was");
                }
                if let Some(restored) = restored {
                    self.say_failures(None, &restored);
                }
                self.fail(text, now);
            }
        }
    }

    fn take(&mut self, notice: &Notice, now: Instant) {
        let Some((process, vcpu)) = notice.unit().and_then(parse_unit_name) else {
            return self.say(None, EventKind::Notice, notice.to_string());
        };
        let Some(held) = self.held.get_mut(&process) else { return };
        match notice {
            // Its thread ended: the VM did, too, or the vCPU was unplugged.
            Notice::Gone { .. } => drop(held.units.remove(&vcpu)),
            Notice::PutBack { deviation, .. } => {
                let text = format!("{} {deviation} and was put back", held.part(vcpu));
                self.say(Some(process), EventKind::PutBack, text);
            }
            Notice::Failed { error, .. } => {
                held.retry_at = Some(now + GIVEN_UP_REST);
                let what = if held.cgroup.is_some() { "it".into() } else { held.part(vcpu) };
                self.say(Some(process), EventKind::GivenUp, format!("{what} is given up: {error}"));
            }
            Notice::Refused { error, .. } => {
                held.retry_at = Some(now + GIVEN_UP_REST);
                let what = if held.cgroup.is_some() { "it".into() } else { held.part(vcpu) };
                self.say(Some(process), EventKind::GivenUp, format!("{what} is refused: {error}"));
            }
            other => self.say(Some(process), EventKind::Notice, other.to_string()),
        }
    }

    fn let_go(&mut self, process: u32) {
        let Some(held) = self.held.remove(&process) else { return };
        let Some(running) = &mut self.running else { return };
        let units: Vec<_> = held.units.values().cloned().collect();
        let is_alive = held.held_as.process.is_alive();
        match running.session.release(held.held_as.process.id, &units) {
            Ok(restored) => {
                if is_alive {
                    self.say(Some(process), EventKind::LetGo, "is as it was");
                }
                self.say_failures(Some(process), &restored);
            }
            Err(error) => {
                self.say(Some(process), EventKind::Notice, format!("could not be put back: {error}"))
            }
        }
    }

    fn adjust(&mut self, process: u32, params: UnitParams) {
        let (Some(held), Some(running)) = (self.held.get_mut(&process), &mut self.running) else { return };
        held.held_as.place.params = params;
        let params = held.held_as.unit_params();
        for unit in held.units.values() {
            running.session.adjust_unit(unit, &params);
        }
        self.say(Some(process), EventKind::Held, "has other parameters");
    }

    fn hold(&mut self, actor: &WantedActor, place: Place, now: Instant) {
        let process = id(actor.process);
        let Some(running) = &mut self.running else { return };
        match running.hold(actor, place) {
            Ok(held) => {
                let pool = &running.pools[held.held_as.place.pool.0].name;
                let text = match held.cgroup {
                    Some(_) => format!("is held in pool {pool}"),
                    None => format!("is held: {} in pool {pool}", count(held.units.len(), "vCPU")),
                };
                self.held.insert(process, held);
                self.resting.remove(&process);
                self.say(Some(process), EventKind::Held, text);
            }
            Err(reason) => {
                // What had been changed by then.
                let undone = running.session.release(actor.process.id, &[]);
                let before = self.resting.get(&process).map(|resting| resting.reason.clone());
                let is_new = before.as_ref() != Some(&reason);
                let resting = Resting { process: actor.process, reason: reason.clone(), until: now + REST };
                self.resting.insert(process, resting);
                if is_new && actor.process.is_alive() {
                    self.say(Some(process), EventKind::NotHeld, format!("is not held: {reason}"));
                }
                match undone {
                    Ok(restored) => self.say_failures(Some(process), &restored),
                    Err(error) => {
                        let text = format!("could not be put back: {error}");
                        self.say(Some(process), EventKind::Notice, text);
                    }
                }
            }
        }
    }

    fn add(&mut self, process: u32, vcpus: &[WantedVcpu]) {
        let (Some(held), Some(running)) = (self.held.get_mut(&process), &mut self.running) else { return };
        let mut said = Vec::new();
        for vcpu in vcpus {
            // Whether it can be held or not: it is not tried again and again.
            held.held_as.vcpus.insert(vcpu.number, vcpu.thread);
            match running.add(process, held, vcpu) {
                Ok(unit) => {
                    held.units.insert(vcpu.number, unit);
                    said.push((EventKind::Held, format!("vCPU {} came and is held", vcpu.number)));
                }
                Err(_) if !vcpu.thread.is_alive() => {}
                Err(error) => {
                    said.push((EventKind::NotHeld, format!("vCPU {} is not held: {error}", vcpu.number)));
                }
            }
        }
        said.into_iter().for_each(|(kind, text)| self.say(Some(process), kind, text));
    }

    /// Takes processes that came to cgroups that are held.
    fn follow(&mut self, now: Instant) {
        let Some(running) = &mut self.running else { return };
        let mut said = Vec::new();
        for (process, held) in self.held.iter_mut().filter(|(_, held)| held.retry_at.is_none()) {
            if let Err(error) = held.follow(&mut running.session)
                && held.held_as.process.is_alive()
            {
                held.retry_at = Some(now + GIVEN_UP_REST);
                said.push((*process, format!("a process came to it that cannot be held: {error}")));
            }
        }
        for (process, text) in said {
            self.say(Some(process), EventKind::GivenUp, text);
        }
    }

    /// Sends the interrupts that classes match where they are to go.
    fn send_interrupts(&mut self) {
        let Some(running) = &mut self.running else { return };
        let mut wanted = Vec::new();
        for of_device in &self.wanted.interrupts {
            let Some(class) = self.config.class(&of_device.class) else { continue };
            let (_, places) = running.places(class.pool.map_or(0, |pool| pool.0));
            let (to, reason) = places.of(&class.interrupts);
            let (device, numbers) = (of_device.device.clone(), of_device.numbers.clone());
            wanted.push(Sent { device, numbers, to: to.into_owned(), reason });
        }
        for happened in running.interrupts.tend(wanted, &mut running.session) {
            match happened {
                Happened::PutBack(text) => self.say(None, EventKind::PutBack, text),
                Happened::Refused(text) => self.say(None, EventKind::Notice, text),
            }
        }
    }

    fn place_helpers(&mut self) {
        let Some(running) = &mut self.running else { return };
        let mut said = Vec::new();
        for (process, held) in &mut self.held {
            let (session, places) = running.places(held.held_as.place.pool.0);
            if let Err(error) = held.place_helpers(session, places) {
                said.push((*process, error.to_string()));
            }
        }
        for (process, text) in said {
            self.say(Some(process), EventKind::Notice, text);
        }
    }
}

/// Why a VM without known vCPUs is not held.
const NO_VCPUS: &str =
    "none of its threads is named as a vCPU (QEMU names them with -name ...,debug-threads=on)";

/// Do these pools have the same names, policies, processors and idle siblings? The reasons do not matter.
fn are_same(some: &[Pool], others: &[Pool]) -> bool {
    fn facts(pool: &Pool) -> (&str, &[usize], &[usize], &PolicyChoice) {
        (&pool.name, &pool.processors, idle(pool), &pool.policy)
    }
    some.iter().map(facts).eq(others.iter().map(facts))
}

/// The processors that stay idle beside a pool.
fn idle(pool: &Pool) -> &[usize] {
    pool.choice.as_ref().map_or(&[], |choice| &choice.idle)
}

/// The processors for everything else, of those that are left beside `pools`.
fn without_idle(left: Vec<usize>, pools: &[Pool]) -> Vec<usize> {
    let is_idle = |processor: &usize| pools.iter().any(|pool| idle(pool).contains(processor));
    // If there are no others, the rest of the machine needs them.
    if left.iter().all(is_idle) { left } else { left.into_iter().filter(|one| !is_idle(one)).collect() }
}

/// What enforces.
fn chosen() -> Chosen {
    Chosen::default()
}

/// Starts a session with these pools; returns also the processors for everything else.
fn start(process: &Process, pools: &[Pool]) -> Result<(Session, Vec<usize>), String> {
    let taken: Vec<usize> = pools.iter().flat_map(|pool| pool.processors.iter().copied()).collect();
    let left = preflight::processors(&taken, false).map_err(|error| error.to_string())?;
    let left = without_idle(left, pools);
    let setup = Setup {
        name: "punctual enforce".into(),
        program: process.program.clone(),
        processors: taken,
        starve: false,
        lift_rt_limit: true,
        silence: SILENCE,
        end: process.end,
        driver: Settings::default(),
        enforced_by: chosen(),
        observed: Observed { keeps_nothing: true, ..Observed::default() },
    };
    let mut session = Session::start(setup).map_err(|failed| failed.to_string())?;
    for pool in pools {
        let scheduler = PoolScheduler::Policy(pool.policy.clone());
        if let Err(error) = session.add_pool(&pool.processors, &scheduler, None) {
            session.abort();
            return Err(error.to_string());
        }
    }
    Ok((session, left))
}

impl Running {
    fn hold(&mut self, actor: &WantedActor, place: Place) -> Result<Held, String> {
        if !actor.process.is_alive() {
            return Err("its process has ended".into());
        }
        self.check(actor, &place)?;
        let vcpus = actor.vcpus.iter().map(|vcpu| (vcpu.number, vcpu.thread)).collect();
        let held_as = HeldAs { process: actor.process, place, vcpus };
        let mut held = Held::new(actor.name.clone(), actor.cgroup.clone(), held_as);
        let (pool, params) = (held.held_as.place.pool.0, held.held_as.unit_params());
        if let Some(cgroup) = &actor.cgroup {
            check_group(actor.process, cgroup)?;
            let name = unit_name(id(actor.process), 0);
            let adopted = self.session.adopt_group(pool, &name, actor.process, cgroup, &params);
            let adopted = adopted.map_err(|error| error.to_string())?;
            let (handles, _) = self.session.schedule(vec![adopted]).map_err(|error| error.to_string())?;
            held.units = handles.into_iter().map(|handle| (0, handle)).collect();
            return Ok(held);
        }
        let mut adopted = Vec::new();
        for vcpu in &actor.vcpus {
            let name = unit_name(id(actor.process), vcpu.number);
            let threads = UnitThreads::Thread(vcpu.thread);
            let unit = self.session.adopt_unit(pool, &actor.name, &name, threads, &params);
            adopted.push(unit.map_err(|error| error.to_string())?);
        }
        let (handles, _) = self.session.schedule(adopted).map_err(|error| error.to_string())?;
        held.units = actor.vcpus.iter().map(|vcpu| vcpu.number).zip(handles).collect();
        let (session, places) = self.places(pool);
        held.place_helpers(session, places).map_err(|error| error.to_string())?;
        Ok(held)
    }

    /// Where the other threads of a VM in this pool may be.
    fn places(&mut self, pool: usize) -> (&mut Session, Places<'_>) {
        let (host, near, pool) = (&self.left, &self.near[pool], &self.pools[pool].name);
        (&mut self.session, Places { host, near, pool })
    }

    fn add(
        &mut self,
        process: u32,
        held: &Held,
        vcpu: &WantedVcpu,
    ) -> Result<session::UnitHandle, session::Error> {
        let (name, pool) = (unit_name(process, vcpu.number), held.held_as.place.pool.0);
        let (threads, params) = (UnitThreads::Thread(vcpu.thread), held.held_as.unit_params());
        self.session.add_unit(pool, &held.name, &name, threads, &params)
    }

    /// May the vCPUs run on the processors of their pool, and are they threads of the VM?
    fn check(&self, actor: &WantedActor, place: &Place) -> Result<(), String> {
        let mut cpusets = Cpusets::new();
        let processors = &self.pools[place.pool.0].processors;
        for vcpu in &actor.vcpus {
            let thread = vcpu.thread.id;
            let process = proc::process_of(thread).map_err(|error| format!("thread {thread}: {error}"))?;
            if process != actor.process.id {
                return Err(format!("thread {thread} is not one of process {}", actor.process.id));
            }
            let Some(cpuset) = cpusets.of(thread) else { continue };
            let missing = processors.iter().find(|processor| !cpuset.processors.contains(processor));
            if let Some(processor) = missing {
                let (directory, allowed) = (cpuset.directory.display(), &cpuset.processors);
                let what = match actor.cgroup {
                    Some(_) => "it".into(),
                    None => format!("vCPU {}", vcpu.number),
                };
                return Err(format!(
                    "its cgroup {directory} confines {what} to processors {allowed:?}, without {processor} \
                     of the pool"
                ));
            }
        }
        Ok(())
    }
}

/// May the processes of a cgroup be held together? Not those of the system's manager, and not this one, which
/// would wait for itself. Its path must be that of the process.
fn check_group(process: Identity, cgroup: &str) -> Result<(), String> {
    let of_process = cgroup::group_of(process.id).map_err(|error| error.to_string())?;
    if cgroup.len() < 2 || of_process != cgroup {
        return Err(format!("its process {} is in cgroup {of_process}, not {cgroup}", process.id));
    }
    let mount = cgroup::mount().map_err(|error| error.to_string())?;
    let directory = cgroup::below(&mount, cgroup);
    let own = i32::try_from(std::process::id()).unwrap_or(1);
    for (never, what) in [(1, "process 1"), (own, "the process that enforces")] {
        if cgroup::is_inside(never, &directory).unwrap_or(false) {
            return Err(format!("its cgroup {cgroup} has {what} in it, which is never held"));
        }
    }
    Ok(())
}

/// "1 vCPU", "2 vCPUs".
fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use punctual_model::placement::Choice;
    use punctual_model::topology::Topology;

    use super::*;

    fn pools(text: &str) -> Vec<Pool> {
        let file = ConfigFile { name: "host.toml".into(), bytes: text.into() };
        parse_service(&[file], &Topology::flat(4)).expect("valid").pools
    }

    #[test]
    fn pools_are_the_same_with_another_reason_and_others_with_other_processors() {
        let pool = "[pool.rt]\nprocessors = { count = 1 }\npolicy = 'deferrable'\n";
        let chosen = pools(pool);
        let mut other = chosen.clone();
        other[0].choice = Some(Choice { reason: "another".into(), idle: Vec::new() });
        assert!(are_same(&chosen, &other));
        assert!(are_same(&chosen, &pools(&pool.replace("{ count = 1 }", "[1]"))));
        other[0].choice = Some(Choice { reason: "another".into(), idle: vec![2] });
        assert!(!are_same(&chosen, &other));
        for (from, to) in [("{ count = 1 }", "[2]"), ("deferrable", "rtds"), ("pool.rt", "pool.be")] {
            assert!(!are_same(&chosen, &pools(&pool.replace(from, to))), "{to}");
        }
        assert!(!are_same(&chosen, &[]));
    }

    #[test]
    fn helpers_leave_idle_siblings_alone_unless_nothing_else_is_left() {
        let mut pools = pools("[pool.rt]\nprocessors = { count = 1 }\npolicy = 'deferrable'\n");
        assert_eq!(without_idle(vec![0, 2, 3], &pools), [0, 2, 3]);
        pools[0].choice = Some(Choice { reason: String::new(), idle: vec![3] });
        assert_eq!(without_idle(vec![0, 2, 3], &pools), [0, 2]);
        assert_eq!(without_idle(vec![3], &pools), [3]);
    }
}
