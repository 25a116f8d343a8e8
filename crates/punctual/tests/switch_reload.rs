//! `punctual switch --reload`: interfaces and uplinks come and go while the switch works, and a description
//! with an error changes nothing.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::live::needs;
use punctual_linux::os::cgroup::group_of;
use punctual_linux::os::sched::{affinity, attributes};
use punctual_switch::pcap::Reader;
use punctual_switch::testing::{FrontEnd, Options, frame, number};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

/// How long anything may take.
const LIMIT: Duration = Duration::from_secs(20);

/// A host file with these interfaces, and more.
fn host(interfaces: &[(&str, u32)], more: &str) -> String {
    let mut text = "duration = '1s'\n[machine]\nprocessors = 2\n[pool.all]\npolicy = 'fixed-priority'\n\
                    [domain.dom0]\npriority = 1\n[network.lan]\ndriver = 'dom0'\n\
                    discipline = 'preemptive'\n"
        .to_owned();
    for (name, priority) in interfaces {
        text += &format!("[domain.{name}]\npriority = 2\n[network.lan.interface.{name}]\n");
        text += &format!("priority = {priority}\n");
    }
    text + more
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A switch in a folder of its own.
struct Switch {
    child: Killed,
    folder: tempfile::TempDir,
}

impl Switch {
    fn start(text: &str) -> Switch {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("host.toml"), text).expect("written");
        let command = punctual(folder.path(), &["--check", "--json", "--sockets", "."]);
        Switch::of(command, folder)
    }

    /// What this command starts.
    fn of(mut command: Command, folder: tempfile::TempDir) -> Switch {
        command.env("PUNCTUAL_STATE", folder.path().join("state"));
        let mut child =
            Killed(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs"));
        let mut lines = BufReader::new(child.0.stderr.take().expect("piped")).lines();
        let ports = lines.next().expect("the switch runs").expect("text");
        assert!(ports.starts_with("lan: preemptive, "), "{ports}");
        // What it says further on is nobody's business, but somebody must read it.
        std::thread::spawn(move || lines.for_each(drop));
        Switch { child, folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn reload(&self, text: &str, args: &[&str]) -> Output {
        fs::write(self.path("host.toml"), text).expect("written");
        punctual(self.folder.path(), &[args, &["--reload"]].concat()).output().expect("it runs")
    }

    /// Reloads; it succeeds. Returns what changed.
    fn becomes(&self, text: &str, args: &[&str]) -> Vec<String> {
        let output = self.reload(text, args);
        let out = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{out}{}", String::from_utf8_lossy(&output.stderr));
        out.lines().take_while(|line| !line.starts_with("lan: ")).map(str::to_owned).collect()
    }

    /// Reloads; it is refused. Returns why.
    fn refuses(&self, text: &str, args: &[&str]) -> String {
        let output = self.reload(text, args);
        assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    fn vm(&self, name: &str) -> FrontEnd {
        FrontEnd::connected(&self.path(&format!("{name}.sock")), Options::default()).expect("a VM")
    }

    /// Ends the switch by Ctrl-C. Returns what it counted.
    fn end(mut self) -> serde_json::Value {
        let pid = rustix::process::Pid::from_child(&self.child.0);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
        let mut text = String::new();
        self.child.0.stdout.take().expect("piped").read_to_string(&mut text).expect("text");
        assert!(self.child.0.wait().expect("an end").success(), "an invariant was violated: {text}");
        assert!(!self.path(".control").exists() && !self.path("first.sock").exists());
        serde_json::from_str(&text).expect("JSON")
    }
}

fn punctual(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
    command.args(["switch", "host.toml"]).args(args).current_dir(folder);
    command.env("PUNCTUAL_STATE", folder.join("state"));
    command
}

fn address(vm: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, vm]
}

fn of(from: u8, to: u8, number: u64) -> Vec<u8> {
    frame(address(to), address(from), number, 64)
}

fn send(vm: &mut FrontEnd, frame: &[u8]) {
    assert!(vm.send(frame).expect("sent"), "there is room");
}

fn expect(vm: &mut FrontEnd, frame: &[u8]) {
    let received = vm.receive_within(LIMIT).expect("whole frames").expect("a frame");
    assert!(received.frame == frame, "frame {} came", number(&received.frame));
}

/// The switch learns where `b` is, by a frame that reaches `a`. Until then frames to `b` go to all ports, of
/// which there may be a thousand, and `b`'s plane may be slower than `a`'s.
fn make_known(b: &mut FrontEnd, a: &mut FrontEnd) {
    send(b, &of(2, 9, 0));
    expect(a, &of(2, 9, 0));
}

/// Frames from `a` to `b` without a break until `end`: each comes once, in order.
fn traffic(a: &mut FrontEnd, b: &mut FrontEnd, end: &AtomicBool) -> u64 {
    let (mut sent, mut came) = (0, 0);
    while !end.load(Ordering::Acquire) || came < sent {
        if sent - came < 50 && !end.load(Ordering::Acquire) && a.send(&of(1, 2, sent + 1)).expect("sent") {
            sent += 1;
            continue;
        }
        let received = b.receive_within(LIMIT).expect("whole frames").expect("no frame is lost");
        if received.frame.starts_with(&address(2)) {
            came += 1;
            assert_eq!(number(&received.frame), came, "each frame once, and in order");
        }
    }
    came
}

/// Standard error is a full pipe that nobody reads, as that of a stopped terminal.
#[test]
fn a_standard_error_that_nobody_reads_stops_neither_control_nor_the_end() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("host.toml"), host(&TWO, "")).expect("written");
    let (_read, full) = std::io::pipe().expect("a pipe");
    rustix::io::ioctl_fionbio(&full, true).expect("set");
    while rustix::io::write(&full, &[b'x'; 4096]).is_ok() {}
    rustix::io::ioctl_fionbio(&full, false).expect("set");
    let mut command = punctual(folder.path(), &["--sockets", "."]);
    let child = Killed(command.stdout(Stdio::null()).stderr(full).spawn().expect("it runs"));
    let mut switch = Switch { child, folder };
    let end = Instant::now() + LIMIT;
    while !switch.path(".control").exists() {
        assert!(Instant::now() < end, "the switch starts");
        std::thread::sleep(Duration::from_millis(5));
    }
    // Each connection is a line that waits for a reader.
    let (mut first, mut second) = (switch.vm("first"), switch.vm("second"));
    for number in 0..5 {
        send(&mut first, &of(1, 2, number));
        expect(&mut second, &of(1, 2, number));
        drop(first);
        first = switch.vm("first");
    }
    assert_eq!(switch.becomes(&host(&THREE, ""), &[]), ["added new"]);
    let start = Instant::now();
    let pid = Pid::from_child(&switch.child.0);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    switch.child.0.wait().expect("an end");
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}

/// The successor's connection waits before its predecessor has closed: the switch hears of it first.
#[test]
fn a_vm_that_comes_again_before_the_switch_has_seen_its_end_is_accepted() {
    let switch = Switch::start(&host(&TWO, ""));
    let (first, mut second) = (switch.vm("first"), switch.vm("second"));
    let pid = Pid::from_child(&switch.child.0);
    let signal = |signal| rustix::process::kill_process(pid, signal).expect("it runs");
    signal(rustix::process::Signal::STOP);
    let stopped = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::UNTRACED);
    assert!(stopped.expect("a child").is_some_and(|(_, status)| status.stopped()));
    let mut again = std::thread::scope(|scope| {
        let again = scope.spawn(|| switch.vm("first"));
        // Connected, it waits for an answer.
        std::thread::sleep(Duration::from_millis(50));
        drop(first);
        signal(rustix::process::Signal::CONT);
        again.join().expect("a VM")
    });
    send(&mut again, &of(1, 2, 0));
    expect(&mut second, &of(1, 2, 0));
}

/// A frame with a number and a tag of this PCP and no VLAN.
fn tagged(from: u8, to: u8, number: u64, pcp: u8) -> Vec<u8> {
    let frame = of(from, to, number);
    [&frame[..12], &[0x81, 0, pcp << 5, 0], &frame[12..]].concat()
}

#[test]
fn frames_of_a_vm_have_the_priority_of_their_pcp_as_the_file_says_now() {
    // Of the second VM, whose table is the last one.
    let with = |pcp: &str| host(&TWO, &format!("pcp = {pcp}\n"));
    let switch = Switch::start(&with("{ 4 = 0 }"));
    let mut a = switch.vm("first");
    let mut pass = |b: &mut FrontEnd| {
        for (number, pcp) in [(1, 4), (2, 6), (3, 0)] {
            send(b, &tagged(2, 1, number, pcp));
        }
        send(b, &of(2, 1, 4));
        let mut came: Vec<u64> = (0..4)
            .map(|_| {
                let received = a.receive_within(LIMIT).expect("whole frames").expect("a frame");
                let tag = if received.frame[12..14] == [0x81, 0] { 4 } else { 0 };
                number(&received.frame[tag..])
            })
            .collect();
        came.sort_unstable();
        assert_eq!(came, [1, 2, 3, 4]);
    };
    let mut b = switch.vm("second");
    pass(&mut b);
    for (pcp, changes) in [("{ 4 = 0, 6 = 1 }", "changed second"), ("{ 6 = 1 }", "changed second")] {
        assert_eq!(switch.becomes(&with(pcp), &[]), [changes]);
        assert_eq!(switch.becomes(&with(pcp), &[]), ["nothing to change"]);
        b = switch.vm("second");
        pass(&mut b);
    }
    let refused = switch.refuses(&with("{ 4 = 0 }\ncredit_bytes = 1000"), &[]);
    assert!(refused.contains("an interface with `pcp` has no rate limit"), "{refused}");
    let counted = switch.end();
    let ports = counted["ports"].as_array().expect("ports");
    let sent = |name: &str| -> u64 {
        let of = ports.iter().filter(|port| port["name"] == name);
        of.map(|port| port["sent"]["packets"].as_u64().expect("a number")).sum()
    };
    // Two of the maps had PCP 4, two had PCP 6; the other frames are the port's own.
    assert_eq!([sent("second,pcp=4"), sent("second,pcp=6"), sent("second")], [2, 2, 3 + 2 + 3]);
}

const TWO: [(&str, u32); 2] = [("first", 1), ("second", 2)];
const THREE: [(&str, u32); 3] = [("new", 1), ("first", 1), ("second", 2)];

#[test]
fn interfaces_and_uplinks_come_and_go_under_the_traffic_of_others() {
    let switch = Switch::start(&host(&TWO, ""));
    let mode = fs::metadata(switch.path(".control")).expect("a control socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let (mut a, mut b) = (switch.vm("first"), switch.vm("second"));
    make_known(&mut b, &mut a);
    let end = AtomicBool::new(false);
    let (switch, came) = std::thread::scope(|scope| {
        let all = scope.spawn(|| traffic(&mut a, &mut b, &end));
        for round in 0..3 {
            // Before the others in the file, and found by the network's name.
            assert_eq!(switch.becomes(&host(&THREE, ""), &[]), ["added new"]);
            assert_eq!(switch.becomes(&host(&THREE, ""), &["--sockets", "."]), ["nothing to change"]);
            let mut c = switch.vm("new");
            let program = ["--uplink", "program:program", "--uplink", "capture:out.pcap,priority=1"];
            let changes = switch.becomes(&host(&THREE, ""), &program);
            assert_eq!(changes, ["added program:program", "added capture:out.pcap"]);
            send(&mut c, &of(3, 3, round));
            let changed = host(&[("new", 7), ("first", 1), ("second", 2)], "");
            assert_eq!(
                switch.becomes(&changed, &["--uplink", "program:program"]),
                ["removed capture:out.pcap", "changed new"]
            );
            assert!(c.request(1, &[]).is_err(), "its VM connects again");
            c.connect(&switch.path("new.sock")).expect("a VM");
            assert_eq!(switch.becomes(&host(&TWO, ""), &[]), ["removed new", "removed program:program"]);
            assert!(!switch.path("new.sock").exists());
        }
        end.store(true, Ordering::Release);
        (switch, all.join().expect("no frame is lost"))
    });
    assert!(came > 100, "{came} frames");
    let counted = switch.end();
    let ports = counted["ports"].as_array().expect("ports");
    let names = ports.iter().filter(|port| port["name"] == "new").count();
    assert_eq!((ports.len(), names), (2 + 3 * 4, 6), "also those that are gone");
    assert_eq!(ports[0]["delivered"]["packets"].as_u64(), Some(came));
}

#[test]
fn a_description_with_an_error_changes_nothing_and_the_reason_is_said() {
    let switch = Switch::start(&host(&TWO, ""));
    let (mut a, mut b) = (switch.vm("first"), switch.vm("second"));
    let more = "[flow.probe]\nkind = 'ping'\nfrom = 'first'\nto = 'nobody'\n";
    assert!(switch.refuses(&host(&THREE, more), &[]).contains("nobody"));
    let other = host(&THREE, "").replace("preemptive", "rtca");
    assert!(switch.refuses(&other, &[]).contains("the discipline would change"));
    let uplink = ["--uplink", "interface:no-such-thing"];
    assert!(switch.refuses(&host(&THREE, ""), &uplink).contains("interface:no-such-thing"));
    assert!(switch.refuses(&host(&THREE, ""), &["--uplink", "tun:x"]).contains("no kind of uplink"));
    let vlan = host(&THREE, "vlan = 7\n");
    assert!(switch.refuses(&vlan, &[]).contains("the running switch has no VLANs"));
    assert!(!switch.path("new.sock").exists(), "nothing half-applied");
    let missing = punctual(switch.folder.path(), &["--reload", "--sockets", "state"]).output().expect("runs");
    let text = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(missing.status.code() == Some(2) && text.contains("no running switch of network lan"), "{text}");
    send(&mut a, &of(1, 2, 5));
    expect(&mut b, &of(1, 2, 5));
    assert_eq!(switch.end()["ports"].as_array().map(Vec::len), Some(2));
}

/// The planes of a switch, sorted by name: processors, class and priority. A thread may end meanwhile.
fn planes_of(process: u32) -> Vec<(String, Vec<usize>, (&'static str, u32))> {
    let mut seen = Vec::new();
    for task in fs::read_dir(format!("/proc/{process}/task")).expect("its threads").flatten() {
        let Ok(name) = fs::read_to_string(task.path().join("comm")) else { continue };
        let Some(name) = name.trim().strip_prefix("plane/") else { continue };
        let id: i32 = task.file_name().to_str().expect("a number").parse().expect("a number");
        let (Ok(class), Ok(processors)) = (attributes(id), affinity(id)) else { continue };
        seen.push((name.to_owned(), processors, (class.policy_name(), class.priority)));
    }
    seen.sort();
    seen
}

#[test]
fn planes_have_the_processors_and_the_class_of_the_host_file() {
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var_os("PUNCTUAL_NO_SKIP").is_none(), "skipped: real-time priorities need root");
        return eprintln!("skipped: real-time priorities need root");
    }
    let planes = "[network.lan.plane.urgent]\nup_to = 1\nprocessors = [1]\nfifo = 7\n\
                  [network.lan.plane.rest]\nprocessors = [0]\n";
    let switch = Switch::start(&host(&TWO, planes));
    let rest = ("rest".to_owned(), vec![0], ("SCHED_OTHER", 0));
    let expected = [rest, ("urgent".to_owned(), vec![1], ("SCHED_FIFO", 7))];
    // A plane names its thread and takes its class after it has started, and a thread that it starts has its
    // name for a moment.
    let until = Instant::now() + Duration::from_secs(5);
    let mut seen = planes_of(switch.child.0.id());
    while seen != expected && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
        seen = planes_of(switch.child.0.id());
    }
    assert_eq!(seen, expected);
}

/// Frames as fast as they go, from `vms[0]` and `vms[1]` to `vms[2]`, until the switch is gone: each comes at
/// most once and in order. `last` are the numbers sent and received last, by sender.
fn until_it_dies(vms: &mut [FrontEnd; 3], last: &mut [[u64; 2]; 2], switch: &mut Switch) {
    while switch.child.0.try_wait().expect("a child").is_none() {
        for _ in 0..50 {
            for (from, [sent, _]) in (0..2).zip(last.iter_mut()) {
                if vms[from].send(&of(from as u8, 2, *sent + 1)).expect("sent") {
                    *sent += 1;
                }
            }
            while let Some(received) = vms[2].receive().expect("whole frames") {
                let (from, came) = (received.frame[11], number(&received.frame));
                let [sent, last] = &mut last[usize::from(from)];
                assert!(came > *last && came <= *sent, "{came} of {from} after {last}");
                *last = came;
            }
        }
    }
}

#[test]
fn a_switch_that_is_killed_under_traffic_sends_no_frame_twice_or_out_of_order() {
    // Two planes that deliver to one port.
    let text = host(&[("first", 1), ("second", 2), ("third", 2)], "");
    let mut vms = [(); 3].map(|()| FrontEnd::new(Options::default()).expect("memory"));
    let (mut last, mut came_before) = ([[0; 2]; 2], [0; 2]);
    for round in 0..12 {
        let mut switch = Switch::start(&text);
        for (vm, name) in vms.iter_mut().zip(["first", "second", "third"]).rev() {
            vm.connect(&switch.path(&format!("{name}.sock"))).expect("a VM");
            if name == "third" {
                // Known before anybody sends to it: a frame to several VMs may come twice.
                send(vm, &of(2, 9, 0));
                while vm.reclaim().expect("its own") == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
        let pid = rustix::process::Pid::from_child(&switch.child.0);
        let kill = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(50_000 + 3_001 * round));
            rustix::process::kill_process(pid, rustix::process::Signal::KILL)
        });
        until_it_dies(&mut vms, &mut last, &mut switch);
        kill.join().expect("no panic").expect("it ran");
        let came = last.map(|[_, came]| came);
        assert!(came[0] > came_before[0] && came[1] > came_before[1], "{came:?} after {came_before:?}");
        came_before = came;
    }
}

#[test]
fn a_capture_that_changes_goes_on_in_its_file_and_one_that_starts_makes_it_anew() {
    let switch = Switch::start(&host(&TWO, ""));
    let (mut a, mut b) = (switch.vm("first"), switch.vm("second"));
    let to_all = |number| frame([0xff; 6], address(1), number, 64);
    fs::write(switch.path("out.pcap"), "something old").expect("written");
    for round in 0..3 {
        let uplink = format!("capture:out.pcap,priority={round}");
        let change = if round == 0 { "added capture:out.pcap" } else { "changed capture:out.pcap" };
        assert_eq!(switch.becomes(&host(&TWO, ""), &["--uplink", &uplink]), [change]);
        send(&mut a, &to_all(round));
        expect(&mut b, &to_all(round));
        assert_eq!(switch.becomes(&host(&TWO, ""), &["--uplink", &uplink]), ["nothing to change"]);
    }
    fs::rename(switch.path("out.pcap"), switch.path("moved.pcap")).expect("moved");
    fs::write(switch.path("out.pcap"), "something else, which is longer").expect("written");
    let reason = switch.refuses(&host(&TWO, ""), &["--uplink", "capture:out.pcap,priority=9"]);
    assert!(reason.contains("cannot append"), "{reason}");
    assert!(fs::read_to_string(switch.path("out.pcap")).expect("a file").starts_with("something else"));
    let mut reader =
        Reader::new(fs::File::open(switch.path("moved.pcap")).expect("a file")).expect("packets");
    for round in 0..3 {
        assert_eq!(reader.next_packet().expect("whole").expect("a packet").frame, to_all(round));
    }
    assert_eq!(reader.next_packet().expect("whole"), None);
    switch.end();
}

#[test]
fn what_holds_from_the_start_is_refused_and_libvirt_is_told_of_ports_that_come() {
    let switch = Switch::start(&host(&TWO, ""));
    for options in ["--check", "--one-plane", "--urgent 1", "--fifo 9", "--processor 0", "--poll 1ms"] {
        let options: Vec<&str> = options.split(' ').collect();
        let reason = switch.refuses(&host(&THREE, ""), &options);
        assert!(reason.contains(&format!("{} is fixed when the switch starts", options[0])), "{reason}");
    }
    assert!(switch.refuses(&host(&THREE, ""), &["--duration", "1s"]).contains("--duration is fixed"));
    assert!(!switch.path("new.sock").exists());
    let output = switch.reload(&host(&THREE, ""), &["--libvirt"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.starts_with("added new\n<!-- "), "{text}");
    assert!(text.contains("memoryBacking") && text.contains("new.sock"), "{text}");
    assert!(!text.contains("first") && !text.contains("-chardev"), "{text}");
    let output = switch.reload(&host(&THREE, ""), &["--libvirt", "--uplink", "program:program"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "added program:program\n");
    switch.end();
}

/// The name and number of a group to which this process can give files.
fn some_group() -> (String, u32) {
    let text = fs::read_to_string("/etc/group").expect("groups");
    let own = rustix::process::getegid().as_raw();
    let is_root = rustix::process::geteuid().is_root();
    let groups = text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        Some((fields.next()?.to_owned(), fields.nth(1)?.parse().ok()?))
    });
    let mut groups = groups.filter(|(_, id)| if is_root { *id != own } else { *id == own });
    groups.next().expect("a group")
}

#[test]
fn a_group_may_connect_to_sockets_of_vms_and_to_nothing_else() {
    let (group, id) = some_group();
    let folder = tempfile::tempdir().expect("a folder");
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("set");
    fs::write(folder.path().join("host.toml"), host(&TWO, "")).expect("written");
    let refused = |args: &[&str]| {
        let output = punctual(folder.path(), args).output().expect("it runs");
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let with = |sockets: &'static str| ["--sockets", sockets, "--group", group.as_str(), "--duration", "1s"];
    assert!(refused(&["--group", &group]).contains("--sockets"));
    let reason = refused(&["--sockets", "made", "--group", "no-such-group"]);
    assert!(reason.contains("--group no-such-group: there is no such group"), "{reason}");
    mode(folder.path(), 0o700);
    let reason = refused(&with("made"));
    assert!(reason.contains(&format!("{group} cannot enter {}", folder.path().display())), "{reason}");
    mode(folder.path(), 0o711);
    fs::create_dir(folder.path().join("open")).expect("made");
    mode(&folder.path().join("open"), 0o777);
    assert!(refused(&with("open")).contains("others may write to"));
    assert!(!folder.path().join("made").exists());
    let command = punctual(folder.path(), &["--json", "--sockets", "made", "--group", &group]);
    let switch = Switch::of(command, folder);
    fs::write(switch.path("host.toml"), host(&THREE, "")).expect("written");
    let folder = switch.folder.path().to_owned();
    let reload = punctual(&folder, &["--reload", "--sockets", "made"]).output().expect("it runs");
    assert!(reload.status.success(), "{}", String::from_utf8_lossy(&reload.stderr));
    let metadata = |name: &str| fs::metadata(folder.join(name)).expect("it is there");
    let shown = |name| (metadata(name).gid(), metadata(name).mode() & 0o7777);
    assert_eq!(shown("made"), (id, 0o750));
    for name in ["made/first.sock", "made/second.sock", "made/new.sock"] {
        assert_eq!(shown(name), (id, 0o660), "{name}");
    }
    assert_eq!(metadata("made/.control").mode() & 0o7777, 0o600);
    switch.end();
    assert!(!folder.join("made").exists(), "it was made for the switch");
}

#[test]
fn a_switch_raises_its_limit_of_descriptors_and_without_any_hears_clients_later() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("host.toml"), host(&TWO, "")).expect("written");
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -Sn 100; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_punctual")]);
    command.args(["switch", "host.toml", "--json", "--sockets", "."]).current_dir(folder.path());
    let switch = Switch::of(command, folder);
    let process = Pid::from_child(&switch.child.0);
    let limit = prlimit(Some(process), Resource::Nofile, getrlimit(Resource::Nofile)).expect("it runs");
    assert_eq!(limit.current, limit.maximum);
    prlimit(Some(process), Resource::Nofile, Rlimit { current: Some(3), ..limit }).expect("it runs");
    let reload =
        punctual(switch.folder.path(), &["--reload", "--sockets", "."]).stdout(Stdio::piped()).spawn();
    std::thread::sleep(Duration::from_millis(300));
    prlimit(Some(process), Resource::Nofile, limit).expect("it runs");
    let output = reload.expect("it runs").wait_with_output().expect("it ends");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "nothing to change\n");
    switch.end();
}

#[test]
fn top_shows_the_ports_of_a_switch_that_works_without_a_run() {
    // What is beyond 640 bytes waits, for a minute.
    let limit = "priority = 1\ncredit_bytes = 640\ncredit_window = '60s'\n";
    let switch =
        Switch::start(&host(&TWO, "").replacen("priority = 1\n[domain", &format!("{limit}[domain"), 1));
    let (mut a, mut b) = (switch.vm("first"), switch.vm("second"));
    make_known(&mut b, &mut a);
    (1..=25).for_each(|number| send(&mut a, &of(1, 2, number)));
    (1..=10).for_each(|number| expect(&mut b, &of(1, 2, number)));
    let top = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
        command.args(["top", "--once"]).args(args).current_dir(switch.folder.path());
        let output = command.env("PUNCTUAL_STATE", switch.path("state")).output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    let snapshot: serde_json::Value = serde_json::from_str(&top(&["--json"])).expect("JSON");
    let first = &snapshot["ports"][0];
    let shown = ["delivered", "queued"].map(|key| first[key].as_u64());
    assert_eq!((first["name"].as_str(), shown), (Some("first"), [Some(10), Some(15)]), "{first:#}");
    assert_eq!(snapshot["planes"].as_array().map(Vec::len), Some(2));
    let screen = top(&["."]);
    assert!(screen.starts_with(&format!("switch of lan (process {})", switch.child.0.id())), "{screen}");
    assert!(screen.contains("queued") && screen.contains("second"), "{screen}");
}

/// Three programs to attach to, and a host file with a network of them.
struct Attached {
    programs: [Killed; 3],
    file: String,
}

impl Attached {
    fn new() -> Attached {
        let program = || Killed(Command::new("sleep").arg("100").spawn().expect("a process"));
        let programs = [program(), program(), program()];
        let mut file = "duration = '1500ms'\n[machine]\nprocessors = 2\n[pool.guests]\nprocessors = [1]\n\
                        policy = 'fixed-priority'\n"
            .to_owned();
        for (number, (name, program)) in ["dom0", "first", "second"].iter().zip(&programs).enumerate() {
            file += &format!("[domain.{name}]\npool = 'guests'\npriority = {}\n", number + 1);
            file += &format!("attach = {{ threads = [{}] }}\n", program.0.id());
        }
        file += "[network.lan]\ndriver = 'dom0'\ndiscipline = 'preemptive'\n\
                 [network.lan.interface.first]\n[network.lan.interface.second]\n";
        Attached { programs, file }
    }

    /// Attaches to them with the host file in `folder`. Returns what it said, and the results.
    fn attach(folder: &Path) -> (String, serde_json::Value) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
        command.args(["attach", "host.toml", "--json", "--duration", "1500ms"]).current_dir(folder);
        let output = command.env("PUNCTUAL_STATE", folder.join("state")).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{said}");
        (said, serde_json::from_slice(&output.stdout).expect("JSON"))
    }

    /// What a run changes of them.
    fn state(&self) -> Vec<impl PartialEq + std::fmt::Debug + use<>> {
        let of = |program: &Killed| {
            let id = program.0.id() as i32;
            (
                attributes(id).expect("it lives"),
                affinity(id).expect("it lives"),
                group_of(id).expect("it lives"),
            )
        };
        self.programs.iter().map(of).collect()
    }
}

#[test]
fn attach_finds_the_switch_of_a_network() {
    let Some(_turn) = needs() else { return };
    let attached = Attached::new();
    let switch = Switch::start(&attached.file);
    let (mut a, mut b) = (switch.vm("first"), switch.vm("second"));
    make_known(&mut b, &mut a);
    let end = AtomicBool::new(false);
    let (said, results) = std::thread::scope(|scope| {
        let all = scope.spawn(|| traffic(&mut a, &mut b, &end));
        let ended = Attached::attach(switch.folder.path());
        end.store(true, Ordering::Release);
        all.join().expect("no frame is lost");
        ended
    });
    assert!(said.contains("network lan: served by process"), "{said}");
    let found = &results["switches"][0];
    assert_eq!((found["network"].as_str(), found["ports"].as_array().map(Vec::len)), (Some("lan"), Some(2)));
    let sent = found["ports"][0]["delivered"]["packets"].as_u64();
    let counted = switch.end();
    assert!(sent > Some(100) && sent < counted["ports"][0]["delivered"]["packets"].as_u64(), "{sent:?}");
}

#[test]
fn attach_says_that_a_network_has_no_switch_and_starts_none() {
    let Some(_turn) = needs() else { return };
    let attached = Attached::new();
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("host.toml"), &attached.file).expect("written");
    let before = attached.state();
    let (said, results) = Attached::attach(folder.path());
    assert!(
        said.contains("network lan: no `punctual switch` is found; its ports are not in the results"),
        "{said}"
    );
    assert_eq!(results["domains"].as_array().map(Vec::len), Some(3), "the domains run as usual");
    assert!(results["switches"].as_array().is_none_or(Vec::is_empty), "{results:#}");
    assert_eq!(attached.state(), before);
    let left: Vec<_> = fs::read_dir(folder.path().join("state"))
        .map(|entries| entries.flatten().map(|entry| entry.file_name()).collect())
        .unwrap_or_default();
    assert!(left.is_empty(), "no switch and no journal: {left:?}");
}
