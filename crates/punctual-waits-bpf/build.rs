//! Compiles the programs in `bpf/`.

#[path = "../punctual-scx/build/clang.rs"]
mod clang;

fn main() {
    println!("cargo::rerun-if-changed=../punctual-scx/build");
    clang::compile("waits", "BPF");
}
