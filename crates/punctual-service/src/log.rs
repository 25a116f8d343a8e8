//! What the service says: to the journal as entries with fields, or to standard error as lines.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use punctual_model::text::printable;

/// The journal's socket; the format is in
/// <https://systemd.io/JOURNAL_NATIVE_PROTOCOL/>.
const JOURNAL: &str = "/run/systemd/journal/socket";

/// What happened. Each kind has a message id, by which `journalctl MESSAGE_ID=...` finds its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Started,
    Seen,
    Matched,
    Unmatched,
    Released,
    Held,
    LetGo,
    NotHeld,
    PutBack,
    GivenUp,
    Adjusted,
    Paused,
    Resumed,
    Restored,
    Reloaded,
    ReloadRefused,
    Warning,
    Stopping,
}

impl Kind {
    pub const ALL: [Kind; 18] = [
        Kind::Started,
        Kind::Seen,
        Kind::Matched,
        Kind::Unmatched,
        Kind::Released,
        Kind::Held,
        Kind::LetGo,
        Kind::NotHeld,
        Kind::PutBack,
        Kind::GivenUp,
        Kind::Adjusted,
        Kind::Paused,
        Kind::Resumed,
        Kind::Restored,
        Kind::Reloaded,
        Kind::ReloadRefused,
        Kind::Warning,
        Kind::Stopping,
    ];

    /// A word for it, as JSON shows it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Started => "started",
            Kind::Seen => "seen",
            Kind::Matched => "matched",
            Kind::Unmatched => "unmatched",
            Kind::Released => "released",
            Kind::Held => "held",
            Kind::LetGo => "let-go",
            Kind::NotHeld => "not-held",
            Kind::PutBack => "put-back",
            Kind::GivenUp => "given-up",
            Kind::Adjusted => "adjusted",
            Kind::Paused => "paused",
            Kind::Resumed => "resumed",
            Kind::Restored => "restored",
            Kind::Reloaded => "reloaded",
            Kind::ReloadRefused => "reload-refused",
            Kind::Warning => "warning",
            Kind::Stopping => "stopping",
        }
    }

    /// Its id; these never change.
    pub fn message_id(self) -> &'static str {
        match self {
            Kind::Started => "4a7c1060b2514fe4aed0252838a44e7c",
            Kind::Seen => "4144320a6d0a4c5a994f4a1904407c30",
            Kind::Matched => "32c23121afd84e5ca0fff34b15cdd5ff",
            Kind::Unmatched => "6fa0176078104a6ea25667d2bc0b2501",
            Kind::Released => "26971ef29f364b98953a71ec34d39fe5",
            Kind::Held => "87945ffe26e9421184c2193da3fef3f3",
            Kind::LetGo => "e666130496be4f2b9e2e57a34b3b4f87",
            Kind::NotHeld => "3369bf49bf244e96b5cf8bd5e2ad7988",
            Kind::PutBack => "3618b6b6e4014ebeb68d69527d6c2063",
            Kind::GivenUp => "5f5f951775da4bddbdabda0e4e8e5cbf",
            Kind::Adjusted => "27d7e6af63484621866728e987d284f4",
            Kind::Paused => "8881014b55bc4c96a54a7d390c413bff",
            Kind::Resumed => "8305014d83d24f2ea3815386c324af58",
            Kind::Restored => "2b352cd732834aadb565cd094922a239",
            Kind::Reloaded => "102a254d260243e8947b6fb6981f95db",
            Kind::ReloadRefused => "00eef034dca84ec0a359c263459b31d4",
            Kind::Warning => "21fd538477e64b83ad5282b412880ccc",
            Kind::Stopping => "706b40a653cf47af8deff402abec2009",
        }
    }

    /// Of syslog(3).
    fn priority(self) -> u8 {
        const ERROR: u8 = 3;
        const WARNING: u8 = 4;
        const INFO: u8 = 6;
        match self {
            Kind::ReloadRefused => ERROR,
            Kind::Warning | Kind::NotHeld | Kind::PutBack | Kind::GivenUp => WARNING,
            _ => INFO,
        }
    }
}

/// Something that happened.
#[derive(Clone, Debug)]
pub struct Entry {
    pub kind: Kind,
    pub text: String,
    /// The VM, if it concerns one, and its process.
    pub actor: Option<(String, u32)>,
    /// The class, if it concerns one.
    pub class: Option<String>,
}

/// Where entries go.
#[derive(Debug)]
pub enum Log {
    Journal(UnixDatagram),
    Lines,
}

impl Log {
    /// To the journal if standard error is connected to it (`JOURNAL_STREAM`, systemd.exec(5)), otherwise to
    /// standard error.
    pub fn open() -> Log {
        let stream = std::env::var("JOURNAL_STREAM").unwrap_or_default();
        let is_journal = std::fs::metadata("/proc/self/fd/2")
            .is_ok_and(|error| stream == format!("{}:{}", error.dev(), error.ino()));
        let socket = is_journal.then(|| Log::journal(Path::new(JOURNAL))).flatten();
        socket.unwrap_or(Log::Lines)
    }

    /// To the journal whose socket is at `path`; `None` where there is none.
    pub fn journal(path: &Path) -> Option<Log> {
        let socket = UnixDatagram::unbound().ok()?;
        socket.connect(path).ok()?;
        // A journal that does not read must not stop the service.
        socket.set_nonblocking(true).ok()?;
        Some(Log::Journal(socket))
    }

    /// Writes an entry.
    pub fn write(&self, entry: &Entry) {
        let sent = match self {
            Log::Journal(socket) => socket.send(&datagram(entry)).is_ok(),
            Log::Lines => false,
        };
        if !sent {
            // If standard error is gone, nobody can be notified.
            let _ = writeln!(std::io::stderr(), "{}", printable(&entry.text));
        }
    }
}

/// An entry in the journal's native protocol.
fn datagram(entry: &Entry) -> Vec<u8> {
    let mut out = Vec::new();
    let mut field = |name: &str, value: &str| {
        out.extend(name.as_bytes());
        if value.contains('\n') {
            out.push(b'\n');
            out.extend((value.len() as u64).to_le_bytes());
        } else {
            out.push(b'=');
        }
        out.extend(value.as_bytes());
        out.push(b'\n');
    };
    field("MESSAGE", &entry.text);
    field("MESSAGE_ID", entry.kind.message_id());
    field("PRIORITY", &entry.kind.priority().to_string());
    field("SYSLOG_IDENTIFIER", "punctuald");
    field("PUNCTUAL_EVENT", entry.kind.name());
    if let Some((name, process)) = &entry.actor {
        field("PUNCTUAL_ACTOR", name);
        field("PUNCTUAL_ACTOR_PID", &process.to_string());
    }
    if let Some(class) = &entry.class {
        field("PUNCTUAL_CLASS", class);
    }
    out
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_kind_has_an_id_of_its_own() {
        let ids: BTreeSet<&str> = Kind::ALL.iter().map(|kind| kind.message_id()).collect();
        let names: BTreeSet<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
        assert_eq!((ids.len(), names.len()), (Kind::ALL.len(), Kind::ALL.len()));
        assert!(ids.iter().all(|id| id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit())));
    }

    #[test]
    fn entries_reach_the_journal_with_their_fields_and_no_name_adds_one() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("journal");
        assert!(Log::journal(&path).is_none());
        let journal = UnixDatagram::bind(&path).expect("bound");
        let log = Log::journal(&path).expect("connected");
        let actor = Some(("evil\nPRIORITY=0".to_owned(), 7));
        log.write(&Entry { kind: Kind::Seen, text: "a VM".into(), actor, class: Some("relay".into()) });
        let mut buffer = [0; 1024];
        let length = journal.recv(&mut buffer).expect("an entry");
        let mut expected = b"MESSAGE=a VM\nMESSAGE_ID=4144320a6d0a4c5a994f4a1904407c30\nPRIORITY=6\n\
                             SYSLOG_IDENTIFIER=punctuald\nPUNCTUAL_EVENT=seen\nPUNCTUAL_ACTOR\n"
            .to_vec();
        expected.extend(15u64.to_le_bytes());
        expected.extend(b"evil\nPRIORITY=0\nPUNCTUAL_ACTOR_PID=7\nPUNCTUAL_CLASS=relay\n");
        assert_eq!(String::from_utf8_lossy(&buffer[..length]), String::from_utf8_lossy(&expected));
    }
}
