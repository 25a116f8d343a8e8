//! What the names in networks, flows and chains mean, once domains and tasks are known.

use punctual_net::InterfaceParams;
use punctual_net::event_channel::PORTS;
use punctual_net::registry::DisciplineInfo;
use punctual_sched::{Duration, Instant};

use super::draft::{ChainDraft, Drafts, FlowDraft, Named, NetworkDraft};
use crate::file::error::{Place, nearest};
use crate::file::fields::{Problems, expected_names, shorten};
use crate::file::options::OptionPlaces;
use crate::host::{Host, Parent, Work};
use crate::index::{DomainIx, NetworkIx, TaskIx};
use crate::network::{Chain, Endpoint, Flow, Interface, Network, OutsideHost, Traffic};

impl Drafts {
    /// Adds networks, flows and chains to the host, whose domains and tasks are complete.
    pub(crate) fn resolve(self, host: &mut Host, problems: &mut Problems) {
        let before = problems.list.len();
        let mut outside: Vec<Vec<(OutsideHost, Place)>> = Vec::new();
        let mut places = Vec::new();
        for mut draft in self.networks {
            outside.push(std::mem::take(&mut draft.outside));
            places.push(network_of(draft, host, problems));
        }
        if problems.list.len() > before {
            return;
        }
        check_outside(&outside, host, problems);
        for (network, outside) in host.networks.iter_mut().zip(outside) {
            network.outside = outside.into_iter().map(|(host, _)| host).collect();
        }
        for draft in self.flows {
            if let Some(flow) = flow_of(draft, host, problems) {
                attach_ends(&flow, host);
                host.flows.push(flow);
            }
        }
        for draft in self.chains {
            let network = draft.network.clone();
            if let Some(chain) = chain_of(draft, host, network, problems) {
                for &task in &chain.steps {
                    if let Parent::Domain(domain) = host.tasks[task.0].parent {
                        attach(chain.network, domain, host);
                    }
                }
                host.chains.push(chain);
            }
        }
        if problems.list.len() > before {
            return;
        }
        check_served(host, problems);
        for (i, places) in places.iter().enumerate() {
            finish_interfaces(host, i, places, problems);
        }
    }
}

/// Where a network's parts stand, for what is judged when it is complete.
struct NetworkPlaces {
    network: Place,
    discipline: Place,
    options: OptionPlaces,
    interfaces: Vec<(DomainIx, Place, OptionPlaces)>,
}

fn domain_called(host: &Host, name: &str) -> Option<DomainIx> {
    host.domains.iter().position(|d| d.name == name).map(DomainIx)
}

fn domain_or_problem(host: &Host, (name, place): &Named, problems: &mut Problems) -> Option<DomainIx> {
    let found = domain_called(host, name);
    if found.is_none() {
        let names = || host.domains.iter().map(|d| d.name.as_str());
        let message = format!("there is no domain `{}`", shorten(name));
        problems.add_nearest(place, message, expected_names(names()), nearest(name, names()));
    }
    found
}

/// Adds the network, without hosts outside, to the host.
fn network_of(draft: NetworkDraft, host: &mut Host, problems: &mut Problems) -> NetworkPlaces {
    let mut places = NetworkPlaces {
        network: draft.name.1.clone(),
        discipline: draft.discipline_place,
        options: draft.option_places,
        interfaces: Vec::new(),
    };
    let Some(driver) = domain_or_problem(host, &draft.driver, problems) else { return places };
    if let Some(other) = host.networks.iter().find(|n| n.driver == driver) {
        let message = format!("`{}` is the driver of network `{}` already", draft.driver.0, other.name);
        problems.add(&draft.driver.1, message, "expected a driver domain for each network");
    }
    let mut interfaces = Vec::new();
    for interface in draft.interfaces {
        let Some(domain) = domain_or_problem(host, &interface.domain, problems) else { continue };
        if domain == driver {
            let message = format!("`{}` is the driver domain", interface.domain.0);
            problems.add(
                &interface.domain.1,
                message,
                "expected a guest: the driver has no interface of its own",
            );
            continue;
        }
        places.interfaces.push((domain, interface.domain.1, interface.places));
        interfaces.push(Interface { domain, params: interface.params });
    }
    host.networks.push(Network {
        name: draft.name.0,
        driver,
        discipline: draft.discipline,
        scan: draft.scan,
        events: draft.events,
        costs: draft.costs,
        nic: draft.nic,
        interfaces,
        outside: Vec::new(),
    });
    places
}

/// Hosts outside must not have the name of a domain: flows name both the same way.
fn check_outside(outside: &[Vec<(OutsideHost, Place)>], host: &Host, problems: &mut Problems) {
    for (one, place) in outside.iter().flatten() {
        if domain_called(host, &one.name).is_some() {
            let message = format!("a domain is called `{}` too", one.name);
            problems.add(place, message, "expected different names for domains and hosts outside");
        }
    }
}

fn network_ix(
    host: &Host,
    given: &Option<Named>,
    owner: &Named,
    what: &str,
    problems: &mut Problems,
) -> Option<NetworkIx> {
    let names = || host.networks.iter().map(|n| n.name.as_str());
    let Some((name, place)) = given else {
        if host.networks.len() == 1 {
            return Some(NetworkIx(0));
        }
        let message = format!("`network` is missing in [{what}.{}]", owner.0);
        let expected = match host.networks.len() {
            0 => "there is no network: expected a [network.NAME] with a `driver` domain".into(),
            _ => format!("there are several networks; {}", expected_names(names())),
        };
        problems.add(&owner.1, message, expected);
        return None;
    };
    let found = names().position(|n| n == name);
    if found.is_none() {
        let message = format!("there is no network `{}`", shorten(name));
        problems.add_nearest(place, message, expected_names(names()), nearest(name, names()));
    }
    found.map(NetworkIx)
}

fn endpoint(
    host: &Host,
    network: NetworkIx,
    (name, place): &Named,
    problems: &mut Problems,
) -> Option<Endpoint> {
    let of = &host.networks[network.0];
    if let Some(outside) = of.outside.iter().position(|o| o.name == *name) {
        return Some(Endpoint::Outside(outside));
    }
    let Some(domain) = domain_called(host, name) else {
        let names = || host.domains.iter().map(|d| &d.name).chain(of.outside.iter().map(|o| &o.name));
        let message = format!("there is no domain and no host outside `{}`", shorten(name));
        let expected = expected_names(names().map(String::as_str));
        problems.add_nearest(place, message, expected, nearest(name, names().map(String::as_str)));
        return None;
    };
    if domain == of.driver {
        let message = format!("`{name}` is the driver domain of network `{}`", of.name);
        problems.add(place, message, "expected a guest or a host outside");
        return None;
    }
    Some(Endpoint::Guest(domain))
}

fn flow_of(draft: FlowDraft, host: &Host, problems: &mut Problems) -> Option<Flow> {
    let network = network_ix(host, &draft.network, &draft.name, "flow", problems)?;
    let from = endpoint(host, network, &draft.from, problems);
    let to = endpoint(host, network, &draft.to, problems);
    let (from, to) = (from?, to?);
    let mut traffic = draft.traffic;
    if from == to {
        problems.add(&draft.to.1, "`to` is `from`", "expected another domain or host outside");
    }
    if let (Endpoint::Outside(_), Endpoint::Outside(_)) = (from, to) {
        let message = "both ends are outside";
        problems.add(&draft.to.1, message, "expected a domain at one end: nothing else is simulated");
    }
    if let (Traffic::Storm { interval: Duration::ZERO, .. }, Endpoint::Outside(_)) = (traffic, from) {
        let message = "a host outside knows no limit to how fast it sends";
        problems.add(&draft.interval_place, message, "expected an `interval`, for example \"10us\"");
    }
    if let (Traffic::Request { server, .. }, Some(named)) = (&mut traffic, &draft.server) {
        let (task, domain) = served_task(host, named, problems)?;
        if to != Endpoint::Guest(domain) {
            let message = format!("`{}` does not run where the requests go", named.0);
            problems.add(&named.1, message, format!("expected a task of `{}`", draft.to.0));
        }
        *server = Some(task);
    }
    Some(Flow { name: draft.name.0, network, from, to, start: draft.start, count: draft.count, traffic })
}

/// The task `DOMAIN.TASK`.
fn task_called(host: &Host, (name, place): &Named, problems: &mut Problems) -> Option<(TaskIx, DomainIx)> {
    let Some((domain, task)) = name.split_once('.') else {
        let message = format!("\"{}\" names no task", shorten(name));
        problems.add(place, message, "expected a domain's name, a dot and its task's: \"video.decode\"");
        return None;
    };
    let domain = domain_or_problem(host, &(domain.into(), place.clone()), problems)?;
    let tasks = || host.tasks_of(Parent::Domain(domain));
    let found = tasks().find(|(_, t)| t.name == task).map(|(ix, _)| ix);
    if found.is_none() {
        let names = || tasks().map(|(_, t)| t.name.as_str());
        let message = format!("`{}` has no task `{}`", host.domains[domain.0].name, shorten(task));
        problems.add_nearest(place, message, expected_names(names()), nearest(task, names()));
    }
    Some((found?, domain))
}

/// A task whose jobs are released by packets.
fn served_task(host: &Host, named: &Named, problems: &mut Problems) -> Option<(TaskIx, DomainIx)> {
    let (task, domain) = task_called(host, named, problems)?;
    if matches!(host.tasks[task.0].work, Work::Served { .. }) {
        return Some((task, domain));
    }
    let message = format!("task `{}` releases itself", named.0);
    problems.add(&named.1, message, "expected a task with `on_packet = true` and no period");
    None
}

fn chain_of(
    draft: ChainDraft,
    host: &Host,
    network: Option<Named>,
    problems: &mut Problems,
) -> Option<Chain> {
    let network = network_ix(host, &network, &draft.name, "chain", problems)?;
    let driver = host.networks[network.0].driver;
    let mut steps = Vec::new();
    for (i, named) in draft.steps.iter().enumerate() {
        let found = match i {
            0 => first_step(host, named, problems),
            _ => served_task(host, named, problems),
        };
        let Some((task, domain)) = found else { continue };
        if domain == driver {
            let message = format!("`{}` is in the driver domain", named.0);
            problems.add(&named.1, message, "expected a task of a guest");
        }
        let taken = host.chains.iter().find(|c| c.steps.contains(&task)).map(|c| c.name.as_str());
        if let Some(other) = taken.or(steps.contains(&task).then_some(draft.name.0.as_str())) {
            let message = format!("`{}` is a step of chain `{other}` already", named.0);
            problems.add(&named.1, message, "expected each task in one step at most");
        }
        steps.push(task);
    }
    (steps.len() == draft.steps.len()).then_some(Chain {
        name: draft.name.0,
        network,
        steps,
        bytes: draft.bytes,
        deadline: draft.deadline,
    })
}

fn first_step(host: &Host, named: &Named, problems: &mut Problems) -> Option<(TaskIx, DomainIx)> {
    let found = task_called(host, named, problems)?;
    if matches!(host.tasks[found.0.0].work, Work::Jobs { .. }) {
        return Some(found);
    }
    let message = format!("task `{}` cannot begin a chain", named.0);
    problems.add(&named.1, message, "expected a periodic or sporadic task");
    None
}

/// The guest gets an interface, unless it has one.
fn attach(network: NetworkIx, domain: DomainIx, host: &mut Host) {
    let network = &mut host.networks[network.0];
    if network.interface_of(domain).is_none() {
        network.interfaces.push(Interface { domain, params: InterfaceParams::default() });
    }
}

fn attach_ends(flow: &Flow, host: &mut Host) {
    for end in [flow.from, flow.to] {
        if let Endpoint::Guest(domain) = end {
            attach(flow.network, domain, host);
        }
    }
}

/// Every task that packets release has packets that do; nothing serves both a chain and a flow.
fn check_served(host: &Host, problems: &mut Problems) {
    for (ix, task) in host.tasks.iter().enumerate() {
        let Work::Served { .. } = task.work else { continue };
        let in_chain = host.chains.iter().any(|c| c.steps.contains(&TaskIx(ix)));
        let serves =
            |f: &Flow| matches!(f.traffic, Traffic::Request { server: Some(server), .. } if server.0 == ix);
        let of_flow = host.flows.iter().find(|f| serves(f));
        let Parent::Domain(domain) = task.parent else { continue };
        let name = format!("{}.{}", host.domains[domain.0].name, task.name);
        match of_flow {
            None if !in_chain => {
                let message = format!("no packet releases task `{name}`");
                let expected = "expected it as a later step of a chain or as the `server` of a flow";
                problems.add(&Place::top(), message, expected);
            }
            Some(flow) if in_chain => {
                let message =
                    format!("task `{name}` is a step of a chain and the server of flow `{}`", flow.name);
                problems.add(&Place::top(), message, "expected one of them");
            }
            _ => {}
        }
    }
}

/// Boot order, priorities from the domains, and the discipline's own judgement.
fn finish_interfaces(host: &mut Host, network: usize, places: &NetworkPlaces, problems: &mut Problems) {
    let of = &mut host.networks[network];
    of.interfaces.sort_by_key(|interface| interface.domain.0);
    // The card has a port too.
    if of.interfaces.len() + 1 > PORTS as usize {
        let message = format!("network `{}` has {} guests", of.name, of.interfaces.len());
        problems.add(&places.network, message, format!("expected at most {}", PORTS - 1));
        return;
    }
    for interface in &mut of.interfaces {
        let first = host.domains[interface.domain.0].vcpus.start;
        let own = host.vcpus[first].params.priority;
        interface.params.priority = interface.params.priority.or(own);
    }
    let info: &DisciplineInfo = of.discipline.info;
    let mut built = match (info.build)(&of.discipline.options) {
        Ok(built) => built,
        Err(e) => {
            let place = places.options.iter().find(|(name, _)| *name == e.option);
            let place = place.map_or(&places.discipline, |(_, place)| place);
            problems.add(place, format!("discipline `{}` refuses `{}`", info.name, e.option), e.expected);
            return;
        }
    };
    for interface in &of.interfaces {
        if let Err(e) = built.attach(Instant::ZERO, &interface.params) {
            let own = places.interfaces.iter().find(|(domain, ..)| *domain == interface.domain);
            let place = own.map_or(&places.network, |(_, place, fields)| {
                fields.iter().find(|(name, _)| *name == e.field()).map_or(place, |(_, place)| place)
            });
            problems.add(place, format!("discipline `{}` refuses `{}`", info.name, e.field()), e.to_string());
        }
    }
}
