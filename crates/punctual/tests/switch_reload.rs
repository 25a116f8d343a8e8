//! `punctual switch --reload`: interfaces and uplinks come and go while the switch works, and a description
//! with an error changes nothing.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::live::needs;
use punctual_switch::testing::{FrontEnd, Options, frame, number};

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
        let mut command = punctual(folder.path(), &["--check", "--json", "--sockets", "."]);
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

const TWO: [(&str, u32); 2] = [("first", 1), ("second", 2)];
const THREE: [(&str, u32); 3] = [("new", 1), ("first", 1), ("second", 2)];

#[test]
fn interfaces_and_uplinks_come_and_go_under_the_traffic_of_others() {
    let switch = Switch::start(&host(&TWO, ""));
    let mode = fs::metadata(switch.path(".control")).expect("a control socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let (mut a, mut b) = (switch.vm("first"), switch.vm("second"));
    // The switch knows where it is.
    send(&mut b, &of(2, 9, 0));
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
            assert!(c.ask(1, &[]).is_err(), "its VM connects again");
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
    assert!(switch.refuses(&vlan, &[]).contains("no port has VLANs so far"));
    assert!(!switch.path("new.sock").exists(), "nothing half-applied");
    let missing = punctual(switch.folder.path(), &["--reload", "--sockets", "state"]).output().expect("runs");
    let text = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(missing.status.code() == Some(2) && text.contains("no switch of network lan"), "{text}");
    send(&mut a, &of(1, 2, 5));
    expect(&mut b, &of(1, 2, 5));
    assert_eq!(switch.end()["ports"].as_array().map(Vec::len), Some(2));
}

/// A program to attach to.
fn idle() -> Killed {
    Killed(Command::new("sleep").arg("100").spawn().expect("a process"))
}

#[test]
fn attach_finds_the_switch_of_a_network_and_says_where_there_is_none() {
    let Some(_turn) = needs() else { return };
    let (driver, first, second) = (idle(), idle(), idle());
    let attached = |name: &str, process: &Killed| {
        format!("[domain.{name}]\npool = 'guests'\nattach = {{ threads = [{}] }}\n", process.0.id())
    };
    let file = format!(
        "duration = '1500ms'\n[machine]\nprocessors = 2\n[pool.guests]\nprocessors = [1]\n\
         policy = 'fixed-priority'\n{}priority = 1\n{}priority = 2\n{}priority = 3\n[network.lan]\n\
         driver = 'dom0'\n\
         discipline = 'preemptive'\n[network.lan.interface.first]\n[network.lan.interface.second]\n",
        attached("dom0", &driver),
        attached("first", &first),
        attached("second", &second)
    );
    let switch = Switch::start(&file);
    let attach = || {
        let args = ["attach", "host.toml", "--json", "--duration", "1500ms"];
        let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
        command.args(args).current_dir(switch.folder.path());
        command.env("PUNCTUAL_STATE", switch.path("state")).output().expect("it runs")
    };
    let (mut a, mut b) = (switch.vm("first"), switch.vm("second"));
    send(&mut b, &of(2, 9, 0));
    let end = AtomicBool::new(false);
    let output = std::thread::scope(|scope| {
        let all = scope.spawn(|| traffic(&mut a, &mut b, &end));
        let output = attach();
        end.store(true, Ordering::Release);
        all.join().expect("no frame is lost");
        output
    });
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("network lan: served by process"), "{said}");
    let results: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let found = &results["switches"][0];
    assert_eq!((found["network"].as_str(), found["ports"].as_array().map(Vec::len)), (Some("lan"), Some(2)));
    let sent = found["ports"][0]["delivered"]["packets"].as_u64();
    let counted = switch.end();
    assert!(sent > Some(100) && sent < counted["ports"][0]["delivered"]["packets"].as_u64(), "{sent:?}");
}
