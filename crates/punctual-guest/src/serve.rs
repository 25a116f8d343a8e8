//! The guest's side of the conversation.

use std::io::{BufRead, Write};

use crate::log::{self, Executed};
use crate::protocol::{
    self, JOBS_PER_LINE, Mode, Ready, ReceiveError, Reply, Request, Run, RunResult, TaskTotals,
};
use crate::{cyclictest, fifo, os, vcpu, work};

/// Announces the guest and answers until the host says that it is over or is gone.
///
/// # Errors
/// When the channel fails.
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
            Err(ReceiveError::Malformed(message)) => reply(&Reply::Error { message })?,
            Err(error) => return Err(error),
        }
    }
}

type Sent = Result<(), ReceiveError>;

fn answer(mode: Mode, request: &Request, reply: &mut (impl FnMut(&Reply) -> Sent + Send)) -> Sent {
    let outcome = match request {
        Request::Calibrate { duration_ns } => Ok(Reply::Calibrated(work::calibrate(*duration_ns))),
        Request::Clock {} => Ok(Reply::Clock { now_ns: os::now_ns() }),
        Request::Cyclictest(how) => how.check().and_then(|()| cyclictest::run(how)).map(Reply::Cyclictest),
        Request::Run(run) => match execute(mode, run, reply) {
            Ok(executed) => return tell(run, executed, reply),
            Err(message) => Err(message),
        },
        Request::Quit {} => return Ok(()),
    };
    reply(&outcome.unwrap_or_else(|message| Reply::Error { message }))
}

fn execute(
    mode: Mode,
    run: &Run,
    reply: &mut (impl FnMut(&Reply) -> Sent + Send),
) -> Result<Executed, String> {
    run.check()?;
    // A channel that fails is found again when the results are sent.
    let mut progress = |tasks| drop(reply(&Reply::Progress { tasks }));
    match mode {
        Mode::Fifo => fifo::execute(run, &mut progress),
        Mode::Vcpu => Ok(vcpu::execute(run, &mut progress)),
    }
}

/// Hands over what a run measured.
fn tell(run: &Run, executed: Executed, reply: &mut impl FnMut(&Reply) -> Sent) -> Sent {
    let mut tasks = Vec::new();
    for (task, log) in executed.logs.into_iter().enumerate() {
        let executed_ns = log.executed_ns(run.iterations_per_ms);
        let jobs = log.into_jobs(log::stream_of(&run.tasks[task].work), run.duration_ns);
        tasks.push(TaskTotals { jobs: jobs.len() as u64, executed_ns });
        for jobs in jobs.chunks(JOBS_PER_LINE) {
            reply(&Reply::Jobs { task, jobs: jobs.to_vec() })?;
        }
    }
    let overrun_ns = executed.ended_ns.saturating_sub(run.duration_ns);
    reply(&Reply::Result(RunResult { overrun_ns, tasks }))
}
