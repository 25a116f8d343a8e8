//! A domain that runs, and the process behind it.

use std::time::Duration;

use punctual_guest::protocol;
use punctual_model::index::{DomainIx, TaskIx};

use super::error::Error;
use punctual_enforce::unit::UnitThreads;
use punctual_vm::qemu::{self, Vm};
use punctual_vm::workload::{self, Client, ClientError, ProcessError};

/// A domain that was started or found.
pub(super) struct RunningDomain {
    pub ix: DomainIx,
    pub process: DomainProcess,
    /// By vCPU, its threads; one that is plugged in later has none yet.
    pub vcpus: Vec<Option<UnitThreads>>,
    /// What its guest program is to run; nothing where there is none.
    pub tasks: Vec<(TaskIx, protocol::Task)>,
    /// What it sends and answers, if it is on a network.
    pub network: Option<protocol::Network>,
    /// Why its guest is no longer asked, once that is so. The domain goes on as a unit of its pool.
    pub failed: Option<ClientError>,
}

/// What runs for a domain. Dropping it ends it and waits for that.
pub(super) enum DomainProcess {
    Vm(Box<Vm>),
    Guest(Box<workload::Process>),
    /// A program of the user's, which the session ends, or something attached to, which is not ended. It has
    /// no guest program of ours.
    External,
    /// The driver domain of a network whose switch the caller runs: no process of its own.
    Switch,
}

impl DomainProcess {
    pub(super) fn is_vm(&self) -> bool {
        matches!(self, DomainProcess::Vm(_))
    }

    /// The process of a VM.
    pub(super) fn of_vm(&self) -> Option<i32> {
        match self {
            DomainProcess::Vm(vm) => Some(vm.pid() as i32),
            _ => None,
        }
    }

    /// The conversation with its guest program, if it has one, which must have announced itself.
    pub(super) fn client(&mut self) -> Result<Option<&mut Client>, Error> {
        match self {
            DomainProcess::Vm(vm) => Ok(vm.connect(Duration::ZERO).map(Some)?),
            DomainProcess::Guest(process) => Ok(process.connect(Duration::ZERO).map(Some)?),
            DomainProcess::External | DomainProcess::Switch => Ok(None),
        }
    }

    /// Waits until its guest program announces itself, for `limit` at most; returns why it did not.
    pub(super) fn announce(&mut self, limit: Duration) -> Result<Option<ClientError>, Error> {
        let announced = match self {
            DomainProcess::Vm(vm) => vm.connect(limit).map(|_| ()).map_err(Error::Vm),
            DomainProcess::Guest(process) => process.connect(limit).map(|_| ()).map_err(Error::Process),
            DomainProcess::External | DomainProcess::Switch => Ok(()),
        };
        match announced {
            Ok(()) => Ok(None),
            Err(Error::Vm(qemu::Error::NoBoot { source, .. })) => Ok(Some(source)),
            Err(Error::Process(ProcessError::Connect { source, .. })) => Ok(Some(source)),
            Err(error) => Err(error),
        }
    }

    /// How it ended and what it said last, for the end of a message.
    pub(super) fn last_words(&mut self) -> String {
        match self {
            DomainProcess::Vm(vm) => vm.last_words().to_string(),
            DomainProcess::Guest(process) => process.last_words(),
            DomainProcess::External | DomainProcess::Switch => String::new(),
        }
    }
}
