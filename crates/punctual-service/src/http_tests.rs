use std::io::ErrorKind;
use std::net::Shutdown;
use std::sync::atomic::AtomicBool;

use proptest::prelude::*;

use super::*;

/// What a server answers to each of these bytes, sent over a connection each.
pub(crate) fn answers(handler: Arc<Handler>, requests: &[&[u8]]) -> Vec<String> {
    let ask = |address: SocketAddr, request: &[u8]| {
        let mut stream = TcpStream::connect(address).expect("it listens");
        // It may answer, and close the connection, before it has all.
        let _ = stream.write_all(request);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).expect("text")
    };
    serving(handler, |address| requests.iter().map(|request| ask(address, request)).collect())
}

fn serving<T>(handler: Arc<Handler>, test: impl FnOnce(SocketAddr) -> T) -> T {
    let server = Server::open("127.0.0.1:0").expect("a port");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| server.run(&handler, &|| stop.load(Ordering::SeqCst)));
        // Also if the test panics: the scope waits for the server.
        let _ends = Ends(&stop);
        test(server.address())
    })
}

/// Ends a server.
struct Ends<'s>(&'s AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Answers with what was asked for.
fn echo() -> Arc<Handler> {
    Arc::new(|request: &Request| Answer::text(200, &format!("{} {}", request.path, request.query)))
}

#[test]
fn requests_to_read_are_answered_and_others_refused() {
    let long = format!("GET / HTTP/1.1\r\nX: {}\r\n", "x".repeat(REQUEST_BYTES_MAX));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "X: x\r\n".repeat(FIELDS_MAX + 1));
    let found = answers(
        echo(),
        &[
            b"GET /a?b=c HTTP/1.1\r\nHost: x\r\n\r\n",
            b"HEAD /a HTTP/1.0\r\n\r\n",
            b"POST / HTTP/1.1\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00",
            long.as_bytes(),
            many.as_bytes(),
        ],
    );
    let status = |answer: &String| answer.split(' ').nth(1).map(str::to_owned);
    let statuses: Vec<String> = found.iter().filter_map(status).collect();
    assert_eq!(statuses, ["200", "200", "405", "400", "431", "431"], "{found:#?}");
    assert!(found[0].ends_with("\r\n\r\n/a b=c"), "{}", found[0]);
    assert!(found[1].contains("Content-Length: 3\r\n") && found[1].ends_with("\r\n\r\n"), "{}", found[1]);
}

#[test]
fn slow_peers_have_places_of_their_own_and_others_are_answered_meanwhile() {
    serving(echo(), |address| {
        let connect = || TcpStream::connect(address).expect("it listens");
        let _silent: Vec<TcpStream> = (0..CONNECTIONS_MAX - 1).map(|_| connect()).collect();
        let mut other = connect();
        other.set_read_timeout(Some(REQUEST_LIMIT)).expect("set");
        other.write_all(b"GET /x HTTP/1.1\r\n\r\n").expect("sent");
        let mut answer = String::new();
        other.read_to_string(&mut answer).expect("an answer");
        assert!(answer.ends_with("/x "), "{answer}");
        // With all places taken, one more is closed at once. The place of the one before may not be free yet.
        let mut kept = Vec::new();
        let is_refused = |_: u32| {
            let mut one = connect();
            one.set_read_timeout(Some(REQUEST_LIMIT / 10)).expect("set");
            let read = one.read(&mut [0; 1]);
            kept.push(one);
            match read {
                Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
                Ok(length) => length == 0,
            }
        };
        assert!((0..5).any(is_refused));
    });
}

#[test]
fn a_peer_that_sends_no_complete_request_is_told_or_left() {
    serving(echo(), |address| {
        let mut half = TcpStream::connect(address).expect("it listens");
        half.write_all(b"GET / HTT").expect("sent");
        half.shutdown(Shutdown::Write).expect("shut down");
        assert_eq!(half.read(&mut [0; 1]).expect("the end"), 0);
    });
}

#[test]
fn a_host_is_this_machine_by_its_loopback_addresses_and_as_localhost() {
    let is = |host: &str| Request { host: host.into(), ..Request::default() }.is_for_loopback();
    let own =
        ["127.0.0.1", "127.0.0.1:9932", "127.9.9.9:1", "localhost", "LocalHost:80", "[::1]", "[::1]:9932"];
    assert!(own.into_iter().all(is));
    let others = [
        "",
        "evil.example",
        "evil.example:9932",
        "10.0.0.1:9932",
        "localhost.evil.example",
        "[::2]:1",
        "[::1",
        "127.0.0.1.evil.example",
        "127.0.0.1:1:2",
        "::1",
    ];
    for host in others {
        assert!(!is(host), "{host}");
    }
}

#[test]
fn an_address_that_others_reach_is_refused_before_anything_listens() {
    for (address, part) in [
        ("0.0.0.0:9931", "0.0.0.0 is not a loopback address"),
        ("[::]:9931", "is not a loopback address"),
        ("127.0.0.1", "expected ADDRESS:PORT"),
        ("localhost:9931", "expected ADDRESS:PORT"),
    ] {
        let error = Server::open(address).err().map(|error| error.to_string());
        assert!(error.as_ref().is_some_and(|error| error.contains(part)), "{address}: {error:?}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_a_request_a_refusal_or_incomplete(
        bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..300),
            "(GET|HEAD|PUT) [ -~]{0,40}( HTTP/1.[01])?(\r\n[A-Za-z]{1,9}: [ -~]{0,20}){0,4}\r\n\r\n"
                .prop_map(String::into_bytes),
        ],
    ) {
        if let Some(Ok((request, _))) = parse(&bytes) {
            prop_assert!(bytes.windows(4).any(|end| end == b"\r\n\r\n") || bytes.contains(&b'\n'));
            prop_assert!(request.path.len() + request.query.len() < bytes.len());
            prop_assert!(!request.path.contains('?'));
        }
    }
}
