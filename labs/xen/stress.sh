#!/usr/bin/env bash
# A debug build of Xen, with its assertions on and Punctual's scheduler, on three processors that execute at
# the same time: guests come and go, are paused, pinned, moved between cpupools, processors are taken away,
# policies change, at random. Nothing may break, and no memory may be gone at the end.
#
# usage: labs/xen/stress.sh [MINUTES [SEED [STEPS]]]
# example: labs/xen/stress.sh 60 1
#   STEPS      only these of the changes in labs/xen/dom0/stress.sh ("8 11": processors leave and return)
# exit: 0 nothing broke; 1 something did: its console is named; 77 skipped: something is missing here.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=labs/xen/machine.sh
. labs/xen/machine.sh
minutes=${1:-10} seed=${2:-1} steps=${3:-}

prepare debug
# shellcheck disable=SC2034 # for boot
machine=(-accel "tcg,thread=multi" -smp 3)
# shellcheck disable=SC2034 # for boot
memory=3072 dom0="dom0_mem=768M,max:768M dom0_max_vcpus=2"
# Of processor time, of which three processors may take three seconds a second.
# shellcheck disable=SC2034 # for boot
seconds_max=$((minutes * 180 + 1200))
printf 'minutes=%s\nseed=%s\nsteps="%s"\n' "$minutes" "$seed" "$steps" > "$lab/settings"
boot debug stress "sched=punctual sched_punctual=rtds" "$parts/dom0/stress.sh" "$lab/settings" "$punctual"

log=$lab/stress.log
bad='Assertion|BUG at|Panic on CPU|FATAL|punctual: (the pool|nowhere)|WARNING: at|STRESS-ERROR'
if grep -aE "$bad" "$log"; then
    echo "xen-stress: something broke: see $log" >&2
    exit 1
fi
result=$(grep -a '^STRESS ' "$log" | tr -d '\r') || {
    echo "xen-stress: it did not end: see $log" >&2
    exit 1
}
echo "${result#STRESS }"
# What Xen's heaps have free, and what pools of the scheduler have, before and after. Memory that the
# scheduler was given for as many pools as there were at once is its for good.
python3 - "$log" <<'END'
import re, sys
free, used, given, when = {}, {}, {}, None
for line in open(sys.argv[1], errors="replace"):
    if found := re.search(r"STRESS-MEMORY (\w+)", line):
        when = found[1]
    elif when and (found := re.search(r"(?:Xen|Dom) heap: (\d+)kB free", line)):
        free[when] = free.get(when, 0) + int(found[1])
    elif when and (found := re.search(r"all pools have (\d+) of (\d+) bytes", line)):
        used[when], given[when] = found[1], int(found[2]) // 1024
gone = free["before"] - free["after"] - (given["after"] - given["before"])
print(f"free KiB {free['before']} before, {free['after']} after; the scheduler was given {given['before']} "
      f"and {given['after']} KiB, so {gone} are gone; pools have {used['before']} and {used['after']} bytes")
sys.exit(gone > 1024 or used["before"] != used["after"])
END
