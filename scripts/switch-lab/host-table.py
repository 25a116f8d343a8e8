"""Packets a second of the bridge and of the switch, from the lines of `scripts/switch-lab.sh measure-host`:
their medians, and how many times as many the switch carries."""

import re
import statistics
import sys

rates = {}
for line in sys.stdin:
    found = re.match(r" *(.+?) +(\d+) packets/s", line)
    if found:
        rates.setdefault(found[1], []).append(int(found[2]))
bridges = [name for name in rates if name.startswith("bridge")]
if not bridges or len(rates) == len(bridges):
    sys.exit("nothing was measured")
print("packets/s of 64 bytes: median (least, most); times " + ", times ".join(bridges))
for name, each in rates.items():
    middle = statistics.median(each)
    ratios = [f"{middle / statistics.median(rates[bridge]):.1f}" for bridge in bridges]
    print(f"{name:15} {middle:9.0f} ({min(each)}, {max(each)}); {', '.join(ratios)}")
