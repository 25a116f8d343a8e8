//! The guest's module for sockets of its host, built against the kernel of an image.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::error::Error;
use super::packages::{apt, files_ending, make_directory, run, unpack};
use super::{Image, append, name_of};
use crate::cache::{Cache, FileError};
use punctual_linux::channel::Stop;

/// The module's source: names of files and their contents.
static SOURCES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/guest_module.rs"));

/// What the headers' package of a kernel depends on, beside what everybody has.
const PARTS: [&str; 3] = ["linux-headers-", "linux-kbuild-", "linux-compiler-"];

/// `image` with the module in its guest; `punctual.sockets=COMMANDS` on its command line loads it. What is
/// made is kept in the cache. `progress` gets a line before each step that takes long.
///
/// # Errors
/// What is missing, and how to get it.
pub fn with_module(image: &Image, progress: &dyn Fn(&str), stop: Stop) -> Result<Image, Error> {
    with_module_in(&Cache::of_user()?, image, progress, stop)
}

fn with_module_in(cache: &Cache, image: &Image, progress: &dyn Fn(&str), stop: Stop) -> Result<Image, Error> {
    let kernel = kernel_version(&image.packages).ok_or_else(|| Error::Missing("linux-image-".into()))?;
    let base = fs::read(&image.initrd).map_err(FileError::of("read", &image.initrd))?;
    let mut parts = vec![kernel.as_bytes(), &base[..]];
    parts.extend(SOURCES.iter().flat_map(|(name, contents)| [name.as_bytes(), contents]));
    let name = format!("guest-initrd-sockets-{}", name_of(&parts));
    let mut initrd = cache.path(&name);
    if !initrd.is_file() {
        let waiting = || progress("waiting for another punctual to build the guest's module");
        let _lock = cache.lock(waiting, stop)?.ok_or(Error::Stopped)?;
        let module = build(cache, kernel, progress, stop)?;
        let draft = cache.draft()?;
        let whole = draft.path.join("initrd");
        append(&image.initrd, &[("sockets/punctual_sockets.ko", &module)], &whole)?;
        let bytes = fs::read(&whole).map_err(FileError::of("read", &whole))?;
        initrd = cache.write(&name, &bytes, 0o644)?;
    }
    Ok(Image { initrd, ..image.clone() })
}

/// `6.1.0-56-cloud-amd64` of `linux-image-6.1.0-56-cloud-amd64_6.1.176-1_amd64`.
fn kernel_version(packages: &[String]) -> Option<&str> {
    let kernel = packages.iter().find_map(|name| name.strip_prefix("linux-image-"))?;
    kernel.split('_').next()
}

/// Builds the module for a kernel; its bytes.
fn build(cache: &Cache, kernel: &str, progress: &dyn Fn(&str), stop: Stop) -> Result<Vec<u8>, Error> {
    let headers = headers(cache, kernel, progress, stop)?;
    progress("building the guest's module for sockets of the host");
    let draft = cache.draft()?;
    let source = draft.path.join("module");
    make_directory(&source)?;
    for (name, contents) in SOURCES {
        let path = source.join(name);
        fs::write(&path, contents).map_err(FileError::of("write", &path))?;
    }
    let mut make = Command::new("make");
    make.arg("-C").arg(&source).arg("--silent").env("LC_ALL", "C");
    make.arg(format!("KERNEL={}", headers.join(format!("usr/src/linux-headers-{kernel}")).display()));
    let cure = "the guest's module for sockets is built with it: apt install make";
    run(&mut make, "make", cure, stop)?;
    let module = source.join("punctual_sockets.ko");
    Ok(fs::read(&module).map_err(FileError::of("read", &module))?)
}

/// The directory with what modules for that kernel are built with, from Debian's packages.
fn headers(cache: &Cache, kernel: &str, progress: &dyn Fn(&str), stop: Stop) -> Result<PathBuf, Error> {
    let package = format!("linux-headers-{kernel}");
    let name = format!("guest-headers-{}", name_of(&[kernel.as_bytes()]));
    let place = cache.path(&name);
    if !place.is_dir() {
        let draft = cache.draft()?;
        let depends = apt("apt-cache", &["depends", &package], &draft.path, stop)?;
        let mut wanted = vec![package.clone()];
        wanted.extend(parts_of(&depends));
        find_compiler(&wanted)?;
        progress(&format!("downloading Debian packages: {}", wanted.join(", ")));
        let mut arguments = vec!["-qq", "-o", "APT::Sandbox::User=root", "download"];
        arguments.extend(wanted.iter().map(String::as_str));
        apt("apt-get", &arguments, &draft.path, stop)?;
        let part = draft.path.join("headers");
        make_directory(&part)?;
        for deb in files_ending(&draft.path, ".deb")? {
            unpack(&deb, &part, stop)?;
        }
        // Debian's headers name the place where they would be installed.
        let makefile = part.join(format!("usr/src/{package}/Makefile"));
        let text = fs::read_to_string(&makefile).map_err(FileError::of("read", &makefile))?;
        let text = text.replace("include /usr/src", &format!("include {}/usr/src", place.display()));
        fs::write(&makefile, text).map_err(FileError::of("write", &makefile))?;
        draft.keep("headers", cache, &name)?;
    }
    find_compiler(&compilers_in(&place))?;
    Ok(place)
}

/// The packages among what `apt-cache depends` prints that a module is built with.
fn parts_of(depends: &str) -> Vec<String> {
    let names = depends.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    let is_part = |name: &&str| PARTS.iter().any(|part| name.starts_with(part));
    names.filter(is_part).map(str::to_owned).collect()
}

/// The packages of compilers that were unpacked there.
fn compilers_in(headers: &Path) -> Vec<String> {
    let documents = fs::read_dir(headers.join("usr/share/doc")).into_iter().flatten().flatten();
    documents.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// The kernel's Makefile calls the compiler by its version: `gcc-12` of `linux-compiler-gcc-12-x86`.
fn find_compiler(packages: &[String]) -> Result<(), Error> {
    let named = packages.iter().find_map(|name| name.strip_prefix("linux-compiler-"));
    let Some(compiler) = named.and_then(|name| name.rsplit_once('-')).map(|(compiler, _)| compiler) else {
        return Ok(());
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&path).any(|directory| directory.join(compiler).is_file()) {
        Ok(())
    } else {
        Err(Error::NoCompiler(compiler.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_is_whole() {
        for name in ["Makefile", "sockets.c", "transport.c", "vmrpc.h"] {
            assert!(SOURCES.iter().any(|(own, contents)| *own == name && !contents.is_empty()), "{name}");
        }
    }

    #[test]
    fn a_module_is_built_with_what_the_headers_depend_on() {
        let packages = ["busybox-static_1_amd64", "linux-image-6.1.0-56-cloud-amd64_6.1.176-1_amd64"];
        assert_eq!(kernel_version(&packages.map(str::to_owned)), Some("6.1.0-56-cloud-amd64"));
        let depends = "linux-headers-6.1.0-56-cloud-amd64\n  Depends: linux-headers-6.1.0-56-common\n  \
                       Depends: linux-kbuild-6.1\n  Depends: linux-compiler-gcc-12-x86\n  Depends: libc6\n";
        let parts = ["linux-headers-6.1.0-56-common", "linux-kbuild-6.1", "linux-compiler-gcc-12-x86"];
        assert_eq!(parts_of(depends), parts);
    }

    #[test]
    fn a_compiler_that_is_not_there_is_named() {
        let error = find_compiler(&["linux-compiler-gcc-99-x86".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("gcc-99") && error.contains("apt install gcc-99"), "{error}");
        assert!(find_compiler(&["linux-kbuild-6.1".to_owned()]).is_ok());
    }
}
