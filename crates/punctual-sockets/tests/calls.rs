//! Calls of a guest on real loopback sockets: datagrams, streams, rules, limits, and guests that connect,
//! disconnect and violate the protocol.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use punctual_model::sockets::Sockets;
use punctual_sockets::call::{Op, options};
use punctual_sockets::layout::{self, in_queue as place};
use punctual_sockets::queue::{RingError, Words, in_queue};
use punctual_sockets::testing::{FrontEnd, request};
use punctual_sockets::{Config, Event, Server};
use rustix::event::PollFlags;

const STREAM: i32 = libc::SOCK_STREAM;
const DATAGRAM: i32 = libc::SOCK_DGRAM;
/// Timeout of everything that must happen, on a busy machine.
const LIMIT: Duration = Duration::from_secs(10);

/// A server with a guest.
struct Lab {
    _directory: tempfile::TempDir,
    socket: PathBuf,
    server: Option<Server>,
    events: Receiver<Event>,
    guest: FrontEnd,
}

fn policy(rules: &[&str]) -> Sockets {
    Sockets { allow: rules.iter().map(|rule| rule.parse().expect("a rule")).collect(), ..Sockets::default() }
}

fn config(socket: &Path, policy: Sockets) -> Config {
    Config {
        name: "sockets of a test".into(),
        socket: socket.into(),
        policy,
        poll: punctual_sched::Duration::ZERO,
        enter: Box::new(|| ()),
    }
}

fn lab_with(policy: Sockets) -> Lab {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("vm.sock");
    let (server, events) = Server::start(config(&socket, policy)).expect("a server");
    let guest = FrontEnd::connect(&socket).expect("a guest");
    assert_eq!(events.recv_timeout(LIMIT), Ok(Event::Connected));
    Lab { _directory: directory, socket, server: Some(server), events, guest }
}

/// A guest that may use all loopback addresses.
fn lab() -> Lab {
    lab_with(policy(&[
        "bind udp 127.0.0.0/8:0-65535",
        "bind tcp 127.0.0.0/8:0-65535",
        "connect udp 127.0.0.0/8:0-65535",
        "connect tcp 127.0.0.0/8:0-65535",
    ]))
}

fn loopback(port: u16) -> SocketAddr {
    at(Ipv4Addr::LOCALHOST, port)
}

fn at(ip: impl Into<IpAddr>, port: u16) -> SocketAddr {
    SocketAddr::new(ip.into(), port)
}

impl Lab {
    /// A socket bound to a port that the kernel chose.
    fn bound(&mut self, kind: i32) -> (u32, SocketAddr) {
        let socket = self.guest.socket(kind).expect("a socket");
        self.guest.bind(socket, loopback(0)).expect("bound");
        let name = self.guest.simple(Op::Name, socket, |_| ()).expect("a name").address;
        (socket, name.expect("an address"))
    }

    /// The next event; polls for it, as a guest that does not halt.
    fn event(&mut self) -> Option<u32> {
        let start = Instant::now();
        loop {
            let event = self.guest.event();
            if event.is_some() || start.elapsed() > LIMIT {
                return event;
            }
            std::thread::yield_now();
        }
    }

    fn listening(&mut self) -> (u32, SocketAddr) {
        let (socket, name) = self.bound(STREAM);
        self.guest.simple(Op::Listen, socket, |call| call.first = 8).expect("listens");
        (socket, name)
    }

    /// A connection: the guest's end and the test's end.
    fn connected(&mut self) -> (u32, TcpStream) {
        let (listener, name) = self.listening();
        let client = TcpStream::connect(name).expect("connected");
        client.set_read_timeout(Some(LIMIT)).expect("a limit");
        self.guest.wait(listener, PollFlags::IN).expect("ready");
        let accepted = self.guest.simple(Op::Accept, listener, |_| ()).expect("accepted");
        assert_eq!(accepted.address, client.local_addr().ok());
        (accepted.socket, client)
    }
}

fn kind<T>(result: std::io::Result<T>) -> ErrorKind {
    result.err().expect("an error").kind()
}

fn code<T>(result: std::io::Result<T>) -> i32 {
    result.err().expect("an error").raw_os_error().expect("of the kernel")
}

#[test]
fn a_datagram_comes_with_its_sender_and_its_answer_goes_there() {
    let mut lab = lab_with(policy(&["bind udp 127.0.0.1:0"]));
    let (socket, name) = lab.bound(DATAGRAM);
    let client = UdpSocket::bind(loopback(0)).expect("a client");
    client.set_read_timeout(Some(LIMIT)).expect("a limit");
    assert_eq!(kind(lab.guest.receive(socket, 100, 0)), ErrorKind::WouldBlock);
    client.send_to(b"ping", name).expect("sent");
    assert_eq!(lab.event(), Some(socket));
    assert!(lab.guest.ready(socket).contains(PollFlags::IN), "an event comes after the change");
    let (data, answer) = lab.guest.receive(socket, 100, libc::MSG_PEEK).expect("peeked");
    assert_eq!((&data[..], answer.result), (&b"ping"[..], 4));
    let (data, answer) = lab.guest.receive(socket, 2, libc::MSG_TRUNC).expect("received");
    assert_eq!((&data[..], answer.result, answer.flags as i32), (&b"pi"[..], 4, libc::MSG_TRUNC));
    assert!(!lab.guest.ready(socket).contains(PollFlags::IN), "the last datagram was taken");
    assert_eq!(lab.guest.event(), None, "one event for one datagram");
    assert_eq!(lab.guest.send(socket, b"pong", answer.address).expect("answered"), 4);
    let mut received = [0; 10];
    let (bytes, from) = client.recv_from(&mut received).expect("an answer");
    assert_eq!((&received[..bytes], from), (&b"pong"[..], name));
}

#[test]
fn calls_without_a_rule_are_refused() {
    let mut lab = lab_with(policy(&["bind udp 127.0.0.1:0", "connect tcp 127.0.0.1:1"]));
    let own = TcpListener::bind(loopback(0)).expect("a listener");
    let port = own.local_addr().expect("a name").port();
    let stream = lab.guest.socket(STREAM).expect("a socket");
    assert_eq!(code(lab.guest.bind(stream, loopback(0))), libc::EACCES);
    assert_eq!(code(lab.guest.simple(Op::Listen, stream, |call| call.first = 1)), libc::EACCES);
    let connect = |lab: &mut Lab, to| lab.guest.simple(Op::Connect, stream, |call| call.address = Some(to));
    assert_eq!(code(connect(&mut lab, loopback(port))), libc::EPERM);
    let nobody = at(Ipv4Addr::UNSPECIFIED, port);
    assert_eq!(code(connect(&mut lab, nobody)), libc::EPERM, "0.0.0.0 is this host");
    let datagram = lab.guest.socket(DATAGRAM).expect("a socket");
    assert_eq!(code(lab.guest.bind(datagram, at(Ipv4Addr::UNSPECIFIED, 0))), libc::EACCES);
    assert_eq!(code(lab.guest.bind(datagram, loopback(9))), libc::EACCES);
    assert_eq!(code(lab.guest.send(datagram, b"x", Some(loopback(port)))), libc::EPERM);
    own.set_nonblocking(true).expect("no waiting");
    assert_eq!(kind(own.accept()), ErrorKind::WouldBlock, "no connection came");
    let counts = lab.server.take().expect("a server").stop();
    assert_eq!(counts.refused, 7);
}

/// A new IPv6 socket.
fn ipv6(lab: &mut Lab, kind: i32) -> u32 {
    let made = lab.guest.simple(Op::Socket, 0, |call| (call.first, call.second) = (kind as u32, 6));
    made.expect("a socket").socket
}

fn connect(lab: &mut Lab, socket: u32, to: SocketAddr) -> std::io::Result<()> {
    lab.guest.simple(Op::Connect, socket, |call| call.address = Some(to)).map(drop)
}

#[test]
fn datagrams_of_ipv6_have_their_addresses() {
    let mut lab = lab_with(policy(&["bind udp [::1]:0"]));
    let socket = ipv6(&mut lab, DATAGRAM);
    lab.guest.bind(socket, at(Ipv6Addr::LOCALHOST, 0)).expect("bound");
    let name = lab.guest.simple(Op::Name, socket, |_| ()).expect("a name").address.expect("an address");
    assert_eq!(name.ip(), IpAddr::from(Ipv6Addr::LOCALHOST));
    let client = UdpSocket::bind(at(Ipv6Addr::LOCALHOST, 0)).expect("a client");
    client.set_read_timeout(Some(LIMIT)).expect("a limit");
    client.send_to(b"ping", name).expect("sent");
    lab.guest.wait(socket, PollFlags::IN).expect("ready");
    let from = lab.guest.receive(socket, 100, 0).expect("received").1.address;
    assert_eq!(from, client.local_addr().ok());
    lab.guest.send(socket, b"pong", from).expect("answered");
    assert_eq!(client.recv_from(&mut [0; 9]).expect("an answer"), (4, name));
    assert_eq!(code(lab.guest.send(socket, b"x", Some(at(Ipv6Addr::LOCALHOST, 9)))), libc::EPERM);
}

#[test]
fn a_socket_of_both_families_serves_both_and_needs_a_rule_for_each() {
    let any = at(Ipv6Addr::UNSPECIFIED, 0);
    let mut lab = lab_with(policy(&["bind tcp [::]:0", "bind udp [::]:0", "bind udp 0.0.0.0:0"]));
    let stream = ipv6(&mut lab, STREAM);
    assert_eq!(code(lab.guest.bind(stream, any)), libc::EACCES, "it would take IPv4 connections");
    assert_eq!(code(lab.guest.simple(Op::Listen, stream, |call| call.first = 1)), libc::EACCES);
    let mut only = request(Op::SetOption, stream);
    (only.first, only.second, only.length) = (libc::IPPROTO_IPV6 as u32, libc::IPV6_V6ONLY as u32, 4);
    assert_eq!(lab.guest.call(&only, &1i32.to_ne_bytes()).expect("answered").0.result, 0);
    lab.guest.bind(stream, any).expect("IPv6 alone is allowed");
    let both = ipv6(&mut lab, DATAGRAM);
    lab.guest.bind(both, any).expect("bound");
    let name = lab.guest.simple(Op::Name, both, |_| ()).expect("a name").address.expect("an address");
    let client = UdpSocket::bind(loopback(0)).expect("a client");
    client.send_to(b"ping", loopback(name.port())).expect("sent");
    lab.guest.wait(both, PollFlags::IN).expect("ready");
    let from = lab.guest.receive(both, 100, 0).expect("received").1.address.expect("an address");
    let mapped = Ipv4Addr::LOCALHOST.to_ipv6_mapped();
    assert_eq!(from, at(mapped, client.local_addr().expect("a name").port()));
    lab.guest.send(both, b"pong", Some(from)).expect("answered");
}

#[test]
fn no_family_reaches_what_the_rules_of_the_other_do_not_name() {
    let own = TcpListener::bind(loopback(0)).expect("a listener");
    let port = own.local_addr().expect("a name").port();
    let (mapped, nobody) = (Ipv4Addr::LOCALHOST.to_ipv6_mapped(), Ipv4Addr::UNSPECIFIED.to_ipv6_mapped());
    let mut lab = lab_with(policy(&[
        "connect tcp [::]/0:0-65535",
        "connect udp [::]/0:0-65535",
        "bind tcp [::]/0:0",
        "bind tcp 127.0.0.2:0",
        "bind udp 127.0.0.2:0",
    ]));
    let stream = ipv6(&mut lab, STREAM);
    for ip in [mapped, nobody] {
        assert_eq!(code(connect(&mut lab, stream, at(ip, port))), libc::EPERM);
        assert_eq!(code(lab.guest.bind(stream, at(ip, 0))), libc::EACCES);
    }
    let datagram = ipv6(&mut lab, DATAGRAM);
    for ip in [mapped.into(), nobody.into(), IpAddr::from(Ipv4Addr::LOCALHOST)] {
        assert_eq!(code(connect(&mut lab, datagram, at(ip, port))), libc::EPERM);
        assert_eq!(code(lab.guest.send(datagram, b"x", Some(at(ip, port)))), libc::EPERM);
    }
    // On a socket bound to an IPv4 address, the destination `::` is IPv4 loopback.
    let bound = ipv6(&mut lab, STREAM);
    lab.guest.bind(bound, at(Ipv4Addr::new(127, 0, 0, 2).to_ipv6_mapped(), 0)).expect("bound");
    assert_eq!(code(connect(&mut lab, bound, at(Ipv6Addr::UNSPECIFIED, port))), libc::EPERM);
    assert_eq!(code(connect(&mut lab, stream, loopback(port))), libc::EAFNOSUPPORT, "as natively");
    own.set_nonblocking(true).expect("no waiting");
    assert_eq!(kind(own.accept()), ErrorKind::WouldBlock, "no connection came");
}

#[test]
fn nobodys_address_is_the_one_of_a_socket_that_is_bound() {
    let own = TcpListener::bind(at(Ipv4Addr::new(127, 0, 0, 2), 0)).expect("a listener");
    let port = own.local_addr().expect("a name").port();
    let mut lab = lab_with(policy(&["bind tcp 127.0.0.2:0", "connect tcp 127.0.0.1:0-65535"]));
    let stream = lab.guest.socket(STREAM).expect("a socket");
    lab.guest.bind(stream, at(Ipv4Addr::new(127, 0, 0, 2), 0)).expect("bound");
    assert_eq!(code(connect(&mut lab, stream, at(Ipv4Addr::UNSPECIFIED, port))), libc::EPERM);
}

#[test]
fn only_peers_that_wrote_to_the_socket_may_be_answered() {
    let mut lab = lab_with(policy(&["bind udp 127.0.0.1:0"]));
    let (socket, name) = lab.bound(DATAGRAM);
    let (other, _) = lab.bound(DATAGRAM);
    let client = UdpSocket::bind(loopback(0)).expect("a client");
    client.send_to(b"ping", name).expect("sent");
    lab.guest.wait(socket, PollFlags::IN).expect("ready");
    let from = lab.guest.receive(socket, 100, 0).expect("received").1.address;
    assert_eq!(code(lab.guest.send(other, b"x", from)), libc::EPERM, "it wrote to another socket");
    assert!(lab.guest.send(socket, b"x", from).is_ok());
}

#[test]
fn a_server_accepts_echoes_and_sees_the_end() {
    let mut lab = lab();
    let (socket, mut client) = lab.connected();
    client.write_all(b"hello").expect("sent");
    lab.guest.wait(socket, PollFlags::IN).expect("ready");
    let (data, _) = lab.guest.receive(socket, 100, 0).expect("received");
    assert_eq!(lab.guest.send(socket, &data, None).expect("sent"), 5);
    let mut received = [0; 5];
    client.read_exact(&mut received).expect("echoed");
    assert_eq!(&received, b"hello");
    client.shutdown(std::net::Shutdown::Write).expect("half closed");
    lab.guest.wait(socket, PollFlags::RDHUP).expect("half closed");
    assert_eq!(lab.guest.receive(socket, 100, 0).expect("an end").1.result, 0);
    assert_eq!(lab.guest.send(socket, b"still", None).expect("the other half"), 5);
    lab.guest.simple(Op::Close, socket, |_| ()).expect("closed");
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).expect("the end");
    assert_eq!(rest, b"still");
}

#[test]
fn a_full_stream_becomes_writable_again_by_an_event() {
    let mut lab = lab();
    let (socket, mut client) = lab.connected();
    let block = vec![7; layout::DATA_BYTES as usize];
    let mut sent = 0;
    let full = loop {
        match lab.guest.send(socket, &block, None) {
            Ok(bytes) => sent += bytes,
            Err(error) => break error,
        }
    };
    assert_eq!(full.kind(), ErrorKind::WouldBlock);
    assert!(!lab.guest.ready(socket).contains(PollFlags::OUT));
    let reader = std::thread::spawn(move || {
        let mut received = vec![0; sent];
        client.read_exact(&mut received).map(|()| received.iter().all(|byte| *byte == 7))
    });
    lab.guest.wait(socket, PollFlags::OUT).expect("writable again");
    assert!(reader.join().expect("read").expect("everything came"));
}

#[test]
fn a_non_blocking_connection_succeeds_or_reports_its_error() {
    let mut lab = lab();
    let own = TcpListener::bind(loopback(0)).expect("a listener");
    let port = own.local_addr().expect("a name").port();
    let connect = |lab: &mut Lab, port| {
        let socket = lab.guest.socket(STREAM).expect("a socket");
        let done = lab.guest.simple(Op::Connect, socket, |call| call.address = Some(loopback(port)));
        if let Err(error) = done {
            assert_eq!(error.raw_os_error(), Some(libc::EINPROGRESS));
        }
        lab.guest.wait(socket, PollFlags::OUT | PollFlags::HUP).expect("decided");
        socket
    };
    let socket = connect(&mut lab, port);
    let peer = lab.guest.simple(Op::Peer, socket, |_| ()).expect("a peer").address;
    assert_eq!(peer, Some(loopback(port)));
    drop(own);
    let socket = connect(&mut lab, port);
    let error = lab.guest.shared.load(layout::ERROR_AT + socket * 4);
    assert_eq!(error as i32, libc::ECONNREFUSED);
}

#[test]
fn options_are_set_where_the_list_has_them() {
    let mut lab = lab();
    let socket = lab.guest.socket(STREAM).expect("a socket");
    let mut set = |level: i32, option: i32, value: i32| {
        let mut call = request(Op::SetOption, socket);
        (call.first, call.second, call.length) = (level as u32, option as u32, 4);
        let answer = lab.guest.call(&call, &value.to_ne_bytes()).expect("answered").0.result;
        call.op = Some(Op::GetOption);
        let (read, data) = lab.guest.call(&call, &[]).expect("answered");
        (answer, read.result, data)
    };
    assert_eq!(set(libc::IPPROTO_TCP, libc::TCP_NODELAY, 1), (0, 0, 1i32.to_ne_bytes().to_vec()));
    let refused = -libc::ENOPROTOOPT;
    assert_eq!(set(libc::SOL_SOCKET, libc::SO_MARK, 1), (refused, refused, vec![]));
    assert_eq!(set(libc::SOL_SOCKET, libc::SO_BINDTODEVICE, 1), (refused, refused, vec![]));
}

#[test]
fn sockets_that_reuse_a_port_share_it() {
    let mut lab = lab();
    let bind = |lab: &mut Lab, port, set| {
        let socket = lab.guest.socket(DATAGRAM).expect("a socket");
        let done = lab.guest.simple(Op::Bind, socket, |call| {
            call.address = Some(loopback(port));
            call.options = set;
        });
        done.map(|_| {
            let name = lab.guest.simple(Op::Name, socket, |call| call.options = set);
            name.expect("a name").address.expect("an address").port()
        })
    };
    let port = bind(&mut lab, 0, options::REUSE_PORT).expect("bound");
    assert_eq!(bind(&mut lab, port, options::REUSE_PORT).expect("bound"), port);
    assert_eq!(code(bind(&mut lab, port, 0)), libc::EADDRINUSE);
}

/// All servers are one user to Linux, which would let both have it.
#[test]
fn a_port_of_one_vm_is_no_other_ones_whatever_options_they_set() {
    let (mut first, mut second) = (lab(), lab());
    let bind = |lab: &mut Lab, kind, port, set| {
        let socket = lab.guest.socket(kind).expect("a socket");
        let bound = lab.guest.simple(Op::Bind, socket, |call| {
            (call.address, call.options) = (Some(loopback(port)), set);
        });
        let name = |lab: &mut Lab| {
            let name = lab.guest.simple(Op::Name, socket, |call| call.options = set).expect("a name");
            name.address.expect("an address").port()
        };
        bound.map(|_| (socket, name(lab)))
    };
    let both = options::REUSE_PORT | options::REUSE_ADDRESS;
    for kind in [DATAGRAM, STREAM] {
        for set in [options::REUSE_PORT, options::REUSE_ADDRESS, both] {
            let (socket, port) = bind(&mut first, kind, 0, set).expect("bound");
            assert_eq!(code(bind(&mut second, kind, port, set)), libc::EADDRINUSE, "{kind} {set}");
            let again = bind(&mut first, kind, port, set).expect("its own").0;
            for socket in [socket, again] {
                first.guest.simple(Op::Close, socket, |call| call.options = set).expect("closed");
            }
            assert_eq!(bind(&mut second, kind, port, set).expect("it is free").1, port);
        }
    }
}

#[test]
fn a_lingering_close_does_not_block_the_server() {
    let mut lab = lab();
    let (socket, client) = lab.connected();
    let block = vec![7; layout::DATA_BYTES as usize];
    while lab.guest.send(socket, &block, None).is_ok() {}
    let start = Instant::now();
    let close = |call: &mut punctual_sockets::call::Call| {
        (call.options, call.linger) = (options::LINGER, 60);
    };
    lab.guest.simple(Op::Close, socket, close).expect("closed");
    assert!(start.elapsed() < LIMIT, "the server waited for a client that does not read");
    drop(client);
}

#[test]
fn there_are_no_more_sockets_than_the_file_says() {
    let mut lab = lab_with(Sockets { sockets_max: 3, ..policy(&["bind tcp 127.0.0.1:0"]) });
    let (listener, name) = lab.listening();
    let others = [lab.guest.socket(DATAGRAM).expect("one"), lab.guest.socket(DATAGRAM).expect("two")];
    assert_eq!(code(lab.guest.socket(STREAM)), libc::ENFILE);
    let _client = TcpStream::connect(name).expect("connected");
    lab.guest.wait(listener, PollFlags::IN).expect("ready");
    assert_eq!(code(lab.guest.simple(Op::Accept, listener, |_| ())), libc::ENFILE);
    lab.guest.simple(Op::Close, others[0], |_| ()).expect("closed");
    assert!(lab.guest.simple(Op::Accept, listener, |_| ()).is_ok(), "the connection waited");
}

#[test]
fn calls_are_held_up_at_the_rate_of_the_file() {
    let mut lab = lab_with(Sockets { calls_per_second: Some(1000), ..policy(&["bind udp 127.0.0.1:0"]) });
    let socket = lab.guest.socket(DATAGRAM).expect("a socket");
    let start = Instant::now();
    for _ in 0..264 {
        let _ = lab.guest.receive(socket, 1, 0);
    }
    assert!(
        start.elapsed() >= Duration::from_millis(195),
        "200 calls beyond the burst took {:?}",
        start.elapsed()
    );
    assert!(lab.server.take().expect("a server").stop().held_up > 0);
}

#[test]
fn a_guest_that_is_killed_has_no_sockets_left() {
    let mut lab = lab();
    let (listener, name) = lab.listening();
    let mut client = TcpStream::connect(name).expect("connected");
    client.set_read_timeout(Some(LIMIT)).expect("a limit");
    lab.guest.wait(listener, PollFlags::IN).expect("ready");
    lab.guest.simple(Op::Accept, listener, |_| ()).expect("accepted");
    let Lab { guest, events, socket, _directory, server } = lab;
    let start = Instant::now();
    drop(guest);
    assert_eq!(client.read(&mut [0; 1]).expect("closed"), 0);
    assert_eq!(events.recv_timeout(LIMIT), Ok(Event::Disconnected(2)));
    assert!(start.elapsed() < Duration::from_secs(1), "it took {:?}", start.elapsed());
    assert_eq!(kind(TcpStream::connect(name)), ErrorKind::ConnectionRefused);
    let mut next = FrontEnd::connect(&socket).expect("the next guest");
    assert!(next.socket(STREAM).is_ok());
    drop((server, _directory));
}

#[test]
fn a_guest_that_starts_again_has_no_sockets_left() {
    let mut lab = lab();
    let (_, name) = lab.listening();
    lab.guest.call(&request(Op::Hello, 0), &[]).expect("hello");
    assert_eq!(kind(TcpStream::connect(name)), ErrorKind::ConnectionRefused);
    assert_eq!(lab.guest.shared.load(layout::EPOCH_AT), 2);
}

#[test]
fn a_server_that_stops_sets_the_status_and_closes_everything() {
    let mut lab = lab();
    let (_, name) = lab.listening();
    lab.server.take().expect("a server").stop();
    assert_eq!(lab.guest.shared.load(layout::STATUS_AT), layout::STATUS_GONE);
    assert_eq!(kind(lab.guest.call(&request(Op::Hello, 0), &[])), ErrorKind::ConnectionReset);
    lab.guest.wait_disconnected().expect("the connection is closed");
    assert_eq!(kind(TcpStream::connect(name)), ErrorKind::ConnectionRefused);
    assert!(!lab.socket.exists(), "the server's socket is left");
}

#[test]
fn the_next_server_serves_the_same_vm_whose_sockets_before_are_gone() {
    let directory = tempfile::tempdir().expect("a directory");
    let (socket, record) = (directory.path().join("vm.sock"), directory.path().join("vm.vm"));
    let start = || {
        let config = config(&socket, policy(&["bind udp 127.0.0.1:0"]));
        Server::start_resuming(config, Some(record.clone())).expect("a server")
    };
    let (server, events) = start();
    let mut guest = FrontEnd::connect(&socket).expect("a guest");
    assert_eq!(events.recv_timeout(LIMIT), Ok(Event::Connected));
    let lost = guest.socket(DATAGRAM).expect("a socket");
    guest.bind(lost, loopback(0)).expect("bound");
    server.stop();
    let (_server, events) = start();
    assert_eq!(events.recv_timeout(LIMIT), Ok(Event::Resumed));
    assert_eq!(guest.shared.load(layout::STATUS_AT), layout::STATUS_SERVING);
    assert_eq!(guest.shared.load(layout::INCARNATION_AT), 2);
    assert_eq!(code(guest.receive(lost, 1, 0)), libc::ECONNRESET, "no hello yet");
    guest.call(&request(Op::Hello, 0), &[]).expect("hello");
    assert_eq!(code(guest.receive(lost, 1, 0)), libc::EBADF);
    let own = guest.socket(DATAGRAM).expect("a socket");
    guest.bind(own, loopback(0)).expect("bound");
    let name = guest.simple(Op::Name, own, |_| ()).expect("a name").address.expect("an address");
    UdpSocket::bind(loopback(0)).expect("a client").send_to(b"ping", name).expect("sent");
    guest.wait(own, PollFlags::IN).expect("ready, by the interrupt of the server before");
    assert_eq!(guest.receive(own, 100, 0).expect("received").0, b"ping");
}

#[test]
fn a_record_of_a_vm_that_has_ended_is_forgotten() {
    let directory = tempfile::tempdir().expect("a directory");
    let (socket, record) = (directory.path().join("vm.sock"), directory.path().join("vm.vm"));
    for text in
        ["1 1 1 1 1 2 3 4 5 6 7 8\n", "4194304 5 6 7 8 9 10 11 12 13 14 15\n", "1 1 1 1 1\n", "nonsense", ""]
    {
        std::fs::write(&record, text).expect("written");
        let config = config(&socket, Sockets::default());
        let (server, events) = Server::start_resuming(config, Some(record.clone())).expect("a server");
        let guest = FrontEnd::connect(&socket).expect("a guest");
        assert_eq!(events.recv_timeout(LIMIT), Ok(Event::Connected), "{text}");
        drop(guest);
        assert!(matches!(events.recv_timeout(LIMIT), Ok(Event::Disconnected(0))));
        server.stop();
        assert!(!record.exists(), "{text}");
    }
}

#[test]
fn a_network_namespace_that_is_not_there_is_an_error() {
    let directory = tempfile::tempdir().expect("a directory");
    let policy = Sockets { netns: Some("there is none".into()), ..Sockets::default() };
    let socket = directory.path().join("vm.sock");
    let error = Server::start(config(&socket, policy)).expect_err("an error");
    assert_eq!(error.to_string(), "cannot use the network namespace there is none");
    assert!(!socket.exists());
}

/// A network namespace that is removed on drop.
struct Namespace(String);

impl Namespace {
    /// `None` where the test may not make one.
    fn new() -> Option<Self> {
        let name = format!("punctual-test-{}", std::process::id());
        let made = Command::new("ip").args(["netns", "add", &name]).stderr(Stdio::null()).status();
        made.is_ok_and(|status| status.success()).then_some(Namespace(name))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "delete", &self.0]).status();
    }
}

#[test]
fn sockets_are_in_the_network_namespace_of_the_file() {
    let Some(namespace) = Namespace::new() else {
        eprintln!("skipped: no network namespace can be made here");
        return;
    };
    let own = TcpListener::bind(loopback(0)).expect("a listener");
    let rules = policy(&["connect tcp 127.0.0.1:0-65535"]);
    let mut lab = lab_with(Sockets { netns: Some(namespace.0.clone()), ..rules });
    let stream = lab.guest.socket(STREAM).expect("a socket");
    let to = own.local_addr().expect("a name");
    assert_eq!(code(connect(&mut lab, stream, to)), libc::ENETUNREACH, "nothing is up in a new namespace");
}

#[test]
fn one_monitor_at_a_time() {
    let lab = lab();
    assert!(FrontEnd::connect(&lab.socket).is_err());
    assert_eq!(lab.events.recv_timeout(LIMIT), Ok(Event::Refused));
}

#[test]
fn a_guest_that_lies_about_its_ring_is_not_served_and_the_next_one_is() {
    let (slots, last) = (layout::QUEUE_SLOTS, layout::QUEUES - 1);
    for (queue, more, slot, broken) in [
        (0, slots + 1, 0, RingError::TooManySubmissions(slots + 1)),
        (0, 1, slots, RingError::WrongSlot(slots)),
        (last, slots + 1, layout::SLOTS - 1, RingError::TooManySubmissions(slots + 1)),
        (last, 1, 0, RingError::WrongSlot(0)),
        (last, 1, layout::SLOTS, RingError::WrongSlot(layout::SLOTS)),
    ] {
        let mut lab = lab();
        let (_, name) = lab.listening();
        // The head depends on the calls that the guest made before.
        let head = in_queue(queue, place::SUBMISSION_HEAD);
        let submitted = lab.guest.shared.load(head);
        lab.guest.shared.store(in_queue(queue, place::SUBMISSIONS + submitted % slots * 4), slot);
        lab.guest.shared.store(head, submitted + more);
        lab.guest.ring().expect("rung");
        assert_eq!(lab.events.recv_timeout(LIMIT), Ok(Event::InvalidRing(broken)));
        assert_eq!(kind(TcpStream::connect(name)), ErrorKind::ConnectionRefused);
        drop(lab.guest);
        assert_eq!(lab.events.recv_timeout(LIMIT), Ok(Event::Disconnected(0)));
        assert!(FrontEnd::connect(&lab.socket).is_ok());
    }
}

#[test]
fn an_event_interrupts_the_processor_that_waits_and_goes_to_no_other() {
    let mut lab = lab();
    let (socket, name) = lab.bound(DATAGRAM);
    for queue in [layout::QUEUES - 1, 0, 3] {
        let heads = |lab: &Lab| {
            let head = |queue| lab.guest.shared.load(in_queue(queue, place::EVENT_HEAD));
            (0..layout::QUEUES).map(head).collect::<Vec<_>>()
        };
        let mut expected = heads(&lab);
        expected[queue as usize] += 1;
        lab.guest.shared.store(layout::HOME_AT + socket * 4, queue);
        let client = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            let client = UdpSocket::bind(loopback(0)).expect("a client");
            client.send_to(b"ping", name).expect("sent");
        });
        lab.guest.wait_on(queue, socket, PollFlags::IN).expect("ready, by the interrupt of that processor");
        client.join().expect("sent");
        lab.guest.receive(socket, 100, 0).expect("received");
        // The ready word is written before the event.
        let start = Instant::now();
        while heads(&lab) != expected && start.elapsed() < LIMIT {
            std::thread::yield_now();
        }
        assert_eq!(heads(&lab), expected);
    }
}

#[test]
fn a_server_polls_during_a_service_and_sleeps_when_it_has_its_answer() {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("vm.sock");
    let poll = punctual_sched::Duration::from_secs(600);
    let config = Config { poll, ..config(&socket, policy(&["bind udp 127.0.0.1:0"])) };
    let (server, events) = Server::start(config).expect("a server");
    let guest = FrontEnd::connect(&socket).expect("a guest");
    let mut lab = Lab { _directory: directory, socket, server: Some(server), events, guest };
    let (own, name) = lab.bound(DATAGRAM);
    let client = UdpSocket::bind(loopback(0)).expect("a client");
    for _ in 0..3 {
        client.send_to(b"ping", name).expect("sent");
        lab.guest.wait(own, PollFlags::IN).expect("ready");
        let from = lab.guest.receive(own, 100, 0).expect("received").1.address;
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(lab.guest.shared.load(layout::HOST_SLEEPING_AT), 0, "it waits for the doorbell");
        lab.guest.send(own, b"pong", from).expect("answered");
        let start = Instant::now();
        while lab.guest.shared.load(layout::HOST_SLEEPING_AT) == 0 {
            assert!(start.elapsed() < LIMIT, "it still polls");
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_home_beyond_the_queues_is_harmless() {
    let mut lab = lab();
    let (socket, name) = lab.bound(DATAGRAM);
    let client = UdpSocket::bind(loopback(0)).expect("a client");
    lab.guest.shared.store(layout::HOME_AT + socket * 4, u32::MAX);
    client.send_to(b"ping", name).expect("sent");
    let ready = || lab.guest.ready(socket).contains(PollFlags::IN);
    let start = Instant::now();
    while !ready() && start.elapsed() < LIMIT {
        std::thread::yield_now();
    }
    assert_eq!(lab.guest.receive(socket, 100, 0).expect("received").0, b"ping");
}

#[test]
fn a_guest_of_another_version_is_reported() {
    let lab = lab();
    lab.guest.shared.store(layout::GUEST_VERSION_AT, layout::VERSION + 1);
    lab.guest.ring().expect("rung");
    assert_eq!(lab.events.recv_timeout(LIMIT), Ok(Event::OtherVersion(layout::VERSION + 1)));
}

#[test]
fn ten_thousand_connections_come_and_go() {
    let mut lab = lab();
    let (listener, name) = lab.listening();
    for _ in 0..10_000 {
        let client = TcpStream::connect(name).expect("connected");
        // The client resets, so that no port stays in TIME-WAIT.
        rustix::net::sockopt::set_socket_linger(&client, Some(Duration::ZERO)).expect("set");
        lab.guest.wait(listener, PollFlags::IN).expect("ready");
        let accepted = lab.guest.simple(Op::Accept, listener, |_| ()).expect("accepted").socket;
        lab.guest.simple(Op::Close, accepted, |_| ()).expect("closed");
    }
    assert!(lab.server.take().expect("a server").stop().sockets_most <= 2);
}
