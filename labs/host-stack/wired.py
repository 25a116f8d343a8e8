"""Medians over the runs of labs/lab host-stack partitioned.

usage: wired.py LINES
exit: 0 beside each flood that keeps its processor busy, `partitioned` has a deviation and a p99 below those
of `threaded`; 1 it has not, or answers are missing; 2 there are no results.
"""

import collections
import statistics
import sys

COLUMNS = ("mean", "deviation", "median", "p99", "max")
BUSY_MIN = 950


def read(path):
    """By method and flood, a dictionary of numbers for each run."""
    results = collections.defaultdict(list)
    with open(path, encoding="utf-8") as file:
        for line in file:
            words = line.split()
            if words[:1] == ["result"]:
                numbers = dict(zip(words[4::2], map(int, words[5::2])))
                results[words[2], int(words[3])].append(numbers)
            elif words[:1] == ["refused"]:
                print(line, end="")
    return results


def main():
    results = read(sys.argv[1])
    if not results:
        print("no results")
        return 2
    failed = 0
    print("thousands of instructions from the question on the wire to the answer; medians of the runs")
    print(f"{'method':<14} {'flood/s':>8} {'runs':>4} " + " ".join(f"{name:>9}" for name in COLUMNS)
          + f" {'flood read':>10} {'busy %':>6}")
    for (method, flood), runs in sorted(results.items(), key=lambda item: (item[0][1], item[0][0])):
        if lost := sum(run["lost"] for run in runs):
            print(f"{method} beside {flood}: {lost} answers are missing")
            failed = 1
        middle = {name: statistics.median(run.get(name, 0) for run in runs)
                  for name in (*COLUMNS, "sent", "sunk", "busy")}
        print(f"{method:<14} {flood:>8} {len(runs):>4} "
              + " ".join(f"{middle[name] / 1000:>9.1f}" for name in COLUMNS)
              + f" {100 * middle['sunk'] / max(middle['sent'], 1):>8.0f} % {middle['busy'] / 10:>6.1f}")
    for flood in sorted({flood for _, flood in results}):
        pair = [results.get((method, flood)) for method in ("threaded", "partitioned")]
        if not all(pair):
            continue
        busy = statistics.median(run["busy"] for run in pair[0])
        line = f"threaded : partitioned beside {flood}:"
        for name in ("deviation", "p99"):
            threaded, apart = (statistics.median(run[name] for run in runs) for runs in pair)
            line += f" {name} {threaded / max(apart, 1):.1f}"
            failed |= busy >= BUSY_MIN and threaded <= apart
        print(line)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
