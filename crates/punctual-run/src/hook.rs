//! What a libvirt hook tells the service: one datagram.

use std::ffi::OsString;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

/// Where the service listens.
pub const SOCKET: &str = "/run/punctual/hook";

/// Longest message, in bytes.
const MESSAGE_MAX: usize = 4096;

/// An event was not sent.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// libvirt calls a hook with a name, an operation, a sub-operation and a further argument.
    #[error("expected VM-NAME OPERATION SUB-OPERATION, got {given} arguments")]
    Count { given: usize },
    /// An argument cannot be part of a message.
    #[error("{what} is {value:?}, expected {expected}")]
    Argument { what: &'static str, value: OsString, expected: &'static str },
    /// The message is too long.
    #[error("a message of {bytes} bytes, expected at most {MESSAGE_MAX}")]
    Length { bytes: usize },
    /// Nobody listens, or the listener's queue is full.
    #[error(transparent)]
    Send(#[from] io::Error),
}

/// The message for the arguments of a hook: `VM-NAME OPERATION SUB-OPERATION`. Only the name may have spaces,
/// so a reader splits at the last two. Arguments behind these three are left out.
///
/// # Errors
/// There are fewer arguments, or one of them would make another message of it.
pub fn message(arguments: &[OsString]) -> Result<String, HookError> {
    let [name, operation, sub_operation, ..] = arguments else {
        return Err(HookError::Count { given: arguments.len() });
    };
    let is_name = |name: &str| !name.is_empty() && !name.contains(char::is_control);
    let is_word = |word: &str| is_name(word) && !word.contains(char::is_whitespace);
    let text = |what, value: &OsString, expected, is_valid: &dyn Fn(&str) -> bool| {
        let text = value.to_str().filter(|text| is_valid(text)).map(str::to_owned);
        text.ok_or_else(|| HookError::Argument { what, value: value.clone(), expected })
    };
    let name = text("the name", name, "UTF-8 without control characters", &is_name)?;
    let operation = text("the operation", operation, "a word", &is_word)?;
    let sub_operation = text("the sub-operation", sub_operation, "a word", &is_word)?;
    let message = format!("{name} {operation} {sub_operation}");
    if message.len() > MESSAGE_MAX {
        return Err(HookError::Length { bytes: message.len() });
    }
    Ok(message)
}

/// Sends the event that `arguments` describe to `socket`. It never waits: the service finds VMs of which it
/// gets no message by itself, and libvirt waits for its hooks.
///
/// # Errors
/// As [`message`]; nobody listens; the listener's queue is full.
pub fn announce(socket: &Path, arguments: &[OsString]) -> Result<(), HookError> {
    let message = message(arguments)?;
    let sender = UnixDatagram::unbound()?;
    sender.set_nonblocking(true)?;
    sender.send_to(message.as_bytes(), socket)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    fn arguments(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn a_message_has_name_operation_and_sub_operation() {
        let of = |words: &[&str]| message(&arguments(words)).expect("a message");
        assert_eq!(of(&["relay-1", "prepare", "begin", "-"]), "relay-1 prepare begin");
        assert_eq!(of(&["a VM of two", "stopped", "end"]), "a VM of two stopped end");
        assert_eq!(of(&["--color", "migrate", "begin", "tcp://other"]), "--color migrate begin");
    }

    #[test]
    fn arguments_that_would_change_a_message_are_refused() {
        let refused = |arguments: &[OsString]| message(arguments).expect_err("no message").to_string();
        assert_eq!(refused(&[]), "expected VM-NAME OPERATION SUB-OPERATION, got 0 arguments");
        assert!(refused(&arguments(&["", "start", "begin"])).starts_with("the name is \"\""));
        assert!(refused(&arguments(&["a\nb", "start", "begin"])).starts_with("the name is"));
        assert!(refused(&arguments(&["a\u{1b}[2J", "start", "begin"])).starts_with("the name is"));
        assert!(refused(&arguments(&["a", "start now", "begin"])).starts_with("the operation is"));
        assert!(refused(&arguments(&["a", "start", ""])).starts_with("the sub-operation is"));
        let raw = [OsString::from_vec(vec![0xff]), "start".into(), "begin".into()];
        assert!(refused(&raw).starts_with("the name is"));
        let long = arguments(&[&"x".repeat(MESSAGE_MAX), "start", "begin"]);
        assert_eq!(refused(&long), "a message of 4108 bytes, expected at most 4096");
    }

    #[test]
    fn nobody_is_waited_for() {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = directory.path().join("hook");
        let event = arguments(&["relay", "started", "begin", "-"]);
        let kind = |error| match error {
            HookError::Send(error) => error.kind(),
            other => panic!("{other}"),
        };
        let absent = announce(&socket, &event).expect_err("nobody listens");
        assert_eq!(kind(absent), io::ErrorKind::NotFound);

        let service = UnixDatagram::bind(&socket).expect("bound");
        let mut sent = 0;
        let full = loop {
            match announce(&socket, &event) {
                Ok(()) => sent += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(kind(full), io::ErrorKind::WouldBlock);
        assert!(sent > 0);
        let mut buffer = [0; MESSAGE_MAX];
        let length = service.recv(&mut buffer).expect("a message");
        assert_eq!(&buffer[..length], b"relay started begin");
    }
}
