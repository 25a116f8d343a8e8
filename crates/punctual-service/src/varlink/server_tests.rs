//! Conversations of users without rights, valid and not, in pieces of any length.

use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::super::MESSAGE_BYTES_MAX;
use super::*;

/// A user who is neither root nor the service.
const NOBODY: u32 = 65_534;
const ACTORS: [u32; 3] = [11, 12, 13];

/// Answers everything, and has nothing that a user without rights may change.
struct Stub;

impl Answers for Stub {
    fn status(&self) -> Value {
        json!({ "large": "x".repeat(2000) })
    }

    fn actors(&self) -> Vec<u32> {
        ACTORS.to_vec()
    }

    fn actor(&self, process: u32) -> Option<Value> {
        // One has ended since it was listed.
        (process != ACTORS[1]).then(|| json!({ "process": process }))
    }

    fn describe(&self, name: &str) -> Result<Value, Failure> {
        Err(Failure::own("NoSuchActor", json!({ "name": name })))
    }

    fn why(&mut self, name: &str, last_s: u64) -> Result<Value, Failure> {
        Ok(json!({ "name": name, "last_s": last_s }))
    }

    fn worst(&mut self, last_s: u64) -> Value {
        json!([{ "last_s": last_s }])
    }

    fn history(&self, since: u64) -> Value {
        json!({ "since": since })
    }

    fn admit(&self, class: &str, count: u32, vcpus: u32) -> Result<Value, Failure> {
        assert!((1..=ADMIT_MAX).contains(&count) && (1..=ADMIT_MAX).contains(&vcpus));
        Ok(json!({ "class": class }))
    }

    fn adjust(&mut self, _name: &str, _to: Adjustment) -> Result<Value, Failure> {
        unreachable!("a user without rights adjusts a VM")
    }

    fn pause(&mut self, _name: &str) -> Result<(), Failure> {
        unreachable!("a user without rights pauses a VM")
    }

    fn resume(&mut self, _name: &str) -> Result<(), Failure> {
        unreachable!("a user without rights resumes a VM")
    }

    fn restore(&mut self, _name: &str) -> Result<(), Failure> {
        unreachable!("a user without rights restores a VM")
    }

    fn reload(&mut self) -> Result<Value, Failure> {
        unreachable!("a user without rights reloads the configuration")
    }
}

/// A message, and what it is to get.
#[derive(Clone, Debug)]
struct Sent {
    bytes: Vec<u8>,
    gets: Gets,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gets {
    /// So many replies.
    Replies(usize),
    /// One, and nothing may follow.
    Monitoring,
    /// The end of the connection.
    End,
}

/// A value of JSON, as a parameter may have it.
fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
        select(vec!["relay", "io.punctual.Host", "org.varlink.service", "\u{1b}[2J"]).prop_map(Value::from),
        Just(json!([[[{}]]])),
        (0u32..300).prop_map(Value::from),
    ]
}

const PARAMETERS: [&str; 8] =
    ["name", "class", "count", "vcpus", "last_s", "budget_ns", "priority", "interface"];

/// A call of any method with any parameters.
fn call() -> impl Strategy<Value = Sent> {
    let interface = select(vec![INTERFACE, SERVICE_INTERFACE, "io.other", ""]);
    let method = select(vec![
        "Status",
        "List",
        "Describe",
        "Why",
        "Admit",
        "Monitor",
        "Adjust",
        "Pause",
        "Resume",
        "Restore",
        "Reload",
        "GetInfo",
        "GetInterfaceDescription",
        "Nothing",
        "",
    ]);
    let names = subsequence(PARAMETERS.to_vec(), 0..=PARAMETERS.len());
    let parameters = names.prop_flat_map(|names| {
        let values = prop::collection::vec(any_value(), names.len());
        values.prop_map(move |values| names.iter().map(|name| (*name).to_owned()).zip(values).collect())
    });
    let flags = (any::<bool>(), prop::bool::weighted(0.1), prop::bool::weighted(0.1));
    (interface, method, parameters, flags).prop_map(|(interface, method, parameters, flags)| {
        let (more, oneway, upgrade) = flags;
        let call = Call { method: format!("{interface}.{method}"), parameters, more, oneway, upgrade };
        let is_own = interface == INTERFACE && !upgrade;
        let gets = match method {
            _ if oneway => Gets::Replies(0),
            "List" if is_own && more => Gets::Replies(ACTORS.len() - 1),
            "Monitor" if is_own && more => Gets::Monitoring,
            _ => Gets::Replies(1),
        };
        let mut bytes = serde_json::to_vec(&call).expect("plain data");
        bytes.push(0);
        Sent { bytes, gets }
    })
}

/// What is no call.
fn garbage() -> impl Strategy<Value = Sent> {
    let bytes = prop_oneof![
        Just(Vec::new()),
        prop::collection::vec(1u8.., 1..40).prop_filter("no call", |bytes| Call::parse(bytes).is_none()),
        Just(b"[".repeat(5000)),
        Just(vec![b' '; MESSAGE_BYTES_MAX]),
    ];
    bytes.prop_map(|mut bytes| {
        bytes.push(0);
        Sent { bytes, gets: Gets::End }
    })
}

/// The server with one client of a user without rights.
fn server(folder: &Path) -> (Server, Descriptors, UnixStream) {
    let mut server = Server::open(&folder.join("socket"), None).expect("open");
    let descriptors = Descriptors::new().expect("an epoll");
    let ours = UnixStream::connect(&server.path).expect("connected");
    assert!(server.accept(&descriptors));
    server.clients.get_mut(&1).expect("the client").peer.user = NOBODY;
    ours.set_nonblocking(true).expect("set");
    (server, descriptors, ours)
}

/// The replies among what was received.
fn replies(received: &[u8]) -> Vec<Reply> {
    assert!(received.is_empty() || received.ends_with(&[0]), "a reply without its end");
    let texts = received.split(|byte| *byte == 0).filter(|text| !text.is_empty());
    texts.map(|text| serde_json::from_slice(text).expect("a reply")).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Each call gets its replies in order, what is no call ends the connection, nothing is changed, and what
    /// a client leaves unread is bounded.
    #[test]
    fn a_user_without_rights_gets_replies_and_changes_nothing(
        messages in prop::collection::vec(prop_oneof![12 => call(), 1 => garbage()], 1..24),
        piece in 1usize..3000,
        reads_every in 1usize..6,
    ) {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut server, descriptors, mut ours) = server(folder.path());
        let all: Vec<u8> = messages.iter().flat_map(|message| message.bytes.iter().copied()).collect();
        let (mut received, mut buffer) = (Vec::new(), [0; 64 << 10]);
        let mut left = all.as_slice();
        // Long after everything has been sent and answered.
        for turn in 0..2 * (all.len() / piece) + 200 {
            let sent = ours.write(&left[..left.len().min(piece)]).unwrap_or(0);
            left = &left[sent..];
            server.serve(1, &descriptors, &mut Stub);
            if let Some(client) = server.clients.get(&1) {
                prop_assert!(client.unread.len() <= UNREAD_MAX);
                prop_assert!(client.received.len() <= MESSAGE_BYTES_MAX + (16 << 10));
            }
            if turn % reads_every == 0 {
                let length = ours.read(&mut buffer).unwrap_or(0);
                received.extend(&buffer[..length]);
            }
        }
        let end = messages.iter().position(|message| message.gets == Gets::End);
        let monitors = messages.iter().position(|message| message.gets == Gets::Monitoring);
        let answered = end.unwrap_or(messages.len()).min(monitors.map_or(usize::MAX, |at| at + 1));
        let expected = messages[..answered].iter().map(|message| match message.gets {
            Gets::Replies(count) => count,
            Gets::Monitoring | Gets::End => 1,
        });
        prop_assert_eq!(replies(&received).len(), expected.sum::<usize>());
        let must_end = answered < messages.len();
        prop_assert_eq!(server.clients.is_empty(), must_end);
        prop_assert_eq!(server.dropped, u64::from(must_end));
        // A client that leaves is forgotten. A process that another test starts has its socket, too, until it
        // is another program.
        let _ = ours.shutdown(std::net::Shutdown::Both);
        drop(ours);
        server.serve(1, &descriptors, &mut Stub);
        prop_assert!(server.clients.is_empty());
        prop_assert!(descriptors.wait(Duration::ZERO).expect("waited").len() <= 1);
    }
}
