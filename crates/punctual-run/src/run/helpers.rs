//! The threads of a VMM that are no vCPUs: where they run, and how.

use punctual_model::live::Helpers;

use punctual_enforce::session::{self, Session, helper_attributes};
use punctual_enforce::unit::UnitThreads;
use punctual_linux::os::proc;

/// Gives the helper threads of a VM with these vCPUs their processors and scheduling: those of the host file,
/// or the processors that are `left`. They were written down when the first vCPU of their process was
/// adopted. A process tree has no helpers: all its threads are units.
pub(super) fn place(
    session: &mut Session,
    vcpus: &[UnitThreads],
    helpers: &Helpers,
    left: &[usize],
) -> Result<(), session::Error> {
    if vcpus.iter().any(|threads| matches!(threads, UnitThreads::ProcessTree(_))) {
        return Ok(());
    }
    let vcpus: Vec<i32> = vcpus.iter().map(|threads| threads.identity().id).collect();
    let Some(first) = vcpus.first() else { return Ok(()) };
    let Ok(process) = proc::process_of(*first) else { return Ok(()) };
    let processors = helpers.processors.as_deref().unwrap_or(left);
    let attributes = helper_attributes(helpers.policy);
    for tid in proc::threads(process).unwrap_or_default() {
        if !vcpus.contains(&tid) {
            session.place_helper(tid, processors, &attributes)?;
        }
    }
    Ok(())
}
