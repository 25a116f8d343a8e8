//! `punctual sweep`: a grid of parameters.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use clap::builder::PossibleValue;
use indicatif::ProgressBar;
use punctual_report::table;
use punctual_sweep::{
    self as sweep, Axis, Figure, Grid, Metric, Outcome, Points, Request, Run, Shard, Watch,
};
use rayon::prelude::*;

use super::error::Error;
use super::input::{CHUNK, Changes, Costs, HostFile, Policies, RUNS_MAX, THREADS_MAX, thread_pool};
use super::jobs::{self, JobsFile, Spool, Spools};
use super::output::{OutFile, Ui, keep_inputs};
use super::{exit, interrupt};

/// The key of which jobs have a column without being labelled with it.
const SEED: &str = "seed";

/// Metrics shown as columns when there is one dimension and none is asked for.
const DEFAULT_COLUMNS: [Metric; 4] =
    [Metric::MissRatio, Metric::P50Response, Metric::P99Response, Metric::MaxResponse];

/// Simulate or analyse a grid of parameters, on all cores.
///
/// Every combination of the values given with --vary and --policy is simulated. Tables show a metric over
/// all tasks of the host, the last dimension from left to right; --csv and --json have every metric of a
/// simulation. The metrics guaranteed, refuted, schedulable and weighted-schedulable are what `punctual
/// check` says of each run; with these alone nothing is simulated. The output does not depend on the number
/// of threads, nor on the number of shards. Ctrl-C prints the points that are finished.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    punctual sweep host.toml --vary domain.video.budget=1ms..5ms:1ms\n  \
    punctual sweep host.toml --vary 'domain.*.generate.load=30%..100%:10%' --policy all --runs 10\n  \
    punctual sweep host.toml --vary seed=1..9:1 --vary duration=1s,10s --metric p99-response\n  \
    punctual sweep host.toml --vary 'domain.*.generate.load=30%..100%:10%' --metric schedulable\n  \
    punctual sweep host.toml --vary 'domain.*.generate.load=30%..100%:10%' --svg load.svg\n  \
    punctual sweep host.toml --vary machine.overheads.decision=0us..9us:1us --csv > cost.csv\n  \
    punctual sweep host.toml --policy rtds,edf --vary seed=1..50:1 --jobs jobs.csv\n  \
    punctual sweep host.toml --vary seed=1..9999:1 --resume points --shard 3/100   (one of 100 machines)\n  \
    punctual sweep host.toml --vary seed=1..9999:1 --resume points --merge --csv   (the whole, at the end)")]
pub(super) struct Args {
    /// The host file; `-` reads standard input.
    #[arg(value_name = "HOST.toml")]
    file: PathBuf,
    /// A key and its values: KEY=V1,V2,... or KEY=START..END:STEP, both ends included, with units; `*` in
    /// the key matches every name. Repeat for more dimensions.
    #[arg(long, value_name = "KEY=VALUES", value_parser = axis)]
    vary: Vec<Axis>,
    #[command(flatten)]
    policies: Policies,
    #[command(flatten)]
    changes: Changes,
    #[command(flatten)]
    costs: Costs,
    /// Merge this many runs at each point, with the seeds N, N+1, ...; each draws generated task sets again.
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=RUNS_MAX))]
    runs: u32,
    /// Metrics that tables show; repeat or separate with commas.
    #[arg(long, value_name = "METRIC", value_delimiter = ',')]
    metric: Vec<MetricArg>,
    /// Skip combinations that are not a valid host instead of refusing the whole grid.
    #[arg(long)]
    skip_invalid: bool,
    /// Print one line of CSV per point, with every metric.
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Print JSON, with the whole results of every point.
    #[arg(long)]
    json: bool,
    /// Write a row for each job of every simulation: CSV, or Parquet if the name ends in .parquet.
    #[arg(long, value_name = "OUT.csv")]
    jobs: Option<PathBuf>,
    /// Draw the first metric as curves: a key with numbers from left to right, a line for each combination
    /// of the others.
    #[arg(long, value_name = "OUT.svg", conflicts_with = "shard")]
    svg: Option<PathBuf>,
    /// The key from left to right in --svg, if several take numbers.
    #[arg(long, value_name = "KEY", requires = "svg")]
    x: Option<String>,
    /// Add up the points of this key in --svg, for metrics of the analysis: weighted schedulability over
    /// another key than the utilization. Repeat for more.
    #[arg(long, value_name = "KEY", requires = "svg")]
    over: Vec<String>,
    /// Keep finished points in this directory, and take those that are there instead of computing them
    /// again: a sweep that was ended goes on where it was.
    #[arg(long, value_name = "DIR", conflicts_with = "jobs")]
    resume: Option<PathBuf>,
    /// Compute only every N-th point, beginning with the I-th, and print how many are there. The parts of a
    /// sweep can run on as many machines as share the directory.
    #[arg(long, value_name = "I/N", requires = "resume", conflicts_with = "merge")]
    shard: Option<Shard>,
    /// Compute nothing: print the points that all shards have left in the directory.
    #[arg(long, requires = "resume")]
    merge: bool,
    /// Use this many threads instead of one per processor.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=THREADS_MAX))]
    threads: Option<u16>,
}

/// A metric as a value of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MetricArg(Metric);

impl ValueEnum for MetricArg {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [MetricArg; Metric::ALL.len()] = {
            let mut all = [MetricArg(Metric::MissRatio); Metric::ALL.len()];
            let mut at = 0;
            while at < all.len() {
                all[at] = MetricArg(Metric::ALL[at]);
                at += 1;
            }
            all
        };
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.0.name()).help(self.0.summary()))
    }
}

fn axis(text: &str) -> Result<Axis, String> {
    text.parse()
}

/// A grid with what the command line says about it.
struct Sweep<'a> {
    args: &'a Args,
    grid: Grid,
    metrics: Vec<Metric>,
    points: Option<Points>,
}

/// The outcome of a run whose jobs are listed.
enum Listed {
    Done(Box<(Run, Option<Spool>)>),
    /// As [`Outcome::Invalid`].
    Invalid,
    /// As [`Outcome::Unfinished`].
    Unfinished,
}

/// Ctrl-C, and the bar.
struct Progress<'b>(&'b ProgressBar);

impl Watch for Progress<'_> {
    fn stops(&self) -> bool {
        interrupt::stopped()
    }

    fn done(&self, runs: u64) {
        self.0.inc(runs);
    }
}

/// Writes a file of the directory of points; an interruption leaves nothing half-written.
fn write(path: &Path, bytes: &[u8]) -> Result<(), String> {
    OutFile::write(path, |out| std::io::Write::write_all(out, bytes)).map_err(|error| match error {
        Error::Usage(text) => text,
        _ => format!("cannot write {}", path.display()),
    })
}

impl From<sweep::Error> for Error {
    fn from(error: sweep::Error) -> Self {
        match error {
            sweep::Error::Host(errors) => errors.into(),
            sweep::Error::Points(text) => Error::Usage(text + "\n  --skip-invalid leaves them out"),
            sweep::Error::Refused(text) => Error::Usage(text),
            sweep::Error::Simulation(error) => error.into(),
        }
    }
}

/// Runs `punctual sweep`.
pub(super) fn run(args: &Args, ui: &Ui) -> Result<u8, Error> {
    interrupt::install();
    let sweep = Sweep::new(args)?;
    let grid = &sweep.grid;
    if let Some(figure) = sweep.figure() {
        grid.check_figure(&figure)?;
    }
    let jobs = sweep.jobs_file()?;
    let threads = thread_pool(args.threads)?;
    threads.install(|| grid.validate(|point| sweep.has(point)))?;
    interrupt::be_graceful();
    let own = (0..grid.points()).filter(|point| sweep.has(*point)).count();
    let bar = ui.progress(own * args.runs as usize);
    let outcomes = match jobs {
        Some(jobs) => sweep.simulate_listed(jobs, &threads, &bar),
        None => threads.install(|| sweep.simulate(&bar)),
    };
    bar.finish_and_clear();
    let outcomes = outcomes?;
    if let Some(directory) = args.resume.as_deref().filter(|_| args.shard.is_some()) {
        ui.print(sweep.shard_text(&outcomes, directory))?;
        return if interrupt::stopped() { Err(Error::Interrupted) } else { Ok(exit::OK) };
    }
    if args.merge {
        sweep.complete(&outcomes)?;
    }
    match (args.csv, args.json) {
        (true, _) => ui.print(grid.csv(&outcomes))?,
        (_, true) => ui.print(grid.json(&outcomes) + "\n")?,
        _ => ui.print(sweep.tables(&outcomes, ui.stdout_has_colour()))?,
    }
    sweep.draw(&outcomes)?;
    if interrupt::stopped() { Err(Error::Interrupted) } else { Ok(exit::OK) }
}

impl<'a> Sweep<'a> {
    fn new(args: &'a Args) -> Result<Self, Error> {
        let policies: Vec<String> = args.policies.choices().into_iter().flatten().collect();
        if args.vary.is_empty() && policies.is_empty() {
            return Err(Error::Usage("nothing to vary: give --vary KEY=VALUES or several --policy".into()));
        }
        let metrics: Vec<Metric> = args.metric.iter().map(|metric| metric.0).collect();
        let grid = Grid::new(Request {
            source: HostFile::read(&args.file)?.into_source(),
            overrides: args.costs.overrides(&args.changes, None),
            axes: args.vary.clone(),
            policies,
            runs: args.runs,
            metrics: metrics.clone(),
            keeps_results: args.json,
            // `--policy all` tries policies that do not fit this host.
            is_lenient: args.skip_invalid || args.policies.all(),
        })?;
        let points = args.resume.as_deref().map(|directory| Points::written_by(directory, write));
        Ok(Sweep { args, grid, metrics, points: points.transpose()? })
    }

    /// Is the point one of this shard?
    fn has(&self, point: usize) -> bool {
        self.args.shard.is_none_or(|shard| shard.has(point))
    }

    fn simulate(&self, bar: &ProgressBar) -> Result<Vec<Outcome>, Error> {
        let point = |point| self.point(point, bar);
        let outcomes: Vec<Result<Outcome, sweep::Error>> =
            (0..self.grid.points()).into_par_iter().with_max_len(1).map(point).collect();
        Ok(outcomes.into_iter().collect::<Result<_, _>>()?)
    }

    /// A point, from the directory if it is there.
    fn point(&self, point: usize, bar: &ProgressBar) -> Result<Outcome, sweep::Error> {
        let watch = Progress(bar);
        match &self.points {
            None => self.grid.compute(point, &watch),
            Some(_) if !self.has(point) => Ok(Outcome::Unfinished),
            Some(points) if self.args.merge => {
                Ok(self.grid.load(point, points)?.unwrap_or(Outcome::Unfinished))
            }
            Some(points) => self.grid.resume(point, points, &watch),
        }
    }

    /// Refuses to show a grid with points that no shard has left in the directory.
    fn complete(&self, outcomes: &[Outcome]) -> Result<(), Error> {
        let is_missing = |outcome: &Outcome| matches!(outcome, Outcome::Unfinished);
        let Some(first) = outcomes.iter().position(is_missing) else { return Ok(()) };
        let (missing, all) = (outcomes.iter().filter(|one| is_missing(one)).count(), outcomes.len());
        let at = self.grid.place(first);
        Err(Error::Usage(format!(
            "--merge: {missing} of {all} points are not there, the first at {at}, which is point {first} \
             from 0 on; run their shards, or leave --merge out to compute them"
        )))
    }

    /// What a shard says at its end.
    fn shard_text(&self, outcomes: &[Outcome], directory: &Path) -> String {
        let own = outcomes.iter().enumerate().filter(|(point, _)| self.has(*point));
        let (mut done, mut all) = (0, 0);
        own.for_each(|(_, outcome)| {
            all += 1;
            done += usize::from(!matches!(outcome, Outcome::Unfinished));
        });
        format!("{done} of {all} points of this shard are done; the results are in {}\n", directory.display())
    }

    /// The file that `--jobs` asks for. Its rows have the values of their point.
    fn jobs_file(&self) -> Result<Option<JobsFile>, Error> {
        let inputs: Vec<PathBuf> =
            [self.args.file.clone()].into_iter().chain(self.args.costs.file()).collect();
        keep_inputs(&inputs, &[&self.args.jobs, &self.args.svg])?;
        let Some(path) = &self.args.jobs else { return Ok(None) };
        if !self.grid.simulates() {
            let text = "--jobs: metrics of the analysis alone simulate no job; ask for another metric, too";
            return Err(Error::Usage(text.into()));
        }
        let keys: Vec<&str> = self.labels().map(|dimension| dimension.key.as_str()).collect();
        JobsFile::create(path, &keys).map(Some)
    }

    /// The dimensions that label jobs.
    fn labels(&self) -> impl Iterator<Item = &Axis> {
        self.grid.dimensions().iter().filter(|dimension| dimension.key != SEED)
    }

    /// As [`Grid::simulate`], with the jobs of each run in the order of the grid. So many runs are under way
    /// at once that their jobs fit into memory, or into as many temporary files as a process may have open.
    fn simulate_listed(
        &self,
        mut file: JobsFile,
        threads: &rayon::ThreadPool,
        bar: &ProgressBar,
    ) -> Result<Vec<Outcome>, Error> {
        let mut outcomes = Vec::with_capacity(self.grid.points());
        let mut merged: Option<Run> = None;
        let (runs, spools) = (self.args.runs as usize, file.spools());
        for first in (0..self.grid.points() * runs).step_by(CHUNK) {
            let chunk: Vec<usize> = (first..(first + CHUNK).min(self.grid.points() * runs)).collect();
            let listed = |&at: &usize| self.listed_run(at / runs, at % runs, &spools, bar);
            let done: Vec<Result<Listed, Error>> =
                threads.install(|| chunk.par_iter().with_max_len(1).map(listed).collect());
            for (at, done) in chunk.into_iter().zip(done) {
                let (point, is_last) = (at / runs, at % runs == runs - 1);
                match done? {
                    Listed::Invalid if is_last => outcomes.push(Outcome::Invalid),
                    Listed::Invalid => {}
                    Listed::Unfinished => {
                        file.finish()?;
                        outcomes.resize_with(self.grid.points(), || Outcome::Unfinished);
                        return Ok(outcomes);
                    }
                    Listed::Done(done) => {
                        let (run, spool) = *done;
                        if let Some(spool) = spool {
                            file.append(&self.labels_of(point), spool)?;
                        }
                        match &mut merged {
                            Some(sum) => sum.merge(&run)?,
                            none => *none = Some(run),
                        }
                        if is_last {
                            outcomes.push(self.grid.outcome(merged.take()));
                        }
                    }
                }
            }
        }
        file.finish()?;
        Ok(outcomes)
    }

    /// The values of a point that label its jobs.
    fn labels_of(&self, point: usize) -> Vec<&str> {
        let dimensions = self.grid.dimensions().iter().zip(self.grid.values(point));
        dimensions.filter(|(dimension, _)| dimension.key != SEED).map(|(_, value)| value).collect()
    }

    /// One run of a point with its jobs.
    fn listed_run(
        &self,
        point: usize,
        run: usize,
        spools: &Spools,
        bar: &ProgressBar,
    ) -> Result<Listed, Error> {
        let overrides = self.grid.overrides(point);
        let first = match self.grid.host(&overrides) {
            Ok(host) => host,
            Err(_) if self.grid.request().is_lenient => return Ok(Listed::Invalid),
            Err(errors) => return Err(errors.into()),
        };
        if interrupt::stopped() {
            return Ok(Listed::Unfinished);
        }
        let mut spool = None;
        let done = self.grid.run(&overrides, first.seed().saturating_add(run as u64), |host| {
            jobs::simulate(host, false, Some(spool.insert(spools.spool(host))))
        })?;
        bar.inc(1);
        Ok(Listed::Done(Box::new((done, spool))))
    }

    /// The figure that `--svg` asks for.
    fn figure(&self) -> Option<Figure<'_>> {
        self.args.svg.as_ref()?;
        let metric = self.metrics.first().copied().unwrap_or(Metric::MissRatio);
        let over = self.args.over.iter().map(String::as_str).collect();
        Some(Figure { metric, x: self.args.x.as_deref(), over })
    }

    fn draw(&self, outcomes: &[Outcome]) -> Result<(), Error> {
        let (Some(path), Some(figure)) = (&self.args.svg, self.figure()) else { return Ok(()) };
        let svg = self.grid.figure(outcomes, &figure)?;
        OutFile::write(path, |out| std::io::Write::write_all(out, svg.as_bytes()))
    }

    // ---- output -------------------------------------------------------------------------------------

    fn tables(&self, outcomes: &[Outcome], colour: bool) -> String {
        let (columns, rows) = match self.grid.dimensions() {
            [only] => return self.list(only, outcomes, colour),
            [rows @ .., columns] => (columns, rows),
            [] => return String::new(),
        };
        let across = columns.values.len();
        let row_labels: Vec<String> = (0..outcomes.len() / across)
            .map(|row| self.grid.values(row * across)[..rows.len()].join("  "))
            .collect();
        let row_keys: Vec<&str> = rows.iter().map(|d| d.key.as_str()).collect();
        let metrics = if self.metrics.is_empty() { &[Metric::MissRatio] } else { self.metrics.as_slice() };
        let table = |metric: &Metric| {
            let title = format!("{}; down: {}, across: {}", metric.name(), row_keys.join("  "), columns.key);
            let cells: Vec<Vec<String>> =
                outcomes.chunks(across).map(|row| row.iter().map(|o| o.show(*metric)).collect()).collect();
            table::matrix(&title, &refs(&row_labels), &refs(&columns.values), &cells, colour)
        };
        metrics.iter().map(table).collect::<Vec<_>>().join("\n")
    }

    /// One dimension: a row per value, a column per metric.
    fn list(&self, only: &Axis, outcomes: &[Outcome], colour: bool) -> String {
        let metrics = if self.metrics.is_empty() { &DEFAULT_COLUMNS[..] } else { &self.metrics };
        let names: Vec<&str> = metrics.iter().map(|m| m.name()).collect();
        let cells: Vec<Vec<String>> =
            outcomes.iter().map(|outcome| metrics.iter().map(|&m| outcome.show(m)).collect()).collect();
        table::matrix(&only.key, &refs(&only.values), &names, &cells, colour)
    }
}

fn refs(texts: &[String]) -> Vec<&str> {
    texts.iter().map(String::as_str).collect()
}
