//! Compiles a program in `bpf/` for the BPF machine, where the feature `kernel` asks for it. For the build
//! scripts of `punctual-scx` and `punctual-waits-bpf`.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles `bpf/NAME.bpf.c` to `NAME.bpf.o`, for `cfg(has_object)`. Without clang the crate is built without
/// it, with a warning that says what is missing then.
pub(crate) fn compile(name: &str, missing: &str) {
    println!("cargo::rustc-check-cfg=cfg(has_object)");
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-env-changed=CLANG");
    if std::env::var_os("CARGO_FEATURE_KERNEL").is_none() {
        return;
    }
    let (source, object) = (format!("bpf/{name}.bpf.c"), format!("{name}.bpf.o"));
    let object = PathBuf::from(std::env::var_os("OUT_DIR").expect("set by Cargo")).join(object);
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
        .args(["-c", &source, "-o"])
        .arg(&object)
        .status();
    match compiled {
        Ok(status) if status.success() => println!("cargo::rustc-cfg=has_object"),
        Ok(status) => panic!("{} cannot compile {source}: {status}", clang.display()),
        Err(error) => println!(
            "cargo::warning=without {missing}: {} cannot be started ({error}); apt install clang",
            clang.display()
        ),
    }
}
