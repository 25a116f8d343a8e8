//! Why a command did not do its work.

use punctual_run::calibrate;
use punctual_run::error::ServeError;
use punctual_run::run::RunError;

/// See the module; which exit code follows stands with each.
#[derive(Debug)]
pub(super) enum Error {
    /// The command line, a file or an output is at fault: said in full, exit code 2.
    Usage(String),
    /// The same, as errors of a host file.
    Host(punctual_model::file::Errors),
    /// The same, as errors of imported files, rendered.
    Import(String),
    /// An invariant broke, exit code 3.
    Violation(String),
    /// Something that a live run changed could not be restored, exit code 7.
    NotRestored(String),
    /// Ctrl-C, after what was finished has been printed.
    Interrupted,
    /// The reader of the output went away: not an error.
    BrokenPipe,
}

impl Error {
    /// Something that the user can mend; `text` says what is wrong.
    pub(super) fn usage(text: impl std::fmt::Display) -> Self {
        Error::Usage(text.to_string())
    }
}

impl From<std::io::Error> for Error {
    /// An error of writing to standard output; errors of files are an [`Error::Usage`] with the file's name.
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Error::BrokenPipe,
            _ => Error::Usage(format!("cannot write to standard output: {error}")),
        }
    }
}

impl From<punctual_model::file::Errors> for Error {
    fn from(errors: punctual_model::file::Errors) -> Self {
        Error::Host(errors)
    }
}

impl From<punctual_host_stack_sim::Violation> for Error {
    fn from(error: punctual_host_stack_sim::Violation) -> Self {
        Error::Violation(error.0)
    }
}

impl From<punctual_sim::Error> for Error {
    fn from(error: punctual_sim::Error) -> Self {
        match error {
            punctual_sim::Error::Refused(text) => Error::Usage(text),
            punctual_sim::Error::Violation(text) => Error::Violation(text),
        }
    }
}

impl From<ServeError> for Error {
    fn from(error: ServeError) -> Self {
        match error {
            ServeError::Refused(text) => Error::Usage(text),
            ServeError::Host(errors) => Error::Host(errors),
        }
    }
}

impl From<RunError> for Error {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Refused(error) => error.into(),
            error if !error.not_put_back().is_empty() => {
                let failures = calibrate::Error::NotPutBack(error.not_put_back().to_vec());
                Error::NotRestored(format!("{error}\n{failures}"))
            }
            error if error.is_stopped() => Error::Interrupted,
            error => Error::Usage(error.to_string()),
        }
    }
}

impl From<calibrate::Error> for Error {
    fn from(error: calibrate::Error) -> Self {
        match error {
            calibrate::Error::Stopped => Error::Interrupted,
            calibrate::Error::Host(errors) => Error::Host(errors),
            calibrate::Error::Run(error) => error.into(),
            calibrate::Error::Violation(text) => Error::Violation(text),
            error @ calibrate::Error::NotPutBack(_) => Error::NotRestored(error.to_string()),
            calibrate::Error::Simulation(error) => error.into(),
            error => Error::Usage(error.to_string()),
        }
    }
}

impl From<punctual_xen_run::error::Error> for Error {
    fn from(error: punctual_xen_run::error::Error) -> Self {
        match error {
            punctual_xen_run::error::Error::Stopped => Error::Interrupted,
            error => Error::Usage(error.to_string()),
        }
    }
}
