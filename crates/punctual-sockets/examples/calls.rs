//! Compares the cost of serving requests by epoll and by io_uring.
//!
//! usage: calls [ROUNDS, at least 1]
//!
//! In each round a client sends 64 bytes to several sockets at once and waits for all answers; the server
//! answers each. The program prints, per answer, the elapsed time and the processor time of the server,
//! including kernel threads that work for it. The client runs on processor 0, the server on processor 1.

#![expect(unsafe_code, reason = "a submission of io_uring")]

use std::io;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use io_uring::{IoUring, opcode, squeue, types};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

const BYTES: usize = 64;
/// Rounds before the measurement.
const WARM_UP: usize = 200;
/// The number of the event that ends a server.
const STOP: u64 = u64::MAX;

/// The server's method.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// epoll, then `recv` and `send` for each socket.
    Epoll,
    /// The same with the calls of `poll` by which [`punctual_sockets::table`] publishes what a socket is
    /// ready for: after the event, after `recv` and after `send`.
    Server,
    /// io_uring with a receive posted on each socket; answers and the next receives are submitted together.
    Uring,
    /// The same with `IORING_SETUP_DEFER_TASKRUN`.
    Deferred,
    /// The same with `IORING_SETUP_SQPOLL` and an idle time of 1 s.
    Polled,
}

const WAYS: [(Way, &str); 5] = [
    (Way::Epoll, "epoll"),
    (Way::Server, "epoll, poll"),
    (Way::Uring, "io_uring"),
    (Way::Deferred, "deferred"),
    (Way::Polled, "SQPOLL"),
];

/// Both ends of a connection: the client's and the server's.
fn pair(protocol: &str) -> io::Result<(OwnedFd, OwnedFd)> {
    let any = ("127.0.0.1", 0);
    if protocol == "UDP" {
        let (asks, serves) = (UdpSocket::bind(any)?, UdpSocket::bind(any)?);
        asks.connect(serves.local_addr()?)?;
        serves.connect(asks.local_addr()?)?;
        return Ok((asks.into(), serves.into()));
    }
    let listener = TcpListener::bind(any)?;
    let asks = TcpStream::connect(listener.local_addr()?)?;
    let (serves, _) = listener.accept()?;
    asks.set_nodelay(true)?;
    serves.set_nodelay(true)?;
    Ok((asks.into(), serves.into()))
}

fn stay_on(processor: usize) {
    let mut set = CpuSet::new();
    set.set(processor);
    // This fails on a machine with one processor, where both threads share it.
    let _ = sched_setaffinity(None, &set);
}

fn cpu_time(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn has_input(socket: &OwnedFd) -> io::Result<bool> {
    let mut polled = [PollFd::new(socket, PollFlags::IN | PollFlags::OUT)];
    poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    Ok(polled[0].revents().contains(PollFlags::IN))
}

fn serve_by_epoll(sockets: &[OwnedFd], stop: &OwnedFd, tells: bool) -> io::Result<()> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let input = epoll::EventFlags::IN;
    for (index, socket) in sockets.iter().enumerate() {
        let token = epoll::EventData::new_u64(index as u64);
        epoll::add(&epoll, socket, token, input | epoll::EventFlags::ET)?;
    }
    epoll::add(&epoll, stop, epoll::EventData::new_u64(STOP), input)?;
    let mut events = Vec::with_capacity(64);
    let mut data = [0; BYTES];
    loop {
        events.clear();
        epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), None)?;
        for event in &events {
            let token = event.data.u64();
            if token == STOP {
                return Ok(());
            }
            let socket = &sockets[token as usize];
            if tells {
                has_input(socket)?;
            }
            recv(socket, &mut data[..], RecvFlags::DONTWAIT)?;
            if tells {
                has_input(socket)?;
            }
            send(socket, &data, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
            if tells {
                has_input(socket)?;
            }
        }
    }
}

/// Marks completions of sends. The other bits are the index of the socket.
const SENT: u64 = 1 << 32;

fn ring(way: Way) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    match way {
        Way::Deferred => builder.setup_single_issuer().setup_defer_taskrun(),
        Way::Polled => builder.setup_sqpoll(1000),
        _ => &mut builder,
    };
    builder.build(256)
}

fn push(ring: &mut IoUring, entry: squeue::Entry) -> io::Result<()> {
    // SAFETY: the entry names a socket and memory that live until `serve_by_uring` returns, which drops the
    // ring first.
    unsafe { ring.submission().push(&entry) }.map_err(io::Error::other)
}

fn serve_by_uring(sockets: &[OwnedFd], stop: &OwnedFd, way: Way) -> io::Result<()> {
    let mut memory = vec![[0u8; BYTES]; sockets.len()];
    let mut end = [0u8; 8];
    let data: Vec<*mut u8> = memory.iter_mut().map(|data| data.as_mut_ptr()).collect();
    let file = |index: usize| types::Fd(sockets[index].as_raw_fd());
    let receive = |index: usize| {
        let entry = opcode::Recv::new(file(index), data[index], BYTES as u32).build();
        entry.user_data(index as u64)
    };
    let mut ring = ring(way)?;
    let until = opcode::Read::new(types::Fd(stop.as_raw_fd()), end.as_mut_ptr(), 8).build();
    push(&mut ring, until.user_data(STOP))?;
    for index in 0..sockets.len() {
        push(&mut ring, receive(index))?;
    }
    let mut done = Vec::new();
    loop {
        ring.submit_and_wait(1)?;
        done.extend(ring.completion().map(|entry| (entry.user_data(), entry.result())));
        for (token, result) in done.drain(..) {
            if result < 0 {
                return Err(io::Error::from_raw_os_error(-result));
            }
            let index = (token & !SENT) as usize;
            match token {
                STOP => return Ok(()),
                // The buffer is free again.
                token if token & SENT != 0 => push(&mut ring, receive(index))?,
                _ => {
                    let entry = opcode::Send::new(file(index), data[index], BYTES as u32).build();
                    push(&mut ring, entry.user_data(token | SENT))?;
                }
            }
        }
    }
}

fn serve(sockets: &[OwnedFd], stop: &OwnedFd, way: Way) -> io::Result<()> {
    stay_on(1);
    match way {
        Way::Epoll => serve_by_epoll(sockets, stop, false),
        Way::Server => serve_by_epoll(sockets, stop, true),
        Way::Uring | Way::Deferred | Way::Polled => serve_by_uring(sockets, stop, way),
    }
}

/// Sends a request to all sockets and waits for the answers. Returns the elapsed time.
fn ask(sockets: &[OwnedFd]) -> io::Result<Duration> {
    let mut data = [7; BYTES];
    let start = Instant::now();
    for socket in sockets {
        send(socket, &data, SendFlags::NOSIGNAL)?;
    }
    for socket in sockets {
        recv(socket, &mut data[..], RecvFlags::WAITALL)?;
    }
    Ok(start.elapsed())
}

/// Times of the rounds, and the server's processor time.
type Measured = (Vec<Duration>, Duration);

/// Runs all rounds. The server's processor time is that of all threads but this one.
fn ask_rounds(sockets: &[OwnedFd], rounds: usize) -> io::Result<Measured> {
    stay_on(0);
    let own = || cpu_time(ClockId::ProcessCPUTime).saturating_sub(cpu_time(ClockId::ThreadCPUTime));
    for _ in 0..WARM_UP {
        ask(sockets)?;
    }
    let before = own();
    let taken = (0..rounds).map(|_| ask(sockets)).collect::<io::Result<Vec<_>>>()?;
    Ok((taken, own() - before))
}

fn measure(protocol: &str, count: usize, way: Way, rounds: usize) -> io::Result<Measured> {
    let pairs = (0..count).map(|_| pair(protocol)).collect::<io::Result<Vec<_>>>()?;
    let (asks, serves): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    // Otherwise the client would wait without end for a server that has failed.
    let limit = Some(Duration::from_secs(5));
    asks.iter().try_for_each(|socket| set_socket_timeout(socket, Timeout::Recv, limit))?;
    let stop = eventfd(0, EventfdFlags::CLOEXEC)?;
    std::thread::scope(|scope| {
        let server = scope.spawn(|| serve(&serves, &stop, way));
        let measured = ask_rounds(&asks, rounds);
        rustix::io::write(&stop, &1u64.to_ne_bytes())?;
        server.join().map_err(|_| io::Error::other("the server panicked"))??;
        measured
    })
}

/// Microseconds per answer: mean, 99th percentile of the rounds, processor time of the server.
fn row((mut taken, server): Measured, count: usize) -> [f64; 3] {
    taken.sort_unstable();
    let each = |time: Duration, answers: usize| time.as_secs_f64() * 1e6 / answers as f64;
    let all = taken.len() * count;
    [each(taken.iter().sum(), all), each(taken[taken.len() * 99 / 100], count), each(server, all)]
}

fn main() -> io::Result<()> {
    let rounds = std::env::args().nth(1).and_then(|rounds| rounds.parse().ok()).unwrap_or(2000).max(1);
    println!("us for each answer        sockets      mean       p99  processor");
    for protocol in ["UDP", "TCP"] {
        for count in [1, 10, 40] {
            for (way, name) in WAYS {
                match measure(protocol, count, way, rounds) {
                    Ok(measured) => {
                        let [mean, p99, server] = row(measured, count);
                        println!("{protocol} {name:<21} {count:>7} {mean:>9.2} {p99:>9.2} {server:>10.2}");
                    }
                    Err(error) => println!("{protocol} {name:<21} {count:>7} {error}"),
                }
            }
        }
    }
    Ok(())
}
