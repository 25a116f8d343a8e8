//! Which sockets of its host a guest may have: the addresses and limits of a domain's `sockets`.

use std::fmt;
use std::net::{IpAddr, SocketAddrV4};
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
    /// How long it polls after an event and after each call but one that sends, before it sleeps.
    pub poll: Duration,
    /// The network namespace of the sockets, a name in `/run/netns`; `None`: that of the program.
    pub netns: Option<String>,
    /// How long an idle processor of the project's guest looks for messages of the host before it halts;
    /// nothing: each message takes an interrupt.
    pub idle_poll: Duration,
    /// Names of the guest's programs whose sockets are the host's, in a VM that a run starts with the
    /// project's guest image; empty: all.
    pub commands: Vec<String>,
}

impl Sockets {
    /// Sockets that a guest may have at once, by default.
    pub const SOCKETS_MAX: u32 = 1024;

    /// The first address with one port for datagrams that the guest may bind.
    pub fn datagram_address(&self) -> Option<SocketAddrV4> {
        self.allow.iter().find_map(|rule| {
            let is_one =
                rule.prefix == 32 && rule.ports.start() == rule.ports.end() && *rule.ports.start() != 0;
            (is_one && (rule.action, rule.protocol) == (Action::Bind, Protocol::Udp))
                .then_some(rule.network)
                .and_then(|network| match network {
                    IpAddr::V4(ip) => Some(SocketAddrV4::new(ip, *rule.ports.start())),
                    IpAddr::V6(_) => None,
                })
        })
    }

    /// Is there a rule for this? An IPv4 address that an IPv6 socket names (`::ffff:10.0.0.5`) is that IPv4
    /// address.
    pub fn allows(&self, action: Action, protocol: Protocol, address: IpAddr, port: u16) -> bool {
        let address = address.to_canonical();
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
            netns: None,
            idle_poll: Duration::ZERO,
            commands: Vec::new(),
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

/// One thing that is allowed, for example `bind udp 10.0.0.5:5060`, `connect tcp 10.0.0.0/8:80-89` or
/// `connect tcp [2001:db8::]/32:443`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    action: Action,
    protocol: Protocol,
    network: IpAddr,
    prefix: u8,
    ports: RangeInclusive<u16>,
}

impl Rule {
    /// Does this rule allow that? A rule for IPv4 allows nothing of IPv6, and the other way round.
    fn allows(&self, action: Action, protocol: Protocol, address: IpAddr, port: u16) -> bool {
        action == self.action
            && protocol == self.protocol
            && self.ports.contains(&port)
            && masked(address, self.prefix) == self.network
    }
}

/// How many bits an address has.
fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The first `prefix` bits of an address.
fn masked(address: IpAddr, prefix: u8) -> IpAddr {
    let beyond = u32::from(bits(address).saturating_sub(prefix));
    match address {
        IpAddr::V4(address) => {
            IpAddr::V4((address.to_bits() & u32::MAX.checked_shl(beyond).unwrap_or(0)).into())
        }
        IpAddr::V6(address) => {
            IpAddr::V6((address.to_bits() & u128::MAX.checked_shl(beyond).unwrap_or(0)).into())
        }
    }
}

/// An address of IPv4, or one of IPv6 in brackets, as text before `/BITS`.
fn address(text: &str) -> Result<IpAddr, String> {
    let wrong = || format!("the address `{text}`");
    let Some(inner) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) else {
        return text.parse().map(IpAddr::V4).map_err(|_| wrong());
    };
    let address = inner.parse().map(IpAddr::V6).map_err(|_| wrong())?;
    match address.to_canonical() {
        IpAddr::V4(plain) => Err(format!("the address `{text}`, which is {plain}")),
        IpAddr::V6(_) => Ok(address),
    }
}

/// What a rule is expected to be.
pub(crate) const EXPECTED: &str = "`bind` or `connect`, `tcp` or `udp`, and \
     ADDRESS[/BITS]:PORT[-PORT], for example \"bind udp 10.0.0.5:5060\", \"connect tcp 10.0.0.0/8:80-89\" or \
     \"bind tcp [::1]:80\"";

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
        let split = place.rsplit_once(':').filter(|(_, ports)| !ports.ends_with(']'));
        let (addresses, ports) = split.ok_or("no port")?;
        let (network, length) = match addresses.split_once('/') {
            Some((network, length)) => (address(network)?, Some(length)),
            None => (address(addresses)?, None),
        };
        let prefix = match length {
            Some(length) => length.parse().ok().filter(|prefix| *prefix <= bits(network)),
            None => Some(bits(network)),
        };
        let prefix = prefix.ok_or_else(|| format!("`/{}`", length.unwrap_or_default()))?;
        if masked(network, prefix) != network {
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
        match self.network {
            IpAddr::V4(network) => write!(f, "{action} {protocol} {network}")?,
            IpAddr::V6(network) => write!(f, "{action} {protocol} [{network}]")?,
        }
        if self.prefix != bits(self.network) {
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

    fn allows(rules: &[&str], address: &str) -> bool {
        let own = Sockets { allow: rules.iter().map(|text| rule(text)).collect(), ..Sockets::default() };
        own.allows(Action::Connect, Protocol::Tcp, address.parse().expect("an address"), 80)
    }

    #[test]
    fn rules_of_ipv6_are_networks_too() {
        let rules = ["connect tcp [2001:db8::]/32:80", "connect tcp [::1]:80"];
        assert!(allows(&rules, "2001:db8:ffff::1") && allows(&rules, "::1"));
        assert!(!allows(&rules, "2001:db9::1") && !allows(&rules, "::") && !allows(&rules, "::2"));
        assert!(allows(&["connect tcp [::]/0:80"], "fe80::1"));
    }

    #[test]
    fn an_ipv4_address_in_an_ipv6_one_is_judged_by_the_rules_of_ipv4() {
        let rules = ["connect tcp 10.0.0.0/8:80"];
        assert!(allows(&rules, "::ffff:10.1.2.3") && !allows(&rules, "::ffff:127.0.0.1"));
        assert!(!allows(&["connect tcp [::]/0:80"], "::ffff:127.0.0.1"), "all of IPv6 is nothing of IPv4");
        assert!(
            !allows(&["connect tcp [::]/0:80"], "127.0.0.1") && !allows(&["connect tcp 0.0.0.0/0:80"], "::1")
        );
        assert!(!allows(&["connect tcp 127.0.0.1:80"], "::127.0.0.1"), "an address of IPv6");
    }

    #[test]
    fn rules_are_written_as_they_are_read() {
        let ipv4 = ["bind udp 0.0.0.0/0:0-65535", "connect tcp 10.0.0.0/8:80", "bind tcp 127.0.0.1:1-2"];
        let ipv6 = ["connect tcp [2001:db8::]/32:80", "bind udp [::1]:7", "bind tcp [::]/0:1-2"];
        for text in ipv4.into_iter().chain(ipv6) {
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
            ("bind tcp [::1]", "no port"),
            ("bind tcp [1.2.3.4]:5", "the address `[1.2.3.4]`"),
            ("bind tcp [::ffff:1.2.3.4]:5", "the address `[::ffff:1.2.3.4]`, which is 1.2.3.4"),
            ("bind tcp [fe80::1%eth0]:5", "the address `[fe80::1%eth0]`"),
            ("bind tcp [::1]/129:5", "`/129`"),
            ("bind tcp [::1]/64:5", "`[::1]/64`, which has bits beyond /64"),
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
