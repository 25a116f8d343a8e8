"""Packets a second and round trips of two switches, from the lines of `labs/lab switch measure-ovs`:
the median of the rounds, the least and the most."""

import re
import statistics
import sys

rounds = {}
for line in sys.stdin:
    found = re.match(r"(\S+) +(\d+) packets/s .*p50 ([0-9.]+) us, p99 ([0-9.]+) us", line)
    if found:
        rounds.setdefault(found[1], []).append(tuple(map(float, found.groups()[1:])))
if len(rounds) < 2:
    sys.exit("nothing was measured")
for name, each in rounds.items():
    said = []
    for what, values in zip(("packets/s", "us p50", "us p99"), zip(*each)):
        digits = 0 if what == "packets/s" else 1
        middle, least, most = statistics.median(values), min(values), max(values)
        said.append(f"{middle:.{digits}f} ({least:.{digits}f}, {most:.{digits}f}) {what}")
    print(f"{name:9}", "; ".join(said))
