#!/bin/sh
# Compiles the scheduler for the kernel (crates/punctual-scx/bpf), and checks that the loader finds in it what
# it asks for.
#
# usage: scripts/check-bpf.sh
# exit: 0 it does, 1 it does not, 77 skipped: clang is missing.
set -eu
cd "$(dirname "$0")/.."
if ! "${CLANG:-clang}" --version >/dev/null 2>&1; then
    echo "check-bpf: skipped: clang is needed (Debian: apt install clang)" >&2
    exit 77
fi
tested="$(cargo test --locked -p punctual-scx --all-features 2>&1)" || { echo "$tested" >&2; exit 1; }
case $tested in
    *the_object_has_what_the_loader_asks_for*) ;;
    *)
        # Cargo does not compile it again because clang has come since.
        echo "check-bpf: the crate was built without clang: touch crates/punctual-scx/build.rs" >&2
        exit 1
        ;;
esac
