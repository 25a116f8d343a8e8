//! Arguments, dispatch and exit codes.
//!
//! Each command is a module with its `Args` and a `run`. Results go to standard output, everything else to
//! standard error.

mod adjust;
mod admit;
mod artifact;
mod attach;
mod calibrate;
mod certify;
mod check;
mod compare;
mod describe;
mod doctor;
mod enforce;
mod error;
mod exec;
pub mod exit;
mod export;
mod guardian;
mod hints;
mod host_stack;
mod import;
mod input;
mod interrupt;
mod jobs;
mod live;
mod output;
mod place;
mod policies;
mod report;
mod reproduce;
mod restore;
mod rights;
mod run;
mod serve;
mod show;
mod sim;
mod sockets;
mod status;
mod sweep;
mod switch;
mod synthesize;
mod top;
mod why;
mod xen;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use error::Error;
use output::Ui;
use punctual_report::table;

const EXIT_CODES: [(&str, &str); 9] = [
    ("0", "it ran"),
    (
        "1",
        "it ran, and a deadline was missed (with --fail-on-miss), a verdict is not the recorded one (with \
         --strict), a deadline is not guaranteed (check), no budgets suffice (synthesize), a VM fits \
         no host (place), a difference is beyond the tolerance (compare), something threatens latency \
         (doctor), a limit is exceeded, a latency got worse or a certificate was changed (certify), or a \
         recorded decision differs (xen replay)",
    ),
    (
        "2",
        "the command line or a file is wrong, an output cannot be written, or this machine cannot do a live \
         run",
    ),
    ("3", "the simulator or the switch violated an invariant (please report it)"),
    (
        "4",
        "the guardian ended a live run because enforcement or the program hung (137 if the guardian had to \
         kill it); standard error has the reason",
    ),
    (
        "5",
        "a live run ended, but some jobs could not be measured, because a guest's reports stopped or \
         contradict each other, or a vCPU could not be enforced to the end (1 with --fail-on-miss); or \
         a certificate is incomplete (certify)",
    ),
    (
        "6",
        "with --fail-on-miss: deadlines of a live run were missed, but only by jobs that the machine itself \
         had disturbed",
    ),
    (
        "7",
        "something that a live run changed could not be restored (run, attach, host-stack, calibrate, \
         reproduce, restore); standard error names it",
    ),
    ("130", "interrupted"),
];

const EXAMPLES: &str = "\
Examples:
  punctual sim examples/five-vms.toml                      which VM misses deadlines?
  punctual sim examples/five-vms.toml --policy all         under every policy, side by side
  punctual sweep examples/five-vms.toml --vary 'domain.*.generate.load=30%..100%:10%'
  punctual check examples/five-vms.toml                    which deadlines are guaranteed?
  punctual synthesize host.toml                            which budgets guarantee all of them?
  punctual run examples/misbehaving.toml --policy deferrable,linux-cfs     five real VMs on this machine
  punctual doctor                                          what threatens latency on this machine?
  punctual sim examples/five-vms.toml --report out.html    everything on one HTML page
  punctual policies rtds                                   one policy and its parameters";

/// Keeps virtual machines on time.
///
/// One host file describes processors, VMs and their tasks. punctual says which VM would miss deadlines
/// under which scheduling policy, and runs real VMs under these policies on Linux.
#[derive(Parser, Debug)]
#[command(name = "punctual", version, max_term_width = 100)]
#[command(after_help = EXAMPLES, after_long_help = examples_and_exit_codes())]
pub struct Cli {
    /// When to use colours; `auto`: on a terminal, unless NO_COLOR is set.
    #[arg(long, value_name = "WHEN", global = true, default_value = "auto", display_order = 900)]
    color: Color,
    #[command(subcommand)]
    command: Command,
}

/// Examples, then the exit codes.
fn examples_and_exit_codes() -> String {
    let entry = |(code, meaning): (&str, &str)| {
        let first = format!("\n  {code:<5}");
        let options = textwrap::Options::new(table::text_width())
            .initial_indent(&first[1..])
            .subsequent_indent("       ")
            .word_splitter(textwrap::WordSplitter::NoHyphenation);
        first[..1].to_owned() + &textwrap::fill(meaning, options)
    };
    format!("{EXAMPLES}\n\nExit codes:{}", EXIT_CODES.map(entry).concat())
}

/// The definition with examples that fit lines of `width` columns: a comment that does not fit beside its
/// example is below it.
fn fitted(command: clap::Command, width: usize) -> clap::Command {
    let line = |line: &str| match line.trim_start().rsplit_once("   ") {
        Some((example, comment)) if line.chars().count() > width => {
            format!("  {}\n      {comment}", example.trim_end())
        }
        _ => line.to_owned(),
    };
    let fit = |text: String| text.lines().map(line).collect::<Vec<_>>().join("\n");
    let short = command.get_after_help().map(|text| fit(text.to_string()));
    let long = command.get_after_long_help().map(|text| fit(text.to_string()));
    let command = match short {
        Some(text) => command.after_help(text),
        None => command,
    };
    let command = match long {
        Some(text) => command.after_long_help(text),
        None => command,
    };
    command.mut_subcommands(|inner| fitted(inner, width))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Color {
    Auto,
    Always,
    Never,
}

impl From<Color> for anstream::ColorChoice {
    fn from(color: Color) -> Self {
        match color {
            Color::Auto => anstream::ColorChoice::Auto,
            Color::Always => anstream::ColorChoice::Always,
            Color::Never => anstream::ColorChoice::Never,
        }
    }
}

#[derive(Subcommand, Debug)]
enum Command {
    Sim(sim::Args),
    Sweep(sweep::Args),
    Check(check::Args),
    Synthesize(synthesize::Args),
    Place(place::Args),
    Run(run::Args),
    Attach(attach::Args),
    Top(top::Args),
    Serve(serve::Args),
    Enforce(enforce::Args),
    Status(status::Args),
    Why(why::Args),
    Admit(admit::Args),
    Adjust(adjust::Args),
    Pause(adjust::PauseArgs),
    Resume(adjust::ResumeArgs),
    Exec(exec::Args),
    Switch(switch::Args),
    Sockets(sockets::Args),
    Xen(xen::Args),
    HostStack(host_stack::Args),
    Restore(restore::Args),
    Compare(compare::Args),
    Doctor(doctor::Args),
    Calibrate(calibrate::Args),
    Certify(certify::Args),
    Export(export::Args),
    Import(import::Args),
    Report(report::Args),
    Policies(policies::Args),
    Reproduce(reproduce::Args),
    Artifact(artifact::Args),
    Show(show::Args),
    Completions(describe::CompletionsArgs),
    Man(describe::ManArgs),
    #[command(hide = true)]
    Guardian(guardian::GuardianArgs),
    #[command(hide = true)]
    Launch(guardian::LaunchArgs),
    #[command(hide = true)]
    Hook(guardian::HookArgs),
    #[command(hide = true)]
    CertifyLoad(certify::LoadArgs),
}

/// The command line's definition, for help, completions, manual pages and documentation.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs the program with the arguments of this process.
pub fn main() -> ExitCode {
    output::fit_terminal();
    let matches = fitted(command(), table::text_width()).color(color_of_help()).get_matches();
    let cli = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    };
    let ui = Ui::new(cli.color.into());
    let done = match &cli.command {
        Command::Sim(args) => sim::run(args, &ui),
        Command::Sweep(args) => sweep::run(args, &ui),
        Command::Check(args) => check::run(args, &ui),
        Command::Synthesize(args) => synthesize::run(args, &ui),
        Command::Place(args) => place::run(args, &ui),
        Command::Run(args) => run::run(args, &ui),
        Command::Attach(args) => attach::run(args, &ui),
        Command::Top(args) => top::run(args, &ui),
        Command::Serve(args) => serve::run(args, &ui),
        Command::Enforce(args) => enforce::run(args, &ui),
        Command::Status(args) => status::run(args, &ui),
        Command::Why(args) => why::run(args, &ui),
        Command::Admit(args) => admit::run(args, &ui),
        Command::Adjust(args) => adjust::run(args, &ui),
        Command::Pause(args) => adjust::pause(args),
        Command::Resume(args) => adjust::resume(args),
        Command::Exec(args) => exec::run(args),
        Command::Switch(args) => switch::run(args, &ui),
        Command::Sockets(args) => sockets::run(args, &ui),
        Command::Xen(args) => xen::run(args, &ui),
        Command::HostStack(args) => host_stack::run(args, &ui),
        Command::Restore(args) => restore::run(args, &ui),
        Command::Compare(args) => compare::run(args, &ui),
        Command::Doctor(args) => doctor::run(args, &ui),
        Command::Calibrate(args) => calibrate::run(args, &ui),
        Command::Certify(args) => certify::run(args, &ui),
        Command::Export(args) => export::run(args, &ui),
        Command::Import(args) => import::run(args, &ui),
        Command::Report(args) => report::run(args, &ui),
        Command::Policies(args) => policies::run(args, &ui),
        Command::Reproduce(args) => reproduce::run(args, &ui),
        Command::Artifact(args) => artifact::run(args, &ui),
        Command::Show(args) => show::run(args, &ui),
        Command::Completions(args) => describe::completions(args, command(), &ui),
        Command::Man(args) => describe::man(args, command(), &ui),
        Command::Guardian(args) => guardian::guardian(args, &ui),
        Command::Launch(args) => guardian::launch(args, &ui),
        Command::Hook(args) => guardian::hook(args, &ui),
        Command::CertifyLoad(args) => certify::load(args),
    };
    ExitCode::from(match done {
        Ok(code) => code,
        Err(error) => explain(error, &ui),
    })
}

/// Help and usage errors are printed while arguments are still being read, so `--color` is looked up early.
fn color_of_help() -> clap::ColorChoice {
    // The name of a file need not be text.
    let args: Vec<_> = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let value = args.iter().enumerate().find_map(|(at, arg)| match arg.strip_prefix("--color") {
        Some("") => args.get(at + 1).map(String::as_str),
        Some(rest) => rest.strip_prefix('='),
        None => None,
    });
    match value {
        Some("always") => clap::ColorChoice::Always,
        Some("never") => clap::ColorChoice::Never,
        _ => clap::ColorChoice::Auto,
    }
}

fn explain(error: Error, ui: &Ui) -> u8 {
    match error {
        Error::Usage(text) => {
            ui.error(&text);
            exit::USAGE
        }
        Error::Host(errors) => {
            ui.print_errors(&errors.render(ui.stderr_has_colour()));
            exit::USAGE
        }
        Error::Import(rendered) => {
            ui.print_errors(&rendered);
            exit::USAGE
        }
        Error::Violation(text) => {
            ui.error(&text);
            exit::VIOLATION
        }
        Error::NotRestored(text) => {
            ui.error(&text);
            exit::NOT_RESTORED
        }
        Error::Interrupted => exit::INTERRUPTED,
        Error::BrokenPipe => exit::OK,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_violated_invariant_has_an_exit_code_of_its_own() {
        let ui = Ui::new(anstream::ColorChoice::Never);
        let code = |error: punctual_sim::Error| explain(error.into(), &ui);
        assert_eq!(
            code(punctual_sim::Error::Violation("two units share a processor".into())),
            exit::VIOLATION
        );
        assert_eq!(code(punctual_sim::Error::Refused("budget".into())), exit::USAGE);
    }

    #[test]
    fn the_definition_of_the_command_line_is_sound() {
        command().debug_assert();
    }
}
