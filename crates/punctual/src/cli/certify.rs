//! `punctual certify`: is this host fit?

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anstyle::{AnsiColor, Style};
use indicatif::{ProgressBar, ProgressStyle};
use punctual_certify::certificate::Outcome;
use punctual_certify::compare::{Change, Comparison, Row, TOLERANCE_PERCENT, compare_all};
use punctual_certify::verdict::statistic;
use punctual_certify::{Certificate, Guest, Plan, Talk, load, page};
use punctual_linux::preflight;
use punctual_model::acceptance::{LOADS, Limits, Measure};
use punctual_model::file::parse_limits;
use punctual_model::text::printable_lines;
use punctual_report::format::{fmt_count, fmt_ns};
use punctual_report::table;
use punctual_sched::Duration;

use super::error::Error;
use super::input::{read_foreign, read_text, some_time};
use super::live::own_program;
use super::output::{OutFile, Ui, keep_inputs, wrapped};
use super::{exit, interrupt};

/// Test whether this host and its VMs keep to limits, and write a certificate.
///
/// Measures each processor: how late real-time threads wake up (cyclictest's loop), gaps in the execution of
/// a thread that spins (oslat's loop), and the parts of those that the kernel does not know of (hardware);
/// then the vCPUs of --guest by the same loops. The certificate describes the machine, names who had the
/// processor during the longest latencies, and has a SHA-256 of its data.
///
/// Exit code 0: passed, or measured without limits; 1: a limit is exceeded, something got worse than in
/// --baseline, or a file was changed (--verify); 2: the command line, a file or the machine does not permit
/// it; 5: incomplete, because it was interrupted or something with a limit was not measured. docs/certify.md
/// explains the methods.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    punctual certify                                     30 s, with the default processors (as root)\n  \
    punctual certify --for 1h --load cpu,memory,net --limits limits.toml -o node1.json\n  \
    punctual certify --guest libvirt:vm1 --processors 2-5 --report node1.html\n  \
    punctual certify --verify node1.json                 was it changed since?\n  \
    punctual certify --baseline node1.json               measure again: did anything get worse?\n  \
    punctual certify --baseline old.json new.json        compare two certificates")]
pub(super) struct Args {
    /// Show this certificate, or compare it with --baseline, instead of measuring.
    #[arg(value_name = "NEW.json", conflicts_with_all = ["time", "processors", "load", "limits", "guest"])]
    file: Option<PathBuf>,
    /// How long to measure, for example 5min or 2h, guests included.
    #[arg(long = "for", value_name = "TIME", default_value = "30s", value_parser = length)]
    time: Duration,
    /// The processors to measure, for example 2-5,8; if not given, those that are isolated, or all but 0.
    /// Real-time threads run nowhere else.
    #[arg(long, value_name = "LIST", value_parser = processors)]
    processors: Option<Processors>,
    /// The period of the timers.
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = some_time)]
    interval: Duration,
    /// The SCHED_FIFO priority of the measuring threads; 0: the fair class, which needs no rights.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 80,
        value_parser = clap::value_parser!(u32).range(0..=98)
    )]
    priority: u32,
    /// Loads to run beside, in the fair class: cpu, memory, cache, disk, net.
    #[arg(
        long,
        value_name = "LOAD,...",
        value_delimiter = ',',
        value_parser = clap::builder::PossibleValuesParser::new(LOADS),
        hide_possible_values = true
    )]
    load: Vec<String>,
    /// What must hold, as a file.
    #[arg(long, value_name = "LIMITS.toml")]
    limits: Option<PathBuf>,
    /// Also measure the vCPUs of a Linux guest: ssh:HOST (with a key), libvirt:VM (by the guest agent of a VM
    /// of libvirt), agent:SOCKET (by that of another VM); with a name of your choice ssh:NAME=HOST.
    #[arg(long, value_name = "GUEST", value_parser = Guest::parse)]
    guest: Vec<Guest>,
    /// The same for a guest that a command of the host reaches: it runs the shell command in its last
    /// argument there, for example 'vm1=ssh -p 2222 root@localhost'.
    #[arg(long, value_name = "NAME=COMMAND", value_parser = Guest::parse_command)]
    guest_command: Vec<Guest>,
    /// Do not watch who has the measured processors.
    #[arg(long)]
    no_causes: bool,
    /// Compare with this earlier certificate, or with all of a directory. With several, only what is worse
    /// than each of them is worse.
    #[arg(long, value_name = "OLD.json")]
    baseline: Vec<PathBuf>,
    /// With --baseline: a growth by less does not matter, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = TOLERANCE_PERCENT, requires = "baseline")]
    tolerance: u64,
    /// Check that a certificate was not changed since it was written, and that its verdict follows from its
    /// data.
    #[arg(long, value_name = "CERTIFICATE.json", exclusive = true)]
    verify: Option<PathBuf>,
    /// Write the certificate to a file.
    #[arg(long, short, value_name = "OUT.json")]
    output: Option<PathBuf>,
    /// Write the certificate as one HTML page.
    #[arg(long, value_name = "OUT.html")]
    report: Option<PathBuf>,
    /// Print JSON: the certificate, or with --baseline the comparison.
    #[arg(long)]
    json: bool,
}

/// A list of processors.
#[derive(Clone, Debug)]
struct Processors(Vec<usize>);

fn processors(text: &str) -> Result<Processors, String> {
    let mut list = preflight::parse_cpu_list(text).filter(|list| !list.is_empty());
    if let Some(list) = &mut list {
        list.sort_unstable();
        list.dedup();
    }
    list.map(Processors)
        .ok_or_else(|| "expected processors as the kernel lists them, for example 2-5,8".into())
}

/// The shortest test: the loops divide it into ten parts each.
const SHORTEST: Duration = Duration::from_ms(200);
/// A week.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);

/// A length of a test; `2h` is one too.
fn length(text: &str) -> Result<Duration, String> {
    let hours = text.trim().strip_suffix('h').and_then(|number| number.trim_end().parse::<u64>().ok());
    let asked = match hours {
        Some(hours) => Duration::from_secs(hours.min(10_000) * 3600),
        None => some_time(text)?,
    };
    if (SHORTEST..=LONGEST).contains(&asked) { Ok(asked) } else { Err("expected 200ms to 168h".into()) }
}

/// Runs `punctual certify`.
pub(super) fn run(args: &Args, ui: &Ui) -> Result<u8, Error> {
    interrupt::install();
    let baselines = certificates(&args.baseline)?;
    let others = [&args.file, &args.limits].into_iter().filter_map(Clone::clone);
    let inputs: Vec<PathBuf> = others.chain(baselines.iter().cloned()).collect();
    keep_inputs(&inputs, &[&args.output, &args.report])?;
    if let Some(path) = &args.verify {
        return verify(path, ui);
    }
    // A wrong file is reported before the time is spent.
    let baselines: Vec<Certificate> = baselines.iter().map(|path| read(path)).collect::<Result<_, _>>()?;
    let certificate = match &args.file {
        Some(file) => read(file)?,
        None => measure(args, ui)?,
    };
    write(args, &certificate)?;
    let comparison = compare_all(&baselines, &certificate, args.tolerance);
    match (&comparison, args.json) {
        (Some(comparison), true) => ui.print_json(comparison)?,
        (None, true) => ui.print(certificate.to_json())?,
        (comparison, false) => {
            ui.print(printable_lines(&shown(&certificate)))?;
            ui.print(verdict_line(&certificate, ui.stdout_has_colour()))?;
            if let Some(comparison) = comparison {
                ui.print(printable_lines(&compared(comparison)))?;
            }
        }
    }
    let is_worse = comparison.is_some_and(|comparison| comparison.is_worse());
    Ok(match certificate.verdict.outcome {
        Outcome::Failed => exit::MISSED,
        _ if is_worse => exit::MISSED,
        Outcome::Incomplete => exit::INCOMPLETE,
        Outcome::Passed | Outcome::Measured => exit::OK,
    })
}

/// The files that paths name; of a directory all whose names end in `.json`, by name.
fn certificates(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Error> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let unreadable = |error| Error::usage(format!("cannot read {}: {error}", path.display()));
        let entries = path.read_dir().map_err(unreadable)?;
        let mut inside: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        inside.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
        if inside.is_empty() {
            return Err(Error::usage(format!("{} has no certificate (*.json)", path.display())));
        }
        inside.sort();
        files.extend(inside);
    }
    Ok(files)
}

fn read(path: &Path) -> Result<Certificate, Error> {
    let (name, text) = read_text(path)?;
    Certificate::from_json(&text, &name).map_err(Error::usage)
}

fn verify(path: &Path, ui: &Ui) -> Result<u8, Error> {
    let (name, text) = read_text(path)?;
    match Certificate::from_json(&text, &name) {
        Ok(certificate) => {
            let (word, _) = page::outcome(certificate.verdict.outcome);
            let (host, date, digest) =
                (&certificate.host, page::date(certificate.begun_us), certificate.digest());
            let text = format!("{name} is unchanged: {host}, {date}, {word}\nSHA-256 {digest}\n");
            ui.print(printable_lines(&text))?;
            Ok(exit::OK)
        }
        Err(error) => {
            ui.error(&error.to_string());
            Ok(exit::MISSED)
        }
    }
}

fn limits(path: &Path) -> Result<Limits, Error> {
    let mut files = read_foreign(&[path.to_owned()])?;
    let (name, bytes) = files.pop().unwrap_or_default();
    Ok(parse_limits(&bytes, &name)?)
}

fn measure(args: &Args, ui: &Ui) -> Result<Certificate, Error> {
    interrupt::be_graceful();
    let guests = args.guest.iter().chain(&args.guest_command).cloned().collect();
    let time = |time: Duration| std::time::Duration::from_nanos(time.as_ns());
    let plan = Plan {
        length: time(args.time),
        processors: args.processors.as_ref().map(|list| list.0.clone()).unwrap_or_default(),
        interval: time(args.interval),
        priority: args.priority,
        loads: args.load.clone(),
        guests,
        with_causes: !args.no_causes,
        limits: args.limits.as_deref().map(limits).transpose()?,
    };
    let bar = progress();
    let certificate = punctual_certify::run(
        &plan,
        &mut Talk {
            stopped: &interrupt::stopped,
            progress: &mut |what, ppm| {
                bar.set_message(what.to_owned());
                bar.set_position(ppm.into());
            },
            program: own_program()?,
            load_command: "certify-load",
        },
    );
    bar.finish_and_clear();
    let certificate = certificate.map_err(Error::usage)?;
    if interrupt::stopped() {
        ui.warn("interrupted: the certificate has what was measured until then, and is incomplete");
    }
    Ok(certificate)
}

fn progress() -> ProgressBar {
    let style =
        ProgressStyle::with_template("{msg} {wide_bar} {percent} %").expect("the template is constant");
    ProgressBar::new(1_000_000).with_style(style)
}

fn write(args: &Args, certificate: &Certificate) -> Result<(), Error> {
    let files =
        [(&args.output, Certificate::to_json as fn(&Certificate) -> String), (&args.report, page::render)];
    for (path, text) in files {
        if let Some(path) = path {
            OutFile::write(path, |out| out.write_all(text(certificate).as_bytes()))?;
        }
    }
    Ok(())
}

/// Latencies of each measure that are printed; the page has ten.
const WORST: usize = 3;

/// The certificate for people, without the verdict.
fn shown(certificate: &Certificate) -> String {
    let conduct = &certificate.conduct;
    let ms = |ms: u64| fmt_ns(ms.saturating_mul(1_000_000));
    let class = match conduct.priority {
        0 => "in the fair class".to_owned(),
        priority => format!("under SCHED_FIFO {priority}"),
    };
    let loads = match conduct.loads.as_slice() {
        [] => String::new(),
        loads => format!(" beside {}", loads.join(", ")),
    };
    let length = ms(conduct.measured_ms);
    let mut out =
        format!("{}: {length} {class}{loads}, {}\n", certificate.host, page::date(certificate.begun_us));
    for measure in Measure::ALL {
        out += &measured(certificate, measure);
    }
    out += "\nthe longest:\n";
    for (measurement, worst) in page::longest(certificate, WORST) {
        let (length, place) = (fmt_ns(worst.length_ns), measurement.place());
        out += &wrapped("  ", "      ", &format!("{length:>9}  {place}: {}", page::causes(worst)));
    }
    out += &wrapped("", "  ", &format!("Causes are known from: {}.", conduct.causes));
    for note in &conduct.notes {
        out += &wrapped("", "  ", note);
    }
    out
}

/// A table of one measure, or nothing if it was not measured.
fn measured(certificate: &Certificate, measure: Measure) -> String {
    let all: Vec<_> = certificate.measurements.iter().filter(|one| one.measure == measure).collect();
    if all.is_empty() {
        return String::new();
    }
    let shown = page::statistics(measure);
    let mut columns: Vec<&str> = shown.iter().map(|one| page::name(*one)).collect();
    columns.push("latencies");
    let names: Vec<String> = all
        .iter()
        .map(|one| match &one.guest {
            None => format!("processor {}", one.processor),
            Some(guest) => format!("{guest} vCPU {}", one.processor),
        })
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let cells = |one: &&punctual_certify::certificate::Measurement| {
        let mut cells: Vec<String> =
            shown.iter().map(|what| page::shown(*what, statistic(one, *what))).collect();
        cells.push(fmt_count(one.latencies.count()));
        cells
    };
    let rows: Vec<Vec<String>> = all.iter().map(cells).collect();
    let title = format!("{}: {}", measure.name(), page::explained(measure));
    format!("\n{}", table::matrix(&title, &names, &columns, &rows, false))
}

fn verdict_line(certificate: &Certificate, colour: bool) -> String {
    let verdict = &certificate.verdict;
    let style = match verdict.outcome {
        Outcome::Passed => AnsiColor::Green,
        Outcome::Failed => AnsiColor::Red,
        Outcome::Incomplete => AnsiColor::Yellow,
        Outcome::Measured => AnsiColor::Cyan,
    };
    let style = if colour { Style::new().bold().fg_color(Some(style.into())) } else { Style::new() };
    let (word, meaning) = page::outcome(verdict.outcome);
    let mut out = format!("\n{style}{word}{style:#}: {meaning}\n");
    let exceeded = verdict.checks.iter().filter(|check| check.holds() == Some(false)).map(page::exceeded);
    for line in exceeded.chain(verdict.missing.iter().cloned()) {
        out += &wrapped("  ", "    ", &line);
    }
    out
}

/// The comparison for people.
fn compared(comparison: &Comparison) -> String {
    let of = |change: Change| comparison.rows.iter().filter(move |row| row.change == change);
    let mut out = format!(
        "\nCompared with the baseline: {} worse, {} better, {} the same\n",
        of(Change::Worse).count(),
        of(Change::Better).count(),
        of(Change::Same).count()
    );
    for (change, word) in [(Change::Worse, "worse"), (Change::Better, "better")] {
        for row in of(change) {
            out += &wrapped("  ", "    ", &format!("{word}: {}", difference(row)));
        }
    }
    for warning in &comparison.warnings {
        out += &wrapped("  ", "    ", &format!("differs: {warning}"));
    }
    for one in &comparison.differences {
        let value = |value: &Option<String>| value.as_deref().unwrap_or("unknown").to_owned();
        let line = format!("machine: {}: {} -> {}", one.name, value(&one.before), value(&one.after));
        out += &wrapped("  ", "    ", &line);
    }
    out
}

fn difference(row: &Row) -> String {
    let place = match &row.guest {
        None => format!("{} of processor {}", row.measure.name(), row.processor),
        Some(guest) => format!("{} of vCPU {} of {guest}", row.measure.name(), row.processor),
    };
    let value = |value: u64| match row.statistic {
        "lost" => format!("{} ppm", fmt_count(value)),
        _ => fmt_ns(value),
    };
    let chance = row.chance_ppm.div_ceil(100);
    let chance = format!("{}.{:02} %", chance / 100, chance % 100);
    format!("{place}, {}: {} -> {} (by chance: {chance})", row.statistic, value(row.before), value(row.after))
}

/// Runs a load of `punctual certify` until it is killed.
#[derive(clap::Args, Debug)]
pub(super) struct LoadArgs {
    #[arg(value_name = "LOAD")]
    name: String,
}

/// Runs `punctual certify-load`.
pub(super) fn load(args: &LoadArgs) -> Result<u8, Error> {
    load::run_load(&args.name).map_err(Error::usage)?;
    Ok(exit::OK)
}
