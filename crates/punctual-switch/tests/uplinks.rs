//! Frames through uplinks.

use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use punctual_net::{InterfaceParams, Rate};
use punctual_switch::Event;
use punctual_switch::pcap::{Files, Reader, Writer};
use punctual_switch::stats::PortStats;
use punctual_switch::testing::{self, FrontEnd, Options};
use punctual_switch::wire::{Device, Listener, VnetHeader, Wire};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::common::{LONG, Lab, SHORT, Setting, address, expect, expect_nothing, frame};

const NO_OFFLOAD: [u8; 12] = [0; 12];

/// A program at the other end of a socket.
struct Program(OwnedFd);

impl Program {
    /// A pair of sockets: a program, and its wire.
    fn pair() -> (Program, Box<dyn Wire>) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (ours, switchs) = pair.expect("a pair");
        (Program(ours), Box::new(Device::new(switchs, VnetHeader::Virtio1)))
    }

    fn send(&self, header: [u8; 12], frame: &[u8]) {
        let end = Instant::now() + LONG;
        let message = [&header[..], frame].concat();
        while let Err(error) = rustix::io::write(&self.0, &message) {
            assert_eq!(error, rustix::io::Errno::AGAIN);
            assert!(Instant::now() < end, "the switch does not take frames");
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    fn receive_within(&self, limit: Duration) -> Option<(Vec<u8>, Vec<u8>)> {
        let (end, mut message) = (Instant::now() + limit, vec![0; 70_000]);
        while Instant::now() < end {
            if let Ok(bytes) = rustix::io::read(&self.0, &mut message[..]) {
                // Zero: the other end is closed.
                return (bytes > 0).then(|| (message[..12].to_vec(), message[12..bytes].to_vec()));
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        None
    }

    fn expect(&self, wanted: &[u8]) {
        let (_, frame) = self.receive_within(LONG).expect("a frame");
        assert!(frame == wanted, "frame {} arrived", testing::number(&frame));
    }
}

/// A VM on port 0 and a program on port 1.
fn vm_and_program(setting: Setting) -> (Lab, FrontEnd, Program) {
    let (program, wire) = Program::pair();
    let lab = Lab::with_uplinks(setting, vec![wire]);
    let vm = lab.vm(0, Options::default());
    program.send(NO_OFFLOAD, &frame(1, 1, 0));
    (lab, vm, program)
}

#[test]
fn a_program_uses_a_port_like_a_vm() {
    for discipline in ["netback", "rtca", "preemptive"] {
        let (mut lab, mut vm, program) = vm_and_program(Setting::plain(discipline, 2));
        for number in 0..600 {
            program.send(NO_OFFLOAD, &frame(1, 0, number));
            expect(&mut vm, &frame(1, 0, number));
            assert!(vm.send(&frame(0, 1, number)).expect("sent"));
            program.expect(&frame(0, 1, number));
        }
        let report = lab.stop();
        assert_eq!(report.ports[1].delivered.packets, 600, "{discipline}");
        assert_eq!(report.ports[1].received.packets, 600);
        assert_eq!(report.ports[1].uplink.map(|uplink| uplink.lost), Some(0));
        assert_eq!(report.ports[0].uplink, None);
    }
}

#[test]
fn offloads_pass_an_uplink_in_both_directions() {
    const SEGMENT: [u8; 12] = [1, 1, 54, 0, 0xa8, 5, 34, 0, 16, 0, 0, 0];
    let (program, wire) = Program::pair();
    let lab = Lab::with_uplinks(Setting::plain("rtca", 2), vec![wire]);
    let mut vm = lab.vm(0, Options { buffer_bytes: 4096, ..Options::default() });
    program.send(NO_OFFLOAD, &frame(1, 1, 0));
    let to_vm = testing::frame(address(0), address(1), 1, 65_000);
    program.send(SEGMENT, &to_vm);
    let received = vm.receive_within(LONG).expect("whole").expect("a frame");
    assert_eq!(received.header[..10], SEGMENT[..10]);
    assert!(received.frame == to_vm);
    let to_program = testing::frame(address(1), address(0), 2, 65_000);
    assert!(vm.send_with(SEGMENT, &to_program, 4096).expect("sent"));
    let (header, frame) = program.receive_within(LONG).expect("a frame");
    assert_eq!(header[..10], SEGMENT[..10]);
    assert!(frame == to_program);
}

#[test]
fn a_malformed_message_costs_only_that_message() {
    let (mut lab, mut vm, program) = vm_and_program(Setting::plain("preemptive", 2));
    for bytes in [1, 11, 12, 25, 66_000, 69_000] {
        let message = vec![0; bytes];
        rustix::io::write(&program.0, &message).expect("sent");
        program.send(NO_OFFLOAD, &frame(1, 0, bytes as u64));
        expect(&mut vm, &frame(1, 0, bytes as u64));
    }
    let drops = lab.stop().ports[1].drops;
    assert_eq!(drops.malformed, 6, "{drops:?}");
}

#[test]
fn a_program_that_does_not_read_loses_its_frames_and_delays_no_one() {
    let (mut lab, mut vm, program) = vm_and_program(Setting::plain("rtca", 2));
    let end = Instant::now() + LONG;
    let mut sent = 0;
    // If the uplink's thread is slow, its ring is full before the socket is.
    while lab.switch().count().ports[1].uplink.expect("one").lost == 0 {
        for _ in 0..500 {
            while !vm.send(&frame(0, 1, sent)).expect("sent") {}
            sent += 1;
        }
        assert!(Instant::now() < end, "the program's socket takes everything");
    }
    program.expect(&frame(0, 1, 0));
    // Frames that are still in a stage would be dropped with the switch.
    let done = |ports: &[PortStats]| ports[1].received.packets + ports[0].drops.destination_ring;
    while done(&lab.switch().count().ports) < sent {
        assert!(Instant::now() < end, "the switch waits");
    }
    let report = lab.stop();
    let (received, lost) = (report.ports[1].received.packets, report.ports[1].uplink.expect("one").lost);
    let mut read = 1;
    while program.receive_within(SHORT).is_some() {
        read += 1;
    }
    assert_eq!(read + lost, received);
    assert_eq!(received + report.ports[0].drops.destination_ring, sent);
}

#[test]
fn an_uplink_that_ends_does_not_disturb_others() {
    let (program, wire) = Program::pair();
    let lab = Lab::with_uplinks(Setting::plain("rtca", 3), vec![wire]);
    let [mut a, mut b] = [0, 1].map(|port| lab.vm(port, Options::default()));
    drop(program);
    lab.wait(2, |event| matches!(event, Event::Disconnected(Some(_))));
    assert!(a.send(&frame(0, 2, 1)).expect("sent"));
    assert!(a.send(&frame(0, 1, 2)).expect("sent"));
    // Address 2 is unknown.
    expect(&mut b, &frame(0, 2, 1));
    expect(&mut b, &frame(0, 1, 2));
}

#[test]
fn programs_connect_and_disconnect_at_a_socket() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("program");
    let wire = Listener::new(&path).expect("a socket");
    let mut lab = Lab::with_uplinks(Setting::plain("preemptive", 2), vec![Box::new(wire)]);
    let mut vm = lab.vm(0, Options::default());
    for number in 0..3 {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let program = Program(socket.expect("a socket"));
        let place = SocketAddrUnix::new(&path).expect("a path");
        rustix::net::connect(&program.0, &place).expect("the switch listens");
        program.send(NO_OFFLOAD, &frame(1, 0, number));
        expect(&mut vm, &frame(1, 0, number));
        assert!(vm.send(&frame(0, 1, number)).expect("sent"));
        program.expect(&frame(0, 1, number));
    }
    lab.stop();
    assert!(!path.exists(), "the socket is gone");
}

#[test]
fn a_file_is_replayed_at_its_timestamps_and_another_captures() {
    let folder = tempfile::tempdir().expect("a folder");
    let (from, to) = (folder.path().join("from.pcap"), folder.path().join("to.pcap"));
    let mut writer = Writer::new(File::create(&from).expect("a file")).expect("written");
    for number in 0..3 {
        let time = Duration::from_secs(1_000) + SHORT * number;
        writer.write(time, &frame(1, 0, number.into())).expect("written");
    }
    // The VM is there before the last packets.
    writer.write(Duration::from_secs(1_001), &frame(1, 0, 3)).expect("written");
    writer.write(Duration::from_secs(1_001) + SHORT, &frame(1, 0, 4)).expect("written");
    let files =
        Files::new(Some(File::open(&from).expect("a file")), Some(File::create(&to).expect("a file")));
    let mut lab = Lab::with_uplinks(Setting::plain("rtca", 2), vec![Box::new(files.expect("files"))]);
    let start = Instant::now();
    let mut vm = lab.vm(0, Options::default());
    while vm.receive_within(LONG).expect("whole").expect("a frame").frame != frame(1, 0, 3) {}
    let third = Instant::now();
    expect(&mut vm, &frame(1, 0, 4));
    assert!(third - start > Duration::from_millis(900), "{:?}", third - start);
    assert!(third.elapsed() > SHORT / 2, "{:?}", third.elapsed());
    assert!(vm.send(&frame(0, 1, 77)).expect("sent"));
    expect_nothing(&mut vm);
    lab.stop();
    let mut reader = Reader::new(File::open(&to).expect("a file")).expect("a capture");
    let mut captured = Vec::new();
    while let Some(packet) = reader.next_packet().expect("whole") {
        captured.push(packet.frame);
    }
    assert_eq!(captured.last(), Some(&frame(0, 1, 77)));
}

#[test]
fn an_idle_uplink_does_not_wake_up() {
    let (lab, mut vm, program) = vm_and_program(Setting::plain("preemptive", 2));
    program.send(NO_OFFLOAD, &frame(1, 0, 1));
    expect(&mut vm, &frame(1, 0, 1));
    let wakeups = || lab.switch().count().ports[1].uplink.expect("one").wakeups;
    std::thread::sleep(SHORT);
    let before = wakeups();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(wakeups(), before);
}

#[test]
fn an_uplink_over_its_rate_sleeps_until_there_is_room() {
    let rate = Rate::new(64 * 10, punctual_sched::Duration::from_ms(20));
    let mut setting = Setting::plain("rtca", 2);
    setting.ports[1] = InterfaceParams { rate: Some(rate), ..setting.ports[1].clone() };
    let (mut lab, mut vm, program) = vm_and_program(setting);
    for number in 0..400 {
        program.send(NO_OFFLOAD, &frame(1, 0, number));
    }
    for number in 0..400 {
        expect(&mut vm, &frame(1, 0, number));
    }
    let report = lab.stop();
    // At most one wake-up for each of 400 frames sent, and one for each returned buffer.
    let wakeups = report.ports[1].uplink.expect("one").wakeups;
    assert!(wakeups <= 900, "{wakeups} wake-ups");
    assert_eq!(report.ports[1].drops.total(), 1, "only the frame to itself");
}

/// A socket that listens at `path`.
fn listening(path: &Path, kind: SocketType) -> OwnedFd {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None).expect("a socket");
    rustix::net::bind(&socket, &SocketAddrUnix::new(path).expect("a path")).expect("bound");
    rustix::net::listen(&socket, 1).expect("it listens");
    socket
}

#[test]
fn a_stale_socket_is_replaced_and_nothing_else_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let kind_of_error = |path: &Path| Listener::new(path).expect_err("refused").kind();
    for kind in [SocketType::SEQPACKET, SocketType::STREAM] {
        let socket = listening(&at("socket"), kind);
        assert_eq!(kind_of_error(&at("socket")), ErrorKind::AddrInUse);
        assert_eq!(rustix::net::accept(&socket).err(), Some(Errno::AGAIN), "the listener is not disturbed");
        drop(socket);
        drop(Listener::new(&at("socket")).expect("nobody has it"));
        assert!(!at("socket").exists());
    }
    std::fs::write(at("file"), "precious").expect("written");
    std::os::unix::fs::symlink(at("file"), at("link")).expect("a link");
    for name in ["file", "link"] {
        assert_eq!(kind_of_error(&at(name)), ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read_to_string(at(name)).expect("a file"), "precious");
    }
}

#[test]
fn a_host_beyond_an_uplink_takes_its_address_back_as_soon_as_it_sends() {
    let (program, wire) = Program::pair();
    let lab = Lab::with_uplinks(Setting::plain("rtca", 3), vec![wire]);
    let [mut a, mut b] = [0, 1].map(|port| lab.vm(port, Options::default()));
    let claim = testing::frame(address(0), address(2), 7, 64);
    // The host's address is 2. It has not sent anything yet, or its address has aged.
    assert!(a.send(&claim).expect("sent"));
    assert!(b.send(&frame(1, 2, 1)).expect("sent"));
    expect(&mut a, &frame(1, 2, 1));
    for number in 2..20 {
        program.send(NO_OFFLOAD, &frame(2, 1, number));
        expect(&mut b, &frame(2, 1, number));
        assert!(a.send(&claim).expect("sent"));
        assert!(b.send(&frame(1, 2, number)).expect("sent"));
        program.expect(&frame(1, 2, number));
    }
    expect_nothing(&mut a);
}
