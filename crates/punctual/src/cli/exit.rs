//! Exit codes, as `punctual --help` explains them.

/// It ran.
pub const OK: u8 = 0;
/// It ran, and `--fail-on-miss`, `--strict` or `--tolerance` found what it looks for, `check` or `synthesize`
/// found no guarantee, `doctor` found a threat to latency, `certify` found a limit exceeded, a latency
/// grown or a certificate changed, or `xen replay` found a decision that differs.
pub const MISSED: u8 = 1;
/// The command line or a file is wrong, or an output cannot be written.
pub const USAGE: u8 = 2;
/// An invariant of the machine or of a policy was violated.
pub const VIOLATION: u8 = 3;
/// The guardian ended a live run because enforcement or the process hung.
pub const ENDED: u8 = 4;
/// A live run ended, but some jobs could not be measured, because a guest's reports stopped or contradict
/// each other, or a vCPU could not be enforced to the end; or a certificate is incomplete.
pub const INCOMPLETE: u8 = 5;
/// With `--fail-on-miss`: deadlines of a live run were missed, but only by jobs that the machine itself had
/// disturbed.
pub const DISTURBED: u8 = 6;
/// Something that a live run changed could not be restored.
pub const NOT_RESTORED: u8 = 7;
/// Ctrl-C.
pub const INTERRUPTED: u8 = 130;
