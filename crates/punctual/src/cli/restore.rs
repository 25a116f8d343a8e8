//! `punctual restore`: undoes what dead runs left changed.

use punctual_run::abandoned;

use super::error::Error;
use super::exit;
use super::live::{check_restored, restored};
use super::output::Ui;
use super::rights::{self, Needs};

/// Undo the changes of a live run that was killed together with its guardian.
///
/// Prints a line if there is no such run. Does not touch runs that are alive, and waits for a guardian that
/// is restoring. Entries that another user may have written are rejected and named.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    punctual restore                  undo every abandoned run\n  \
    punctual restore --json")]
pub(super) struct Args {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Runs `punctual restore`.
pub(super) fn run(args: &Args, ui: &Ui) -> Result<u8, Error> {
    rights::check("restore", Needs::State)?;
    let (mut all, mut by_guardians, mut errors) = (Vec::new(), 0, Vec::new());
    for path in abandoned::journals()? {
        match abandoned::undo(&path, |text| ui.warn(&text)) {
            Ok(Some(done)) => all.push(done),
            Ok(None) => by_guardians += 1,
            // The other runs are undone nevertheless.
            Err(error) => errors.push(error),
        }
    }
    if args.json {
        ui.print_json(&all)?;
    } else {
        for done in &all {
            ui.print(restored(done) + "\n")?;
        }
        for _ in 0..by_guardians {
            ui.print("the guardian of the run has undone its changes\n")?;
        }
        if all.is_empty() && by_guardians == 0 && errors.is_empty() {
            ui.print("nothing to put back\n")?;
        }
    }
    check_restored(&all, errors)?;
    Ok(exit::OK)
}
