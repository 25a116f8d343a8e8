//! When the jobs of a task are released and what they cost, and when flows send.
//!
//! The simulator and the guest program of real hosts draw from this one law, so a live task has the very jobs
//! of the simulated one. Everything random is a pure function of the task's seed and the job's number: how a
//! job is scheduled changes neither its release nor its cost, and a backlog needs no memory, because the jobs
//! that were released and the job being served are two cursors over the same stream.
//!
//! Times are plain whole nanoseconds: the guest program depends on nothing else of the project.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod flow;
pub mod histogram;
pub mod stream;

/// The jobs of one task that are released by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct JobStream {
    pub arrival: Arrival,
    /// Least processor time of a job.
    pub cost_min_ns: u64,
    /// Most processor time of a job; each job's is drawn uniformly from between both.
    pub cost_max_ns: u64,
    /// Everything random follows from it; see [`task_seed`].
    pub seed: u64,
}

/// When jobs are released, since the run's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case", deny_unknown_fields))]
pub enum Arrival {
    /// At `offset_ns`, `offset_ns + period_ns`, ...
    Periodic { period_ns: u64, offset_ns: u64 },
    /// `separation_ns` plus an exponentially distributed time apart.
    Sporadic {
        /// Least distance of releases.
        separation_ns: u64,
        slack_mean_ns: u64,
        /// Earliest first release.
        offset_ns: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    pub number: u64,
    /// When it is released, since the run's start.
    pub release_ns: u64,
}

/// One output of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014) at a position of its sequence.
#[inline]
pub fn mix(seed: u64, position: u64) -> u64 {
    let mut z = seed.wrapping_add(position.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// An exponentially distributed time, from 53 random bits; libm's logarithm gives the same bits everywhere.
#[inline]
pub fn exponential_ns(mean_ns: u64, bits: u64) -> u64 {
    let uniform = ((bits >> 11) + 1) as f64 / (1u64 << 53) as f64;
    (-libm::log(uniform) * mean_ns as f64) as u64
}

/// A uniformly distributed time from 0 to `most_ns`, both included, from 64 random bits.
#[inline]
pub fn uniform_ns(most_ns: u64, bits: u64) -> u64 {
    // The product is less than 2^64 * (most_ns + 1), so what is left fits.
    ((u128::from(bits) * (u128::from(most_ns) + 1)) >> 64) as u64
}

/// The seed of the host's `task`-th task.
#[inline]
pub fn task_seed(host_seed: u64, task: usize) -> u64 {
    mix(host_seed, task as u64)
}

/// Processor time of a task's `number`-th job, at least 1 ns: drawn uniformly from `min_ns` to `max_ns`.
#[inline]
pub fn cost_ns(seed: u64, number: u64, min_ns: u64, max_ns: u64) -> u64 {
    // Even positions of the sequence are for releases, odd ones for costs.
    let extra_ns = match max_ns.saturating_sub(min_ns) {
        0 => 0,
        span_ns => uniform_ns(span_ns, mix(seed, 2 * number + 1)),
    };
    (min_ns + extra_ns).max(1)
}

impl JobStream {
    #[inline]
    pub fn first(&self) -> Job {
        let release_ns = match self.arrival {
            Arrival::Periodic { offset_ns, .. } => offset_ns,
            Arrival::Sporadic { slack_mean_ns, offset_ns, .. } => {
                offset_ns.saturating_add(exponential_ns(slack_mean_ns, mix(self.seed, 0)))
            }
        };
        Job { number: 0, release_ns }
    }

    #[inline]
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
    #[inline]
    pub fn cost_ns(&self, job: Job) -> u64 {
        cost_ns(self.seed, job.number, self.cost_min_ns, self.cost_max_ns)
    }

    /// The jobs released before `duration_ns`.
    pub fn jobs_before(self, duration_ns: u64) -> impl Iterator<Item = Job> {
        core::iter::successors(Some(self.first()), move |job| Some(self.after(*job)))
            .take_while(move |job| job.release_ns < duration_ns)
    }
}
