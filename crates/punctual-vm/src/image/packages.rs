//! Takes files out of Debian packages, without installing anything.
//!
//! APT downloads the packages and `dpkg-deb` unpacks them. No crate could replace APT, which knows the
//! packages' sources and checks their signatures; and where APT is, `dpkg-deb` is too.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::error::{Error, ProgramError};
use super::kernel;
use super::modules::{self, Module};
use crate::cache::{Draft, FileError};
use punctual_linux::channel::Stop;
use punctual_linux::child;

/// Depends on the package of the newest kernel for virtual machines.
const KERNEL: &str = "linux-image-cloud-amd64";

/// The other packages. The libraries are those of cyclictest.
const PACKAGES: [&str; 4] = ["busybox-static", "rt-tests", "libnuma1", "libc6"];

/// Files that a guest has besides the guest program: name in the package, path in the guest.
const FILES: [(&str, &str); 7] = [
    ("busybox", "bin/busybox"),
    ("cyclictest", "bin/cyclictest"),
    ("ld-linux-x86-64.so.2", "lib64/ld-linux-x86-64.so.2"),
    ("libc.so.6", "lib/libc.so.6"),
    ("libpthread.so.0", "lib/libpthread.so.0"),
    ("librt.so.1", "lib/librt.so.1"),
    ("libnuma.so.1", "lib/libnuma.so.1"),
];

/// Drivers of the devices that a VM may have.
const MODULES: [&str; 4] = ["virtio_pci", "virtio_console", "virtio_net", "virtio_blk"];

/// The kernel's file among the parts.
pub(super) const BOOTED: &str = "kernel";

/// All constants of this file that decide what [`fetch`] makes.
pub(super) fn recipe() -> String {
    format!("2 {KERNEL} {PACKAGES:?} {FILES:?} {MODULES:?}")
}

/// Makes the directory `parts` of a draft: [`BOOTED`], the kernel, `packages` (their names and versions, a
/// line each) and `root`, the guest's files.
///
/// # Errors
/// When there is no APT, a package cannot be downloaded, or a package lacks a file.
pub(super) fn fetch(draft: &Draft, progress: &dyn Fn(&str), stop: Stop) -> Result<(), Error> {
    if std::env::consts::ARCH != "x86_64" {
        return Err(Error::Architecture(std::env::consts::ARCH));
    }
    download(&draft.path, progress, stop)?;
    progress("unpacking kernel, drivers, busybox and cyclictest");
    let parts = draft.path.join("parts");
    let root = parts.join("root");
    make_directory(&root)?;
    let mut trees = Vec::new();
    let mut versions = String::new();
    for package in files_ending(&draft.path, ".deb")? {
        let tree = package.with_extension("tree");
        unpack(&package, &tree, stop)?;
        versions.push_str(&package.file_stem().unwrap_or_default().to_string_lossy());
        versions.push('\n');
        trees.push(tree);
    }
    let files = walk(&trees)?;
    for (name, place) in FILES {
        copy(&find(&files, name)?, &root.join(place))?;
    }
    copy_kernel(&find_start(&files, "vmlinuz-")?, &parts.join(BOOTED))?;
    copy_modules(&files, &root)?;
    let list = parts.join("packages");
    Ok(fs::write(&list, versions).map_err(FileError::of("write", &list))?)
}

/// Writes the kernel without its compression where that is possible.
fn copy_kernel(from: &Path, to: &Path) -> Result<(), Error> {
    let image = fs::read(from).map_err(FileError::of("read", from))?;
    let kernel = kernel::uncompressed(&image).unwrap_or(image);
    Ok(fs::write(to, kernel).map_err(FileError::of("write", to))?)
}

/// Unpacks a package into the directory `tree`.
pub(super) fn unpack(package: &Path, tree: &Path, stop: Stop) -> Result<(), Error> {
    let mut command = Command::new("dpkg-deb");
    command.arg("-x").arg(package).arg(tree);
    run(&mut command, "dpkg-deb", "apt install dpkg", stop).map(|_| ())
}

/// Downloads the packages into `directory`.
fn download(directory: &Path, progress: &dyn Fn(&str), stop: Stop) -> Result<(), Error> {
    let mut wanted = vec![concrete_kernel(&apt("apt-cache", &["depends", KERNEL], directory, stop)?)?];
    wanted.extend(PACKAGES.map(str::to_owned));
    progress(&format!("downloading Debian packages: {}", wanted.join(", ")));
    let mut arguments = vec!["-qq", "-o", "APT::Sandbox::User=root", "download"];
    arguments.extend(wanted.iter().map(String::as_str));
    apt("apt-get", &arguments, directory, stop)?;
    Ok(())
}

/// The package that the kernel's package depends on, from what `apt-cache depends` prints.
fn concrete_kernel(depends: &str) -> Result<String, Error> {
    let names = depends.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    let mut kernels = names.filter(|name| name.starts_with("linux-image-"));
    kernels.next().map(str::to_owned).ok_or(Error::NoKernel(KERNEL))
}

/// Runs a program of APT in `directory`; returns what it prints.
pub(super) fn apt(program: &str, arguments: &[&str], directory: &Path, stop: Stop) -> Result<String, Error> {
    let cure = "guest images are made of Debian packages; elsewhere name `kernel` and `initrd` of your own";
    let mut command = Command::new(program);
    command.args(arguments).current_dir(directory).env("LC_ALL", "C");
    run(&mut command, program, cure, stop).map_err(|error| match error {
        Error::Program(error) if error.is_unknown_package() => Error::PackageLists(error),
        error => error,
    })
}

/// Runs a program that `cure` installs; returns what it prints. It is killed if the user wants an end.
pub(super) fn run(
    command: &mut Command,
    program: &str,
    cure: &'static str,
    stop: Stop,
) -> Result<String, Error> {
    let program = program.to_owned();
    let output = match child::output(command, stop) {
        Ok(output) => output.ok_or(Error::Stopped)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(ProgramError::NotFound { program, cure }.into());
        }
        Err(source) => return Err(ProgramError::Start { program, source }.into()),
    };
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(ProgramError::Failed { program, status: output.status, message }.into())
}

pub(super) fn make_directory(path: &Path) -> Result<(), FileError> {
    fs::create_dir_all(path).map_err(FileError::of("create", path))
}

pub(super) fn copy(from: &Path, to: &Path) -> Result<(), FileError> {
    make_directory(to.parent().unwrap_or(Path::new("/")))?;
    fs::copy(from, to).map(|_| ()).map_err(FileError::of("write", to))
}

/// Files of a directory whose name ends so, sorted.
pub(super) fn files_ending(directory: &Path, end: &str) -> Result<Vec<PathBuf>, FileError> {
    let entries = fs::read_dir(directory).map_err(FileError::of("read", directory))?;
    let paths = entries.flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = paths.filter(|path| path.to_string_lossy().ends_with(end)).collect();
    files.sort();
    Ok(files)
}

/// All files under the directories, links excepted, sorted.
pub(super) fn walk(roots: &[PathBuf]) -> Result<Vec<PathBuf>, FileError> {
    let mut files = Vec::new();
    let mut directories = roots.to_vec();
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).map_err(FileError::of("read", &directory))?.flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => directories.push(entry.path()),
                Ok(kind) if kind.is_file() => files.push(entry.path()),
                _ => {}
            }
        }
    }
    files.sort();
    Ok(files)
}

/// The program or library of that name. The name of a library may be a link to a file with the full version
/// in its name; then that file is found.
pub(super) fn find(files: &[PathBuf], name: &str) -> Result<PathBuf, Error> {
    let versioned = format!("{name}.");
    let named = |path: &&PathBuf| {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        file == name || (name.contains(".so.") && file.starts_with(&versioned))
    };
    // In other directories, files of the same name are documentation or configuration (`busybox` of
    // initramfs-tools).
    let runs = |path: &&PathBuf| {
        let ours = path
            .components()
            .any(|part| ["bin", "sbin", "lib", "lib64"].iter().any(|d| part.as_os_str() == *d));
        ours && fs::metadata(path)
            .is_ok_and(|meta| name.contains(".so.") || meta.permissions().mode() & 1 != 0)
    };
    files.iter().filter(named).find(runs).cloned().ok_or_else(|| missing(name))
}

fn find_start(files: &[PathBuf], start: &str) -> Result<PathBuf, Error> {
    let named = |path: &&PathBuf| path.file_name().unwrap_or_default().to_string_lossy().starts_with(start);
    files.iter().find(named).cloned().ok_or_else(|| missing(start))
}

fn missing(name: &str) -> Error {
    Error::Missing(name.to_owned())
}

/// Puts the drivers into `root/modules`. Their names ascend in the order in which they can be loaded.
fn copy_modules(files: &[PathBuf], root: &Path) -> Result<(), Error> {
    let busybox = root.join("bin/busybox");
    let modules = wanted_modules(files, &busybox)?;
    let builtin = find_start(files, "modules.builtin").ok();
    let builtin = builtin.and_then(|list| fs::read_to_string(list).ok()).unwrap_or_default();
    let builtin: Vec<String> = builtin.lines().filter_map(|line| modules::name_of(Path::new(line))).collect();
    let order = modules::load_order(&MODULES, &modules, &builtin)
        .map_err(|modules::MissingModule(name)| missing(&format!("{name}.ko")))?;
    make_directory(&root.join("modules"))?;
    for (number, module) in order.iter().enumerate() {
        let name = modules::name_of(&module.file).unwrap_or_default();
        let place = root.join(format!("modules/{number:02}-{name}.ko"));
        fs::write(&place, contents(&module.file, &busybox)?).map_err(FileError::of("write", &place))?;
    }
    Ok(())
}

/// The drivers and the modules that they need, as far as they are among `files`, by name.
fn wanted_modules(files: &[PathBuf], busybox: &Path) -> Result<HashMap<String, Module>, Error> {
    let named = |file: &PathBuf| Some((modules::name_of(file)?, file.clone()));
    let places: HashMap<String, PathBuf> = files.iter().filter_map(named).collect();
    let mut found = HashMap::new();
    let mut wanted: Vec<String> = MODULES.map(str::to_owned).into();
    while let Some(name) = wanted.pop() {
        if let Some(file) = places.get(&name).filter(|_| !found.contains_key(&name)) {
            let needs = modules::needs(&contents(file, busybox)?);
            wanted.extend(needs.iter().cloned());
            found.insert(name, Module { file: file.clone(), needs });
        }
    }
    Ok(found)
}

/// A module's contents. Debian compresses them from its release 13 on; the guest's busybox decompresses them,
/// so that no crate is needed for it.
fn contents(module: &Path, busybox: &Path) -> Result<Vec<u8>, Error> {
    if module.extension().is_none_or(|extension| extension != "xz") {
        return Ok(fs::read(module).map_err(FileError::of("read", module))?);
    }
    match Command::new(busybox).arg("xzcat").arg(module).output() {
        Ok(output) if output.status.success() => Ok(output.stdout),
        _ => Err(Error::Decompress(module.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_what_its_package_depends_on() {
        let depends = "linux-image-cloud-amd64\n  Depends: linux-image-6.1.0-56-cloud-amd64\n";
        assert_eq!(concrete_kernel(depends).expect("a kernel"), "linux-image-6.1.0-56-cloud-amd64");
        let error = concrete_kernel("linux-image-cloud-amd64\n").unwrap_err().to_string();
        assert!(error.contains("apt-get update"), "{error}");
    }

    #[test]
    fn errors_of_a_missing_program_and_a_full_disk_say_what_helps() {
        let error = apt("punctual-no-such-program", &[], Path::new("/"), || false).unwrap_err().to_string();
        assert!(error.contains("no punctual-no-such-program") && error.contains("`kernel`"), "{error}");
        let mut failing = Command::new("sh");
        failing.args(["-c", "echo 'E: write error (No space left on device)' >&2; exit 1"]);
        let error = run(&mut failing, "apt-get", "", || false).unwrap_err().to_string();
        assert!(error.contains("free some space"), "{error}");
    }

    #[test]
    fn libraries_are_found_under_their_full_version_and_programs_only_if_they_can_run() {
        let root = tempfile::tempdir().expect("a directory");
        let file = |path: &str, mode: u32| {
            let path = root.path().join(path);
            make_directory(path.parent().expect("a parent")).expect("made");
            fs::write(&path, "x").expect("written");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
        };
        file("a.tree/etc/busybox", 0o755);
        file("a.tree/usr/lib/conf/busybox", 0o644);
        file("b.tree/usr/bin/busybox", 0o755);
        file("b.tree/usr/lib/libnuma.so.1.0.0", 0o644);
        let files = walk(&[root.path().join("a.tree"), root.path().join("b.tree")]).expect("walked");
        assert!(find(&files, "busybox").expect("found").ends_with("b.tree/usr/bin/busybox"));
        assert!(find(&files, "libnuma.so.1").expect("found").ends_with("libnuma.so.1.0.0"));
        assert!(find(&files, "libnuma.so").is_err());
    }
}
