//! `--jobs`: a file with a row for each simulated job.

use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};

use punctual_model::index::TaskIx;
use punctual_model::trace::JobRecord;
use punctual_model::{AnyHost, Host, Results};
use punctual_report::jobs::{JobsOf, JobsWriter};
use punctual_sched::Instant;
use punctual_sim::JobLog;
use tempfile::SpooledTempFile;

use super::error::Error;
use super::output::OutFile;
use super::report::without_parquet;

/// A violation in a host with `host_stack` as one of a host with pools.
pub(super) fn violation(error: punctual_host_stack_sim::Violation) -> punctual_sim::Error {
    punctual_sim::Error::Violation(error.0)
}

/// Why `--blame` is refused for a host with `host_stack`.
pub(super) const NO_BLAME: &str = "a host with `host_stack` has no jobs to explain: where the time of its \
    requests went stands in the results without `--blame`, under the segments and parts of its flows";

/// Bytes of a simulation's jobs that are held in memory; more of them go to a temporary file.
const SPOOL_BYTES: usize = 256 << 10;

/// Numbers of a job in a spool.
const NUMBERS: usize = 7;

/// A time that did not come.
const NEVER_NS: u64 = u64::MAX;

/// The file.
pub(super) struct JobsFile {
    writer: JobsWriter<OutFile>,
    /// Where temporary files go.
    directory: PathBuf,
}

impl JobsFile {
    /// Begins to write: Parquet if the name ends so, else CSV, with columns of these labels.
    ///
    /// # Errors
    /// Nothing can be written there, or this program cannot write Parquet.
    pub(super) fn create(path: &Path, labels: &[&str]) -> Result<Self, Error> {
        let is_parquet = path.extension().is_some_and(|extension| extension == "parquet");
        if is_parquet && !cfg!(feature = "parquet") {
            return Err(without_parquet("--jobs"));
        }
        let out = OutFile::create(path)?;
        let directory = out.directory().map_or_else(std::env::temp_dir, Path::to_path_buf);
        #[cfg(feature = "parquet")]
        if is_parquet {
            let writer = JobsWriter::parquet(labels, out).map_err(Error::usage)?;
            return Ok(JobsFile { writer, directory });
        }
        Ok(JobsFile { writer: JobsWriter::csv(labels, out), directory })
    }

    /// Takes the jobs of one simulation as they finish.
    pub(super) fn sink<'s>(&'s mut self, labels: &'s [&'s str], host: &Host) -> impl FnMut(&JobRecord) + 's {
        let of = JobsOf::new(host);
        move |job| self.writer.job(labels, &of, job)
    }

    /// Where the jobs of simulations go that run beside each other.
    pub(super) fn spools(&self) -> Spools {
        Spools { directory: self.directory.clone() }
    }

    /// Writes the jobs of a simulation.
    ///
    /// # Errors
    /// The temporary file cannot be written or read.
    pub(super) fn append(&mut self, labels: &[&str], spool: Spool) -> Result<(), Error> {
        let JobsFile { writer, directory } = self;
        let Spool { of, file, error } = spool;
        let failed = |error: io::Error| {
            Error::Usage(format!("cannot keep jobs in a temporary file in {}: {error}", directory.display()))
        };
        error.map_or(Ok(()), Err).map_err(failed)?;
        let mut file = file.into_inner().map_err(|error| failed(error.into_error()))?;
        file.rewind().map_err(failed)?;
        let mut file = BufReader::new(file);
        let mut numbers = [[0; 8]; NUMBERS];
        loop {
            match file.read_exact(numbers.as_flattened_mut()) {
                Ok(()) => writer.job(labels, &of, &record(numbers.map(u64::from_le_bytes))),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                Err(error) => return Err(failed(error)),
            }
        }
    }

    /// Renames the complete file to its final place.
    ///
    /// # Errors
    /// The first error of writing.
    pub(super) fn finish(self) -> Result<(), Error> {
        // The error names the file.
        self.writer.finish().map_err(Error::usage)?.finish()
    }
}

/// Makes spools.
pub(super) struct Spools {
    directory: PathBuf,
}

impl Spools {
    /// The jobs of a simulation of `host`, for [`JobsFile::append`].
    pub(super) fn spool(&self, host: &AnyHost) -> Spool {
        let of = match host {
            AnyHost::Pools(host) => JobsOf::new(host),
            AnyHost::Stack(_) => JobsOf::default(),
        };
        let file = SpooledTempFile::new_in(SPOOL_BYTES, &self.directory);
        Spool { of, file: BufWriter::new(file), error: None }
    }
}

/// Jobs of a simulation on their way to the file.
pub(super) struct Spool {
    of: JobsOf,
    file: BufWriter<SpooledTempFile>,
    error: Option<io::Error>,
}

impl Spool {
    fn push(&mut self, job: &JobRecord) {
        if self.error.is_none() {
            let numbers = numbers(job).map(u64::to_le_bytes);
            self.error = self.file.write_all(numbers.as_flattened()).err();
        }
    }
}

fn numbers(job: &JobRecord) -> [u64; NUMBERS] {
    let later = [job.start, job.finish].map(|at| at.map_or(NEVER_NS, |at| at.as_ns()));
    let [start, finish] = later;
    let (release, deadline) = (job.release.as_ns(), job.deadline.as_ns());
    [job.task.0 as u64, job.job, release, deadline, start, finish, job.missed.into()]
}

fn record([task, job, release, deadline, start, finish, missed]: [u64; NUMBERS]) -> JobRecord {
    let later = |ns: u64| (ns != NEVER_NS).then(|| Instant::from_ns(ns));
    JobRecord {
        task: TaskIx(task as usize),
        job,
        release: Instant::from_ns(release),
        deadline: Instant::from_ns(deadline),
        start: later(start),
        finish: later(finish),
        missed: missed != 0,
    }
}

/// Simulates a host of either kind; its jobs go to the spool, if there is one.
///
/// # Errors
/// The simulation stops.
pub(super) fn simulate(
    host: &AnyHost,
    blame: bool,
    spool: Option<&mut Spool>,
) -> Result<Results, punctual_sim::Error> {
    match host {
        AnyHost::Pools(host) => {
            let log = spool.map(|spool| JobLog::new(host, |job: &JobRecord| spool.push(job)));
            if blame {
                punctual_sim::simulate_blamed(host, log)
            } else {
                punctual_sim::simulate_observed(host, log)
            }
        }
        AnyHost::Stack(_) if blame => Err(punctual_sim::Error::Refused(NO_BLAME.into())),
        AnyHost::Stack(stack) => punctual_host_stack_sim::simulate(stack).map_err(violation),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_comes_back_from_a_spool() {
        let at = Instant::from_ns;
        let done = JobRecord {
            task: TaskIx(3),
            job: 7,
            release: at(10),
            deadline: at(20),
            start: Some(at(11)),
            finish: Some(at(25)),
            missed: true,
        };
        for job in [done, JobRecord { start: None, finish: None, missed: false, ..done }] {
            assert_eq!(record(numbers(&job)), job);
        }
    }

    /// More jobs than a spool holds in memory.
    #[test]
    fn jobs_beyond_memory_reach_the_file_in_order() {
        let directory = tempfile::TempDir::new().expect("a directory");
        let path = directory.path().join("jobs.csv");
        let mut file = JobsFile::create(&path, &["point"]).expect("a file");
        let jobs = 3 * SPOOL_BYTES as u64 / (8 * NUMBERS as u64);
        let job = |number: u64| JobRecord {
            task: TaskIx(0),
            job: number,
            release: Instant::from_ns(number),
            deadline: Instant::from_ns(number + 5),
            start: None,
            finish: Some(Instant::from_ns(number + 9)),
            missed: true,
        };
        for point in ["1ms", "2ms"] {
            let of = JobsOf { host: "h".into(), seed: 7, tasks: vec!["d/t".into()] };
            let spool = SpooledTempFile::new_in(SPOOL_BYTES, directory.path());
            let mut spool = Spool { of, file: BufWriter::new(spool), error: None };
            (0..jobs).for_each(|number| spool.push(&job(number)));
            assert!(spool.file.get_ref().is_rolled());
            file.append(&[point], spool).expect("read");
        }
        file.finish().expect("written");
        let text = std::fs::read_to_string(&path).expect("text");
        let line =
            |point: &str, n: u64| format!("{point},simulation,h,7,d/t,{n},{n},{},,{},9,true", n + 5, n + 9);
        let expected = ["1ms", "2ms"].into_iter().flat_map(|point| (0..jobs).map(move |n| line(point, n)));
        assert!(text.lines().skip(1).eq(expected));
    }
}
