"""Work of a guest with two vCPUs on one processor, under plain Linux and under policies.

usage: smp.py PUNCTUAL KERNEL INITRD ROUNDS MS POLICY...

The loads of smp-guest.c run for MS each, one after the other: under plain Linux, confined to processor 1, and
under each policy, the vCPUs with one budget, in turn. What counts is the work for each second of the vCPUs'
processor time. A load that has not ended after its time and 10 s is a hang. Then what `punctual sim` predicts
for each load and policy, from the costs of each load on one vCPU alone, stands beside what was measured.
exit: 0; 1 where a load hung
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from guest import Guest

LOADS = "computing pipe tlb membarrier interrupt exec directory spin-barrier spinlock mutex".split()
HANG_S = 10
HOLDS = "hold-spinlock hold-mutex".split()
GOAL = 0.8
CLOSE = 0.15


class Machine(Guest):
    def __init__(self, kernel, initrd):
        options = (["-accel", "tcg,thread=multi", "-smp", "2"], "idle=halt")
        super().__init__("smp", kernel, initrd, options, 60)
        assert len(self.vcpus) == 2, self.threads
        for thread in self.threads:
            os.sched_setaffinity(thread, {1 if thread in self.vcpus else 0})

    def place(self, *processors):
        for thread, processor in zip(self.vcpus, processors):
            os.sched_setaffinity(thread, {processor})

    def used_s(self):
        times = [Path(f"/proc/{thread}/schedstat").read_text().split()[0] for thread in self.vcpus]
        return sum(map(int, times)) / 1e9

    def work(self, load, ms, threads=2):
        """Operations of each thread for a second of the vCPUs' processor time; None for a hang."""
        before = self.used_s()
        counts = self.operations(load, ms, threads, HANG_S)
        if counts is None or min(counts := counts[:threads]) == 0:
            return None
        used = self.used_s() - before
        return [count / used for count in counts]


def host_file(policy, domain):
    has_budget = policy not in ("fixed-priority", "edf")
    budget = 'budget = "8ms"\nperiod = "10ms"\nbudget_of = "vm"\n' if has_budget else ""
    return (
        f'[machine]\nprocessors = 2\n[pool.guests]\nprocessors = [1]\npolicy = "{policy}"\n'
        f"[domain.vm]\n{budget}vcpus = 2\n{domain}\n"
    )


class Enforced:
    def __init__(self, punctual, policy, machine, directory):
        host = directory / "host.toml"
        host.write_text(host_file(policy, f"attach = {{ process = {machine.process.pid} }}"))
        environment = dict(os.environ, PUNCTUAL_STATE=str(directory / "state"))
        self.log = directory / "log"
        with open(self.log, "w") as log:
            self.run = subprocess.Popen([punctual, "attach", host], stdout=log, stderr=log, env=environment)
        time.sleep(0.7)

    def end(self):
        self.run.send_signal(signal.SIGINT)
        if self.run.wait() != 0:
            sys.exit(self.log.read_text())


def measure(punctual, machine, rounds, ms, policies, directory):
    """By policy and load, the work of each round, and what operations cost then on one vCPU alone."""
    costs = {(policy, load): [] for policy in policies for load in (*LOADS, *HOLDS)}
    results = {(policy, load): [] for policy in ["linux", *policies] for load in LOADS}
    for number in range(rounds):
        for policy in ["linux", *policies]:
            run = None if policy == "linux" else Enforced(punctual, policy, machine, directory)
            try:
                for load in LOADS:
                    results[policy, load].append(machine.work(load, ms))
                    if results[policy, load][-1] is None:
                        print(f"round {number + 1}: {load} hung under {policy}", flush=True)
                    # At once, because the speed of a processor that others share changes by the second.
                    for alone in {load, f"hold-{load}"} & {*LOADS, *HOLDS} if policy != "linux" else ():
                        if work := alone != "pipe" and machine.work(alone, ms / 2, threads=1):
                            costs[policy, alone].append(1 / work[0])
            finally:
                if run:
                    run.end()
    return results, {key: statistics.median(values) for key, values in costs.items() if values}


def smp_table(load, policy, costs):
    """What the vCPUs do in the load, for the simulator."""

    def ns(seconds):
        return f'"{max(1, round(seconds * 1e9))}ns"'

    cost = costs[policy, load]
    keys = {
        "pipe": {"work": '"pipe"', "cost": ns(cost)},
        "spin-barrier": {"work": '"barrier"', "cost": ns(cost)},
    }
    for lock in ["spinlock", "mutex"]:
        held = costs.get((policy, f"hold-{lock}"), 0)
        keys[lock] = {"work": f'"{lock}"', "cost": ns(cost - held), "held": ns(held)}
    # Both operations hold the directory's lock.
    keys["directory"] = {"work": '"mutex"', "cost": '"1ns"', "held": ns(cost)}
    for load_of, callers in [("membarrier", 2), ("tlb", 2), ("interrupt", 1)]:
        keys[load_of] = {"work": '"interrupt"', "cost": ns(cost), "answer": ns(cost), "callers": callers}
    # Nothing to wait for.
    alone = {"work": '"interrupt"', "cost": ns(cost), "answer": '"1ns"', "callers": 0}
    lines = [f"{key} = {value}\n" for key, value in keys.get(load, alone).items()]
    return "[domain.vm.smp]\n" + "".join(lines)


def simulate(punctual, policies, costs, directory):
    """By policy and load, the same as Machine.work."""
    results = {}
    for policy in policies:
        for load in LOADS:
            host = directory / "simulated.toml"
            host.write_text(host_file(policy, smp_table(load, policy, costs)))
            done = subprocess.run([punctual, "sim", host, "--json"], capture_output=True, check=True)
            tasks = json.loads(done.stdout)["tasks"]
            used = sum(task["cpu_time_ns"] for task in tasks) / 1e9
            results[policy, load] = [task["smp"]["rounds"] / used for task in tasks]
    return results


def beside_simulated(results, simulated, costs, policies):
    def of(load, counts):
        # The other thread only computes.
        return counts[0] if load == "interrupt" else sum(counts)

    print("simulated work in percent of the measured one")
    print(f"{'load':14}{'cost, us':>12}" + "".join(f"{policy:>16}" for policy in policies))
    beyond = []
    for load in LOADS:
        row = {}
        for policy in policies:
            measured = [of(load, counts) for counts in results[policy, load] if counts]
            median = statistics.median(measured) if measured else 0
            row[policy] = of(load, simulated[policy, load]) / median if median else 0
        cost_us = statistics.median(costs[policy, load] for policy in policies) * 1e6
        print(f"{load:14}{cost_us:12.2f}" + "".join(f"{100 * share:16.0f}" for share in row.values()))
        beyond += [f"{policy} {load}" for policy, share in row.items() if abs(share - 1) > CLOSE]
    print(f"more than {CLOSE:.0%} apart: {', '.join(beyond) or 'none'}")


def main(punctual, kernel, initrd, rounds, ms, policies):
    machine = Machine(kernel, initrd)
    try:
        with tempfile.TemporaryDirectory() as directory:
            results, costs = measure(punctual, machine, rounds, ms, policies, Path(directory))
            # It takes two vCPUs: each has a processor.
            machine.place(0, 1)
            pipe = [machine.work("pipe", ms) for _ in range(rounds)]
            costs |= {(policy, "pipe"): 1 / statistics.median(map(sum, pipe)) for policy in policies}
            simulated = simulate(punctual, policies, costs, Path(directory))
    finally:
        machine.process.kill()
        machine.process.wait()
    table(results, policies, rounds)
    beside_simulated(results, simulated, costs, policies)
    hangs = sum(value is None for values in results.values() for value in values)
    print(f"{hangs} hangs in {rounds} rounds")
    return hangs


def table(results, policies, rounds):
    def median(of, policy, load):
        return statistics.median([of(counts) if counts else 0 for counts in results[policy, load]])

    def less_busy(counts):
        return min(counts) / sum(counts)

    print(f"operations for each second of processor time, in percent of plain Linux; medians of {rounds}")
    print(f"{'load':14}{'Linux, 1/s':>12}" + "".join(f"{policy:>16}" for policy in policies))
    low = []
    for load in LOADS:
        linux = median(sum, "linux", load)
        shares = {policy: median(sum, policy, load) / linux if linux else 0 for policy in policies}
        print(f"{load:14}{linux:12.0f}" + "".join(f"{100 * share:16.0f}" for share in shares.values()))
        low += [f"{policy} {load}" for policy, share in shares.items() if share < GOAL]
    print(f"below {GOAL:.0%}: {', '.join(low) or 'none'}")
    print("the part of the vCPU that did less, in percent of all operations")
    for load in LOADS:
        parts = [100 * median(less_busy, policy, load) for policy in ["linux", *policies]]
        print(f"{load:14}{parts[0]:12.0f}" + "".join(f"{part:16.0f}" for part in parts[1:]))


if __name__ == "__main__":
    punctual, kernel, initrd, rounds, ms, *policies = sys.argv[1:]
    sys.exit(main(punctual, kernel, initrd, int(rounds), int(ms), policies) > 0)
