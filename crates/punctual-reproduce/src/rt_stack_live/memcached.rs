//! Debian's memcached, for guests and for the host, and the load generator of the thesis (s.6.7.2).

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration as StdDuration;

use punctual_linux::child;
use punctual_vm::image::programs;

use super::affinity::of_others;
use super::generator::{CONCURRENCY, Generated};
use super::lab::{ADDRESS, Extra, Running, wait_for_end};
use crate::error::Error;
use crate::target::LiveOptions;

const PACKAGES: [&str; 9] = [
    "memcached",
    "util-linux",
    "libevent-2.1-7",
    "libsasl2-2",
    "libssl3",
    "libmemcached-tools",
    "libmemcached11",
    "libhashkit2",
    "libstdc++6",
];

/// By name in the packages, and in the guest.
const FILES: [(&str, &str); 6] = [
    ("memcached", "cache/memcached"),
    // The guest's busybox has no such applet.
    ("chrt", "cache/chrt"),
    ("libevent-2.1.so.7", "cache/libevent-2.1.so.7"),
    ("libsasl2.so.2", "cache/libsasl2.so.2"),
    ("libssl.so.3", "cache/libssl.so.3"),
    ("libcrypto.so.3", "cache/libcrypto.so.3"),
];
/// What the load generator needs besides, on the host alone.
const GENERATOR: [(&str, &str); 4] = [
    ("memcaslap", "load/memcaslap"),
    ("libmemcached.so.11", "load/libmemcached.so.11"),
    ("libhashkit.so.2", "load/libhashkit.so.2"),
    ("libstdc++.so.6", "load/libstdc++.so.6"),
];

/// Of both: 64 MiB, one thread, no datagrams.
const ARGUMENTS: &str = "-u root -m 64 -t 1 -U 0";
/// The guest's priority of it; without one it waits for all that the guest's kernel does beside.
const GUEST_PRIORITY: u32 = 40;

/// Lengths of keys and values (s.6.7.2).
pub(super) const KEY_BYTES: usize = 64;
pub(super) const VALUE_BYTES: usize = 1024;
/// One in so many requests to memcached sets a value; the others get one.
pub(super) const SETS: u64 = 10;

/// Where Debian's programs are on the host.
pub(super) struct Programs {
    root: PathBuf,
}

impl Programs {
    /// Fetches them.
    ///
    /// # Errors
    /// They are not to be had.
    pub(super) fn fetch(options: &LiveOptions<'_>) -> Result<Programs, Error> {
        let files = [&FILES[..], &GENERATOR[..]].concat();
        let root = programs::fetch(&PACKAGES, &files, options.progress, options.stop);
        Ok(Programs { root: root.map_err(|error| Error::Lab(error.to_string()))? })
    }

    /// memcached, for guests and for the host.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(super) fn server(&self) -> Result<Extra, Error> {
        let mut files = vec![("etc/passwd".to_owned(), b"root:x:0:0::/:/bin/sh\n".to_vec())];
        for (_, place) in FILES {
            let path = self.root.join(place);
            let bytes =
                fs::read(&path).map_err(|error| Error::Lab(format!("{}: {error}", path.display())))?;
            files.push((place.to_owned(), bytes));
        }
        let start = format!(
            "LD_LIBRARY_PATH=/lib:/cache /cache/chrt -f {GUEST_PRIORITY} /cache/memcached {ARGUMENTS} -l \
             {ADDRESS} &\n"
        );
        let libraries = format!("LD_LIBRARY_PATH={}", self.root.join("cache").display());
        let program = self.root.join("cache/memcached").display().to_string();
        let mut command = vec!["env".to_owned(), libraries, program];
        command.extend(format!("{ARGUMENTS} -l {ADDRESS}").split(' ').map(str::to_owned));
        Ok(Extra { files, start, command })
    }

    /// Lets the load generator ask a server for so many seconds, as fast as it answers.
    ///
    /// # Errors
    /// It does not run, or gets no answers.
    pub(super) fn generate(
        &self,
        options: &LiveOptions<'_>,
        at: SocketAddr,
        seconds: u64,
    ) -> Result<Generated, Error> {
        let failed = |error: &dyn std::fmt::Display| Error::Lab(format!("memcaslap: {error}"));
        let folder = tempfile::tempdir().map_err(|error| failed(&error))?;
        let mix = folder.path().join("mix");
        let sets = 1.0 / SETS as f64;
        let of = format!(
            "key\n{KEY_BYTES} {KEY_BYTES} 1\nvalue\n{VALUE_BYTES} {VALUE_BYTES} 1\ncmd\n0 {sets}\n1 {}\n",
            1.0 - sets
        );
        fs::write(&mix, of).map_err(|error| failed(&error))?;
        let said = folder.path().join("said");
        let output = fs::File::create(&said).map_err(|error| failed(&error))?;
        let mut command = of_others(&self.root.join("load/memcaslap"));
        command.env("LD_LIBRARY_PATH", self.root.join("load"));
        command.args(["-s", &at.to_string(), "-T", "1", "-c", &CONCURRENCY.to_string(), "-w", "1k"]);
        command.args(["-t", &format!("{seconds}s"), "-S", &format!("{seconds}s"), "-F"]).arg(&mix);
        command.stdout(output).stderr(Stdio::null());
        let running = child::spawn(command, Vec::new()).map(Running).map_err(|error| failed(&error))?;
        wait_for_end(running, "memcaslap", options.stop, StdDuration::from_secs(seconds + 20))?;
        let said = fs::read_to_string(&said).map_err(|error| failed(&error))?;
        parse(&said).ok_or_else(|| failed(&format!("it tells no statistics of {at}")))
    }
}

/// Reads the end of what memcaslap tells.
fn parse(said: &str) -> Option<Generated> {
    let (_, total) = said.rsplit_once("Total Statistics (")?;
    let value = |of: &str| {
        let line = total.lines().find_map(|line| line.trim().strip_prefix(of))?;
        Some(line.split_whitespace().next()?.to_owned())
    };
    let (_, after) = total.rsplit_once("TPS:")?;
    let per_second = after.split_whitespace().next()?.parse().ok()?;
    Some(Generated { per_second, cells: vec![value("Avg:")?, value("Std:")?] })
}

#[cfg(test)]
mod tests {
    use super::{Generated, parse};

    #[test]
    fn what_memcaslap_tells_is_read() {
        let said = "Total Statistics\nType Time(s)\n\nGet Statistics (9 events)\n   Avg:  7\n\n\
                    Total Statistics (134145 events)\n   Min:        10\n   Max:     38488\n\
                    \x20  Avg:        59\n   Geo:     48.09\n   Std:    320.39\n\ncmd_get: 120732\n\
                    Run time: 2.0s Ops: 134149 TPS: 67068 Net_rate: 75.0M/s\n";
        let read = Generated { per_second: 67068.0, cells: vec!["59".into(), "320.39".into()] };
        assert_eq!(parse(said), Some(read));
        assert_eq!(parse("servers: 127.0.0.1:11211\n"), None);
    }
}
