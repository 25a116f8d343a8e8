#!/usr/bin/env bash
# Formats the code, the files of policies included: `cargo fmt` does not look behind the list in
# crates/punctual-sched/src/lib.rs that declares them.
#
# usage: scripts/format.sh [--check]
# exit: 0 formatted, 1 with --check: a file is not formatted.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo fmt --all -- "$@"
rustfmt --edition 2024 "$@" crates/punctual-sched/src/*.rs
