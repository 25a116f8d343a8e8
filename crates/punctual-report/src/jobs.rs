//! Jobs as a file of rows: CSV, or Parquet with the feature of this name. A row per job, in the order in
//! which the jobs of a run finish; unfinished ones follow.
//!
//! Columns: labels that the caller chooses; `source`, `host` and `seed` of the run; `task` (with its domain
//! or pool), `job` (its number, from 0), `release_ns`, `deadline_ns`, `start_ns` (its first instruction),
//! `finish_ns`, `response_ns`, `missed`. Times are from the beginning of the run; what did not happen is an
//! empty cell, or null.

use std::io::{self, Write};

use punctual_model::results::Source;
use punctual_model::trace::JobRecord;

pub use crate::job_rows::JobsOf;
use crate::job_rows::later_ns;
use crate::records::{csv_cell, source};

/// Columns behind the labels.
const COLUMNS: [&str; 11] = [
    "source",
    "host",
    "seed",
    "task",
    "job",
    "release_ns",
    "deadline_ns",
    "start_ns",
    "finish_ns",
    "response_ns",
    "missed",
];

/// Writes jobs; keeps the first error for [`JobsWriter::finish`].
pub struct JobsWriter<W: Write + Send> {
    format: Format<W>,
    error: Option<io::Error>,
}

enum Format<W: Write + Send> {
    Csv(Box<csv::Writer<W>>),
    #[cfg(feature = "parquet")]
    Parquet(Box<crate::parquet::jobs::JobRows<W>>),
}

impl<W: Write + Send> JobsWriter<W> {
    /// A file of CSV, with the names of the labels.
    pub fn csv(labels: &[&str], out: W) -> Self {
        let mut out = csv::Writer::from_writer(out);
        let labels = labels.iter().map(|label| csv_cell(label));
        let error = out.write_record(labels.chain(COLUMNS.map(String::from))).err().map(Into::into);
        JobsWriter { format: Format::Csv(Box::new(out)), error }
    }

    /// A file of Parquet, with the names of the labels.
    ///
    /// # Errors
    /// It cannot be written.
    #[cfg(feature = "parquet")]
    pub fn parquet(labels: &[&str], out: W) -> io::Result<Self> {
        let rows = crate::parquet::jobs::JobRows::new(labels, &COLUMNS, out).map_err(io::Error::other)?;
        Ok(JobsWriter { format: Format::Parquet(Box::new(rows)), error: None })
    }

    /// Writes a simulated job of a run with these labels, as many as were named.
    pub fn job(&mut self, labels: &[&str], of: &JobsOf, job: &JobRecord) {
        if self.error.is_some() {
            return;
        }
        let written = match &mut self.format {
            Format::Csv(out) => write_csv(out, labels, of, job).map_err(Into::into),
            #[cfg(feature = "parquet")]
            Format::Parquet(rows) => {
                rows.add(labels, source(Source::Simulation), of, job).map_err(io::Error::other)
            }
        };
        self.error = written.err();
    }

    /// Writes what is left and returns what it writes to.
    ///
    /// # Errors
    /// The first error of writing, whenever it happened.
    pub fn finish(self) -> io::Result<W> {
        match (self.error, self.format) {
            (Some(error), _) => Err(error),
            (None, Format::Csv(out)) => (*out).into_inner().map_err(csv::IntoInnerError::into_error),
            #[cfg(feature = "parquet")]
            (None, Format::Parquet(rows)) => rows.finish().map_err(io::Error::other),
        }
    }
}

fn write_csv<W: Write>(
    out: &mut csv::Writer<W>,
    labels: &[&str],
    of: &JobsOf,
    job: &JobRecord,
) -> csv::Result<()> {
    labels.iter().try_for_each(|label| out.write_field(csv_cell(label)))?;
    out.write_field(source(Source::Simulation))?;
    out.write_field(csv_cell(&of.host))?;
    out.write_field(of.seed.to_string())?;
    out.write_field(csv_cell(&of.tasks[job.task.0]))?;
    let times = [job.release, job.deadline].map(|at| Some(at.as_ns()));
    let numbers = [Some(job.job), times[0], times[1]].into_iter().chain(later_ns(job));
    for number in numbers {
        out.write_field(number.map_or_else(String::new, |number| number.to_string()))?;
    }
    out.write_field(job.missed.to_string())?;
    out.write_record(None::<&[u8]>)
}
