//! What runs, switches and servers of sockets report, on standard error.

use std::sync::Arc;

use punctual_model::text::printable;
use punctual_run::events::{Event, Events};
use punctual_sockets::layout;

use super::super::output::Ui;
use super::{Steps, restored, targets};

/// Prints events; the steps of a run as `steps` says.
pub(crate) fn printer(ui: &Ui, steps: &Steps) -> Events {
    let (ui, steps) = (*ui, steps.clone());
    Arc::new(move |event| print(&event, &steps, &ui))
}

/// Prints events of a command without steps.
pub(crate) fn plain_printer(ui: &Ui) -> Events {
    printer(ui, &Steps::none())
}

fn print(event: &Event, steps: &Steps, ui: &Ui) {
    match event {
        Event::Undone(done) => {
            ui.warn(&format!("an earlier run ended together with its guardian; {}", restored(done)));
            done.failures.iter().for_each(|failure| ui.warn(&format!("not put back: {failure}")));
        }
        Event::Waiting(text) => ui.warn(text),
        Event::Step(step) => steps.say(step),
        Event::Attaching(targets) => eprint!("{}", targets::text(targets)),
        Event::SwitchFound { network, process } => {
            eprintln!("network {}: served by process {process}", printable(network));
        }
        Event::SwitchMissing { network } => eprintln!(
            "network {}: no `punctual switch` is found; its ports are not in the results",
            printable(network)
        ),
        Event::Port { port, event } => print_port(port, event, ui),
        Event::Sockets { domain, event } => print_sockets(domain, event, ui),
        Event::Misplaced(text) => ui.warn(text),
        Event::More { port, count } => eprintln!("{}: {count} more events", printable(port)),
        Event::Unread { count } => ui.warn(&format!("{count} events were not printed in time")),
        Event::LeftBehind { thread } => ui.warn(&format!(
            "the thread `{}` did not end and is left behind: a front-end or an uplink holds it in the kernel",
            printable(thread)
        )),
        Event::NoRing { uplink, error } => {
            eprintln!("uplink {uplink}: no mapped ring, a call for each frame: {error}");
        }
        Event::NoBatches { uplink, error } => {
            eprintln!("uplink {uplink}: no AF_XDP, a call for each frame that is sent: {error}");
        }
    }
}

fn print_port(port: &str, event: &punctual_switch::Event, ui: &Ui) {
    use punctual_switch::Event;

    let port = printable(port);
    match event {
        Event::Connected => eprintln!("{port}: connected"),
        Event::Unaccepted(reason) => ui.warn(&format!(
            "{port}: cannot accept a front-end: {}; it waits until the switch can",
            printable(reason)
        )),
        Event::Running => eprintln!("{port}: running"),
        Event::Assumed => ui.warn(&format!(
            "{port}: its front-end lost the driver's features, as QEMU before 8.0 does if the driver starts \
             while there is no switch; assuming all offered ones, as Linux accepts, until the driver restarts"
        )),
        Event::Disconnected(None) => eprintln!("{port}: disconnected"),
        Event::Disconnected(Some(reason)) => {
            ui.warn(&format!("{port}: disconnected: {}", printable(reason)));
        }
        Event::Broken(broken) => {
            ui.warn(&format!("{port}: out of service until its driver resets it: {broken}"));
        }
    }
}

fn print_sockets(name: &str, event: &punctual_sockets::Event, ui: &Ui) {
    use punctual_sockets::Event;

    let name = printable(name);
    match event {
        Event::Connected => eprintln!("{name}: connected"),
        Event::Resumed => eprintln!("{name}: reconnected; its earlier sockets are closed"),
        Event::NotResumed(error) => ui.warn(&format!(
            "{name}: the VM was connected to an earlier server and must be restarted: {}",
            printable(error)
        )),
        Event::Disconnected(sockets) => eprintln!("{name}: disconnected; {sockets} sockets closed"),
        Event::OtherVersion(version) => ui.warn(&format!(
            "{name}: its guest's module or library speaks version {version} of the protocol and this server \
             version {}; its sockets are not served",
            layout::VERSION
        )),
        Event::Refused => ui.warn(&format!("{name}: a second VM was refused")),
        Event::InvalidRing(error) => ui.warn(&format!("{name}: disabled until the VM is restarted: {error}")),
        Event::Failed(error) => ui.warn(&format!("{name}: {}", printable(error))),
    }
}
