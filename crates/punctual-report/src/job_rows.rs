//! What rows of jobs have in every format.

use punctual_model::Host;
use punctual_model::host::Parent;
use punctual_model::trace::JobRecord;

/// What the rows of a run have in common.
#[derive(Clone, Debug, Default)]
pub struct JobsOf {
    /// The host's name.
    pub host: String,
    /// The run's seed.
    pub seed: u64,
    /// Names of the tasks with their domain or pool, by index.
    pub tasks: Vec<String>,
}

impl JobsOf {
    /// The jobs of a simulation of `host`.
    pub fn new(host: &Host) -> Self {
        let name = |task: &punctual_model::host::Task| match task.parent {
            Parent::Domain(d) => format!("{}/{}", host.domains[d.0].name, task.name),
            Parent::Pool(p) => format!("{}/{}", host.pools[p.0].name, task.name),
        };
        JobsOf { host: host.name.clone(), seed: host.seed, tasks: host.tasks.iter().map(name).collect() }
    }
}

/// Start, finish and response time of a job, in ns.
pub(crate) fn later_ns(job: &JobRecord) -> [Option<u64>; 3] {
    let response = job.finish.map(|finish| finish.since(job.release).as_ns());
    [job.start.map(|at| at.as_ns()), job.finish.map(|at| at.as_ns()), response]
}
