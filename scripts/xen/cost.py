"""A row of the table of scripts/xen-cost.sh: what the scheduler of a boot took between two dumps.

usage: cost.py NAME LOG
An instruction takes 4 ns there, and the time stamp counter counts ns.
"""
import re
import sys

name, log = sys.argv[1:]
dumps, dump = [], None
for line in open(log, errors="replace"):
    if "COST-" in line:
        dump = {}
        dumps.append(dump)
    elif found := re.search(r"COUNT (\w+) (\d+) (\d+)", line):
        if dump is not None:
            dump[found[1]] = (int(found[2]), int(found[3]) / 4)
if len(dumps) != 2 or not all(dumps):
    sys.exit(f"{name:<24} was not measured: see {log}")
row, total, decisions = [], 0, 0
for kind in dumps[0]:
    calls = dumps[1][kind][0] - dumps[0][kind][0]
    instructions = dumps[1][kind][1] - dumps[0][kind][1]
    total += instructions
    if kind == "do_schedule":
        decisions = calls
    row.append(f"{kind} {calls} x {instructions / max(calls, 1):.0f}")
print(f"{name:<24} {total / decisions:6.0f} for each of {decisions} decisions: " + ", ".join(row), flush=True)
