"""A table in Markdown of what was simulated and what Xen did: shares of one processor in %, and of each task
the median and the 99 % quantile of its response times in ms and how many jobs missed their deadline.

Simulated twice: as the file says, and with what jobs and domain 0 took in Xen (costs.py); under Credit a
third time, with these costs and at other phases between its ticks and the jobs (phases.py).

usage: compare.py CASE [POLICY SIMULATED.json WITH-COSTS.json PHASES.json|- XEN.json]...
exit: 0 each share is within a point of the first, 1 one is not
"""
import json
import sys

MANAGER = "Domain-0"


def shares(results):
    return [(d["name"], d["cpu_time_ns"] / results["duration_ns"] * 100) for d in results["domains"]]


def tasks(results):
    found = [t for t in results["tasks"] if t["parent"] != MANAGER and t["jobs"]["due"] > 0]
    return [(f'{t["parent"]}.{t["name"]}', t["jobs"]) for t in found]


def times(jobs):
    p50, p99 = (jobs["response"][key] / 1e6 for key in ("p50_ns", "p99_ns"))
    return f'{p50:.2f}, {p99:.2f}, {jobs["missed"]} of {jobs["due"]}'


def least_to_most(values, digits):
    least, most = (f"{value:.{digits}f}" for value in (min(values), max(values)))
    return least if least == most else f"{least} to {most}"


def cells_of_phases(runs):
    """A row for results of the same host at several phases: the least and the most of each figure."""
    cells = [least_to_most([share for _, share in of_one], 1) for of_one in zip(*map(shares, runs))]
    for of_one in zip(*map(tasks, runs)):
        jobs = [jobs for _, jobs in of_one]
        p50, p99 = (least_to_most([j["response"][key] / 1e6 for j in jobs], 2)
                    for key in ("p50_ns", "p99_ns"))
        missed = least_to_most([j["missed"] for j in jobs], 0)
        cells.append(f'{p50}, {p99}, {missed} of {jobs[0]["due"]}')
    return cells


def apart_from(simulated, measured):
    return max(abs(a - b) for (name, a), (_, b) in zip(simulated, measured) if name != MANAGER)


def main():
    case, rest = sys.argv[1], sys.argv[2:]
    rows, apart = [], []
    for policy, simulated, costs, phases, xen in zip(*(rest[i::5] for i in range(5))):
        all_three = [json.load(open(file)) for file in (simulated, costs, xen)]
        measured = shares(all_three[2])
        for place, results in zip(("simulated", "with costs", "in Xen"), all_three):
            cells = [f"{share:.1f}" for _, share in shares(results)]
            cells += [times(jobs) for _, jobs in tasks(results)]
            if place == "in Xen" and phases != "-":
                rows.append(["", "other phases", *cells_of_phases(json.load(open(phases))), ""])
            last = "" if place == "in Xen" else f"{apart_from(shares(results), measured):.1f}"
            rows.append([policy if place == "simulated" else "", place, *cells, last])
        if apart_from(shares(all_three[0]), measured) > 1:
            apart.append(policy)
        names = [name for name, _ in measured] + [name for name, _ in tasks(all_three[0])]
        titles = ["policy", case, *names, "apart"]
    if not rows:
        sys.exit(1)
    for row in [titles, ["---"] * len(titles), *rows]:
        print("| " + " | ".join(row) + " |")
    print(flush=True)
    if apart:
        print(f"{case}: more than a point apart under {', '.join(apart)}", file=sys.stderr)
    sys.exit(1 if apart else 0)


if __name__ == "__main__":
    main()
