#!/usr/bin/env bash
# Isolation on this machine: a task set of 60 % load in four domains beside a fifth that misbehaves, under
# enforcement and under plain Linux.
#
# usage: labs/live/isolation.sh [SECONDS]     (root; nothing else should run; 10 s a run by default) The
# fifth domain is the most urgent one and has a budget of 1 ms in 10 ms. It is a hog, a bomb of busy
# processes, or a VM that a timer wakes every 100 us. Prints a table of deadlines missed for each. Spinning
# threads stay on processor 1.
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:-10}
cargo build --release --locked --quiet --workspace --bin punctual
punctual=$PWD/${CARGO_TARGET_DIR:-target}/release/punctual
case ${CARGO_TARGET_DIR:-} in /*) punctual=$CARGO_TARGET_DIR/release/punctual ;; esac
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Budgets are a little more than the tasks need, a calibrated millisecond is not exact, and leave 6 % to
# whoever enforces them.
cat >"$scratch/base.toml" <<'TOML'
duration = "10s"
[machine]
processors = 2
[pool.guests]
processors = [1]
policy = "deferrable"
[domain.control]
budget = "3500us"
period = "10ms"
priority = 2
task.loop = { period = "20ms", cost = "5ms" }
[domain.audio]
budget = "5ms"
period = "25ms"
priority = 3
task.mix = { period = "50ms", cost = "7500us" }
[domain.video]
budget = "6ms"
period = "40ms"
priority = 4
task.frame = { period = "80ms", cost = "8ms" }
[domain.log]
budget = "7ms"
period = "50ms"
priority = 5
task.flush = { period = "200ms", cost = "20ms" }
[domain.noisy]
budget = "1ms"
period = "10ms"
priority = 1
TOML

beside() {
    local what=$1 form=$2
    { printf 'name = "60 %% load beside %s"\n' "$what"; cat "$scratch/base.toml" -; } >"$scratch/host.toml"
    echo
    echo "== 60 % load beside $what"
    "$punctual" run "$scratch/host.toml" --as "$form" --duration "${seconds}s" \
        --policy deferrable,periodic,sporadic,linux-cfs,linux-fifo
}

beside "a hog" process <<'TOML'
task.stuck = { hog = true }
TOML
beside "a bomb of sixteen busy processes" process <<'TOML'
process.command = ["sh", "-c", "for i in $(seq 15); do (while :; do :; done) & done; while :; do :; done"]
TOML
beside "a VM that is woken every 100 us" process <<'TOML'
vm = {}
task.flood = { period = "100us", cost = "5us" }
TOML
