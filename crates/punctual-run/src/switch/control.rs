//! The control socket of a running `punctual switch`. Each client sends one request and gets one answer, each
//! a line of JSON.
//!
//! The socket is beside those of the VMs. If these are elsewhere, a link in the state directory leads to it,
//! so that `punctual switch --reload` and `punctual attach` find it by the network's name. Only its owner and
//! root may connect: the file has mode 0600, and the credentials of each client are checked.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use punctual_enforce::journal;
use punctual_model::results::SwitchResult;
use serde::{Deserialize, Serialize};

use crate::planes::Member;

/// The socket's name. That of no VM begins with a dot.
const NAME: &str = ".control";

/// A request, with its host file, is no longer.
const REQUEST_BYTES_MAX: u64 = 4 << 20;

/// An answer is no longer.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// A client sends its whole request within this, and takes each part of its answer.
const CLIENT_LIMIT: Duration = Duration::from_secs(5);

/// An answer takes no longer: a change waits for planes, some seconds for each at worst.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// When no client can be accepted, it is tried again after this.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a client wants.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// The switch becomes what this says.
    Become(Description),
    /// What it has counted.
    Count,
}

/// What a command line says of a switch.
#[derive(Debug, Serialize, Deserialize)]
pub struct Description {
    /// The host file's name in errors.
    pub file: String,
    /// What is in it.
    pub text: String,
    /// Changes of its keys.
    pub set: Vec<String>,
    /// Uplinks.
    pub uplinks: Vec<String>,
    /// What paths are relative to.
    pub directory: PathBuf,
    /// Is it libvirt that connects the VMs which come?
    pub libvirt: bool,
}

/// What became of a request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The switch is what was wanted.
    Became {
        /// Ports that came, went, and came again with other properties.
        changes: Changes,
        /// How VMs connect to those that came.
        listing: String,
    },
    /// Nothing was changed, or what could not be put back is said.
    Refused(String),
    /// What was counted so far.
    Counted(Box<Counted>),
}

/// A switch at work.
#[derive(Debug, Serialize, Deserialize)]
pub struct Counted {
    /// What it counted since it started.
    pub result: SwitchResult,
    /// The threads of its planes and uplinks.
    pub members: Vec<Member>,
}

/// Ports by name.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    pub added: Vec<String>,
    pub removed: Vec<String>,
    pub changed: Vec<String>,
}

/// A request, and where the answer goes.
pub type Asked = (Request, Sender<Answer>);

/// The control socket; it goes away when this is dropped.
pub struct Control {
    listener: UnixListener,
    path: PathBuf,
    /// In the state directory, where the socket is elsewhere.
    link: Option<PathBuf>,
}

impl Control {
    /// Listens in `directory`, for the switch of this network. Requests go to `asked`.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(directory: &Path, network: &str, asked: impl Fn(Asked) + Send + 'static) -> io::Result<Self> {
        let path = directory.join(NAME);
        if UnixStream::connect(&path).is_err() {
            // One that a switch left behind.
            let _ = std::fs::remove_file(&path);
        }
        let listener = UnixListener::bind(&path)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        let accepts = listener.try_clone()?;
        let work = move || {
            loop {
                match accepts.accept() {
                    // A client that is not heard out has itself to blame.
                    Ok((client, _)) => drop(serve(client, &asked, CLIENT_LIMIT)),
                    // The listener was shut down.
                    Err(error) if error.kind() == io::ErrorKind::InvalidInput => return,
                    // No descriptors or no memory now, or the client gave up.
                    Err(_) => std::thread::sleep(ACCEPT_PAUSE),
                }
            }
        };
        // It ends with the listener, and with the client that it may be hearing.
        std::thread::Builder::new().name("control socket".into()).spawn(work)?;
        let mut control = Control { listener, path, link: None };
        control.link = control.link(network);
        Ok(control)
    }

    /// Lets the socket be found by the network's name, unless another switch is found there.
    fn link(&self, network: &str) -> Option<PathBuf> {
        let link = journal::prepare_directory().ok()?.join(folder(network)).join(NAME);
        let path = std::path::absolute(&self.path).ok()?;
        if link == path || UnixStream::connect(&link).is_ok() {
            return None;
        }
        std::fs::create_dir_all(link.parent()?).ok()?;
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(path, &link).ok()?;
        Some(link)
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
        if let Some(link) = &self.link {
            let _ = std::fs::remove_file(link);
            let _ = link.parent().map(std::fs::remove_dir);
        }
        // The thread waits for clients no more.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
    }
}

/// The folder of a network's sockets in the state directory.
pub fn folder(network: &str) -> String {
    format!("switch-{network}")
}

/// Reads a client's request, within `limit`, and answers.
fn serve(mut client: UnixStream, asked: &dyn Fn(Asked), limit: Duration) -> io::Result<()> {
    check_peer(&client)?;
    client.set_write_timeout(Some(CLIENT_LIMIT))?;
    let answer = match read(&client, limit, REQUEST_BYTES_MAX) {
        Ok(request) => {
            let (answer, answered) = channel();
            asked((request, answer));
            await_answer(&answered)
        }
        Err(error) => Answer::Refused(format!("no request: {error}")),
    };
    write(&mut client, &answer)
}

fn await_answer(answered: &Receiver<Answer>) -> Answer {
    let answer = answered.recv_timeout(ANSWER_LIMIT);
    answer.unwrap_or_else(|_| Answer::Refused("the switch ends, or does not answer".into()))
}

/// The other end is this user's, or root's. Returns its process.
fn check_peer(stream: &UnixStream) -> io::Result<i32> {
    let peer = rustix::net::sockopt::socket_peercred(stream)?;
    if peer.uid.is_root() || peer.uid == rustix::process::geteuid() {
        Ok(peer.pid.as_raw_pid())
    } else {
        Err(io::Error::from(io::ErrorKind::PermissionDenied))
    }
}

/// A stream that is read until then, however little arrives at once.
struct ReadUntil<'a> {
    stream: &'a UnixStream,
    end: Instant,
}

impl Read for ReadUntil<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::from(io::ErrorKind::TimedOut));
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(into)
    }
}

/// Reads a line within `limit`.
fn read<T: for<'a> Deserialize<'a>>(stream: &UnixStream, limit: Duration, bytes_max: u64) -> io::Result<T> {
    let mut line = String::new();
    let stream = ReadUntil { stream, end: Instant::now() + limit };
    BufReader::new(stream.take(bytes_max)).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

fn write(stream: &mut UnixStream, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// A running switch.
#[derive(Clone)]
pub struct Client {
    path: PathBuf,
    /// The switch's process.
    pub process: i32,
}

impl Client {
    /// The switch whose sockets are in this directory.
    ///
    /// # Errors
    /// When there is none, or it is somebody else's.
    pub fn in_directory(directory: &Path) -> io::Result<Client> {
        let path = directory.join(NAME);
        let process = check_peer(&UnixStream::connect(&path)?)?;
        Ok(Client { path, process })
    }

    /// The switch of a network, by what is in the state directory.
    ///
    /// # Errors
    /// When there is none, or it is somebody else's.
    pub fn of_network(network: &str) -> io::Result<Client> {
        Client::in_directory(&journal::prepare_directory()?.join(folder(network)))
    }

    /// All switches in the state directory that work, by network. Those of others are left out.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn running() -> io::Result<Vec<Client>> {
        let mut folders: Vec<PathBuf> = std::fs::read_dir(journal::prepare_directory()?)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.join(NAME).symlink_metadata().is_ok())
            .collect();
        folders.sort();
        Ok(folders.iter().filter_map(|folder| Client::in_directory(folder).ok()).collect())
    }

    /// Asks it.
    ///
    /// # Errors
    /// When it has ended, or says what is no answer.
    pub fn ask(&self, request: &Request) -> io::Result<Answer> {
        let mut stream = UnixStream::connect(&self.path)?;
        check_peer(&stream)?;
        stream.set_write_timeout(Some(CLIENT_LIMIT))?;
        write(&mut stream, request)?;
        read(&stream, ANSWER_LIMIT, ANSWER_BYTES_MAX)
    }

    /// What it has counted; `None` when it does not say.
    pub fn count(&self) -> Option<Counted> {
        match self.ask(&Request::Count) {
            Ok(Answer::Counted(counted)) => Some(*counted),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that sends a byte at a time, and one that sends no end of a line.
    #[test]
    fn a_client_has_its_time_for_the_whole_request_and_no_more_room() {
        for (piece, pause) in [(1, Duration::from_millis(5)), (1 << 16, Duration::ZERO)] {
            let (client, served) = UnixStream::pair().expect("a pair");
            let mut sender = client.try_clone().expect("a descriptor");
            let sending = std::thread::spawn(move || {
                // Until the switch has hung up.
                while sender.write_all(&vec![b'x'; piece]).is_ok() {
                    std::thread::sleep(pause);
                }
            });
            let start = Instant::now();
            let asked = |_: Asked| panic!("no request came");
            serve(served, &asked, Duration::from_millis(100)).expect("answered");
            assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
            let answer = read(&client, Duration::from_secs(2), ANSWER_BYTES_MAX).expect("an answer");
            assert!(matches!(&answer, Answer::Refused(why) if why.starts_with("no request")), "{answer:?}");
            sending.join().expect("ended");
        }
    }
}
