//! What the service knows, apart from descriptors.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use punctual_hold::protocol::{EventKind, File, HeldActor, Report, Wanted};
use punctual_model::file::ConfigFile;
use punctual_model::service::{Adjustment, Mode};
use punctual_model::topology::Topology;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use crate::actor::{Actor, State, Wishes};
use crate::admission::{self, Candidate, Unguaranteed};
use crate::config::{self, ConfigError, Loaded};
use crate::discovery::{Discovery, Found, Look};
use crate::enforcement::Enforcement;
use crate::groups::Groups;
use crate::hints::Hints;
use crate::history::History;
use crate::interrupts::Interrupts;
use crate::last_good::{LastGood, Start};
use crate::libvirt::Running;
use crate::log::{Entry, Kind};
use crate::registry::Registry;
use crate::topology::named;
use crate::varlink::server::{Answers, Failure};
use crate::view::{self, ActorView, HostView, PoolView, Warning};
use crate::waits::{KEPT_S, Waits, now_ns};
use crate::wishes::Store;

/// A warning is logged again when it was absent for this long.
const WARNING_REST: Duration = Duration::from_secs(60);

/// Whom strict admission holds.
#[derive(Debug, Default)]
struct Chosen {
    among: Vec<Candidate>,
    processes: BTreeSet<u32>,
    refused: BTreeMap<u32, String>,
}

#[derive(Debug)]
pub(crate) struct Core {
    proc: PathBuf,
    configuration: PathBuf,
    /// The machine when the configuration was read.
    topology: Topology,
    started_us: u64,
    pub(crate) registry: Registry,
    store: Store,
    /// What VMs wait for.
    pub(crate) waits: Waits,
    /// What KVM counts of them.
    hints: Hints,
    /// Who had the processors.
    history: History,
    last_good: LastGood,
    discovery: Discovery,
    groups: Groups,
    interrupts: Interrupts,
    /// Why the configuration was refused when it was read last.
    reload_error: Option<String>,
    /// The files of the configuration.
    files: Vec<ConfigFile>,
    /// What the enforcing process said last.
    enforcement: Enforcement,
    /// The VMs that were judged last, and whose budgets are not guaranteed.
    judged: (Vec<Candidate>, Vec<Unguaranteed>),
    /// With strict admission: the VMs among which was chosen last, who was, and why others were not.
    chosen: Chosen,
    /// Messages and garbage of the hook.
    pub(crate) hook: (u64, u64),
    /// Clients, and those that were dropped.
    pub(crate) clients: (usize, u64),
    /// Entries that are not logged and published yet.
    entries: Vec<Entry>,
    /// By process (0 for pools) and kind, when a warning was last there.
    warned: BTreeMap<(u32, String), Instant>,
}

impl Core {
    /// `directory`: the runtime directory of the service. `last_good` has said what counts.
    pub(crate) fn new(
        configuration: PathBuf,
        directory: &Path,
        topology: Topology,
        (start, last_good): (Start, LastGood),
        owners: Vec<u32>,
    ) -> Core {
        let Start { loaded: Loaded { config, files }, refused } = start;
        let proc = Path::new("/proc");
        let realtime = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let waits = Waits::new(proc, config.waits);
        let mut core = Core {
            proc: proc.to_owned(),
            configuration,
            topology,
            started_us: u64::try_from(realtime.as_micros()).unwrap_or(u64::MAX),
            registry: Registry::new(proc, config, owners),
            store: Store::new(directory),
            waits,
            hints: Hints::new(Path::new("/")),
            history: History::new(proc),
            last_good,
            discovery: Discovery::new(proc),
            groups: Groups::of_machine(),
            interrupts: Interrupts::new("/".into()),
            reload_error: None,
            files,
            enforcement: Enforcement::default(),
            judged: (Vec::new(), Vec::new()),
            chosen: Chosen::default(),
            hook: (0, 0),
            clients: (0, 0),
            entries: Vec::new(),
            warned: BTreeMap::new(),
        };
        match core.store.load() {
            Ok(wishes) => core.registry.keep(wishes),
            Err(error) => {
                core.say(Kind::Warning, format!("what VMs were adjusted to before is lost: {error}"));
            }
        }
        match refused {
            Some(line) => core.refuse(line),
            None => core.keep_configuration(),
        }
        core
    }

    /// Keeps the files of the configuration for a start at which they are broken.
    fn keep_configuration(&mut self) {
        if let Err(error) = self.last_good.save(&self.files) {
            self.say(Kind::Warning, format!("the configuration is not kept for the next start: {error}"));
        }
    }

    /// The configuration is broken.
    fn refuse(&mut self, line: String) {
        self.say(Kind::ReloadRefused, format!("the configuration stays as it was: {line}"));
        self.reload_error = Some(line);
    }

    pub(crate) fn take_entries(&mut self) -> Vec<Entry> {
        std::mem::take(&mut self.entries)
    }

    fn say(&mut self, kind: Kind, text: String) {
        self.entries.push(Entry { kind, text, actor: None, class: None });
    }

    pub(crate) fn started(&mut self) {
        let classes = count(self.registry.config().classes.len(), "class");
        let does = if self.enforces() {
            "keeps VMs and units of this host under enforcement"
        } else {
            "observes this host and changes nothing"
        };
        let text = format!("the service {does}; {classes}");
        self.say(Kind::Started, text);
    }

    pub(crate) fn stopping(&mut self) {
        self.say(Kind::Stopping, "the service ends".into());
    }

    /// For `systemctl status`.
    pub(crate) fn summary(&self) -> String {
        let matched = self.registry.actors().filter(|actor| actor.class().is_some()).count();
        let (groups, vms): (Vec<&Actor>, Vec<&Actor>) =
            self.registry.actors().partition(|actor| actor.is_group());
        let mut vms = count(vms.len(), "VM");
        if !groups.is_empty() {
            vms += &format!(" and {}", count(groups.len(), "unit"));
        }
        let held = self.registry.actors().filter(|actor| actor.state() == State::Held).count();
        let state = match (self.enforces(), &self.enforcement.failure) {
            (false, _) => format!("Observes {vms}, {matched} in a class; changes nothing"),
            (true, None) => format!("Observes {vms}, {matched} in a class, {held} held"),
            (true, Some(failure)) => format!("Observes {vms}, {matched} in a class, {held} held: {failure}"),
        };
        match &self.reload_error {
            Some(error) => format!("The configuration is refused, the one before stays: {error}. {state}"),
            None => state,
        }
    }

    /// Are VMs to be held?
    pub(crate) fn enforces(&self) -> bool {
        self.registry.config().mode == Mode::Enforce
    }

    /// Lists threads where they may be others than at the last sample. Has anything changed that decides what
    /// is to be held?
    pub(crate) fn refresh(&mut self, now: Instant) -> bool {
        let discovery = &self.discovery;
        let are_others = self.interrupts.look(self.registry.config(), now);
        self.registry.refresh(now, |process| discovery.vhost(process)) || are_others
    }

    /// What is to be held now.
    pub(crate) fn wanted(&mut self) -> Wanted {
        let file = |file: &ConfigFile| File {
            name: file.name.clone(),
            text: String::from_utf8_lossy(&file.bytes).into_owned(),
        };
        let mut actors = self.registry.wanted();
        if self.registry.config().is_strict {
            self.choose();
            actors.retain(|actor| {
                u32::try_from(actor.process.id).is_ok_and(|process| self.chosen.processes.contains(&process))
            });
        }
        let files = self.files.iter().map(file).collect();
        let interrupts = self.interrupts.wanted();
        let topology = named(&self.topology, self.registry.config());
        Wanted { files, topology, actors, interrupts }
    }

    /// Chooses whom to hold, if other VMs run than the last time.
    fn choose(&mut self) {
        let mut candidates = self.registry.candidates();
        // One whose vCPUs are not known yet would be chosen for nothing, and stay when they are.
        candidates.retain(|vm| vm.vcpus > 0);
        if candidates == self.chosen.among {
            return;
        }
        let before = std::mem::take(&mut self.chosen);
        let (processes, refused) = admission::choose(self.registry.config(), &candidates, &before.processes);
        for (process, reason) in &refused {
            if before.refused.get(process) == Some(reason) {
                continue;
            }
            if let Some(actor) = self.registry.get(*process) {
                let text = format!("{} is not held: {reason}", actor.label());
                let class = actor.class().map(str::to_owned);
                let actor = Some((actor.name.clone(), *process));
                self.entries.push(Entry { kind: Kind::NotHeld, text, actor, class });
            }
        }
        self.chosen = Chosen { among: candidates, processes, refused };
    }

    /// The enforcing process cannot be reached: it holds what it held, or has put everything back.
    pub(crate) fn enforcement_failed(&mut self, failure: String) {
        self.enforcement = Enforcement { failure: Some(failure), ..Enforcement::default() };
        self.step_held();
    }

    /// The enforcing process has said nothing for long: what it holds is as it said last.
    pub(crate) fn enforcement_is_silent(&mut self) {
        self.enforcement.failure = Some("the enforcing process does not answer".into());
    }

    /// Nothing is to be held.
    pub(crate) fn enforcement_ended(&mut self) {
        self.enforcement = Enforcement::default();
        self.step_held();
        self.say(Kind::LetGo, "nothing is held any more".into());
    }

    /// Takes what the enforcing process says.
    pub(crate) fn take_report(&mut self, report: Report) {
        self.enforcement.failure = report.failure;
        self.enforcement.backend = report.backend;
        self.enforcement.cpu_ns = Some(report.cpu_ns);
        self.enforcement.interrupts = report.interrupts;
        self.enforcement.actors = report.actors.into_iter().map(|actor| (actor.process, actor)).collect();
        self.step_held();
        for event in report.events {
            let actor = event.process.and_then(|process| self.registry.get(process));
            let text = match (actor, event.process) {
                (Some(actor), _) => format!("{} {}", actor.label(), event.text),
                (None, Some(process)) => format!("process {process} {}", event.text),
                (None, None) => event.text,
            };
            let class = actor.and_then(|actor| actor.class().map(str::to_owned));
            let actor = actor.map(|actor| (actor.name.clone(), actor.process));
            self.entries.push(Entry { kind: kind_of(event.kind), text, actor, class });
        }
    }

    fn step_held(&mut self) {
        let processes: Vec<u32> = self.registry.actors().map(|actor| actor.process).collect();
        for process in processes {
            let held = self.enforcement.actors.get(&process);
            self.registry.set_held(process, held.is_some_and(|held| held.not_held.is_none()));
        }
    }

    /// What the enforcing process says of a VM.
    fn held(&self, process: u32) -> Option<&HeldActor> {
        self.enforcement.actors.get(&process).filter(|_| self.enforces())
    }

    pub(crate) fn look(&mut self, now: Instant) -> Look {
        let registry = &self.registry;
        self.discovery.look(now, |process| registry.is_vm(process))
    }

    /// Finds cgroups that classes name. `others` are processes of the service's own that are never held.
    pub(crate) fn look_for_groups(&mut self, others: &[u32], now: Instant) {
        let registry = &self.registry;
        let own = [1, std::process::id()];
        let is_left_out =
            |process| own.contains(&process) || others.contains(&process) || registry.is_vm(process);
        let found = self.groups.look(registry.config(), is_left_out);
        let entries = self.registry.take_groups(found, now);
        self.entries.extend(entries);
    }

    pub(crate) fn see(&mut self, found: Found, now: Instant) {
        self.entries.extend(self.registry.see(found, now));
    }

    pub(crate) fn take_libvirt(&mut self, running: Running, now: Instant) {
        self.entries.extend(self.registry.take_libvirt(running, now));
    }

    pub(crate) fn release(&mut self, process: u32) {
        let had_wishes = self.registry.get(process).is_some_and(|actor| actor.wishes != Wishes::default());
        self.entries.extend(self.registry.release(process));
        if had_wishes {
            self.save_wishes();
        }
    }

    /// Keeps what somebody asked for, for a service that comes after this one.
    fn save_wishes(&mut self) {
        if let Err(error) = self.store.save(&self.registry.wishes()) {
            self.say(Kind::Warning, format!("a restart of the service will forget changes of VMs: {error}"));
        }
    }

    /// Reads all counters, and logs warnings that are new.
    pub(crate) fn sample(&mut self, now: Instant) {
        let discovery = &self.discovery;
        self.registry.sample(now, |process| discovery.vhost(process));
        if !self.enforces() {
            self.interrupts.look(self.registry.config(), now);
        }
        self.waits.sample(&self.registry);
        let counted = self.hints.sample(&self.registry, now_ns());
        self.waits.note(&counted);
        self.history.sample(&self.registry, &mut self.waits);
        self.judge();
        let mut warnings: Vec<(Option<(String, u32)>, Warning)> = Vec::new();
        for actor in self.registry.actors() {
            let named = |Warning { kind, text }: Warning| {
                let text = format!("{}: {text}", actor.label());
                (Some((actor.name.clone(), actor.process)), Warning { kind, text })
            };
            warnings.extend(self.warnings(actor).into_iter().map(named));
        }
        let of_pools = self.host_warnings(&view::pools(&self.registry));
        warnings.extend(of_pools.into_iter().map(|one| (None, one)));
        for (actor, warning) in warnings {
            let process = actor.as_ref().map_or(0, |(_, process)| *process);
            let is_new = self.warned.insert((process, warning.kind), now).is_none();
            if is_new {
                self.entries.push(Entry { kind: Kind::Warning, text: warning.text, actor, class: None });
            }
        }
        self.warned.retain(|_, last| now.duration_since(*last) < WARNING_REST);
    }

    /// Watches what the threads of all VMs wait for, and looks why some sleep.
    pub(crate) fn watch_waits(&mut self) {
        self.waits.watch(&self.registry);
        self.waits.look_at_sleepers();
    }

    /// Reads the configuration again. If it is broken, everything stays.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn reload(&mut self) -> Result<(), ConfigError> {
        let pools = &self.registry.config().pools;
        match config::reload(&self.configuration, Path::new("/"), &mut self.topology, pools) {
            Ok(Loaded { config, files }) => {
                let classes = count(config.classes.len(), "class");
                self.waits.set_source(config.waits);
                let moved = self.registry.configure(config);
                self.files = files;
                self.keep_configuration();
                // Other budgets.
                self.judged = (Vec::new(), Vec::new());
                self.chosen.among.clear();
                if !self.registry.config().is_strict {
                    self.chosen = Chosen::default();
                }
                self.reload_error = None;
                self.say(Kind::Reloaded, format!("the configuration is read: {classes}"));
                self.entries.extend(moved);
                Ok(())
            }
            Err(error) => {
                self.refuse(error.line());
                Err(error)
            }
        }
    }

    /// The only VM with this name or process.
    fn find(&self, name: &str) -> Result<&Actor, Failure> {
        match &self.registry.find(name)[..] {
            [] => Err(Failure::own("NoSuchActor", json!({ "name": name }))),
            [one] => Ok(one),
            several => {
                let processes: Vec<u32> = several.iter().map(|actor| actor.process).collect();
                Err(Failure::own("AmbiguousName", json!({ "name": name, "processes": processes })))
            }
        }
    }

    /// Changes what somebody asked for, and keeps that for a service that comes after this one.
    fn wish(&mut self, name: &str, kind: Kind, change: impl FnOnce(&mut Wishes)) -> Result<(), Failure> {
        let actor = self.find(name)?;
        let (process, mut wishes) = (actor.process, actor.wishes);
        let (name, label) = (actor.name.clone(), actor.label());
        let class = actor.class().map(str::to_owned);
        change(&mut wishes);
        if wishes == actor.wishes {
            return Ok(());
        }
        self.registry.wish(process, wishes);
        let text = match kind {
            Kind::Adjusted => format!("{label} is adjusted: {}", view::adjustment(&wishes.adjustment)),
            Kind::Paused => format!("{label} is to be left alone"),
            Kind::Resumed => format!("{label} is to be held again"),
            _ => format!("{label} gets what its class says again"),
        };
        self.entries.push(Entry { kind, text, actor: Some((name, process)), class });
        self.save_wishes();
        Ok(())
    }

    /// Finds out whose budgets are guaranteed, if other VMs run than the last time.
    fn judge(&mut self) {
        let candidates = self.registry.candidates();
        if candidates != self.judged.0 {
            let unguaranteed = admission::unguaranteed(self.registry.config(), &candidates);
            self.judged = (candidates, unguaranteed);
        }
    }

    /// What the operator should know of an actor.
    fn warnings(&self, actor: &Actor) -> Vec<Warning> {
        let of_actor = self.judged.1.iter().filter(|one| one.process == actor.process);
        let text = |one: &Unguaranteed| {
            let which = one.vcpu.map_or_else(String::new, |vcpu| format!("vCPU {vcpu}: "));
            format!("{which}not guaranteed: {}", one.reason)
        };
        let lost = of_actor.map(|one| Warning { kind: "admission".into(), text: text(one) });
        view::warnings(&self.registry, actor).into_iter().chain(lost).collect()
    }

    fn view(&self, actor: &Actor) -> ActorView {
        let held = self.held(actor.process);
        let mut view = view::actor(&self.proc, &self.registry, actor, held);
        view.warnings = self.warnings(actor);
        view.waits = self.waits.parts(actor.process);
        view.lately = self.waits.lately(actor.process);
        view.hints = self.hints.view(actor.process, now_ns().saturating_sub(KEPT_S * 1_000_000_000));
        let refused = self.chosen.refused.get(&actor.process);
        let paused = (actor.is_paused() && actor.class().is_some()).then(|| PAUSED.to_owned());
        let reason = paused.or(view.not_held).or_else(|| refused.cloned());
        view.not_held = reason.filter(|_| self.enforces());
        view
    }

    fn host_warnings(&self, pools: &[PoolView]) -> Vec<Warning> {
        let failure = self.enforcement.failure.iter().filter(|_| self.enforces());
        let failure = failure.map(|text| Warning { kind: "enforcement".into(), text: text.clone() });
        failure.chain(view::pool_warnings(pools)).collect()
    }

    fn host(&self) -> HostView {
        let pools = view::pools(&self.registry);
        let (actors_seen, actors_released) = self.registry.counts();
        let time = clock_gettime(ClockId::ProcessCPUTime);
        HostView {
            version: env!("CARGO_PKG_VERSION").into(),
            mode: if self.enforces() { "enforce" } else { "observe" }.into(),
            configuration: self.configuration.display().to_string(),
            started_us: self.started_us,
            processors: self.topology.count(),
            actors: self.registry.actors().len(),
            actors_seen,
            actors_released,
            classes: view::classes(&self.registry),
            reload_error: self.reload_error.clone(),
            hook_messages: self.hook.0,
            hook_garbage: self.hook.1,
            clients: self.clients.0,
            clients_dropped: self.clients.1,
            cpu_ns: time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs(),
            enforcer_cpu_ns: self.enforcement.cpu_ns,
            backend: self.enforcement.backend.clone(),
            waits: self.waits.source(),
            warnings: self.host_warnings(&pools),
            pools,
            interrupts: self.interrupts.view(&self.enforcement.interrupts),
            slots: view::slots(self.registry.config(), &self.topology),
        }
    }
}

/// Why a VM is not held that is to be left alone.
const PAUSED: &str = "it is paused; `punctual resume` lets it be held again";

fn kind_of(kind: EventKind) -> Kind {
    match kind {
        EventKind::Held => Kind::Held,
        EventKind::LetGo => Kind::LetGo,
        EventKind::NotHeld => Kind::NotHeld,
        EventKind::PutBack => Kind::PutBack,
        EventKind::GivenUp => Kind::GivenUp,
        EventKind::Notice => Kind::Warning,
    }
}

/// "1 VM", "2 VMs", "3 classes".
fn count(number: usize, what: &str) -> String {
    match (number, what.ends_with('s')) {
        (1, _) => format!("1 {what}"),
        (_, true) => format!("{number} {what}es"),
        (_, false) => format!("{number} {what}s"),
    }
}

impl Answers for Core {
    fn status(&self) -> Value {
        json!(self.host())
    }

    fn actors(&self) -> Vec<u32> {
        self.registry.actors().map(|actor| actor.process).collect()
    }

    fn actor(&self, process: u32) -> Option<Value> {
        let actor = self.registry.get(process)?;
        Some(json!(self.view(actor)))
    }

    fn describe(&self, name: &str) -> Result<Value, Failure> {
        Ok(json!(self.view(self.find(name)?)))
    }

    fn why(&mut self, name: &str, last_s: u64) -> Result<Value, Failure> {
        self.waits.catch_up(&self.registry);
        let actor = self.find(name)?;
        Ok(json!(self.waits.why(actor.process, &actor.name, last_s, &self.hints)))
    }

    fn worst(&mut self, last_s: u64) -> Value {
        self.waits.catch_up(&self.registry);
        json!(self.waits.worst(last_s))
    }

    fn history(&self, since: u64) -> Value {
        json!(self.history.view(since))
    }

    fn adjust(&mut self, name: &str, to: Adjustment) -> Result<Value, Failure> {
        let actor = self.find(name)?;
        let config = self.registry.config();
        let Some(class) = actor.class().and_then(|class| config.class(class)) else {
            return Err(Failure::own("NoClass", json!({ "name": actor.name })));
        };
        let adjustment = to.over(actor.adjustment());
        if let Err(reason) = config.adjusted(class, &adjustment) {
            return Err(Failure::own("NotPossible", json!({ "reason": reason })));
        }
        let candidates = self.registry.candidates();
        let admission = admission::adjust(config, &candidates, actor.process, adjustment);
        if config.is_strict && !admission.is_guaranteed {
            return Err(Failure::own("NotGuaranteed", json!({ "admission": admission })));
        }
        self.wish(name, Kind::Adjusted, |wishes| wishes.adjustment = to.over(wishes.adjustment))?;
        Ok(json!(admission))
    }

    fn pause(&mut self, name: &str) -> Result<(), Failure> {
        self.wish(name, Kind::Paused, |wishes| wishes.is_paused = true)
    }

    fn resume(&mut self, name: &str) -> Result<(), Failure> {
        self.wish(name, Kind::Resumed, |wishes| wishes.is_paused = false)
    }

    fn restore(&mut self, name: &str) -> Result<(), Failure> {
        self.wish(name, Kind::Restored, |wishes| *wishes = Wishes::default())
    }

    fn admit(&self, class: &str, count: u32, vcpus: u32) -> Result<Value, Failure> {
        let config = self.registry.config();
        if config.class(class).is_none() {
            return Err(Failure::own("NoSuchClass", json!({ "name": class })));
        }
        let one = Candidate {
            name: class.to_owned(),
            process: 0,
            class: class.to_owned(),
            adjustment: Adjustment::default(),
            vcpus,
            is_group: false,
        };
        let more = vec![one; count as usize];
        Ok(json!(admission::admit(config, &self.registry.candidates(), &more)))
    }

    fn reload(&mut self) -> Result<Value, Failure> {
        match Core::reload(self) {
            Ok(()) => {
                let config = self.registry.config();
                Ok(json!({ "classes": config.classes.len(), "pools": config.pools.len() }))
            }
            Err(error) => {
                let report = error.to_string();
                let (file, line, message) = match error.first() {
                    Some(record) => (record.file.unwrap_or_default(), record.line, record.message),
                    None => (self.configuration.display().to_string(), 0, report.clone()),
                };
                let parameters = json!({ "file": file, "line": line, "message": message, "report": report });
                Err(Failure::own("BrokenFile", parameters))
            }
        }
    }
}
