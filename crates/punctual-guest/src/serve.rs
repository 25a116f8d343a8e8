//! The guest's side of the protocol: executes one request after another and replies.

use std::fmt;
use std::io::{BufRead, Write};

use crate::protocol::{
    self, Cyclictest, JOBS_PER_LINE, Latencies, LimitError, Mode, Ready, ReceiveError, Reply, Request, Run,
    RunResult, TaskTotals,
};
use crate::run::Executed;
use crate::{cyclictest, fifo, os, vcpu, work};

/// Announces the guest and answers requests until the host sends `quit` or closes the channel.
///
/// # Errors
/// The channel fails.
pub fn serve(
    mode: Mode,
    reader: &mut impl BufRead,
    writer: &mut (impl Write + Send),
) -> Result<(), ReceiveError> {
    os::set_timer_slack_min();
    let ready = Ready {
        protocol: protocol::VERSION,
        mode,
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        cyclictest: cyclictest::available(),
    };
    let mut reply = |reply: &Reply| protocol::send(writer, reply).map_err(ReceiveError::Io);
    reply(&Reply::Ready(ready))?;
    loop {
        match protocol::receive::<Request>(reader) {
            Ok(Request::Quit {}) | Err(ReceiveError::Closed) => return Ok(()),
            Ok(request) => answer(mode, &request, &mut reply)?,
            Err(ReceiveError::Malformed(why)) => reply(&Reply::Error { message: why.to_string() })?,
            Err(error) => return Err(error),
        }
    }
}

/// Why a request failed; the host receives the message.
#[derive(Debug)]
enum Error {
    Limit(LimitError),
    Run(fifo::Error),
    Cyclictest(cyclictest::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Limit(error) => error.fmt(f),
            Error::Run(error) => error.fmt(f),
            Error::Cyclictest(error) => error.fmt(f),
        }
    }
}

type Sent = Result<(), ReceiveError>;

fn answer(mode: Mode, request: &Request, reply: &mut (impl FnMut(&Reply) -> Sent + Send)) -> Sent {
    let outcome = match request {
        Request::Calibrate { duration_ns } => Ok(Reply::Calibrated(work::calibrate(*duration_ns))),
        Request::Clock {} => Ok(Reply::Clock { now_ns: os::now_ns() }),
        Request::Cyclictest(how) => run_cyclictest(how).map(Reply::Cyclictest),
        Request::Run(run) => match execute(mode, run, reply) {
            Ok(executed) => return send_results(run, executed, reply),
            Err(error) => Err(error),
        },
        Request::Quit {} => return Ok(()),
    };
    reply(&outcome.unwrap_or_else(|error| Reply::Error { message: error.to_string() }))
}

fn run_cyclictest(how: &Cyclictest) -> Result<Latencies, Error> {
    how.check().map_err(Error::Limit)?;
    cyclictest::run(how).map_err(Error::Cyclictest)
}

fn execute(
    mode: Mode,
    run: &Run,
    reply: &mut (impl FnMut(&Reply) -> Sent + Send),
) -> Result<Executed, Error> {
    run.check().map_err(Error::Limit)?;
    let mut progress = |tasks| {
        // A channel that fails here fails again when the results are sent, which reports the error.
        let _ = reply(&Reply::Progress { tasks });
    };
    match mode {
        Mode::Fifo => fifo::execute(run, &mut progress).map_err(Error::Run),
        Mode::Vcpu => Ok(vcpu::execute(run, &mut progress)),
    }
}

/// Sends the results of a run.
fn send_results(run: &Run, executed: Executed, reply: &mut impl FnMut(&Reply) -> Sent) -> Sent {
    let mut tasks = Vec::new();
    for (task, log) in executed.logs.into_iter().enumerate() {
        let executed_ns = log.executed_ns(run.iterations_per_ms);
        let jobs = log.into_jobs(run.tasks[task].work.job_stream(), run.duration_ns);
        tasks.push(TaskTotals { jobs: jobs.len() as u64, executed_ns });
        for jobs in jobs.chunks(JOBS_PER_LINE) {
            reply(&Reply::Jobs { task, jobs: jobs.to_vec() })?;
        }
    }
    for report in executed.flows {
        reply(&Reply::Flow(report))?;
    }
    let overrun_ns = executed.ended_ns.saturating_sub(run.duration_ns);
    reply(&Reply::Result(RunResult { overrun_ns, tasks }))
}
