//! Which sockets of its host a guest may have: the addresses and limits of a domain's `sockets`.

use std::fmt;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::str::FromStr;

use punctual_sched::Duration;

/// What a guest may do with sockets of its host. The default allows nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sockets {
    /// What is allowed; everything else is not.
    pub allow: Vec<Rule>,
    /// Sockets that the guest may have at once.
    pub sockets_max: u32,
    /// Calls that are made for the guest in a second; `None`: as many as it likes.
    pub calls_per_second: Option<u32>,
    /// What each socket may hold in KiB, for each direction (`SO_SNDBUF` and `SO_RCVBUF`); `None`: what the
    /// host's kernel gives.
    pub buffer_kib: Option<u32>,
    /// Priority under `SCHED_FIFO` of the thread that makes the calls; `None`: it is in the fair class.
    pub priority: Option<u8>,
    /// The processor that it stays on.
    pub processor: Option<usize>,
    /// How long it polls before it sleeps.
    pub poll: Duration,
}

impl Sockets {
    /// Sockets that a guest may have at once where nothing is said.
    pub const SOCKETS_MAX: u32 = 1024;

    /// Is there a rule for this?
    pub fn allows(&self, action: Action, protocol: Protocol, address: Ipv4Addr, port: u16) -> bool {
        self.allow.iter().any(|rule| rule.allows(action, protocol, address, port))
    }
}

impl Default for Sockets {
    fn default() -> Self {
        let sockets_max = Sockets::SOCKETS_MAX;
        Sockets {
            allow: Vec::new(),
            sockets_max,
            calls_per_second: None,
            buffer_kib: None,
            priority: None,
            processor: None,
            poll: Duration::ZERO,
        }
    }
}

/// What a rule allows to do with an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// To have it as one's own, and to answer who writes to it.
    Bind,
    /// To connect or send to it.
    Connect,
}

/// Which sockets a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Stream sockets.
    Tcp,
    /// Datagram sockets.
    Udp,
}

/// One thing that is allowed, for example `bind udp 10.0.0.5:5060` or `connect tcp 10.0.0.0/8:80-89`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    action: Action,
    protocol: Protocol,
    network: Ipv4Addr,
    prefix: u8,
    ports: RangeInclusive<u16>,
}

impl Rule {
    /// Does this rule allow that?
    pub fn allows(&self, action: Action, protocol: Protocol, address: Ipv4Addr, port: u16) -> bool {
        action == self.action
            && protocol == self.protocol
            && self.ports.contains(&port)
            && masked(address, self.prefix) == self.network.to_bits()
    }
}

/// The first `prefix` bits of an address.
fn masked(address: Ipv4Addr, prefix: u8) -> u32 {
    let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
    address.to_bits() & mask
}

/// What a rule is expected to be.
pub const EXPECTED: &str = "`bind` or `connect`, `tcp` or `udp`, and \
     ADDRESS[/BITS]:PORT[-PORT], for example \"bind udp 10.0.0.5:5060\" or \"connect tcp 10.0.0.0/8:80-89\"";

impl FromStr for Rule {
    /// What is wrong.
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let [action, protocol, place] = words[..] else {
            return Err(format!("{} words", words.len()));
        };
        let action = match action {
            "bind" => Action::Bind,
            "connect" => Action::Connect,
            other => return Err(format!("`{other}`")),
        };
        let protocol = match protocol {
            "tcp" => Protocol::Tcp,
            "udp" => Protocol::Udp,
            other => return Err(format!("`{other}`")),
        };
        let (addresses, ports) = place.rsplit_once(':').ok_or("no port")?;
        let (address, bits) = addresses.split_once('/').unwrap_or((addresses, "32"));
        let network: Ipv4Addr = address.parse().map_err(|_| format!("the address `{address}`"))?;
        let prefix = bits.parse().ok().filter(|bits| *bits <= 32);
        let prefix = prefix.ok_or_else(|| format!("`/{bits}`"))?;
        if masked(network, prefix) != network.to_bits() {
            return Err(format!("`{addresses}`, which has bits beyond /{prefix}"));
        }
        let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
        let port = |text: &str| text.parse::<u16>().map_err(|_| format!("the port `{text}`"));
        let (first, last) = (port(first)?, port(last)?);
        if first > last {
            return Err(format!("the ports `{ports}`, from more to less"));
        }
        Ok(Rule { action, protocol, network, prefix, ports: first..=last })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let action = match self.action {
            Action::Bind => "bind",
            Action::Connect => "connect",
        };
        let protocol = match self.protocol {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
        };
        write!(f, "{action} {protocol} {}", self.network)?;
        if self.prefix != 32 {
            write!(f, "/{}", self.prefix)?;
        }
        write!(f, ":{}", self.ports.start())?;
        if self.ports.start() != self.ports.end() {
            write!(f, "-{}", self.ports.end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> Rule {
        text.parse().expect("a rule")
    }

    #[test]
    fn a_rule_allows_what_it_names_and_nothing_else() {
        let own = rule("connect tcp 10.1.0.0/16:80-89");
        let allows =
            |action, protocol, address: [u8; 4], port| own.allows(action, protocol, address.into(), port);
        assert!(allows(Action::Connect, Protocol::Tcp, [10, 1, 0, 0], 80));
        assert!(allows(Action::Connect, Protocol::Tcp, [10, 1, 255, 255], 89));
        assert!(!allows(Action::Connect, Protocol::Tcp, [10, 1, 0, 0], 79));
        assert!(!allows(Action::Connect, Protocol::Tcp, [10, 1, 0, 0], 90));
        assert!(!allows(Action::Connect, Protocol::Tcp, [10, 2, 0, 0], 80));
        assert!(!allows(Action::Connect, Protocol::Tcp, [10, 0, 255, 255], 80));
        assert!(!allows(Action::Connect, Protocol::Udp, [10, 1, 0, 0], 80));
        assert!(!allows(Action::Bind, Protocol::Tcp, [10, 1, 0, 0], 80));
    }

    #[test]
    fn slash_zero_is_every_address_and_an_address_alone_is_itself() {
        assert!(rule("bind udp 0.0.0.0/0:7").allows(Action::Bind, Protocol::Udp, [9, 8, 7, 6].into(), 7));
        assert!(!rule("bind udp 0.0.0.0:7").allows(Action::Bind, Protocol::Udp, [9, 8, 7, 6].into(), 7));
        assert!(rule("bind udp 0.0.0.0:7").allows(Action::Bind, Protocol::Udp, [0; 4].into(), 7));
    }

    #[test]
    fn rules_are_written_as_they_are_read() {
        for text in ["bind udp 0.0.0.0/0:0-65535", "connect tcp 10.0.0.0/8:80", "bind tcp 127.0.0.1:1-2"] {
            assert_eq!(rule(text).to_string(), text);
        }
    }

    #[test]
    fn what_is_no_rule_says_what_is_wrong() {
        let wrong = [
            ("bind udp", "2 words"),
            ("listen tcp 1.2.3.4:5", "`listen`"),
            ("bind sctp 1.2.3.4:5", "`sctp`"),
            ("bind tcp 1.2.3.4", "no port"),
            ("bind tcp 1.2.3:5", "the address `1.2.3`"),
            ("bind tcp ::1:5", "the address `::1`"),
            ("bind tcp 1.2.3.4/33:5", "`/33`"),
            ("bind tcp 1.2.3.4/24:5", "`1.2.3.4/24`, which has bits beyond /24"),
            ("bind tcp 1.2.3.4:65536", "the port `65536`"),
            ("bind tcp 1.2.3.4:6-5", "the ports `6-5`, from more to less"),
        ];
        for (text, error) in wrong {
            assert_eq!(text.parse::<Rule>(), Err(error.to_string()), "{text}");
        }
    }
}
