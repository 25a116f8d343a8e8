//! Checks of whole messages against their bounds, before either side acts on them.

use punctual_jobs::stream::{Control, TcpParams};
use punctual_jobs::{Arrival, JobStream};

use super::bounds::{
    DISTANCE_MIN_NS, ENDS_MAX, FLOOD_INTERVAL_MIN_NS, FLOW_DISTANCE_MIN_NS, FRAME_BYTES_MAX,
    HISTOGRAM_US_MAX, JOBS_MAX, LimitError, SERVED_JOBS_MAX, TASKS_MAX, THREADS_MAX, TIME_MAX_NS, within,
};
use super::message::{Cyclictest, JobTimes, Run, Task, Work};
use super::network::{Network, Next, Traffic};

impl JobTimes {
    /// Checks that a job of a run of `duration_ns` can have these times.
    ///
    /// # Errors
    /// The times are out of order, or beyond the run.
    pub fn check(&self, duration_ns: u64) -> Result<(), LimitError> {
        let last = self.finish_ns.or(self.start_ns).unwrap_or(self.release_ns);
        let ordered = match (self.start_ns, self.finish_ns) {
            (None, None) => true,
            (Some(start), None) => self.release_ns <= start,
            (Some(start), Some(finish)) => self.release_ns <= start && start <= finish,
            (None, Some(_)) => false,
        };
        if ordered && last <= duration_ns {
            return Ok(());
        }
        let JobTimes { release_ns, start_ns, finish_ns } = *self;
        Err(LimitError::JobTimes { release_ns, start_ns, finish_ns, duration_ns })
    }
}

impl Run {
    /// Checks that a guest can run this.
    ///
    /// # Errors
    /// The first number that is out of its range.
    pub fn check(&self) -> Result<(), LimitError> {
        within("duration_ns", self.duration_ns, 1, TIME_MAX_NS)?;
        within("start_at_ns", self.start_at_ns, 0, u64::MAX / 2)?;
        within("iterations_per_ms", self.iterations_per_ms, 1, 1_000_000_000)?;
        within("number of tasks", self.tasks.len() as u64, 0, TASKS_MAX as u64)?;
        let mut most = 0;
        for (index, task) in self.tasks.iter().enumerate() {
            let of_task = |error| LimitError::Task { task: index, error: Box::new(error) };
            task.work.check().map_err(of_task)?;
            most += task.work.jobs_max(self.duration_ns);
        }
        if let Some(network) = &self.network {
            network.check(&self.tasks)?;
        }
        if most > JOBS_MAX { Err(LimitError::Jobs { most }) } else { Ok(()) }
    }
}

impl Work {
    fn check(&self) -> Result<(), LimitError> {
        match *self {
            Work::Hog { start_ns } => within("start_ns", start_ns, 0, TIME_MAX_NS),
            Work::ForkBomb { start_ns, threads } => {
                within("start_ns", start_ns, 0, TIME_MAX_NS)?;
                within("threads", threads.into(), 1, THREADS_MAX.into())
            }
            Work::WakeFlood { start_ns, interval_ns } => {
                within("start_ns", start_ns, 0, TIME_MAX_NS)?;
                within("interval_ns", interval_ns, FLOOD_INTERVAL_MIN_NS, TIME_MAX_NS)
            }
            Work::Jobs(JobStream { arrival, cost_min_ns, cost_max_ns, .. }) => {
                check_cost(cost_min_ns, cost_max_ns)?;
                check_arrival(arrival)
            }
            Work::Served { cost_min_ns, cost_max_ns, .. } => check_cost(cost_min_ns, cost_max_ns),
        }
    }

    /// The most jobs that the task releases within `duration_ns`.
    pub fn jobs_max(&self, duration_ns: u64) -> u64 {
        if let Work::Served { .. } = self {
            return SERVED_JOBS_MAX;
        }
        let (distance_ns, offset_ns) = match self.job_stream().map(|stream| stream.arrival) {
            None => return 0,
            Some(Arrival::Periodic { period_ns, offset_ns }) => (period_ns, offset_ns),
            Some(Arrival::Sporadic { separation_ns, offset_ns, .. }) => (separation_ns, offset_ns),
        };
        duration_ns.saturating_sub(offset_ns).div_ceil(distance_ns)
    }
}

fn check_cost(min_ns: u64, max_ns: u64) -> Result<(), LimitError> {
    within("cost_max_ns", max_ns, 1, TIME_MAX_NS)?;
    within("cost_min_ns", min_ns, 0, max_ns)
}

fn check_arrival(arrival: Arrival) -> Result<(), LimitError> {
    let offset_ns = match arrival {
        Arrival::Periodic { period_ns, offset_ns } => {
            within("period_ns", period_ns, DISTANCE_MIN_NS, TIME_MAX_NS)?;
            offset_ns
        }
        Arrival::Sporadic { separation_ns, slack_mean_ns, offset_ns } => {
            within("separation_ns", separation_ns, DISTANCE_MIN_NS, TIME_MAX_NS)?;
            within("slack_mean_ns", slack_mean_ns, 0, TIME_MAX_NS)?;
            offset_ns
        }
    };
    within("offset_ns", offset_ns, 0, TIME_MAX_NS)
}

impl Cyclictest {
    /// Checks that a guest can run this.
    ///
    /// # Errors
    /// The first number that is out of its range.
    pub fn check(&self) -> Result<(), LimitError> {
        within("interval_us", self.interval_us.into(), 10, 10_000_000)?;
        within("loops", self.loops.into(), 1, u64::from(u32::MAX))?;
        within("priority", self.priority.into(), 0, 99)?;
        within("histogram_us", self.histogram_us.into(), 1, HISTOGRAM_US_MAX.into())?;
        within("duration in us", u64::from(self.interval_us) * u64::from(self.loops), 1, TIME_MAX_NS / 1000)
    }
}

impl Network {
    /// Checks that a run with these tasks can have this network.
    ///
    /// # Errors
    /// The first number that is out of its range.
    pub fn check(&self, tasks: &[Task]) -> Result<(), LimitError> {
        let ends = self.flows.len() + self.steps.len();
        within("number of flows and steps", ends as u64, 0, ENDS_MAX as u64)?;
        let is_served = |task: usize| matches!(tasks.get(task).map(|t| &t.work), Some(Work::Served { .. }));
        // A range that no value fits names the task in the error.
        let place = |what, task: usize, is_fit: bool| {
            if is_fit { Ok(()) } else { within(what, task as u64, 1, 0) }
        };
        for flow in &self.flows {
            flow.traffic.check()?;
            within("start_ns", flow.start_ns, 0, TIME_MAX_NS)?;
            within("turnaround_ns", flow.turnaround_ns, 0, TIME_MAX_NS)?;
            check_pcp(flow.pcp)?;
            flow.server.map_or(Ok(()), |task| place("server", task, is_served(task)))?;
        }
        for step in &self.steps {
            check_bytes(step.bytes)?;
            check_pcp(step.pcp)?;
            within("deadline_ns", step.deadline_ns, 0, TIME_MAX_NS)?;
            place("task of a step", step.task, step.task < tasks.len())?;
            if let Next::Here(task) = step.next {
                place("task of the next step", task, is_served(task))?;
            }
        }
        Ok(())
    }
}

fn check_pcp(pcp: Option<u8>) -> Result<(), LimitError> {
    within("pcp", pcp.unwrap_or_default().into(), 0, 7)
}

fn check_bytes(bytes: u32) -> Result<(), LimitError> {
    within("bytes", bytes.into(), 60, FRAME_BYTES_MAX.into())
}

impl Traffic {
    fn check(&self) -> Result<(), LimitError> {
        let distance = |what, ns| within(what, ns, FLOW_DISTANCE_MIN_NS, TIME_MAX_NS);
        match *self {
            Traffic::Ping { bytes, timeout_ns, pause_ns } => {
                check_bytes(bytes)?;
                within("pause_ns", pause_ns, 0, TIME_MAX_NS)?;
                distance("timeout_ns", timeout_ns)
            }
            Traffic::Request { bytes, reply_bytes, period_ns, timeout_ns } => {
                check_bytes(bytes)?;
                check_bytes(reply_bytes)?;
                period_ns.map_or(Ok(()), |period_ns| distance("period_ns", period_ns))?;
                distance("timeout_ns", timeout_ns)
            }
            Traffic::Periodic { bytes, period_ns, slack_mean_ns, burst } => {
                check_bytes(bytes)?;
                within("slack_mean_ns", slack_mean_ns, 0, TIME_MAX_NS)?;
                within("burst", burst.into(), 1, 1_000_000)?;
                distance("period_ns", period_ns)
            }
            Traffic::Goose { bytes, period_ns, slack_mean_ns, retransmit_ns, heartbeat_ns } => {
                check_bytes(bytes)?;
                within("slack_mean_ns", slack_mean_ns, 0, TIME_MAX_NS)?;
                period_ns.map_or(Ok(()), |period_ns| distance("period_ns", period_ns))?;
                distance("retransmit_ns", retransmit_ns)?;
                distance("heartbeat_ns", heartbeat_ns)
            }
            Traffic::Stream { bytes, ack_bytes, window, ack_every, control } => {
                check_bytes(bytes)?;
                check_bytes(ack_bytes)?;
                within("window", window.into(), 1, 1_000_000)?;
                within("ack_every", ack_every.into(), 1, 1_000_000)?;
                match control {
                    Control::Basic { timeout_ns } => distance("timeout_ns", timeout_ns),
                    Control::Tcp(TcpParams { initial_window, rto_min_ns, .. }) => {
                        within("initial_window", initial_window.into(), 1, 1_000_000)?;
                        distance("rto_min_ns", rto_min_ns)
                    }
                }
            }
            Traffic::Storm { bytes, interval_ns } => {
                check_bytes(bytes)?;
                within("interval_ns", interval_ns, 0, TIME_MAX_NS)
            }
        }
    }
}
