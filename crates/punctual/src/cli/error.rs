//! Why a command did not do its work.

/// See the module; which exit code follows stands with each.
#[derive(Debug)]
pub enum Error {
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
    pub fn usage(text: impl std::fmt::Display) -> Self {
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
