//! Programs of Debian's for guests of measurements, taken out of their packages.

use std::path::PathBuf;

use super::error::Error;
use super::name_of;
use super::packages::{apt, copy, files_ending, find, make_directory, unpack, walk};
use crate::cache::Cache;
use punctual_linux::channel::Stop;

/// The directory with these files of these packages: of each its name there and its path in the directory. It
/// is kept in the user's cache.
///
/// # Errors
/// When there is no APT, a package cannot be downloaded, or lacks a file.
pub fn fetch(
    packages: &[&str],
    files: &[(&str, &str)],
    progress: &dyn Fn(&str),
    stop: Stop,
) -> Result<PathBuf, Error> {
    let cache = Cache::of_user()?;
    let recipe = format!("{packages:?} {files:?}");
    let name = format!("guest-programs-{}", name_of(&[recipe.as_bytes()]));
    let place = cache.path(&name);
    if place.is_dir() {
        return Ok(place);
    }
    let waiting = || progress("waiting for another punctual to fetch programs");
    let _lock = cache.lock(waiting, stop)?.ok_or(Error::Stopped)?;
    if place.is_dir() {
        return Ok(place);
    }
    let draft = cache.draft()?;
    progress(&format!("downloading Debian packages: {}", packages.join(", ")));
    let mut arguments = vec!["-qq", "-o", "APT::Sandbox::User=root", "download"];
    arguments.extend(packages);
    apt("apt-get", &arguments, &draft.path, stop)?;
    let mut trees = Vec::new();
    for package in files_ending(&draft.path, ".deb")? {
        let tree = package.with_extension("tree");
        unpack(&package, &tree, stop)?;
        trees.push(tree);
    }
    let found = walk(&trees)?;
    let part = draft.path.join("programs");
    make_directory(&part)?;
    for (name, to) in files {
        copy(&find(&found, name)?, &part.join(to))?;
    }
    Ok(draft.keep("programs", &cache, &name)?)
}
