#!/usr/bin/env bash
# Enforcement on this machine, measured: what it costs, how exact it is, and what it adds to a wake-up.
#
# usage: labs/live/enforcement.sh [SECONDS]     (root; nothing else should run; 5 s a run by default) Prints
# the evidence of enforcement for five vCPUs under each server, then cyclictest's wake-up latency beside a
# hog, five times in turn under plain SCHED_FIFO and under enforcement. Spinning threads stay on processor 1.
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:-5}
cargo build --release --locked --quiet --workspace --bin punctual
punctual=$PWD/${CARGO_TARGET_DIR:-target}/release/punctual
case ${CARGO_TARGET_DIR:-} in /*) punctual=$CARGO_TARGET_DIR/release/punctual ;; esac
scratch=$(mktemp -d)
hog=
trap '[ -z "$hog" ] || kill "$hog" 2>/dev/null || true; rm -rf "$scratch"' EXIT

echo "== five vCPUs, one of them a hog (examples/misbehaving.toml as processes), $seconds s each"
"$punctual" run examples/misbehaving.toml --as process --duration "${seconds}s" \
    --policy deferrable,periodic,polling,sporadic,rtds,sedf

echo
echo "== wake-ups beside a hog on processor 1, in us: cyclictest, 1 ms interval"
loops=$((seconds * 1000))
cat >"$scratch/host.toml" <<EOF
[machine]
processors = 2
[pool.guests]
processors = [1]
policy = "deferrable"
[domain.cyclictest]
budget = "5ms"
period = "10ms"
priority = 1
process = { command = [
    "cyclictest", "-q", "-m", "-t1", "-p70", "-i1000", "-l$loops", "-h1000", "--json=$scratch/enforced.json",
] }
[domain.hog]
budget = "4ms"
period = "10ms"
priority = 2
process = { command = ["sh", "-c", "while :; do :; done"] }
EOF
# Latencies of a thread from cyclictest's JSON: median, 99 % quantile, maximum.
quantiles='
import json, sys
thread = json.load(open(sys.argv[1]))["thread"]["0"]
histogram = sorted((int(us), n) for us, n in thread["histogram"].items())
total = sum(n for _, n in histogram)
def quantile(share):
    seen = 0
    for us, n in histogram:
        seen += n
        if seen >= share * total:
            return us
figures = (sys.argv[2], quantile(0.5), quantile(0.99), thread["max"], total)
print("%-12s p50 %4d  p99 %4d  max %5d  (%d wake-ups)" % figures)
'
for _ in 1 2 3 4 5; do
    # `timeout` itself stays off the hog's processor and class, or it would starve with everybody else.
    taskset -c 0 timeout $((seconds + 5)) taskset -c 1 chrt -f 2 sh -c 'while :; do :; done' &
    hog=$!
    cyclictest -q -m -t1 -a1 -p70 -i1000 -l"$loops" -h1000 --json="$scratch/plain.json" >/dev/null
    kill "$hog"; wait "$hog" 2>/dev/null || true; hog=
    python3 -c "$quantiles" "$scratch/plain.json" SCHED_FIFO
    "$punctual" run "$scratch/host.toml" --duration "$((seconds + 2))s" >/dev/null 2>&1
    python3 -c "$quantiles" "$scratch/enforced.json" enforced
done
