//! `punctual artifact`: the beginnings of an artifact that a conference evaluates.

use std::io;
use std::path::{Path, PathBuf};

use super::error::Error;
use super::exit;
use super::output::Ui;

/// The files, with `@VERSION@` and `@TITLE@` where those go.
const FILES: [(&str, &str); 3] = [
    ("README.md", include_str!("artifact/README.md")),
    ("Makefile", include_str!("artifact/Makefile")),
    ("hosts/study.toml", include_str!("artifact/study.toml")),
];

/// Begin the artifact of a paper: figures that anybody can make again, byte for byte.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  punctual artifact new ecrts27")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    New(NewArgs),
}

/// Make a directory with a study, its figures and what evaluators ask for.
///
/// `make figures` there draws the figures from the host file by this version of punctual, and notes how long
/// each took; `make quick` does it with few task sets; `make sums` notes the checksums of the results, and
/// `make check` compares them on another machine. The README has a part for each question of an evaluation:
/// available, functional, results reproduced, reusable.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    punctual artifact new ecrts27\n  \
    punctual artifact new ecrts27 --title 'Servers for shared cores' && make -C ecrts27 quick")]
struct NewArgs {
    /// The directory, which is made; an empty one will do.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// The title of the paper.
    #[arg(long, value_name = "TEXT", default_value = "title of the paper")]
    title: String,
}

/// Runs `punctual artifact`.
pub(super) fn run(args: &Args, ui: &Ui) -> Result<u8, Error> {
    let Command::New(args) = &args.command;
    let directory = &args.directory;
    let is_ours = begin(directory)?;
    // A title is one line.
    let title = args.title.split_whitespace().collect::<Vec<_>>().join(" ");
    let fill = |text: &str| text.replace("@VERSION@", env!("CARGO_PKG_VERSION")).replace("@TITLE@", &title);
    if let Err((path, error)) = write(directory, fill) {
        if is_ours {
            // What cannot be removed is what could not be written; the error below names it.
            let _ = std::fs::remove_dir_all(directory);
        }
        return Err(Error::Usage(format!("cannot write {}: {error}", path.display())));
    }
    let name = directory.display();
    ui.print(format!("{name}: README.md, Makefile, hosts/study.toml\nnext: make -C {name} quick\n"))?;
    Ok(exit::OK)
}

/// Makes the directory; `false` if it was there, and empty.
fn begin(directory: &Path) -> Result<bool, Error> {
    let unusable = |error: io::Error| {
        Error::Usage(format!("cannot make the directory {}: {error}", directory.display()))
    };
    match std::fs::read_dir(directory).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(false),
        Ok(false) => {
            let text = format!("{} is not empty: name a directory that is not there", directory.display());
            Err(Error::Usage(text))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            std::fs::create_dir_all(directory).map(|()| true).map_err(unusable)
        }
        Err(error) => Err(unusable(error)),
    }
}

/// Writes the files; an error comes with the file.
fn write(directory: &Path, fill: impl Fn(&str) -> String) -> Result<(), (PathBuf, io::Error)> {
    for (name, text) in FILES {
        let path = directory.join(name);
        let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        made.and_then(|()| std::fs::write(&path, fill(text))).map_err(|error| (path, error))?;
    }
    Ok(())
}
