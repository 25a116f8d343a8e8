//! The limit of the main thread's stack.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The limit that Linux gives by default, in bytes.
const STACK: u64 = 8 << 20;
/// This program needs less, in bytes.
const STACK_MIN: u64 = 1 << 20;

/// The stack is limited to less than this program needs, and the limit cannot be raised.
#[derive(Debug, thiserror::Error)]
#[error(
    "the stack is limited to {limit_kib} KiB (RLIMIT_STACK), expected at least {} KiB\n  \
     raise it: ulimit -s {}",
    STACK_MIN >> 10,
    STACK >> 10
)]
pub struct StackError {
    /// The limit.
    limit_kib: u64,
}

/// Raises a limit of the main thread's stack that is too low to the default. The kernel reads it when the
/// stack grows (Linux `acct_stack_growth`); other threads have stacks of their own.
///
/// # Errors
/// The limit cannot be raised.
pub fn raise_stack_limit() -> Result<(), StackError> {
    let is_enough = |limit: &Rlimit| limit.current.is_none_or(|bytes| bytes >= STACK_MIN);
    let limit = getrlimit(Resource::Stack);
    if is_enough(&limit) {
        return Ok(());
    }
    let maximum = limit.maximum.map(|bytes| bytes.max(STACK));
    // To raise the hard limit takes CAP_SYS_RESOURCE.
    if setrlimit(Resource::Stack, Rlimit { current: Some(STACK), maximum }).is_err() {
        let current = limit.maximum.map_or(STACK, |bytes| bytes.min(STACK));
        let _ = setrlimit(Resource::Stack, Rlimit { current: Some(current), maximum: limit.maximum });
    }
    match getrlimit(Resource::Stack) {
        raised if is_enough(&raised) => Ok(()),
        low => Err(StackError { limit_kib: low.current.unwrap_or(0) >> 10 }),
    }
}
