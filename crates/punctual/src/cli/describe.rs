//! Shell completions and manual pages.

use std::io::Write;
use std::path::PathBuf;

use super::error::Error;
use super::exit;
use super::output::{OutFile, Ui, make_directory};

/// Print a completion script for a shell.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    punctual completions bash > ~/.local/share/bash-completion/completions/punctual\n  \
    punctual completions zsh > ~/.zfunc/_punctual\n  \
    punctual completions fish > ~/.config/fish/completions/punctual.fish")]
pub(super) struct CompletionsArgs {
    /// Which shell.
    shell: clap_complete::Shell,
}

/// Runs `punctual completions`; `command` is the definition of the command line.
pub(super) fn completions(args: &CompletionsArgs, mut command: clap::Command, ui: &Ui) -> Result<u8, Error> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "punctual", &mut script);
    ui.print(String::from_utf8_lossy(&script))?;
    Ok(exit::OK)
}

/// Print the manual page, or write the pages of all commands.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    punctual man | man -l -\n  \
    punctual man --out ~/.local/share/man/man1")]
pub(super) struct ManArgs {
    /// Write punctual.1 and a page for each command into this directory; creates it if missing.
    #[arg(long, value_name = "DIR", alias = "output")]
    out: Option<PathBuf>,
}

/// Runs `punctual man`; `top` is the definition of the command line.
pub(super) fn man(args: &ManArgs, mut top: clap::Command, ui: &Ui) -> Result<u8, Error> {
    top = without_help(top);
    top.build();
    let Some(directory) = &args.out else {
        ui.print(page(&top, "punctual")?)?;
        return Ok(exit::OK);
    };
    make_directory(directory)?;
    for (name, command) in documented("punctual".into(), &top) {
        let page = page(command, &name)?;
        OutFile::write(&directory.join(format!("{name}.1")), |out| out.write_all(page.as_bytes()))?;
    }
    Ok(exit::OK)
}

/// A command called `name` and those inside it that people use.
fn documented(name: String, command: &clap::Command) -> Vec<(String, &clap::Command)> {
    let shown = command.get_subcommands().filter(|inner| !inner.is_hide_set() && inner.get_name() != "help");
    let inner = shown.flat_map(|inner| documented(format!("{name}-{}", inner.get_name()), inner));
    let inner: Vec<_> = inner.collect();
    [vec![(name.clone(), command)], inner].concat()
}

/// A manual page in roff.
fn page(command: &clap::Command, name: &str) -> Result<String, Error> {
    let mut roff = Vec::new();
    clap_mangen::Man::new(command.clone().name(name.to_string())).render(&mut roff)?;
    let page = String::from_utf8_lossy(&roff);
    // clap_mangen calls everything behind the options extra, and wraps it as running text.
    let page = page.replace("\n.SH EXTRA\nExamples:\n", "\n.SH EXAMPLES\n.nf\n");
    Ok(page.replace("\n\nExit codes:\n", "\n.fi\n.SH EXIT STATUS\n.nf\n"))
}

/// The definition without the subcommands `help`, which have no pages.
fn without_help(command: clap::Command) -> clap::Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help)
}
