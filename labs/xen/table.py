"""A row of the table of `labs/lab xen shares`: what guests of a boot ran, and what the simulator gives them.

usage: table.py NAME LOG "ONE TWO ONE TWO"   shares simulated with the first and the second budgets, in %
exit: 0 every share is within a point, 1 one is not or was not measured
"""
import re
import sys

name, log, expected = sys.argv[1:]
expected = [float(share) for share in expected.split()]
measured = []
for line in open(log, errors="replace"):
    found = re.search(r"SHARES \w+ (\d+) (\d+) (\d+)", line)
    if found:
        length, one, two = map(int, found.groups())
        measured += [one / length * 100, two / length * 100]
if len(measured) != 4:
    print(f"{name:<24} was not measured: see {log}")
    sys.exit(1)


def pair(shares):
    return f"{shares[0]:5.1f} {shares[1]:5.1f}"


near = all(abs(a - b) <= 1 for a, b in zip(measured, expected))
columns = [pair(measured[:2]), pair(expected[:2]), pair(measured[2:]), pair(expected[2:])]
verdict = "" if near else "more than a point apart"
print(f"{name:<24}", *(f"{column:<14}" for column in columns), verdict, flush=True)
sys.exit(0 if near else 1)
