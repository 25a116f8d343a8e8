//! Looks up the names in networks, flows and chains once domains and tasks are known.

use std::collections::{BTreeMap, BTreeSet};

use punctual_net::InterfaceParams;
use punctual_net::discipline::DisciplineInfo;
use punctual_net::event_channel::PORTS;
use punctual_sched::{Duration, Instant};

use super::draft::{ChainDraft, Drafts, FlowDraft, InterfaceDraft, NetworkDraft};
use super::names::Name;
use super::switch;
use crate::file::copies::Names;
use crate::file::entry::{expected_names, shorten};
use crate::file::error::Errors;
use crate::file::nearest::nearest;
use crate::file::source::{Place, Places};
use crate::host::{Host, Parent, Work};
use crate::index::{DomainIx, NetworkIx, TaskIx};
use crate::network::{Chain, Endpoint, Flow, Interface, Network, OutsideHost, Traffic, Transport, Vlans};
use crate::sockets::Sockets;

/// Adds networks, flows and chains to the host, whose domains and tasks are complete.
pub(crate) fn resolve(drafts: Drafts, host: &mut Host, errors: &mut Errors) {
    let before = errors.count();
    let mut outside = Vec::new();
    let mut places = Vec::new();
    for mut draft in drafts.networks {
        switch::check_processors(&draft.planes, host.processors, errors);
        switch::check_vlans(&draft.name, &draft.interfaces, &draft.outside, errors);
        outside.push(std::mem::take(&mut draft.outside));
        places.push(add_network(draft, host, errors));
    }
    if errors.count() > before {
        return;
    }
    check_outside(&outside, host, errors);
    for (network, outside) in host.networks.iter_mut().zip(outside) {
        network.outside = outside.into_iter().map(|(host, _)| host).collect();
    }
    add_flows(drafts.flows, host, errors);
    for draft in drafts.chains {
        if let Some(chain) = chain(draft, host, errors) {
            attach_steps(&chain, host);
            host.chains.push(chain);
        }
    }
    if errors.count() > before {
        return;
    }
    check_served(host, errors);
    for (network, places) in host.networks.iter().zip(&places) {
        check_transport(host, network, places.transport, errors);
    }
    for (i, places) in places.iter().enumerate() {
        finish_interfaces(host, i, places, errors);
    }
}

/// Adds every flow that the tables make.
fn add_flows(drafts: Vec<FlowDraft>, host: &mut Host, errors: &mut Errors) {
    let mut names = Names::default();
    for draft in drafts {
        let (copies, place) = (draft.copies, draft.name.place);
        let Some(flow) = flow(draft, host, errors) else { continue };
        attach_ends(&flow, host);
        for (name, later) in copies.each(&flow.name) {
            if !names.add("flow", &name, place, errors) {
                break;
            }
            host.flows.push(Flow { name, start: flow.start + later, ..flow });
        }
    }
}

/// Where a network's parts stand, for errors that are found when the host is complete.
struct NetworkPlaces {
    network: Place,
    transport: Place,
    discipline: Place,
    options: Places,
    interfaces: Vec<(DomainIx, Place, Places)>,
}

fn domain_called(host: &Host, name: &str) -> Option<DomainIx> {
    host.domains.iter().position(|d| d.name == name).map(DomainIx)
}

fn domain_or_error(host: &Host, Name { text: name, place }: &Name, errors: &mut Errors) -> Option<DomainIx> {
    let found = domain_called(host, name);
    if found.is_none() {
        let names = || host.domains.iter().map(|d| d.name.as_str());
        let message = format!("there is no domain `{}`", shorten(name));
        errors.add_nearest(*place, message, expected_names(names()), nearest(name, names()));
    }
    found
}

/// Adds the network, without hosts outside, to the host.
fn add_network(draft: NetworkDraft, host: &mut Host, errors: &mut Errors) -> NetworkPlaces {
    let mut places = NetworkPlaces {
        network: draft.name.place,
        transport: draft.transport.1,
        discipline: draft.discipline.name_place,
        options: draft.discipline.option_places,
        interfaces: Vec::new(),
    };
    let Some(driver) = domain_or_error(host, &draft.driver, errors) else { return places };
    if let Some(other) = host.networks.iter().find(|n| n.driver == driver) {
        let message = format!("`{}` is the driver of network `{}` already", draft.driver.text, other.name);
        errors.add(draft.driver.place, message, "expected a driver domain for each network");
    }
    let mut interfaces = Vec::new();
    for interface in draft.interfaces {
        let Some(domain) = domain_or_error(host, &interface.domain, errors) else { continue };
        if domain == driver {
            let message = format!("`{}` is the driver domain", interface.domain.text);
            errors.add(
                interface.domain.place,
                message,
                "expected a guest: the driver has no interface of its own",
            );
            continue;
        }
        let InterfaceDraft { domain: name, params, classes, vlans, groups, places: given } = interface;
        places.interfaces.push((domain, name.place, given));
        interfaces.push(Interface { domain, params, classes, vlans, groups });
    }
    host.networks.push(Network {
        name: draft.name.text,
        driver,
        transport: draft.transport.0,
        discipline: draft.discipline.choice,
        scan: draft.scan,
        events: draft.events,
        costs: draft.costs,
        nic: draft.nic,
        interfaces,
        outside: Vec::new(),
        planes: draft.planes.into_iter().map(|draft| draft.plane).collect(),
        mtu: draft.mtu,
    });
    places
}

/// Hosts outside must not have the name of a domain: flows name both the same way.
fn check_outside(outside: &[Vec<(OutsideHost, Place)>], host: &Host, errors: &mut Errors) {
    for (one, place) in outside.iter().flatten() {
        if domain_called(host, &one.name).is_some() {
            let message = format!("a domain is called `{}` too", one.name);
            errors.add(*place, message, "expected different names for domains and hosts outside");
        }
    }
}

fn network_ix(
    host: &Host,
    given: &Option<Name>,
    owner: &Name,
    what: &str,
    errors: &mut Errors,
) -> Option<NetworkIx> {
    let names = || host.networks.iter().map(|n| n.name.as_str());
    let Some(Name { text: name, place }) = given else {
        if host.networks.len() == 1 {
            return Some(NetworkIx(0));
        }
        let message = format!("`network` is missing in [{what}.{}]", owner.text);
        let expected = match host.networks.len() {
            0 => "there is no network: expected a [network.NAME] with a `driver` domain".into(),
            _ => format!("there are several networks; {}", expected_names(names())),
        };
        errors.add(owner.place, message, expected);
        return None;
    };
    let found = names().position(|n| n == name);
    if found.is_none() {
        let message = format!("there is no network `{}`", shorten(name));
        errors.add_nearest(*place, message, expected_names(names()), nearest(name, names()));
    }
    found.map(NetworkIx)
}

fn endpoint(
    host: &Host,
    network: NetworkIx,
    Name { text: name, place }: &Name,
    errors: &mut Errors,
) -> Option<Endpoint> {
    let of = &host.networks[network.0];
    if let Some(outside) = of.outside.iter().position(|o| o.name == *name) {
        return Some(Endpoint::Outside(outside));
    }
    let Some(domain) = domain_called(host, name) else {
        // The driver domain is no end of a flow.
        let guests = host.domains.iter().enumerate().filter(|(index, _)| *index != of.driver.0);
        let names = || guests.clone().map(|(_, d)| &d.name).chain(of.outside.iter().map(|o| &o.name));
        let message = format!("there is no domain and no host outside `{}`", shorten(name));
        let expected = expected_names(names().map(String::as_str));
        errors.add_nearest(*place, message, expected, nearest(name, names().map(String::as_str)));
        return None;
    };
    if domain == of.driver {
        let message = format!("`{name}` is the driver domain of network `{}`", of.name);
        errors.add(*place, message, "expected a guest or a host outside");
        return None;
    }
    Some(Endpoint::Guest(domain))
}

fn flow(draft: FlowDraft, host: &Host, errors: &mut Errors) -> Option<Flow> {
    let network = network_ix(host, &draft.network, &draft.name, "flow", errors)?;
    let from = endpoint(host, network, &draft.from, errors);
    let to = endpoint(host, network, &draft.to, errors);
    let (from, to) = (from?, to?);
    let mut traffic = draft.traffic;
    if from == to {
        errors.add(draft.to.place, "`to` is `from`", "expected another domain or host outside");
    }
    if let (Endpoint::Outside(_), Endpoint::Outside(_)) = (from, to) {
        let message = "both ends are outside";
        errors.add(draft.to.place, message, "expected a domain at one end: nothing else is simulated");
    }
    if let (Traffic::Storm { interval: Duration::ZERO, .. }, Endpoint::Outside(_)) = (traffic, from) {
        let message = "a host outside knows no limit to how fast it sends";
        errors.add(draft.interval_place, message, "expected an `interval`, for example \"10us\"");
    }
    if let (Traffic::Request { server, .. }, Some(named)) = (&mut traffic, &draft.server) {
        let (task, domain) = served_task(host, named, errors)?;
        if to != Endpoint::Guest(domain) {
            let message = format!("`{}` does not run where the requests go", named.text);
            errors.add(named.place, message, format!("expected a task of `{}`", draft.to.text));
        }
        *server = Some(task);
    }
    let ends = [(from, &draft.from), (to, &draft.to)];
    switch::check_way(&host.networks[network.0], ends, traffic.bytes_max(), errors);
    let FlowDraft { name, start, count, deadline, pcp, .. } = draft;
    Some(Flow { name: name.text, network, from, to, start, count, deadline, pcp, traffic })
}

/// Finds the task `DOMAIN.TASK`.
fn task_called(
    host: &Host,
    Name { text: name, place }: &Name,
    errors: &mut Errors,
) -> Option<(TaskIx, DomainIx)> {
    let Some((domain, task)) = name.split_once('.') else {
        let message = format!("\"{}\" names no task", shorten(name));
        errors.add(*place, message, "expected a domain's name, a dot and its task's: \"video.decode\"");
        return None;
    };
    let domain = domain_or_error(host, &Name { text: domain.into(), place: *place }, errors)?;
    let tasks = || host.tasks_of(Parent::Domain(domain));
    let found = tasks().find(|(_, t)| t.name == task).map(|(ix, _)| ix);
    if found.is_none() {
        let names = || tasks().map(|(_, t)| t.name.as_str());
        let message = format!("`{}` has no task `{}`", host.domains[domain.0].name, shorten(task));
        errors.add_nearest(*place, message, expected_names(names()), nearest(task, names()));
    }
    Some((found?, domain))
}

/// Finds a task whose jobs are released by packets.
fn served_task(host: &Host, named: &Name, errors: &mut Errors) -> Option<(TaskIx, DomainIx)> {
    let (task, domain) = task_called(host, named, errors)?;
    if matches!(host.tasks[task.0].work, Work::Served { .. }) {
        return Some((task, domain));
    }
    let message = format!("task `{}` releases itself", named.text);
    errors.add(named.place, message, "expected a task with `on_packet = true` and no period");
    None
}

fn chain(draft: ChainDraft, host: &Host, errors: &mut Errors) -> Option<Chain> {
    let network = network_ix(host, &draft.network, &draft.name, "chain", errors)?;
    let driver = host.networks[network.0].driver;
    let mut steps = Vec::new();
    for (i, named) in draft.steps.iter().enumerate() {
        let found = match i {
            0 => first_step(host, named, errors),
            _ => served_task(host, named, errors),
        };
        let Some((task, domain)) = found else { continue };
        if domain == driver {
            let message = format!("`{}` is in the driver domain", named.text);
            errors.add(named.place, message, "expected a task of a guest");
        }
        let taken = host.chains.iter().find(|c| c.steps.contains(&task)).map(|c| c.name.as_str());
        if let Some(other) = taken.or(steps.contains(&task).then_some(draft.name.text.as_str())) {
            let message = format!("`{}` is a step of chain `{other}` already", named.text);
            errors.add(named.place, message, "expected each task in one step at most");
        }
        if let Some(before) = i.checked_sub(1).map(|before| &draft.steps[before])
            && let Some((_, earlier)) = task_called(host, before, errors)
            && earlier != domain
        {
            let ends = [(Endpoint::Guest(earlier), before), (Endpoint::Guest(domain), named)];
            switch::check_way(&host.networks[network.0], ends, draft.bytes, errors);
        }
        steps.push(task);
    }
    (steps.len() == draft.steps.len()).then_some(Chain {
        name: draft.name.text,
        network,
        steps,
        bytes: draft.bytes,
        pcp: draft.pcp,
        deadline: draft.deadline,
    })
}

fn first_step(host: &Host, named: &Name, errors: &mut Errors) -> Option<(TaskIx, DomainIx)> {
    let found = task_called(host, named, errors)?;
    if matches!(host.tasks[found.0.0].work, Work::Jobs { .. }) {
        return Some(found);
    }
    let message = format!("task `{}` cannot begin a chain", named.text);
    errors.add(named.place, message, "expected a periodic or sporadic task");
    None
}

/// Gives the guest an interface, unless it has one.
fn attach(network: NetworkIx, domain: DomainIx, host: &mut Host) {
    let network = &mut host.networks[network.0];
    if network.interface_of(domain).is_none() {
        network.interfaces.push(Interface {
            domain,
            params: InterfaceParams::default(),
            classes: BTreeMap::new(),
            vlans: Vlans::default(),
            groups: Vec::new(),
        });
    }
}

fn attach_steps(chain: &Chain, host: &mut Host) {
    for &step in &chain.steps {
        if let Parent::Domain(domain) = host.tasks[step.0].parent {
            attach(chain.network, domain, host);
        }
    }
}

fn attach_ends(flow: &Flow, host: &mut Host) {
    for end in [flow.from, flow.to] {
        if let Endpoint::Guest(domain) = end {
            attach(flow.network, domain, host);
        }
    }
}

/// Checks that every task that packets release is a step of a chain or the server of a flow, and not both.
fn check_served(host: &Host, errors: &mut Errors) {
    let steps: BTreeSet<usize> = host.chains.iter().flat_map(|c| &c.steps).map(|step| step.0).collect();
    let mut served: BTreeMap<usize, &Flow> = BTreeMap::new();
    for flow in &host.flows {
        if let Traffic::Request { server: Some(server), .. } = flow.traffic {
            served.entry(server.0).or_insert(flow);
        }
    }
    for (ix, task) in host.tasks.iter().enumerate() {
        let Work::Served { .. } = task.work else { continue };
        let (in_chain, of_flow) = (steps.contains(&ix), served.get(&ix));
        let Parent::Domain(domain) = task.parent else { continue };
        let name = format!("{}.{}", host.domains[domain.0].name, task.name);
        match of_flow {
            None if !in_chain => {
                let message = format!("no packet releases task `{name}`");
                let expected = "expected it as a later step of a chain or as the `server` of a flow";
                errors.add(Place::TOP, message, expected);
            }
            Some(flow) if in_chain => {
                let message =
                    format!("task `{name}` is a step of a chain and the server of flow `{}`", flow.name);
                errors.add(Place::TOP, message, "expected one of them");
            }
            _ => {}
        }
    }
}

/// Checks that what is sent over a network of sockets fits: datagrams between a host outside and a guest that
/// may bind an address.
fn check_transport(host: &Host, network: &Network, place: Place, errors: &mut Errors) {
    if network.transport != Transport::Sockets {
        return;
    }
    for interface in &network.interfaces {
        let domain = &host.domains[interface.domain.0];
        if domain.live.sockets.as_ref().and_then(Sockets::datagram_address).is_none() {
            let message = format!("`{}` has no address in network `{}`", domain.name, network.name);
            let expected = "expected `sockets` that may bind one address and port, for example \
                            sockets = { allow = [\"bind udp 127.0.0.1:5060\"] }";
            errors.add(place, message, expected);
        }
    }
    let of_this = |ix: NetworkIx| host.networks[ix.0].name == network.name;
    for flow in host.flows.iter().filter(|flow| of_this(flow.network)) {
        let between_guests = matches!((flow.from, flow.to), (Endpoint::Guest(_), Endpoint::Guest(_)));
        if between_guests || matches!(flow.traffic, Traffic::Stream { .. }) {
            let message = format!("flow `{}` does not go over sockets", flow.name);
            let expected = "expected datagrams (not a `stream`) between a host outside and a guest";
            errors.add(place, message, expected);
        }
    }
    for chain in host.chains.iter().filter(|chain| of_this(chain.network)) {
        let message = format!("chain `{}` does not go over sockets", chain.name);
        errors.add(place, message, "expected its steps in one domain, or a network of frames");
    }
}

/// Sorts a network's interfaces in boot order, gives them the priorities of their domains where they have
/// none, and has the discipline check them.
fn finish_interfaces(host: &mut Host, network: usize, places: &NetworkPlaces, errors: &mut Errors) {
    let of = &mut host.networks[network];
    of.interfaces.sort_by_key(|interface| interface.domain.0);
    // The card has a port too.
    if of.interfaces.len() + 1 > PORTS as usize {
        let message = format!("network `{}` has {} guests", of.name, of.interfaces.len());
        errors.add(places.network, message, format!("expected at most {}", PORTS - 1));
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
            let place = places.options.of(e.option).unwrap_or(places.discipline);
            errors.add(place, format!("discipline `{}` refuses `{}`", info.name, e.option), e.expected);
            return;
        }
    };
    for interface in &of.interfaces {
        if let Err(e) = built.attach(Instant::ZERO, &interface.params) {
            let own = places.interfaces.iter().find(|(domain, ..)| *domain == interface.domain);
            let place = own.map_or(places.network, |(_, place, keys)| keys.of(e.field()).unwrap_or(*place));
            errors.add(place, format!("discipline `{}` refuses `{}`", info.name, e.field()), e.to_string());
        }
    }
}
