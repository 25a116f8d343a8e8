//! `punctual sockets` as a user starts it, with a guest's side in this process.

use std::net::{SocketAddrV4, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use punctual_sockets::testing::FrontEnd;
use rustix::event::PollFlags;
use rustix::process::{Pid, Signal, kill_process};

const FILE: &str = "
[machine]
processors = 1
[pool.all]
policy = 'rtds'
[domain.vm]
sockets = { allow = ['bind udp 127.0.0.1:0'] }
[domain.vm.task.t]
period = '10ms'
cost = '1ms'
[domain.other]
[domain.other.task.t]
period = '10ms'
cost = '1ms'
";

fn start(directory: &Path, arguments: &[&str]) -> (Child, PathBuf) {
    let file = directory.join("host.toml");
    std::fs::write(&file, FILE).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
    command.arg("sockets").arg(&file).arg("--directory").arg(directory).args(arguments);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
    (child, directory.join("vm.sock"))
}

fn interrupt(child: Child) -> Output {
    let pid = Pid::from_raw(child.id() as i32).expect("a process");
    kill_process(pid, Signal::INT).expect("interrupted");
    child.wait_with_output().expect("ended")
}

/// A guest, as soon as the server listens.
fn guest(socket: &Path) -> FrontEnd {
    let start = Instant::now();
    loop {
        match FrontEnd::connect(socket) {
            Ok(guest) => return guest,
            Err(error) => assert!(start.elapsed() < Duration::from_secs(10), "{error}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_guest_is_served_until_ctrl_c_which_leaves_nothing_behind() {
    let directory = tempfile::tempdir().expect("a directory");
    let (child, socket) = start(directory.path(), &["--json"]);
    let mut guest = guest(&socket);
    let own = guest.socket(2).expect("a datagram socket");
    let any: SocketAddrV4 = "127.0.0.1:0".parse().expect("an address");
    guest.bind(own, any).expect("bound");
    let name = guest.simple(punctual_sockets::call::Op::Name, own, |_| ()).expect("a name").address;
    let client = UdpSocket::bind(any).expect("a client");
    client.send_to(b"ping", name.expect("an address")).expect("sent");
    guest.wait(own, PollFlags::IN).expect("ready");
    assert_eq!(guest.receive(own, 100, 0).expect("received").0, b"ping");
    let refused = guest.send(own, b"x", Some("127.0.0.1:9".parse().expect("an address")));
    assert_eq!(refused.expect_err("refused").kind(), std::io::ErrorKind::PermissionDenied);
    let output = interrupt(child);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(!socket.exists());
    UdpSocket::bind(name.expect("an address")).expect("the guest's address is free");
    let counted: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let domain = &counted["domains"][0];
    assert_eq!(domain["name"], "vm");
    assert_eq!((&domain["calls"], &domain["refused"]), (&6.into(), &1.into()), "{counted}");
    assert_eq!((&domain["received_bytes"], &domain["sockets_most"]), (&4.into(), &1.into()), "{counted}");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("ivshmem-doorbell") && told.contains("vm: connected"), "{told}");
}

#[test]
fn a_domain_without_sockets_and_a_second_server_are_errors() {
    let directory = tempfile::tempdir().expect("a directory");
    let (child, _) = start(directory.path(), &["--domain", "other"]);
    let output = child.wait_with_output().expect("ended");
    assert_eq!(output.status.code(), Some(2));
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("there is no domain `other` with `sockets`"), "{told}");
    let (first, socket) = start(directory.path(), &[]);
    let guest = guest(&socket);
    let output = start(directory.path(), &[]).0.wait_with_output().expect("ended");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("another server listens"), "{output:?}");
    drop(guest);
    assert_eq!(interrupt(first).status.code(), Some(0));
}
