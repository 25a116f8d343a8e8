"""Two switches beside each other, from the lines of `labs/lab switch measure-ovs`: the median of the rounds,
the least and the most of each value, and the first switch's median over the second's."""

import re
import statistics
import sys

values = {}
for line in sys.stdin:
    name, _, rest = line.rstrip().partition("  ")
    load, _, said = rest.strip().rpartition(": ")
    for what, value in re.findall(r"(p50|p99) ([0-9.]+) us", said):
        values.setdefault((load, f"us {what}"), {}).setdefault(name, []).append(float(value))
    for value, what in re.findall(r"([0-9]+) (packets/s|missing)", said):
        values.setdefault((load, what), {}).setdefault(name, []).append(float(value))
if not values:
    sys.exit("nothing was measured")


def told(each, digits):
    middle, least, most = statistics.median(each), min(each), max(each)
    return f"{middle:.{digits}f} ({least:.{digits}f}, {most:.{digits}f})"


names = list(next(iter(values.values())))
print("| load | unit |", " | ".join(names), "| ratio |")
print("|---" * (len(names) + 3) + "|")
for (load, unit), by_name in values.items():
    digits = 1 if unit.startswith("us") else 0
    middles = [statistics.median(each) for each in by_name.values()]
    compares = len(middles) == 2 and middles[1] and unit != "missing"
    ratio = f"{middles[0] / middles[1]:.2f}" if compares else "-"
    print(f"| {load} | {unit} |", " | ".join(told(each, digits) for each in by_name.values()), f"| {ratio} |")
