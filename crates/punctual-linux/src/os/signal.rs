//! Signals that would end a process without a word.

#![expect(unsafe_code, reason = "signal(2)")]

/// Has a write beyond the limit of file sizes (`RLIMIT_FSIZE`) fail with `EFBIG` instead of ending this
/// process by SIGXFSZ. Programs that this one starts get the signal as before.
pub fn survive_file_size_limit() {
    extern "C" fn ignore(_: libc::c_int) {}
    let handler: extern "C" fn(libc::c_int) = ignore;
    // SAFETY: the handler does nothing, so it may interrupt anything. A handler, unlike SIG_IGN, is not
    // inherited by a program that is executed.
    unsafe {
        libc::signal(libc::SIGXFSZ, handler as *const () as libc::sighandler_t);
    }
}
