//! Groups by name.

use std::path::Path;
use std::{fs, io};

/// The id of the group of this name in the file `groups` (normally `/etc/group`); `None` when there is none.
///
/// # Errors
/// The file cannot be read.
pub fn group_id(name: &str, groups: &Path) -> io::Result<Option<u32>> {
    let id = |line: &str| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok()).flatten()
    };
    Ok(fs::read_to_string(groups)?.lines().find_map(id))
}
