//! Metrics over HTTP, by a process beside the service: the service itself opens no network socket.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tiny_http::{Header, Method, Request, Response, Server};

use crate::client::{Client, ClientError};
use crate::metrics::{self, Format};

/// Where the metrics are.
const PATH: &str = "/metrics";
/// How often to look whether to stop.
const STOP_INTERVAL: Duration = Duration::from_millis(200);

/// Why no metrics are served.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is none.
    #[error("`{0}` is no address to listen at; expected ADDRESS:PORT, for example 127.0.0.1:9931")]
    NoAddress(String),
    /// Names of VMs are nobody's business on the network.
    #[error(
        "{0} is not a loopback address: metrics are served to this machine only; a proxy that asks for a \
         password can stand before it"
    )]
    NotLoopback(IpAddr),
    /// The address is taken, or may not be used.
    #[error("cannot listen at {address}: {reason}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        reason: String,
    },
}

/// Serves the metrics of a service.
pub struct Exporter {
    server: Server,
    address: SocketAddr,
    /// The service's runtime directory is below it.
    run: PathBuf,
}

impl Exporter {
    /// Listens at a loopback address; port 0 takes a free one. The service need not run.
    ///
    /// # Errors
    /// The text is no address with a port, or none of this machine alone, or cannot be listened at.
    pub fn open(address: &str, run: &Path) -> Result<Exporter, Error> {
        let address: SocketAddr = address.parse().map_err(|_| Error::NoAddress(address.to_owned()))?;
        if !address.ip().is_loopback() {
            return Err(Error::NotLoopback(address.ip()));
        }
        let failed = |reason: String| Error::Listen { address, reason };
        let server = Server::http(address).map_err(|error| failed(error.to_string()))?;
        let address = server.server_addr().to_ip().ok_or_else(|| failed("it has no port".into()))?;
        Ok(Exporter { server, address, run: run.to_owned() })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers one request after the other until `stop`.
    pub fn run(&self, stop: &dyn Fn() -> bool) {
        while !stop() {
            // A connection that breaks is its peer's.
            if let Ok(Some(request)) = self.server.recv_timeout(STOP_INTERVAL) {
                self.answer(request);
            }
        }
    }

    fn answer(&self, request: Request) {
        let path = request.url().split('?').next().unwrap_or_default();
        let is_read = matches!(request.method(), Method::Get | Method::Head);
        // A peer that does not wait for its answer gets none.
        let _ = match (is_read, path == PATH) {
            (true, true) => {
                let format = accepted(&request);
                let text = metrics_of(Client::connect(&self.run), format);
                let header = Header::from_bytes("Content-Type", format.content_type());
                let response = Response::from_string(text);
                request.respond(match header {
                    Ok(header) => response.with_header(header),
                    Err(()) => response,
                })
            }
            (true, false) => {
                request.respond(Response::from_string(format!("see {PATH}\n")).with_status_code(404))
            }
            (false, _) => request.respond(Response::from_string("GET or HEAD\n").with_status_code(405)),
        };
    }
}

/// The newest format that the peer names.
fn accepted(request: &Request) -> Format {
    let accept = request.headers().iter().find(|header| header.field.equiv("Accept"));
    let takes_new =
        accept.is_some_and(|header| header.value.as_str().contains("application/openmetrics-text"));
    if takes_new { Format::OpenMetrics } else { Format::Text }
}

/// The metrics of a service; that it does not answer is a metric.
pub fn metrics_of(connected: Result<Client, ClientError>, format: Format) -> String {
    let text = connected.and_then(|mut client| Ok(metrics::text(&client.status()?, &client.list()?, format)));
    text.unwrap_or_else(|_| metrics::down(format))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// What an exporter without a service answers to each request.
    fn answers(requests: &[&str]) -> Vec<String> {
        let folder = tempfile::tempdir().expect("a folder");
        let exporter = Exporter::open("127.0.0.1:0", folder.path()).expect("a port");
        let stop = AtomicBool::new(false);
        let ask = |request: &&str| {
            let mut stream = TcpStream::connect(exporter.address()).expect("it listens");
            write!(stream, "{request} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n").expect("sent");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).expect("an answer");
            answer
        };
        std::thread::scope(|scope| {
            scope.spawn(|| exporter.run(&|| stop.load(Ordering::SeqCst)));
            let answers = requests.iter().map(ask).collect();
            stop.store(true, Ordering::SeqCst);
            answers
        })
    }

    #[test]
    fn metrics_are_served_in_the_format_that_is_asked_for_and_nothing_else_is() {
        let new = "GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text;version=1.0.0\r\nX: x";
        // The rest of the line follows as a header of its own.
        let new = new.replace("\r\nX: x", "\r\nX:");
        let found =
            answers(&["GET /metrics", &new, "HEAD /metrics", "GET /", "POST /metrics", "GET /metrics?a"]);
        let status = |answer: &String| answer.split(' ').nth(1).map(str::to_owned);
        let statuses: Vec<String> = found.iter().filter_map(status).collect();
        assert_eq!(statuses, ["200", "200", "200", "404", "405", "200"], "{found:#?}");
        assert!(found[0].contains("Content-Type: text/plain; version=0.0.4"), "{}", found[0]);
        assert!(found[0].ends_with("\npunctual_up 0\n"), "{}", found[0]);
        assert!(found[1].contains("Content-Type: application/openmetrics-text"), "{}", found[1]);
        assert!(found[1].ends_with("\npunctual_up 0\n# EOF\n"), "{}", found[1]);
        assert!(!found[2].contains("punctual_up"), "{}", found[2]);
    }

    #[test]
    fn an_address_that_others_reach_is_refused_before_anything_listens() {
        for (address, part) in [
            ("0.0.0.0:9931", "0.0.0.0 is not a loopback address"),
            ("[::]:9931", "is not a loopback address"),
            ("127.0.0.1", "expected ADDRESS:PORT"),
            ("localhost:9931", "expected ADDRESS:PORT"),
        ] {
            let error = Exporter::open(address, Path::new("/run")).err().map(|error| error.to_string());
            assert!(error.as_ref().is_some_and(|error| error.contains(part)), "{address}: {error:?}");
        }
    }
}
