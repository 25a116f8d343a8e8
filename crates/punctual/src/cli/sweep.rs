//! `punctual sweep`: a grid of parameters.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use indicatif::ProgressBar;
use punctual_model::file::{Errors, Overrides};
use punctual_model::results::JobStats;
use punctual_model::{AnyHost, Results};
use punctual_report::table;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::error::Error;
use super::grid::{self, Axis};
use super::input::{CHUNK, Changes, Costs, HostFile, Policies, RUNS_MAX, THREADS_MAX, thread_pool};
use super::jobs::{self, JobsFile, Spool, Spools};
use super::metric::{self, Analysed, Metric};
use super::output::{Ui, keep_inputs};
use super::points::{Points, Shard};
use super::{exit, interrupt};

/// Points of a grid at most.
const POINTS_MAX: usize = 1_000_000;

/// Points at most with `--json`, which holds the whole results of each.
const JSON_POINTS_MAX: usize = 10_000;

/// The name of the axis that `--policy` makes.
const POLICY: &str = "policy";

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
    #[arg(long, value_name = "KEY=VALUES", value_parser = grid::axis)]
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
    metric: Vec<Metric>,
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

/// A dimension with the values in the order of the grid.
#[derive(Serialize)]
struct Dimension {
    key: String,
    values: Vec<String>,
}

/// The grid: the last dimension changes fastest.
struct Grid<'a> {
    args: &'a Args,
    file: HostFile,
    dimensions: Vec<Dimension>,
    points: Option<Points>,
}

/// The outcome of a point.
enum Outcome {
    Done(Box<Measured>),
    /// Not a valid host, and `--skip-invalid` was given.
    Invalid,
    /// The program was interrupted before.
    Unfinished,
}

/// The outcome of a run whose jobs are listed.
enum Listed {
    Done(Box<Run>),
    /// As [`Outcome::Invalid`].
    Invalid,
    /// As [`Outcome::Unfinished`].
    Unfinished,
}

/// The values kept of a point.
#[derive(Serialize, Deserialize)]
struct Measured {
    runs: u32,
    released: u64,
    due: u64,
    /// In the order of the variants of [`Metric`]; `None` where nothing tells it.
    values: Vec<Option<metric::Value>>,
    analysed: Option<Analysed>,
    /// Only for `--json`: distributions take their room.
    results: Option<Results>,
}

impl Measured {
    fn new(run: Run, keep: bool) -> Self {
        let Run { runs, without_miss, results, analysed, jobs: _ } = run;
        let mut jobs = JobStats::default();
        results.iter().flat_map(|results| &results.pools).for_each(|pool| jobs.merge(&pool.jobs));
        let value = |metric: &Metric| {
            if metric.is_analysed() {
                analysed.and_then(|analysed| analysed.value(*metric))
            } else {
                results.as_ref().map(|results| metric.of(results, without_miss))
            }
        };
        Measured {
            runs,
            released: jobs.released,
            due: jobs.due,
            values: Metric::value_variants().iter().map(value).collect(),
            analysed,
            results: results.filter(|_| keep),
        }
    }
}

/// One run of a point, or several merged.
struct Run {
    runs: u32,
    /// So many of them missed no deadline.
    without_miss: u64,
    /// Unless nothing is simulated.
    results: Option<Results>,
    /// If a metric asks for it.
    analysed: Option<Analysed>,
    /// Its jobs, with `--jobs`.
    jobs: Option<Spool>,
}

impl Run {
    fn merge(&mut self, other: Run) -> Result<(), Error> {
        self.runs += other.runs;
        self.without_miss += other.without_miss;
        if let (Some(results), Some(more)) = (&mut self.results, &other.results) {
            results.merge(more).map_err(Error::usage)?;
        }
        if let (Some(analysed), Some(more)) = (&mut self.analysed, &other.analysed) {
            analysed.merge(more);
        }
        Ok(())
    }
}

/// Runs `punctual sweep`.
pub(super) fn run(args: &Args, ui: &Ui) -> Result<u8, Error> {
    interrupt::install();
    let grid = Grid::new(args)?;
    let jobs = grid.jobs_file()?;
    let threads = thread_pool(args.threads)?;
    threads.install(|| grid.validate())?;
    interrupt::be_graceful();
    let own = (0..grid.points()).filter(|point| grid.has(*point)).count();
    let bar = ui.progress(own * args.runs as usize);
    let outcomes = match jobs {
        Some(jobs) => grid.simulate_listed(jobs, &threads, &bar),
        None => threads.install(|| grid.simulate(&bar)),
    };
    bar.finish_and_clear();
    let outcomes = outcomes?;
    if let Some(directory) = args.resume.as_deref().filter(|_| args.shard.is_some()) {
        ui.print(grid.shard_text(&outcomes, directory))?;
        return if interrupt::stopped() { Err(Error::Interrupted) } else { Ok(exit::OK) };
    }
    if args.merge {
        grid.complete(&outcomes)?;
    }
    match (args.csv, args.json) {
        (true, _) => ui.print(grid.csv(&outcomes)?)?,
        (_, true) => {
            let text = serde_json::to_string(&grid.json(&outcomes)).map_err(std::io::Error::from)?;
            ui.print(text + "\n")?;
        }
        _ => ui.print(grid.tables(&outcomes, ui.stdout_has_colour()))?,
    }
    if interrupt::stopped() { Err(Error::Interrupted) } else { Ok(exit::OK) }
}

impl<'a> Grid<'a> {
    fn new(args: &'a Args) -> Result<Self, Error> {
        let varied = args.vary.iter().map(|a| Dimension { key: a.key.clone(), values: a.values.clone() });
        let policies: Vec<String> = args.policies.choices().into_iter().flatten().collect();
        let policies = (!policies.is_empty()).then(|| Dimension { key: POLICY.into(), values: policies });
        let dimensions: Vec<Dimension> = varied.chain(policies).collect();
        let twice = |(i, d): &(usize, &Dimension)| dimensions[..*i].iter().any(|other| other.key == d.key);
        if let Some((_, dimension)) = dimensions.iter().enumerate().find(twice) {
            let text = format!("`{}` is varied twice; list all its values in one place", dimension.key);
            return Err(Error::Usage(text));
        }
        if dimensions.is_empty() {
            return Err(Error::Usage("nothing to vary: give --vary KEY=VALUES or several --policy".into()));
        }
        let points = dimensions.iter().try_fold(1usize, |n, d| n.checked_mul(d.values.len()));
        let (most, why) =
            if args.json { (JSON_POINTS_MAX, " for --json; take --csv") } else { (POINTS_MAX, "") };
        if points.is_none_or(|n| n > most) {
            return Err(Error::Usage(format!("the grid has more than {most} points{why}")));
        }
        let points = args.resume.as_deref().map(Points::open).transpose()?;
        let grid = Grid { args, file: HostFile::read(&args.file)?, dimensions, points };
        if let (true, Ok(AnyHost::Stack(_))) =
            (grid.analyses(), grid.file.any_host(&args.costs.overrides(&args.changes, None)))
        {
            let text = "metrics of the analysis are of tasks with deadlines, and a host with `host_stack` \
                        has none; `punctual check` bounds its requests";
            return Err(Error::Usage(text.into()));
        }
        Ok(grid)
    }

    fn points(&self) -> usize {
        self.dimensions.iter().map(|d| d.values.len()).product()
    }

    /// The values of a point, one per dimension.
    fn values(&self, mut point: usize) -> Vec<&str> {
        let mut values: Vec<&str> = self
            .dimensions
            .iter()
            .rev()
            .map(|d| {
                let value = &d.values[point % d.values.len()];
                point /= d.values.len();
                value.as_str()
            })
            .collect();
        values.reverse();
        values
    }

    fn overrides(&self, point: usize) -> Overrides {
        let mut overrides = self.args.costs.overrides(&self.args.changes, None);
        for (dimension, value) in self.dimensions.iter().zip(self.values(point)) {
            match dimension.key.as_str() {
                POLICY => overrides.policy = Some(value.to_string()),
                key => overrides.set.push(format!("{key}={value}")),
            }
        }
        overrides
    }

    /// The values of a point for people.
    fn place(&self, point: usize) -> String {
        let name = |(dimension, value): (&Dimension, &str)| format!("{}={value}", dimension.key);
        self.dimensions.iter().zip(self.values(point)).map(name).collect::<Vec<_>>().join(", ")
    }

    /// May a point be left out? `--policy all` tries policies that do not fit this host.
    fn lenient(&self) -> bool {
        self.args.skip_invalid || self.args.policies.all()
    }

    /// Refuses the grid before anything runs, with the errors of the first point that has some.
    fn validate(&self) -> Result<(), Error> {
        if !self.lenient() {
            let check = |point| Some((point, self.file.any_host(&self.overrides(point)).err()?));
            let own = (0..self.points()).into_par_iter().filter(|point| self.has(*point));
            let first = own.find_map_first(check);
            return first.map_or(Ok(()), |(point, errors)| Err(self.refused(point, errors)));
        }
        let fits = |point| self.file.any_host(&self.overrides(point)).is_ok();
        if self.args.shard.is_some() || (0..self.points()).into_par_iter().any(fits) {
            return Ok(());
        }
        // Nothing fits: the first point says why.
        self.file.any_host(&self.overrides(0)).map(drop).map_err(Error::from)
    }

    /// The error that a point of the grid is no valid host; the file itself may be at fault.
    fn refused(&self, point: usize, errors: Errors) -> Error {
        if self.file.any_host(&self.args.costs.overrides(&self.args.changes, None)).is_err() {
            return errors.into();
        }
        let fits = |point: &usize| self.file.any_host(&self.overrides(*point)).is_ok();
        let wrong = self.points() - (0..self.points()).into_par_iter().filter(fits).count();
        let at = self.place(point);
        let why = &errors.records()[0];
        Error::Usage(format!(
            "{wrong} of {} points of the grid are no valid host, the first at {at}: {}: {}\n  \
             --skip-invalid leaves them out",
            self.points(),
            why.message,
            why.expected
        ))
    }

    fn simulate(&self, bar: &ProgressBar) -> Result<Vec<Outcome>, Error> {
        let outcomes: Vec<Result<Outcome, Error>> =
            (0..self.points()).into_par_iter().with_max_len(1).map(|point| self.point(point, bar)).collect();
        outcomes.into_iter().collect()
    }

    /// Is the point one of this shard?
    fn has(&self, point: usize) -> bool {
        self.args.shard.is_none_or(|shard| shard.has(point))
    }

    /// A point, from the directory if it is there.
    fn point(&self, point: usize, bar: &ProgressBar) -> Result<Outcome, Error> {
        let Some(points) = &self.points else { return self.compute(point, bar) };
        if !self.has(point) || interrupt::stopped() {
            return Ok(Outcome::Unfinished);
        }
        let overrides = self.overrides(point);
        // What else a point depends on is in the overrides, the texts of other files included.
        let measures = (self.args.runs, self.args.json, self.simulates(), self.analyses(), self.searches());
        // A host without a name is called after its file.
        let name = Path::new(&self.file.name).file_name();
        let path =
            points.path(&[self.file.bytes(), format!("{name:?} {overrides:?} {measures:?}").as_bytes()]);
        if let Some(measured) = points.load(&path)? {
            bar.inc(self.args.runs.into());
            return Ok(Outcome::Done(Box::new(measured)));
        }
        if self.args.merge {
            let is_invalid = self.lenient() && self.file.any_host(&overrides).is_err();
            return Ok(if is_invalid { Outcome::Invalid } else { Outcome::Unfinished });
        }
        let outcome = self.compute(point, bar)?;
        if let Outcome::Done(measured) = &outcome {
            points.save(&path, measured)?;
        }
        Ok(outcome)
    }

    /// Refuses to show a grid with points that no shard has left in the directory.
    fn complete(&self, outcomes: &[Outcome]) -> Result<(), Error> {
        let is_missing = |outcome: &Outcome| matches!(outcome, Outcome::Unfinished);
        let Some(first) = outcomes.iter().position(is_missing) else { return Ok(()) };
        let (missing, all) = (outcomes.iter().filter(|one| is_missing(one)).count(), outcomes.len());
        let at = self.place(first);
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

    /// All runs of a point, merged in the order of their seeds.
    fn compute(&self, point: usize, bar: &ProgressBar) -> Result<Outcome, Error> {
        let overrides = self.overrides(point);
        let first = match self.file.any_host(&overrides) {
            Ok(host) => host,
            Err(_) if self.lenient() => return Ok(Outcome::Invalid),
            Err(errors) => return Err(errors.into()),
        };
        let mut merged: Option<Run> = None;
        for chunk in (0..self.args.runs).collect::<Vec<_>>().chunks(CHUNK) {
            let seed = |run: u32| first.seed().saturating_add(run.into());
            let simulate = |&run: &u32| self.run(&overrides, seed(run), None, bar);
            let runs: Vec<_> = chunk.par_iter().with_max_len(1).map(simulate).collect();
            for run in runs {
                match (run?, &mut merged) {
                    (None, _) => return Ok(Outcome::Unfinished),
                    (Some(run), Some(sum)) => sum.merge(run)?,
                    (run, none) => *none = run,
                }
            }
        }
        Ok(self.outcome(merged))
    }

    /// The outcome of a point of these runs.
    fn outcome(&self, merged: Option<Run>) -> Outcome {
        let measured = merged.map(|run| Box::new(Measured::new(run, self.args.json)));
        measured.map_or(Outcome::Unfinished, Outcome::Done)
    }

    /// The file that `--jobs` asks for. Its rows have the values of their point.
    fn jobs_file(&self) -> Result<Option<JobsFile>, Error> {
        let Some(path) = &self.args.jobs else { return Ok(None) };
        let inputs: Vec<PathBuf> =
            [self.args.file.clone()].into_iter().chain(self.args.costs.file()).collect();
        keep_inputs(&inputs, &[&self.args.jobs])?;
        if !self.simulates() {
            let text = "--jobs: metrics of the analysis alone simulate no job; ask for another metric, too";
            return Err(Error::Usage(text.into()));
        }
        let keys: Vec<&str> = self.labels().map(|dimension| dimension.key.as_str()).collect();
        JobsFile::create(path, &keys).map(Some)
    }

    /// The dimensions that label jobs.
    fn labels(&self) -> impl Iterator<Item = &Dimension> {
        self.dimensions.iter().filter(|dimension| dimension.key != SEED)
    }

    /// As [`Grid::simulate`], with the jobs of each run in the order of the grid. So many runs are under way
    /// at once that their jobs fit into memory, or into as many temporary files as a process may have open.
    fn simulate_listed(
        &self,
        mut file: JobsFile,
        threads: &rayon::ThreadPool,
        bar: &ProgressBar,
    ) -> Result<Vec<Outcome>, Error> {
        let mut outcomes = Vec::with_capacity(self.points());
        let mut merged: Option<Run> = None;
        let (runs, spools) = (self.args.runs as usize, file.spools());
        for first in (0..self.points() * runs).step_by(CHUNK) {
            let chunk: Vec<usize> = (first..(first + CHUNK).min(self.points() * runs)).collect();
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
                        outcomes.resize_with(self.points(), || Outcome::Unfinished);
                        return Ok(outcomes);
                    }
                    Listed::Done(mut run) => {
                        if let Some(spool) = run.jobs.take() {
                            file.append(&self.labels_of(point), spool)?;
                        }
                        match &mut merged {
                            Some(sum) => sum.merge(*run)?,
                            none => *none = Some(*run),
                        }
                        if is_last {
                            outcomes.push(self.outcome(merged.take()));
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
        let dimensions = self.dimensions.iter().zip(self.values(point));
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
        let overrides = self.overrides(point);
        let first = match self.file.any_host(&overrides) {
            Ok(host) => host,
            Err(_) if self.lenient() => return Ok(Listed::Invalid),
            Err(errors) => return Err(errors.into()),
        };
        let done = self.run(&overrides, first.seed().saturating_add(run as u64), Some(spools), bar)?;
        Ok(done.map_or(Listed::Unfinished, |run| Listed::Done(Box::new(run))))
    }

    /// One run; `None` when the program was interrupted before.
    fn run(
        &self,
        overrides: &Overrides,
        seed: u64,
        spools: Option<&Spools>,
        bar: &ProgressBar,
    ) -> Result<Option<Run>, Error> {
        if interrupt::stopped() {
            return Ok(None);
        }
        let host = self.file.any_host(&Overrides { seed: Some(seed), ..overrides.clone() })?;
        let mut jobs = spools.map(|spools| spools.spool(&host));
        let simulate = || jobs::simulate(&host, false, jobs.as_mut());
        let results = self.simulates().then(simulate).transpose()?;
        let missed = results.iter().flat_map(|results| &results.pools).map(|pool| pool.jobs.missed);
        let without_miss = u64::from(missed.sum::<u64>() == 0);
        let analysed = match &host {
            AnyHost::Pools(host) if self.analyses() => {
                // The search for counter-examples guarantees nothing more, and takes most of the time.
                let answers =
                    if self.searches() { punctual_check::answers } else { punctual_analysis::answers };
                Some(Analysed::of(host, &answers(host).guarantees(host)))
            }
            _ => None,
        };
        bar.inc(1);
        Ok(Some(Run { runs: 1, without_miss, results, analysed, jobs }))
    }

    /// Does a metric ask for a simulation?
    fn simulates(&self) -> bool {
        !self.analyses() || self.args.metric.iter().any(|metric| !metric.is_analysed())
    }

    /// Does a metric ask for the analysis?
    fn analyses(&self) -> bool {
        self.args.metric.iter().any(|metric| metric.is_analysed())
    }

    /// Does a metric ask for counter-examples?
    fn searches(&self) -> bool {
        self.args.metric.contains(&Metric::Refuted)
    }

    /// The metrics of CSV, by the sources that are asked for.
    fn columns(&self) -> impl Iterator<Item = Metric> {
        let (simulates, analyses) = (self.simulates(), self.analyses());
        let metrics = Metric::value_variants().iter().copied();
        metrics.filter(move |metric| if metric.is_analysed() { analyses } else { simulates })
    }

    // ---- output -------------------------------------------------------------------------------------

    fn tables(&self, outcomes: &[Outcome], colour: bool) -> String {
        let rows = &self.dimensions[..self.dimensions.len() - 1];
        let columns = &self.dimensions[self.dimensions.len() - 1];
        if rows.is_empty() {
            return self.list(outcomes, colour);
        }
        let across = columns.values.len();
        let row_labels: Vec<String> = (0..outcomes.len() / across)
            .map(|row| self.values(row * across)[..rows.len()].join("  "))
            .collect();
        let row_keys: Vec<&str> = rows.iter().map(|d| d.key.as_str()).collect();
        let metrics =
            if self.args.metric.is_empty() { &[Metric::MissRatio] } else { self.args.metric.as_slice() };
        let table = |metric: &Metric| {
            let title = format!("{}; down: {}, across: {}", metric.name(), row_keys.join("  "), columns.key);
            let cells: Vec<Vec<String>> =
                outcomes.chunks(across).map(|row| row.iter().map(|o| o.show(*metric)).collect()).collect();
            table::matrix(&title, &refs(&row_labels), &refs(&columns.values), &cells, colour)
        };
        metrics.iter().map(table).collect::<Vec<_>>().join("\n")
    }

    /// One dimension: a row per value, a column per metric.
    fn list(&self, outcomes: &[Outcome], colour: bool) -> String {
        let metrics = if self.args.metric.is_empty() { &DEFAULT_COLUMNS[..] } else { &self.args.metric };
        let names: Vec<String> = metrics.iter().map(|m| m.name()).collect();
        let cells: Vec<Vec<String>> =
            outcomes.iter().map(|outcome| metrics.iter().map(|&m| outcome.show(m)).collect()).collect();
        let Dimension { key, values } = &self.dimensions[0];
        table::matrix(key, &refs(values), &refs(&names), &cells, colour)
    }

    fn csv(&self, outcomes: &[Outcome]) -> Result<String, Error> {
        let mut out = csv::Writer::from_writer(Vec::new());
        let keys = self.dimensions.iter().map(|d| d.key.clone());
        let header = keys.chain(["runs", "jobs_released", "jobs_due"].map(String::from));
        let columns = self.columns().map(Metric::column);
        out.write_record(header.chain(columns)).map_err(std::io::Error::from)?;
        for (point, outcome) in outcomes.iter().enumerate() {
            let Outcome::Done(measured) = outcome else { continue };
            let values = self.values(point).into_iter().map(String::from);
            let counts = [measured.runs.to_string(), measured.released.to_string(), measured.due.to_string()];
            let exact = self.columns().map(|metric| {
                let value = measured.values[metric as usize].and_then(metric::Value::exact);
                value.map_or_else(String::new, |n| n.to_string())
            });
            out.write_record(values.chain(counts).chain(exact)).map_err(std::io::Error::from)?;
        }
        let bytes = out.into_inner().map_err(|e| std::io::Error::other(e.to_string()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn json<'g>(&'g self, outcomes: &'g [Outcome]) -> SweepJson<'g> {
        let measured = |outcome: &'g Outcome| match outcome {
            Outcome::Done(measured) => Some(measured),
            Outcome::Invalid | Outcome::Unfinished => None,
        };
        let points = outcomes.iter().enumerate().map(|(point, outcome)| PointJson {
            values: self.values(point),
            state: outcome.state(),
            analysis: measured(outcome).and_then(|measured| measured.analysed),
            results: measured(outcome).and_then(|measured| measured.results.as_ref()),
        });
        SweepJson {
            format: "punctual-sweep",
            version: 1,
            dimensions: &self.dimensions,
            points: points.collect(),
        }
    }
}

fn refs(texts: &[String]) -> Vec<&str> {
    texts.iter().map(String::as_str).collect()
}

impl Outcome {
    fn show(&self, metric: Metric) -> String {
        match self {
            Outcome::Done(measured) => {
                measured.values[metric as usize].map_or_else(|| "-".into(), metric::Value::show)
            }
            Outcome::Invalid => "invalid".into(),
            Outcome::Unfinished => "unfinished".into(),
        }
    }

    fn state(&self) -> &'static str {
        match self {
            Outcome::Done(_) => "done",
            Outcome::Invalid => "invalid",
            Outcome::Unfinished => "unfinished",
        }
    }
}

/// The JSON form of a sweep.
#[derive(Serialize)]
struct SweepJson<'g> {
    format: &'static str,
    version: u32,
    /// The last one changes fastest from point to point.
    dimensions: &'g [Dimension],
    points: Vec<PointJson<'g>>,
}

/// A point: its values in the order of the dimensions, and its results when it is done.
#[derive(Serialize)]
struct PointJson<'g> {
    values: Vec<&'g str>,
    state: &'static str,
    /// If a metric asks for the analysis.
    #[serde(skip_serializing_if = "Option::is_none")]
    analysis: Option<Analysed>,
    results: Option<&'g Results>,
}
