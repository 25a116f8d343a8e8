#!/usr/bin/env bash
# The policy of a pool changes 28 times in a real Xen in QEMU, under a guest that never rests and one that
# sleeps and wakes: does each of them run on, with its budget?
#
# usage: labs/xen/policies.sh
# exit: 0 they do; 1 one does not; 77 skipped: something is missing here.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=labs/xen/machine.sh
. labs/xen/machine.sh

prepare release
# shellcheck disable=SC2034 # for boot
seconds_max=900
boot release policies "sched=punctual sched_punctual=rtds" "$parts/dom0/policies.sh" "$punctual"
python3 - "$lab/policies.log" <<'END'
import re, sys
lines = re.findall(r"POLICIES (\d) (\w+) (\d+) (\d+) (\d+)", open(sys.argv[1], errors="replace").read())
print("| policy | one, % | two, % |\n|---|---|---|")
shares = {}
for _, policy, length, *ran in lines:
    shares.setdefault(policy, []).append([int(ms) / int(length) * 100 for ms in ran])
for policy, of in shares.items():
    one, two = zip(*of)
    print(f"| {policy} | {min(one):.0f} to {max(one):.0f} | {min(two):.0f} to {max(two):.0f} |")
# What they ran is known to tenths of a second of some 2.5. Credit has no budgets.
holds = len(lines) == 28 and all(33 < one < 47 and two > 3 for of in shares.values() for one, two in of)
sys.exit(not holds)
END
