//! The guest program's command line. The library's documentation says what the program does.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use punctual_guest::bench;
use punctual_guest::latency;
use punctual_guest::protocol::{Mode, ReceiveError};
use punctual_guest::serve::serve;

const USAGE: &str = "\
Runs task sets for a host and reports when each job was released, started and finished.

usage: punctual-guest fifo|vcpu [--port NAME|--console]
       punctual-guest echo|sink ADDRESS:PORT
       punctual-guest latency PLAN
  fifo         a thread for each task under SCHED_FIFO: inside a VM
  vcpu         one thread that is a virtual CPU: a process of the host
  echo         sends each datagram to the address back
  sink         accepts connections to the address and discards what they send
  latency      measures wake-ups and gaps of processors as the plan (JSON) says, and prints a report
  --port NAME  talk over the virtio port of that name instead of standard input and output
  --console    standard input is a terminal, the console of a Xen guest: switch it to raw mode
example: echo '{\"calibrate\":{\"duration_ns\":100000000}}' | punctual-guest vcpu";

/// Limit on the wait for a port, whose driver may not be ready yet.
const PORT_WAIT: Duration = Duration::from_secs(10);

/// The command line.
struct Arguments<'a> {
    mode: Mode,
    /// Name of a virtio port.
    port: Option<&'a str>,
    /// Standard input is a terminal.
    is_console: bool,
}

impl<'a> Arguments<'a> {
    /// `None` for a usage error.
    fn parse(arguments: &[&'a str]) -> Option<Arguments<'a>> {
        let (mode, port, is_console) = match *arguments {
            [mode] => (mode, None, false),
            [mode, "--console"] => (mode, None, true),
            [mode, "--port", name] => (mode, Some(name), false),
            _ => return None,
        };
        let mode = match mode {
            "fifo" => Mode::Fifo,
            "vcpu" => Mode::Vcpu,
            _ => return None,
        };
        Some(Arguments { mode, port, is_console })
    }
}

/// Why the program ended before the host asked it to.
#[derive(Debug)]
enum Error {
    NoPort(String),
    OpenPort {
        path: PathBuf,
        error: io::Error,
    },
    /// The terminal cannot be switched to raw mode.
    Console(io::Error),
    /// The channel to the host failed.
    Channel(ReceiveError),
    /// A server for measurements failed.
    Server(io::Error),
    /// The plan of a measurement is not understood.
    Plan(serde_json::Error),
    /// Latencies were not measured.
    Latency(latency::Error),
    /// The report could not be printed.
    Print(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NoPort(name) => write!(f, "this machine has no virtio port called {name}"),
            Error::OpenPort { path, error } => write!(f, "{}: {error}", path.display()),
            Error::Console(error) => write!(f, "the console: {error}"),
            Error::Channel(error) => error.fmt(f),
            Error::Server(error) => write!(f, "the server: {error}"),
            Error::Plan(error) => write!(f, "the plan: {error}"),
            Error::Latency(error) => error.fmt(f),
            Error::Print(error) => write!(f, "cannot print the report: {error}"),
        }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let ["--help" | "-h"] = arguments[..] {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let done = match (server(&arguments), Arguments::parse(&arguments)) {
        (Some(served), _) => served,
        (None, Some(arguments)) => run(&arguments),
        (None, None) if matches!(arguments[..], ["latency", _]) => measure(arguments[1]),
        (None, None) => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("punctual-guest: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a server for measurements, if the command line asks for one.
fn server(arguments: &[&str]) -> Option<Result<(), Error>> {
    let [kind, address] = *arguments else { return None };
    let serve = match kind {
        "echo" => bench::echo,
        "sink" => bench::sink,
        _ => return None,
    };
    Some(serve(address.parse().ok()?).map_err(Error::Server))
}

/// Measures latencies and prints the report as one line of JSON.
fn measure(plan: &str) -> Result<(), Error> {
    let plan: latency::Plan = serde_json::from_str(plan).map_err(Error::Plan)?;
    let stop = AtomicBool::new(false);
    let mut hooks = latency::Hooks { stop: &stop, slow: &|_, _, _| {}, progress: &mut |_| {} };
    let report = latency::run(&plan, &mut hooks).map_err(Error::Latency)?;
    let text = serde_json::to_string(&report).map_err(Error::Plan)?;
    writeln!(io::stdout(), "{text}").map_err(Error::Print)
}

fn run(arguments: &Arguments<'_>) -> Result<(), Error> {
    if arguments.is_console {
        punctual_guest::os::set_raw(0).map_err(Error::Console)?;
    }
    let served = match arguments.port {
        None => serve(arguments.mode, &mut io::stdin().lock(), &mut io::stdout()),
        Some(name) => {
            let port = open_port(name)?;
            serve(arguments.mode, &mut BufReader::new(&port), &mut &port)
        }
    };
    served.map_err(Error::Channel)
}

/// Opens the virtio port of that name. Waits while its driver is not ready.
fn open_port(name: &str) -> Result<File, Error> {
    let give_up = Instant::now() + PORT_WAIT;
    loop {
        if let Some(device) = find_port(Path::new("/sys/class/virtio-ports"), name) {
            let path = Path::new("/dev").join(device);
            let port = OpenOptions::new().read(true).write(true).open(&path);
            return port.map_err(|error| Error::OpenPort { path, error });
        }
        if Instant::now() >= give_up {
            return Err(Error::NoPort(name.into()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The device of the virtio port of that name.
fn find_port(class: &Path, name: &str) -> Option<OsString> {
    let mut ports = fs::read_dir(class).ok()?.flatten();
    ports
        .find(|port| fs::read_to_string(port.path().join("name")).is_ok_and(|text| text.trim() == name))
        .map(|port| port.file_name())
}
