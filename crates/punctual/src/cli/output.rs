//! Standard output, messages, progress, and files that appear whole or not at all.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use indicatif::{ProgressBar, ProgressStyle};
use punctual_model::text::printable_lines;
use punctual_report::table;
use tempfile::NamedTempFile;

use super::error::Error;
use super::interrupt;

/// Makes tables and texts fit the terminal that standard output is, if it is one.
pub(super) fn fit_terminal() {
    if let Some((terminal_size::Width(columns), _)) = terminal_size::terminal_size_of(io::stdout())
        && columns > 0
    {
        table::set_width(columns.into());
    }
}

/// How to talk to the user.
#[derive(Clone, Copy)]
pub(super) struct Ui {
    choice: ColorChoice,
}

impl Ui {
    /// Colours as `choice` says.
    pub(super) fn new(choice: ColorChoice) -> Self {
        Ui { choice }
    }

    /// Does standard output take colours?
    pub(super) fn stdout_has_colour(&self) -> bool {
        self.has_colour(&io::stdout())
    }

    fn has_colour(&self, stream: &impl anstream::stream::RawStream) -> bool {
        match self.choice {
            ColorChoice::Auto => AutoStream::choice(stream) != ColorChoice::Never,
            choice => choice != ColorChoice::Never,
        }
    }

    /// Prints results.
    ///
    /// # Errors
    /// When standard output cannot be written; a reader that went away is [`Error::BrokenPipe`].
    pub(super) fn print(&self, text: impl Display) -> Result<(), Error> {
        let mut out = io::stdout().lock();
        write!(out, "{text}")?;
        Ok(out.flush()?)
    }

    /// Prints a value as JSON on lines of its own.
    ///
    /// # Errors
    /// As [`Ui::print`].
    pub(super) fn print_json(&self, value: &(impl serde::Serialize + ?Sized)) -> Result<(), Error> {
        let text = serde_json::to_string_pretty(value).map_err(std::io::Error::from)?;
        self.print(text + "\n")
    }

    /// An error message.
    pub(super) fn error(&self, text: &str) {
        self.message("error", AnsiColor::Red, text);
    }

    /// Something the user should know although the command goes on.
    pub(super) fn warn(&self, text: &str) {
        self.message("warning", AnsiColor::Yellow, text);
    }

    fn message(&self, kind: &str, colour: AnsiColor, text: &str) {
        // Parts of it may be written by guests, other processes or files.
        let text = printable_lines(text);
        let style = Style::new().bold().fg_color(Some(colour.into()));
        let style = if self.has_colour(&io::stderr()) { style } else { Style::new() };
        // If standard error is gone, nobody can be notified.
        let _ = writeln!(io::stderr(), "{style}{kind}{style:#}: {text}");
    }

    /// Does standard error take colours?
    pub(super) fn stderr_has_colour(&self) -> bool {
        self.has_colour(&io::stderr())
    }

    /// Errors that are rendered already.
    pub(super) fn print_errors(&self, rendered: &str) {
        let _ = io::stderr().write_all(rendered.as_bytes());
    }

    /// A progress bar on standard error, shown only on a terminal and if there is something to wait for.
    pub(super) fn progress(&self, total: usize) -> ProgressBar {
        if total < 2 {
            return ProgressBar::hidden();
        }
        let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} simulations, {eta} left")
            .expect("the template is constant");
        ProgressBar::new(total as u64).with_style(style)
    }

    /// Work of unknown length, on standard error and only on a terminal.
    pub(super) fn spinner(&self) -> ProgressBar {
        let style = ProgressStyle::with_template("{spinner} {msg}").expect("the template is constant");
        ProgressBar::new_spinner().with_style(style)
    }
}

/// A file that is written beside its final place and renamed when it is complete.
pub(super) struct OutFile {
    /// As the user wrote it.
    name: PathBuf,
    /// Where it is, links followed: a link stays a link to the file that is replaced.
    path: PathBuf,
    target: Target,
}

enum Target {
    /// A new or ordinary file: replaced at the end.
    Whole(BufWriter<NamedTempFile>),
    /// A device or a pipe: written straight.
    Stream(BufWriter<File>),
}

impl OutFile {
    /// Begins to write.
    ///
    /// # Errors
    /// When nothing can be written there.
    pub(super) fn create(name: &Path) -> Result<Self, Error> {
        let name = name.to_path_buf();
        let path = name.canonicalize().unwrap_or_else(|_| name.clone());
        let target = match std::fs::metadata(&path) {
            Ok(there) if there.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
            Ok(there) if !there.is_file() => {
                File::options().write(true).open(&path).map(|f| Target::Stream(BufWriter::new(f)))
            }
            _ => temporary(&path).map(|f| Target::Whole(BufWriter::new(f))),
        };
        match target {
            Ok(target) => Ok(OutFile { name, path, target }),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let parent = name.parent().unwrap_or(Path::new("/"));
                let why = format!("there is no directory {}", parent.display());
                Err(Error::Usage(format!("cannot write {}: {why}", name.display())))
            }
            Err(e) => Err(Error::Usage(unwritable(&name, &e).to_string())),
        }
    }

    /// The directory of a file that is replaced at the end; none of a device or pipe.
    pub(super) fn directory(&self) -> Option<&Path> {
        match &self.target {
            Target::Whole(out) => out.get_ref().path().parent(),
            Target::Stream(_) => None,
        }
    }

    /// Writes a whole file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn write(name: &Path, write: impl FnOnce(&mut Self) -> io::Result<()>) -> Result<(), Error> {
        let mut out = OutFile::create(name)?;
        // The error names the file.
        write(&mut out).map_err(Error::usage)?;
        out.finish()
    }

    /// Renames the complete file to its final place.
    ///
    /// # Errors
    /// When the last bytes cannot be written or the file cannot be moved.
    pub(super) fn finish(mut self) -> Result<(), Error> {
        let moved = self.flush().and_then(|()| match &self.target {
            // Renamed by path: the handle's drop then finds nothing to remove.
            Target::Whole(out) => {
                std::fs::rename(out.get_ref().path(), &self.path).map_err(|e| unwritable(&self.name, &e))
            }
            Target::Stream(_) => Ok(()),
        });
        moved.map_err(Error::usage)
    }
}

/// Whether files that a user goes on to edit may be replaced.
#[derive(clap::Args, Debug)]
pub(super) struct Overwrite {
    /// Overwrite files that exist already.
    #[arg(long)]
    force: bool,
}

impl Overwrite {
    /// Refuses to replace a file; devices and pipes are written, not replaced, and `-` is standard output.
    ///
    /// # Errors
    /// The file exists, and `--force` was not given.
    pub(super) fn permit(&self, path: &Path) -> Result<(), Error> {
        if !self.force && !is_standard(path) && path.is_file() {
            let path = path.display();
            return Err(Error::Usage(format!("{path} exists already: --force overwrites it")));
        }
        Ok(())
    }
}

/// Refuses outputs that would replace a file that the command reads.
///
/// # Errors
/// An output is one of the inputs.
pub(super) fn keep_inputs(inputs: &[PathBuf], outputs: &[&Option<PathBuf>]) -> Result<(), Error> {
    let file =
        |path: &PathBuf| path.canonicalize().ok().filter(|whole| whole.is_file() && !is_standard(path));
    let inputs: Vec<PathBuf> = inputs.iter().filter_map(file).collect();
    let replaces = |output: &&PathBuf| file(output).is_some_and(|output| inputs.contains(&output));
    match outputs.iter().filter_map(|output| output.as_ref()).find(replaces) {
        Some(output) => {
            let output = output.display();
            Err(Error::Usage(format!("{output} is read by this command: write to another file")))
        }
        None => Ok(()),
    }
}

/// Is it standard input or output?
fn is_standard(path: &Path) -> bool {
    path == Path::new("-")
}

/// Makes a directory and those around it, unless they are there.
///
/// # Errors
/// When it cannot be made.
pub(super) fn make_directory(path: &Path) -> Result<(), Error> {
    std::fs::create_dir_all(path)
        .map_err(|e| Error::Usage(format!("cannot make the directory {}: {e}", path.display())))
}

/// A text in lines that are no wider than a table, a line break at the end; words stay whole.
pub(super) fn wrapped(first_indent: &str, indent: &str, text: &str) -> String {
    let options = textwrap::Options::new(table::text_width())
        .initial_indent(first_indent)
        .subsequent_indent(indent)
        .word_splitter(textwrap::WordSplitter::NoHyphenation);
    textwrap::fill(&printable_lines(text), options) + "\n"
}

/// An error that names the file.
fn unwritable(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot write {}: {error}", path.display()))
}

/// An empty file beside `path`, removed when it is dropped or the program is interrupted.
fn temporary(path: &Path) -> io::Result<NamedTempFile> {
    let directory = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut prefix = std::ffi::OsString::from(".");
    prefix.push(path.file_name().ok_or(io::ErrorKind::InvalidInput)?);
    let mut builder = tempfile::Builder::new();
    builder.prefix(&prefix);
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let file = builder.tempfile_in(directory)?;
    interrupt::guard(file.path());
    Ok(file)
}

impl Drop for OutFile {
    fn drop(&mut self) {
        if let Target::Whole(out) = &self.target {
            interrupt::release(out.get_ref().path());
        }
    }
}

impl Write for OutFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = match &mut self.target {
            Target::Whole(out) => out.write(bytes),
            Target::Stream(out) => out.write(bytes),
        };
        written.map_err(|e| unwritable(&self.name, &e))
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = match &mut self.target {
            Target::Whole(out) => out.flush(),
            Target::Stream(out) => out.flush(),
        };
        flushed.map_err(|e| unwritable(&self.name, &e))
    }
}
