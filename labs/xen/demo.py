"""What the demo is simulated to do and what Xen did, under each policy: deadlines that each task missed, and
each domain's share of the processor in %.

usage: demo.py [TITLE SIMULATED.json XEN.json]...
exit: 0 nobody missed a deadline under the servers that is met there in simulation, and a guest without
deadlines had its simulated share to a point; 1 not so, or there are no results. Credit has no budgets and is
not judged
"""
import json
import sys

from compare import MANAGER, shares, tasks

NAME, CELL, POINTS_MAX = 14, 11, 1


def misses(results):
    return [(name, f'{jobs["missed"]} of {jobs["due"]}') for name, jobs in tasks(results)]


def percents(results):
    return [(name, f"{share:.1f}") for name, share in shares(results)]


def print_rows(title, rows_of, results):
    """A row for each name that `rows_of` finds in the results."""
    print(title)
    for cells in zip(*map(rows_of, results)):
        print(f"  {cells[0][0]:<{NAME}}" + "".join(f"{cell:>{CELL}}" for _, cell in cells))


def kept(simulated, measured):
    """What the demo shows of a server, in Xen as simulated."""
    jobs, jobs_in_xen = ([jobs for _, jobs in tasks(results)] for results in (simulated, measured))
    late = any(a["missed"] == 0 < b["missed"] for a, b in zip(jobs, jobs_in_xen))
    with_deadlines = {name.split(".")[0] for name, _ in tasks(simulated)} | {MANAGER}
    both = zip(shares(simulated), shares(measured))
    apart = [abs(a - b) for (name, a), (_, b) in both if name not in with_deadlines]
    return not late and max(apart, default=0) <= POINTS_MAX


def has_run(results):
    """Did a guest have jobs and processor time?"""
    return bool(tasks(results)) and any(share > 0 for name, share in shares(results) if name != MANAGER)


def main():
    titles, files = sys.argv[1::3], zip(sys.argv[2::3], sys.argv[3::3])
    pairs = [[json.load(open(file)) for file in pair] for pair in files]
    idle = [title for title, (_, measured) in zip(titles, pairs) if not has_run(measured)]
    if not pairs or idle:
        where = ", ".join(idle) or "any policy"
        sys.exit(f"no guest ran in Xen under {where}: see the logs in target/xen-lab")
    results = [result for pair in pairs for result in pair]
    left = f"  {'':<{NAME}}"
    print(left + "".join(f"{title:>{2 * CELL}}" for title in titles))
    print(left + f"{'simulated':>{CELL}}{'in Xen':>{CELL}}" * len(pairs))
    print_rows("deadlines missed", misses, results)
    print_rows("share of the processor, %", percents, results)
    broken = [title for title, pair in zip(titles, pairs) if "Credit" not in title and not kept(*pair)]
    if broken:
        print(f"budgets do not hold as simulated under {', '.join(broken)}", file=sys.stderr)
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
