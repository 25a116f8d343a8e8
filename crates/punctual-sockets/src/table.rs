//! A guest's sockets on the host, and the calls on them.
//!
//! Every call is non-blocking. Before each bind, connect and send, the guest's rules decide on the address
//! that the kernel will be given. A socket's number is the smallest free one; a generation tells it from
//! earlier sockets of that number.

use std::collections::{HashSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use punctual_model::sockets::{Action, Protocol, Sockets};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, Shutdown, SocketAddrAny, SocketFlags, SocketType};

use crate::call::{Call, Op, Response, options};
use crate::claims::{Bound, Claim, Owner};
use crate::layout;
use crate::memory::Shared;
use crate::queue::{HostQueues, Words};
use crate::segments::{Open, Segments, since};
use crate::stats::Counts;
use crate::sys;

/// Flags of `send` that a guest may set.
const SEND_FLAGS: i32 = libc::MSG_MORE;
/// Flags of `recv` that a guest may set.
const RECEIVE_FLAGS: i32 = libc::MSG_PEEK | libc::MSG_TRUNC;
/// Largest backlog of `listen`. The kernel's `net.core.somaxconn` may lower it.
const BACKLOG_MAX: u32 = 4096;
/// A datagram socket may answer this many peers, those that most recently wrote to it first.
const PEERS_MAX: usize = 1024;
/// Longest value of an option.
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
/// Options that a guest may read but not set.
const READ_ONLY: [(i32, i32); 5] = [
    (libc::IPPROTO_TCP, libc::TCP_INFO),
    (libc::IPPROTO_TCP, libc::TCP_CONGESTION),
    (libc::SOL_SOCKET, libc::SO_ERROR),
    (libc::IPPROTO_IP, libc::IP_MTU),
    (libc::IPPROTO_IPV6, libc::IPV6_MTU),
];

/// Options with which Linux lets sockets of one user share a port.
const SHARING: u32 = options::REUSE_ADDRESS | options::REUSE_PORT;

/// Sets those options on a socket.
fn share(fd: &OwnedFd, bits: u32) -> Result<(), Errno> {
    net::sockopt::set_socket_reuseaddr(fd, bits & options::REUSE_ADDRESS != 0)?;
    net::sockopt::set_socket_reuseport(fd, bits & options::REUSE_PORT != 0)
}

/// Peers that wrote to a datagram socket, which it may answer without a rule.
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

#[derive(Debug)]
struct Socket {
    fd: OwnedFd,
    protocol: Protocol,
    is_ipv6: bool,
    /// Bits of [`options`] that the guest has set. Those about sharing a port are set on `fd` once it has a
    /// claim: no port that Linux chooses is one of another VM.
    options: u32,
    is_bound: bool,
    /// The address that it was bound to.
    claim: Option<Claim>,
    /// `epoll` watches for output.
    wants_output: bool,
    /// Tells this socket from earlier ones of the same number.
    generation: u32,
    /// Time of the first event that the guest has not followed by a receive call.
    notified: Option<Instant>,
    peers: Peers,
}

/// A guest's sockets.
#[derive(Debug)]
pub struct Table {
    policy: Sockets,
    owner: Owner,
    epoll: Arc<OwnedFd>,
    sockets: Vec<Option<Socket>>,
    free: Vec<u32>,
    generation: u32,
    /// The guest has sent hello.
    has_hello: bool,
    /// Unanswered requests.
    open: Open,
}

/// The outcome of a call.
#[derive(Clone, Copy, Debug)]
pub struct Served {
    /// The queue to interrupt.
    pub(crate) interrupt: Option<u32>,
    /// The call sent data.
    pub(crate) has_sent: bool,
}

type CallResult = Result<Response, Errno>;

fn result(value: usize) -> Response {
    Response { result: i32::try_from(value).unwrap_or(i32::MAX), ..Response::default() }
}

/// The length of data in a slot, which always fits.
fn length_of(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

fn named(address: SocketAddr) -> Response {
    Response { address: Some(address), ..Response::default() }
}

fn errno(error: &std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)
}

fn inet_address(address: SocketAddrAny) -> Result<SocketAddr, Errno> {
    SocketAddr::try_from(address).map_err(|_| Errno::AFNOSUPPORT)
}

/// An IPv4-mapped IPv6 address becomes the IPv4 address.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

impl Table {
    /// An empty table. `epoll` will watch its sockets.
    pub fn new(policy: Sockets, epoll: Arc<OwnedFd>) -> Self {
        let count = policy.sockets_max.min(layout::SOCKETS);
        let sockets = (0..count).map(|_| None).collect();
        Table {
            policy,
            owner: Owner::new(),
            epoll,
            sockets,
            free: (0..count).rev().collect(),
            generation: 0,
            has_hello: false,
            open: Open::default(),
        }
    }

    /// Closes all sockets.
    pub fn clear(&mut self) {
        for id in (0..).take(self.sockets.len()) {
            self.remove(id);
        }
    }

    /// Number of sockets.
    pub fn len(&self) -> usize {
        self.sockets.len() - self.free.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes the call of a slot and writes its response.
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
        let response = self.make(&call, shared, slot, counts).unwrap_or_else(|error| {
            counts.refused += u64::from(error == Errno::PERM || error == Errno::ACCESS);
            Response { result: -error.raw_os_error(), ..Response::default() }
        });
        let changes =
            !matches!(call.op, Some(Op::Close | Op::Name | Op::Peer | Op::SetOption | Op::GetOption));
        if changes {
            self.refresh(shared, queues, call.socket);
        }
        if matches!(call.op, Some(Op::Socket | Op::Accept)) && response.result >= 0 {
            // The word may hold an error of an earlier socket of this number.
            shared.store(layout::ERROR_AT + response.socket * 4, 0);
            self.refresh(shared, queues, response.socket);
            counts.sockets_most = counts.sockets_most.max(self.len() as u64);
        }
        response.write(shared, slot);
        let interrupt = queues.complete(shared, slot);
        self.stamp(&call, &response, taken, segments);
        Served { interrupt, has_sent: call.op == Some(Op::Send) && response.result >= 0 }
    }

    /// Records when the guest received a datagram and when it sent the answer.
    fn stamp(&mut self, call: &Call, response: &Response, taken: Instant, segments: &mut Segments) {
        let socket = self.sockets.get_mut(call.socket as usize).and_then(Option::as_mut);
        let Some(socket) = socket.filter(|_| response.result >= 0) else { return };
        if socket.protocol != Protocol::Udp {
            return;
        }
        match (call.op, response.address, call.address) {
            (Some(Op::Receive), Some(from), _) if call.flags as i32 & libc::MSG_PEEK == 0 => {
                let waited = sys::age(socket.fd.as_fd());
                let wake = socket.notified.take().map(|notified| since(notified, taken));
                segments.received(&mut self.open, call.socket, from, waited, wake);
            }
            (Some(Op::Send), _, Some(to)) => {
                segments.sent(&mut self.open, call.socket, to, taken);
            }
            _ => {}
        }
    }

    /// Handles an event of `epoll`; `token` names the socket. Returns the queue to interrupt.
    pub fn on_event(
        &mut self,
        shared: &Shared,
        queues: &mut HostQueues,
        token: u64,
        counts: &mut Counts,
    ) -> Option<u32> {
        let (id, generation) = ((token & 0xffff_ffff) as u32, (token >> 32) as u32);
        let is_same = self.get(id).is_ok_and(|socket| socket.generation == generation);
        if !is_same || !self.refresh(shared, queues, id) {
            return None;
        }
        counts.events += 1;
        if let Ok(socket) = self.get_mut(id) {
            socket.notified.get_or_insert_with(Instant::now);
        }
        queues.notify(shared, id)
    }

    fn get(&self, id: u32) -> Result<&Socket, Errno> {
        self.sockets.get(id as usize).and_then(Option::as_ref).ok_or(Errno::BADF)
    }

    fn get_mut(&mut self, id: u32) -> Result<&mut Socket, Errno> {
        self.sockets.get_mut(id as usize).and_then(Option::as_mut).ok_or(Errno::BADF)
    }

    fn make(&mut self, call: &Call, shared: &Shared, slot: u32, counts: &mut Counts) -> CallResult {
        let op = call.op.ok_or(Errno::NOSYS)?;
        match op {
            // The guest still means sockets of an earlier server.
            _ if !self.has_hello && op != Op::Hello => return Err(Errno::CONNRESET),
            Op::Hello => {
                self.clear();
                self.has_hello = true;
                let epoch = shared.load(layout::EPOCH_AT).wrapping_add(1);
                shared.store(layout::EPOCH_AT, epoch);
                return Ok(Response::default());
            }
            Op::Socket => return self.socket(call),
            Op::Close => {
                self.get(call.socket)?;
                // A guest cannot use the socket after close, so an option that fails does not matter.
                let _ = self.apply(call);
                self.remove(call.socket);
                return Ok(Response::default());
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
            _ => self.query(op, call),
        }
    }

    fn socket(&mut self, call: &Call) -> CallResult {
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
            // The kernel doubles the value, for its own bookkeeping.
            let bytes = kib as usize * 512;
            net::sockopt::set_socket_send_buffer_size(&fd, bytes)?;
            net::sockopt::set_socket_recv_buffer_size(&fd, bytes)?;
        }
        self.insert(fd, protocol, is_ipv6, 0)
    }

    /// Enters a new socket under the smallest free number.
    fn insert(&mut self, fd: OwnedFd, protocol: Protocol, is_ipv6: bool, options: u32) -> CallResult {
        let id = self.free.pop().ok_or(Errno::NFILE)?;
        debug_assert!(self.sockets[id as usize].is_none(), "a free number has no socket");
        self.generation = self.generation.wrapping_add(1).max(1);
        let socket = Socket {
            fd,
            protocol,
            is_ipv6,
            options,
            is_bound: false,
            claim: None,
            wants_output: false,
            generation: self.generation,
            notified: None,
            peers: Peers::default(),
        };
        if let Err(error) = epoll::add(&*self.epoll, &socket.fd, data(id, &socket), events(false)) {
            self.free.push(id);
            return Err(error);
        }
        self.sockets[id as usize] = Some(socket);
        Ok(Response { socket: id, ..Response::default() })
    }

    fn remove(&mut self, id: u32) {
        if self.sockets.get_mut(id as usize).and_then(Option::take).is_some() {
            self.free.push(id);
        }
    }

    /// Applies changed options that the guest's kernel keeps.
    fn apply(&mut self, call: &Call) -> Result<(), Errno> {
        let socket = self.get_mut(call.socket)?;
        let fd = &socket.fd;
        let is_on = |bit: u32| call.options & bit != 0;
        // A lingering close would block this thread. Only a linger time of 0, a reset, is applied.
        if call.op == Some(Op::Close) && is_on(options::LINGER) && call.linger == 0 {
            net::sockopt::set_socket_linger(fd, Some(std::time::Duration::ZERO))?;
        }
        let changed = (socket.options ^ call.options) & options::ALL;
        if changed == 0 {
            return Ok(());
        }
        if changed & SHARING != 0 && socket.claim.is_some() {
            share(fd, call.options)?;
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

    /// A bind to `::` takes all IPv4 addresses too, unless the socket is IPv6-only, and needs both rules.
    fn may_bind(&self, socket: &Socket, address: SocketAddr) -> Result<(), Errno> {
        self.allow(Action::Bind, socket.protocol, address)?;
        let is_all = address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        if is_all && !net::sockopt::ipv6_v6only(&socket.fd)? {
            let ipv4 = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port());
            self.allow(Action::Bind, socket.protocol, ipv4)?;
        }
        Ok(())
    }

    fn bind(&mut self, call: &Call) -> CallResult {
        let address = call.address.ok_or(Errno::INVAL)?;
        let socket = self.get(call.socket)?;
        if address.is_ipv6() != socket.is_ipv6 {
            return Err(Errno::AFNOSUPPORT);
        }
        self.may_bind(socket, address)?;
        if address.port() == 0 {
            return self.bind_anywhere(call.socket, address);
        }
        let claim = self.claim(socket, address)?.ok_or(Errno::ADDRINUSE)?;
        share(&socket.fd, socket.options)?;
        if let Err(error) = net::bind(&socket.fd, &address) {
            share(&socket.fd, 0)?;
            return Err(error);
        }
        let socket = self.get_mut(call.socket)?;
        (socket.is_bound, socket.claim) = (true, Some(claim));
        Ok(Response::default())
    }

    /// Binds to a port that Linux chooses, which is free for everybody. Later the VM may share it.
    fn bind_anywhere(&mut self, id: u32, address: SocketAddr) -> CallResult {
        let socket = self.get(id)?;
        net::bind(&socket.fd, &address)?;
        let claim = self.claim(socket, inet_address(net::getsockname(&socket.fd)?)?)?;
        if claim.is_some() {
            share(&socket.fd, socket.options)?;
        }
        let socket = self.get_mut(id)?;
        (socket.is_bound, socket.claim) = (true, claim);
        Ok(Response::default())
    }

    /// Claims an address for a socket; `None` if another VM has it.
    fn claim(&self, socket: &Socket, address: SocketAddr) -> Result<Option<Claim>, Errno> {
        let is_ipv6_only = socket.is_ipv6 && net::sockopt::ipv6_v6only(&socket.fd)?;
        let bound = Bound { address, is_ipv6_only };
        Ok(Claim::new(self.owner, self.policy.netns.as_deref(), socket.protocol, bound))
    }

    fn listen(&self, call: &Call) -> CallResult {
        let socket = self.get(call.socket)?;
        if !socket.is_bound {
            let any: IpAddr =
                if socket.is_ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
            self.may_bind(socket, SocketAddr::new(any, 0))?;
        }
        net::listen(&socket.fd, call.first.min(BACKLOG_MAX) as i32)?;
        Ok(Response::default())
    }

    fn connect(&self, call: &Call) -> CallResult {
        let socket = self.get(call.socket)?;
        let Some(address) = call.address else {
            if socket.protocol == Protocol::Tcp {
                return Err(Errno::AFNOSUPPORT);
            }
            net::connect_unspec(&socket.fd)?;
            return Ok(Response::default());
        };
        let address = self.reachable(socket, address)?;
        net::connect(&socket.fd, &address)?;
        Ok(Response::default())
    }

    /// Checks a destination against the rules. Returns the address to give to the kernel.
    fn reachable(&self, socket: &Socket, address: SocketAddr) -> Result<SocketAddr, Errno> {
        let address = socket.destination(address)?;
        self.allow(Action::Connect, socket.protocol, address)
            .or_else(|error| socket.may_answer(address, error))?;
        Ok(address)
    }

    fn accept(&mut self, call: &Call) -> CallResult {
        let socket = self.get(call.socket)?;
        if self.free.is_empty() {
            return Err(Errno::NFILE);
        }
        let (protocol, is_ipv6, set) = (socket.protocol, socket.is_ipv6, socket.options);
        let (fd, peer) = net::acceptfrom_with(&socket.fd, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)?;
        let peer = peer.map(inet_address).transpose()?;
        // An accepted socket inherits these options from the listening one.
        let response = self.insert(fd, protocol, is_ipv6, set & !options::LINGER)?;
        Ok(Response { address: peer, ..response })
    }

    fn send(&self, call: &Call, shared: &Shared, slot: u32, counts: &mut Counts) -> CallResult {
        let socket = self.get(call.socket)?;
        let data = shared.data(slot, call.length).ok_or(Errno::MSGSIZE)?;
        let to = call.address.filter(|_| socket.protocol == Protocol::Udp);
        let to = to.map(|address| self.reachable(socket, address)).transpose()?;
        let flags = call.flags as i32 & SEND_FLAGS | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        let sent = sys::send(socket.fd.as_fd(), &data, flags, to).map_err(|error| errno(&error))?;
        counts.sent_bytes += sent as u64;
        Ok(result(sent))
    }

    fn receive(&mut self, call: &Call, shared: &Shared, slot: u32, counts: &mut Counts) -> CallResult {
        let socket = self.get_mut(call.socket)?;
        let data = shared.data(slot, call.length.min(layout::DATA_BYTES)).ok_or(Errno::INVAL)?;
        let mut flags = call.flags as i32 & RECEIVE_FLAGS | libc::MSG_DONTWAIT;
        if socket.protocol == Protocol::Tcp {
            // On a stream MSG_TRUNC discards data.
            flags &= !libc::MSG_TRUNC;
        }
        let received = sys::receive(socket.fd.as_fd(), &data, flags).map_err(|error| errno(&error))?;
        let length = length_of(received.bytes.min(data.len()));
        counts.received_bytes += u64::from(length);
        if let (Protocol::Udp, Some(from)) = (socket.protocol, received.from) {
            socket.peers.insert(from);
        }
        let flags = received.flags as u32;
        Ok(Response { length, flags, address: received.from, ..result(received.bytes) })
    }

    fn set_option(&self, call: &Call, shared: &Shared, slot: u32) -> CallResult {
        let (level, option) = (call.first as i32, call.second as i32);
        if !OPTIONS.contains(&(level, option)) {
            return Err(Errno::NOPROTOOPT);
        }
        let length = (call.length as usize).min(OPTION_BYTES);
        let mut value = [0; OPTION_BYTES];
        let data = shared.data(slot, length_of(length)).ok_or(Errno::INVAL)?;
        data.copy_to(&mut value[..length]);
        sys::set_option(self.get(call.socket)?.fd.as_fd(), level, option, &value[..length])
            .map_err(|error| errno(&error))?;
        Ok(Response::default())
    }

    fn option(&self, call: &Call, shared: &Shared, slot: u32) -> CallResult {
        let (level, option) = (call.first as i32, call.second as i32);
        if !OPTIONS.contains(&(level, option)) && !READ_ONLY.contains(&(level, option)) {
            return Err(Errno::NOPROTOOPT);
        }
        let length = (call.length as usize).min(OPTION_BYTES);
        let mut value = [0; OPTION_BYTES];
        let written = sys::option(self.get(call.socket)?.fd.as_fd(), level, option, &mut value[..length])
            .map_err(|error| errno(&error))?;
        let data = shared.data(slot, length_of(written)).ok_or(Errno::INVAL)?;
        data.copy_from(&value[..written]);
        Ok(Response { length: length_of(written), ..Response::default() })
    }

    /// Calls that need only the socket.
    fn query(&self, op: Op, call: &Call) -> CallResult {
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
                Ok(Response::default())
            }
            Op::Name => inet_address(net::getsockname(fd)?).map(named),
            Op::Peer => inet_address(net::getpeername(fd)?.ok_or(Errno::NOTCONN)?).map(named),
            Op::Waiting => Ok(result(usize::try_from(rustix::io::ioctl_fionread(fd)?).unwrap_or(usize::MAX))),
            _ => Err(Errno::NOSYS),
        }
    }

    /// Publishes what a socket is ready for. Returns false when there is no such socket.
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
        // Watch for output only while the socket is not writable: with EPOLLET every send is an edge.
        let wants_output = !ready.contains(PollFlags::OUT);
        if wants_output != socket.wants_output
            && epoll::modify(&*epoll, &socket.fd, data(id, socket), events(wants_output)).is_ok()
        {
            socket.wants_output = wants_output;
        }
        queues.set_ready(shared, id, u32::from((ready & !PollFlags::ERR).bits()));
        true
    }
}

impl Socket {
    /// Permits an answer to a peer that wrote to this socket.
    fn may_answer(&self, peer: SocketAddr, error: Errno) -> Result<(), Errno> {
        let is_peer = self.protocol == Protocol::Udp && self.peers.set.contains(&canonical(peer));
        if is_peer { Ok(()) } else { Err(error) }
    }

    /// The address to give to the kernel: in the socket's family, and never unspecified. Linux (`route.c`,
    /// `tcp_ipv6.c`) replaces an unspecified destination by the socket's own address or loopback. This
    /// function does the same first, so that the rules see the address that the kernel will use.
    fn destination(&self, address: SocketAddr) -> Result<SocketAddr, Errno> {
        let is_other = address.is_ipv6() != self.is_ipv6;
        if is_other && (address.is_ipv6() || self.protocol == Protocol::Tcp) {
            return Err(Errno::AFNOSUPPORT);
        }
        let mut ip = address.ip().to_canonical();
        if ip.is_unspecified() {
            let own = inet_address(net::getsockname(&self.fd)?)?.ip().to_canonical();
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
