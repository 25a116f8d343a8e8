//! Compiles the programs in `bpf/` for the BPF machine, where the feature `kernel` asks for it.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rustc-check-cfg=cfg(has_object)");
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-env-changed=CLANG");
    if std::env::var_os("CARGO_FEATURE_KERNEL").is_none() {
        return;
    }
    let object = PathBuf::from(std::env::var_os("OUT_DIR").expect("set by Cargo")).join("waits.bpf.o");
    let headers = std::env::var_os("DEP_BPF_INCLUDE").expect("set by libbpf-sys");
    let clang = std::env::var_os("CLANG").unwrap_or_else(|| "clang".into());
    let target = match std::env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("aarch64") => "-D__TARGET_ARCH_arm64",
        _ => "-D__TARGET_ARCH_x86",
    };
    // No path of the machine gets into the object.
    let map = format!("-fdebug-prefix-map={}=include", Path::new(&headers).display());
    let compiled = Command::new(&clang)
        .args(["-g", "-O2", "-target", "bpf", "-mcpu=v3", "-Wall", "-Wno-unused-function", target])
        .args(["-fdebug-compilation-dir=.", &map, "-I"])
        .arg(Path::new(&headers))
        .args(["-c", "bpf/waits.bpf.c", "-o"])
        .arg(&object)
        .status();
    match compiled {
        Ok(status) if status.success() => println!("cargo::rustc-cfg=has_object"),
        Ok(status) => panic!("{} cannot compile bpf/waits.bpf.c: {status}", clang.display()),
        Err(error) => println!(
            "cargo::warning=without BPF: {} cannot be started ({error}); apt install clang",
            clang.display()
        ),
    }
}
