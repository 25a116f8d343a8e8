//! Sockets of this host for VMs that others start.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Instant;

use punctual_enforce::journal;
use punctual_model::Host;
use punctual_model::sockets::Sockets;
use punctual_model::text::printable;
use punctual_sched::Duration;
use punctual_sockets::{Config, Counts, Segments, Server};

use super::enter;
use crate::error::{ServeError, with_source};
use crate::events::{Event, Events};
use crate::switch::file_name;

/// A domain that is served.
pub struct Served {
    pub name: String,
    /// Where its VM connects.
    pub socket: PathBuf,
    policy: Sockets,
}

/// Servers at work, one for each domain.
pub struct Service {
    served: Vec<Served>,
    servers: Vec<Server>,
    messages: Sender<Message>,
    receiver: Receiver<Message>,
    /// Removed at the end.
    directory: Option<PathBuf>,
    events: Events,
}

/// What the servers counted, when they have ended.
pub struct Ended {
    pub served: Vec<Served>,
    /// By domain that was served.
    pub counts: Vec<(Counts, Segments)>,
    pub elapsed: Duration,
}

/// What happens while the servers work.
enum Message {
    Event(usize, punctual_sockets::Event),
    Stop,
}

impl Service {
    /// Starts a server for each domain with `sockets`, or for the one of this name, with its socket in
    /// `directory` or in one among those of live runs.
    ///
    /// # Errors
    /// There is no such domain, or its socket cannot be made.
    pub fn start(
        host: &Host,
        domain: Option<&str>,
        directory: Option<&Path>,
        events: Events,
    ) -> Result<Service, ServeError> {
        let (directory, is_own) = match directory {
            Some(given) => (given.to_owned(), false),
            None => (state_directory()?, true),
        };
        let served = served(host, domain, &directory)?;
        if is_own {
            std::fs::create_dir_all(&directory).map_err(|error| {
                ServeError::Refused(format!("cannot make the directory {}: {error}", directory.display()))
            })?;
        }
        let (messages, receiver) = mpsc::channel();
        let mut servers = Vec::new();
        for (index, domain) in served.iter().enumerate() {
            let record = domain.socket.with_extension("vm");
            let started = Server::start_resuming(config(domain, &events), Some(record));
            let (server, happened) = started.map_err(|error| {
                ServeError::Refused(format!("{}: {}", printable(&domain.name), with_source(&error)))
            })?;
            servers.push(server);
            let messages = messages.clone();
            // It ends with its server.
            std::thread::spawn(move || {
                happened.into_iter().try_for_each(|event| messages.send(Message::Event(index, event)))
            });
        }
        let directory = is_own.then_some(directory);
        Ok(Service { served, servers, messages, receiver, directory, events })
    }

    /// The domains, in the host's order.
    pub fn served(&self) -> &[Served] {
        &self.served
    }

    /// Ends the servers when it is called.
    pub fn stopper(&self) -> impl Fn() + Send + 'static {
        let stop = self.messages.clone();
        move || drop(stop.send(Message::Stop))
    }

    /// Serves for `duration` or until it is stopped.
    pub fn serve(self, duration: Option<Duration>) -> Ended {
        let Service { served, servers, messages: _messages, receiver, directory, events } = self;
        let start = Instant::now();
        let end = duration.map(|time| start + std::time::Duration::from_nanos(time.as_ns()));
        loop {
            let message = match end {
                Some(end) => receiver.recv_timeout(end.saturating_duration_since(Instant::now())),
                None => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match message {
                Ok(Message::Event(index, event)) => {
                    events(Event::Sockets { domain: served[index].name.clone(), event });
                }
                Ok(Message::Stop) | Err(_) => break,
            }
        }
        let counts = servers.into_iter().map(Server::finish).collect();
        let elapsed = Duration::from_ns(start.elapsed().as_nanos() as u64);
        if let Some(directory) = directory {
            // Another server may use it.
            let _ = std::fs::remove_dir(&directory);
        }
        Ended { served, counts, elapsed }
    }
}

/// The domains with `sockets`, or the one that is named.
fn served(host: &Host, name: Option<&str>, directory: &Path) -> Result<Vec<Served>, ServeError> {
    let all = host.domains.iter().filter_map(|domain| Some((domain, domain.live.sockets.as_ref()?)));
    let chosen: Vec<_> = all.filter(|(domain, _)| name.is_none_or(|name| domain.name == name)).collect();
    if chosen.is_empty() {
        return Err(ServeError::Refused(match name {
            Some(name) => format!("there is no domain `{}` with `sockets`", printable(name)),
            None => "no domain of the host file has `sockets`, for example sockets = { allow = [\"bind udp \
                     127.0.0.1:5060\"] }"
                .into(),
        }));
    }
    let served = chosen.into_iter().map(|(domain, policy)| {
        let socket = directory.join(format!("{}.sock", file_name(&domain.name)?));
        Ok(Served { name: domain.name.clone(), socket, policy: policy.clone() })
    });
    served.collect()
}

fn state_directory() -> Result<PathBuf, ServeError> {
    let state = journal::prepare_directory();
    let state = state
        .map_err(|error| ServeError::Refused(format!("cannot make a directory for sockets: {error}")))?;
    Ok(state.join("sockets"))
}

fn config(domain: &Served, events: &Events) -> Config {
    let (priority, processor) = (domain.policy.priority, domain.policy.processor);
    Config {
        name: format!("sockets {}", domain.name),
        socket: domain.socket.clone(),
        policy: domain.policy.clone(),
        poll: domain.policy.poll,
        enter: enter(&domain.name, processor.into_iter().collect(), priority, events),
    }
}
