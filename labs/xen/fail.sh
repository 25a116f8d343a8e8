#!/usr/bin/env bash
# A policy that panics inside Xen, on purpose: the machine goes on in round robin and says so, and another
# policy takes over when it is told to.
#
# usage: labs/xen/fail.sh
# exit: 0 it did; 1 it did not; 77 skipped: something is missing here.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=labs/xen/machine.sh
. labs/xen/machine.sh

prepare debug
boot debug fail "sched=punctual sched_punctual=rtds" "$parts/dom0/fail.sh" "$punctual"
log=$lab/fail.log
grep -aE '^FAIL|punctual: |round robin' "$log" | tr -d '\r' | sort -u
python3 - "$log" <<'END'
import re, sys
log = open(sys.argv[1], errors="replace").read()
shares = {}
for label, *times in re.findall(r"FAIL (\w+) (\d+) (\d+) (\d+)", log):
    length, one, two = map(int, times)
    shares[label] = (one / length * 100, two / length * 100)
near = lambda label, one, two: all(
    abs(a - b) <= 2 for a, b in zip(shares.get(label, (0, 0)), (one, two)))
checks = {
    "before the failure both get their budgets": near("before", 40, 20),
    "the console says what failed": "the policy was broken on purpose" in log,
    "the pool goes on in round robin": "round robin from now on" in log
        and all(share > 30 for share in shares.get("parked", (0, 0))),
    "another policy takes over": near("after", 40, 20),
}
for check, holds in checks.items():
    print("ok " if holds else "NOT", check)
sys.exit(not all(checks.values()))
END
