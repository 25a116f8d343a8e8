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
use crate::events::{Event, Events, Relay};
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
    servers: Vec<(Server, Relay)>,
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
            let messages = messages.clone();
            let relay = Relay::start(happened, move |event| {
                // The service may be gone.
                let _ = messages.send(Message::Event(index, event));
            });
            servers.push((server, relay));
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
        let report = |index: usize, event| {
            events(Event::Sockets { domain: served[index].name.clone(), event });
        };
        loop {
            let message = match end {
                Some(end) => receiver.recv_timeout(end.saturating_duration_since(Instant::now())),
                None => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match message {
                Ok(Message::Event(index, event)) => report(index, event),
                Ok(Message::Stop) | Err(_) => break,
            }
        }
        let finish = |(server, relay): (Server, Relay)| {
            let counts = server.finish();
            relay.finish();
            counts
        };
        let counts = servers.into_iter().map(finish).collect();
        // What happened just before the end.
        for message in receiver.try_iter() {
            if let Message::Event(index, event) = message {
                report(index, event);
            }
        }
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

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use punctual_model::file::{self, Overrides};
    use punctual_sockets::testing::FrontEnd;

    use super::*;

    const FILE: &str = "
        [machine]
        processors = 1
        [pool.all]
        policy = 'rtds'
        [domain.vm]
        sockets = { allow = ['bind udp 127.0.0.1:0'] }
        [domain.vm.task.t]
        period = '10ms'
        cost = '1ms'";

    #[test]
    fn what_happens_just_before_the_end_is_reported() {
        let host = file::parse(FILE, "host.toml", &Overrides::default()).expect("a host");
        let directory = tempfile::tempdir().expect("a directory");
        let reported = Arc::<Mutex<Vec<String>>>::default();
        let seen = Arc::clone(&reported);
        let events: Events = Arc::new(move |event| {
            if let Event::Sockets { domain, event } = event {
                seen.lock().expect("no panic").push(format!("{domain}: {event:?}"));
            }
        });
        let service = Service::start(&host, None, Some(directory.path()), events).expect("started");
        service.stopper()();
        let mut guest = FrontEnd::connect(&service.served()[0].socket).expect("connected");
        guest.socket(2).expect("a datagram socket");
        let ended = service.serve(None);
        assert_eq!(ended.counts[0].0.guests, 1);
        assert_eq!(*reported.lock().expect("no panic"), ["vm: Connected", "vm: Disconnected(1)"]);
    }
}
