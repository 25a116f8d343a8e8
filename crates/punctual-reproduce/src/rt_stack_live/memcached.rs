//! Debian's memcached, for guests and for the host.

use std::fs;

use punctual_live::image::programs;

use super::lab::{ADDRESS, Extra};
use crate::Error;
use crate::live::LiveOptions;

const PACKAGES: [&str; 4] = ["memcached", "libevent-2.1-7", "libsasl2-2", "libssl3"];

/// By name in the packages, and in the guest.
const FILES: [(&str, &str); 5] = [
    ("memcached", "cache/memcached"),
    ("libevent-2.1.so.7", "cache/libevent-2.1.so.7"),
    ("libsasl2.so.2", "cache/libsasl2.so.2"),
    ("libssl.so.3", "cache/libssl.so.3"),
    ("libcrypto.so.3", "cache/libcrypto.so.3"),
];

/// Of both: 32 MiB, one thread, no datagrams.
const ARGUMENTS: &str = "-u root -m 32 -t 1 -U 0";
/// The guest's priority of it; without one it waits for all that the guest's kernel does beside.
const GUEST_PRIORITY: u32 = 40;

/// Fetches it.
///
/// # Errors
/// It is not to be had.
pub(super) fn fetch(options: &LiveOptions<'_>) -> Result<Extra, Error> {
    let root = programs::fetch(&PACKAGES, &FILES, options.progress, options.stop);
    let root = root.map_err(|error| Error::Lab(error.to_string()))?;
    let mut files = vec![("etc/passwd".to_owned(), b"root:x:0:0::/:/bin/sh\n".to_vec())];
    for (_, place) in FILES {
        let path = root.join(place);
        let bytes = fs::read(&path).map_err(|error| Error::Lab(format!("{}: {error}", path.display())))?;
        files.push((place.to_owned(), bytes));
    }
    let start = format!(
        "LD_LIBRARY_PATH=/lib:/cache busybox chrt -f {GUEST_PRIORITY} /cache/memcached {ARGUMENTS} -l \
         {ADDRESS} &\n"
    );
    let libraries = format!("LD_LIBRARY_PATH={}", root.join("cache").display());
    let program = root.join("cache/memcached").display().to_string();
    let mut command = vec!["env".to_owned(), libraries, program];
    command.extend(ARGUMENTS.split(' ').map(str::to_owned));
    Ok(Extra { files, start, command })
}
