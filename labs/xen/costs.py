"""What jobs and domain 0 took in a run in Xen beyond what the host file says, as words for `punctual sim`:
each job of a domain costs as much more as its vCPUs ran longer than its tasks, divided by its jobs, or less,
where a guest found its processor slower than it was later; domain 0 has the share that it had, every 20 ms.

usage: costs.py HOST.toml XEN.json
"""
import json
import sys
import tomllib

MANAGER, MANAGER_PERIOD_NS = "Domain-0", 20_000_000
UNITS_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


def ns(text):
    unit = text.lstrip("0123456789.")
    return round(float(text.removesuffix(unit)) * UNITS_NS[unit])


def main():
    host = tomllib.load(open(sys.argv[1], "rb"))
    results = json.load(open(sys.argv[2]))
    words = []
    for domain in results["domains"]:
        name = domain["name"]
        if name == MANAGER:
            cost_ns = round(domain["cpu_time_ns"] / results["duration_ns"] * MANAGER_PERIOD_NS)
            words += [f"domain.{name}.task.tools.period={MANAGER_PERIOD_NS}ns",
                      f"domain.{name}.task.tools.cost={max(cost_ns, 1)}ns"]
            continue
        tasks = [task for task in results["tasks"] if task["parent"] == name]
        jobs = sum(task["jobs"]["due"] for task in tasks)
        more_ns = domain["cpu_time_ns"] - sum(task["cpu_time_ns"] for task in tasks)
        # A task that never rests has its cost within the time that its vCPU gets.
        if any("cost" not in host["domain"][name]["task"][task["name"]] for task in tasks):
            continue
        for task in tasks:
            cost_ns = ns(host["domain"][name]["task"][task["name"]]["cost"])
            words.append(f"domain.{name}.task.{task['name']}.cost={cost_ns + more_ns // jobs}ns")
    print(*(word for setting in words for word in ("--set", setting)))


if __name__ == "__main__":
    main()
