"""A row of the table of scripts/xen-cost.sh: what the scheduler of a boot took between two dumps.

usage: cost.py NAME LOG
An instruction takes 4 ns there, and the time stamp counter counts ns.
"""
import re
import sys

INSTRUCTION_NS = 4
# What no scheduler of Xen decides: it is shown, and not added.
SWITCH = "switch"


def counted(log):
    """Calls and instructions of each kind between the dumps of a log."""
    dumps, dump = [], None
    for line in open(log, errors="replace"):
        if "COST-" in line:
            dump = {}
            dumps.append(dump)
        elif found := re.search(r"COUNT (\w+) (\d+) (\d+)", line):
            if dump is not None:
                dump[found[1]] = (int(found[2]), int(found[3]) / INSTRUCTION_NS)
    if len(dumps) != 2 or not all(dumps):
        sys.exit(f"nothing was measured: see {log}")
    return {kind: tuple(b - a for a, b in zip(dumps[0][kind], dumps[1][kind])) for kind in dumps[0]}


if __name__ == "__main__":
    name, log = sys.argv[1:]
    counts = counted(log)
    decisions = counts["do_schedule"][0]
    total = sum(instructions for kind, (_, instructions) in counts.items() if kind != SWITCH)
    row = [f"{kind} {calls} x {spent / max(calls, 1):.0f}" for kind, (calls, spent) in counts.items()]
    each = f"{total / decisions:6.0f} for each of {decisions} decisions"
    print(f"{name:<24} {each}: " + ", ".join(row), flush=True)
