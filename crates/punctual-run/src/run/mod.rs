//! A host file carried out: domains started or found, their vCPUs put under the pools' policies, their task
//! sets run, everything put back, and what was measured as [`punctual_model::Results`].
//!
//! A run goes through stages. Each is a type in a file of its own and consumes the stage before:
//!
//! ```text
//! Prepared      prepare.rs    the host can be run here, and the image of its VMs is there; what it attaches
//!                             to is found (attach.rs) and checked (targets.rs)
//! Started       start.rs      a session; domains that were started
//! Calibrated    calibrate.rs  the speed of each guest's processor, and its clock (clock.rs)
//! Enforced      enforce.rs    pools under their schedulers, with the vCPUs in them; helpers.rs
//! Measured      measure.rs    the tasks have run; guests reported (reports.rs, outside.rs, follow.rs)
//! Measurements  results.rs    everything is put back
//! ```
//!
//! A stage that fails ends the session, which puts everything back; the error has what was put back.

mod attach;
mod attach_target;
mod backend;
mod blame;
mod calibrate;
mod changes;
mod clock;
mod domain;
mod enforce;
mod error;
mod follow;
mod helpers;
mod inputs;
mod live_run;
mod measure;
mod outside;
mod pools;
mod prepare;
mod reports;
mod results;
mod start;
mod targets;
mod trace;

use punctual_model::Host;

use prepare::Prepared;

pub use attach_target::{AttachTarget, AttachedThread, Scheduling};
pub use error::{AttachError, ChangeError, Error, RunError};
pub(crate) use inputs::StageInputs;
pub use inputs::{ENDLESS, Interface, OutsideHost, OutsideSocket, SocketsGuest};
pub use results::Measurements;
pub use targets::attach_targets;
pub use trace::Trace;

/// Takes the host through the stages.
///
/// # Errors
/// [`RunError::Failed`]. Where the user wanted an end, its error is [`Error::Stopped`], whatever failed
/// because of it.
pub(crate) fn run<'a>(host: &'a Host, inputs: StageInputs<'a>) -> Result<Measurements, RunError> {
    let stop = inputs.stop;
    let prepared = Prepared::new(host, inputs).map_err(RunError::unchanged);
    let stages = || prepared?.start()?.calibrate()?.enforce()?.measure()?.finish();
    stages().map_err(|error| match error {
        RunError::Failed { restored, .. } if stop() => {
            RunError::Failed { error: Box::new(Error::Stopped), restored }
        }
        error => error,
    })
}
