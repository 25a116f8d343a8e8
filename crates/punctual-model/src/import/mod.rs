//! Host files from what other tools write: libvirt's domain XML, what `xl` prints, workloads of rt-app,
//! systems of CARTS, task sets of SchedCAT, simulations of SimSo, tables of tasks.
//!
//! An importer turns its files into a draft; the draft becomes the text of a host file, and that is read by
//! the ordinary parser, so an import obeys every rule of the host file. What the parser refuses is reported
//! at the place in the imported file that the value came from. `docs/import.md` says what becomes of what.

mod carts;
mod csv;
mod draft;
mod input;
mod json;
mod libvirt;
mod names;
mod note;
mod policy;
mod rt_app;
mod schedcat;
mod settings;
mod simso;
mod task_set;
mod write;
mod xl;
mod xml;

use punctual_sched::Duration;

use crate::file::{Errors, Overrides, parse};
use crate::host::Host;

pub use note::Note;
pub use settings::{Format, Settings};

use draft::HostDraft;
use input::Input;

/// The outcome of an import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// The host file, with the notes as comments.
    pub toml: String,
    /// What it means.
    pub host: Host,
    /// What was not understood or is not the same, in the order of the files.
    pub notes: Vec<Note>,
}

/// Makes one host of `files`, each its name and its bytes.
///
/// # Errors
/// All that is wrong with the files, or with the host that they describe.
pub fn import(format: Format, files: &[(&str, &[u8])], settings: &Settings<'_>) -> Result<Imported, Errors> {
    let mut input = Input::new(files);
    if input.errors.count() > 0 {
        return Err(input.errors.sorted());
    }
    let draft = match format {
        Format::Libvirt => libvirt::read(&mut input, settings),
        Format::Xl => xl::read(&mut input, settings),
        Format::RtApp => rt_app::read(&mut input, settings),
        Format::Carts => carts::read(&mut input, settings.unit.unwrap_or(Duration::from_ms(1))),
        Format::SchedCat => schedcat::read(&mut input, settings),
        Format::SimSo => simso::read(&mut input, settings),
        Format::Csv => csv::read(&mut input, settings),
    };
    if input.errors.count() > 0 {
        return Err(input.errors.sorted());
    }
    finish(draft, format, input, settings)
}

/// Writes the draft and has the parser judge it.
fn finish(
    mut draft: HostDraft,
    format: Format,
    mut input: Input,
    settings: &Settings<'_>,
) -> Result<Imported, Errors> {
    draft.processors = settings.processors.unwrap_or(draft.processors).max(1);
    policy::choose(&mut input, &mut draft, format, settings);
    names::adapt(&mut input, &mut draft);
    let notes = input.notes();
    let written = write::write(&draft, settings.name, &input.heading(format.name(), &notes));
    match parse(&written.text, "import.toml", &Overrides::default()) {
        Ok(host) => Ok(Imported { toml: written.text, host, notes }),
        Err(errors) => {
            for record in errors.records() {
                input.refused(written.place_of(record.line), &record);
            }
            Err(input.errors.sorted())
        }
    }
}
