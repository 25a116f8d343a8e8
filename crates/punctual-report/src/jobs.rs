//! Jobs as CSV: one line per job, in the order in which they finish; unfinished ones follow.

use std::collections::VecDeque;
use std::io::{self, Write};

use punctual_model::Host;
use punctual_model::host::Parent;
use punctual_model::trace::{TraceEvent, TraceSink};
use punctual_sched::Instant;

use crate::records::csv_cell;

const HEADER: [&str; 7] = ["task", "job", "release_ns", "deadline_ns", "finish_ns", "response_ns", "missed"];

struct OpenJob {
    number: u64,
    release: Instant,
    deadline: Instant,
}

/// Writes jobs as they finish; keeps the first error for [`JobsWriter::finish`].
pub struct JobsWriter<W: Write> {
    out: csv::Writer<W>,
    names: Vec<String>,
    /// By task, in order of release.
    open: Vec<VecDeque<OpenJob>>,
    error: Option<csv::Error>,
}

impl<W: Write> JobsWriter<W> {
    /// A writer for the jobs of `host`.
    pub fn new(host: &Host, out: W) -> Self {
        let name = |task: &punctual_model::host::Task| match task.parent {
            Parent::Domain(d) => format!("{}/{}", host.domains[d.0].name, task.name),
            Parent::Pool(p) => format!("{}/{}", host.pools[p.0].name, task.name),
        };
        JobsWriter::of_tasks(host.tasks.iter().map(|task| csv_cell(&name(task))).collect(), out)
    }

    /// A writer for a host without tasks, as one with `[host_stack]` is: it writes the header alone.
    pub fn without_tasks(out: W) -> Self {
        JobsWriter::of_tasks(Vec::new(), out)
    }

    fn of_tasks(names: Vec<String>, out: W) -> Self {
        let mut out = csv::Writer::from_writer(out);
        let error = out.write_record(HEADER).err();
        let open = names.iter().map(|_| VecDeque::new()).collect();
        JobsWriter { out, names, open, error }
    }

    fn line(&mut self, task: usize, job: &OpenJob, finish: Option<Instant>, missed: bool) {
        if self.error.is_some() {
            return;
        }
        let number = |n: u64| n.to_string();
        let written = self.out.write_record([
            self.names[task].clone(),
            number(job.number),
            number(job.release.as_ns()),
            number(job.deadline.as_ns()),
            finish.map_or_else(String::new, |at| number(at.as_ns())),
            finish.map_or_else(String::new, |at| number(at.since(job.release).as_ns())),
            missed.to_string(),
        ]);
        self.error = written.err();
    }

    /// Writes the jobs that did not finish by `end`.
    ///
    /// # Errors
    /// The first error of writing, whenever it happened.
    pub fn finish(mut self, end: Instant) -> io::Result<()> {
        for task in 0..self.open.len() {
            for job in std::mem::take(&mut self.open[task]) {
                self.line(task, &job, None, job.deadline <= end);
            }
        }
        match self.error {
            Some(error) => Err(error.into()),
            None => self.out.flush(),
        }
    }
}

impl<W: Write> TraceSink for JobsWriter<W> {
    fn event(&mut self, at: Instant, event: TraceEvent) {
        match event {
            TraceEvent::Release { task, job, deadline } => {
                self.open[task.0].push_back(OpenJob { number: job, release: at, deadline });
            }
            TraceEvent::Completion { task, missed, .. } => {
                // Jobs of a task finish in order.
                if let Some(job) = self.open[task.0].pop_front() {
                    self.line(task.0, &job, Some(at), missed);
                }
            }
            _ => {}
        }
    }
}
