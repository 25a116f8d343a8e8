//! Names in the tables of networks, before they are looked up.

use crate::file::error::Errors;
use crate::file::section::Section;
use crate::file::source::Place;

/// A name and where it was written.
#[derive(Clone)]
pub(crate) struct Name {
    pub(crate) text: String,
    pub(crate) place: Place,
}

/// The name of the section itself.
pub(super) fn own_name(section: Section<'_>) -> Name {
    Name { text: section.name.to_string(), place: section.place }
}

/// The name that stands under `key`.
pub(super) fn name_under(section: Section<'_>, key: &'static str, errors: &mut Errors) -> Option<Name> {
    let text = section.text(key, errors)?.to_string();
    Some(Name { text, place: section.place_of(key) })
}
