//! Loads that a test runs beside: programs of its own in the fair class, a thread of each for every
//! processor that it may use. What is measured must hold beside them.
//!
//! | load | does |
//! |---|---|
//! | `cpu` | computes |
//! | `memory` | copies 64 MiB back and forth, so that the memory controller is busy |
//! | `cache` | writes to every line of a buffer as large as the last-level cache |
//! | `disk` | writes 16 MiB into a temporary file and has the kernel put it on the disk |
//! | `net` | sends over TCP to itself on the loopback device: interrupts' lower halves are busy |
//!
//! A load ends when its program ends or is killed; the kernel kills it when the test dies.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use punctual_linux::child;
use punctual_linux::os::sched::{self, Attributes};

pub use punctual_model::acceptance::LOADS;

/// Bytes that `memory` copies.
const COPIED_BYTES: usize = 64 << 20;
/// Bytes that `disk` writes.
const WRITTEN_BYTES: usize = 16 << 20;
/// Bytes of a write to a file or a socket.
const CHUNK_BYTES: usize = 64 << 10;
/// What `cache` writes to where the kernel does not say how large the last-level cache is.
const CACHE_BYTES: usize = 8 << 20;

/// Why a load does not run.
#[derive(Debug, thiserror::Error)]
#[error("the load {load}: {error}")]
pub struct LoadError {
    /// Which.
    load: String,
    /// Why.
    #[source]
    error: io::Error,
}

/// Programs that run until this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Loads(Vec<(String, Child)>);

impl Loads {
    /// Starts these loads by a command of this program, which calls [`run_load`] with the name of one.
    pub(crate) fn start(names: &[String], program: &Path, command: &str) -> Result<Loads, LoadError> {
        let mut loads = Loads::default();
        for name in names {
            let mut load = Command::new(program);
            load.args([command, name]);
            load.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let child = child::spawn(load, Vec::new());
            let child = child.map_err(|error| LoadError { load: name.clone(), error })?;
            loads.0.push((name.clone(), child));
        }
        Ok(loads)
    }

    /// The first load that has ended, with its exit status.
    pub(crate) fn ended(&mut self) -> Option<String> {
        self.0.iter_mut().find_map(|(name, child)| match child.try_wait() {
            Ok(Some(status)) => Some(format!("the load {name} ended early ({status})")),
            _ => None,
        })
    }
}

impl Drop for Loads {
    fn drop(&mut self) {
        for (_, child) in &mut self.0 {
            // Fails only when it has ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs a load until this process is killed.
///
/// # Errors
/// It is not one of [`LOADS`], or the machine refuses what it does.
pub fn run_load(name: &str) -> Result<(), LoadError> {
    let failed = |error| LoadError { load: name.into(), error };
    let work = match name {
        "cpu" => compute,
        "memory" => copy,
        "cache" => write_lines,
        "disk" => write_disk,
        "net" => send,
        _ => return Err(failed(io::Error::other(format!("expected one of {}", LOADS.join(", "))))),
    };
    // Whatever the class of the test is.
    sched::set_attributes(0, &Attributes::other()).map_err(failed)?;
    let processors = sched::affinity(0).map_err(failed)?.len();
    let start = |_| std::thread::Builder::new().name(format!("load-{name}")).spawn(work);
    let threads = (0..processors).map(start).collect::<io::Result<Vec<_>>>().map_err(failed)?;
    for thread in threads {
        thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked"))).map_err(failed)?;
    }
    Ok(())
}

fn compute() -> io::Result<()> {
    let mut state = 1u64;
    loop {
        // xorshift64 (Marsaglia, "Xorshift RNGs", Journal of Statistical Software, 2003).
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        std::hint::black_box(state);
    }
}

fn copy() -> io::Result<()> {
    let (mut one, mut other) = (vec![1u8; COPIED_BYTES], vec![2u8; COPIED_BYTES]);
    loop {
        one.copy_from_slice(&other);
        other.copy_from_slice(std::hint::black_box(&one));
        std::hint::black_box(&other);
    }
}

fn write_lines() -> io::Result<()> {
    const LINE: usize = 64;
    let mut buffer = vec![0u8; last_level_cache_bytes().unwrap_or(CACHE_BYTES)];
    loop {
        buffer.iter_mut().step_by(LINE).for_each(|byte| *byte = byte.wrapping_add(1));
        std::hint::black_box(&buffer);
    }
}

/// The size of the last cache of the first processor, as `/sys` says it: `32768K`.
fn last_level_cache_bytes() -> Option<usize> {
    let size = |index: u32| {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size");
        std::fs::read_to_string(path).ok()
    };
    let text = (0..8).rev().find_map(size)?;
    let kib: usize = text.trim().strip_suffix('K')?.parse().ok()?;
    Some(kib.clamp(64, 1 << 20) << 10)
}

fn write_disk() -> io::Result<()> {
    let chunk = vec![7u8; CHUNK_BYTES];
    let mut file: File = tempfile::tempfile()?;
    loop {
        file.rewind()?;
        for _ in 0..WRITTEN_BYTES / CHUNK_BYTES {
            file.write_all(&chunk)?;
        }
        file.sync_data()?;
    }
}

fn send() -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut sender = TcpStream::connect(listener.local_addr()?)?;
    let (mut receiver, _) = listener.accept()?;
    let receive = move || {
        let mut buffer = vec![0u8; CHUNK_BYTES];
        while receiver.read(&mut buffer).is_ok_and(|bytes| bytes > 0) {}
    };
    std::thread::Builder::new().name("load-net".into()).spawn(receive)?;
    let chunk = vec![7u8; CHUNK_BYTES];
    loop {
        sender.write_all(&chunk)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_that_nobody_knows_is_refused_and_one_that_ends_is_noticed() {
        let error = run_load("gpu").expect_err("there is none").to_string();
        assert_eq!(error, "the load gpu: expected one of cpu, memory, cache, disk, net");
        let mut loads = Loads::start(&["cpu".into()], Path::new("/bin/false"), "x").expect("started");
        while loads.ended().is_none() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert!(loads.ended().is_some_and(|text| text.contains("the load cpu ended early")));
    }
}
