//! Builds the guest program, statically linked. `workload::PROGRAM` holds its bytes, so that every `punctual`
//! has the guest program that fits it, without a second installation.
//!
//! The guest program is linked differently from everything else, so it has a build of its own with its own
//! target directory. That build shares only Cargo's lock file with the one that runs this script, so the two
//! cannot wait for each other.

use std::path::Path;
use std::process::Command;

/// Writes the source of the guest's module for sockets of its host as a list of names and contents.
fn embed_guest_module(folder: &Path, out: &Path) {
    let is_source = |name: &str| name == "Makefile" || name.ends_with(".c") || name.ends_with(".h");
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    // What a build in that folder left is none of the source.
    let mut names: Vec<String> = names.filter(|name| is_source(name) && !name.ends_with(".mod.c")).collect();
    names.sort();
    let path = |name: &String| folder.join(name).canonicalize().expect("it was listed").display().to_string();
    let entry = |name: &String| format!("({name:?}, include_bytes!({:?}) as &[u8]),\n", path(name));
    let list: String = names.iter().map(entry).collect();
    println!("cargo::rerun-if-changed={}", folder.display());
    std::fs::write(out, format!("&[\n{list}]")).unwrap_or_else(|error| panic!("{}: {error}", out.display()));
}

/// Flags for the guest program: static linking, and those of this build's own flags that keep directories of
/// the machine out of it.
fn guest_flags(own: &str) -> String {
    let remaps = own.split('\x1f').filter(|flag| flag.starts_with("--remap-path-prefix="));
    let flags: Vec<&str> = std::iter::once("-Ctarget-feature=+crt-static").chain(remaps).collect();
    flags.join("\x1f")
}

fn main() {
    let variable = |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("Cargo sets {name}"));
    let guest = Path::new(&variable("CARGO_MANIFEST_DIR")).join("../punctual-guest");
    let jobs = ["../punctual-jobs/src", "../punctual-jobs/Cargo.toml"];
    for input in ["src", "Cargo.toml", "../../Cargo.toml", "../../Cargo.lock"].into_iter().chain(jobs) {
        println!("cargo::rerun-if-changed={}", guest.join(input).display());
    }
    let (out, target) = (variable("OUT_DIR"), variable("TARGET"));
    embed_guest_module(&guest.join("../../guest-module"), &Path::new(&out).join("guest_module.rs"));
    let copy = Path::new(&out).join("punctual-guest");
    // Fuzz targets start no guest, and their flags would have it built once more. Clippy runs no program, and
    // Cargo keeps what it builds for a wrapper apart from the rest.
    let wrapper = std::env::var("RUSTC_WORKSPACE_WRAPPER").unwrap_or_default();
    let is_clippy = Path::new(&wrapper).file_stem().is_some_and(|name| name == "clippy-driver");
    if is_clippy || std::env::var_os("CARGO_CFG_FUZZING").is_some() {
        return std::fs::write(&copy, []).unwrap_or_else(|error| panic!("{}: {error}", copy.display()));
    }
    let build = Path::new(&out).join("guest");
    let mut cargo = Command::new(variable("CARGO"));
    cargo
        .args([
            "build",
            "--locked",
            "--quiet",
            "--profile",
            "guest",
            "--bin",
            "punctual-guest",
            "--target",
            &target,
        ])
        .arg("--manifest-path")
        .arg(guest.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&build)
        .env("CARGO_ENCODED_RUSTFLAGS", guest_flags(&variable("CARGO_ENCODED_RUSTFLAGS")))
        // Wrappers are Clippy's way in; the guest is checked as a crate of the workspace already.
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("RUSTC_WRAPPER");
    let status = cargo.status().unwrap_or_else(|error| panic!("{cargo:?}: {error}"));
    assert!(
        status.success(),
        "the guest program could not be built; its static linking takes the C library's archive libc.a \
         (Debian: apt install libc6-dev, Fedora: dnf install glibc-static)"
    );
    let program = build.join(&target).join("guest/punctual-guest");
    std::fs::copy(&program, &copy).unwrap_or_else(|error| panic!("{}: {error}", program.display()));
}
