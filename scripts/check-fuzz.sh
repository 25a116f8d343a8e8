#!/bin/sh
# Runs every fuzz target for a short while, from the corpus that earlier runs here left behind.
#
# usage: scripts/check-fuzz.sh [SECONDS]   for each target, 10 by default
#        scripts/check-fuzz.sh --build     builds the targets and runs none
# exit: 0 nothing found, 1 a target failed (the input is kept and named), 77 skipped: no C++ compiler.
#
# Coverage instrumentation is a matter of flags that stable Rust has, so neither nightly nor cargo-fuzz is
# needed. Address sanitizing would be, and finds nothing in code that forbids `unsafe`. Not --locked: what
# changes in the dependencies of the workspace reaches the lock file of the fuzz crate by building it.
set -eu
cd "$(dirname "$0")/.."
seconds="${1:-10}"
target="$(mkdir -p "${CARGO_TARGET_DIR:-target}/fuzz/corpus" && cd "${CARGO_TARGET_DIR:-target}/fuzz" && pwd)"

if ! command -v c++ >/dev/null; then
    echo "check-fuzz: skipped: a C++ compiler is needed for libFuzzer (Debian: apt install g++)" >&2
    exit 77
fi

host="$(rustc -vV | sed -n 's/^host: //p')"
coverage="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4"
coverage="$coverage -Cllvm-args=-sanitizer-coverage-inline-8bit-counters"
coverage="$coverage -Cllvm-args=-sanitizer-coverage-pc-table"
coverage="$coverage -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1"
RUSTFLAGS="$coverage --cfg fuzzing -Cdebug-assertions" CARGO_TARGET_DIR="$target" \
    cargo build --quiet --release --manifest-path fuzz/Cargo.toml --target "$host"

[ "$seconds" != --build ] || exit 0

# Runs one target; its log and the inputs that fail stay beside its program.
fuzz() {
    corpus="$target/corpus/$1"
    # Long inputs of noise to begin with: growing them from nothing takes libFuzzer most of a short run.
    if mkdir "$corpus" 2>/dev/null; then
        for seed in $(seq 256); do
            head -c 768 /dev/urandom >"$corpus/noise-$seed"
        done
    fi
    if ! "$target/$host/release/$1" "$corpus" examples fuzz/seeds crates/punctual-model/tests/malformed \
        crates/punctual-model/tests/import crates/punctual-model/tests/import/malformed \
        -len_control=0 -artifact_prefix="$target/$1-" -max_total_time="$seconds" \
        -timeout=10 -rss_limit_mb=2048 \
        -print_final_stats=1 >"$target/$1.log" 2>&1; then
        echo "$1 failed:"
        tail -n 40 "$target/$1.log"
        grep -m 1 -A 1 panicked "$target/$1.log" >"$target/failed-$1" || echo "see above" >"$target/failed-$1"
        return 1
    fi
    echo "$1: $seconds s"
    grep -E '^stat::number_of_executed_units|^stat::new_units_added' "$target/$1.log"
}

# As many at once as there are processors.
rm -f "$target"/failed-*
set -- fuzz/fuzz_targets/*.rs
while [ $# -gt 0 ]; do
    running=
    for _ in $(seq "$(nproc)"); do
        [ $# -gt 0 ] || break
        fuzz "$(basename "$1" .rs)" &
        running="$running $!"
        shift
    done
    for one in $running; do
        wait "$one" || true
    done
done

# What failed once more, where a log that was cut has it, too.
for one in "$target"/failed-*; do
    [ -e "$one" ] || exit 0
    echo "check-fuzz: ${one##*/failed-} failed: $(cat "$one")" >&2
done
exit 1
