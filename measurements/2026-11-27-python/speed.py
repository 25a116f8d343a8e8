#!/usr/bin/env python3
"""Measures the Python package against SimSo and the command line, in turns, in processor time and in time.

usage: speed.py PUNCTUAL_PROGRAM   (in an environment with punctual, simso and their dependencies)

1. SimSo and `Host.from_toml(text).simulate(jobs=True)` on random task sets of check-simso.sh, in turns for
   each set. How many schedules are equal is counted: EDF leaves open which of two jobs with the same
   deadline comes first. The same in turns for all sets together.
2. 10,000 generated task sets, each checked and simulated, by two threads.
3. A call of the package, and the command line, on the same host.
"""

import gc
import os
import random
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import punctual

root = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(root / "scripts/differential"))
from compare_with_simso import host_file, random_task_set, simso_finish_times  # noqa: E402


def against_simso(sets, duration_ms):
    pairs, equal = [], 0
    for n in range(sets):
        rng = random.Random(7000 + n)
        processors = rng.choice([1, 1, 2, 3])
        tasks = random_task_set(rng, processors)
        for policy in ["fixed-priority", "edf"]:
            text = host_file(tasks, processors, policy, duration_ms)
            cpu = time.process_time()
            theirs, _, _ = simso_finish_times(tasks, processors, policy, duration_ms)
            simso = time.process_time() - cpu
            # The garbage of one is not paid for by the other.
            gc.collect()
            cpu = time.process_time()
            jobs = punctual.Host.from_toml(text).simulate(jobs=True).jobs
            ours = time.process_time() - cpu
            end = duration_ms * 1_000_000
            found = {
                (int(task.rpartition("/")[2][1:]), job): finish
                for task, job, finish in zip(jobs["task"], jobs["job"], jobs["finish_ns"])
                if finish is not None and finish < end
            }
            equal += found == {job: at for job, at in theirs.items() if at < end}
            pairs.append((simso, ours))
    ratios = sorted(simso / ours for simso, ours in pairs)
    total = [sum(pair[i] for pair in pairs) for i in (0, 1)]
    print(f"{len(pairs)} simulations of {duration_ms} ms, {equal} with equal schedules, in processor time:")
    print(f"  SimSo {total[0]:.2f} s, punctual {total[1]:.4f} s: {total[0] / total[1]:.0f} times")
    print(f"  ratios {ratios[0]:.0f} to {ratios[-1]:.0f}, median {statistics.median(ratios):.0f}")


def in_blocks(sets, duration_ms, rounds):
    """As against_simso, but all task sets by one and then all by the other, as a study simulates them."""
    hosts = []
    for n in range(sets):
        rng = random.Random(7000 + n)
        processors = rng.choice([1, 1, 2, 3])
        tasks = random_task_set(rng, processors)
        for policy in ["fixed-priority", "edf"]:
            hosts.append((tasks, processors, policy, host_file(tasks, processors, policy, duration_ms)))
    ratios = []
    for _ in range(rounds):
        times = []
        for simulate in [
            lambda tasks, processors, policy, _: simso_finish_times(tasks, processors, policy, duration_ms),
            lambda _tasks, _processors, _policy, text: punctual.Host.from_toml(text).simulate(jobs=True).jobs,
        ]:
            gc.collect()
            cpu = time.process_time()
            for host in hosts:
                simulate(*host)
            times.append(time.process_time() - cpu)
        ratios.append(times[0] / times[1])
    print(f"{len(hosts)} simulations of {duration_ms} ms by one and then by the other, {rounds} rounds:")
    print(f"  {', '.join(f'{ratio:.0f}' for ratio in ratios)} times, median {statistics.median(ratios):.0f}")


def many(count):
    cpu, clock = time.process_time(), time.perf_counter()

    def one(seed):
        generate = {"recipe": "uunifast", "tasks": 5, "utilization": "60%", "seed": seed}
        vm = {"budget": "7ms", "period": "10ms", "generate": generate}
        host = punctual.build(
            duration="1s", machine={"processors": 1}, pool={"p": {"policy": "deferrable"}}, domain={"vm": vm}
        )
        return host.check().all_guaranteed, host.simulate().missed == 0

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(one, range(count)))
    cpu, clock = time.process_time() - cpu, time.perf_counter() - clock
    assert all(met for guaranteed, met in found if guaranteed)
    guaranteed, met = (sum(one[i] for one in found) for i in (0, 1))
    print(
        f"{count} sets checked and simulated (1 s, two threads): {clock:.1f} s, processor time {cpu:.1f} s"
    )
    print(f"  {guaranteed} guaranteed, {met} without a miss")


def one_call(program, rounds):
    path = root / "examples/five-vms.toml"
    calls, commands = [], []
    for _ in range(rounds):
        clock = time.perf_counter()
        punctual.Host.from_file(path, duration="1s").simulate().to_json()
        calls.append(time.perf_counter() - clock)
        clock = time.perf_counter()
        subprocess.run(
            [program, "sim", path, "--duration", "1s", "--json"], stdout=subprocess.DEVNULL, check=True
        )
        commands.append(time.perf_counter() - clock)
    call, command = (1000 * statistics.median(times) for times in (calls, commands))
    print(f"five-vms for 1 s, file to JSON, median of {rounds}: call {call:.2f} ms, command {command:.2f} ms")
    host = punctual.Host.from_file(path, duration="1us")
    for name, work in [("simulate 1 us", host.simulate), ("check", host.check), ("name", lambda: host.name)]:
        clock = time.perf_counter()
        for _ in range(300):
            work()
        print(f"  {name}: {(time.perf_counter() - clock) / 300 * 1e6:.1f} us a call")


print(f"punctual {punctual.__version__}, Python {sys.version.split()[0]}, load {os.getloadavg()}")
for sets, duration_ms in [(40, 300), (40, 1000), (12, 5000)]:
    against_simso(sets, duration_ms)
for sets, duration_ms in [(40, 300), (40, 1000), (12, 5000)]:
    in_blocks(sets, duration_ms, 5)
many(10_000)
if len(sys.argv) > 1:
    one_call(sys.argv[1], 30)
