//! All actors, and the only place where they change state.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use punctual_enforce::journal::Identity;
use punctual_hold::protocol::{WantedActor, WantedVcpu};
use punctual_linux::os::cgroup;
use punctual_linux::os::proc::parse_stat;
use punctual_linux::vmm::{self, Monitor, Role, VmProcess};
use punctual_model::service::{Adjustment, ServiceConfig};
use punctual_sched::UnitParams;

use crate::actor::{Actor, State, Step, What, Wishes};
use crate::admission::Candidate;
use crate::classes;
use crate::discovery::{Found, unit_of};
use crate::groups::{FoundGroup, home};
use crate::libvirt::Running;
use crate::log::{Entry, Kind};
use crate::sample::{Sampled, Threads};

/// Names of VMs are cut to this many characters.
const NAME_MAX: usize = 256;

/// The actors of the host, by their process.
#[derive(Debug)]
pub struct Registry {
    proc: PathBuf,
    config: ServiceConfig,
    /// Users whose VMs are believed.
    owners: Vec<u32>,
    actors: BTreeMap<u32, Actor>,
    seen: u64,
    released: u64,
    /// Has a VM come, gone or got another class since that was asked?
    has_changed: bool,
    /// Wishes for VMs that have not been seen yet, from before the service started.
    kept: Vec<(Identity, Wishes)>,
}

impl Registry {
    /// Without actors. `owners` are users whose VMs are believed ([`vmm::trusted_owners`]).
    pub fn new(proc: &Path, config: ServiceConfig, owners: Vec<u32>) -> Registry {
        let proc = proc.to_owned();
        Registry {
            proc,
            config,
            owners,
            actors: BTreeMap::new(),
            seen: 0,
            released: 0,
            has_changed: true,
            kept: Vec::new(),
        }
    }

    /// Wishes that the service before this one had; they count for the same processes.
    pub fn keep(&mut self, wishes: Vec<(Identity, Wishes)>) {
        self.kept = wishes;
    }

    /// All wishes, for the next service.
    pub fn wishes(&self) -> Vec<(Identity, Wishes)> {
        let of_actor = |actor: &Actor| {
            let id = i32::try_from(actor.process).ok()?;
            let process = Identity { id, start_ticks: actor.start_ticks };
            (actor.wishes != Wishes::default()).then_some((process, actor.wishes))
        };
        let is_unseen = |(process, _): &&(Identity, Wishes)| {
            !u32::try_from(process.id).is_ok_and(|id| self.actors.contains_key(&id)) && process.is_alive()
        };
        self.actors.values().filter_map(of_actor).chain(self.kept.iter().filter(is_unseen).copied()).collect()
    }

    /// Sets what somebody asked for. A VM that is not known changes nothing.
    pub fn wish(&mut self, process: u32, wishes: Wishes) {
        if let Some(actor) = self.actors.get_mut(&process)
            && actor.wishes != wishes
        {
            actor.wishes = wishes;
            self.has_changed = true;
        }
    }

    /// The parameters of the vCPUs of a VM of a class, and what makes them other than the class's. An
    /// adjustment that is not possible changes nothing.
    pub fn params(&self, actor: &Actor) -> Option<(UnitParams, Adjustment)> {
        let class = self.config.class(actor.class()?)?;
        let adjustment = actor.adjustment();
        Some(match self.config.adjusted(class, &adjustment) {
            Ok(params) => (params, adjustment),
            Err(_) => (class.params.clone(), Adjustment::default()),
        })
    }

    /// Why what was asked for, or what the metadata says, is not possible.
    pub fn refused(&self, actor: &Actor) -> Option<String> {
        let class = self.config.class(actor.class()?)?;
        self.config.adjusted(class, &actor.adjustment()).err()
    }

    pub fn config(&self) -> &ServiceConfig {
        &self.config
    }

    pub fn owners(&self) -> &[u32] {
        &self.owners
    }

    pub fn has(&self, process: u32) -> bool {
        self.actors.contains_key(&process)
    }

    pub fn get(&self, process: u32) -> Option<&Actor> {
        self.actors.get(&process)
    }

    /// In the order of their processes.
    pub fn actors(&self) -> impl ExactSizeIterator<Item = &Actor> {
        self.actors.values()
    }

    /// Those with this name, or the one with this process.
    pub fn find(&self, name: &str) -> Vec<&Actor> {
        let named: Vec<&Actor> = self.actors.values().filter(|actor| actor.name == name).collect();
        match name.parse().ok().and_then(|process: u32| self.get(process)) {
            Some(actor) if named.is_empty() => vec![actor],
            _ => named,
        }
    }

    /// How many actors were seen and released since the service started.
    pub fn counts(&self) -> (u64, u64) {
        (self.seen, self.released)
    }

    /// Takes a process that was found. One that is known already, or has ended meanwhile, changes nothing.
    pub fn see(&mut self, found: Found, now: Instant) -> Vec<Entry> {
        let process = found.process;
        let Some(start_ticks) = self.start_ticks(process) else { return Vec::new() };
        let mut entries = Vec::new();
        match self.actors.get(&process) {
            Some(known) if known.start_ticks != start_ticks => {
                // Another process has its id.
                entries.extend(self.release(process));
            }
            Some(known) if !known.is_group() => return entries,
            Some(_) | None => {}
        }
        let Some(actor) = self.actor(found, start_ticks, now) else { return entries };
        // Its cgroup is not an actor beside it.
        let around = |group: &&Actor| group.is_group() && group.threads.processes().any(|one| one == process);
        let around: Vec<u32> = self.actors.values().filter(around).map(|group| group.process).collect();
        entries.extend(around.into_iter().filter_map(|group| self.end(group, "it runs a VM")));
        entries.extend(self.insert(actor));
        entries
    }

    /// Adds an actor that is new.
    fn insert(&mut self, actor: Actor) -> Vec<Entry> {
        let process = actor.process;
        let monitor = match actor.what {
            What::Vm(monitor) => monitor.name().to_owned(),
            What::Unit | What::Cgroup => match actor.threads.processes().len() {
                1 => "alone".into(),
                count => format!("and {} more", count.saturating_sub(1)),
            },
        };
        let whose = if actor.is_trusted { String::new() } else { format!(", of user {}", actor.owner) };
        let text = format!("{} is seen: process {process} ({monitor}{whose})", actor.label());
        let seen = Some((actor.name.clone(), process));
        let mut entries = vec![Entry { kind: Kind::Seen, text, actor: seen, class: None }];
        self.seen += 1;
        self.has_changed = true;
        self.actors.insert(process, actor);
        entries.extend(self.match_one(process));
        entries
    }

    /// Is it a process that no cgroup which is an actor may have in it: that of a VM?
    pub fn is_vm(&self, process: u32) -> bool {
        self.actors.get(&process).is_some_and(|actor| !actor.is_group())
    }

    /// Takes the cgroups that there are. Those that were there before and are not any more are released; so
    /// is one whose oldest process is another one now, which is seen again with that.
    pub fn take_groups(&mut self, found: Vec<FoundGroup>, now: Instant) -> Vec<Entry> {
        let mut entries = Vec::new();
        let is_left = |actor: &Actor| {
            let is_same = |group: &&FoundGroup| actor.cgroup.as_deref() == Some(group.path.as_str());
            let has_oldest = |group: &FoundGroup| group.processes.contains(&actor.process);
            !found.iter().find(is_same).is_some_and(has_oldest)
                || self.start_ticks(actor.process) != Some(actor.start_ticks)
        };
        let groups = self.actors.values().filter(|actor| actor.is_group());
        let left: Vec<u32> = groups.filter(|actor| is_left(actor)).map(|actor| actor.process).collect();
        for process in left {
            entries.extend(self.end(process, "its oldest process has ended or left it"));
        }
        for group in found {
            let is_same =
                |actor: &&mut Actor| actor.is_group() && actor.cgroup.as_deref() == Some(group.path.as_str());
            match self.actors.values_mut().find(is_same) {
                Some(known) => known.threads.set_processes(&self.proc, &group.processes),
                None => entries.extend(self.see_group(group, now)),
            }
        }
        entries
    }

    fn see_group(&mut self, group: FoundGroup, now: Instant) -> Vec<Entry> {
        let FoundGroup { path, unit, owner, processes } = group;
        let started = processes.iter().filter_map(|&process| Some((self.start_ticks(process)?, process)));
        let Some((start_ticks, process)) = started.min() else { return Vec::new() };
        // A process of a VM is not known yet, or it has left its cgroup meanwhile.
        if self.actors.contains_key(&process) {
            return Vec::new();
        }
        let what = if unit.is_some() { What::Unit } else { What::Cgroup };
        let name: String = unit.as_ref().unwrap_or(&path).chars().take(NAME_MAX).collect();
        let threads = Threads::of_group(&self.proc, &processes);
        let mut actor = self.new_actor(what, (process, start_ticks), name, threads, now);
        actor.owner = owner;
        actor.is_trusted = self.owners.contains(&owner);
        (actor.unit, actor.cgroup) = (unit, Some(path));
        self.insert(actor)
    }

    /// Takes what libvirt writes about a VM that it runs. The command line of the process must have the VM's
    /// name: a file may be older than the process.
    pub fn take_libvirt(&mut self, running: Running, now: Instant) -> Vec<Entry> {
        let process = running.process;
        if vmm::vm_name(&self.proc, process).as_ref() != Some(&running.name) {
            return Vec::new();
        }
        let vm = VmProcess {
            monitor: Monitor::Qemu,
            name: Some(running.name.clone()),
            uuid: running.uuid.clone(),
        };
        let mut entries = self.see(Found { process, vm }, now);
        if let Some(actor) = self.actors.get_mut(&process) {
            let libvirt = Some(running.libvirt);
            actor.uuid = running.uuid.or(actor.uuid.take());
            if actor.libvirt != libvirt {
                actor.libvirt = libvirt;
                actor.is_trusted = true;
                // Its metadata may give another budget in the same class.
                self.has_changed = true;
                entries.extend(self.match_one(process));
            }
        }
        entries
    }

    /// Classes and pools are these from now on.
    pub fn configure(&mut self, config: ServiceConfig) -> Vec<Entry> {
        self.config = config;
        self.has_changed = true;
        let processes: Vec<u32> = self.actors.keys().copied().collect();
        processes.into_iter().filter_map(|process| self.match_one(process)).collect()
    }

    /// An actor has ended. One that is not known changes nothing.
    pub fn release(&mut self, process: u32) -> Option<Entry> {
        self.end(process, &format!("process {process} has ended"))
    }

    fn end(&mut self, process: u32, why: &str) -> Option<Entry> {
        let mut actor = self.actors.remove(&process)?;
        actor.step(Step::End);
        debug_assert_eq!(actor.state(), State::Released, "an actor that has ended");
        self.released += 1;
        self.has_changed = true;
        let text = format!("{} is released: {why}", actor.label());
        Some(Entry { kind: Kind::Released, text, actor: Some((actor.name, process)), class: actor.class })
    }

    /// Lists the threads of VMs of a class that came lately, or changed. Has anything about VMs, their
    /// classes or their threads changed since the last call?
    pub fn refresh<'v>(&mut self, now: Instant, vhost: impl Fn(u32) -> &'v [u32]) -> bool {
        let mut has_changed = std::mem::take(&mut self.has_changed);
        for (&process, actor) in &mut self.actors {
            if actor.class.is_some() {
                actor.threads.refresh(&self.proc, vhost(process), now);
            }
            has_changed |= actor.threads.take_changed();
        }
        has_changed
    }

    /// The VMs and units that are to be held: those that belong to a class with a pool.
    pub fn wanted(&self) -> Vec<WantedActor> {
        let has_pool = |class: &&str| self.config.class(class).is_some_and(|class| class.pool.is_some());
        let vcpu = |one: &Sampled| match one.thread.role {
            Role::Vcpu(number) => {
                let thread = Identity::of(i32::try_from(one.thread.tid).ok()?).ok()?;
                Some(WantedVcpu { number, thread })
            }
            _ => None,
        };
        let wanted = |actor: &Actor| {
            let class = actor.class().filter(has_pool).filter(|_| !actor.is_paused())?;
            let adjustment = self.params(actor)?.1;
            let mut vcpus: Vec<WantedVcpu> = actor.threads.list().iter().filter_map(vcpu).collect();
            vcpus.sort_by_key(|vcpu| vcpu.number);
            vcpus.dedup_by_key(|vcpu| vcpu.number);
            let id = i32::try_from(actor.process).ok()?;
            let process = Identity { id, start_ticks: actor.start_ticks };
            let cgroup = actor.cgroup.clone().filter(|_| actor.is_group());
            if cgroup.is_some() {
                vcpus = vec![WantedVcpu { number: 0, thread: process }];
            }
            let (name, class) = (actor.name.clone(), class.to_owned());
            Some(WantedActor { process, name, class, adjustment, cgroup, vcpus })
        };
        self.actors.values().filter_map(wanted).collect()
    }

    /// The VMs that belong to a class and are not to be left alone, as far as their budgets are concerned.
    pub fn candidates(&self) -> Vec<Candidate> {
        let candidate = |actor: &Actor| {
            let class = actor.class().filter(|_| !actor.is_paused())?.to_owned();
            let adjustment = self.params(actor)?.1;
            let vcpus = u32::try_from(actor.vcpus()).unwrap_or(u32::MAX);
            let (name, process, is_group) = (actor.name.clone(), actor.process, actor.is_group());
            Some(Candidate { name, process, class, adjustment, vcpus, is_group })
        };
        self.actors.values().filter_map(candidate).collect()
    }

    /// An actor is held, or is not. One that is not known, or belongs to no class by now, stays as it is.
    pub fn set_held(&mut self, process: u32, is_held: bool) {
        let Some(actor) = self.actors.get_mut(&process) else { return };
        match (actor.state(), is_held) {
            (State::Matched | State::Held, true) => actor.step(Step::Hold),
            (State::Matched | State::Held, false) => actor.step(Step::LetGo),
            (State::Seen | State::Released, _) => {}
        }
    }

    /// Reads the counters of all threads. `vhost` has the workers of a process that are kernel threads.
    pub fn sample<'v>(&mut self, now: Instant, vhost: impl Fn(u32) -> &'v [u32]) {
        for (&process, actor) in &mut self.actors {
            actor.threads.sample(&self.proc, vhost(process), now);
        }
    }

    /// Finds the class of an actor; says what changed.
    fn match_one(&mut self, process: u32) -> Option<Entry> {
        let actor = self.actors.get_mut(&process)?;
        let mut fitting = classes::fitting(&self.config, actor).map(|class| class.name.clone());
        let (class, others) = (fitting.next(), fitting.collect());
        actor.other_classes = others;
        if class == actor.class {
            return None;
        }
        self.has_changed = true;
        let before = std::mem::replace(&mut actor.class, class.clone());
        actor.step(if class.is_some() { Step::Join } else { Step::Leave });
        let (kind, text) = match (&class, &before) {
            (Some(class), _) => (Kind::Matched, format!("{} belongs to class {class}", actor.label())),
            (None, before) => {
                let before = before.as_deref().unwrap_or_default();
                (Kind::Unmatched, format!("{} left class {before}: no class fits", actor.label()))
            }
        };
        Some(Entry { kind, text, actor: Some((actor.name.clone(), process)), class: class.or(before) })
    }

    fn actor(&self, found: Found, start_ticks: u64, now: Instant) -> Option<Actor> {
        let Found { process, vm } = found;
        let directory = self.proc.join(process.to_string());
        let owner = fs::metadata(&directory).ok()?.uid();
        let cgroup = fs::read_to_string(directory.join("cgroup")).unwrap_or_default();
        let name = vm.name.unwrap_or_else(|| format!("{}-{process}", vm.monitor.name()));
        let (name, threads) = (name.chars().take(NAME_MAX).collect(), Threads::of(&self.proc, process));
        let actor = self.new_actor(What::Vm(vm.monitor), (process, start_ticks), name, threads, now);
        Some(Actor {
            uuid: vm.uuid,
            owner,
            is_trusted: self.owners.contains(&owner),
            unit: unit_of(&cgroup),
            cgroup: cgroup::parse_group(&cgroup).map(|path| home(path).to_owned()),
            ..actor
        })
    }

    /// An actor of which no more is known than this: its process and when that started, its name and threads.
    fn new_actor(
        &self,
        what: What,
        (process, start_ticks): (u32, u64),
        name: String,
        threads: Threads,
        now: Instant,
    ) -> Actor {
        let identity = i32::try_from(process).ok().map(|id| Identity { id, start_ticks });
        let kept = self.kept.iter().find(|(of, _)| Some(*of) == identity);
        let realtime = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Actor {
            what,
            process,
            start_ticks,
            name,
            uuid: None,
            libvirt: None,
            owner: 0,
            is_trusted: false,
            unit: None,
            cgroup: None,
            seen: now,
            seen_realtime_us: u64::try_from(realtime.as_micros()).unwrap_or(u64::MAX),
            threads,
            state: State::Seen,
            class: None,
            other_classes: Vec::new(),
            wishes: kept.map(|(_, wishes)| *wishes).unwrap_or_default(),
        }
    }

    fn start_ticks(&self, process: u32) -> Option<u64> {
        let line = fs::read_to_string(self.proc.join(format!("{process}/stat"))).ok()?;
        let stat = parse_stat(&line)?;
        // Its parent has not collected it yet.
        (stat.state != 'Z' && stat.state != 'X').then_some(stat.start_ticks)
    }
}

#[cfg(test)]
mod tests {
    use punctual_model::file::{ConfigFile, parse_service};
    use punctual_model::topology::Topology;

    use super::*;
    use crate::actor::Libvirt;

    struct Host {
        directory: tempfile::TempDir,
        registry: Registry,
    }

    fn config(text: &str) -> ServiceConfig {
        parse_service(&[ConfigFile { name: "host.toml".into(), bytes: text.into() }], &Topology::flat(4))
            .expect("valid")
    }

    const RELAY: &str = "[class.relay]\nmatch = [{ libvirt = 'relay-*' }, { metadata = 'relay' }]\n";
    const ALL: &str = "[class.all]\nmatch = [{ name = '*' }]\n";

    impl Host {
        fn new(text: &str, owners: Vec<u32>) -> Host {
            let directory = tempfile::tempdir().expect("a directory");
            let registry = Registry::new(directory.path(), config(text), owners);
            Host { directory, registry }
        }

        fn trusting(text: &str) -> Host {
            Host::new(text, vec![rustix::process::geteuid().as_raw()])
        }

        /// A process that runs a VM, which started then.
        fn process(&self, process: u32, name: &str, start_ticks: u64) -> Found {
            let path = self.directory.path().join(process.to_string());
            fs::create_dir_all(&path).expect("made");
            let stat = format!("{process} (qemu) S 1 1 1 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 {start_ticks} 9");
            fs::write(path.join("stat"), stat).expect("written");
            fs::write(path.join("cgroup"), "0::/system.slice/fc.service\n").expect("written");
            let line = format!("qemu-system-x86_64\0-name\0guest={name}\0");
            fs::write(path.join("cmdline"), &line).expect("written");
            Found { process, vm: VmProcess::parse(line.as_bytes()).expect("a monitor") }
        }

        fn see(&mut self, found: Found) -> Vec<Kind> {
            kinds(&self.registry.see(found, Instant::now()))
        }

        fn libvirt(&mut self, process: u32, name: &str, class: Option<&str>) -> Vec<Kind> {
            let libvirt = Libvirt { class: class.map(str::to_owned), ..Libvirt::default() };
            let running = Running { process, name: name.into(), uuid: Some("c7".into()), libvirt };
            kinds(&self.registry.take_libvirt(running, Instant::now()))
        }

        fn class(&self, process: u32) -> Option<&str> {
            self.registry.get(process).and_then(Actor::class)
        }
    }

    fn kinds(entries: &[Entry]) -> Vec<Kind> {
        entries.iter().map(|entry| entry.kind).collect()
    }

    #[test]
    fn a_vm_that_is_found_twice_is_seen_once() {
        let mut host = Host::trusting(RELAY);
        let found = host.process(50, "relay-1", 7);
        assert_eq!(host.see(found.clone()), [Kind::Seen]);
        assert_eq!(host.see(found.clone()), []);
        assert_eq!(host.class(50), None, "libvirt does not know it");
        assert_eq!(host.libvirt(50, "relay-1", None), [Kind::Matched]);
        assert_eq!(host.libvirt(50, "relay-1", None), []);
        let actor = host.registry.get(50).expect("there");
        assert_eq!((actor.state(), actor.uuid.as_deref()), (State::Matched, Some("c7")));
        assert_eq!(actor.unit.as_deref(), Some("fc.service"));
        assert_eq!(host.registry.release(50).map(|entry| entry.kind), Some(Kind::Released));
        assert!(host.registry.release(50).is_none());
        assert_eq!((host.registry.actors().len(), host.registry.counts()), (0, (1, 1)));
    }

    #[test]
    fn libvirt_may_be_first_and_its_metadata_may_change() {
        let mut host = Host::trusting(RELAY);
        host.process(50, "web", 7);
        assert_eq!(host.libvirt(50, "web", None), [Kind::Seen]);
        assert_eq!(host.libvirt(50, "web", Some("relay")), [Kind::Matched]);
        assert_eq!(host.libvirt(50, "web", Some("other")), [Kind::Unmatched]);
        assert_eq!(host.registry.get(50).map(Actor::state), Some(State::Seen));
        assert_eq!(host.libvirt(50, "another", None), [], "the file is older than the process");
    }

    fn group(path: &str, owner: u32, processes: &[u32]) -> FoundGroup {
        let unit = crate::groups::unit_at(path).map(str::to_owned);
        FoundGroup { path: path.into(), unit, owner, processes: processes.to_vec() }
    }

    const UNITS: &str = "[class.tap]\nmatch = [{ unit = 'tap.service' }, { cgroup = '/pods/*' }]\n";

    #[test]
    fn a_unit_is_seen_by_its_oldest_process_and_again_when_that_ends() {
        let mut host = Host::trusting(UNITS);
        let me = host.registry.owners()[0];
        for (process, start) in [(50, 9), (51, 8), (52, 10)] {
            host.process(process, "x", start);
        }
        let look = |host: &mut Host, processes: &[u32]| {
            let found = match processes {
                [] => Vec::new(),
                some => vec![group("/system.slice/tap.service", me, some)],
            };
            kinds(&host.registry.take_groups(found, Instant::now()))
        };
        assert_eq!(look(&mut host, &[50, 51]), [Kind::Seen, Kind::Matched]);
        assert_eq!(look(&mut host, &[50, 51]), []);
        let actor = host.registry.get(51).expect("the oldest");
        assert_eq!((actor.name.as_str(), actor.what, actor.vcpus()), ("tap.service", What::Unit, 1));
        assert_eq!(look(&mut host, &[51, 52]), [], "others come and go");
        let processes: Vec<u32> = host.registry.get(51).expect("there").threads.processes().collect();
        assert_eq!(processes, [51, 52]);
        assert_eq!(look(&mut host, &[52]), [Kind::Released, Kind::Seen, Kind::Matched]);
        assert_eq!(look(&mut host, &[]), [Kind::Released]);
        assert_eq!(host.registry.candidates(), []);
    }

    #[test]
    fn a_unit_with_a_vm_is_no_actor_beside_it() {
        let mut host = Host::trusting(UNITS);
        let me = host.registry.owners()[0];
        let vm = host.process(50, "a", 7);
        let found = || vec![group("/pods/a", me, &[50])];
        assert_eq!(kinds(&host.registry.take_groups(found(), Instant::now())), [Kind::Seen, Kind::Matched]);
        assert_eq!(host.registry.candidates().len(), 1);
        assert!(!host.registry.is_vm(50));
        // What was forked has executed the monitor.
        assert_eq!(host.see(vm), [Kind::Released, Kind::Seen]);
        assert!(host.registry.is_vm(50));
    }

    #[test]
    fn a_cgroup_of_any_user_belongs_to_no_class() {
        let mut host = Host::trusting(UNITS);
        host.process(50, "x", 7);
        let other = host.registry.owners()[0] + 1;
        let found = vec![group("/pods/a", other, &[50])];
        assert_eq!(kinds(&host.registry.take_groups(found, Instant::now())), [Kind::Seen]);
        assert_eq!(host.class(50), None);
    }

    #[test]
    fn another_process_with_the_same_id_is_another_vm() {
        let mut host = Host::trusting(ALL);
        let first = host.process(50, "a", 7);
        assert_eq!(host.see(first), [Kind::Seen, Kind::Matched]);
        let second = host.process(50, "b", 8);
        assert_eq!(host.see(second), [Kind::Released, Kind::Seen, Kind::Matched]);
        assert_eq!(host.registry.find("b").len(), 1);
        assert!(host.registry.find("a").is_empty() && host.registry.find("50").len() == 1);
        fs::remove_dir_all(host.directory.path().join("50")).expect("removed");
        let gone = Found { process: 51, vm: host.process(52, "c", 1).vm };
        assert_eq!(host.see(gone), []);
    }

    #[test]
    fn a_reload_moves_only_those_whose_class_changes() {
        let mut host = Host::trusting(ALL);
        for (process, name) in [(50, "relay-1"), (51, "web")] {
            let found = host.process(process, name, 1);
            host.see(found);
        }
        let more = format!("[class.relay]\nmatch = [{{ name = 'relay-*' }}]\n{ALL}");
        let entries = host.registry.configure(config(&more));
        assert_eq!(kinds(&entries), [Kind::Matched]);
        assert_eq!((host.class(50), host.class(51)), (Some("relay"), Some("all")));
        assert_eq!(host.registry.get(50).expect("there").other_classes, ["all"]);
        assert_eq!(kinds(&host.registry.configure(ServiceConfig::default())), [Kind::Unmatched; 2]);
    }

    #[test]
    fn a_vm_belongs_to_the_class_of_a_cgroup_around_its_process() {
        let mut host = Host::trusting("[class.pod]\nmatch = [{ cgroup = '/system.slice/fc*' }]\n");
        let found = host.process(50, "a", 1);
        assert_eq!(host.see(found), [Kind::Seen, Kind::Matched]);
        let elsewhere = config("[class.pod]\nmatch = [{ cgroup = '/*/fc.service/a' }]\n");
        assert_eq!(kinds(&host.registry.configure(elsewhere)), [Kind::Unmatched]);
    }

    #[test]
    fn a_vm_of_any_user_is_seen_but_belongs_to_no_class() {
        let mut host = Host::new(ALL, vec![rustix::process::geteuid().as_raw() + 1]);
        let found = host.process(50, "relay-1", 1);
        assert_eq!(host.see(found), [Kind::Seen]);
        assert_eq!(host.class(50), None);
    }
}
