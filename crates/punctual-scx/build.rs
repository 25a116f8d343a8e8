//! Compiles the scheduler in `bpf/`.

#[path = "build/clang.rs"]
mod clang;

fn main() {
    println!("cargo::rerun-if-changed=build");
    clang::compile("punctual", "sched_ext");
}
