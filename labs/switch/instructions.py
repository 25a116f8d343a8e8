"""Counts the instructions that a plane executes for a packet, with valgrind's callgrind.

usage: instructions.py MEASURE [--parts] [LOAD...]   (`labs/lab switch instructions`)
  MEASURE  the example `measure` of punctual-switch, built with the feature rustix/use-libc-auxv: without it
           the program ends under valgrind when it starts
  --parts  prints, for RTCA 1, what each part of the code takes; needs addr2line
  LOAD     one, one-of-250, sixteen, mixed; by default all of them

exit: 0 no packet costs more than 5 percent above what is recorded here; 1 one does

`measure carry` has no threads and drives all ports itself, so each run counts the same. The cost of a packet
is the difference of a long run and a short one.
"""

import collections
import re
import subprocess
import sys
import tempfile

LOADS = ["one", "one-of-250", "sixteen", "mixed"]
# By discipline: what a packet costs under each load (measurements/2026-11-28-switch-instructions; Rust 1.95).
RECORDED = {
    "netback": [1210, 1499, 2090, 1714],
    "RTCA 1": [987, 1276, 1466, 1279],
    "RTCA 64": [1018, 1307, 2125, 1740],
    "preemptive 1": [972, 1261, 1435, 1247],
}
MARGIN = 1.05
PACKETS = (4000, 24000)
# What the plane does, without the drivers of the ports.
COUNTED = "*SteppedPlane*run*"
# The first pattern that is in the path of the innermost function of the project is the part.
PARTS = [
    ("discipline", "punctual-net/"),
    ("looks at the rings", "plane/poll"),
    ("taking frames in", "plane/ingress"),
    ("transmit rings", "ring/(tx|avail|chain|vring)"),
    ("receive rings and copies", "ring/(rx|copy|used)|frame.rs"),
    ("guest memory", "memory.rs|sys/"),
    ("notification", "plane/(notify|pending)|stats.rs"),
    ("carrying", "plane/egress|port_queue"),
    ("the loop of the plane", "plane"),
]


def callgrind(measure, packets, discipline, load, out):
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "--collect-atstart=no",
               f"--toggle-collect={COUNTED}", "--dump-instr=yes", measure, "carry", str(packets),
               str(discipline), load]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    carried = re.search(r"(\d+) packets", done.stdout)
    counted = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode or not carried or not counted:
        sys.exit(f"valgrind failed:\n{done.stdout}{done.stderr}")
    return int(carried[1]), int(counted[1])


def cost(measure, discipline, load):
    short, long = (callgrind(measure, packets, discipline, load, "/dev/null") for packets in PACKETS)
    return (long[1] - short[1]) / (long[0] - short[0])


def by_address(out, measure):
    """Instructions by address in the program, from callgrind's file; those of libraries at 0."""
    counts, address, called, is_own, objects = collections.Counter(), 0, False, False, {}
    for line in open(out, encoding="utf-8"):
        called = called or line.startswith("calls=")
        if found := re.match(r"c?ob=\((\d+)\)(?: (.*))?", line):
            objects.setdefault(found[1], found[2])
            if line.startswith("ob"):
                is_own = objects[found[1]].endswith(measure.split("/")[-1])
        found = re.match(r"(\*|[+-]?(?:0x)?[0-9a-f]*) \S+ (\d+)$", line)
        if not found:
            continue
        word = found[1]
        if word[0] in "+-":
            address += int(word, 0)
        elif word != "*":
            address = int(word, 0)
        if not called:
            counts[address if is_own else 0] += int(found[2])
        called = False
    return counts


def functions(measure, addresses):
    """The project's innermost file of each address."""
    given = "\n".join(hex(address) for address in addresses)
    done = subprocess.run(["addr2line", "-a", "-i", "-e", measure], input=given, capture_output=True,
                          text=True, check=True)
    stacks = re.split(r"^0x[0-9a-f]+$", done.stdout, flags=re.M)[1:]
    inner = [next((line for line in stack.split() if "/crates/" in line), "") for stack in stacks]
    return dict(zip(addresses, inner))


def parts(measure, load):
    both = []
    for packets in PACKETS:
        with tempfile.NamedTemporaryFile(prefix="callgrind.") as out:
            carried, _ = callgrind(measure, packets, 1, load, out.name)
            both.append((carried, by_address(out.name, measure)))
    (few, short), (many, long) = both
    files = functions(measure, list(long))
    sums = collections.Counter()
    for address, count in long.items():
        part = next((part for part, path in PARTS if re.search(path, files[address])), "libraries")
        sums[part] += (count - short[address]) / (many - few)
    print(f"RTCA 1, {load}: {sum(sums.values()):.0f} instructions a packet")
    for part, count in sums.most_common():
        print(f"  {part:26} {count:6.0f}")


def main():
    words = sys.argv[1:]
    by_parts = "--parts" in words
    measure, *loads = [word for word in words if word != "--parts"] or sys.exit(__doc__)
    loads = loads or LOADS
    if by_parts:
        for load in loads:
            parts(measure, load)
        return
    print("instructions of the plane for each packet of 64 bytes")
    print(f"{'':12}" + "".join(f"{load:>12}" for load in loads))
    risen = []
    for discipline, (name, recorded) in enumerate(RECORDED.items()):
        costs = [cost(measure, discipline, load) for load in loads]
        print(f"{name:12}" + "".join(f"{each:12.0f}" for each in costs), flush=True)
        for load, each in zip(loads, costs):
            most = recorded[LOADS.index(load)] * MARGIN
            risen += [f"{name}, {load}: {each:.0f} instructions, {most:.0f} at most"] if each > most else []
    if risen:
        sys.exit("\n".join(risen))


main()
