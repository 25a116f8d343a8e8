#!/bin/sh
# Compares our schedulability tests with those of B. Brandenburg's library response-time-analysis on random
# task sets.
#
# exit: 0 equal, 77 skipped: the library could not be fetched; else different.
#
# Not --locked: what changes in the dependencies of the workspace reaches the lock file of this package by
# building it.
set -eu
cd "$(dirname "$0")/.."
package=scripts/differential/analysis
target="${CARGO_TARGET_DIR:-target}/check-analysis"

if ! cargo fetch --quiet --manifest-path "$package/Cargo.toml"; then
    echo "check-analysis: skipped: cargo could not fetch the crates that $package needs" >&2
    exit 77
fi
exec cargo test --quiet --manifest-path "$package/Cargo.toml" --target-dir "$target" "$@"
