//! What a live command needs root for, said before anything else fails for the lack of it.

use std::os::unix::fs::MetadataExt;

use punctual_enforce::journal;
use punctual_linux::preflight;

use super::error::Error;

/// What a command does that takes rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needs {
    /// It schedules threads of this machine.
    Scheduling,
    /// It reads or changes what runs wrote to the state directory.
    State,
}

/// Does this process have the rights that `command` needs?
///
/// # Errors
/// It does not, and it is not root's; with the command line to type instead.
pub(super) fn check(command: &str, needs: Needs) -> Result<(), Error> {
    if preflight::is_root() {
        // Root of a container may lack rights, too, but `sudo` is no cure for that.
        return Ok(());
    }
    let mut missing = Vec::new();
    if needs == Needs::Scheduling {
        if let Err(preflight::Error::NotPermitted) = preflight::real_time() {
            missing.push("CAP_SYS_NICE".to_owned());
        }
        if let Err(preflight::Error::CgroupsReadOnly { mount, .. }) = preflight::parking() {
            missing.push(format!("write access to {}", mount.display()));
        }
    }
    let state = journal::directory();
    if std::fs::metadata(&state).is_ok_and(|metadata| metadata.uid() == 0) {
        missing.push(format!("access to {}, which belongs to root", state.display()));
    }
    if missing.is_empty() {
        return Ok(());
    }
    let again = as_root(std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()));
    Err(Error::Usage(format!("{command} needs root: {again}\n  missing here: {}", missing.join("; "))))
}

/// A command line of this program, to be typed by a user who is not root.
fn as_root(arguments: impl Iterator<Item = String>) -> String {
    let arguments = arguments.skip(1).map(|argument| quoted(&argument));
    ["sudo".to_owned(), "punctual".to_owned()].into_iter().chain(arguments).collect::<Vec<_>>().join(" ")
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./,:=@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_repeated_as_a_shell_reads_it() {
        let line = ["/usr/bin/punctual", "attach", "my host.toml", "--set", "a.b=[1]", "--label", "it's"];
        let expected = r"sudo punctual attach 'my host.toml' --set 'a.b=[1]' --label 'it'\''s'";
        assert_eq!(as_root(line.map(String::from).into_iter()), expected);
    }
}
