//! `punctual import`: what becomes of files of other programs, by the command as a user runs it.

mod carts;
mod libvirt;
mod rt_app;
mod tables;
mod task_sets;
mod xl;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use punctual_model::Host;
use punctual_model::file::{Overrides, parse};
use tempfile::TempDir;

/// What the command printed.
struct Answer {
    code: Option<i32>,
    /// The host file.
    toml: String,
    /// Notes or errors, a line each.
    messages: String,
}

impl Answer {
    /// The host that was imported.
    fn host(&self) -> Host {
        assert_eq!(self.code, Some(0), "{}", self.messages);
        parse(&self.toml, "import.toml", &Overrides::default()).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Is there a note or error with all of these words?
    fn says(&self, words: &[&str]) -> bool {
        self.messages.lines().any(|line| words.iter().all(|word| line.contains(word)))
    }

    #[track_caller]
    fn must_say(&self, words: &[&str]) {
        assert!(self.says(words), "{words:?} not in:\n{}", self.messages);
    }
}

/// The program at the root of the repository.
fn punctual() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    command
}

fn answer(command: &mut Command) -> Answer {
    let output = command.output().expect("the program starts");
    Answer {
        code: output.status.code(),
        toml: String::from_utf8(output.stdout).expect("text"),
        messages: String::from_utf8(output.stderr).expect("text"),
    }
}

/// Imports files of these contents.
fn import(format: &str, files: &[&str], options: &[&str]) -> Answer {
    let directory = TempDir::new().expect("a directory");
    let mut command = punctual();
    command.args(["import", "--from", format]).args(options);
    for (n, text) in files.iter().enumerate() {
        let path = directory.path().join(format!("file{n}"));
        std::fs::write(&path, text).expect("written");
        command.arg(path);
    }
    answer(&mut command)
}

/// Imports standard input.
fn import_stdin(format: &str, text: &str) -> Answer {
    let mut command = punctual();
    command.args(["import", "--from", format, "-"]).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    child.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("written");
    let output = child.wait_with_output().expect("it ends");
    Answer {
        code: output.status.code(),
        toml: String::from_utf8(output.stdout).expect("text"),
        messages: String::from_utf8(output.stderr).expect("text"),
    }
}

/// What `punctual check` prints of a host file.
fn check(toml: &str) -> String {
    let directory = TempDir::new().expect("a directory");
    let file = directory.path().join("host.toml");
    std::fs::write(&file, toml).expect("written");
    let checked = answer(punctual().arg("check").arg(file));
    checked.toml + &checked.messages
}

/// The results that a command prints.
fn json(args: &[&str]) -> serde_json::Value {
    let answer = answer(punctual().args(args));
    assert_eq!(answer.code, Some(0), "{}", answer.messages);
    serde_json::from_str(&answer.toml).expect("JSON")
}
