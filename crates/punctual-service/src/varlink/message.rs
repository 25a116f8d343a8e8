//! Messages: calls and replies.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A call is at most this long, its NUL included.
pub const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// A call of a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// `INTERFACE.METHOD`.
    pub method: String,
    #[serde(default)]
    pub parameters: Map<String, Value>,
    /// The client wants as many replies as there are.
    #[serde(default, skip_serializing_if = "is_false")]
    pub more: bool,
    /// The client wants no reply.
    #[serde(default, skip_serializing_if = "is_false")]
    pub oneway: bool,
    /// The client wants to speak another protocol afterwards.
    #[serde(default, skip_serializing_if = "is_false")]
    pub upgrade: bool,
}

/// A reply of the service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    #[serde(default)]
    pub parameters: Value,
    /// Others follow.
    #[serde(default, skip_serializing_if = "is_false")]
    pub continues: bool,
    /// `INTERFACE.ERROR`, when the call failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl Call {
    /// Reads a message without its NUL. `parameters` may be null, as some clients send it.
    pub fn parse(message: &[u8]) -> Option<Call> {
        let mut value: Value = serde_json::from_slice(message).ok()?;
        let object = value.as_object_mut()?;
        if object.get("parameters").is_some_and(Value::is_null) {
            object.remove("parameters");
        }
        serde_json::from_value(value).ok()
    }
}

impl Reply {
    /// The reply as it goes over the socket, with its NUL.
    pub fn bytes(&self) -> Vec<u8> {
        // A value of JSON can always be written.
        let mut bytes = serde_json::to_vec(self).unwrap_or_default();
        bytes.push(0);
        bytes
    }
}

/// Takes the first message out of what was received, without its NUL.
///
/// # Errors
/// No message can come of it: it is longer than [`MESSAGE_BYTES_MAX`].
pub fn next_message(received: &mut Vec<u8>) -> Result<Option<Vec<u8>>, TooLong> {
    match received.iter().position(|&byte| byte == 0) {
        Some(end) if end < MESSAGE_BYTES_MAX => {
            let mut message: Vec<u8> = received.drain(..=end).collect();
            message.pop();
            Ok(Some(message))
        }
        None if received.len() < MESSAGE_BYTES_MAX => Ok(None),
        _ => Err(TooLong),
    }
}

/// A message is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn calls_are_read_and_what_is_none_is_refused() {
        let call = Call::parse(br#"{"method":"a.B","parameters":{"name":"x"},"more":true,"extra":1}"#);
        let call = call.expect("a call");
        assert_eq!((call.method.as_str(), call.more, call.oneway), ("a.B", true, false));
        assert_eq!(call.parameters["name"], "x");
        assert!(
            Call::parse(br#"{"method":"a.B","parameters":null}"#).is_some_and(|c| c.parameters.is_empty())
        );
        let deep = [b"[".repeat(10_000), b"]".repeat(10_000)].concat();
        for bad in [
            &b""[..],
            b"{}",
            b"[]",
            b"null",
            br#"{"method":1}"#,
            br#"{"method":"a","parameters":[]}"#,
            b"\xff",
            &deep,
        ] {
            assert_eq!(Call::parse(bad), None, "{}", String::from_utf8_lossy(bad));
        }
    }

    #[test]
    fn replies_leave_out_what_is_not_set() {
        let reply = Reply { parameters: serde_json::json!({}), continues: false, error: None };
        assert_eq!(reply.bytes(), b"{\"parameters\":{}}\0");
    }

    #[test]
    fn a_message_without_an_end_is_refused_when_it_is_too_long() {
        let mut received = vec![b'a'; MESSAGE_BYTES_MAX - 1];
        assert_eq!(next_message(&mut received), Ok(None));
        received.push(b'a');
        assert_eq!(next_message(&mut received), Err(TooLong));
        received.push(0);
        assert_eq!(next_message(&mut received), Err(TooLong), "also with an end");
    }

    proptest! {
        /// Whatever the pieces in which messages come, they are the same, and any bytes are read or refused.
        #[test]
        fn messages_come_out_as_they_went_in(
            messages in prop::collection::vec(prop::collection::vec(1u8.., 0..40), 0..8),
            pieces in 1usize..50,
        ) {
            let all: Vec<u8> = messages.iter().flat_map(|one| one.iter().copied().chain([0])).collect();
            let (mut received, mut out) = (Vec::new(), Vec::new());
            for piece in all.chunks(pieces) {
                received.extend(piece);
                while let Some(message) = next_message(&mut received).expect("short") {
                    let _ = Call::parse(&message);
                    out.push(message);
                }
            }
            prop_assert_eq!(out, messages);
            prop_assert!(received.is_empty());
        }

        #[test]
        fn any_json_is_a_call_or_refused(text in "[\\[\\]{}\":,a-z0-9 ]{0,60}") {
            let _ = Call::parse(text.as_bytes());
        }
    }
}
