"""The round trips in the log of `labs/lab xen rtca`.

usage: rtca.py SCHEDULER LOG
exit: 1 if a round has no result, if the bridge sent packets of the flood to the urgent pair, or if batch 1
takes more than 1.5 times as long beside a flood as alone
"""

import sys

LEVELS = ["base", "light", "medium", "heavy"]
QUANTILES = {"p50": 0.5, "p75": 0.75, "p95": 0.95, "p99": 0.99, "max": 1}


def quantile(values, share):
    return values[min(len(values) - 1, int(share * len(values)))] if values else float("inf")


def read(log):
    """Round trips in us with the number that had no answer; domain 0's time in ms with packets of guests."""
    trips, rounds = {}, {}
    with open(log, errors="replace") as lines:
        for words in map(str.split, lines):
            if words[:1] == ["TRIPS"]:
                lost, *values = words[3:]
                trips[words[1], words[2]] = int(lost), sorted(map(float, values))
            elif words[:1] == ["RTCA"]:
                counts = " ".join(words[4:]).split(" to ")
                before, after = (list(map(int, part.split())) for part in counts)
                packets = [b - a for a, b in zip(before, after, strict=True)]
                rounds[words[1], words[2]] = int(words[3]), packets
    return trips, rounds


def main():
    scheduler, log = sys.argv[1:]
    trips, rounds = read(log)
    print(f"{scheduler}: round trips in us; packets that flooding guests sent and got; domain 0's time in s")
    print(f"{'load':8}{'batch':>8}{'answers':>8}{'lost':>5}", *(f"{name:>7}" for name in QUANTILES),
          f"{'sent':>7}{'got':>7}{'time':>6}")
    medians = {}
    for level, batch in sorted(rounds, key=lambda key: int(key[0])):
        lost, values = trips.get((level, batch), (0, []))
        time, packets = rounds[level, batch]
        medians[level, batch] = quantile(values, 0.5)
        # Orders are broadcast, and an answer of the round before may be late.
        if max(packets[1], packets[3]) > len(values) + 10:
            sys.exit(f"rtca: the urgent pair got the flood's packets in round {level} {batch}")
        print(f"{LEVELS[int(level)]:8}{batch if batch != '0' else 'shipped':>8}{len(values):8}{lost:5}",
              *(f"{quantile(values, share):7.0f}" for share in QUANTILES.values()),
              f"{sum(packets[4::2]):7}{sum(packets[5::2]):7}{time / 1000:6.1f}")
    if not rounds or trips.keys() != rounds.keys():
        sys.exit(f"rtca: no result of some rounds: see {log}")
    for (level, batch), median in medians.items():
        if batch == "1" and ("0", "1") in medians and median > 1.5 * medians["0", "1"]:
            sys.exit(f"rtca: {LEVELS[int(level)]} is more than 1.5 times base with batch 1")


main()
