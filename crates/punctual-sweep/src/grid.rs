//! The grid: its points, and what was found at them.

use std::path::Path;

use punctual_model::file::{Errors, Overrides};
use punctual_model::results::JobStats;
use punctual_model::{AnyHost, Results};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::metric::{self, Analysed};
use crate::{Axis, Error, Metric, Points};

/// Points of a grid at most.
const POINTS_MAX: usize = 1_000_000;

/// Points at most with whole results, which are held together.
const RESULTS_POINTS_MAX: usize = 10_000;

/// Runs whose results are held at once before they are merged.
const CHUNK: usize = 256;

/// The name of the axis that policies make.
pub const POLICY: &str = "policy";

/// The text of a host file.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its name in errors.
    pub name: String,
    /// What is in it.
    pub bytes: Vec<u8>,
}

/// What to compute.
#[derive(Clone, Debug)]
pub struct Request {
    /// The host file.
    pub source: Source,
    /// Its changes at every point.
    pub overrides: Overrides,
    /// Keys and their values, the last one fastest.
    pub axes: Vec<Axis>,
    /// One more dimension, the fastest, if there are any.
    pub policies: Vec<String>,
    /// Runs that a point merges, with the seeds N, N+1, ...; at least 1.
    pub runs: u32,
    /// Metrics of interest: those of the analysis cost its time. None is all of a simulation.
    pub metrics: Vec<Metric>,
    /// Are whole results kept, for [`Grid::json`]?
    pub keeps_results: bool,
    /// Are points left out that are no valid host?
    pub is_lenient: bool,
}

/// Who waits for a grid.
pub trait Watch: Sync {
    /// Should the work stop? What is not finished is [`Outcome::Unfinished`].
    fn stops(&self) -> bool;
    /// So many runs more are done.
    fn done(&self, runs: u64);
}

/// A request with its points numbered.
#[derive(Debug)]
pub struct Grid {
    request: Request,
    /// The axes, and that of the policies.
    dimensions: Vec<Axis>,
}

/// The outcome of a point.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It was computed.
    Done(Box<Measured>),
    /// It is no valid host, and may be left out.
    Invalid,
    /// The work was stopped before.
    Unfinished,
}

/// What is kept of a point.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    runs: u32,
    released: u64,
    due: u64,
    /// In the order of [`Metric::ALL`]; `None` where nothing tells it.
    values: Vec<Option<metric::Value>>,
    pub(crate) analysed: Option<Analysed>,
    /// Only where they are kept: distributions take their room.
    results: Option<Results>,
}

impl Measured {
    fn new(run: Run, keep: bool) -> Self {
        let Run { runs, without_miss, results, analysed } = run;
        let mut jobs = JobStats::default();
        results.iter().flat_map(|results| &results.pools).for_each(|pool| jobs.merge(&pool.jobs));
        let value = |metric: Metric| {
            if metric.is_analysed() {
                analysed.and_then(|analysed| analysed.value(metric))
            } else {
                results.as_ref().map(|results| metric.of(results, without_miss))
            }
        };
        Measured {
            runs,
            released: jobs.released,
            due: jobs.due,
            values: Metric::ALL.map(value).into(),
            analysed,
            results: results.filter(|_| keep),
        }
    }

    pub(crate) fn value(&self, metric: Metric) -> Option<metric::Value> {
        self.values.get(metric as usize).copied().flatten()
    }
}

/// The finished points of a grid as a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows {
    /// The names of a row's numbers, with their units.
    pub columns: Vec<String>,
    /// In the order of the points.
    pub rows: Vec<Row>,
}

/// A finished point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its number.
    pub point: usize,
    /// In the order of [`Rows::columns`]; `None` where there is nothing to measure.
    pub numbers: Vec<Option<u64>>,
}

/// One run of a point, or several merged.
#[derive(Debug)]
pub struct Run {
    runs: u32,
    /// So many of them missed no deadline.
    without_miss: u64,
    /// Unless nothing is simulated.
    results: Option<Results>,
    /// If a metric asks for it.
    analysed: Option<Analysed>,
}

impl Run {
    /// Adds runs with later seeds.
    ///
    /// # Errors
    /// The results do not fit together.
    pub fn merge(&mut self, other: &Run) -> Result<(), Error> {
        self.runs += other.runs;
        self.without_miss += other.without_miss;
        if let (Some(results), Some(more)) = (&mut self.results, &other.results) {
            results.merge(more).map_err(|error| Error::Refused(error.to_string()))?;
        }
        if let (Some(analysed), Some(more)) = (&mut self.analysed, &other.analysed) {
            analysed.merge(more);
        }
        Ok(())
    }
}

impl Grid {
    /// Numbers the points. Whether they are valid hosts, [`Grid::validate`] says.
    ///
    /// # Errors
    /// Nothing is varied, a key is varied twice, there are too many points, or the metrics are not of such a
    /// host.
    pub fn new(request: Request) -> Result<Self, Error> {
        let policies = request.policies.clone();
        let policies = (!policies.is_empty()).then(|| Axis { key: POLICY.into(), values: policies });
        let dimensions: Vec<Axis> = request.axes.iter().cloned().chain(policies).collect();
        let twice = |(i, d): &(usize, &Axis)| dimensions[..*i].iter().any(|other| other.key == d.key);
        if let Some((_, dimension)) = dimensions.iter().enumerate().find(twice) {
            let text = format!("`{}` is varied twice; list all its values in one place", dimension.key);
            return Err(Error::Refused(text));
        }
        if dimensions.is_empty() {
            return Err(Error::Refused("nothing to vary".into()));
        }
        let points = dimensions.iter().try_fold(1usize, |n, d| n.checked_mul(d.values.len()));
        let (most, why) = if request.keeps_results {
            (RESULTS_POINTS_MAX, " for whole results (`--json`, `results=True`)")
        } else {
            (POINTS_MAX, "")
        };
        if points.is_none_or(|n| n > most) {
            return Err(Error::Refused(format!("the grid has more than {most} points{why}")));
        }
        let grid = Grid { request, dimensions };
        if let (true, Ok(AnyHost::Stack(_))) = (grid.analyses(), grid.host(&grid.request.overrides)) {
            let text = "metrics of the analysis are of tasks with deadlines, and a host with `host_stack` \
                        has none; `punctual check` bounds its requests";
            return Err(Error::Refused(text.into()));
        }
        Ok(grid)
    }

    /// How many points there are; at least one.
    pub fn points(&self) -> usize {
        self.dimensions.iter().map(|d| d.values.len()).product()
    }

    /// The dimensions, the last one fastest.
    pub fn dimensions(&self) -> &[Axis] {
        &self.dimensions
    }

    /// What was asked for.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// The values of a point, one per dimension.
    pub fn values(&self, mut point: usize) -> Vec<&str> {
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

    /// The values of a point for people.
    pub fn place(&self, point: usize) -> String {
        let name = |(dimension, value): (&Axis, &str)| format!("{}={value}", dimension.key);
        self.dimensions.iter().zip(self.values(point)).map(name).collect::<Vec<_>>().join(", ")
    }

    /// The changes of the host file at a point.
    pub fn overrides(&self, point: usize) -> Overrides {
        let mut overrides = self.request.overrides.clone();
        for (dimension, value) in self.dimensions.iter().zip(self.values(point)) {
            match dimension.key.as_str() {
                POLICY => overrides.policy = Some(value.to_string()),
                key => overrides.set.push(format!("{key}={value}")),
            }
        }
        overrides
    }

    /// The host with these changes.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn host(&self, overrides: &Overrides) -> Result<AnyHost, Errors> {
        AnyHost::parse_bytes(&self.request.source.bytes, &self.request.source.name, overrides)
    }

    /// Parses all points that `has` selects, before anything runs.
    ///
    /// # Errors
    /// Unless invalid points may be left out, those of the first one; else, if no point is valid, those of
    /// point 0.
    pub fn validate(&self, has: impl Fn(usize) -> bool + Sync) -> Result<(), Error> {
        let all = || (0..self.points()).into_par_iter().filter(|point| has(*point));
        let fits = |point: usize| self.host(&self.overrides(point)).is_ok();
        if self.request.is_lenient {
            let is_whole = (0..self.points()).all(&has);
            if !is_whole || all().any(fits) {
                return Ok(());
            }
            return self.host(&self.overrides(0)).map(drop).map_err(Error::from);
        }
        let check = |point| Some((point, self.host(&self.overrides(point)).err()?));
        let Some((point, errors)) = all().find_map_first(check) else { return Ok(()) };
        if self.host(&self.request.overrides).is_err() {
            return Err(errors.into());
        }
        let wrong = self.points() - (0..self.points()).into_par_iter().filter(|one| fits(*one)).count();
        let why = &errors.records()[0];
        Err(Error::Points(format!(
            "{wrong} of {} points of the grid are no valid host, the first at {}: {}: {}",
            self.points(),
            self.place(point),
            why.message,
            why.expected
        )))
    }

    /// The file of a point. What a point depends on beside what is named here is in the overrides, the texts
    /// of other files included.
    fn path(&self, point: usize, points: &Points) -> std::path::PathBuf {
        let Request { source, runs, keeps_results, .. } = &self.request;
        let measures = (*runs, *keeps_results, self.simulates(), self.analyses(), self.searches());
        // A host without a name is called after its file.
        let name = Path::new(&source.name).file_name();
        let overrides = self.overrides(point);
        points.path(&[&source.bytes, format!("{name:?} {overrides:?} {measures:?}").as_bytes()])
    }

    /// A finished point in a directory; `None` if it is not there.
    ///
    /// # Errors
    /// Its file cannot be read, or is something else.
    pub fn load(&self, point: usize, points: &Points) -> Result<Option<Outcome>, Error> {
        let measured = points.load(&self.path(point, points))?;
        if measured.is_none() && self.request.is_lenient && self.host(&self.overrides(point)).is_err() {
            return Ok(Some(Outcome::Invalid));
        }
        Ok(measured.map(Outcome::Done))
    }

    /// A point from the directory, or computed and kept there.
    ///
    /// # Errors
    /// As of [`Grid::load`] and [`Grid::compute`]; a file cannot be written.
    pub fn resume(&self, point: usize, points: &Points, watch: &impl Watch) -> Result<Outcome, Error> {
        if watch.stops() {
            return Ok(Outcome::Unfinished);
        }
        let path = self.path(point, points);
        if let Some(measured) = points.load(&path)? {
            watch.done(self.request.runs.into());
            return Ok(Outcome::Done(measured));
        }
        let outcome = self.compute(point, watch)?;
        if let Outcome::Done(measured) = &outcome {
            points.save(&path, measured)?;
        }
        Ok(outcome)
    }

    /// All runs of a point, merged in the order of their seeds.
    ///
    /// # Errors
    /// The point is no valid host and may not be left out, or a simulation stops.
    pub fn compute(&self, point: usize, watch: &impl Watch) -> Result<Outcome, Error> {
        let overrides = self.overrides(point);
        let first = match self.host(&overrides) {
            Ok(host) => host,
            Err(_) if self.request.is_lenient => return Ok(Outcome::Invalid),
            Err(errors) => return Err(errors.into()),
        };
        let mut merged: Option<Run> = None;
        for chunk in (0..self.request.runs).collect::<Vec<_>>().chunks(CHUNK) {
            let seed = |run: u32| first.seed().saturating_add(run.into());
            let one = |&run: &u32| -> Result<Option<Run>, Error> {
                if watch.stops() {
                    return Ok(None);
                }
                let run = self.run(&overrides, seed(run), simulate)?;
                watch.done(1);
                Ok(Some(run))
            };
            let runs: Vec<_> = chunk.par_iter().with_max_len(1).map(one).collect();
            for run in runs {
                match (run?, &mut merged) {
                    (None, _) => return Ok(Outcome::Unfinished),
                    (Some(run), Some(sum)) => sum.merge(&run)?,
                    (run, none) => *none = run,
                }
            }
        }
        Ok(self.outcome(merged))
    }

    /// The outcome of a point of these runs.
    pub fn outcome(&self, merged: Option<Run>) -> Outcome {
        let measured = merged.map(|run| Box::new(Measured::new(run, self.request.keeps_results)));
        measured.map_or(Outcome::Unfinished, Outcome::Done)
    }

    /// One run, simulated by `simulate`.
    ///
    /// # Errors
    /// It is no valid host, or the simulation stops.
    pub fn run(
        &self,
        overrides: &Overrides,
        seed: u64,
        simulate: impl FnOnce(&AnyHost) -> Result<Results, punctual_sim::Error>,
    ) -> Result<Run, Error> {
        let host = self.host(&Overrides { seed: Some(seed), ..overrides.clone() })?;
        let results = self.simulates().then(|| simulate(&host)).transpose()?;
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
        Ok(Run { runs: 1, without_miss, results, analysed })
    }

    /// Does a metric ask for a simulation?
    pub fn simulates(&self) -> bool {
        !self.analyses() || self.request.metrics.iter().any(|metric| !metric.is_analysed())
    }

    /// Does a metric ask for the analysis?
    fn analyses(&self) -> bool {
        self.request.metrics.iter().any(|metric| metric.is_analysed())
    }

    /// Does a metric ask for counter-examples?
    fn searches(&self) -> bool {
        self.request.metrics.contains(&Metric::Refuted)
    }

    /// The metrics of CSV, by the sources that are asked for.
    fn columns(&self) -> impl Iterator<Item = Metric> {
        let (simulates, analyses) = (self.simulates(), self.analyses());
        let is_there = move |metric: &Metric| if metric.is_analysed() { analyses } else { simulates };
        Metric::ALL.into_iter().filter(is_there)
    }

    /// A row for each finished point, with every metric; `outcomes` are those of all points.
    pub fn rows(&self, outcomes: &[Outcome]) -> Rows {
        let counts = ["runs", "jobs_released", "jobs_due"].map(String::from);
        let columns = counts.into_iter().chain(self.columns().map(Metric::column)).collect();
        let row = |(point, outcome): (usize, &Outcome)| {
            let Outcome::Done(measured) = outcome else { return None };
            let counts = [measured.runs.into(), measured.released, measured.due].map(Some);
            let metrics = self.columns().map(|one| measured.value(one).and_then(metric::Value::exact));
            Some(Row { point, numbers: counts.into_iter().chain(metrics).collect() })
        };
        Rows { columns, rows: outcomes.iter().enumerate().filter_map(row).collect() }
    }

    /// [`Grid::rows`] as CSV, each with the values of its point.
    pub fn csv(&self, outcomes: &[Outcome]) -> String {
        let Rows { columns, rows } = self.rows(outcomes);
        let mut out = csv::Writer::from_writer(Vec::new());
        let mut line = |fields: Vec<String>| {
            // Memory takes everything, and all lines have the header's length.
            out.write_record(fields).expect("written to memory");
        };
        line(self.dimensions.iter().map(|d| d.key.clone()).chain(columns).collect());
        for row in rows {
            let values = self.values(row.point).into_iter().map(String::from);
            let text = |number: Option<u64>| number.map_or_else(String::new, |number| number.to_string());
            line(values.chain(row.numbers.into_iter().map(text)).collect());
        }
        let bytes = out.into_inner().expect("written to memory");
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// JSON with the whole results of each point, where they are kept; `outcomes` are those of all points.
    pub fn json(&self, outcomes: &[Outcome]) -> String {
        let points = outcomes.iter().enumerate().map(|(point, outcome)| {
            let measured = match outcome {
                Outcome::Done(measured) => Some(measured),
                Outcome::Invalid | Outcome::Unfinished => None,
            };
            PointJson {
                values: self.values(point),
                state: outcome.state(),
                analysis: measured.and_then(|measured| measured.analysed),
                results: measured.and_then(|measured| measured.results.as_ref()),
            }
        });
        let sweep = SweepJson {
            format: "punctual-sweep",
            version: 1,
            dimensions: &self.dimensions,
            points: points.collect(),
        };
        serde_json::to_string(&sweep).expect("plain data")
    }
}

/// Simulates a host of either kind.
fn simulate(host: &AnyHost) -> Result<Results, punctual_sim::Error> {
    match host {
        AnyHost::Pools(host) => punctual_sim::simulate(host),
        AnyHost::Stack(stack) => punctual_host_stack_sim::simulate(stack)
            .map_err(|violation| punctual_sim::Error::Violation(violation.0)),
    }
}

impl Outcome {
    /// A metric for people; `-` where there is nothing to measure.
    pub fn show(&self, metric: Metric) -> String {
        match self {
            Outcome::Done(measured) => measured.value(metric).map_or_else(|| "-".into(), metric::Value::show),
            Outcome::Invalid | Outcome::Unfinished => self.state().into(),
        }
    }

    /// The variant's name.
    pub fn state(&self) -> &'static str {
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
    dimensions: &'g [Axis],
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
