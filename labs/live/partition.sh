#!/usr/bin/env bash
# What `labs/lab live partition` does in the machine of the lab `kernel`:
# PROGRAM OBSERVER SECONDS TIMES ROUNDS BACKENDS
set -euo pipefail
program=$1 observer=$2 seconds=$3 times=$4 rounds=$5 backends=$6
host=/tmp/host.toml
failed=0

# host_with BUDGET COMMAND
host_with() {
    cat >"$host" <<HOST
[machine]
processors = 2
[pool.guests]
processors = [1]
policy = "deferrable"
[domain.unit]
budget = "$1"
period = "10ms"
priority = 1
process = { command = ["sh", "-c", "$2"] }
HOST
}

# Runs the host with each back end, without and with a partition, in turn: who had the pool's processor, and
# what the unit saw.
measure() {
    local i backend isolate
    for ((i = 0; i < times; i++)); do
        for backend in $backends; do
            for isolate in '' --isolate; do
                # shellcheck disable=SC2086  # Nothing, or one word.
                "$program" run "$host" --enforce "$backend" --duration "$((seconds + 4))s" $isolate \
                    --output /tmp/out.json >/tmp/out 2>&1 || { cat /tmp/out && failed=1; }
                printf '%-10s %-10s ' "$backend" "${isolate:-shared}"
                python3 labs/live/shares.py /tmp/out.json /tmp/out
            done
        done
    done
    sed -n '/^  processors  /,/^  enforcer  /{/^  enforcer  /!p}' /tmp/out
}

uname -r
cat /proc/cmdline
if [ "$rounds" != 0 ]; then
    echo "== made and undone"
    python3 labs/live/partitions.py "$program" "$rounds" || failed=1
fi
[ "$times" = 0 ] || {
    for _ in 1 2 3; do
        sh -c 'while :; do :; done' &
    done
    echo "== a unit that spins, 9 ms in 10 ms, beside three fair processes that spin"
    host_with 9ms "while :; do :; done"
    measure
    echo "== wake-ups of a unit every 1.1 ms, beside the same"
    host_with 3ms "exec $observer wakes $seconds 1100"
    measure
}
exit "$failed"
