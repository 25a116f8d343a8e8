"""A row of the table of labs/lab xen cost: what the scheduler of a boot took between two dumps.

usage: cost.py NAME LOG
An instruction takes 4 ns there, and the time stamp counter counts ns.
"""
import re
import sys

INSTRUCTION_NS = 4
# What no scheduler of Xen decides: it is shown, and not added.
SWITCH = "switch"
# The time of a dump.
NOW = "NOW"


def counted(log):
    """Calls and instructions of each kind between the dumps of a log, and the time between them in ns."""
    dumps, dump = [], None
    for line in open(log, errors="replace"):
        if "COST-" in line:
            dump = {}
            dumps.append(dump)
        elif dump is not None and (found := re.search(r"COUNT (\w+) (\d+) (\d+)", line)):
            dump[found[1]] = (int(found[2]), int(found[3]) / INSTRUCTION_NS)
        elif dump is not None and (found := re.search(r"NOW=(\d+)", line)):
            dump[NOW] = (int(found[1]),)
    if len(dumps) != 2 or not all(NOW in dump and SWITCH in dump for dump in dumps):
        sys.exit(f"nothing was measured: see {log}")
    counts = {kind: tuple(b - a for a, b in zip(dumps[0][kind], dumps[1][kind])) for kind in dumps[0]}
    (length_ns,) = counts.pop(NOW)
    return counts, length_ns


if __name__ == "__main__":
    name, log = sys.argv[1:]
    counts, _ = counted(log)
    decisions = counts["do_schedule"][0]
    total = sum(instructions for kind, (_, instructions) in counts.items() if kind != SWITCH)
    row = [f"{kind} {calls} x {spent / max(calls, 1):.0f}" for kind, (calls, spent) in counts.items()]
    each = f"{total / decisions:6.0f} for each of {decisions} decisions"
    print(f"{name:<24} {each}: " + ", ".join(row), flush=True)
