#!/bin/sh
# Runs all reproductions in full and puts their output into docs/reproduce.md.
set -eu
cd "$(dirname "$0")/.."
cargo build --release --locked --workspace --bin punctual
punctual=${CARGO_TARGET_DIR:-target}/release/punctual
page=$(mktemp)
trap 'rm -f "$page"' EXIT
sed '/^<!-- results -->$/q' docs/reproduce.md > "$page"
for paper in rt-xen nautilus rtca vmm-io; do
    printf '\n### %s\n\n```\n' "$paper"
    "$punctual" reproduce "$paper" --no-native
    printf '```\n'
done >> "$page"
cat "$page" > docs/reproduce.md
