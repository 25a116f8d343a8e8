#!/usr/bin/env bash
# What `labs/lab live sched-ext` does in the machine of the lab `kernel`: PROGRAM OBSERVER SECONDS TIMES
set -euo pipefail
program=$1 observer=$2 seconds=$3 times=$4
host=/tmp/host.toml
failed=0

# domain NAME BUDGET PRIORITY COMMAND: a domain of the host, with a period of 10 ms
domain() {
    printf '[domain.%s]\nbudget = "%s"\nperiod = "10ms"\npriority = %s\n%s\n' "$1" "$2" "$3" \
        "process = { command = [\"sh\", \"-c\", \"$4\"] }" >>"$host"
}

# Runs the host under a policy and a back end, prints what was seen, and fails if another one enforced it.
measure() {
    local policy=$1 backend=$2 out=/tmp/out
    echo "-- $policy, $backend"
    "$program" run "$host" --policy "$policy" --enforce "$backend" --duration "$((seconds + 4))s" \
        >"$out" 2>&1 || { cat "$out" && failed=1; }
    grep -E '^(hog|other) |enforced by|enforcer  |overrun|replenished|observed' "$out" || true
    grep -q "enforced by  *$backend" "$out" || { cat "$out" && failed=1; }
}

begin() {
    printf '[machine]\nprocessors = 2\n[pool.guests]\nprocessors = [1]\npolicy = "deferrable"\n' >"$host"
}

echo "== budgets: one unit that spins, 2 ms in 10 ms; what it sees beyond its budget"
begin
domain hog 2ms 1 "exec $observer stretches $seconds 2000"
for policy in deferrable periodic polling sporadic sedf rtds; do
    # Under RTDS a unit may have more than its budget where no other wants it.
    [ "$policy" != rtds ] || echo 'extratime = false' >>"$host"
    for backend in sched-ext freezer; do measure "$policy" "$backend"; done
done

echo "== two units that spin, 2 and 3 ms in 10 ms"
begin
domain hog 2ms 1 "while :; do :; done"
domain other 3ms 2 "while :; do :; done"
for backend in sched-ext freezer sched-ext freezer; do measure deferrable "$backend"; done

echo "== wake-ups of an urgent unit every 1.1 ms, beside one that spins"
begin
domain hog 4ms 2 "while :; do :; done"
domain other 3ms 1 "exec $observer wakes $seconds 1100"
for backend in sched-ext freezer sched-ext freezer; do measure deferrable "$backend"; done

echo "== a unit without budget that is killed"
begin
domain hog 1ms 1 "while :; do :; done"
sed -i 's/"10ms"/"5s"/' "$host"
"$program" run "$host" --enforce sched-ext --duration 4s >/tmp/out 2>&1 &
until pid=$(pgrep -f '^sh -c while' | sed -n 1p) &&
    python3 -c "import os; exit(os.sched_getscheduler($pid) != 7)"; do sleep 0.05; done
sleep 0.5
kill -9 "$pid"
sleep 0.3
if kill -0 "$pid" 2>/dev/null && ! grep -q 'State:.*Z' "/proc/$pid/status"; then
    echo "it lives on" && failed=1
else
    echo "it has ended"
fi
wait || true

echo "== the end of the scheduler"
python3 labs/live/falls.py "$program" kills "$times" || failed=1
python3 labs/live/falls.py "$program" ejections "$times" || failed=1
python3 labs/live/falls.py "$program" stalls 1 || failed=1
exit "$failed"
