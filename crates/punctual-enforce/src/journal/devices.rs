//! Network devices and their namespaces: `/sys/class/net` shows those of one namespace alone, and a device of
//! the same name in another one is another device.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use punctual_linux::os::net::DEVICES;

use super::claims::claims;
use super::{Contents, Resource};

impl Resource {
    /// A network device in the namespace of this process.
    ///
    /// # Errors
    /// `/proc` is not mounted.
    pub fn device(name: &str) -> io::Result<Resource> {
        Ok(Resource::Device { name: name.to_owned(), namespace: own_namespace()? })
    }
}

/// Why a file of a network device cannot be put back from here: the device is in another network namespace.
/// With that namespace the device is gone, and there is nothing to put back.
pub(super) fn elsewhere(contents: &Contents, path: &Path) -> Option<String> {
    let device = path.strip_prefix(DEVICES).ok()?.components().next()?;
    let home = claims(contents).find_map(|resource| match resource {
        Resource::Device { name, namespace } if name.as_str() == device.as_os_str() => Some(*namespace),
        _ => None,
    })?;
    if own_namespace().is_ok_and(|own| own == home) || !exists(home) {
        return None;
    }
    let path = path.display();
    Some(format!("{path}: the device is in network namespace {home}; run `punctual restore` there"))
}

/// The inode of this process's network namespace, which names it while it lives.
fn own_namespace() -> io::Result<u64> {
    Ok(fs::metadata("/proc/self/ns/net")?.ino())
}

/// Does any process live in the network namespace, or does `ip netns` hold it?
fn exists(namespace: u64) -> bool {
    let entries = |directory: &str| fs::read_dir(directory).into_iter().flatten().flatten();
    let of_processes = entries("/proc").map(|process| process.path().join("ns/net"));
    let named = entries("/run/netns").map(|entry| entry.path());
    of_processes.chain(named).any(|path| fs::metadata(path).is_ok_and(|file| file.ino() == namespace))
}
