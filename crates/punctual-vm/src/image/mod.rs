//! Guests to boot: a Linux kernel and an initramfs with busybox, the guest program and cyclictest.
//!
//! [`prepare`] makes an image of Debian packages, which it downloads and unpacks but does not install. It
//! keeps the image in the cache, under a name that follows from what the image was made of. The first call
//! downloads about 35 MB; later calls find the files in the cache.

pub mod cpio;
mod error;
mod kernel;
mod modules;
mod packages;
pub mod programs;
pub mod sockets;

use std::fs;
use std::path::{Path, PathBuf};

use crate::cache::{Cache, FileError, name_of};
use crate::workload;
use punctual_linux::channel::Stop;

pub use error::{Error, ProgramError};

/// The program that the guest's kernel starts first.
const INIT: &str = include_str!("init.sh");

/// The guest kernel's command line. Errors go to the serial port; a panic ends QEMU; nothing runs
/// periodically by itself; real-time threads preempt the kernel; the time-stamp counter is the clock even if
/// the guest was not scheduled for long; the kernel does not test its ciphers, which takes a translated guest
/// a sixth of the processor time of its boot.
const APPEND: &str = "console=ttyS0 quiet panic=-1 nowatchdog preempt=full tsc=reliable mitigations=off \
                      audit=0 cryptomgr.notests";

/// The name of the virtio port over which host and guest program talk.
pub const PORT: &str = "org.punctual.guest";

/// What a VM boots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The kernel.
    pub kernel: PathBuf,
    /// The initramfs.
    pub initrd: PathBuf,
    /// The kernel's command line.
    pub append: String,
    /// The Debian packages that it was made of, with their versions.
    pub packages: Vec<String>,
}

/// Makes the image in the user's cache, unless it is there. `progress` gets a line before each step that
/// takes long; `stop` ends it early.
///
/// # Errors
/// Why it cannot be made, and what helps.
pub fn prepare(progress: &dyn Fn(&str), stop: Stop) -> Result<Image, Error> {
    prepare_in(&Cache::of_user()?, progress, stop)
}

/// As [`prepare`], in any cache.
///
/// # Errors
/// As [`prepare`].
pub fn prepare_in(cache: &Cache, progress: &dyn Fn(&str), stop: Stop) -> Result<Image, Error> {
    let parts_name = format!("guest-parts-{}", name_of(&[packages::recipe().as_bytes()]));
    let parts = cache.path(&parts_name);
    if !parts.is_dir() {
        let waiting = || progress("waiting for another punctual to make the guest image");
        let _lock = cache.lock(waiting, stop)?.ok_or(Error::Stopped)?;
        if !parts.is_dir() {
            let draft = cache.draft()?;
            packages::fetch(&draft, progress, stop)?;
            draft.keep("parts", cache, &parts_name)?;
        }
    }
    let list = parts.join("packages");
    let versions = fs::read_to_string(&list).map_err(FileError::of("read", &list))?;
    let name = name_of(&[versions.as_bytes(), INIT.as_bytes(), workload::PROGRAM]);
    let name = format!("guest-initrd-{name}");
    let mut initrd = cache.path(&name);
    if !initrd.is_file() {
        progress("making the guest's initramfs");
        initrd = cache.write(&name, &initramfs(&parts.join("root"))?, 0o644)?;
    }
    Ok(Image {
        kernel: parts.join(packages::BOOTED),
        initrd,
        append: APPEND.into(),
        packages: versions.lines().map(str::to_owned).collect(),
    })
}

/// Writes the initramfs `base` with further files behind it to `to`, for anyone to read. A file is named by
/// its path from the root; all but the last part of it are directories that are made.
///
/// # Errors
/// When a file cannot be read or written.
pub fn append(base: &Path, files: &[(&str, &[u8])], to: &Path) -> Result<(), FileError> {
    let mut bytes = fs::read(base).map_err(FileError::of("read", base))?;
    // The kernel unpacks one archive after the other; each begins at a multiple of four bytes.
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    let mut archive = cpio::Archive::default();
    let mut made: Vec<&str> = Vec::new();
    for (path, contents) in files {
        for (at, _) in path.match_indices('/') {
            if !made.contains(&&path[..at]) {
                archive.directory(&path[..at]);
                made.push(&path[..at]);
            }
        }
        archive.file(path, contents);
    }
    bytes.extend(archive.finish());
    fs::write(to, bytes).map_err(FileError::of("write", to))
}

/// The archive of a guest whose files from packages are under `root`.
fn initramfs(root: &Path) -> Result<Vec<u8>, FileError> {
    let mut archive = cpio::Archive::default();
    for directory in ["bin", "dev", "lib", "lib64", "modules", "proc", "root", "sys", "tmp"] {
        archive.directory(directory);
    }
    // The kernel opens it for the first process, before that process mounts anything.
    archive.device("dev/console", 5, 1);
    archive.link("bin/sh", "busybox");
    archive.file("init", INIT.as_bytes());
    archive.file("bin/punctual-guest", workload::PROGRAM);
    for directory in ["bin", "lib", "lib64", "modules"] {
        let path = root.join(directory);
        let entries = fs::read_dir(&path).map_err(FileError::of("read", &path))?;
        let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
        names.sort();
        for name in names {
            let file = path.join(&name);
            let contents = fs::read(&file).map_err(FileError::of("read", &file))?;
            archive.file(&format!("{directory}/{}", name.to_string_lossy()), &contents);
        }
    }
    Ok(archive.finish())
}
