"""Judges the log of `labs/lab xen fail`: the pool goes on, and another policy takes over.

usage: fail.py LOG
"""
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
