//! `punctual import`: a host file from what other tools write.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use punctual_model::import::{Format, Settings, import};
use punctual_sched::{Duration, registry};

use super::error::Error;
use super::exit;
use super::input::{PolicyName, read_foreign};
use super::output::{OutFile, Overwrite, Ui};

/// Make a host file of libvirt's XML, xl's output or files, workloads or task sets.
///
/// Standard error and the host file's first comment name, with file and line, everything that was not
/// understood or cannot be expressed. docs/import.md has what becomes of each element of a file.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    virsh dumpxml video > video.xml; \
    punctual import --from libvirt video.xml audio.xml --output host.toml\n  \
    (xl cpupool-list -c; xl cpupool-list; xl sched-rtds -v all; xl vcpu-list) > xen.txt\n  \
    punctual import --from xl xen.txt\n  \
    punctual import --from xl /etc/xen/video.cfg --processors 8\n  \
    punctual import --from rt-app workload.json --processors 4 | punctual sim -\n  \
    punctual import --from carts system.xml --unit us --policy deferrable\n  \
    punctual import --from schedcat point.xml --task-set 3 --processors 8 --policy fixed-priority\n  \
    punctual import --from simso simulation.xml | punctual sim -\n  \
    punctual import --from csv tasks.csv | punctual check -")]
pub(super) struct Args {
    /// The files; `-` reads standard input.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Their format.
    #[arg(long, value_name = "FORMAT")]
    from: FormatName,
    /// Write the host file to this path; `-` prints it.
    #[arg(long, value_name = "HOST.toml", default_value = "-")]
    output: PathBuf,
    #[command(flatten)]
    overwrite: Overwrite,
    /// Number of processors of the machine, instead of as many as the files name.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    processors: Option<u16>,
    /// Schedule every pool by this policy instead of the closest match.
    #[arg(long, value_name = "POLICY", value_parser = PolicyName { or_all: false })]
    policy: Option<String>,
    /// Unit of times that have none in the files: in those of CARTS and SimSo, by default ms; in SchedCAT's,
    /// by default us; in columns of a table whose names do not end in a unit.
    #[arg(long, value_name = "UNIT")]
    unit: Option<UnitName>,
    /// SchedCAT: which task set of a test point, from 1.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    task_set: Option<u32>,
    /// Print the notes and the host file as JSON.
    #[arg(long, conflicts_with = "output")]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FormatName {
    /// Domain XML, a file for each domain.
    Libvirt,
    /// What xl cpupool-list, sched-rtds, sched-credit, vcpu-list print, and xl.cfg files.
    Xl,
    /// Workloads in rt-app's JSON.
    RtApp,
    /// Systems or results of CARTS, in XML.
    Carts,
    /// Task sets or test points of SchedCAT, in XML.
    Schedcat,
    /// Simulations of SimSo, in XML.
    Simso,
    /// Tables with a header and a task a line: name,wcet_us,period_us,deadline_us,...
    Csv,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum UnitName {
    /// Nanoseconds.
    Ns,
    /// Microseconds.
    Us,
    /// Milliseconds.
    Ms,
    /// Seconds.
    S,
}

impl UnitName {
    fn duration(self) -> Duration {
        match self {
            UnitName::Ns => Duration::from_ns(1),
            UnitName::Us => Duration::from_us(1),
            UnitName::Ms => Duration::from_ms(1),
            UnitName::S => Duration::from_secs(1),
        }
    }
}

/// Runs `punctual import`.
pub(super) fn run(args: &Args, ui: &Ui) -> Result<u8, Error> {
    args.overwrite.permit(&args.output)?;
    let files = read_foreign(&args.files)?;
    let files: Vec<(&str, &[u8])> =
        files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())).collect();
    let policy = match &args.policy {
        Some(name) => Some(registry::find(name).ok_or_else(|| no_policy(name))?),
        None => None,
    };
    let settings = Settings {
        name: &name(args),
        processors: args.processors.map(usize::from),
        policy,
        unit: args.unit.map(UnitName::duration),
        task_set: args.task_set.map(|number| number as usize),
    };
    let format = match args.from {
        FormatName::Libvirt => Format::Libvirt,
        FormatName::Xl => Format::Xl,
        FormatName::RtApp => Format::RtApp,
        FormatName::Carts => Format::Carts,
        FormatName::Schedcat => Format::SchedCat,
        FormatName::Simso => Format::SimSo,
        FormatName::Csv => Format::Csv,
    };
    let imported = import(format, &files, &settings)
        .map_err(|errors| Error::Import(errors.render(ui.stderr_has_colour())))?;
    if args.json {
        let value = serde_json::json!({ "host_file": imported.toml, "notes": imported.notes });
        ui.print_json(&value)?;
    } else if args.output == Path::new("-") {
        ui.print(&imported.toml)?;
    } else {
        OutFile::write(&args.output, |out| out.write_all(imported.toml.as_bytes()))?;
    }
    for note in &imported.notes {
        ui.warn(&format!("{}:{}: {}", note.file, note.line, note.text));
    }
    Ok(exit::OK)
}

/// The host has the name of the file that is written, or of the first one that is read.
fn name(args: &Args) -> String {
    let named = [&args.output, &args.files[0]].into_iter().find(|path| path.as_path() != Path::new("-"));
    let stem = named.and_then(|path| path.file_stem()).map(|stem| stem.to_string_lossy().into_owned());
    stem.filter(|stem| !stem.is_empty()).unwrap_or_else(|| "imported".into())
}

fn no_policy(name: &str) -> Error {
    let names: Vec<&str> = registry::policies().iter().map(|p| p.name).collect();
    Error::Usage(format!("there is no policy \"{name}\"; expected one of {}", names.join(", ")))
}
