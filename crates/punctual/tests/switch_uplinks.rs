//! What is beyond a switch: TAPs and interfaces, in network namespaces that are made here.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

const HOST: &str = "
duration = '1s'
[machine]
processors = 2
[pool.all]
policy = 'fixed-priority'
[domain.dom0]
priority = 1
[domain.first]
priority = 1
[domain.second]
priority = 2
[network.lan]
driver = 'dom0'
discipline = 'preemptive'
[flow.probe]
kind = 'ping'
from = 'first'
to = 'second'
";

/// How long anything may take.
const LIMIT: Duration = Duration::from_secs(20);

/// A process that is killed at the end.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A network namespace, for as long as its process lives.
struct Namespace(Killed);

impl Namespace {
    /// `None` where none can be made.
    fn new() -> Option<Namespace> {
        let has_tools = ["nsenter", "ip", "busybox"].into_iter().all(|program| {
            Command::new(program).arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
        });
        let may = has_tools
            && Path::new("/dev/net/tun").exists()
            && Command::new("unshare").args(["--net", "true"]).status().is_ok_and(|status| status.success());
        if !may {
            let problem = "no network namespaces, TAPs, ip, nsenter or busybox here";
            assert!(std::env::var_os("PUNCTUAL_NO_SKIP").is_none(), "skipped, {problem}");
            eprintln!("skipped, {problem}");
            return None;
        }
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", "ip link set lo up; echo up; exec sleep 1000"]);
        let mut child = Killed(command.stdout(Stdio::piped()).spawn().expect("a process"));
        let mut line = String::new();
        let stdout = child.0.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("text");
        assert_eq!(line.trim(), "up");
        Some(Namespace(child))
    }

    fn id(&self) -> String {
        self.0.0.id().to_string()
    }

    /// A command in the namespace.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.id(), "--net", program]);
        command
    }

    fn try_ip(&self, arguments: &str) -> Output {
        self.command("ip").args(arguments.split(' ')).output().expect("a process")
    }

    fn ip(&self, arguments: &str) -> String {
        let output = self.try_ip(arguments);
        assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }
}

/// A switch in a namespace.
struct Switch {
    child: Killed,
    folder: tempfile::TempDir,
}

impl Switch {
    fn new(namespace: &Namespace, uplinks: &[&str]) -> Switch {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("host.toml"), HOST).expect("written");
        let mut command = namespace.command(env!("CARGO_BIN_EXE_punctual"));
        command.args(["switch", "host.toml", "--check", "--json", "--sockets", "."]);
        for uplink in uplinks {
            command.args(["--uplink", uplink]);
        }
        // Other tests look for switches of this network's name in theirs.
        command.env("PUNCTUAL_STATE", folder.path().join("state"));
        command.current_dir(folder.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = Killed(command.spawn().expect("the program"));
        let mut lines = BufReader::new(child.0.stderr.take().expect("piped")).lines();
        let mut running = 0;
        let classes: usize = uplinks.iter().map(|uplink| uplink.matches("pcp=").count()).sum();
        while running < uplinks.len() + classes {
            let line = lines.next().expect("the switch runs").expect("text");
            assert!(!line.starts_with("error"), "{line}");
            running += usize::from(line.ends_with(": running") || line.ends_with("is connected"));
        }
        // What it says further on is nobody's business, but somebody must read it.
        std::thread::spawn(move || lines.for_each(drop));
        Switch { child, folder }
    }

    /// Ends the switch by Ctrl-C. Returns what it counted of a port.
    fn end(mut self) -> serde_json::Value {
        let pid = rustix::process::Pid::from_child(&self.child.0);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
        let mut text = String::new();
        self.child.0.stdout.take().expect("piped").read_to_string(&mut text).expect("text");
        assert!(self.child.0.wait().expect("an end").success(), "an invariant was violated: {text}");
        serde_json::from_str(&text).expect("JSON")
    }

    /// Asks the switch to have these uplinks.
    fn reload(&self, namespace: &Namespace, uplinks: &[&str]) -> Output {
        let mut command = namespace.command(env!("CARGO_BIN_EXE_punctual"));
        command.args(["switch", "host.toml", "--reload", "--sockets", "."]);
        for uplink in uplinks {
            command.args(["--uplink", uplink]);
        }
        command.env("PUNCTUAL_STATE", self.folder.path().join("state"));
        command.current_dir(self.folder.path()).output().expect("it runs")
    }

    /// Its process, which `nsenter` became.
    fn process(&self) -> u32 {
        self.child.0.id()
    }

    fn program(&self) -> Program {
        self.program_at("program")
    }

    fn program_at(&self, name: &str) -> Program {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let socket = socket.expect("a socket");
        let address = SocketAddrUnix::new(self.folder.path().join(name)).expect("a path");
        rustix::net::connect(&socket, &address).expect("the switch listens");
        Program(socket)
    }
}

fn port<'a>(counted: &'a serde_json::Value, name: &str) -> &'a serde_json::Value {
    let ports = counted["ports"].as_array().expect("ports");
    ports.iter().find(|port| port["name"] == name).expect("the port")
}

/// A host at the switch that is this test.
struct Program(OwnedFd);

const OURS: [u8; 6] = [0x52, 0x54, 0, 9, 9, 9];

impl Program {
    fn send(&self, frame: &[&[u8]]) {
        let message = [&[0; 12], &frame.concat()[..]].concat();
        rustix::io::write(&self.0, &message).expect("sent");
    }

    /// The next frame with its header, if one comes in time.
    fn message_within(&self, limit: Duration) -> Option<Vec<u8>> {
        let (end, mut message) = (Instant::now() + limit, vec![0; 70_000]);
        while Instant::now() < end {
            if let Ok(bytes) = rustix::io::read(&self.0, &mut message[..]) {
                return Some(message[..bytes].to_vec());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        None
    }

    /// The next frame that `wanted` takes, after `again` was done every now and then.
    fn await_frame(&self, again: impl Fn(), wanted: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        let (end, mut message) = (Instant::now() + LIMIT, vec![0; 70_000]);
        while Instant::now() < end {
            again();
            for _ in 0..50 {
                while let Ok(bytes @ 12..) = rustix::io::read(&self.0, &mut message[..]) {
                    if wanted(&message[12..bytes]) {
                        return message[12..bytes].to_vec();
                    }
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        panic!("no such frame");
    }

    /// Pings an IPv4 address from 9 of its network, after asking by ARP for its Ethernet address (RFC 826,
    /// RFC 792).
    fn ping(&self, network: [u8; 3]) {
        let [a, b, c] = network;
        let (own, other) = ([a, b, c, 9], [a, b, c, 1]);
        let question = [0, 1, 8, 0, 6, 4, 0, 1];
        let ask = || self.send(&[&[0xff; 6], &OURS, &[8, 6], &question, &OURS, &own, &[0; 6], &other]);
        let answers =
            |frame: &[u8]| frame[12..14] == [8, 6] && frame[20..22] == [0, 2] && frame[28..32] == other;
        let answer = self.await_frame(ask, answers);
        let to = &answer[22..28];
        let payload = b"punctual packets";
        let mut packet = vec![0x45, 0, 0, 44, 0, 0, 0, 0, 64, 1, 0, 0];
        packet.extend([own, other].concat());
        let sum = checksum(&packet).to_be_bytes();
        packet[10..12].copy_from_slice(&sum);
        let mut echo = [&[8, 0, 0, 0, 1, 2, 3, 4][..], payload].concat();
        let sum = checksum(&echo).to_be_bytes();
        echo[2..4].copy_from_slice(&sum);
        let ask = || self.send(&[to, &OURS, &[8, 0], &packet, &echo]);
        let is_reply = |frame: &[u8]| frame.len() >= 58 && frame[12..14] == [8, 0] && frame[34] == 0;
        let reply = self.await_frame(ask, is_reply);
        assert_eq!(&reply[..6], &OURS);
        assert_eq!(&reply[42..58], payload);
    }
}

/// The checksum of the Internet (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum = words.fold(0, |sum, word| {
        let sum = sum + word;
        (sum & 0xffff) + (sum >> 16)
    });
    !(sum as u16)
}

#[test]
fn taps_and_interfaces_are_reached_and_left_as_they_were() {
    let Some(space) = Namespace::new() else { return };
    // An interface answers for its own addresses only (`ip-sysctl.rst`).
    let mut only_own = space.command("sh");
    only_own.args(["-c", "echo 1 >/proc/sys/net/ipv4/conf/all/arp_ignore"]);
    assert!(only_own.status().expect("a process").success());
    space.ip("link add v0 type veth peer name v1");
    space.ip("addr add 10.9.0.1/24 dev v1");
    space.ip("link set v0 up");
    space.ip("link set v1 up");
    space.ip("tuntap add dev kept mode tap");
    space.ip("addr add 10.7.0.1/24 dev kept");
    space.ip("link set kept up");
    let before = space.ip("-details link show dev v0");
    let switch =
        Switch::new(&space, &["lan=tap:made,priority=1", "tap:kept", "interface:v0", "program:program"]);
    space.ip("addr add 10.8.0.1/24 dev made");
    let program = switch.program();
    for network in [[10, 8, 0], [10, 7, 0], [10, 9, 0]] {
        program.ping(network);
    }
    let counted = switch.end();
    for name in ["tap:made", "tap:kept", "interface:v0"] {
        assert!(port(&counted, name)["received"]["packets"].as_u64() >= Some(2), "{counted:#}");
    }
    assert_eq!(
        (&port(&counted, "tap:made")["plane"], &port(&counted, "tap:kept")["plane"]),
        (&0.into(), &1.into())
    );
    assert!(!space.try_ip("link show dev made").status.success(), "a TAP that was made is gone");
    space.ip("link show dev kept");
    assert_eq!(space.ip("-details link show dev v0"), before);
}

#[test]
fn an_interface_that_was_removed_and_came_back_is_taken_up_again_by_reload() {
    let Some(space) = Namespace::new() else { return };
    let add = || {
        space.ip("link add v0 type veth peer name v1");
        space.ip("addr add 10.9.0.1/24 dev v1");
        space.ip("link set v0 up");
        space.ip("link set v1 up");
    };
    add();
    let uplinks = ["interface:v0", "program:program"];
    let switch = Switch::new(&space, &uplinks);
    let program = switch.program();
    program.ping([10, 9, 0]);
    space.ip("link del v0");
    // The switch notices on its own, a moment later; until then nothing has changed.
    let end = Instant::now() + LIMIT;
    let refused = loop {
        let output = switch.reload(&space, &uplinks);
        if !output.status.success() {
            break String::from_utf8(output.stderr).expect("text");
        }
        assert_eq!(String::from_utf8_lossy(&output.stdout), "nothing to change\n");
        assert!(Instant::now() < end, "the switch does not notice");
    };
    assert!(refused.contains("uplink interface:v0: No such device"), "{refused}");
    add();
    let output = switch.reload(&space, &uplinks);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.starts_with("changed interface:v0\n") && !said.contains("added"), "{said}");
    program.ping([10, 9, 0]);
    let output = switch.reload(&space, &uplinks);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "nothing to change\n");
    let counted = switch.end();
    let ports = counted["ports"].as_array().expect("ports").iter();
    assert_eq!(ports.filter(|port| port["name"] == "interface:v0").count(), 2, "before and after");
}

/// A GOOSE message with a number, and a VLAN tag of this PCP and no VLAN.
fn goose(to: [u8; 6], from: [u8; 6], pcp: Option<u8>, number: u8) -> Vec<u8> {
    let tag = pcp.map_or(Vec::new(), |pcp| vec![0x81, 0, pcp << 5, 0]);
    [&to[..], &from, &tag, &[0x88, 0xb8], &[number; 60]].concat()
}

#[test]
fn frames_that_arrive_at_an_interface_have_the_priority_of_their_pcp() {
    const THEIRS: [u8; 6] = [0x52, 0x54, 0, 8, 8, 8];
    let Some(space) = Namespace::new() else { return };
    space.ip("link add v0 type veth peer name v1");
    space.ip("link set v0 up");
    space.ip("link set v1 up");
    let (v0, v1) = ("interface:v0,priority=9,pcp=4:1", "interface:v1,priority=9,pcp=4:1");
    let (here, there) = (["program:program", v0], ["program:program", v1]);
    let (here, there) = (Switch::new(&space, &here), Switch::new(&space, &there));
    let (near, far) = (here.program(), there.program());
    let hello = goose([0xff; 6], THEIRS, Some(4), 0);
    near.await_frame(|| far.send(&[&hello]), |frame| frame == hello);
    for number in 1..=50 {
        for pcp in [Some(4), Some(0), None] {
            far.send(&[&goose(OURS, THEIRS, pcp, number)]);
        }
    }
    let mut next = [1; 3];
    while next != [51; 3] {
        let frame = near.await_frame(|| (), |frame| frame.starts_with(&OURS));
        let class = [Some(4), Some(0), None].into_iter().position(|pcp| {
            [OURS, THEIRS].map(|[.., last]| last) == [frame[5], frame[11]]
                && frame == goose(OURS, THEIRS, pcp, frame[frame.len() - 1])
        });
        let class = class.expect("a frame of one of the classes");
        assert_eq!(frame[frame.len() - 1], next[class], "in order within a class");
        next[class] += 1;
    }
    // An answer leaves through the uplink, and so does a frame to everybody, once.
    let (answer, everybody) = (goose(THEIRS, OURS, Some(4), 1), goose([0xff; 6], OURS, Some(4), 2));
    near.send(&[&everybody]);
    near.send(&[&answer]);
    far.await_frame(|| (), |frame| frame == everybody);
    let next = far.await_frame(|| (), |frame| frame == everybody || frame == answer);
    assert!(next == answer, "a frame to everybody came twice");
    let same = here.reload(&space, &["program:program", v0]);
    assert_eq!(String::from_utf8_lossy(&same.stdout), "nothing to change\n");
    let changed = here.reload(&space, &["program:program", "interface:v0,priority=9,pcp=4:1+6:2"]);
    let said = String::from_utf8_lossy(&changed.stdout);
    assert!(said.starts_with("changed interface:v0\n") && !said.contains("added"), "{said}");
    let other = goose(OURS, THEIRS, Some(6), 7);
    near.await_frame(|| far.send(&[&other]), |frame| frame == other);
    let counted = here.end();
    let sent = |name: &str| port(&counted, name)["sent"]["packets"].as_u64().expect("a number");
    assert!(sent("interface:v0,pcp=6") >= 1, "{counted:#}");
    let ports = counted["ports"].as_array().expect("ports").iter();
    let urgent: Vec<_> = ports.filter(|port| port["name"] == "interface:v0,pcp=4").collect();
    assert_eq!(urgent.len(), 2, "before and after the reload");
    let of_urgent: u64 = urgent.iter().filter_map(|port| port["sent"]["packets"].as_u64()).sum();
    assert!(of_urgent >= 51, "{counted:#}");
    assert!(urgent.iter().all(|port| port["plane"] == 0 && port["received"]["packets"] == 0), "{counted:#}");
    assert_eq!(port(&counted, "interface:v0,pcp=6")["plane"], 1);
    there.end();
}

#[test]
fn frames_and_segments_with_vlan_tags_come_and_go_by_an_interface_that_is_a_trunk() {
    let Some(space) = Namespace::new() else { return };
    space.ip("link add v0 type veth peer name v1");
    space.ip("link set v0 up");
    space.ip("link set v1 up");
    let switch =
        |trunk: &str| Switch::new(&space, &[trunk, "program:program,vlan=20", "program:other,vlan=30"]);
    let (here, there) = (switch("interface:v0,trunk=20+30"), switch("interface:v1,trunk=20+30"));
    let programs = ["program", "other"].map(|name| [&here, &there].map(|switch| switch.program_at(name)));
    let short = [&[0xff; 6], &OURS[..], &[0x88, 0xb5], &[5; 50]].concat();
    // Of TCP, with headers of 54 bytes: it waits in the socket, as it is longer than a slot of the ring.
    let mut segment = vec![0; 9_000];
    segment[..14].copy_from_slice(&[&[0xff; 6], &OURS[..], &[8, 0]].concat());
    (segment[14], segment[22], segment[23], segment[46]) = (0x45, 64, 6, 0x50);
    segment[16..18].copy_from_slice(&8_986_u16.to_be_bytes());
    let messages = [
        [&[0; 12], &short[..]].concat(),
        [&[1, 1, 54, 0, 0xa8, 5, 34, 0, 16, 0, 0, 0], &segment[..]].concat(),
    ];
    for [one, other] in &programs {
        for (from, to) in [(one, other), (other, one)] {
            for message in &messages {
                rustix::io::write(&from.0, message).expect("sent");
                let mut came = to.message_within(LIMIT).expect("it comes");
                // It is in one buffer.
                assert_eq!(came[10..12], [1, 0]);
                came[10] = 0;
                assert!(came == *message, "{} bytes came: {:?}", came.len(), &came[..60]);
            }
        }
    }
    for program in programs.as_flattened() {
        assert_eq!(program.message_within(Duration::from_millis(20)), None, "nothing of the other VLAN");
    }
    for switch in [here, there] {
        switch.end();
    }
}

/// Sleeps of all of a process's threads so far, by name.
fn sleeps(process: u32) -> BTreeMap<String, u64> {
    let mut sleeps = BTreeMap::new();
    for task in fs::read_dir(format!("/proc/{process}/task")).expect("it runs").flatten() {
        let status = fs::read_to_string(task.path().join("status")).expect("a thread");
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.expect("a field").trim().to_owned()
        };
        let count: u64 = field("voluntary_ctxt_switches:").parse().expect("a number");
        *sleeps.entry(field("Name:")).or_default() += count;
    }
    sleeps
}

#[test]
fn a_switch_with_an_idle_interface_does_not_wake_up() {
    let Some(space) = Namespace::new() else { return };
    // The kernel itself sends frames of IPv6 whenever it likes.
    let mut quiet = space.command("sh");
    quiet
        .args(["-c", "for name in all default; do echo 1 >/proc/sys/net/ipv6/conf/$name/disable_ipv6; done"]);
    let _ = quiet.stderr(Stdio::null()).status();
    space.ip("link add v0 type veth peer name v1");
    space.ip("addr add 10.9.0.1/24 dev v1");
    space.ip("link set v0 up");
    space.ip("link set v1 up");
    let switch = Switch::new(&space, &["interface:v0", "program:program"]);
    let program = switch.program();
    program.ping([10, 9, 0]);
    let process = switch.process();
    // What the ping leads to is over.
    std::thread::sleep(Duration::from_millis(100));
    let before = sleeps(process);
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(sleeps(process), before);
    program.ping([10, 9, 0]);
    assert_ne!(sleeps(process), before, "a thread that wakes up is seen");
}

#[test]
fn a_switch_that_is_killed_leaves_no_device_and_no_promiscuous_interface() {
    let Some(space) = Namespace::new() else { return };
    space.ip("link add v0 type veth peer name v1");
    space.ip("link add bridge type bridge");
    space.ip("tuntap add dev kept mode tap");
    space.ip("link set kept master bridge");
    let before = space.ip("-details link show dev v0");
    for _ in 0..2 {
        let mut switch = Switch::new(&space, &["tap:made", "tap:kept", "interface:v0"]);
        space.ip("link set made master bridge");
        assert_ne!(space.ip("-details link show dev v0"), before, "it takes frames for everybody");
        switch.child.0.kill().expect("it runs");
        switch.child.0.wait().expect("it is dead");
        assert!(!space.try_ip("link show dev made").status.success(), "a TAP that was made is gone");
        assert_eq!(space.ip("-details link show dev v0"), before);
        assert!(space.ip("link show dev kept").contains("master bridge"));
    }
}

#[test]
fn segments_of_the_kernel_cross_from_tap_to_tap_as_one() {
    let (Some(here), Some(there)) = (Namespace::new(), Namespace::new()) else { return };
    let switch = Switch::new(&here, &["tap:t0", "tap:t1"]);
    here.ip(&format!("link set t1 netns {}", there.id()));
    here.ip("addr add 10.8.0.1/24 dev t0");
    there.ip("addr add 10.8.0.2/24 dev t1");
    there.ip("link set t1 up");
    segments_cross(switch, "tap:t1", &here, &there);
}

#[test]
fn segments_of_the_kernel_cross_from_interface_to_interface_as_one() {
    let (Some(one), Some(between), Some(other)) = (Namespace::new(), Namespace::new(), Namespace::new())
    else {
        return;
    };
    for (end, space, address) in [("a", &one, 1), ("b", &other, 2)] {
        between.ip(&format!("link add near-{end} type veth peer name far-{end}"));
        between.ip(&format!("link set far-{end} netns {}", space.id()));
        between.ip(&format!("link set near-{end} up"));
        space.ip(&format!("addr add 10.8.0.{address}/24 dev far-{end}"));
        space.ip(&format!("link set far-{end} up"));
    }
    let switch = Switch::new(&between, &["interface:near-a", "interface:near-b"]);
    segments_cross(switch, "interface:near-b", &one, &other);
}

/// Sends 16 MiB from `there`, at the uplink `sender`, to 10.8.0.1, which is `here`. They must arrive in fewer
/// packets than a wire would need.
fn segments_cross(switch: Switch, sender: &str, here: &Namespace, there: &Namespace) {
    let folder = tempfile::tempdir().expect("a folder");
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    let bytes: Vec<u8> = (0..16_u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(&from, &bytes).expect("written");
    let mut listen = here.command("busybox");
    // A standard input that ends would end the connection.
    listen
        .args(["nc", "-l", "-p", "5000"])
        .stdin(Stdio::piped())
        .stdout(fs::File::create(&to).expect("a file"));
    let mut listener = Killed(listen.spawn().expect("a process"));
    let end = Instant::now() + LIMIT;
    loop {
        let mut send = there.command("busybox");
        send.args(["nc", "10.8.0.1", "5000"]).stdin(fs::File::open(&from).expect("a file"));
        let status = send.stderr(Stdio::null()).status().expect("a process");
        if status.success() {
            break;
        }
        assert!(Instant::now() < end, "no connection");
        std::thread::sleep(Duration::from_millis(20));
    }
    // `Child::wait` would close the standard input.
    while listener.0.try_wait().expect("a process").is_none() {
        assert!(Instant::now() < end, "the listener does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(fs::read(&to).expect("a file") == bytes, "what arrived is what was sent");
    let counted = switch.end();
    let sent = &port(&counted, sender)["delivered"];
    let [bytes, packets] = ["bytes", "packets"].map(|key| sent[key].as_u64().expect("a number"));
    // What TCP puts into a packet of 1,500 bytes with timestamps.
    assert!(packets < bytes / 1_448, "segments crossed as one: {sent}");
}
