//! Who asks: one question after the other, at the distances of the thesis (s.6.1: 1 to 10 ms).

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration as StdDuration, Instant};

use punctual_live::Stop;
use punctual_live::os::sched::{self, Attributes};
use punctual_model::Recorder;
use punctual_sched::Duration;

use crate::Error;

/// The priority of who asks, who is never short of processor time (s.6.1).
const PRIORITY: u32 = 50;
/// How long an answer is waited for; the question counts as lost then.
const PATIENCE: StdDuration = StdDuration::from_secs(1);
/// How long a server that has booted may take to answer at all.
const FIRST: StdDuration = StdDuration::from_secs(30);
/// Bytes of a question and its answer.
const BYTES: usize = 64;
/// Values that memcached keeps, and their length.
const KEYS: u64 = 100;
const VALUE_BYTES: usize = 200;
/// One in so many requests to memcached sets a value; the others get one.
const SETS: u64 = 10;

/// Who asks one server.
pub(super) enum Client {
    /// Datagrams, which come back as they are.
    Echo { socket: UdpSocket, number: u64 },
    /// memcached's text protocol over TCP.
    Memcached { stream: TcpStream, number: u64 },
}

/// What was measured of questions.
#[derive(Clone, Default)]
pub(super) struct Asked {
    pub latency: Recorder,
    pub lost: u64,
}

impl Client {
    /// Of an echo.
    ///
    /// # Errors
    /// No socket is to be had.
    pub fn echo(server: SocketAddr) -> io::Result<Client> {
        let socket = UdpSocket::bind((if server.is_ipv4() { "0.0.0.0" } else { "::" }, 0))?;
        socket.connect(server)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Client::Echo { socket, number: 0 })
    }

    /// Of a memcached, which gets its values.
    ///
    /// # Errors
    /// It does not answer.
    pub fn memcached(server: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect_timeout(&server, FIRST)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(FIRST))?;
        let mut client = Client::Memcached { stream, number: 0 };
        for key in 0..KEYS {
            client.set(key)?;
        }
        if let Client::Memcached { stream, .. } = &client {
            stream.set_read_timeout(Some(PATIENCE))?;
        }
        Ok(client)
    }

    /// Asks once; how long it took, or nothing if no answer came.
    fn ask(&mut self) -> Option<Duration> {
        let start = Instant::now();
        let answered = match self {
            Client::Echo { socket, number } => {
                *number += 1;
                echo_once(socket, *number)
            }
            Client::Memcached { number, .. } => {
                *number += 1;
                let key = *number * 7 % KEYS;
                if number.is_multiple_of(SETS) { self.set(key) } else { self.get(key) }
            }
        };
        answered.ok().map(|()| Duration::from_ns(start.elapsed().as_nanos() as u64))
    }

    /// Asks so often, at distances of 1 to 10 ms, in real time where that is permitted.
    pub fn ask_often(&mut self, count: u64, stop: Stop, asked: &mut Asked) {
        let _urgent = Urgent::begin();
        for number in 0..count {
            if stop() {
                return;
            }
            match self.ask() {
                Some(taken) => asked.latency.record(taken),
                None => asked.lost += 1,
            }
            // 9 ms is no multiple of the step, so that all distances come.
            std::thread::sleep(StdDuration::from_micros(1000 + number * 3571 % 9000));
        }
    }

    fn set(&mut self, key: u64) -> io::Result<()> {
        let value = "v".repeat(VALUE_BYTES);
        self.talk(&format!("set key{key} 0 0 {VALUE_BYTES}\r\n{value}\r\n"), "STORED\r\n")
    }

    fn get(&mut self, key: u64) -> io::Result<()> {
        self.talk(&format!("get key{key}\r\n"), "END\r\n")
    }

    /// Says something to memcached and reads until its answer ends so.
    fn talk(&mut self, request: &str, end: &str) -> io::Result<()> {
        let Client::Memcached { stream, .. } = self else { return Ok(()) };
        stream.write_all(request.as_bytes())?;
        let mut answer = Vec::with_capacity(512);
        let mut buffer = [0; 512];
        while !answer.ends_with(end.as_bytes()) {
            match stream.read(&mut buffer)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                bytes => answer.extend(&buffer[..bytes]),
            }
        }
        Ok(())
    }
}

/// The calling thread in real time, until this is dropped. It must not wait for VMs that end: that thread
/// would spin in the kernel before their threads (docs/live.md, "Locks of the kernel").
struct Urgent(io::Result<Attributes>);

impl Urgent {
    fn begin() -> Urgent {
        let before = sched::attributes(0);
        // Without rights the namespace was refused already.
        let _ = sched::set_attributes(0, &Attributes::fifo(PRIORITY));
        Urgent(before)
    }
}

impl Drop for Urgent {
    fn drop(&mut self) {
        if let Ok(before) = &self.0 {
            let _ = sched::restore_attributes(0, before);
        }
    }
}

/// Sends a numbered question and waits for its own answer.
fn echo_once(socket: &UdpSocket, number: u64) -> io::Result<()> {
    let mut question = [0; BYTES];
    question[..8].copy_from_slice(&number.to_le_bytes());
    socket.send(&question)?;
    let mut answer = [0; BYTES];
    loop {
        let bytes = socket.recv(&mut answer)?;
        // What comes late answers an older one.
        if bytes == BYTES && answer == question {
            return Ok(());
        }
    }
}

/// Waits until an echo answers.
///
/// # Errors
/// It does not.
pub(super) fn wait_for_echo(server: SocketAddr, stop: Stop) -> Result<(), Error> {
    let failed = |error: io::Error| Error::Lab(format!("no socket: {error}"));
    let socket = UdpSocket::bind("0.0.0.0:0").map_err(failed)?;
    socket.connect(server).map_err(failed)?;
    socket.set_read_timeout(Some(StdDuration::from_millis(300))).map_err(failed)?;
    let give_up = Instant::now() + FIRST;
    let mut number = 0;
    while echo_once(&socket, number).is_err() {
        number += 1;
        if stop() {
            return Err(Error::Interrupted);
        }
        if Instant::now() > give_up {
            return Err(Error::Lab(format!("the server at {server} does not answer")));
        }
        std::thread::sleep(StdDuration::from_millis(50));
    }
    Ok(())
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
    pub fn start(receiver: SocketAddr) -> io::Result<Stream> {
        let give_up = Instant::now() + FIRST;
        let mut stream = loop {
            match TcpStream::connect_timeout(&receiver, PATIENCE) {
                Ok(stream) => break stream,
                Err(error) if Instant::now() > give_up => return Err(error),
                Err(_) => std::thread::sleep(StdDuration::from_millis(100)),
            }
        };
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
    pub fn sent(&self) -> u64 {
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
