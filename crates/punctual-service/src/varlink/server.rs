//! The server's side of connections: bounded in messages, clients and what is left unread.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use punctual_linux::os::socket::{Peer, peer};
use punctual_model::service::Adjustment;
use serde::Serialize;
use serde_json::{Value, json};

use super::message::{Call, Reply, next_message};
use super::{DESCRIPTION, INTERFACE, SERVICE_DESCRIPTION, SERVICE_INTERFACE};
use crate::descriptors::{Descriptors, Token};

/// Clients at most; those of root and of the service's own user may be [`CLIENTS_RESERVED`] more.
pub(crate) const CLIENTS_MAX: usize = 64;
pub(crate) const CLIENTS_RESERVED: usize = 8;
/// Clients of one user at most, if it is not root.
pub(crate) const CLIENTS_OF_USER_MAX: usize = 16;
/// While a client leaves this much unread, no further call of it is answered.
const UNREAD_PAUSE: usize = 64 << 10;
/// A client that leaves this much unread is dropped.
pub(crate) const UNREAD_MAX: usize = 1 << 20;
/// VMs, and vCPUs of each, that can be asked for at once.
const ADMIT_MAX: u32 = 256;
/// Methods for root alone.
const CHANGING: [&str; 5] = ["Adjust", "Pause", "Resume", "Restore", "Reload"];
/// What a VM waited for is kept so long, in seconds.
const WHY_LAST_S: u64 = 3600;
/// Steps for one client in a row.
const STEPS_MAX: usize = 64;

/// What the service answers.
pub(crate) trait Answers {
    /// The service itself.
    fn status(&self) -> Value;
    /// The processes of all actors.
    fn actors(&self) -> Vec<u32>;
    /// An actor; `None` when it has ended.
    fn actor(&self, process: u32) -> Option<Value>;
    /// The actor with this name.
    fn describe(&self, name: &str) -> Result<Value, Failure>;
    /// What the VM with this name waited for in the last seconds.
    fn why(&mut self, name: &str, last_s: u64) -> Result<Value, Failure>;
    /// The longest waits of all VMs in the last seconds.
    fn worst(&mut self, last_s: u64) -> Value;
    /// Who had the processors in the moments after that of this number.
    fn history(&self, since: u64) -> Value;
    /// Would the budgets be guaranteed if so many VMs of a class with so many vCPUs came?
    fn admit(&self, class: &str, count: u32, vcpus: u32) -> Result<Value, Failure>;
    /// Gives a VM other parameters than its class does; then whose budgets are not guaranteed.
    fn adjust(&mut self, name: &str, to: Adjustment) -> Result<Value, Failure>;
    /// Leaves a VM alone until it is resumed.
    fn pause(&mut self, name: &str) -> Result<(), Failure>;
    /// See `pause`.
    fn resume(&mut self, name: &str) -> Result<(), Failure>;
    /// Forgets what a VM was adjusted to, and that it was paused.
    fn restore(&mut self, name: &str) -> Result<(), Failure>;
    /// Reads the configuration again.
    fn reload(&mut self) -> Result<Value, Failure>;
}

/// An error of a method, by its name, with its parameters.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Failure {
    pub(crate) name: String,
    pub(crate) parameters: Value,
}

impl Failure {
    /// Of the interface of the service.
    pub(crate) fn own(name: &str, parameters: Value) -> Failure {
        Failure { name: format!("{INTERFACE}.{name}"), parameters }
    }

    fn of_service(name: &str, parameters: Value) -> Failure {
        Failure { name: format!("{SERVICE_INTERFACE}.{name}"), parameters }
    }
}

/// What a client does now.
#[derive(Debug)]
enum Doing {
    Calling,
    /// It gets these actors, one in each reply.
    Listing(VecDeque<u32>),
    Monitoring,
}

#[derive(Debug)]
struct Client {
    stream: UnixStream,
    peer: Peer,
    received: Vec<u8>,
    unread: VecDeque<u8>,
    doing: Doing,
    /// It sends no more.
    is_closed: bool,
}

/// Why a client goes.
#[derive(Debug, PartialEq, Eq)]
enum Gone {
    /// It ended the connection.
    Left,
    /// It broke a rule.
    Dropped,
}

/// The control socket with its clients.
#[derive(Debug)]
pub(crate) struct Server {
    listener: UnixListener,
    path: PathBuf,
    clients: BTreeMap<u32, Client>,
    next: u32,
    dropped: u64,
}

impl Server {
    /// Listens at `path`, for its owner, root, and `group` if there is one. A socket that is there already is
    /// replaced; the caller holds the lock of the directory.
    pub(crate) fn open(path: &Path, group: Option<u32>) -> io::Result<Server> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        let mode = match group {
            Some(group) => chown(path, None, Some(group)).map(|()| 0o660)?,
            None => 0o600,
        };
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
        Ok(Server { listener, path: path.to_owned(), clients: BTreeMap::new(), next: 0, dropped: 0 })
    }

    pub(crate) fn register(&self, descriptors: &Descriptors) -> io::Result<()> {
        descriptors.add(&self.listener, Token::Listener)
    }

    pub(crate) fn clients(&self) -> usize {
        self.clients.len()
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Takes clients that connected. False when none can be taken now, for lack of descriptors: then the
    /// listener should rest for a while.
    pub(crate) fn accept(&mut self, descriptors: &Descriptors) -> bool {
        for _ in 0..STEPS_MAX {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(_) => return false,
            };
            // One that is not taken sees the end of the connection.
            let Ok(peer) = peer(&stream) else { continue };
            if !self.has_place(peer.user) || stream.set_nonblocking(true).is_err() {
                self.dropped += 1;
                continue;
            }
            self.next = self.next.wrapping_add(1);
            if descriptors.add(&stream, Token::Client(self.next)).is_err() {
                return false;
            }
            let (received, unread) = (Vec::new(), VecDeque::new());
            let client = Client { stream, peer, received, unread, doing: Doing::Calling, is_closed: false };
            self.clients.insert(self.next, client);
        }
        true
    }

    /// Says whether the listener takes clients.
    pub(crate) fn set_listening(&self, descriptors: &Descriptors, is_on: bool) {
        // One that stays off is set again with the next sample.
        let _ = descriptors.modify(&self.listener, Token::Listener, is_on, false);
    }

    fn has_place(&self, user: u32) -> bool {
        if is_privileged(user) {
            return self.clients.len() < CLIENTS_MAX + CLIENTS_RESERVED;
        }
        let of_user = self.clients.values().filter(|client| client.peer.user == user).count();
        self.clients.len() < CLIENTS_MAX && of_user < CLIENTS_OF_USER_MAX
    }

    /// Reads calls of a client and answers them.
    pub(crate) fn serve(&mut self, number: u32, descriptors: &Descriptors, answers: &mut impl Answers) {
        let Some(client) = self.clients.get_mut(&number) else { return };
        let served = client.read().and_then(|()| client.work(answers));
        self.settle(number, served, descriptors);
    }

    /// Sends an event to all who monitor.
    pub(crate) fn publish(&mut self, event: &impl Serialize, descriptors: &Descriptors) {
        if !self.clients.values().any(|client| matches!(client.doing, Doing::Monitoring)) {
            return;
        }
        let reply = Reply { parameters: json!({ "event": event }), continues: true, error: None };
        let numbers: Vec<u32> = self.clients.keys().copied().collect();
        for number in numbers {
            let Some(client) = self.clients.get_mut(&number) else { continue };
            if matches!(client.doing, Doing::Monitoring) {
                client.send(&reply);
                let flushed = client.flush();
                self.settle(number, flushed, descriptors);
            }
        }
    }

    /// Waits for what the client needs next, or drops it.
    fn settle(&mut self, number: u32, served: Result<(), Gone>, descriptors: &Descriptors) {
        let Some(client) = self.clients.get(&number) else { return };
        let gone = match served {
            Ok(()) if client.unread.len() > UNREAD_MAX => Some(Gone::Dropped),
            Ok(()) => {
                let input = !client.is_paused() && !client.is_closed;
                let output = !client.unread.is_empty() || client.has_work();
                let modified = descriptors.modify(&client.stream, Token::Client(number), input, output);
                modified.is_err().then_some(Gone::Dropped)
            }
            Err(gone) => Some(gone),
        };
        if let Some(gone) = gone {
            self.dropped += u64::from(gone == Gone::Dropped);
            self.clients.remove(&number);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// May it change something?
fn is_privileged(user: u32) -> bool {
    user == 0 || user == rustix::process::geteuid().as_raw()
}

impl Client {
    /// Takes what the client sent.
    fn read(&mut self) -> Result<(), Gone> {
        if self.is_closed || self.is_paused() {
            return Ok(());
        }
        let mut buffer = [0; 16 << 10];
        match self.stream.read(&mut buffer) {
            Ok(0) if matches!(self.doing, Doing::Monitoring) => Err(Gone::Left),
            Ok(0) => {
                self.is_closed = true;
                Ok(())
            }
            Ok(length) => {
                self.received.extend(&buffer[..length]);
                Ok(())
            }
            Err(error) if is_pause(&error) => Ok(()),
            Err(_) => Err(Gone::Left),
        }
    }

    /// Answers as many calls as it may, and writes.
    fn work(&mut self, answers: &mut impl Answers) -> Result<(), Gone> {
        for _ in 0..STEPS_MAX {
            self.flush()?;
            if self.unread.len() >= UNREAD_PAUSE || !self.step(answers)? {
                break;
            }
        }
        self.flush()?;
        let is_done = self.unread.is_empty() && !self.has_work();
        if self.is_closed && is_done { Err(Gone::Left) } else { Ok(()) }
    }

    /// Does the client leave so much unread that it must wait?
    fn is_paused(&self) -> bool {
        self.unread.len() >= UNREAD_PAUSE || self.received.len() > super::MESSAGE_BYTES_MAX
    }

    /// Is there something to answer?
    fn has_work(&self) -> bool {
        match self.doing {
            Doing::Calling => self.received.contains(&0),
            Doing::Listing(_) => true,
            Doing::Monitoring => false,
        }
    }

    /// Answers one call, or lists one actor; false when there is nothing to do.
    fn step(&mut self, answers: &mut impl Answers) -> Result<bool, Gone> {
        match &mut self.doing {
            Doing::Monitoring => {
                // It may say nothing more.
                if self.received.is_empty() { Ok(false) } else { Err(Gone::Dropped) }
            }
            Doing::Listing(rest) => {
                let next = std::iter::from_fn(|| rest.pop_front()).find_map(|process| answers.actor(process));
                let continues = !rest.is_empty();
                let parameters = next.map_or_else(|| json!({}), |actor| json!({ "actor": actor }));
                if !continues {
                    self.doing = Doing::Calling;
                }
                self.send(&Reply { parameters, continues, error: None });
                Ok(true)
            }
            Doing::Calling => {
                let Some(message) = next_message(&mut self.received).map_err(|_| Gone::Dropped)? else {
                    return Ok(false);
                };
                let call = Call::parse(&message).ok_or(Gone::Dropped)?;
                self.answer(&call, answers);
                Ok(true)
            }
        }
    }

    fn answer(&mut self, call: &Call, answers: &mut impl Answers) {
        let answer = self.call(call, answers);
        if call.oneway {
            self.doing = Doing::Calling;
            return;
        }
        match answer {
            // The replies follow.
            Ok(None) => {}
            Ok(Some(parameters)) => {
                let continues = matches!(self.doing, Doing::Monitoring);
                self.send(&Reply { parameters, continues, error: None });
            }
            Err(Failure { name, parameters }) => {
                self.send(&Reply { parameters, continues: false, error: Some(name) });
            }
        }
    }

    fn call(&mut self, call: &Call, answers: &mut impl Answers) -> Result<Option<Value>, Failure> {
        let method_not_found = || Failure::of_service("MethodNotFound", json!({ "method": call.method }));
        let (interface, method) = call.method.rsplit_once('.').ok_or_else(method_not_found)?;
        if call.upgrade {
            return Err(Failure::of_service("MethodNotImplemented", json!({ "method": call.method })));
        }
        let text = |name| call.text(name);
        let expected_more = || Failure::of_service("ExpectedMore", json!({}));
        let needs_more = || call.more.then_some(()).ok_or_else(expected_more);
        match (interface, method) {
            (SERVICE_INTERFACE, "GetInfo") => Ok(Some(info())),
            (SERVICE_INTERFACE, "GetInterfaceDescription") => {
                let description = match text("interface")? {
                    INTERFACE => DESCRIPTION,
                    SERVICE_INTERFACE => SERVICE_DESCRIPTION,
                    other => return Err(interface_not_found(other)),
                };
                Ok(Some(json!({ "description": description })))
            }
            (INTERFACE, "Status") => Ok(Some(json!({ "host": answers.status() }))),
            (INTERFACE, "List") => {
                needs_more()?;
                self.doing = Doing::Listing(answers.actors().into());
                Ok(None)
            }
            (INTERFACE, "Describe") => Ok(Some(json!({ "actor": answers.describe(text("name")?)? }))),
            (INTERFACE, "Why" | "Worst" | "History") => look_back(method, call, answers).map(Some),
            (INTERFACE, "Admit") => {
                let (count, vcpus) = (call.count("count")?, call.count("vcpus")?);
                Ok(Some(json!({ "admission": answers.admit(text("class")?, count, vcpus)? })))
            }
            (INTERFACE, "Monitor") => {
                needs_more()?;
                self.doing = Doing::Monitoring;
                Ok(Some(json!({ "event": { "kind": "monitoring", "text": "events follow" } })))
            }
            (INTERFACE, method) if CHANGING.contains(&method) && !is_privileged(self.peer.user) => {
                Err(Failure::own("NotPermitted", json!({})))
            }
            (INTERFACE, "Adjust") => {
                let to = Adjustment {
                    budget_ns: call.number("budget_ns")?,
                    period_ns: call.number("period_ns")?,
                    priority: call
                        .number("priority")?
                        .map(u32::try_from)
                        .transpose()
                        .map_err(|_| invalid("priority"))?,
                };
                Ok(Some(json!({ "admission": answers.adjust(text("name")?, to)? })))
            }
            (INTERFACE, "Pause") => answers.pause(text("name")?).map(|()| Some(json!({}))),
            (INTERFACE, "Resume") => answers.resume(text("name")?).map(|()| Some(json!({}))),
            (INTERFACE, "Restore") => answers.restore(text("name")?).map(|()| Some(json!({}))),
            (INTERFACE, "Reload") => answers.reload().map(Some),
            (SERVICE_INTERFACE | INTERFACE, _) => Err(method_not_found()),
            (other, _) => Err(interface_not_found(other)),
        }
    }

    fn send(&mut self, reply: &Reply) {
        self.unread.extend(reply.bytes());
    }

    /// Writes as much as the client takes.
    fn flush(&mut self) -> Result<(), Gone> {
        while !self.unread.is_empty() {
            match self.stream.write(self.unread.as_slices().0) {
                Ok(0) => return Err(Gone::Left),
                Ok(length) => drop(self.unread.drain(..length)),
                Err(error) if is_pause(&error) => return Ok(()),
                Err(_) => return Err(Gone::Left),
            }
        }
        Ok(())
    }
}

/// What was before.
fn look_back(method: &str, call: &Call, answers: &mut impl Answers) -> Result<Value, Failure> {
    let last_s = || Ok(call.number("last_s")?.unwrap_or(WHY_LAST_S));
    Ok(match method {
        "Why" => json!({ "why": answers.why(call.text("name")?, last_s()?)? }),
        "Worst" => json!({ "waits": answers.worst(last_s()?) }),
        _ => json!({ "history": answers.history(call.number("since")?.unwrap_or(0)) }),
    })
}

fn invalid(parameter: &str) -> Failure {
    Failure::of_service("InvalidParameter", json!({ "parameter": parameter }))
}

impl Call {
    fn text(&self, name: &str) -> Result<&str, Failure> {
        self.parameters.get(name).and_then(Value::as_str).ok_or_else(|| invalid(name))
    }

    /// A number; absent is none.
    fn number(&self, name: &str) -> Result<Option<u64>, Failure> {
        let given = self.parameters.get(name).filter(|value| !value.is_null());
        given.map(|given| given.as_u64().ok_or_else(|| invalid(name))).transpose()
    }

    /// A number of VMs or vCPUs; absent is one.
    fn count(&self, name: &str) -> Result<u32, Failure> {
        let count = u32::try_from(self.number(name)?.unwrap_or(1)).ok();
        count.filter(|count| (1..=ADMIT_MAX).contains(count)).ok_or_else(|| invalid(name))
    }
}

fn is_pause(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

fn interface_not_found(interface: &str) -> Failure {
    Failure::of_service("InterfaceNotFound", json!({ "interface": interface }))
}

fn info() -> Value {
    json!({
        "vendor": "Punctual",
        "product": "punctual",
        "version": env!("CARGO_PKG_VERSION"),
        "url": "https://varlink.org",
        "interfaces": [SERVICE_INTERFACE, INTERFACE],
    })
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
