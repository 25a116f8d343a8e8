//! Exit codes, as `punctual --help` explains them.

/// It ran.
pub const OK: u8 = 0;
/// It ran, and what `--fail-on-miss`, `--strict` or `--tolerance` looks for happened, `check` or
/// `synthesize` found no guarantee, `doctor` found a threat to latency, or `xen replay` another answer.
pub const MISSED: u8 = 1;
/// The command line or a file is wrong, or an output cannot be written.
pub const USAGE: u8 = 2;
/// An invariant of the machine or of a policy was violated.
pub const VIOLATION: u8 = 3;
/// The guardian of a live run ended it: enforcement stood still, or the process did.
pub const ENDED: u8 = 4;
/// A live run came to its end, but a guest lied or stopped telling: some jobs are not measured.
pub const GUEST: u8 = 5;
/// With `--fail-on-miss`: deadlines of a live run were missed, all of them by jobs that met a disturbance of
/// the machine.
pub const DISTURBED: u8 = 6;
/// Something that a live run changed could not be restored.
pub const NOT_RESTORED: u8 = 7;
/// Ctrl-C.
pub const INTERRUPTED: u8 = 130;
