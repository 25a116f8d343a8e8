//! A client of the control interface, for the command line.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use punctual_model::service::Adjustment;
use punctual_model::text::printable_lines;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::admission::Admission;
use crate::history::HistoryView;
use crate::service;
use crate::varlink::{Call, INTERFACE, Reply};
use crate::view::{ActorView, HostView};
use crate::waits::{VmWaitView, WhyView};

/// The service answers within this.
const LIMIT: Duration = Duration::from_secs(10);
/// A reply is no longer.
const REPLY_BYTES_MAX: u64 = 16 << 20;

/// Why a client has no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// There is no service, or this user may not connect to it.
    #[error("cannot connect to the service at {}: {source}", path.display())]
    Connect { path: PathBuf, source: io::Error },
    /// It does not answer, or closed the connection.
    #[error("the service does not answer: {0}")]
    Io(#[from] io::Error),
    /// It answers something else than its interface says.
    #[error("the service sent an unexpected answer: {0}")]
    Unexpected(String),
    /// It refused the call.
    #[error("{}", refusal(name, parameters))]
    Refused { name: String, parameters: Value },
}

fn refusal(name: &str, parameters: &Value) -> String {
    let text = |key: &str| parameters.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    match name.strip_prefix(INTERFACE).and_then(|name| name.strip_prefix('.')) {
        Some("NoSuchActor") => format!("no VM or unit has the name or process `{}`", text("name")),
        Some("NoSuchClass") => format!("the configuration has no class `{}`", text("name")),
        Some("AmbiguousName") => {
            let processes = parameters.get("processes").cloned().unwrap_or_default();
            format!("several VMs or units are called `{}`: give a process of {processes}", text("name"))
        }
        Some("BrokenFile") => {
            format!(
                "the configuration is refused, the one before stays:\n{}",
                printable_lines(&text("report"))
            )
        }
        Some("NoClass") => format!("VM or unit `{}` belongs to no class", text("name")),
        Some("NotPossible") => format!("that is not possible: {}", text("reason")),
        Some("NotGuaranteed") => {
            "budgets would not be guaranteed, and the configuration says admission = \"strict\"".into()
        }
        Some("NotPermitted") => "only root may do that".into(),
        _ => format!("the service refused: {name}"),
    }
}

/// A connection to the service.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
}

impl Client {
    /// Connects to the service whose sockets are below `run` (normally `/run`).
    ///
    /// # Errors
    /// There is none, or this user may not connect.
    pub fn connect(run: &Path) -> Result<Client, ClientError> {
        let path = service::socket(run);
        let stream = UnixStream::connect(&path).map_err(|source| ClientError::Connect { path, source })?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_write_timeout(Some(LIMIT))?;
        Ok(Client { stream: BufReader::new(stream) })
    }

    /// The service itself.
    ///
    /// # Errors
    /// It does not answer.
    pub fn status(&mut self) -> Result<HostView, ClientError> {
        field(self.call("Status", Map::new())?, "host")
    }

    /// All VMs.
    ///
    /// # Errors
    /// The service does not answer.
    pub fn list(&mut self) -> Result<Vec<ActorView>, ClientError> {
        self.send("List", Map::new(), true)?;
        let mut actors = Vec::new();
        loop {
            let reply = self.receive()?;
            if reply.parameters.get("actor").is_some() {
                actors.push(field(reply.parameters, "actor")?);
            }
            if !reply.continues {
                return Ok(actors);
            }
        }
    }

    /// The VM of this name or process.
    ///
    /// # Errors
    /// There is none, or there are several.
    pub fn describe(&mut self, name: &str) -> Result<ActorView, ClientError> {
        field(self.call("Describe", named(name))?, "actor")
    }

    /// What the VM of this name or process waited for in the last seconds.
    ///
    /// # Errors
    /// There is none, or there are several.
    pub fn why(&mut self, name: &str, last_s: u64) -> Result<WhyView, ClientError> {
        let mut parameters = named(name);
        parameters.insert("last_s".into(), last_s.into());
        field(self.call("Why", parameters)?, "why")
    }

    /// The longest waits of all VMs in the last seconds.
    ///
    /// # Errors
    /// The service does not answer.
    pub fn worst(&mut self, last_s: u64) -> Result<Vec<VmWaitView>, ClientError> {
        field(self.call("Worst", Map::from_iter([("last_s".to_owned(), last_s.into())]))?, "waits")
    }

    /// Who had the processors in moments after that of this number; not all of them need fit into one answer.
    ///
    /// # Errors
    /// The service does not answer.
    pub fn history(&mut self, since: u64) -> Result<HistoryView, ClientError> {
        field(self.call("History", Map::from_iter([("since".to_owned(), since.into())]))?, "history")
    }

    /// Would the budgets be guaranteed if so many VMs of a class with so many vCPUs came?
    ///
    /// # Errors
    /// There is no such class.
    pub fn admit(&mut self, class: &str, count: u32, vcpus: u32) -> Result<Admission, ClientError> {
        let parameters = json!({ "class": class, "count": count, "vcpus": vcpus });
        field(self.call("Admit", parameters.as_object().cloned().unwrap_or_default())?, "admission")
    }

    /// Gives a VM other parameters than its class does; then whose budgets are not guaranteed.
    ///
    /// # Errors
    /// There is no such VM, it belongs to no class, its pool refuses them, or budgets must be guaranteed and
    /// would not.
    pub fn adjust(&mut self, name: &str, to: &Adjustment) -> Result<Admission, ClientError> {
        let mut parameters = named(name);
        if let Ok(Value::Object(to)) = serde_json::to_value(to) {
            parameters.extend(to);
        }
        field(self.call("Adjust", parameters)?, "admission")
    }

    /// Leaves a VM alone until it is resumed.
    ///
    /// # Errors
    /// There is no such VM, or this user may not do that.
    pub fn pause(&mut self, name: &str) -> Result<(), ClientError> {
        self.call("Pause", named(name)).map(drop)
    }

    /// See [`Client::pause`].
    ///
    /// # Errors
    /// As there.
    pub fn resume(&mut self, name: &str) -> Result<(), ClientError> {
        self.call("Resume", named(name)).map(drop)
    }

    /// Forgets what a VM was adjusted to, and that it was paused.
    ///
    /// # Errors
    /// As [`Client::pause`].
    pub fn restore(&mut self, name: &str) -> Result<(), ClientError> {
        self.call("Restore", named(name)).map(drop)
    }

    /// Lets the service read its configuration again; then how many classes and pools it has.
    ///
    /// # Errors
    /// A file is broken, or this user may not do that.
    pub fn reload(&mut self) -> Result<(usize, usize), ClientError> {
        let parameters = self.call("Reload", Map::new())?;
        Ok((field(parameters.clone(), "classes")?, field(parameters, "pools")?))
    }

    fn call(&mut self, method: &str, parameters: Map<String, Value>) -> Result<Value, ClientError> {
        self.send(method, parameters, false)?;
        Ok(self.receive()?.parameters)
    }

    fn send(&mut self, method: &str, parameters: Map<String, Value>, more: bool) -> Result<(), ClientError> {
        let method = format!("{INTERFACE}.{method}");
        let call = Call { method, parameters, more, oneway: false, upgrade: false };
        let mut bytes = serde_json::to_vec(&call).map_err(io::Error::from)?;
        bytes.push(0);
        Ok(self.stream.get_mut().write_all(&bytes)?)
    }

    fn receive(&mut self) -> Result<Reply, ClientError> {
        let mut message = Vec::new();
        Read::by_ref(&mut self.stream).take(REPLY_BYTES_MAX).read_until(0, &mut message)?;
        if message.pop() != Some(0) {
            return Err(ClientError::Io(io::ErrorKind::UnexpectedEof.into()));
        }
        let reply: Reply =
            serde_json::from_slice(&message).map_err(|error| ClientError::Unexpected(error.to_string()))?;
        match reply.error {
            Some(name) => Err(ClientError::Refused { name, parameters: reply.parameters }),
            None => Ok(reply),
        }
    }
}

fn named(name: &str) -> Map<String, Value> {
    Map::from_iter([("name".to_owned(), name.into())])
}

fn field<T: DeserializeOwned>(mut parameters: Value, name: &str) -> Result<T, ClientError> {
    let value = parameters.get_mut(name).map(Value::take).unwrap_or_default();
    serde_json::from_value(value).map_err(|error| ClientError::Unexpected(error.to_string()))
}
