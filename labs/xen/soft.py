"""The table of `labs/lab xen soft`: a guest runs where its soft affinity says while that is free.

usage: soft.py LOG
"""
import re, sys
lines = re.findall(r"SOFT (\w+) (\w+) (\d+) (\d+)", open(sys.argv[1], errors="replace").read())
print("| policy | soft affinity | samples on processor 1 | on 2 |\n|---|---|---|---|")
there = {}
for policy, soft, *counts in lines:
    print(f"| {policy} | {soft} | {counts[0]} | {counts[1]} |")
    there[policy, soft] = [int(count) for count in counts]
holds = lambda policy, soft: there.get((policy, soft), [0, 0])[int(soft) - 1] >= 27
sys.exit(not all(holds("rtds", soft) for soft in "12"))
