//! Uplinks: what a switch connects to beyond the VMs, by the text that a user writes for it.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use punctual_linux::os::net;
use punctual_model::network::Vlans;
use punctual_net::InterfaceParams;
use punctual_switch::pcap::Files;
use punctual_switch::wire::{Device, Flushed, Frames, Listener, Mapped, Next, Room, VnetHeader, Wire};

use crate::error::ServeError;
use crate::events::{Event, Events};

/// The forms of an uplink.
const KINDS: [(&str, Kind); 5] = [
    ("tap", Kind::Tap),
    ("interface", Kind::Interface),
    ("program", Kind::Program),
    ("replay", Kind::Replay),
    ("capture", Kind::Capture),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Tap,
    Interface,
    Program,
    Replay,
    Capture,
}

/// An uplink that is yet to be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Uplink {
    /// The port's name: kind and what.
    pub name: String,
    /// What the discipline is told.
    pub params: InterfaceParams,
    /// Its VLANs.
    pub vlans: Vlans,
    /// Priorities of frames by the PCP of their VLAN tag: of those whose priority is not the uplink's.
    classes: BTreeMap<u8, u32>,
    /// A class of another uplink: the frames of this PCP.
    class: Option<u8>,
    kind: Kind,
    what: String,
}

/// The uplinks of one of several networks: each names its network, unless there is one only.
///
/// # Errors
/// A text that is no uplink, or one of no network.
pub(crate) fn parse_of(texts: &[String], network: &str, all: &[&str]) -> Result<Vec<Uplink>, ServeError> {
    let of = |text: &str| {
        let before = text.split_once(':').map_or(text, |(before, _)| before);
        before.rsplit_once('=').map(|(of, _)| of.to_owned())
    };
    let mut uplinks = Vec::new();
    for text in texts {
        match of(text) {
            Some(of) if of != network && all.contains(&of.as_str()) => {}
            None if all.len() > 1 => {
                let names = all.join(", ");
                let message = format!("--uplink {text}: say which NETWORK= it is of: {names}");
                return Err(ServeError::Refused(message));
            }
            _ => uplinks.push(parse(text, network).map_err(ServeError::Refused)?),
        }
    }
    Ok(uplinks)
}

/// The uplinks of the network that is served.
///
/// # Errors
/// The first text that is no uplink, or one of another network.
pub(crate) fn parse_all(texts: &[String], network: &str) -> Result<Vec<Uplink>, ServeError> {
    let parse = |text: &String| parse(text, network).map_err(ServeError::Refused);
    texts.iter().map(parse).collect()
}

fn parse(text: &str, network: &str) -> Result<Uplink, String> {
    let wrong = |what: String| format!("--uplink {text}: {what}");
    let names = || KINDS.map(|(name, _)| name).join(", ");
    let expected = || {
        format!(
            "expected [NETWORK=]KIND:WHAT[,priority=N][,pcp=N:N+N:N][,vlan=N][,trunk=N+N], where KIND is one \
             of {}",
            names()
        )
    };
    let (before, after) = text.split_once(':').ok_or_else(|| wrong(expected()))?;
    let (of, kind_name) = before.rsplit_once('=').unwrap_or((network, before));
    if of != network {
        return Err(wrong(format!("the network that is served is {network}")));
    }
    let kind = KINDS.iter().find(|(name, _)| *name == kind_name).map(|(_, kind)| *kind);
    let kind = kind.ok_or_else(|| wrong(format!("no kind of uplink is {kind_name}; {}", expected())))?;
    let mut uplink = Uplink {
        name: String::new(),
        params: InterfaceParams::default(),
        vlans: Vlans::default(),
        classes: BTreeMap::new(),
        class: None,
        kind,
        what: String::new(),
    };
    let mut what = after;
    // A path may have commas of its own.
    while let Some((rest, option)) = what.rsplit_once(',')
        && let Some((key, value)) = option.split_once('=')
        && OPTIONS.contains(&key)
    {
        uplink.set(key, value).map_err(wrong)?;
        what = rest;
    }
    if what.is_empty() {
        return Err(wrong(expected()));
    }
    if !uplink.classes.is_empty() && kind != Kind::Interface {
        return Err(wrong(format!("pcp is for interface:NAME, not for {kind_name}")));
    }
    Ok(Uplink { name: format!("{kind_name}:{what}"), what: what.into(), ..uplink })
}

/// What may stand behind an uplink.
const OPTIONS: [&str; 4] = ["priority", "pcp", "vlan", "trunk"];

impl Uplink {
    /// Sets one of [`OPTIONS`].
    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let vlan = |text: &str| {
            let number = text.parse().ok().filter(|number| (1..=4094).contains(number));
            number.ok_or_else(|| format!("{key}: {text} is no VLAN; expected a number from 1 to 4094"))
        };
        match key {
            "vlan" => self.vlans.untagged = Some(vlan(value)?),
            "trunk" => self.vlans.tagged = value.split('+').map(vlan).collect::<Result<_, _>>()?,
            "pcp" => {
                for class in value.split('+') {
                    let (pcp, priority) = parse_class(class)?;
                    if self.classes.insert(pcp, priority).is_some() {
                        return Err(format!("pcp: {pcp} is there twice"));
                    }
                }
            }
            _ => {
                let priority = value.parse();
                self.params.priority =
                    Some(priority.map_err(|_| "the priority is not a number from 0 on".to_string())?);
            }
        }
        Ok(())
    }

    /// Its frames whose PCP has a priority of its own: each class is an uplink that only receives.
    pub(crate) fn classes(&self) -> impl Iterator<Item = Uplink> {
        self.classes.iter().map(|(pcp, priority)| Uplink {
            name: class_name(&self.name, *pcp),
            params: InterfaceParams { priority: Some(*priority), ..self.params.clone() },
            classes: BTreeMap::new(),
            class: Some(*pcp),
            ..self.clone()
        })
    }

    /// The priorities of its frames.
    pub(crate) fn priorities(&self) -> impl Iterator<Item = Option<u32>> {
        [self.params.priority].into_iter().chain(self.classes.values().copied().map(Some))
    }

    /// The frames that it takes from an interface.
    fn take(&self) -> net::Take {
        let set = self.classes.keys().fold(0, |set, pcp| set | 1 << pcp);
        match self.class {
            Some(pcp) => net::Take::Classes(1 << pcp),
            None if set != 0 => net::Take::AllBut(set),
            None if self.vlans.tagged.is_empty() => net::Take::Untagged,
            None => net::Take::All,
        }
    }

    /// Opens it. `again`: the same switch had it open already, and goes on with a file that it captures.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn open(&self, again: bool, events: &Events) -> Result<Box<dyn Wire>, ServeError> {
        let failed =
            |error: &dyn std::fmt::Display| ServeError::Refused(format!("uplink {}: {error}", self.name));
        let path = Path::new(&self.what);
        Ok(match self.kind {
            Kind::Tap => {
                let tap = net::Tap::open(&self.what).map_err(|error| failed(&error))?;
                Box::new(Device::new(tap, VnetHeader::Virtio1))
            }
            Kind::Interface => {
                let card = net::Interface::open_for(&self.what, self.take());
                let card = card.map_err(|error| failed(&error))?;
                if let Some(error) = card.without_ring() {
                    events(Event::NoRing { uplink: self.name.clone(), error: error.to_string() });
                }
                if let Some(error) = card.without_batches().filter(|_| self.class.is_none()) {
                    events(Event::NoBatches { uplink: self.name.clone(), error: error.to_string() });
                }
                Box::new(Mapped::new(Card(card)))
            }
            Kind::Program => Box::new(Listener::new(path).map_err(|error| failed(&error))?),
            Kind::Replay => {
                let file = File::open(path).map_err(|error| failed(&error))?;
                Box::new(Files::new(Some(file), None).map_err(|error| failed(&error))?)
            }
            Kind::Capture if again => {
                let file = File::options().read(true).append(true).create(true).open(path);
                let file = file.map_err(|error| failed(&error))?;
                Box::new(Files::append(file).map_err(|error| failed(&error))?)
            }
            Kind::Capture => {
                let file = File::create(path).map_err(|error| failed(&error))?;
                Box::new(Files::new(None, Some(file)).map_err(|error| failed(&error))?)
            }
        })
    }
}

/// The name of a class of a port.
pub(crate) fn class_name(port: &str, pcp: u8) -> String {
    format!("{port},pcp={pcp}")
}

/// A PCP and its priority.
fn parse_class(text: &str) -> Result<(u8, u32), String> {
    let wrong = || format!("pcp: {text} is not PCP:PRIORITY, a number from 0 to 7 and one from 0 on");
    let (pcp, priority) = text.split_once(':').ok_or_else(wrong)?;
    let pcp = pcp.parse().ok().filter(|pcp| *pcp <= 7).ok_or_else(wrong)?;
    Ok((pcp, priority.parse().map_err(|_| wrong())?))
}

/// An interface as a wire has it.
#[derive(Debug)]
struct Card(net::Interface);

impl AsFd for Card {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Frames for Card {
    fn next(&mut self) -> Next<'_> {
        match self.0.next_frame() {
            net::Frame::Nothing => Next::Nothing,
            net::Frame::Mapped(frame, tag) => Next::Frame(frame, tag),
            net::Frame::Long(tag) => Next::Long(tag),
            net::Frame::NoRing => Next::Read,
            net::Frame::Gone => Next::Gone,
        }
    }

    fn release(&mut self) {
        self.0.release();
    }

    fn room(&mut self, bytes: usize) -> Room<'_> {
        match self.0.room(bytes) {
            net::Room::Here(room) => Room::Here(room),
            net::Room::Full => Room::Full,
            net::Room::Unfit => Room::Unfit,
        }
    }

    fn flush(&mut self) -> Flushed {
        let net::Flushed { lost, is_behind } = self.0.flush();
        Flushed { lost, is_behind }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_uplink_names_kind_and_what_and_may_name_network_and_priority() {
        let uplink =
            |text| parse(text, "lan").map(|uplink| (uplink.kind, uplink.what, uplink.params.priority));
        assert_eq!(uplink("tap:t0").ok(), Some((Kind::Tap, "t0".into(), None)));
        let card = Some((Kind::Interface, "eth1".into(), Some(2)));
        assert_eq!(uplink("lan=interface:eth1,priority=2").ok(), card);
        let vlans = parse("tap:t0,vlan=7,trunk=8+9,priority=2", "lan").map(|uplink| uplink.vlans);
        assert_eq!(vlans.ok(), Some(Vlans { untagged: Some(7), tagged: vec![8, 9] }));
        let card = parse("interface:eth1,priority=9,pcp=4:1+6:0,trunk=8", "lan").expect("an uplink");
        let classes: Vec<_> =
            card.classes().map(|class| (class.name.clone(), class.params.priority, class.take())).collect();
        let named = |name: &str| name.to_owned();
        assert_eq!(
            classes,
            [
                (named("interface:eth1,pcp=4"), Some(1), net::Take::Classes(1 << 4)),
                (named("interface:eth1,pcp=6"), Some(0), net::Take::Classes(1 << 6)),
            ]
        );
        assert_eq!((card.name.as_str(), card.take()), ("interface:eth1", net::Take::AllBut(1 << 4 | 1 << 6)));
        assert_eq!(card.priorities().collect::<Vec<_>>(), [Some(9), Some(1), Some(0)]);
        let file = Some((Kind::Replay, "a=b:c.pcap".into(), None));
        assert_eq!(uplink("replay:a=b:c.pcap").ok(), file);
    }

    #[test]
    fn what_is_wrong_with_an_uplink_is_said() {
        let error = |text| parse(text, "lan").expect_err("refused");
        assert_eq!(error("wan=tap:t0"), "--uplink wan=tap:t0: the network that is served is lan");
        assert!(error("tun:t0").contains("no kind of uplink is tun; expected"), "{}", error("tun:t0"));
        assert!(error("tap0").contains("[NETWORK=]KIND:WHAT"));
        assert!(error("tap:").contains("[NETWORK=]KIND:WHAT"));
        assert!(error("tap:t0,priority=high").contains("not a number"));
        assert!(error("tap:t0,trunk=1+9999").contains("9999 is no VLAN"));
        assert_eq!(
            error("tap:t0,pcp=4:1"),
            "--uplink tap:t0,pcp=4:1: pcp is for interface:NAME, not for tap"
        );
        assert!(error("interface:t0,pcp=8:1").contains("8:1 is not PCP:PRIORITY"));
        assert!(error("interface:t0,pcp=4").contains("4 is not PCP:PRIORITY"));
        assert!(error("interface:t0,pcp=4:1+4:2").contains("4 is there twice"));
    }
}
