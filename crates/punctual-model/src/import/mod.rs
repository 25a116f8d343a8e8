//! Host files from what other tools write: libvirt's domain XML, what `xl` prints, workloads of rt-app,
//! systems of CARTS.
//!
//! An importer turns its files into a draft; the draft becomes the text of a host file, and that is read by
//! the ordinary parser, so an import obeys every rule of the host file. What the parser refuses is reported
//! at the place in the imported file that the value came from. `docs/export.md` says what becomes of what.

mod carts;
mod draft;
mod input;
mod json;
mod libvirt;
mod names;
mod note;
mod rt_app;
mod write;
mod xl;
mod xml;

use punctual_sched::Duration;
use punctual_sched::registry::PolicyInfo;

use crate::file::{Errors, Overrides, parse};
use crate::host::Host;

pub use note::Note;

use draft::HostDraft;
use input::Input;

/// What the files are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Domain XML, a file for each domain (<https://libvirt.org/formatdomain.html>).
    Libvirt,
    /// What `xl cpupool-list`, `sched-rtds`, `sched-credit`, `sched-credit2` and `vcpu-list` print, in any
    /// order.
    Xl,
    /// rt-app's workloads (<https://github.com/scheduler-tools/rt-app>, `doc/tutorial.txt`), with what json-c
    /// and workgen permit beyond JSON: comments, trailing commas, keys more than once.
    RtApp,
    /// Systems of components and tasks of CARTS (<https://rtg.cis.upenn.edu/carts/>), or its results.
    Carts,
}

impl Format {
    /// All formats, in the order in which they are shown to users.
    pub const ALL: [Format; 4] = [Format::Libvirt, Format::Xl, Format::RtApp, Format::Carts];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Format::Libvirt => "libvirt",
            Format::Xl => "xl",
            Format::RtApp => "rt-app",
            Format::Carts => "carts",
        }
    }
}

/// What the files do not say.
#[derive(Clone, Copy, Debug)]
pub struct Settings<'a> {
    /// The host's name.
    pub name: &'a str,
    /// Processors of the machine; by default one more than the highest number that is named.
    pub processors: Option<usize>,
    /// The policy of every pool instead of the one that fits the files.
    pub policy: Option<&'static PolicyInfo>,
    /// Length of CARTS's unit of time; its files do not name it.
    pub carts_unit: Duration,
}

impl Default for Settings<'_> {
    fn default() -> Self {
        Settings { name: "imported", processors: None, policy: None, carts_unit: Duration::from_ms(1) }
    }
}

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
        Format::Libvirt => libvirt::read(&mut input),
        Format::Xl => xl::read(&mut input),
        Format::RtApp => rt_app::read(&mut input),
        Format::Carts => carts::read(&mut input, settings.carts_unit),
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
    for pool in &mut draft.pools {
        if let Some(policy) = settings.policy.filter(|policy| policy.name != pool.policy) {
            pool.policy = policy.name;
            pool.options.clear();
        }
    }
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
