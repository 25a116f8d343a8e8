//! Debian's Kamailio as a SIP relay without state (s.6.7.1), for guests and for the host, and who calls
//! through it: SIPp's clock has steps of 1 ms, so it cannot time a message.

use std::fs;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::time::{Duration as StdDuration, Instant};

use punctual_vm::image::programs;

use super::lab::{ADDRESS, Extra, RELAY_PORT, Server};
use crate::error::Error;
use crate::target::LiveOptions;

const PACKAGES: [&str; 3] = ["kamailio", "util-linux", "libc6"];
/// By name in the packages, and in the guest.
const FILES: [(&str, &str); 3] =
    [("kamailio", "relay/kamailio"), ("libm.so.6", "relay/libm.so.6"), ("chrt", "relay/chrt")];
/// Requests go where they say, and answers the way back, which is in them: no call is remembered.
const RELAY: &str = "\
debug=0
log_stderror=yes
fork=no
auto_aliases=no
dns=no
rev_dns=no
request_route {
    forward();
}
";
/// Of both: one process, memory in MiB.
const ARGUMENTS: &str = "-D -E -m 16 -M 4 -Y /tmp";
/// The guest's priority of it, as memcached's.
const GUEST_PRIORITY: u32 = 40;
/// How long a message may take before it counts as lost, and its call is given up.
const PATIENCE: StdDuration = StdDuration::from_secs(1);
/// How long a relay that has booted may take to relay at all.
const FIRST: StdDuration = StdDuration::from_secs(30);
/// The longest message.
const BYTES_MAX: usize = 2048;

/// Where Debian's programs are on the host.
pub(super) struct Programs {
    root: PathBuf,
    folder: tempfile::TempDir,
}

impl Programs {
    /// Fetches them.
    ///
    /// # Errors
    /// They are not to be had.
    pub(super) fn fetch(options: &LiveOptions<'_>) -> Result<Programs, Error> {
        let root = programs::fetch(&PACKAGES, &FILES, options.progress, options.stop);
        let root = root.map_err(|error| Error::Lab(error.to_string()))?;
        let folder = tempfile::tempdir().map_err(failed)?;
        fs::write(folder.path().join("relay.cfg"), RELAY).map_err(failed)?;
        Ok(Programs { root, folder })
    }

    /// The relay, for guests and for the host.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(super) fn server(&self) -> Result<Extra, Error> {
        let mut files = vec![("relay/relay.cfg".to_owned(), RELAY.as_bytes().to_vec())];
        for (_, place) in FILES {
            files.push((place.to_owned(), fs::read(self.root.join(place)).map_err(failed)?));
        }
        let listen = format!("-l udp:{ADDRESS}:{}", RELAY_PORT);
        let start = format!(
            "LD_LIBRARY_PATH=/lib:/relay /relay/chrt -f {GUEST_PRIORITY} /relay/kamailio -f /relay/relay.cfg \
             {ARGUMENTS} {listen} &\n"
        );
        let program = self.root.join("relay/kamailio").display().to_string();
        let mut command =
            vec![program, "-f".into(), self.folder.path().join("relay.cfg").display().to_string()];
        command.extend(format!("{ARGUMENTS} {listen}").split(' ').map(str::to_owned));
        Ok(Extra { files, start, command })
    }
}

fn failed(error: io::Error) -> Error {
    Error::Lab(format!("SIP relay: {error}"))
}

/// Who calls and who is called, through a relay: each message of a call is a question, whose answer is that
/// the other side has it. Calls follow one another: INVITE, 180, 200, ACK, BYE, 200.
pub(super) struct Caller {
    caller: UdpSocket,
    callee: UdpSocket,
    relay: SocketAddr,
    call: u64,
    step: usize,
    /// What the callee got last, which its answers repeat in part.
    request: String,
}

impl Caller {
    /// Both sides, at an address, and waits until the relay relays.
    ///
    /// # Errors
    /// It does not.
    pub(super) fn new(server: &Server, stop: fn() -> bool) -> io::Result<Caller> {
        let bind = || -> io::Result<UdpSocket> {
            let socket = UdpSocket::bind((server.client, 0))?;
            socket.set_read_timeout(Some(StdDuration::from_millis(300)))?;
            Ok(socket)
        };
        let (caller, callee) = (bind()?, bind()?);
        let mut both =
            Caller { caller, callee, relay: server.relay, call: 0, step: 0, request: String::new() };
        let give_up = Instant::now() + FIRST;
        while let Err(error) = both.relay_one() {
            if stop() || Instant::now() > give_up {
                return Err(error);
            }
            std::thread::sleep(StdDuration::from_millis(50));
        }
        for socket in [&both.caller, &both.callee] {
            socket.set_read_timeout(Some(PATIENCE))?;
        }
        Ok(both)
    }

    /// Sends the next message and waits until the other side has it.
    ///
    /// # Errors
    /// It does not come; the call is given up then.
    pub(super) fn relay_one(&mut self) -> io::Result<()> {
        let (message, of_caller) = self.message()?;
        let (from, to) = if of_caller { (&self.caller, &self.callee) } else { (&self.callee, &self.caller) };
        // The relay adds to what follows.
        let end = if of_caller { ' ' } else { '\r' };
        let start = message.split(end).next().unwrap_or_default().to_owned();
        let sent = from.send_to(message.as_bytes(), self.relay);
        let came = sent.and_then(|_| wait_for(to, &start, &format!("Call-ID: {}@punctual\r\n", self.call)));
        match came {
            Ok(came) => {
                if of_caller {
                    self.request = came;
                }
                self.step = (self.step + 1) % 6;
                if self.step == 0 {
                    self.call += 1;
                }
                Ok(())
            }
            Err(error) => {
                self.step = 0;
                self.call += 1;
                Err(error)
            }
        }
    }

    /// The next message, and whether the caller sends it.
    fn message(&self) -> io::Result<(String, bool)> {
        let answer = |status: &str| answer(&self.request, status);
        Ok(match self.step {
            0 => (self.of_caller("INVITE", "1 INVITE")?, true),
            1 => (answer("180 Ringing"), false),
            2 => (answer("200 OK"), false),
            3 => (self.of_caller("ACK", "1 ACK")?, true),
            4 => (self.of_caller("BYE", "2 BYE")?, true),
            _ => (answer("200 OK"), false),
        })
    }

    fn of_caller(&self, method: &str, sequence: &str) -> io::Result<String> {
        let (own, other, call) = (self.caller.local_addr()?, self.callee.local_addr()?, self.call);
        let tag = if method == "INVITE" { "" } else { ";tag=callee" };
        Ok(format!(
            "{method} sip:callee@{other} SIP/2.0\r\n\
             Via: SIP/2.0/UDP {own};branch=z9hG4bK-{call}-{method}\r\n\
             From: <sip:caller@{own}>;tag=caller\r\n\
             To: <sip:callee@{other}>{tag}\r\n\
             Call-ID: {call}@punctual\r\n\
             CSeq: {sequence}\r\n\
             Contact: <sip:caller@{own}>\r\n\
             Max-Forwards: 70\r\n\
             Content-Length: 0\r\n\r\n"
        ))
    }
}

/// An answer to a request, by the way that is in the request.
fn answer(request: &str, status: &str) -> String {
    let mut answer = format!("SIP/2.0 {status}\r\n");
    for line in request.lines() {
        let name = line.split(':').next().unwrap_or_default();
        if ["Via", "From", "Call-ID", "CSeq"].contains(&name) {
            answer.extend([line, "\r\n"]);
        } else if name == "To" {
            answer.extend([line, if line.contains(";tag=") { "" } else { ";tag=callee" }, "\r\n"]);
        }
    }
    answer + "Content-Length: 0\r\n\r\n"
}

/// Receives until a message comes that begins so and is of this call; others are late.
fn wait_for(socket: &UdpSocket, start: &str, call: &str) -> io::Result<String> {
    let mut buffer = [0; BYTES_MAX];
    let give_up = Instant::now() + PATIENCE;
    while Instant::now() < give_up {
        let bytes = socket.recv(&mut buffer)?;
        let came = String::from_utf8_lossy(&buffer[..bytes]);
        if came.starts_with(start) && came.contains(call) {
            return Ok(came.into_owned());
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_goes_back_by_the_way_of_its_request() {
        let request = "INVITE sip:b@h SIP/2.0\r\nVia: one\r\nVia: two\r\nTo: <sip:b@h>\r\n\
                       Max-Forwards: 69\r\nCall-ID: 7@punctual\r\n\r\n";
        assert_eq!(
            answer(request, "200 OK"),
            "SIP/2.0 200 OK\r\nVia: one\r\nVia: two\r\nTo: <sip:b@h>;tag=callee\r\nCall-ID: 7@punctual\r\n\
             Content-Length: 0\r\n\r\n"
        );
    }
}
