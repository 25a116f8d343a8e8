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
cargo test --quiet --locked -p punctual-scx --all-features
