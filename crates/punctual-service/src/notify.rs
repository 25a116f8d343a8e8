//! Messages to the service manager: `sd_notify(3)`, by datagrams to `NOTIFY_SOCKET`.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use punctual_model::text::printable;

/// A manager whose queue is full is tried again for this long, with pauses.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(10);

/// The connection to the service manager; without one, messages go nowhere.
#[derive(Debug, Default)]
pub struct Notifier {
    socket: Option<UnixDatagram>,
    /// How often the manager wants a sign of life.
    watchdog: Option<Duration>,
}

impl Notifier {
    /// As the environment of this process says (`NOTIFY_SOCKET`, `WATCHDOG_USEC`, `WATCHDOG_PID`).
    ///
    /// # Errors
    /// The socket that the manager names cannot be used.
    pub fn from_environment() -> io::Result<Notifier> {
        let Some(path) = std::env::var_os("NOTIFY_SOCKET").filter(|path| !path.is_empty()) else {
            return Ok(Notifier::default());
        };
        let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
        let is_ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|&us| is_ours && us > 0).map(Duration::from_micros);
        Notifier::connect(&path, watchdog)
    }

    /// To the socket at `path`; one that begins with `@` is in the abstract namespace.
    ///
    /// # Errors
    /// The socket cannot be used.
    pub fn connect(path: &OsStr, watchdog: Option<Duration>) -> io::Result<Notifier> {
        let address = match path.as_bytes().strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(path)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&address)?;
        // A manager that does not read must not stop the service.
        socket.set_nonblocking(true)?;
        Ok(Notifier { socket: Some(socket), watchdog })
    }

    /// How often [`Notifier::alive`] is due: half of the manager's limit, as `sd_watchdog_enabled(3)`
    /// advises.
    pub fn watchdog_interval(&self) -> Option<Duration> {
        self.watchdog.map(|limit| limit / 2)
    }

    /// The service works, with these words for `systemctl status`.
    pub fn ready(&self, status: &str) {
        self.send_surely(&format!("READY=1\nSTATUS={}", one_line(status)));
    }

    /// A reload begins.
    pub fn reloading(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let us = now.tv_sec.unsigned_abs() * 1_000_000 + now.tv_nsec.unsigned_abs() / 1_000;
        self.send_surely(&format!("RELOADING=1\nMONOTONIC_USEC={us}"));
    }

    /// New words for `systemctl status`.
    pub fn status(&self, status: &str) {
        self.send(&format!("STATUS={}", one_line(status)));
    }

    /// The service ends.
    pub fn stopping(&self) {
        self.send_surely("STOPPING=1");
    }

    /// A sign of life.
    pub fn alive(&self) {
        self.send("WATCHDOG=1");
    }

    /// Sends what may be lost.
    fn send(&self, message: &str) {
        if let Some(socket) = &self.socket {
            // Without a manager there is nobody to notify.
            let _ = socket.send(message.as_bytes());
        }
    }

    /// Sends what the manager waits for: while its queue is full, again and again for [`PATIENCE`].
    fn send_surely(&self, message: &str) {
        let Some(socket) = &self.socket else { return };
        let until = Instant::now() + PATIENCE;
        while let Err(error) = socket.send(message.as_bytes())
            && error.kind() == io::ErrorKind::WouldBlock
            && Instant::now() < until
        {
            std::thread::sleep(PAUSE);
        }
    }
}

/// A line break would begin another assignment.
fn one_line(text: &str) -> String {
    printable(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_assignments_and_text_cannot_add_one() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("notify");
        let manager = UnixDatagram::bind(&path).expect("bound");
        let notifier = Notifier::connect(path.as_os_str(), Some(Duration::from_secs(10))).expect("connected");
        assert_eq!(notifier.watchdog_interval(), Some(Duration::from_secs(5)));
        let receive = || {
            let mut buffer = [0; 256];
            let length = manager.recv(&mut buffer).expect("a message");
            String::from_utf8(buffer[..length].to_vec()).expect("text")
        };
        notifier.ready("2 VMs\nMAINPID=1");
        assert_eq!(receive(), "READY=1\nSTATUS=2 VMs\\nMAINPID=1");
        notifier.reloading();
        let reloading = receive();
        let us = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").expect("two assignments");
        assert!(us.parse::<u64>().is_ok_and(|us| us > 0), "{us}");
        notifier.alive();
        notifier.stopping();
        assert_eq!((receive(), receive()), ("WATCHDOG=1".into(), "STOPPING=1".into()));
        // A full queue takes what matters as soon as there is room.
        while notifier.socket.as_ref().expect("connected").send(b"filler").is_ok() {}
        notifier.alive();
        let reader = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            let mut buffer = [0; 64];
            loop {
                let length = manager.recv(&mut buffer).expect("a message");
                if &buffer[..length] != b"filler" {
                    return String::from_utf8_lossy(&buffer[..length]).into_owned();
                }
            }
        });
        notifier.stopping();
        assert_eq!(reader.join().expect("a message"), "STOPPING=1", "the sign of life is lost");
        notifier.status("nobody reads");
        Notifier::default().ready("nobody listens");
    }

    #[test]
    fn sockets_of_the_abstract_namespace_are_found() {
        let name = format!("punctual-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("an address");
        let manager = UnixDatagram::bind_addr(&address).expect("bound");
        Notifier::connect(OsStr::new(&format!("@{name}")), None).expect("connected").stopping();
        let mut buffer = [0; 64];
        let length = manager.recv(&mut buffer).expect("a message");
        assert_eq!(&buffer[..length], b"STOPPING=1");
    }
}
