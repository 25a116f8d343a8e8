//! Who asks: one question after the other, at the distances of the thesis (s.6.1: 1 to 10 ms).

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration as StdDuration, Instant};

use punctual_linux::Stop;
use punctual_linux::os::sched::{self, Attributes};
use punctual_model::Histogram;
use punctual_sched::Duration;

use super::affinity::keep_from_vcpus;
use super::echo::{FIRST, echo_once};
use super::memcached::{KEY_BYTES, SETS, VALUE_BYTES};
use super::sip::Caller;

/// The priority of who asks, who is never short of processor time (s.6.1).
const PRIORITY: u32 = 50;
/// How long an answer is waited for; the question counts as lost then.
const PATIENCE: StdDuration = StdDuration::from_secs(1);
/// Values that memcached keeps (s.6.7.2).
const KEYS: u64 = 100;

/// Who asks one server.
pub(super) enum Client {
    /// Datagrams, which come back as they are.
    Echo { socket: UdpSocket, number: u64 },
    /// memcached's text protocol over TCP.
    Memcached { stream: TcpStream, number: u64 },
    /// SIP through a relay: how long each message takes to the other side.
    Sip(Box<Caller>),
}

/// What was measured of questions.
#[derive(Clone, Default)]
pub(super) struct Asked {
    pub latency: Histogram,
    pub lost: u64,
}

impl Client {
    /// Of an echo.
    ///
    /// # Errors
    /// No socket is to be had.
    pub(super) fn echo(server: SocketAddr) -> io::Result<Client> {
        let socket = UdpSocket::bind((if server.is_ipv4() { "0.0.0.0" } else { "::" }, 0))?;
        socket.connect(server)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Client::Echo { socket, number: 0 })
    }

    /// Of a memcached, which gets its values. It may have to be waited for.
    ///
    /// # Errors
    /// It does not answer.
    pub(super) fn memcached(server: SocketAddr, stop: Stop) -> io::Result<Client> {
        let stream = connect(server, stop)?;
        stream.set_nodelay(true)?;
        let mut client = Client::Memcached { stream, number: 0 };
        client.fill()?;
        Ok(client)
    }

    /// Gives memcached its values, of which others may have taken the place. Others need nothing.
    ///
    /// # Errors
    /// It does not answer.
    pub(super) fn fill(&mut self) -> io::Result<()> {
        if !matches!(self, Client::Memcached { .. }) {
            return Ok(());
        }
        self.wait_at_most(FIRST)?;
        for key in 0..KEYS {
            self.set(key)?;
        }
        self.wait_at_most(PATIENCE)
    }

    fn wait_at_most(&self, patience: StdDuration) -> io::Result<()> {
        match self {
            Client::Echo { socket, .. } => socket.set_read_timeout(Some(patience)),
            Client::Memcached { stream, .. } => stream.set_read_timeout(Some(patience)),
            Client::Sip(_) => Ok(()),
        }
    }

    /// Sends one request and returns how long the answer took. With memcached only gets count, as in the
    /// thesis; a set returns `None`.
    fn ask(&mut self) -> io::Result<Option<Duration>> {
        let start = Instant::now();
        let counts = match self {
            Client::Echo { socket, number } => {
                *number += 1;
                echo_once(socket, *number)?;
                true
            }
            Client::Memcached { number, .. } => {
                *number += 1;
                let (key, sets) = (*number * 7 % KEYS, number.is_multiple_of(SETS));
                if sets {
                    self.set(key)?
                } else {
                    self.get(key)?
                }
                !sets
            }
            Client::Sip(caller) => {
                caller.relay_one()?;
                true
            }
        };
        Ok(counts.then(|| Duration::from_ns(start.elapsed().as_nanos() as u64)))
    }

    /// Asks so often, at distances of 1 to 10 ms, in real time where that is permitted.
    pub(super) fn ask_often(&mut self, count: u64, stop: Stop, asked: &mut Asked) {
        self.ask_often_from(0, count, stop, asked);
    }

    /// The same; the distances are others for each `first`.
    pub(super) fn ask_often_from(&mut self, first: u64, count: u64, stop: Stop, asked: &mut Asked) {
        let _urgent = Urgent::begin();
        for number in first..first + count {
            if stop() {
                return;
            }
            match self.ask() {
                Ok(Some(taken)) => asked.latency.record(taken),
                Ok(None) => {}
                Err(_) => asked.lost += 1,
            }
            // 9 ms is no multiple of the step, so that all distances come.
            std::thread::sleep(StdDuration::from_micros(1000 + number * 3571 % 9000));
        }
    }

    fn set(&mut self, key: u64) -> io::Result<()> {
        let value = "v".repeat(VALUE_BYTES);
        self.talk(&format!("set {key:0KEY_BYTES$} 0 0 {VALUE_BYTES}\r\n{value}\r\n"), 0, "STORED\r\n")
    }

    fn get(&mut self, key: u64) -> io::Result<()> {
        self.talk(&format!("get {key:0KEY_BYTES$}\r\n"), VALUE_BYTES, "END\r\n")
    }

    /// Says something to memcached and reads until its answer ends so. An answer of fewer bytes has no value.
    fn talk(&mut self, request: &str, bytes_min: usize, end: &str) -> io::Result<()> {
        let Client::Memcached { stream, .. } = self else { return Ok(()) };
        stream.write_all(request.as_bytes())?;
        let mut answer = Vec::with_capacity(2048);
        let mut buffer = [0; 2048];
        while !answer.ends_with(end.as_bytes()) {
            match stream.read(&mut buffer)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                bytes => answer.extend(&buffer[..bytes]),
            }
        }
        if answer.len() < bytes_min {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(())
    }
}

/// The calling thread in real time, until this is dropped. It must not wait for VMs that end: that thread
/// would spin in the kernel before their threads (docs/live.md, "Locks of the kernel").
struct Urgent {
    attributes: io::Result<Attributes>,
    processors: io::Result<Vec<usize>>,
}

impl Urgent {
    fn begin() -> Urgent {
        let before = Urgent { attributes: sched::attributes(0), processors: sched::affinity(0) };
        keep_from_vcpus(0, PRIORITY);
        before
    }
}

impl Drop for Urgent {
    fn drop(&mut self) {
        if let Ok(before) = &self.attributes {
            let _ = sched::restore_attributes(0, before);
        }
        if let Ok(before) = &self.processors {
            let _ = sched::set_affinity(0, before);
        }
    }
}

/// Connects to a server that may not listen yet: it starts when its guest has booted.
fn connect(server: SocketAddr, stop: Stop) -> io::Result<TcpStream> {
    let give_up = Instant::now() + FIRST;
    loop {
        match TcpStream::connect_timeout(&server, PATIENCE) {
            Ok(stream) => return Ok(stream),
            Err(error) if stop() || Instant::now() > give_up => return Err(error),
            Err(_) => std::thread::sleep(StdDuration::from_millis(100)),
        }
    }
}

/// A stream to a receiver, as fast as it takes it.
pub(super) struct Stream {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Stream {
    /// Starts it.
    ///
    /// # Errors
    /// The receiver does not accept it.
    pub(super) fn start(receiver: SocketAddr, stop: Stop) -> io::Result<Stream> {
        let mut stream = connect(receiver, stop)?;
        // A receiver that stands still does not keep it from ending.
        stream.set_write_timeout(Some(StdDuration::from_millis(200)))?;
        let (stop, sent) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (stopped, count) = (Arc::clone(&stop), Arc::clone(&sent));
        let body = move || {
            let data = vec![0; 64 << 10];
            while !stopped.load(Ordering::Relaxed) {
                match stream.write(&data) {
                    Ok(bytes) => drop(count.fetch_add(bytes as u64, Ordering::Relaxed)),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(_) => return,
                }
            }
        };
        let thread = std::thread::Builder::new().name("stream".into()).spawn(body)?;
        Ok(Stream { stop, sent, thread: Some(thread) })
    }

    /// Bytes that the receiver's end has taken so far.
    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
