//! Datagrams of libvirt's hook: `VM-NAME OPERATION SUB-OPERATION` in UTF-8.
//!
//! The hook cannot be trusted to be complete (VMs are also found without it), so a datagram only says that it
//! is worth looking now.

/// A datagram is at most this long.
pub const BYTES_MAX: usize = 4096;

/// What libvirt says of a VM; see <https://libvirt.org/hooks.html>, "qemu".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub vm: String,
    /// `prepare`, `start`, `started`, `stopped`, `release`, `migrate`, `restore`, `reconnect`, `attach`.
    pub operation: String,
    /// `begin` or `end`; `-` where libvirt has none.
    pub sub_operation: String,
}

impl Message {
    /// Reads a datagram; `None` when it is not one of the hook. A name may contain blanks, so the operations
    /// count from the end.
    pub fn parse(datagram: &[u8]) -> Option<Message> {
        if datagram.len() > BYTES_MAX {
            return None;
        }
        let text = std::str::from_utf8(datagram).ok()?.trim_end_matches('\n');
        let mut parts = text.rsplitn(3, ' ');
        let (sub_operation, operation, vm) = (parts.next()?, parts.next()?, parts.next()?);
        let is_word = |word: &str| {
            !word.is_empty() && word.len() <= 32 && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'-')
        };
        let is_one = is_word(operation) && is_word(sub_operation) && !vm.is_empty();
        let own = |text: &str| text.to_owned();
        is_one.then(|| Message { vm: own(vm), operation: own(operation), sub_operation: own(sub_operation) })
    }

    /// May a VM appear or change now?
    pub fn announces(&self) -> bool {
        !matches!(self.operation.as_str(), "stopped" | "release")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_message_has_a_name_an_operation_and_a_sub_operation() {
        let parse = |text: &str| Message::parse(text.as_bytes());
        let message = |vm: &str, operation: &str, sub_operation: &str| {
            let [vm, operation, sub_operation] = [vm, operation, sub_operation].map(str::to_owned);
            Some(Message { vm, operation, sub_operation })
        };
        assert_eq!(parse("relay-1 started begin"), message("relay-1", "started", "begin"));
        assert_eq!(parse("my vm stopped end\n"), message("my vm", "stopped", "end"));
        assert_eq!(parse("vm reconnect -"), message("vm", "reconnect", "-"));
        for garbage in ["", "vm", "vm start", " start begin", "vm START begin", "vm start \u{1b}[2J"] {
            assert_eq!(parse(garbage), None, "{garbage:?}");
        }
        assert_eq!(Message::parse(b"\xff start begin"), None);
        assert_eq!(Message::parse(&[b'a'; BYTES_MAX + 1]), None);
        assert!(parse("vm start begin").is_some_and(|message| message.announces()));
        assert!(!parse("vm release end").is_some_and(|message| message.announces()));
    }

    proptest! {
        #[test]
        fn any_datagram_is_read_or_refused(datagram in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = Message::parse(&datagram);
        }
    }
}
