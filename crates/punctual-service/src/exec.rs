//! A program in a scope of systemd's, by whose name the service knows its class.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use punctual_model::service::ExecName;

/// What makes the scope.
pub const SYSTEMD_RUN: &str = "systemd-run";

/// Makes a scope for this process and replaces the process by the program of `command`, its first item.
/// Terminal, directory, environment and process id stay. Returns only if [`SYSTEMD_RUN`] cannot be started:
/// why.
pub fn exec(name: &ExecName, command: &[OsString]) -> io::Error {
    let scope = name.scope(std::process::id());
    let mut program = Command::new(SYSTEMD_RUN);
    program.args(["--scope", "--quiet", "--collect", "--unit", &scope, "--"]).args(command);
    program.exec()
}
