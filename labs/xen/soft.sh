#!/usr/bin/env bash
# Does a guest run where its soft affinity says while those processors are free? A real Xen in QEMU with three
# processors that execute at the same time.
#
# usage: labs/xen/soft.sh
# exit: 0 under RTDS, which has one queue, it does; 1 it does not; 77 skipped: something is missing here.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=labs/xen/machine.sh
. labs/xen/machine.sh

prepare release
# shellcheck disable=SC2034 # for boot
machine=(-accel "tcg,thread=multi" -smp 3)
# shellcheck disable=SC2034 # for boot
memory=2048
boot release soft "sched=punctual sched_punctual=rtds" "$parts/dom0/soft.sh" "$punctual"
python3 - "$lab/soft.log" <<'END'
import re, sys
lines = re.findall(r"SOFT (\w+) (\w+) (\d+) (\d+)", open(sys.argv[1], errors="replace").read())
print("| policy | soft affinity | samples on processor 1 | on 2 |\n|---|---|---|---|")
there = {}
for policy, soft, *counts in lines:
    print(f"| {policy} | {soft} | {counts[0]} | {counts[1]} |")
    there[policy, soft] = [int(count) for count in counts]
holds = lambda policy, soft: there.get((policy, soft), [0, 0])[int(soft) - 1] >= 27
sys.exit(not all(holds("rtds", soft) for soft in "12"))
END
