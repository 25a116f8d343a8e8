//! A guest's sockets on the host, and the calls that are made for them.

use std::collections::{HashSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use punctual_model::sockets::{Action, Protocol, Sockets};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, Shutdown, SocketAddrAny, SocketFlags, SocketType};

use crate::call::{Answer, Call, Op, options};
use crate::layout;
use crate::memory::Shared;
use crate::queue::{HostQueues, Words};
use crate::segments::{Open, Segments, since};
use crate::stats::Counts;
use crate::sys;

/// Flags of `send` that a guest may give.
const SEND_FLAGS: i32 = libc::MSG_MORE;
/// Flags of `recv` that a guest may give.
const RECEIVE_FLAGS: i32 = libc::MSG_PEEK | libc::MSG_TRUNC;
/// Connections that may wait for `accept`; the kernel's `net.core.somaxconn` may say less.
const BACKLOG_MAX: u32 = 4096;
/// A datagram socket may answer this many peers that wrote to it last.
const PEERS_MAX: usize = 1024;
/// Bytes of an option's value.
const OPTION_BYTES: usize = 256;

/// Options that a guest may set and read.
const OPTIONS: [(i32, i32); 18] = [
    (libc::IPPROTO_TCP, libc::TCP_NODELAY),
    (libc::IPPROTO_TCP, libc::TCP_CORK),
    (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE),
    (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL),
    (libc::IPPROTO_TCP, libc::TCP_KEEPCNT),
    (libc::IPPROTO_TCP, libc::TCP_QUICKACK),
    (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT),
    (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT),
    (libc::IPPROTO_TCP, libc::TCP_MAXSEG),
    (libc::IPPROTO_IP, libc::IP_TOS),
    (libc::IPPROTO_IP, libc::IP_TTL),
    (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
    (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY),
    (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
    (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS),
    (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER),
    (libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG),
    (libc::SOL_SOCKET, libc::SO_RCVLOWAT),
];
/// Options that a guest may only read.
const READ_ONLY: [(i32, i32); 5] = [
    (libc::IPPROTO_TCP, libc::TCP_INFO),
    (libc::IPPROTO_TCP, libc::TCP_CONGESTION),
    (libc::SOL_SOCKET, libc::SO_ERROR),
    (libc::IPPROTO_IP, libc::IP_MTU),
    (libc::IPPROTO_IPV6, libc::IPV6_MTU),
];

/// Peers that wrote to a datagram socket.
#[derive(Debug, Default)]
struct Peers {
    order: VecDeque<SocketAddr>,
    set: HashSet<SocketAddr>,
}

impl Peers {
    fn insert(&mut self, peer: SocketAddr) {
        let peer = canonical(peer);
        if !self.set.insert(peer) {
            return;
        }
        self.order.push_back(peer);
        if self.order.len() > PEERS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.set.remove(&oldest);
        }
    }
}

/// A socket.
#[derive(Debug)]
struct Socket {
    fd: OwnedFd,
    protocol: Protocol,
    is_ipv6: bool,
    /// What was set of [`options`].
    options: u32,
    is_bound: bool,
    /// Is epoll told that the socket is to become writable?
    wants_output: bool,
    /// Tells this socket from others that had its number before.
    generation: u32,
    /// When the guest was told of something that it has not received yet.
    told: Option<Instant>,
    peers: Peers,
}

/// A guest's sockets.
#[derive(Debug)]
pub struct Table {
    policy: Sockets,
    epoll: Arc<OwnedFd>,
    sockets: Vec<Option<Socket>>,
    free: Vec<u32>,
    generation: u32,
    /// Has the guest said hello?
    is_greeted: bool,
    /// Requests that the guest has not answered yet.
    open: Open,
}

/// A call that was made.
#[derive(Clone, Copy, Debug)]
pub struct Served {
    /// The queue whose interrupt the guest wants.
    pub interrupt: Option<u32>,
    /// It sent something: a service has its answer.
    pub has_sent: bool,
}

type Done = Result<Answer, Errno>;

fn result(value: usize) -> Answer {
    Answer { result: i32::try_from(value).unwrap_or(i32::MAX), ..Answer::default() }
}

fn named(address: SocketAddr) -> Answer {
    Answer { address: Some(address), ..Answer::default() }
}

fn errno(error: &std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)
}

fn of_any(address: SocketAddrAny) -> Result<SocketAddr, Errno> {
    SocketAddr::try_from(address).map_err(|_| Errno::AFNOSUPPORT)
}

/// An IPv4 address that an IPv6 socket names is that IPv4 address.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

impl Table {
    /// No sockets yet; they will be watched by `epoll`.
    pub fn new(policy: Sockets, epoll: Arc<OwnedFd>) -> Self {
        let count = policy.sockets_max.min(layout::SOCKETS);
        let sockets = (0..count).map(|_| None).collect();
        Table {
            policy,
            epoll,
            sockets,
            free: (0..count).rev().collect(),
            generation: 0,
            is_greeted: false,
            open: Open::default(),
        }
    }

    /// Closes all sockets.
    pub fn clear(&mut self) {
        for id in 0..self.sockets.len() {
            self.remove(id as u32);
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.sockets.len() - self.free.len()
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes the call of a slot and answers it.
    pub fn serve(
        &mut self,
        shared: &Shared,
        queues: &mut HostQueues,
        slot: u32,
        (counts, segments): (&mut Counts, &mut Segments),
    ) -> Served {
        let taken = Instant::now();
        let call = Call::read(shared, slot);
        counts.calls += 1;
        let answer = self.make(&call, shared, slot, counts).unwrap_or_else(|error| {
            counts.refused += u64::from(error == Errno::PERM || error == Errno::ACCESS);
            Answer { result: -error.raw_os_error(), ..Answer::default() }
        });
        let changes =
            !matches!(call.op, Some(Op::Close | Op::Name | Op::Peer | Op::SetOption | Op::GetOption));
        if changes {
            self.refresh(shared, queues, call.socket);
        }
        if matches!(call.op, Some(Op::Socket | Op::Accept)) && answer.result >= 0 {
            // Of the one that had this number before.
            shared.store(layout::ERROR_AT + answer.socket * 4, 0);
            self.refresh(shared, queues, answer.socket);
            counts.sockets_most = counts.sockets_most.max(self.len() as u64);
        }
        answer.write(shared, slot);
        let interrupt = queues.complete(shared, slot);
        self.stamp(&call, &answer, taken, segments);
        Served { interrupt, has_sent: call.op == Some(Op::Send) && answer.result >= 0 }
    }

    /// Notes when a datagram went to the guest, and when its answer was sent.
    fn stamp(&mut self, call: &Call, answer: &Answer, taken: Instant, segments: &mut Segments) {
        let socket = self.sockets.get_mut(call.socket as usize).and_then(Option::as_mut);
        let Some(socket) = socket.filter(|_| answer.result >= 0) else { return };
        if socket.protocol != Protocol::Udp {
            return;
        }
        match (call.op, answer.address, call.address) {
            (Some(Op::Receive), Some(from), _) if call.flags as i32 & libc::MSG_PEEK == 0 => {
                let waited = sys::age(socket.fd.as_fd());
                let wake = socket.told.take().map(|told| since(told, taken));
                segments.received(&mut self.open, call.socket, from, waited, wake);
            }
            (Some(Op::Send), _, Some(to)) => {
                segments.sent(&mut self.open, call.socket, to, taken);
            }
            _ => {}
        }
    }

    /// Something happened to the socket that `epoll` calls `token`. The queue whose interrupt the guest
    /// wants.
    pub fn happened(
        &mut self,
        shared: &Shared,
        queues: &mut HostQueues,
        token: u64,
        counts: &mut Counts,
    ) -> Option<u32> {
        let (id, generation) = (token as u32, (token >> 32) as u32);
        let is_same = self.get(id).is_ok_and(|socket| socket.generation == generation);
        if !is_same || !self.refresh(shared, queues, id) {
            return None;
        }
        counts.events += 1;
        if let Ok(socket) = self.get_mut(id) {
            socket.told.get_or_insert_with(Instant::now);
        }
        queues.event(shared, id)
    }

    fn get(&self, id: u32) -> Result<&Socket, Errno> {
        self.sockets.get(id as usize).and_then(Option::as_ref).ok_or(Errno::BADF)
    }

    fn get_mut(&mut self, id: u32) -> Result<&mut Socket, Errno> {
        self.sockets.get_mut(id as usize).and_then(Option::as_mut).ok_or(Errno::BADF)
    }

    fn make(&mut self, call: &Call, shared: &Shared, slot: u32, counts: &mut Counts) -> Done {
        let op = call.op.ok_or(Errno::NOSYS)?;
        match op {
            // It is about sockets of a server before this one.
            _ if !self.is_greeted && op != Op::Hello => return Err(Errno::CONNRESET),
            Op::Hello => {
                self.clear();
                self.is_greeted = true;
                let epoch = shared.load(layout::EPOCH_AT).wrapping_add(1);
                shared.store(layout::EPOCH_AT, epoch);
                return Ok(Answer::default());
            }
            Op::Socket => return self.socket(call),
            Op::Close => {
                self.get(call.socket)?;
                // A guest that closes a socket forgets it, whatever its options.
                let _ = self.apply(call);
                self.remove(call.socket);
                return Ok(Answer::default());
            }
            _ => {}
        }
        self.get(call.socket)?;
        self.apply(call)?;
        match op {
            Op::Bind => self.bind(call),
            Op::Listen => self.listen(call),
            Op::Connect => self.connect(call),
            Op::Accept => self.accept(call),
            Op::Send => self.send(call, shared, slot, counts),
            Op::Receive => self.receive(call, shared, slot, counts),
            Op::SetOption => self.set_option(call, shared, slot),
            Op::GetOption => self.option(call, shared, slot),
            _ => self.ask(op, call),
        }
    }

    fn socket(&mut self, call: &Call) -> Done {
        let (kind, protocol) = match call.first as i32 {
            libc::SOCK_STREAM => (SocketType::STREAM, Protocol::Tcp),
            libc::SOCK_DGRAM => (SocketType::DGRAM, Protocol::Udp),
            _ => return Err(Errno::PROTONOSUPPORT),
        };
        if self.free.is_empty() {
            return Err(Errno::NFILE);
        }
        let is_ipv6 = call.second == 6;
        let family = if is_ipv6 { AddressFamily::INET6 } else { AddressFamily::INET };
        let fd = net::socket_with(family, kind, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)?;
        if let Some(kib) = self.policy.buffer_kib {
            // The kernel doubles it, for its own accounts.
            let bytes = kib as usize * 512;
            net::sockopt::set_socket_send_buffer_size(&fd, bytes)?;
            net::sockopt::set_socket_recv_buffer_size(&fd, bytes)?;
        }
        self.insert(fd, protocol, is_ipv6, 0)
    }

    /// A new socket, in the smallest free number.
    fn insert(&mut self, fd: OwnedFd, protocol: Protocol, is_ipv6: bool, options: u32) -> Done {
        let id = self.free.pop().ok_or(Errno::NFILE)?;
        self.generation = self.generation.wrapping_add(1).max(1);
        let socket = Socket {
            fd,
            protocol,
            is_ipv6,
            options,
            is_bound: false,
            wants_output: false,
            generation: self.generation,
            told: None,
            peers: Peers::default(),
        };
        if let Err(error) = epoll::add(&*self.epoll, &socket.fd, data(id, &socket), events(false)) {
            self.free.push(id);
            return Err(error);
        }
        self.sockets[id as usize] = Some(socket);
        Ok(Answer { socket: id, ..Answer::default() })
    }

    fn remove(&mut self, id: u32) {
        if self.sockets.get_mut(id as usize).and_then(Option::take).is_some() {
            self.free.push(id);
        }
    }

    /// Sets what the guest's kernel keeps of a socket, where it changed.
    fn apply(&mut self, call: &Call) -> Result<(), Errno> {
        let socket = self.get_mut(call.socket)?;
        let fd = &socket.fd;
        let is_on = |bit: u32| call.options & bit != 0;
        // A close that lingers would hold up this thread: only the one that resets is made.
        if call.op == Some(Op::Close) && is_on(options::LINGER) && call.linger == 0 {
            net::sockopt::set_socket_linger(fd, Some(std::time::Duration::ZERO))?;
        }
        let changed = (socket.options ^ call.options) & options::ALL;
        if changed == 0 {
            return Ok(());
        }
        if changed & options::REUSE_ADDRESS != 0 {
            net::sockopt::set_socket_reuseaddr(fd, is_on(options::REUSE_ADDRESS))?;
        }
        if changed & options::REUSE_PORT != 0 {
            net::sockopt::set_socket_reuseport(fd, is_on(options::REUSE_PORT))?;
        }
        if changed & options::KEEP_ALIVE != 0 {
            net::sockopt::set_socket_keepalive(fd, is_on(options::KEEP_ALIVE))?;
        }
        if changed & options::BROADCAST != 0 {
            net::sockopt::set_socket_broadcast(fd, is_on(options::BROADCAST))?;
        }
        socket.options = call.options & options::ALL;
        Ok(())
    }

    fn allow(&self, action: Action, protocol: Protocol, address: SocketAddr) -> Result<(), Errno> {
        match (self.policy.allows(action, protocol, address.ip(), address.port()), action) {
            (true, _) => Ok(()),
            (false, Action::Bind) => Err(Errno::ACCESS),
            (false, Action::Connect) => Err(Errno::PERM),
        }
    }

    /// All addresses of IPv6 are all of IPv4 too, unless the socket is for IPv6 only.
    fn may_bind(&self, socket: &Socket, address: SocketAddr) -> Result<(), Errno> {
        self.allow(Action::Bind, socket.protocol, address)?;
        let is_all = address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        if is_all && !net::sockopt::ipv6_v6only(&socket.fd)? {
            let ipv4 = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port());
            self.allow(Action::Bind, socket.protocol, ipv4)?;
        }
        Ok(())
    }

    fn bind(&mut self, call: &Call) -> Done {
        let address = call.address.ok_or(Errno::INVAL)?;
        let socket = self.get(call.socket)?;
        if address.is_ipv6() != socket.is_ipv6 {
            return Err(Errno::AFNOSUPPORT);
        }
        self.may_bind(socket, address)?;
        let socket = self.get_mut(call.socket)?;
        net::bind(&socket.fd, &address)?;
        socket.is_bound = true;
        Ok(Answer::default())
    }

    fn listen(&self, call: &Call) -> Done {
        let socket = self.get(call.socket)?;
        if !socket.is_bound {
            let any: IpAddr =
                if socket.is_ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
            self.may_bind(socket, SocketAddr::new(any, 0))?;
        }
        net::listen(&socket.fd, call.first.min(BACKLOG_MAX) as i32)?;
        Ok(Answer::default())
    }

    fn connect(&self, call: &Call) -> Done {
        let socket = self.get(call.socket)?;
        let Some(address) = call.address else {
            if socket.protocol == Protocol::Tcp {
                return Err(Errno::AFNOSUPPORT);
            }
            net::connect_unspec(&socket.fd)?;
            return Ok(Answer::default());
        };
        let address = self.reachable(socket, address)?;
        net::connect(&socket.fd, &address)?;
        Ok(Answer::default())
    }

    /// Where a socket may connect or send to, as the kernel is told it.
    fn reachable(&self, socket: &Socket, address: SocketAddr) -> Result<SocketAddr, Errno> {
        let address = socket.destination(address)?;
        self.allow(Action::Connect, socket.protocol, address)
            .or_else(|error| socket.may_answer(address, error))?;
        Ok(address)
    }

    fn accept(&mut self, call: &Call) -> Done {
        let socket = self.get(call.socket)?;
        if self.free.is_empty() {
            return Err(Errno::NFILE);
        }
        let (protocol, is_ipv6, set) = (socket.protocol, socket.is_ipv6, socket.options);
        let (fd, peer) = net::acceptfrom_with(&socket.fd, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)?;
        let peer = peer.map(of_any).transpose()?;
        // Linux hands these options down from the socket that listens.
        let answer = self.insert(fd, protocol, is_ipv6, set & !options::LINGER)?;
        Ok(Answer { address: peer, ..answer })
    }

    fn send(&self, call: &Call, shared: &Shared, slot: u32, counts: &mut Counts) -> Done {
        let socket = self.get(call.socket)?;
        let data = shared.data(slot, call.length).ok_or(Errno::MSGSIZE)?;
        let to = call.address.filter(|_| socket.protocol == Protocol::Udp);
        let to = to.map(|address| self.reachable(socket, address)).transpose()?;
        let flags = call.flags as i32 & SEND_FLAGS | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        let sent = sys::send(socket.fd.as_fd(), &data, flags, to).map_err(|error| errno(&error))?;
        counts.sent_bytes += sent as u64;
        Ok(result(sent))
    }

    fn receive(&mut self, call: &Call, shared: &Shared, slot: u32, counts: &mut Counts) -> Done {
        let socket = self.get_mut(call.socket)?;
        let data = shared.data(slot, call.length.min(layout::DATA_BYTES)).ok_or(Errno::INVAL)?;
        let mut flags = call.flags as i32 & RECEIVE_FLAGS | libc::MSG_DONTWAIT;
        if socket.protocol == Protocol::Tcp {
            // To a stream it means to throw the data away.
            flags &= !libc::MSG_TRUNC;
        }
        let received = sys::receive(socket.fd.as_fd(), &data, flags).map_err(|error| errno(&error))?;
        let length = received.bytes.min(data.len()) as u32;
        counts.received_bytes += u64::from(length);
        if let (Protocol::Udp, Some(from)) = (socket.protocol, received.from) {
            socket.peers.insert(from);
        }
        let flags = received.flags as u32;
        Ok(Answer { length, flags, address: received.from, ..result(received.bytes) })
    }

    fn set_option(&self, call: &Call, shared: &Shared, slot: u32) -> Done {
        let (level, option) = (call.first as i32, call.second as i32);
        if !OPTIONS.contains(&(level, option)) {
            return Err(Errno::NOPROTOOPT);
        }
        let length = (call.length as usize).min(OPTION_BYTES);
        let mut value = [0; OPTION_BYTES];
        let data = shared.data(slot, length as u32).ok_or(Errno::INVAL)?;
        data.copy_to(&mut value[..length]);
        sys::set_option(self.get(call.socket)?.fd.as_fd(), level, option, &value[..length])
            .map_err(|error| errno(&error))?;
        Ok(Answer::default())
    }

    fn option(&self, call: &Call, shared: &Shared, slot: u32) -> Done {
        let (level, option) = (call.first as i32, call.second as i32);
        if !OPTIONS.contains(&(level, option)) && !READ_ONLY.contains(&(level, option)) {
            return Err(Errno::NOPROTOOPT);
        }
        let length = (call.length as usize).min(OPTION_BYTES);
        let mut value = [0; OPTION_BYTES];
        let written = sys::option(self.get(call.socket)?.fd.as_fd(), level, option, &mut value[..length])
            .map_err(|error| errno(&error))?;
        let data = shared.data(slot, written as u32).ok_or(Errno::INVAL)?;
        data.copy_from(&value[..written]);
        Ok(Answer { length: written as u32, ..Answer::default() })
    }

    /// What needs no more than the socket.
    fn ask(&self, op: Op, call: &Call) -> Done {
        let fd = &self.get(call.socket)?.fd;
        match op {
            Op::Shutdown => {
                let how = match call.first as i32 {
                    libc::SHUT_RD => Shutdown::Read,
                    libc::SHUT_WR => Shutdown::Write,
                    libc::SHUT_RDWR => Shutdown::Both,
                    _ => return Err(Errno::INVAL),
                };
                net::shutdown(fd, how)?;
                Ok(Answer::default())
            }
            Op::Name => of_any(net::getsockname(fd)?).map(named),
            Op::Peer => of_any(net::getpeername(fd)?.ok_or(Errno::NOTCONN)?).map(named),
            Op::Waiting => Ok(result(rustix::io::ioctl_fionread(fd)? as usize)),
            _ => Err(Errno::NOSYS),
        }
    }

    /// Tells the guest what a socket is ready for. False: there is no such socket.
    fn refresh(&mut self, shared: &Shared, queues: &mut HostQueues, id: u32) -> bool {
        let epoll = Arc::clone(&self.epoll);
        let Ok(socket) = self.get_mut(id) else { return false };
        let wanted = PollFlags::IN | PollFlags::OUT | PollFlags::PRI | PollFlags::RDHUP;
        let mut polled = [PollFd::new(&socket.fd, wanted)];
        if poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_err() {
            return true;
        }
        let ready = polled[0].revents();
        if ready.contains(PollFlags::ERR)
            && let Ok(Err(error)) = net::sockopt::socket_error(&socket.fd)
        {
            shared.store(layout::ERROR_AT + id * 4, error.raw_os_error() as u32);
        }
        // An edge for each message that is sent would cost more than to ask for it where it is needed.
        let wants_output = !ready.contains(PollFlags::OUT);
        if wants_output != socket.wants_output
            && epoll::modify(&*epoll, &socket.fd, data(id, socket), events(wants_output)).is_ok()
        {
            socket.wants_output = wants_output;
        }
        queues.ready(shared, id, u32::from((ready & !PollFlags::ERR).bits()));
        true
    }
}

impl Socket {
    /// Who wrote to this socket may be answered.
    fn may_answer(&self, peer: SocketAddr, error: Errno) -> Result<(), Errno> {
        let is_peer = self.protocol == Protocol::Udp && self.peers.set.contains(&canonical(peer));
        if is_peer { Ok(()) } else { Err(error) }
    }

    /// An address as the kernel is told it: of the socket's family, and never nobody's. To Linux (`route.c`
    /// and `tcp_ipv6.c`), nobody's address is that of the socket or of this host, and which one it is must
    /// be decided before it is judged.
    fn destination(&self, address: SocketAddr) -> Result<SocketAddr, Errno> {
        let is_other = address.is_ipv6() != self.is_ipv6;
        if is_other && (address.is_ipv6() || self.protocol == Protocol::Tcp) {
            return Err(Errno::AFNOSUPPORT);
        }
        let mut ip = address.ip().to_canonical();
        if ip.is_unspecified() {
            let own = of_any(net::getsockname(&self.fd)?)?.ip().to_canonical();
            ip = match (ip, own) {
                (IpAddr::V4(_), IpAddr::V4(own)) if !own.is_unspecified() => own.into(),
                (IpAddr::V6(_), IpAddr::V6(_)) => Ipv6Addr::LOCALHOST.into(),
                _ => Ipv4Addr::LOCALHOST.into(),
            };
        }
        let ip = match ip {
            IpAddr::V4(ip) if self.is_ipv6 => ip.to_ipv6_mapped().into(),
            ip => ip,
        };
        Ok(SocketAddr::new(ip, address.port()))
    }
}

fn events(output: bool) -> epoll::EventFlags {
    let always = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
    if output { always | epoll::EventFlags::OUT } else { always }
}

fn data(id: u32, socket: &Socket) -> epoll::EventData {
    epoll::EventData::new_u64(u64::from(socket.generation) << 32 | u64::from(id))
}
