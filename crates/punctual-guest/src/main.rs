//! The guest program; see the library's documentation for what it does.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use punctual_guest::protocol::Mode;
use punctual_guest::serve::serve;

const USAGE: &str = "\
Runs task sets that a host orders, and reports when each job was released, started and finished.

usage: punctual-guest fifo|vcpu [--port NAME]
  fifo         a thread for each task under SCHED_FIFO: inside a VM
  vcpu         one thread that is a virtual CPU: a process of the host
  --port NAME  talk over the virtio port of that name; without it over standard input and output
example: echo '{\"calibrate\":{\"duration_ns\":100000000}}' | punctual-guest vcpu";

/// How long a port may take to appear: its driver may still be busy with it.
const PORT_WAIT: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (mode, port) = match arguments[..] {
        ["--help" | "-h"] => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        [mode] => (mode, None),
        [mode, "--port", name] => (mode, Some(name)),
        _ => ("", None),
    };
    let mode = match mode {
        "fifo" => Mode::Fifo,
        "vcpu" => Mode::Vcpu,
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    let outcome = match port {
        None => serve(mode, &mut io::stdin().lock(), &mut io::stdout()).map_err(|e| e.to_string()),
        Some(name) => open_port(name).and_then(|port| {
            let mut reader = BufReader::new(&port);
            serve(mode, &mut reader, &mut &port).map_err(|error| error.to_string())
        }),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("punctual-guest: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Opens the virtio port of that name.
fn open_port(name: &str) -> Result<File, String> {
    let give_up = Instant::now() + PORT_WAIT;
    loop {
        if let Some(device) = find_port(Path::new("/sys/class/virtio-ports"), name) {
            let path = Path::new("/dev").join(device);
            let port = OpenOptions::new().read(true).write(true).open(&path);
            return port.map_err(|error| format!("{}: {error}", path.display()));
        }
        if Instant::now() >= give_up {
            return Err(format!("this machine has no virtio port called {name}"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The device of the port of that name.
fn find_port(class: &Path, name: &str) -> Option<std::ffi::OsString> {
    let mut ports = fs::read_dir(class).ok()?.flatten();
    ports
        .find(|port| fs::read_to_string(port.path().join("name")).is_ok_and(|text| text.trim() == name))
        .map(|port| port.file_name())
}
