"""A table in Markdown of what was simulated and what Xen did: shares of one processor in %, and of each task
the median and the 99 % quantile of its response times in ms and how many jobs missed their deadline.

Simulated twice: as the file says, and with what jobs and domain 0 took in Xen (costs.py).

usage: compare.py CASE [POLICY SIMULATED.json WITH-COSTS.json XEN.json]...
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


def apart_from(simulated, measured):
    return max(abs(a - b) for (name, a), (_, b) in zip(simulated, measured) if name != MANAGER)


case, rest = sys.argv[1], sys.argv[2:]
rows, apart = [], []
for policy, *files in zip(rest[::4], rest[1::4], rest[2::4], rest[3::4]):
    all_three = [json.load(open(file)) for file in files]
    measured = shares(all_three[2])
    for place, results in zip(("simulated", "with costs", "in Xen"), all_three):
        cells = [f"{share:.1f}" for _, share in shares(results)] + [times(jobs) for _, jobs in tasks(results)]
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
