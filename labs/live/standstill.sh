#!/usr/bin/env bash
# Stops the machine below a live run now and then, and compares what the run says of it.
#
# usage: labs/live/standstill.sh [TIMES]     (12 by default)
# exit: 0 when at least 95 % of the time was called a standstill, 1 otherwise, 77 skipped: something is
#       missing, which it says.
#
# A run goes on in the machine of labs/kernel/run.sh. Its QEMU is stopped from outside (SIGSTOP) for 100 ms
# about every second. The kernel in the machine is told nothing of that, as under a hypervisor without a
# stolen-time clock.
set -euo pipefail
cd "$(dirname "$0")/../.."
times=${1:-12}
cargo build --quiet --locked -p punctual
scratch=$PWD/target/lab/standstill
mkdir -p "$scratch"
cat >"$scratch/host.toml" <<TOML
name = "a machine that stands still"
duration = "$((times + 3))s"
[machine]
processors = 2
[pool.guests]
processors = [1]
policy = "deferrable"
[domain.control]
budget = "10ms"
period = "20ms"
priority = 1
task.loop = { period = "200ms", cost = "20ms" }
TOML
results=$scratch/results
: >"$results"
labs/kernel/run.sh target/debug/punctual run "$scratch/host.toml" --as process --policy deferrable --blame \
    --json --progress >"$results" 2>"$scratch/errors" &
lab=$!
trap 'kill "$lab" 2>/dev/null || true' EXIT
for _ in $(seq 1200); do
    ! grep -q 'running for' "$results" || break
    kill -0 "$lab" 2>/dev/null || break
    sleep 0.1
done
grep -q 'running for' "$results" || {
    code=0
    wait "$lab" || code=$?
    tail -n 20 "$results" "$scratch/errors" >&2
    exit "$((code == 0 ? 1 : code))"
}
qemu=$(cat target/lab/pid-cloud)
sleep 1
python3 - "$qemu" "$times" >"$scratch/stopped" <<'PYTHON'
import os, signal, sys, time

qemu, times = int(sys.argv[1]), int(sys.argv[2])
for _ in range(times):
    began = time.monotonic_ns()
    os.kill(qemu, signal.SIGSTOP)
    time.sleep(0.1)
    os.kill(qemu, signal.SIGCONT)
    print(time.monotonic_ns() - began)
    time.sleep(0.83)
PYTHON
wait "$lab" || true
trap - EXIT
python3 - "$results" "$scratch/stopped" <<'PYTHON'
import json, sys

text = open(sys.argv[1]).read()
results = json.loads(text[text.index("\n{") + 1 : text.rindex("}") + 1])
stopped = [int(line) for line in open(sys.argv[2])]
processor = next(p for p in results["processors"] if "disturbance" in p)
intervals = processor["disturbance"]["intervals"]
length = lambda interval: interval["until_ns"] - interval["from_ns"]
# What is about as long as a stop is one: the translated processor has hiccups of its own, which are shorter.
long = [interval for interval in intervals if length(interval) >= 60_000_000]
called = {}
for interval in long:
    called[interval["cause"]] = called.get(interval["cause"], 0) + length(interval)
named = called.get("standstill", 0)
print(f"stopped {len(stopped)} times, {sum(stopped) / 1e6:.1f} ms in all")
by_cause = ", ".join(f"{cause} {time_ns / 1e6:.1f} ms" for cause, time_ns in called.items())
print(f"disturbances of 60 ms and more: {len(long)}, {by_cause}")
others = [f"{length(i) / 1e6:.1f} ms by {i.get('by')}" for i in long if i["cause"] != "standstill"]
print("  of these not a standstill:", ", ".join(others) or "none")
shorter = sum(length(interval) for interval in intervals) - sum(map(length, long))
print(f"shorter ones: {shorter / 1e6:.1f} ms; late jobs: {results['tasks'][0]['jobs']['missed']}")
blame = results["tasks"][0]["blame"]["late"]["causes"] if results["tasks"][0].get("blame") else []
print("late jobs:", {cause["cause"]: round(cause["time_ns"] / 1e6, 1) for cause in blame})
share = min(named, sum(stopped)) / sum(stopped)
print(f"{share:.1%} of the time was called a standstill")
sys.exit(share < 0.95)
PYTHON
