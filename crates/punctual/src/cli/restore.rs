//! `punctual restore`: undoes what dead runs left changed.

use punctual_live::journal;

use super::error::Error;
use super::exit;
use super::live::{abandoned, check_restored, restored};
use super::output::Ui;

/// Put back what a live run left changed when it died together with its guardian.
///
/// Says so if there is no such run. Leaves running ones alone.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    punctual restore                  undo every abandoned run\n  \
    punctual restore --json")]
pub struct Args {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Runs `punctual restore`.
pub fn run(args: &Args, ui: &Ui) -> Result<u8, Error> {
    let mut all = Vec::new();
    for path in abandoned()? {
        let done = journal::restore(&path).map_err(|e| Error::Usage(format!("{}: {e}", path.display())))?;
        all.push(done);
    }
    if args.json {
        ui.print_json(&all)?;
    } else if all.is_empty() {
        ui.print("nothing to put back\n")?;
    } else {
        for done in &all {
            ui.print(restored(done) + "\n")?;
        }
    }
    check_restored(&all)?;
    Ok(exit::OK)
}
