#!/usr/bin/env bash
# Format, lints and unit tests: the short half of the gate, for before a commit.
#
# usage: scripts/check.sh   (make check)
# exit: 0 all passed, else one did not.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/format.sh --check
cargo clippy --workspace --all-features --all-targets --locked --quiet -- -D warnings
cargo test --workspace --all-features --lib --locked --quiet
