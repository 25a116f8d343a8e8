//! A small HTTP server for programs and browsers of this machine. It answers requests to read, each on a
//! connection and a thread of its own; requests, answers and connections are bounded.
//!
//! `httparse` reads the head of a request, as it does for hyper. The rest is written here: of the servers at
//! hand, `tiny_http` takes requests of any length and waits for a slow peer without end, and the others bring
//! an asynchronous runtime.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Connections at the same time; others are closed at once.
pub const CONNECTIONS_MAX: usize = 32;
/// The head of a request is no longer.
pub const REQUEST_BYTES_MAX: usize = 8 << 10;
/// A request is complete within this time.
pub const REQUEST_LIMIT: Duration = Duration::from_secs(5);
/// An answer is read within this time.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// Fields of a head at most.
const FIELDS_MAX: usize = 64;
/// How often to look whether to stop.
const STOP_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// Why nothing is served.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is none.
    #[error("`{0}` is no address to listen at; expected ADDRESS:PORT, for example 127.0.0.1:9931")]
    NoAddress(String),
    /// Names of VMs are nobody's business on the network.
    #[error(
        "{0} is not a loopback address: VMs are shown to this machine only; a proxy that asks for a password \
         can stand before it"
    )]
    NotLoopback(IpAddr),
    /// The address is taken, or may not be used.
    #[error("cannot listen at {address}: {reason}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        reason: io::Error,
    },
}

/// A request to read something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// What is asked for, without what follows `?`.
    pub path: String,
    /// What follows `?`.
    pub query: String,
    /// The field `Host`.
    pub host: String,
    /// The field `Accept`.
    pub accept: String,
}

impl Request {
    /// Does it name this machine as its host? A page of another site cannot: it may have a name that leads
    /// here (DNS rebinding), and the browser sends that name.
    pub fn is_for_loopback(&self) -> bool {
        let host = match self.host.strip_prefix('[') {
            Some(rest) => {
                let address = rest.split_once(']').map(|(address, _)| address.parse::<Ipv6Addr>());
                return address.is_some_and(|address| address.is_ok_and(|address| address.is_loopback()));
            }
            None => self.host.rsplit_once(':').map_or(self.host.as_str(), |(host, _)| host),
        };
        host.eq_ignore_ascii_case("localhost")
            || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The field `Content-Type`.
    pub content_type: &'static str,
    /// Other fields.
    pub fields: Vec<(&'static str, String)>,
    /// The content.
    pub body: Vec<u8>,
}

impl Answer {
    /// A text for people.
    pub fn text(status: u16, text: &str) -> Answer {
        let body = text.as_bytes().to_vec();
        Answer { status, content_type: "text/plain; charset=utf-8", fields: Vec::new(), body }
    }

    fn head(&self) -> String {
        let reason = match self.status {
            200 => "OK",
            400 => "Bad Request",
            404 => "Not Found",
            405 => "Method Not Allowed",
            408 => "Request Timeout",
            421 => "Misdirected Request",
            431 => "Request Header Fields Too Large",
            _ => "Error",
        };
        let (status, length) = (self.status, self.body.len());
        let fields: String = self.fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        format!(
            "HTTP/1.1 {status} {reason}\r\nContent-Type: {}\r\nContent-Length: {length}\r\n{fields}\
             Connection: close\r\n\r\n",
            self.content_type
        )
    }
}

/// Answers requests.
pub type Handler = dyn Fn(&Request) -> Answer + Send + Sync;

/// Listens at a loopback address.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
}

impl Server {
    /// Listens at a loopback address; port 0 takes a free one.
    ///
    /// # Errors
    /// The text is no address with a port, or none of this machine alone, or cannot be listened at.
    pub fn open(address: &str) -> Result<Server, Error> {
        let address: SocketAddr = address.parse().map_err(|_| Error::NoAddress(address.to_owned()))?;
        if !address.ip().is_loopback() {
            return Err(Error::NotLoopback(address.ip()));
        }
        let open = || {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            Ok(Server { listener, address })
        };
        open().map_err(|reason| Error::Listen { address, reason })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers requests until `stop`.
    pub fn run(&self, handler: &Arc<Handler>, stop: &dyn Fn() -> bool) {
        let open = Arc::new(AtomicUsize::new(0));
        while !stop() {
            let mut ready = [PollFd::new(&self.listener, PollFlags::IN)];
            if poll(&mut ready, Some(&STOP_INTERVAL)).is_ok_and(|count| count > 0)
                && let Ok((stream, _)) = self.listener.accept()
            {
                // One that has no place sees the end of the connection.
                if let Some(place) = Place::take(&open) {
                    let handler = handler.clone();
                    let work = move || {
                        let _place = place;
                        // A connection that breaks is its peer's.
                        let _ = serve(stream, &*handler);
                    };
                    // Without a thread the connection ends.
                    let _ = std::thread::Builder::new().name("http".into()).spawn(work);
                }
            }
        }
    }
}

/// A connection's place among [`CONNECTIONS_MAX`].
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(open: &Arc<AtomicUsize>) -> Option<Place> {
        let is_free = open.load(Ordering::SeqCst) < CONNECTIONS_MAX;
        is_free.then(|| {
            open.fetch_add(1, Ordering::SeqCst);
            Place(open.clone())
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn serve(mut stream: TcpStream, handler: &Handler) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    let (answer, has_body) = match read(&mut stream)? {
        Ok((request, is_head)) => (handler(&request), !is_head),
        Err(refusal) => (refusal, true),
    };
    let mut bytes = answer.head().into_bytes();
    if has_body {
        bytes.extend(&answer.body);
    }
    let end = Instant::now() + ANSWER_LIMIT;
    let mut left = &bytes[..];
    while !left.is_empty() {
        stream.set_write_timeout(Some(until(end)?))?;
        match stream.write(left) {
            Ok(length) => left = &left[length..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The time that is left.
fn until(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Reads a request, and whether only the head of its answer is wanted; or why it is refused.
fn read(stream: &mut TcpStream) -> io::Result<Result<(Request, bool), Answer>> {
    let end = Instant::now() + REQUEST_LIMIT;
    let mut received = Vec::new();
    let mut buffer = [0; 1024];
    loop {
        if let Some(read) = parse(&received) {
            return Ok(read);
        }
        let Ok(left) = until(end) else { return Ok(Err(Answer::text(408, "too slow\n"))) };
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => received.extend(&buffer[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // The time is over.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// Parses the head of a request; `None` while it is incomplete.
fn parse(received: &[u8]) -> Option<Result<(Request, bool), Answer>> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut head = httparse::Request::new(&mut fields);
    let is_complete = match head.parse(received) {
        Ok(status) => status.is_complete(),
        Err(httparse::Error::TooManyHeaders) => return Some(Err(Answer::text(431, "too many fields\n"))),
        Err(_) => return Some(Err(Answer::text(400, "no request\n"))),
    };
    if received.len() > REQUEST_BYTES_MAX {
        return Some(Err(Answer::text(431, "too long\n")));
    }
    if !is_complete {
        return None;
    }
    let is_head = match head.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Some(Err(Answer::text(405, "GET or HEAD\n"))),
    };
    let field = |name: &str| {
        let field = head.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name));
        field.map_or_else(String::new, |field| String::from_utf8_lossy(field.value).into_owned())
    };
    let (path, query) = head.path.unwrap_or_default().split_once('?').unwrap_or((head.path?, ""));
    let (path, query) = (path.to_owned(), query.to_owned());
    Some(Ok((Request { path, query, host: field("Host"), accept: field("Accept") }, is_head)))
}

#[cfg(test)]
#[path = "http_tests.rs"]
pub(crate) mod tests;
