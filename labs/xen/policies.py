"""The table of `labs/lab xen policies`: shares of both guests under each policy.

usage: policies.py LOG
"""
import re, sys
lines = re.findall(r"POLICIES (\d) (\w+) (\d+) (\d+) (\d+)", open(sys.argv[1], errors="replace").read())
print("| policy | one, % | two, % |\n|---|---|---|")
shares = {}
for _, policy, length, *ran in lines:
    shares.setdefault(policy, []).append([int(ms) / int(length) * 100 for ms in ran])
for policy, of in shares.items():
    one, two = zip(*of)
    print(f"| {policy} | {min(one):.0f} to {max(one):.0f} | {min(two):.0f} to {max(two):.0f} |")
# What they ran is known to tenths of a second of about 2.5 s. Credit has no budgets.
holds = len(lines) == 28 and all(33 < one < 47 and two > 3 for of in shares.values() for one, two in of)
sys.exit(not holds)
