"""Free memory of Xen, and what pools of the scheduler have, before and after. The scheduler keeps the memory
that it was given for as many pools as there were at once.

usage: stress.py LOG
"""
import re, sys
free, used, given, when = {}, {}, {}, None
for line in open(sys.argv[1], errors="replace"):
    if found := re.search(r"STRESS-MEMORY (\w+)", line):
        when = found[1]
    elif when and (found := re.search(r"(?:Xen|Dom) heap: (\d+)kB free", line)):
        free[when] = free.get(when, 0) + int(found[1])
    elif when and (found := re.search(r"all pools have (\d+) of (\d+) bytes", line)):
        used[when], given[when] = found[1], int(found[2]) // 1024
gone = free["before"] - free["after"] - (given["after"] - given["before"])
print(f"free KiB {free['before']} before, {free['after']} after; the scheduler was given {given['before']} "
      f"and {given['after']} KiB, so {gone} are gone; pools have {used['before']} and {used['after']} bytes")
sys.exit(gone > 1024 or used["before"] != used["after"])
