"""Packets a second of the bridge and of the switch, from the lines of `labs/lab switch measure-host`:
their medians, and how many times as many the switch carries."""

import re
import statistics
import sys

rates, where = {}, ""
for line in sys.stdin:
    if line.startswith(("packets of", "the same")):
        # The load generator has the switch's processor in its second round.
        where = ", one processor" if line.startswith("the same") else ""
    found = re.match(r" *(.+?) +(\d+) packets/s", line)
    if found:
        name = found[1] if ", " in found[1] else found[1] + where
        rates.setdefault(name, []).append(int(found[2]))
bridges = [name for name in rates if name.startswith("bridge")]
if not bridges or len(rates) == len(bridges):
    sys.exit("nothing was measured")
print("packets/s of 64 bytes: median (least, most); times " + ", times ".join(bridges))
for name, each in rates.items():
    middle = statistics.median(each)
    ratios = [f"{middle / statistics.median(rates[bridge]):.1f}" for bridge in bridges]
    print(f"{name:28} {middle:9.0f} ({min(each)}, {max(each)}); {', '.join(ratios)}")
