//! When the jobs of a task are released and what they cost.
//!
//! Everything random is a pure function of the task's seed and the job's number. It is the function by which
//! the simulated machine draws (`punctual-sim`, `arrivals.rs`): a live task has the very jobs of the
//! simulated one when its seed is [`task_seed`] of the host's seed and the task's place in the host.

use crate::protocol::Arrival;

/// The jobs of one task.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    arrival: Arrival,
    cost_min_ns: u64,
    cost_max_ns: u64,
    seed: u64,
}

/// A job, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// From 0.
    pub number: u64,
    /// When it is released, since the run's start.
    pub release_ns: u64,
}

/// One output of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014) at a position of its sequence.
fn mix(seed: u64, position: u64) -> u64 {
    let mut z = seed.wrapping_add(position.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// An exponentially distributed time, from 53 random bits; libm's logarithm gives the same bits everywhere.
fn exponential_ns(mean_ns: u64, bits: u64) -> u64 {
    let uniform = ((bits >> 11) + 1) as f64 / (1u64 << 53) as f64;
    (-libm::log(uniform) * mean_ns as f64) as u64
}

/// The seed of the host's `task`-th task.
pub fn task_seed(host_seed: u64, task: usize) -> u64 {
    mix(host_seed, task as u64)
}

impl Stream {
    /// The stream of a task's [`crate::protocol::Work::Jobs`].
    pub fn new(arrival: Arrival, cost_min_ns: u64, cost_max_ns: u64, seed: u64) -> Self {
        Stream { arrival, cost_min_ns, cost_max_ns, seed }
    }

    /// The first job.
    pub fn first(&self) -> Job {
        let release_ns = match self.arrival {
            Arrival::Periodic { offset_ns, .. } => offset_ns,
            Arrival::Sporadic { slack_mean_ns, offset_ns, .. } => {
                offset_ns.saturating_add(exponential_ns(slack_mean_ns, mix(self.seed, 0)))
            }
        };
        Job { number: 0, release_ns }
    }

    /// The job after `job`.
    pub fn after(&self, job: Job) -> Job {
        let number = job.number + 1;
        let gap_ns = match self.arrival {
            Arrival::Periodic { period_ns, .. } => period_ns,
            Arrival::Sporadic { separation_ns, slack_mean_ns, .. } => {
                separation_ns.saturating_add(exponential_ns(slack_mean_ns, mix(self.seed, 2 * number)))
            }
        };
        Job { number, release_ns: job.release_ns.saturating_add(gap_ns) }
    }

    /// Processor time of a job, at least 1 ns.
    pub fn cost_ns(&self, job: Job) -> u64 {
        let span = self.cost_max_ns.saturating_sub(self.cost_min_ns);
        let extra = match span {
            0 => 0,
            _ => {
                let bits = u128::from(mix(self.seed, 2 * job.number + 1));
                ((bits * (u128::from(span) + 1)) >> 64) as u64
            }
        };
        (self.cost_min_ns + extra).max(1)
    }

    /// The jobs released before `duration_ns`.
    pub fn jobs_before(self, duration_ns: u64) -> impl Iterator<Item = Job> {
        std::iter::successors(Some(self.first()), move |job| Some(self.after(*job)))
            .take_while(move |job| job.release_ns < duration_ns)
    }
}
