//! A switch whose ports follow its description while it works.

use std::path::{Path, PathBuf};

use punctual_model::Host;
use punctual_model::file::{self, Overrides};
use punctual_model::network::{Groups, Interface, Network, Vlans};
use punctual_model::text::printable;
use punctual_net::InterfaceParams;
use punctual_switch::frame::Address;
use punctual_switch::stats::PortStats;
use punctual_switch::{End, Port, Report, Switch};

use super::control::{Answer, Changes, Counted, Description, Request};
use super::directory::{Directory, file_name};
use super::find::{addresses, network};
use super::lines::{Line, Lines};
use super::listing::{libvirt_listing, listing};
use super::result::result;
use crate::error::{ServeError, with_source};
use crate::events::Events;
use crate::planes::Planes;
use crate::uplink::{self, Uplink, class_name};

/// A port that is wanted: two that are equal are the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub name: String,
    params: InterfaceParams,
    plane: usize,
    vlans: Vlans,
    groups: Vec<Groups>,
    address: Option<Address>,
    uplink: Option<Uplink>,
    /// Of a VM's class: the PCP of its frames.
    pcp: Option<u8>,
    /// The ports of its classes, which come and go with it.
    classes: Vec<Wanted>,
}

/// The ports of a network and its uplinks.
///
/// # Errors
/// Names that cannot be those of files, or several ports of one name.
pub(super) fn wanted(
    host: &Host,
    network: &Network,
    planes: &Planes,
    uplinks: Vec<Uplink>,
) -> Result<Vec<Wanted>, ServeError> {
    let mut all = Vec::new();
    for (interface, address) in network.interfaces.iter().zip(addresses(host, network)) {
        let name = file_name(&host.domains[interface.domain.0].name)?.to_owned();
        let port = Wanted {
            name,
            params: interface.params.clone(),
            plane: planes.of_interface(network, interface),
            vlans: interface.vlans.clone(),
            groups: interface.groups.clone(),
            address: Some(address),
            uplink: None,
            pcp: None,
            classes: Vec::new(),
        };
        let classes = interface.classes.keys().filter(|_| network.has_priorities());
        let classes = classes.map(|pcp| port.class(interface, *pcp)).collect();
        all.push(Wanted { classes, ..port });
    }
    all.extend(uplinks.into_iter().map(|uplink| Wanted::of(uplink, planes)));
    let twice = |port: &Wanted| all.iter().filter(|other| other.name == port.name).count() > 1;
    match all.iter().find(|port| twice(port)) {
        Some(port) => Err(ServeError::Refused(format!("there are two ports {}", printable(&port.name)))),
        None => Ok(all),
    }
}

impl Wanted {
    fn of(uplink: Uplink, planes: &Planes) -> Wanted {
        Wanted {
            name: uplink.name.clone(),
            params: uplink.params.clone(),
            plane: planes.of(uplink.params.priority),
            vlans: uplink.vlans.clone(),
            groups: Vec::new(),
            address: None,
            classes: uplink.classes().map(|class| Wanted::of(class, planes)).collect(),
            uplink: Some(uplink),
            pcp: None,
        }
    }

    /// The frames of this VM with a PCP.
    fn class(&self, interface: &Interface, pcp: u8) -> Wanted {
        Wanted {
            name: class_name(&self.name, pcp),
            params: InterfaceParams { priority: interface.priority_of(Some(pcp)), ..self.params.clone() },
            groups: Vec::new(),
            address: None,
            pcp: Some(pcp),
            ..self.clone()
        }
    }

    fn path(&self, directory: &Path) -> PathBuf {
        directory.join(format!("{}.sock", self.name))
    }

    /// The socket of its VM in `directory`; uplinks have none.
    pub(super) fn socket(&self, directory: &Path) -> Option<PathBuf> {
        self.uplink.is_none().then(|| self.path(directory))
    }

    /// The port, with its socket in `directory`. `again`: the switch had it already.
    ///
    /// # Errors
    /// When an uplink cannot be opened.
    pub(super) fn open(&self, directory: &Path, again: bool, events: &Events) -> Result<Port, ServeError> {
        let end = match &self.uplink {
            Some(uplink) => End::Uplink(uplink.open(again, events)?),
            None => End::Socket(self.path(directory)),
        };
        Ok(self.port(end))
    }

    fn port(&self, end: End) -> Port {
        Port {
            name: self.name.clone(),
            end,
            params: self.params.clone(),
            plane: self.plane,
            address: self.address,
            vlans: self.vlans.clone(),
            groups: self.groups.clone(),
        }
    }

    /// Opens the classes of the uplink or the VM at the port `home`.
    ///
    /// # Errors
    /// When one cannot be opened.
    fn open_classes(&self, home: usize, events: &Events) -> Result<Vec<Port>, ServeError> {
        let open = |class: &Wanted| {
            let end = match (&class.uplink, class.pcp) {
                (Some(uplink), _) => End::UplinkClass(uplink.open(false, events)?, home),
                (None, pcp) => End::VmClass { home, pcp: pcp.unwrap_or_default() },
            };
            Ok(class.port(end))
        };
        self.classes.iter().map(open).collect()
    }
}

/// Opens all ports of a new switch, each with its classes behind it.
///
/// # Errors
/// When an uplink cannot be opened.
pub(super) fn open_all(
    wanted: Vec<Wanted>,
    directory: &Path,
    events: &Events,
) -> Result<(Vec<Port>, Vec<Kept>), ServeError> {
    let (mut ports, mut all) = (Vec::new(), Vec::new());
    for wanted in wanted {
        let home = ports.len();
        let port = wanted.open(directory, false, events)?;
        let classes = wanted.open_classes(home, events)?;
        all.push(Kept { line: Line::of(&port), at: At::Own(Box::new(wanted)) });
        all.extend(classes.iter().map(|port| Kept { line: Line::of(port), at: At::Class(home) }));
        ports.push(port);
        ports.extend(classes);
    }
    Ok((ports, all))
}

/// A port at work.
pub(super) struct Kept {
    line: Line,
    at: At,
}

/// What is at a port.
enum At {
    /// What was wanted.
    Own(Box<Wanted>),
    /// A class of the port at this place.
    Class(usize),
}

impl Kept {
    pub(super) fn socket(&self, directory: &Path) -> Option<PathBuf> {
        self.wanted()?.socket(directory)
    }

    fn wanted(&self) -> Option<&Wanted> {
        match &self.at {
            At::Own(wanted) => Some(wanted),
            At::Class(_) => None,
        }
    }
}

/// A switch that is served; see the module.
pub(super) struct Served {
    switch: Switch,
    /// What it started as: what can change is in `ports`.
    network: Network,
    directory: Directory,
    ports: Ports,
    events: Events,
}

/// The ports that there are or were.
struct Ports {
    planes: Planes,
    /// By place in the switch.
    kept: Vec<Option<Kept>>,
    /// Those that were removed, with what was counted of them.
    gone: Vec<(Line, PortStats)>,
}

/// What changes.
struct Difference {
    added: Vec<Wanted>,
    /// Places.
    removed: Vec<usize>,
    changed: Vec<(usize, Wanted)>,
    /// Places of uplinks that ended. They are in `added`, too: nothing is in the way of the new ones.
    ended: Vec<usize>,
}

impl Ports {
    /// Every port, and what was counted of it.
    fn report(&self, mut report: Report) -> (Lines, Report) {
        let mut lines = Lines { ports: Vec::new(), planes: self.planes.lines() };
        let present = self.kept.iter().zip(std::mem::take(&mut report.ports));
        let present = present.filter_map(|(kept, stats)| Some((kept.as_ref()?.line.clone(), stats)));
        for (line, stats) in present.chain(self.gone.iter().cloned()) {
            lines.ports.push(line);
            report.ports.push(stats);
        }
        (lines, report)
    }

    /// What there is to do until these ports are there, and no others.
    fn difference(&self, wanted: Vec<Wanted>, has_ended: impl Fn(usize) -> bool) -> Difference {
        let (added, removed, changed, ended) = Default::default();
        let mut difference = Difference { added, removed, changed, ended };
        let kept = self.kept.iter().enumerate();
        let kept: Vec<_> = kept.filter_map(|(place, kept)| Some((place, kept.as_ref()?.wanted()?))).collect();
        let is_wanted = |own: &Wanted| wanted.iter().any(|other| other.name == own.name);
        difference.removed =
            kept.iter().filter(|(_, own)| !is_wanted(own)).map(|(place, _)| *place).collect();
        for port in wanted {
            match kept.iter().find(|(_, own)| own.name == port.name) {
                Some((place, _)) if has_ended(*place) => {
                    difference.ended.push(*place);
                    difference.added.push(port);
                }
                Some((_, own)) if **own == port => {}
                Some((place, _)) => difference.changed.push((*place, port)),
                None => difference.added.push(port),
            }
        }
        difference
    }
}

impl Served {
    /// Serves the switch with these ports.
    pub(super) fn new(
        switch: Switch,
        network: Network,
        planes: Planes,
        directory: Directory,
        ports: Vec<Kept>,
        events: Events,
    ) -> Served {
        let kept = ports.into_iter().map(Some).collect();
        Served { switch, network, directory, ports: Ports { planes, kept, gone: Vec::new() }, events }
    }

    /// The name of the port at this place.
    pub(super) fn name(&self, place: usize) -> &str {
        let kept = self.ports.kept.get(place).and_then(Option::as_ref);
        kept.map_or("a port that is gone", |kept| kept.line.name.as_str())
    }

    /// The names of all ports, by place.
    pub(super) fn names(&self) -> Vec<String> {
        (0..self.ports.kept.len()).map(|place| self.name(place).to_owned()).collect()
    }

    /// How VMs connect to its ports.
    pub(super) fn listing(&self, libvirt: bool) -> String {
        let lines: Vec<Line> = self.ports.kept.iter().flatten().map(|kept| kept.line.clone()).collect();
        if libvirt { libvirt_listing(&lines) } else { listing(&self.network, &lines) }
    }

    /// Does what is requested.
    pub(super) fn answer(&mut self, request: Request) -> Answer {
        match request {
            Request::Count => {
                let (lines, report) = self.ports.report(self.switch.count());
                let result = result(&self.network, &lines, &report);
                let members = self.ports.planes.roster().members();
                Answer::Counted(Box::new(Counted { result, members }))
            }
            Request::Become(description) => match self.become_as(&description) {
                Ok((changes, listing)) => Answer::Became { changes, listing },
                Err(ServeError::Refused(text)) => Answer::Refused(text),
                Err(ServeError::Host(errors)) => Answer::Refused(errors.to_string()),
            },
        }
    }

    /// Ends the switch. What it counted of every port that there was.
    pub(super) fn stop(self) -> (Network, Lines, Report) {
        let (lines, report) = self.ports.report(self.switch.stop());
        (self.network, lines, report)
    }

    /// Adds, removes and changes ports until they are those of the description. Returns also how VMs connect
    /// to those that came.
    fn become_as(&mut self, description: &Description) -> Result<(Changes, String), ServeError> {
        let overrides = Overrides { set: description.set.clone(), ..Overrides::default() };
        let host = file::parse(&description.text, &description.file, &overrides)?;
        let network = network(&host, Some(&self.network.name))?;
        self.check_the_rest(network)?;
        self.check_paths(description)?;
        let uplinks = uplink::parse_all(&description.uplinks, &network.name)?;
        let wanted = wanted(&host, network, &self.ports.planes, uplinks)?;
        let difference = self.ports.difference(wanted, |place| self.switch.has_ended(place));
        let all = difference.added.iter().chain(difference.changed.iter().map(|(_, port)| port));
        for port in all.flat_map(|port| port.classes.iter().chain([port])) {
            let checked = self.switch.check(&port.name, &port.params, port.plane, &port.vlans);
            checked.map_err(|error| ServeError::Refused(with_source(&error)))?;
        }
        let mut changes = Changes::default();
        let mut places = self.add(&difference.added)?;
        for place in difference.ended {
            changes.changed.extend(self.remove(place).map(|wanted| wanted.name));
        }
        let added = difference.added.into_iter().map(|port| port.name);
        changes.added = added.filter(|name| !changes.changed.contains(name)).collect();
        for place in difference.removed {
            changes.removed.extend(self.remove(place).map(|wanted| wanted.name));
        }
        for (place, port) in difference.changed {
            places.push(self.change(place, port.clone())?);
            changes.changed.push(port.name);
        }
        let lines = places.iter().filter_map(|place| Some(&self.ports.kept[*place].as_ref()?.line));
        let lines: Vec<Line> = lines.cloned().collect();
        let text = if description.libvirt { libvirt_listing(&lines) } else { listing(network, &lines) };
        Ok((changes, text))
    }

    /// Is everything as it was, but for ports?
    fn check_the_rest(&self, new: &Network) -> Result<(), ServeError> {
        let old = &self.network;
        let same = [
            ("the discipline", old.discipline == new.discipline),
            ("the MTU", old.mtu == new.mtu),
            ("a plane", old.planes == new.planes),
        ];
        match same.iter().find(|(_, is_same)| !is_same) {
            None => Ok(()),
            Some((what, _)) => Err(ServeError::Refused(format!(
                "{what} would change: restart the switch for that; nothing changed"
            ))),
        }
    }

    /// Checks the paths of uplinks, which are relative to the working directory of this process.
    fn check_paths(&self, description: &Description) -> Result<(), ServeError> {
        let own = std::env::current_dir().ok();
        let relative = |text: &&String| {
            let what = text.split_once(':').map(|(_, what)| Path::new(what));
            let names_file = ["program:", "replay:", "capture:"].iter().any(|kind| text.contains(kind));
            names_file && what.is_some_and(Path::is_relative)
        };
        match description.uplinks.iter().find(relative) {
            Some(text) if own.as_ref() != Some(&description.directory) => Err(ServeError::Refused(format!(
                "uplink {text}: the switch works in another directory; give the whole path"
            ))),
            _ => Ok(()),
        }
    }

    /// Adds ports, or none of them. Returns their places.
    fn add(&mut self, ports: &[Wanted]) -> Result<Vec<usize>, ServeError> {
        let opened: Vec<Port> = ports
            .iter()
            .map(|port| port.open(self.directory.path(), false, &self.events))
            .collect::<Result<_, _>>()?;
        let (mut places, gone) = (Vec::new(), self.ports.gone.len());
        for (wanted, port) in ports.iter().zip(opened) {
            match self.plug(wanted, port) {
                Ok(place) => places.push(place),
                Err(error) => {
                    for place in places {
                        self.remove(place);
                    }
                    // They were there for a moment only.
                    self.ports.gone.truncate(gone);
                    return Err(error);
                }
            }
        }
        Ok(places)
    }

    fn plug(&mut self, wanted: &Wanted, port: Port) -> Result<usize, ServeError> {
        let line = Line::of(&port);
        let place = self.switch.plug(port).map_err(|error| ServeError::Refused(with_source(&error)))?;
        if let Some(socket) = wanted.socket(self.directory.path())
            && let Err(error) = self.directory.admit(&socket)
        {
            self.switch.unplug(place);
            return Err(error);
        }
        self.keep(place, Kept { line, at: At::Own(Box::new(wanted.clone())) });
        if let Err(error) = self.plug_classes(wanted, place) {
            self.remove(place);
            return Err(error);
        }
        Ok(place)
    }

    fn plug_classes(&mut self, wanted: &Wanted, home: usize) -> Result<(), ServeError> {
        for port in wanted.open_classes(home, &self.events)? {
            let line = Line::of(&port);
            let place = self.switch.plug(port).map_err(|error| ServeError::Refused(with_source(&error)))?;
            self.keep(place, Kept { line, at: At::Class(home) });
        }
        Ok(())
    }

    fn keep(&mut self, place: usize, kept: Kept) {
        if self.ports.kept.len() <= place {
            self.ports.kept.resize_with(place + 1, || None);
        }
        self.ports.kept[place] = Some(kept);
    }

    /// Removes a port, after its classes.
    fn remove(&mut self, place: usize) -> Option<Wanted> {
        for at in 0..self.ports.kept.len() {
            if matches!(self.ports.kept[at], Some(Kept { at: At::Class(home), .. }) if home == place) {
                self.remove(at);
            }
        }
        let kept = self.ports.kept.get_mut(place)?.take()?;
        let stats = self.switch.unplug(place).unwrap_or_default();
        self.ports.gone.push((kept.line, stats));
        match kept.at {
            At::Own(wanted) => Some(*wanted),
            At::Class(_) => None,
        }
    }

    /// The port at this place goes, and comes again as another one. If it cannot, it comes as it was.
    fn change(&mut self, place: usize, to: Wanted) -> Result<usize, ServeError> {
        let Some(before) = self.remove(place) else {
            return Err(ServeError::Refused("a port is gone".into()));
        };
        let plug = |served: &mut Self, wanted: &Wanted| {
            let port = wanted.open(served.directory.path(), true, &served.events)?;
            served.plug(wanted, port)
        };
        plug(self, &to).map_err(|error| {
            let ServeError::Refused(text) = error else { return error };
            let name = printable(&to.name).into_owned();
            match plug(self, &before) {
                Ok(_) => ServeError::Refused(format!("{text}; {name} is as it was, other changes are made")),
                Err(_) => ServeError::Refused(format!("{text}; {name} is gone, other changes are made")),
            }
        })
    }
}
