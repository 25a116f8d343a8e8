#!/bin/sh
# Runs all reproductions in full and writes their output to papers/NAME/results.md.
set -eu
cd "$(dirname "$0")/.."
cargo build --release --locked --workspace --bin punctual
punctual=${CARGO_TARGET_DIR:-target}/release/punctual
page=$(mktemp)
trap 'rm -f "$page"' EXIT
for paper in rt-xen nautilus rtca vmm-io rt-stack; do
    results=papers/$paper/results.md
    # The page's own words end where the output begins.
    sed '/^```$/,$d' "$results" > "$page"
    {
        printf '```\n'
        "$punctual" reproduce "$paper" --no-native
        printf '```\n'
    } >> "$page"
    cat "$page" > "$results"
done
