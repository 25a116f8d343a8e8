//! `punctual reproduce`: the experiments of published papers.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use indicatif::ProgressStyle;
use punctual_reproduce::{self as reproduce, LiveOptions, MeasuredCosts, Options, Reproduction, render};

use super::error::Error;
use super::live::{own_program, plain_printer};
use super::output::{OutFile, Ui, make_directory};
use super::rights::{self, Needs};
use super::run::DefaultBackendArg;
use super::{exit, interrupt};

/// Memory of a guest of Xen.
const GUEST_MEMORY_MIB: u32 = 128;

/// Run the experiments of a published paper and judge its claims.
///
/// Everything is simulated from the host files in papers/, on all cores, except for the cost of decisions
/// (Table 1 of rt-xen), which is measured on this machine. Tables show the paper's figures beside ours; each
/// claim of the paper gets a verdict and a reason. The exit code does not depend on the verdicts unless
/// --strict is given.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    punctual reproduce rt-xen --quick                  in seconds, with shorter runs\n  \
    punctual reproduce rt-xen --only fig6 --out fig6   one experiment, with CSV, JSON and SVG files\n  \
    punctual reproduce rtca --quick --out rtca         with all plots on one page, rtca/index.html\n  \
    punctual reproduce nautilus\n  \
    punctual reproduce rt-xen --live --as process      on this machine\n  \
    punctual reproduce rt-stack --live --only requests --quick\n  \
    punctual reproduce rtca --live --quick             urgent packets of VMs beside VMs that flood\n  \
    punctual reproduce rt-xen --xen --quick            in guests of Xen, from its domain 0\n  \
    punctual reproduce nautilus --xen")]
pub(super) struct Args {
    /// Which paper.
    #[arg(value_name = "PAPER")]
    paper: Paper,
    /// Only these experiments (rt-xen: fig5, table1, table2, table4, fig6, readings; rtca: fig3, fig6,
    /// table1, fig8, fig10, xen, limitations, readings; vmm-io: fig2, test1 to test8, windows, readings;
    /// nautilus: cyclictest, ping; rt-stack: table6-3 to table6-6, cache, readings, fig3-14, fig6-12 to
    /// fig6-16).
    #[arg(long, value_name = "EXPERIMENT", value_delimiter = ',')]
    only: Vec<String>,
    /// Shorter runs, fewer loads, two task sets.
    #[arg(long)]
    quick: bool,
    /// Task sets for each cell [default: 5, with --quick 2].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    task_sets: Option<u32>,
    /// Measure nothing on this machine, so that the output is the same everywhere.
    #[arg(long)]
    no_native: bool,
    /// Run experiments on this machine, shortened to minutes, beside simulation and paper: rt-xen (fig5,
    /// table2, fig6), real VMs under every server, Credit, SEDF and plain Linux; rtca (table1, fig10) and
    /// vmm-io (ping), packets of VMs through the switch; rt-stack (requests, memcached, sip, scale), requests
    /// over virtio, sockets of the host, a container, a process, beside heavy receivers. Needs root, as
    /// `punctual run` does.
    #[arg(long, conflicts_with_all = ["task_sets", "strict", "no_native"])]
    live: bool,
    /// With --live: the backend of domains.
    #[arg(long = "as", value_name = "FORM", default_value = "vm", requires = "live")]
    default_backend: DefaultBackendArg,
    /// With --live, for rtca and vmm-io: what scheduling and packets cost here is in this host file, from
    /// `punctual calibrate --guests --write HOST.toml`. Without it each call measures that again, which takes
    /// a minute.
    #[arg(long, value_name = "HOST.toml", requires = "live")]
    costs: Option<PathBuf>,
    /// Run rt-xen (fig5, table2, fig6) or nautilus (cyclictest) in guests of the Xen below this domain 0,
    /// beside simulation and paper. Needs Punctual's scheduler there, as `punctual xen run` does, or for
    /// nautilus Xen's own RTDS (docs/xen.md).
    #[arg(long, conflicts_with_all = ["task_sets", "strict", "no_native", "live"])]
    xen: bool,
    /// With --xen: the Linux kernel of the guests, uncompressed or in a format that xl accepts.
    #[arg(long, value_name = "FILE", default_value = "/vmlinux", requires = "xen")]
    kernel: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Also write text, JSON, CSV and SVG files of every table and figure, and a page with everything into
    /// this directory.
    #[arg(long, value_name = "DIR", alias = "output")]
    out: Option<PathBuf>,
    /// Exit with 1 when a verdict is not the one recorded in papers/ for a full run.
    #[arg(long)]
    strict: bool,
}

/// The papers that can be reproduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Paper {
    /// RT-Xen (EMSOFT 2011): Fig. 5, Tables 1, 2 and 4, Fig. 6.
    RtXen,
    /// RTCA (WUCSE-2012-81): packets between domains, Figs. 3, 4, 6, 8, 10, Tables I and II.
    Rtca,
    /// Scheduling I/O in Virtual Machine Monitors (VEE 2008): Figs. 5 to 12.
    VmmIo,
    /// RTDS on Nautilus: cyclictest under global, partitioned and mixed scheduling, ping latency.
    Nautilus,
    /// Real-time network stacks of hosted VMs (Tsukuba 2019): Tables 3.1, 3.2, 6.3 to 6.6, Figs. 3-14, 6-12
    /// to 6-14.
    RtStack,
}

/// Runs `punctual reproduce`.
pub(super) fn run(args: &Args, ui: &Ui) -> Result<u8, Error> {
    interrupt::install();
    let options = Options {
        quick: args.quick,
        task_sets: args.task_sets,
        only: args.only.clone(),
        native: !args.no_native,
    };
    let style = ProgressStyle::with_template("{msg}  {wide_bar} {pos}/{len} simulations, {eta} left");
    let bar = ui.progress(0).with_style(style.expect("the template is constant"));
    let progress = |what: &str, done: usize, total: usize| {
        bar.set_length(total as u64);
        bar.set_position(done as u64);
        bar.set_message(what.to_string());
    };
    if let (Some(_), Paper::RtXen | Paper::RtStack) = (&args.costs, args.paper) {
        return Err(Error::Usage("--costs is for rtca and vmm-io, which measure costs of packets".into()));
    }
    let done = match args.paper {
        Paper::RtXen if args.live => live(args, reproduce::rt_xen_live, ui),
        Paper::RtStack if args.live => live(args, reproduce::rt_stack_live, ui),
        Paper::RtXen if args.xen => in_xen(args, reproduce::rt_xen_in_xen),
        Paper::Nautilus if args.xen => in_xen(args, reproduce::nautilus_in_xen),
        _ if args.xen => return Err(Error::Usage("only rt-xen and nautilus run in Xen".into())),
        Paper::Rtca | Paper::VmmIo if args.live && args.default_backend == DefaultBackendArg::Process => {
            return Err(Error::Usage("only VMs send packets: --as process is for rt-xen".into()));
        }
        Paper::Rtca if args.live => live(args, reproduce::rtca_live, ui),
        Paper::VmmIo if args.live => live(args, reproduce::vmm_io_live, ui),
        _ if args.live => {
            return Err(Error::Usage("only rt-xen, rtca, vmm-io and rt-stack run live".into()));
        }
        Paper::RtXen => reproduce::rt_xen(&options, &progress).map_err(Error::from),
        Paper::Rtca => reproduce::rtca(&options, &progress).map_err(Error::from),
        Paper::VmmIo => reproduce::vmm_io(&options, &progress).map_err(Error::from),
        Paper::Nautilus => reproduce::nautilus(&options, &progress).map_err(Error::from),
        Paper::RtStack => reproduce::rt_stack(&options, &progress).map_err(Error::from),
    };
    bar.finish_and_clear();
    let reproduction = done.inspect_err(|error| {
        if let Error::Interrupted = error {
            ui.warn(&reproduce::Error::Interrupted.to_string());
        }
    })?;
    if let Some(dir) = &args.out {
        write_files(&reproduction, dir)?;
    }
    if args.json {
        ui.print_json(&reproduction)?
    } else {
        ui.print(render::text(&reproduction))?
    }
    let surprised = args.strict && reproduction.unexpected().next().is_some();
    Ok(if surprised { exit::MISSED } else { exit::OK })
}

/// Which experiments to run on this machine.
type Live = fn(&LiveOptions<'_>) -> Result<Reproduction, reproduce::Error>;

fn live(args: &Args, paper: Live, ui: &Ui) -> Result<Reproduction, Error> {
    rights::check("reproduce --live", Needs::Scheduling)?;
    interrupt::be_graceful();
    Ok(paper(&LiveOptions {
        program: own_program()?,
        default_backend: args.default_backend.into(),
        costs: args.costs.as_deref().map(MeasuredCosts::load).transpose()?,
        events: plain_printer(ui),
        end: interrupt::end_for_guardian,
        stop: interrupt::stopped,
        quick: args.quick,
        only: args.only.clone(),
        progress: &say,
    })?)
}

type InXen = fn(&mut reproduce::xen::XenOptions<'_>) -> Result<Reproduction, reproduce::Error>;

fn in_xen(args: &Args, experiments: InXen) -> Result<Reproduction, Error> {
    interrupt::be_graceful();
    let mut control = punctual_xen_run::control::Control::open()?;
    Ok(experiments(&mut reproduce::xen::XenOptions {
        control: &mut control,
        kernel: &args.kernel,
        memory_mib: GUEST_MEMORY_MIB,
        quick: args.quick,
        only: args.only.clone(),
        progress: &say,
        stop: interrupt::stopped,
    })?)
}

/// What is going on, on a terminal.
fn say(line: &str) {
    if std::io::stderr().is_terminal() {
        eprintln!("{line}");
    }
}

impl From<reproduce::Error> for Error {
    fn from(error: reproduce::Error) -> Self {
        match error {
            reproduce::Error::Simulation { what, error: punctual_sim::Error::Violation(text) } => {
                Error::Violation(format!("{what}: {text}"))
            }
            reproduce::Error::NotPutBack(text) => Error::NotRestored(text),
            reproduce::Error::Interrupted => Error::Interrupted,
            other => Error::Usage(other.to_string()),
        }
    }
}

fn write_files(reproduction: &Reproduction, dir: &Path) -> Result<(), Error> {
    make_directory(dir)?;
    for (name, text) in render::files(reproduction).map_err(Error::usage)? {
        OutFile::write(&dir.join(name), |out| out.write_all(text.as_bytes()))?;
    }
    Ok(())
}
