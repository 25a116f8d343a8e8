//! Metrics over HTTP, by a process beside the service: the service itself opens no network socket.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::client::{Client, ClientError};
use crate::http::{Answer, Error, Handler, Request, Server};
use crate::metrics::{self, Format};

/// Where the metrics are.
const PATH: &str = "/metrics";

/// Serves the metrics of a service.
#[derive(Debug)]
pub struct Exporter {
    server: Server,
    /// The service's runtime directory is below it.
    run: PathBuf,
}

impl Exporter {
    /// Listens at a loopback address; port 0 takes a free one. The service need not run.
    ///
    /// # Errors
    /// As [`Server::open`].
    pub fn open(address: &str, run: &Path) -> Result<Exporter, Error> {
        Ok(Exporter { server: Server::open(address)?, run: run.to_owned() })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Answers requests until `stop`.
    pub fn run(&self, stop: &dyn Fn() -> bool) {
        let run = self.run.clone();
        let handler: Arc<Handler> = Arc::new(move |request: &Request| answer(request, &run));
        self.server.run(&handler, stop);
    }
}

fn answer(request: &Request, run: &Path) -> Answer {
    if request.path != PATH {
        return Answer::text(404, &format!("see {PATH}\n"));
    }
    let format = accepted(request);
    let body = metrics_of(Client::connect(run), format).into_bytes();
    Answer { status: 200, content_type: format.content_type(), fields: Vec::new(), body }
}

/// The newest format that the peer names.
fn accepted(request: &Request) -> Format {
    let takes_new = request.accept.contains("application/openmetrics-text");
    if takes_new { Format::OpenMetrics } else { Format::Text }
}

/// The metrics of a service; that it does not answer is a metric.
pub fn metrics_of(connected: Result<Client, ClientError>, format: Format) -> String {
    let text = connected.and_then(|mut client| Ok(metrics::text(&client.status()?, &client.list()?, format)));
    text.unwrap_or_else(|_| metrics::down(format))
}

#[cfg(test)]
mod tests {
    use crate::http::tests::answers;

    use super::*;

    #[test]
    fn metrics_are_served_in_the_format_that_is_asked_for_and_nothing_else_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let run = folder.path().to_owned();
        let found = answers(
            Arc::new(move |request: &Request| answer(request, &run)),
            &[
                b"GET /metrics HTTP/1.1\r\n\r\n",
                b"GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text;version=1.0.0\r\n\r\n",
                b"HEAD /metrics HTTP/1.1\r\n\r\n",
                b"GET / HTTP/1.1\r\n\r\n",
                b"POST /metrics HTTP/1.1\r\n\r\n",
                b"GET /metrics?a HTTP/1.1\r\n\r\n",
            ],
        );
        let status = |answer: &String| answer.split(' ').nth(1).map(str::to_owned);
        let statuses: Vec<String> = found.iter().filter_map(status).collect();
        assert_eq!(statuses, ["200", "200", "200", "404", "405", "200"], "{found:#?}");
        assert!(found[0].contains("Content-Type: text/plain; version=0.0.4"), "{}", found[0]);
        assert!(found[0].ends_with("\npunctual_up 0\n"), "{}", found[0]);
        assert!(found[1].contains("Content-Type: application/openmetrics-text"), "{}", found[1]);
        assert!(found[1].ends_with("\npunctual_up 0\n# EOF\n"), "{}", found[1]);
        assert!(!found[2].contains("punctual_up"), "{}", found[2]);
    }
}
