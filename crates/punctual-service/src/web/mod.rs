//! A page for people who look rather than read, and the JSON behind it, by a process beside the service.
//!
//! The page is one constant document: what the service says goes to it as JSON, and its script puts it in as
//! text. Its policy (Content-Security-Policy) lets it load that JSON alone, and no other script or style run.
//! [`data`] says what is in the JSON. The service is asked at most once a second, however many look, and not
//! at all while nobody does.

pub mod data;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use crate::http::{Answer, Error, Handler, Request, Server};
use data::Source;

/// The page, and the JSON behind it.
const PAGE_PATH: &str = "/";
const DATA_PATH: &str = "/data.json";

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Serves the page.
#[derive(Debug)]
pub struct Web {
    server: Server,
    source: Arc<Mutex<Source>>,
}

impl Web {
    /// Listens at a loopback address; port 0 takes a free one. The service need not run.
    ///
    /// # Errors
    /// As [`Server::open`].
    pub fn open(address: &str, run: &Path) -> Result<Web, Error> {
        let source = Arc::new(Mutex::new(Source::new(run)));
        Ok(Web { server: Server::open(address)?, source })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Answers requests until `stop`.
    pub fn run(&self, stop: &dyn Fn() -> bool) {
        let source = self.source.clone();
        let (page, policy) = (page(), policy());
        let handler: Arc<Handler> = Arc::new(move |request: &Request| {
            let answer = answer(request, &page, &source);
            with_fields(answer, &policy)
        });
        self.server.run(&handler, stop);
    }
}

fn answer(request: &Request, page: &str, source: &Mutex<Source>) -> Answer {
    if !request.is_for_loopback() {
        return Answer::text(421, "this page is for this machine: ask for localhost\n");
    }
    match request.path.as_str() {
        PAGE_PATH => {
            let (content_type, body) = ("text/html; charset=utf-8", page.as_bytes().to_vec());
            Answer { status: 200, content_type, fields: Vec::new(), body }
        }
        DATA_PATH => {
            let [since, started_us] = ["since", "started_us"].map(|name| number(&request.query, name));
            let mut source = source.lock().unwrap_or_else(PoisonError::into_inner);
            let data = source.data(since, started_us);
            let body = serde_json::to_vec(&data).unwrap_or_default();
            Answer { status: 200, content_type: "application/json", fields: Vec::new(), body }
        }
        _ => Answer::text(404, &format!("see {PAGE_PATH} and {DATA_PATH}\n")),
    }
}

/// A number of a query; 0 if it has none.
fn number(query: &str, name: &str) -> u64 {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let found = pairs.filter(|(key, _)| *key == name).find_map(|(_, value)| value.parse().ok());
    found.unwrap_or(0)
}

/// What browsers are told beside each answer.
fn with_fields(mut answer: Answer, policy: &str) -> Answer {
    answer.fields.extend([
        ("Content-Security-Policy", policy.to_owned()),
        ("X-Content-Type-Options", "nosniff".into()),
        ("Referrer-Policy", "no-referrer".into()),
        ("Cross-Origin-Resource-Policy", "same-origin".into()),
        ("Cache-Control", "no-store".into()),
    ]);
    answer
}

fn page() -> String {
    PAGE.replacen("{style}", STYLE, 1).replacen("{script}", SCRIPT, 1)
}

/// Nothing is loaded but the data; no script and no style but the page's own.
fn policy() -> String {
    let [script, style] = [SCRIPT, STYLE].map(|text| STANDARD.encode(Sha256::digest(text.as_bytes())));
    format!(
        "default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
}

#[cfg(test)]
mod tests {
    use crate::http::tests::answers;

    use super::*;

    #[test]
    fn the_page_is_served_to_this_machine_alone_and_without_a_service_says_why_it_is_empty() {
        let folder = tempfile::tempdir().expect("a folder");
        let source = Arc::new(Mutex::new(Source::new(folder.path())));
        let handler = move |request: &Request| with_fields(answer(request, &page(), &source), &policy());
        let found = answers(
            Arc::new(handler),
            &[
                b"GET / HTTP/1.1\r\nHost: localhost:9932\r\n\r\n",
                b"GET /data.json?since=7 HTTP/1.1\r\nHost: 127.0.0.1:9932\r\n\r\n",
                b"GET /data.json HTTP/1.1\r\nHost: evil.example:9932\r\n\r\n",
                b"GET / HTTP/1.1\r\n\r\n",
                b"GET /favicon.ico HTTP/1.1\r\nHost: [::1]\r\n\r\n",
                b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\n",
            ],
        );
        let status = |answer: &String| answer.split(' ').nth(1).map(str::to_owned);
        let statuses: Vec<String> = found.iter().filter_map(status).collect();
        assert_eq!(statuses, ["200", "200", "421", "421", "404", "405"], "{found:#?}");
        let page = &found[0];
        assert!(page.contains("Content-Security-Policy: default-src 'none'; script-src 'sha256-"), "{page}");
        assert!(page.contains(SCRIPT) && page.contains(STYLE) && page.ends_with("</html>\n"));
        assert!(!page.contains("Set-Cookie") && !page.contains("http://") && !page.contains("https://"));
        let (_, data) = found[1].split_once("\r\n\r\n").expect("a body");
        let data: data::Data = serde_json::from_str(data).expect("JSON");
        assert!(!data.is_connected && data.host.is_none() && data.actors.is_empty());
        assert!(data.reason.is_some_and(|reason| reason.contains("cannot connect to the service")));
        assert!(!found[2].contains("host_name"), "{}", found[2]);
    }

    #[test]
    fn a_query_has_numbers_or_counts_as_0() {
        let number = |query| number(query, "since");
        assert_eq!(["since=5", "a=1&since=6", "since=7&since=8"].map(number), [5, 6, 7]);
        assert_eq!(["", "since", "since=", "since=-1", "since=1x", "xsince=3", "&&=&"].map(number), [0; 7]);
    }
}
