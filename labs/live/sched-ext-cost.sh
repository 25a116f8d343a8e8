#!/usr/bin/env bash
# What `labs/lab live sched-ext-cost` does in the machine of the lab `kernel`:
# PROGRAM OBSERVER SECONDS POLICY...
set -euo pipefail
program=$1 observer=$2 seconds=$3
shift 3
host=/tmp/host.toml
failed=0
echo 1 >/proc/sys/kernel/bpf_stats_enabled

# host UNITS POLICY COMMAND: so many units with 2 ms in 10 ms; the most urgent one runs COMMAND, the others
# spin
host() {
    local unit
    printf '[machine]\nprocessors = 2\n[pool.guests]\nprocessors = [1]\npolicy = "%s"\n' "$2" >"$host"
    for unit in $(seq "$1"); do
        printf '[domain.unit%s]\nbudget = "2ms"\nperiod = "10ms"\npriority = %s\n' "$unit" $(($1 - unit + 1))
        # Under RTDS a unit may have more than its budget where no other wants it.
        [ "$2" != rtds ] || echo 'extratime = false'
        if [ "$unit" = "$1" ]; then
            echo "process = { command = [\"sh\", \"-c\", \"$3\"] }"
        else
            echo 'process = { command = ["sh", "-c", "while :; do :; done"] }'
        fi
    done >>"$host"
}

# Runs the host with a back end, prints what it took and what was seen, and fails if another one enforced it.
measure() {
    local out=/tmp/out
    "$program" run "$host" --enforce "$1" --duration "$((seconds + 4))s" >"$out" 2>&1 &
    printf '%-10s %s units %s\n' "$1" "$2" "$(python3 labs/live/cost.py $! "$seconds")"
    wait $! || { cat "$out" && failed=1; }
    grep -E 'overrun|observed' "$out" || true
    grep -q "enforced by  *$1" "$out" || { cat "$out" && failed=1; }
}

# The program is read into memory before it counts.
host 1 deferrable "while :; do :; done"
"$program" run "$host" --enforce sched-ext --duration 1s >/dev/null 2>&1

for policy; do
    for units in 1 4; do
        echo "-- $policy: units that spin, 2 ms in 10 ms; what the most urgent one sees beyond its budget"
        host "$units" "$policy" "exec $observer stretches $seconds 2000"
        for backend in sched-ext freezer; do measure "$backend" "$units"; done
    done
    echo "-- $policy: wake-ups every 1.1 ms of the most urgent of two units"
    host 2 "$policy" "exec $observer wakes $seconds 1100"
    for backend in sched-ext freezer; do measure "$backend" 2; done
done
exit "$failed"
