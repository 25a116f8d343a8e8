"""Judges what guests of `labs/lab switch restarts` printed: restarts.py FOLDER, with consoles NAME-LIFE."""

import pathlib
import re
import sys

FLOW = re.compile(r"LAB flow (\w) (\d+) (\d+) (\d+) (\d+)$")


def main(folder):
    consoles = [path for path in folder.iterdir() if re.fullmatch(r"[abc]-\d+", path.name)]
    consoles.sort(key=lambda path: int(path.name[2:]))
    # The last line of each flow at each life of its receiver; flows are of one life of their sender.
    flows, wrong = {}, []
    for console in consoles:
        receiver, of_console = console.name[0], {}
        # A guest that is killed leaves a line unfinished.
        for line in console.read_text(errors="replace").split("\n")[:-1]:
            line = line.rstrip("\r")
            if line.startswith("LAB wrong"):
                wrong.append(f"{console.name}: {line}")
            elif found := FLOW.match(line):
                sender, life, first, last, count = found.group(1), *map(int, found.groups()[1:])
                of_console[(sender, life, receiver)] = (first, last, count)
        for flow, got in of_console.items():
            flows.setdefault(flow, []).append((console.name, got))
    came = lost = 0
    for flow, parts in flows.items():
        for (_, earlier), (name, later) in zip(parts, parts[1:]):
            if later[0] <= earlier[1]:
                wrong.append(f"{name}: number {later[0]} of {flow} came, which {earlier[1]} was before")
        for _, (first, last, count) in parts:
            came += count
            lost += last - first + 1 - count
    print(f"{len(consoles)} lives of guests, {len(flows)} flows: {came} frames came, {lost} between them did "
          f"not, {len(wrong)} came twice, out of order or damaged")
    print("\n".join(wrong[:20]))
    return 1 if wrong or not came else 0


sys.exit(main(pathlib.Path(sys.argv[1])))
