#!/bin/sh
# Compares our schedules with those of SimSo, an independent simulator, job by job on random task sets.
#
# usage: scripts/check-simso.sh [OPTION ...]   options as differential/compare_with_simso.py takes them
# exit: 0 equal, 1 different, 77 skipped: SimSo could not be installed.
set -eu
cd "$(dirname "$0")/.."
parts=scripts/differential
target="${CARGO_TARGET_DIR:-target}"
venv="$target/check-simso"

skip() {
    echo "check-simso: skipped: $1" >&2
    exit 77
}

if ! cmp -s "$parts/requirements.txt" "$venv/installed.txt"; then
    rm -rf "$venv"
    python3 -m venv "$venv" >&2 || skip "python3 with venv is needed (Debian: apt install python3-venv)"
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$parts/requirements.txt" >&2 ||
        skip "pip could not install $parts/requirements.txt"
    cp "$parts/requirements.txt" "$venv/installed.txt"
fi

# With the examples, the features are those of the tests: nothing that they built is built again.
cargo build --quiet --locked --workspace --all-features --bins --examples
exec "$venv/bin/python" "$parts/compare_with_simso.py" "$target/debug/punctual" "$@"
