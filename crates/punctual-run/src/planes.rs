//! The planes of a switch: those of the host file, or a separate plane for the most urgent interfaces.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use punctual_linux::os::sched::{self, Attributes};
use punctual_linux::preflight;
use punctual_model::network::{Interface, Network, Plane};
use punctual_net::discipline::Preemption;
use punctual_sched::Duration;
use punctual_sched::registry::Options;
use punctual_switch::PlaneThread;
use punctual_switch::budget::Budget;
use serde::{Deserialize, Serialize};

use crate::events::{Event, Events};

/// What the user wants of the planes instead of what the host file says.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlaneOverrides {
    /// Two planes; the first one has the interfaces with a priority number up to this.
    pub urgent: Option<u32>,
    /// One plane for all interfaces.
    pub one: bool,
    /// The SCHED_FIFO priority of the first plane's threads.
    pub fifo: Option<u32>,
    /// The processor of the first plane's threads.
    pub processor: Option<usize>,
    /// How long each plane polls.
    pub poll: Option<Duration>,
}

/// Where threads run for which the host file names no processors and no priority.
#[derive(Clone, Debug, Default)]
pub(crate) struct Placement {
    /// Empty: all processors.
    pub processors: Vec<usize>,
    /// The priority under SCHED_FIFO.
    pub fifo: Option<u32>,
}

/// A plane's name and budget.
#[derive(Clone, Debug, Serialize)]
pub struct PlaneLine {
    pub name: String,
    /// Processor time that its threads may take together in each period.
    pub budget_ns: Option<u64>,
    pub period_ns: Option<u64>,
}

/// A thread of a plane, or of one of its uplinks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The thread.
    pub thread: i32,
    /// Its name, processors and class.
    pub name: String,
}

impl Member {
    /// This thread.
    fn this() -> Member {
        let thread = std::thread::current();
        let processors = match sched::affinity(0) {
            Ok(all) if all.len() < preflight::online().len() => format!("on {}", preflight::list(&all)),
            _ => "anywhere".into(),
        };
        let class = match sched::attributes(0) {
            Ok(Attributes { policy: sched::FIFO, priority, .. }) => format!("FIFO {priority}"),
            Ok(attributes) => attributes.policy_name().trim_start_matches("SCHED_").to_lowercase(),
            Err(_) => "unknown class".into(),
        };
        let name = format!("{} ({processors}, {class})", thread.name().unwrap_or("a plane"));
        Member { thread: rustix::thread::gettid().as_raw_nonzero().get(), name }
    }
}

/// The threads of planes and uplinks that have begun.
#[derive(Clone, Debug, Default)]
pub(crate) struct Roster(Arc<Mutex<Vec<Member>>>);

impl Roster {
    /// Those that there are now.
    pub(crate) fn members(&self) -> Vec<Member> {
        let mut members = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        members.retain(|member| Path::new(&format!("/proc/self/task/{}", member.thread)).exists());
        members.clone()
    }

    fn add(&self, member: Member) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(member);
    }
}

/// The planes of a network, most urgent first.
pub(crate) struct Planes(Vec<Plane>, Roster);

impl Planes {
    /// The planes of a network whose ports have these priorities.
    pub(crate) fn new(network: &Network, priorities: &[Option<u32>], overrides: &PlaneOverrides) -> Self {
        let own_choice = overrides.one || overrides.urgent.is_some();
        let mut planes = match &network.planes[..] {
            planes if !planes.is_empty() && !own_choice => planes.to_vec(),
            _ => default(network, priorities, overrides),
        };
        if let Some(first) = planes.first_mut() {
            first.fifo = overrides.fifo.or(first.fifo);
            first.processors = overrides.processor.map_or(std::mem::take(&mut first.processors), |n| vec![n]);
        }
        for plane in &mut planes {
            plane.poll = overrides.poll.unwrap_or(plane.poll);
        }
        Planes(planes, Roster::default())
    }

    /// The plane of a VM's port: that of its most urgent frames. One thread serves a ring.
    pub(crate) fn of_interface(&self, network: &Network, interface: &Interface) -> usize {
        let classes = interface.priorities().filter(|_| network.has_priorities()).flatten();
        self.of(classes.chain(interface.params.priority).min())
    }

    /// The plane of an interface.
    pub(crate) fn of(&self, priority: Option<u32>) -> usize {
        let takes = |plane: &Plane| plane.up_to.is_none_or(|most| priority.is_some_and(|own| own <= most));
        self.0.iter().position(takes).unwrap_or_default()
    }

    /// The description of each plane, before it runs.
    pub(crate) fn lines(&self) -> Vec<PlaneLine> {
        let ns = |time: Option<Duration>| time.map(Duration::as_ns);
        let line = |plane: &Plane| {
            let params = plane.budget.as_ref().map(|budget| &budget.params);
            PlaneLine {
                name: plane.name.clone(),
                budget_ns: params.and_then(|params| ns(params.budget)),
                period_ns: params.and_then(|params| ns(params.period)),
            }
        };
        self.0.iter().map(line).collect()
    }

    /// Their threads, at `placement` unless the file or the user places them elsewhere.
    pub(crate) fn threads(&self, placement: &Placement, events: &Events) -> Vec<PlaneThread> {
        self.0.iter().map(|plane| thread(plane, placement, self.1.clone(), events.clone())).collect()
    }

    /// The threads that have begun.
    pub(crate) fn roster(&self) -> &Roster {
        &self.1
    }
}

/// A plane of their own for the interfaces that are urgent: if the discipline reads priorities, and not all
/// are.
fn default(network: &Network, priorities: &[Option<u32>], overrides: &PlaneOverrides) -> Vec<Plane> {
    let reads_priorities = network.discipline.info.preemption != Preemption::None;
    let most_urgent = priorities.iter().flatten().min().filter(|_| reads_priorities && !overrides.one);
    let most = overrides.urgent.or(most_urgent.copied());
    let is_urgent = |priority: &Option<u32>| most.is_some_and(|most| priority.is_some_and(|own| own <= most));
    let plane = |name: &str, up_to| Plane {
        name: name.into(),
        up_to,
        processors: Vec::new(),
        fifo: None,
        poll: Duration::ZERO,
        budget: None,
    };
    if priorities.iter().any(is_urgent) && !priorities.iter().all(is_urgent) {
        vec![plane("urgent", most), plane("rest", None)]
    } else {
        vec![plane("all", None)]
    }
}

fn thread(plane: &Plane, placement: &Placement, roster: Roster, events: Events) -> PlaneThread {
    let processors = if plane.processors.is_empty() { &placement.processors } else { &plane.processors };
    let (processors, fifo) = (processors.clone(), plane.fifo.or(placement.fifo));
    let name = plane.name.clone();
    let enter = move || {
        if !processors.is_empty()
            && let Err(error) = sched::set_affinity(0, &processors)
        {
            let text = format!("plane {name} does not stay on processors {processors:?}: {error}");
            events(Event::Misplaced(text));
        }
        if let Some(priority) = fifo
            && let Err(error) = sched::set_attributes(0, &Attributes::fifo(priority))
        {
            events(Event::Misplaced(format!("plane {name} has no real-time priority: {error}")));
        }
        roster.add(Member::this());
    };
    let budget = plane.budget.as_ref().map(|budget| Budget {
        policy: budget.policy,
        options: Options::new(),
        params: budget.params.clone(),
    });
    PlaneThread { name: format!("plane/{}", plane.name), enter: Arc::new(enter), poll: plane.poll, budget }
}
