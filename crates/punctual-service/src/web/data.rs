//! The JSON of the page: what the control interface answers, with sums for each VM.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use punctual_hold::protocol::HeldVcpu;
use serde::{Deserialize, Serialize};

use crate::client::{Client, ClientError};
use crate::history::{HistoryView, MOMENTS, MomentView, NameView};
use crate::view::{ActorView, ClassView, HostView, Thread, VM, Warning};
use crate::waits::{CauseView, KEPT_S, VmWaitView, WaitCause};

/// An answer of the service is shown to all who ask within this time.
const FRESH: Duration = Duration::from_millis(900);
/// The worst waits are asked for so often.
const WORST_EVERY: Duration = Duration::from_secs(5);

/// What the page shows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Data {
    /// The name of the machine.
    pub host_name: String,
    /// Now, in us since 1970.
    pub at_us: u64,
    /// Does the service answer? If not, there is a reason, and nothing else.
    pub is_connected: bool,
    pub reason: Option<String>,
    /// The service, as `io.punctual.Host.Status` has it.
    pub host: Option<HostView>,
    pub actors: Vec<ActorSummary>,
    /// The longest waits of the last hour, as `io.punctual.Host.Worst` has them.
    pub worst: Vec<VmWaitView>,
    /// What the causes mean, by name.
    pub cause_words: BTreeMap<WaitCause, String>,
    /// The moments after that of the number `since`, as `io.punctual.Host.History` has them.
    pub history: HistoryView,
}

/// A VM or a unit, from what `io.punctual.Host.List` has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ActorSummary {
    pub kind: String,
    pub name: String,
    pub process: u32,
    pub state: String,
    pub class: Option<String>,
    pub pool: Option<String>,
    pub is_paused: bool,
    pub not_held: Option<String>,
    pub warnings: Vec<Warning>,
    /// What its class gives, or what it was adjusted to.
    pub budget_ns: Option<u64>,
    pub period_ns: Option<u64>,
    /// Do its vCPUs draw from one budget?
    pub shares_budget: bool,
    /// vCPUs; threads of a unit.
    pub threads: usize,
    /// Shares of a processor in the last second, all those threads together.
    pub run_share: Option<f64>,
    pub wait_share: Option<f64>,
    /// The share of periods in which they got their budgets or did not want them.
    pub delivered_ratio: Option<f64>,
    /// What all its threads waited for in the last hour, the greatest first.
    pub lately: Vec<CauseView>,
    /// How often its vCPUs were woken since it was seen, and the longest time until one ran.
    pub wakeups: u64,
    pub latency_max_ns: u64,
}

impl ActorSummary {
    /// `class`: its class, if it has one.
    fn new(actor: ActorView, class: Option<&ClassView>) -> ActorSummary {
        let is_own = |thread: &&Thread| actor.kind != VM || thread.vcpu.is_some();
        let threads: Vec<&Thread> = actor.threads.iter().filter(is_own).collect();
        let share = |of: fn(&Thread) -> Option<f64>| {
            let shares: Vec<f64> = threads.iter().filter_map(|thread| of(thread)).collect();
            (!shares.is_empty()).then(|| shares.iter().sum())
        };
        let sum = |of: fn(&HeldVcpu) -> u64| actor.budgets.iter().map(of).sum::<u64>();
        let (delivered, periods) = (sum(|vcpu| vcpu.delivered), sum(|vcpu| vcpu.periods));
        let given = class.filter(|class| !class.best_effort);
        let vcpus = || actor.waits.iter().filter(|part| part.vcpu.is_some());
        ActorSummary {
            budget_ns: actor.adjustment.budget_ns.or(given.and_then(|class| class.budget_ns)),
            period_ns: actor.adjustment.period_ns.or(given.and_then(|class| class.period_ns)),
            shares_budget: class.is_some_and(|class| class.shares_budget),
            threads: threads.len(),
            run_share: share(|thread| thread.run_share),
            wait_share: share(|thread| thread.wait_share),
            delivered_ratio: (periods > 0).then(|| delivered as f64 / periods as f64),
            wakeups: vcpus().map(|part| part.wakeups).sum(),
            latency_max_ns: vcpus().map(|part| part.latency_max_ns).max().unwrap_or(0),
            kind: actor.kind,
            name: actor.name,
            process: actor.process,
            state: actor.state,
            class: actor.class,
            pool: actor.pool,
            is_paused: actor.is_paused,
            not_held: actor.not_held,
            warnings: actor.warnings,
            lately: actor.lately,
        }
    }
}

/// What the service said last.
#[derive(Debug)]
struct Answered {
    host: HostView,
    actors: Vec<ActorSummary>,
}

/// Asks the service, and keeps what it said for others who ask.
#[derive(Debug)]
pub struct Source {
    run: PathBuf,
    /// When it was asked last, and what it answered.
    last: Option<(Instant, Result<Answered, String>)>,
    worst: Option<(Instant, Vec<VmWaitView>)>,
    /// When the service started that has these moments.
    started_us: u64,
    moments: VecDeque<MomentView>,
    names: BTreeMap<u32, String>,
}

impl Source {
    /// Of the service whose sockets are below `run`.
    pub fn new(run: &Path) -> Source {
        Source {
            run: run.to_owned(),
            last: None,
            worst: None,
            started_us: 0,
            moments: VecDeque::new(),
            names: BTreeMap::new(),
        }
    }

    /// What the page shows, with the moments after that of this number, if the number is one of the service
    /// that started then.
    pub fn data(&mut self, since: u64, started_us: u64) -> Data {
        let is_fresh = self.last.as_ref().is_some_and(|(at, _)| at.elapsed() < FRESH);
        if !is_fresh {
            let answered = self.ask().map_err(|error| error.to_string());
            // From the end of the answer on: who waited for it meanwhile does not ask again.
            self.last = Some((Instant::now(), answered));
        }
        let since = if started_us == self.started_us { since } else { 0 };
        let real = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut data = Data {
            host_name: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            at_us: u64::try_from(real.as_micros()).unwrap_or(u64::MAX),
            is_connected: false,
            reason: None,
            host: None,
            actors: Vec::new(),
            worst: Vec::new(),
            cause_words: WaitCause::ALL.map(|cause| (cause, cause.words().to_owned())).into(),
            history: HistoryView::default(),
        };
        match &self.last {
            Some((_, Ok(answered))) => {
                data.is_connected = true;
                data.host = Some(answered.host.clone());
                data.actors = answered.actors.clone();
                data.worst = self.worst.as_ref().map(|(_, worst)| worst.clone()).unwrap_or_default();
                data.history = self.history(since);
            }
            Some((_, Err(reason))) => data.reason = Some(reason.clone()),
            None => {}
        }
        data
    }

    fn ask(&mut self) -> Result<Answered, ClientError> {
        let mut client = Client::connect(&self.run)?;
        let host = client.status()?;
        if host.started_us != self.started_us {
            self.started_us = host.started_us;
            self.moments.clear();
            self.worst = None;
        }
        let actors = client.list()?.into_iter().map(|actor| {
            let class = host.classes.iter().find(|class| Some(&class.name) == actor.class.as_ref());
            ActorSummary::new(actor, class)
        });
        let actors = actors.collect();
        if self.worst.as_ref().is_none_or(|(at, _)| at.elapsed() >= WORST_EVERY) {
            self.worst = Some((Instant::now(), client.worst(KEPT_S)?));
        }
        self.follow(&mut client)?;
        Ok(Answered { host, actors })
    }

    /// Takes the moments that are new.
    fn follow(&mut self, client: &mut Client) -> Result<(), ClientError> {
        loop {
            let since = self.moments.back().map_or(0, |last| last.number);
            let HistoryView { last, is_complete, actors, moments } = client.history(since)?;
            // With other pools, the history began again.
            if moments.first().is_some_and(|first| first.number > since + 1) || last < since {
                self.moments.clear();
            }
            let is_over = is_complete || moments.is_empty();
            self.names.extend(actors.into_iter().map(|actor| (actor.process, actor.name)));
            self.moments.extend(moments);
            let beyond = self.moments.len().saturating_sub(MOMENTS);
            self.moments.drain(..beyond);
            if is_over {
                break;
            }
        }
        let uses = self.moments.iter().flat_map(|moment| &moment.processors).flat_map(|one| &one.actors);
        let shown: BTreeSet<u32> = uses.map(|one| one.process).collect();
        self.names.retain(|process, _| shown.contains(process));
        Ok(())
    }

    fn history(&self, since: u64) -> HistoryView {
        let last = self.moments.back().map_or(0, |last| last.number);
        let since = if since > last { 0 } else { since };
        let moments = self.moments.iter().filter(|moment| moment.number > since).cloned().collect();
        let name = |(&process, name): (&u32, &String)| NameView { process, name: name.clone() };
        HistoryView { last, is_complete: true, actors: self.names.iter().map(name).collect(), moments }
    }
}
