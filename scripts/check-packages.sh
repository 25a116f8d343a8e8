#!/bin/sh
# Is the .deb packed to the same bytes anywhere, clean, and gone when purged? This is packaging/check.sh with
# the tests' program, which takes no release build; packaging/check.sh alone compares complete builds and all
# formats.
#
# usage: scripts/check-packages.sh
# exit: 0 they are, 1 they are not, 77 skipped: a tool is missing (it says which).
set -eu
cd "$(dirname "$0")/.."
target="${CARGO_TARGET_DIR:-target}"

# With the examples, the features are those of the tests: nothing that they built is built again.
cargo build --quiet --locked --workspace --all-features --bins --examples
PUNCTUAL="$target/debug/punctual" XZ_LEVEL=0 exec packaging/check.sh deb
