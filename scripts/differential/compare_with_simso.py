#!/usr/bin/env python3
"""Compares Punctual's one-level schedules with SimSo's, job by job, and both programs' speed.

SimSo (Cheramy, Hladik, Deplanche, WATERS 2014) is an independent simulator of real-time multiprocessor
scheduling, from PyPI. On random task sets, fixed-priority and EDF, on one and several processors, the
finish time of every job must be the same to the nanosecond: from a host file, and from what `punctual import`
makes of SimSo's own file.

    compare_with_simso.py PUNCTUAL [--sets N] [--seed N]     compare schedules; exit status 1 on a difference
    compare_with_simso.py PUNCTUAL --speed                   events per second of both on the same task set
"""

import argparse
import contextlib
import csv
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

from simso.configuration import Configuration
from simso.core import Model

CYCLES_PER_MS = 1_000_000  # One cycle is one nanosecond.

# All times are multiples of 1/64 ms, because SimSo takes milliseconds as floating-point numbers, which are
# exact for these only.
UNIT_NS = 15_625


def random_task_set(rng, processors):
    """Tasks as (cost, period, deadline, offset) in units; utilization up to 1.1 per processor."""
    count = rng.randint(2, 8) + 2 * (processors - 1)
    shares = [rng.random() for _ in range(count)]
    load = rng.uniform(0.4, 1.1) * processors / sum(shares)
    tasks = []
    for share in shares:
        period = rng.randint(200, 4_000)
        cost = max(1, min(period, round(share * load * period)))
        deadline = period if rng.random() < 0.5 else rng.randint(max(cost, period // 2), period)
        tasks.append((cost, period, deadline, rng.choice([0, rng.randint(0, period)])))
    # Fixed priorities are unique and deadline-monotonic.
    return sorted(tasks, key=lambda t: (t[2], t))


def simso_finish_times(tasks, processors, policy, duration_ms, count_decisions=False, save_as=None):
    """Finish time in ns by (task, job), and the number of scheduler invocations if asked for."""
    configuration = Configuration()
    configuration.duration = duration_ms * CYCLES_PER_MS
    configuration.cycles_per_ms = CYCLES_PER_MS
    configuration.etm = "wcet"
    for i, (cost, period, deadline, offset) in enumerate(tasks):
        configuration.add_task(
            name=f"t{i}", identifier=i, period=period / 64, deadline=deadline / 64,
            wcet=cost / 64, activation_date=offset / 64, abort_on_miss=False,
            data={"priority": -i},
        )
    for p in range(processors):
        configuration.add_processor(name=f"CPU {p}", identifier=p)
    schedulers = {"fixed-priority": "FP", "edf": "EDF_mono" if processors == 1 else "EDF"}
    configuration.scheduler_info.clas = f"simso.schedulers.{schedulers[policy]}"
    configuration.check_all()
    if save_as:
        configuration.task_data_fields["priority"] = "int"
        configuration.save(save_as)
    model = Model(configuration)
    decisions = [0]
    if count_decisions:
        schedule = model.scheduler.schedule

        def counted(cpu):
            decisions[0] += 1
            return schedule(cpu)

        model.scheduler.schedule = counted
    started = time.perf_counter()
    # SimSo's global EDF prints every decision.
    with open(os.devnull, "w") as null, contextlib.redirect_stdout(null):
        model.run_model()
    seconds = time.perf_counter() - started
    finished = {}
    released = 0
    for i, task in enumerate(model.results.tasks.values()):
        for number, job in enumerate(task.jobs):
            released += 1
            if job.end_date is not None:
                finished[i, number] = round(job.end_date)
    return finished, decisions[0] + released + len(finished), seconds


def host_file(tasks, processors, policy, duration_ms):
    lines = [
        f'duration = "{duration_ms}ms"', "[machine]", f"processors = {processors}",
        "[pool.p]", f'policy = "{policy}"',
    ]
    for i, (cost, period, deadline, offset) in enumerate(tasks):
        lines += [
            f"[pool.p.task.t{i}]", f'cost = "{cost * UNIT_NS}ns"', f'period = "{period * UNIT_NS}ns"',
            f'deadline = "{deadline * UNIT_NS}ns"', f'offset = "{offset * UNIT_NS}ns"', f"priority = {i}",
        ]
    return "\n".join(lines) + "\n"


def punctual(program, directory, text, *arguments):
    path = os.path.join(directory, "host.toml")
    with open(path, "w") as file:
        file.write(text)
    started = time.perf_counter()
    run = subprocess.run([program, "sim", path, *arguments], capture_output=True, text=True)
    seconds = time.perf_counter() - started
    if run.returncode != 0:
        sys.exit(f"punctual failed:\n{run.stderr}\n{text}")
    return run.stdout, seconds


def imported(program, file):
    """What Punctual makes of a file of SimSo."""
    run = subprocess.run([program, "import", "--from", "simso", file], capture_output=True, text=True)
    if run.returncode != 0 or run.stderr:
        sys.exit(f"punctual import failed, or has notes where nothing is lost:\n{run.stderr}")
    return run.stdout


def punctual_finish_times(program, directory, text):
    path = os.path.join(directory, "jobs.csv")
    punctual(program, directory, text, "--jobs", path)
    with open(path, newline="") as file:
        return {
            (int(row["task"].rpartition("/")[2][1:]), int(row["job"])): int(row["finish_ns"])
            for row in csv.DictReader(file)
            if row["finish_ns"]
        }


def before(finished, duration_ms):
    """SimSo leaves out what ends at the very last instant."""
    return {job: at for job, at in finished.items() if at < duration_ms * CYCLES_PER_MS}


def differ(ours, theirs, text):
    """Prints the difference, and ends."""
    differing = sorted(job for job in ours.keys() | theirs.keys() if ours.get(job) != theirs.get(job))
    print(f"{len(differing)} jobs differ")
    for job in differing[:5]:
        print(f"  task t{job[0]} job {job[1]}: ours {ours.get(job)} ns, SimSo {theirs.get(job)} ns")
    print(text)
    sys.exit(1)


def compare(program, sets, seed):
    jobs = 0
    with tempfile.TemporaryDirectory() as directory:
        for n in range(sets):
            rng = random.Random(seed + n)
            processors = rng.choice([1, 1, 2, 3])
            tasks = random_task_set(rng, processors)
            for policy in ["fixed-priority", "edf"]:
                duration_ms = 300
                file = os.path.join(directory, "simulation.xml")
                theirs, _, _ = simso_finish_times(tasks, processors, policy, duration_ms, save_as=file)
                theirs = before(theirs, duration_ms)
                jobs += len(theirs)
                for text in [host_file(tasks, processors, policy, duration_ms), imported(program, file)]:
                    ours = before(punctual_finish_times(program, directory, text), duration_ms)
                    if ours != theirs:
                        print(f"set {seed + n}, {policy}, {processors} processors:")
                        differ(ours, theirs, text)
    equal = f"finish times of all {jobs} jobs are equal to SimSo's"
    print(f"{sets} task sets under fixed-priority and edf: {equal}")


def speed(program, seed):
    """Alternating runs on the same task set; ours simulates a hundred times longer, to be measurable."""
    tasks = random_task_set(random.Random(seed), 1)
    ratios, rates = [], []
    with tempfile.TemporaryDirectory() as directory:
        for _ in range(5):
            for policy in ["fixed-priority", "edf"]:
                _, events, seconds = simso_finish_times(tasks, 1, policy, 5_000, count_decisions=True)
                theirs = events / seconds
                text = host_file(tasks, 1, policy, 500_000)
                output, seconds = punctual(program, directory, text, "--json")
                results = json.loads(output)
                ours = results["events"] / seconds
                # Ours simulates 100 times as long.
                ratios.append((ours / theirs, 100 * (events / theirs) / seconds))
                rates.append((ours, theirs))
    by_events, by_time = (statistics.median(column) for column in zip(*ratios))
    ours, theirs = (statistics.median(column) for column in zip(*rates))
    print(f"Punctual {ours:,.0f} events/s, SimSo {theirs:,.0f} events/s (medians of 10 alternating runs)")
    print(f"ratio by events per second {by_events:,.0f}, by simulated time per second {by_time:,.0f}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("punctual", help="path of the punctual program")
    parser.add_argument("--sets", type=int, default=40, help="number of random task sets (default 40)")
    parser.add_argument("--seed", type=int, default=1, help="first seed (default 1)")
    parser.add_argument("--speed", action="store_true", help="measure events per second instead")
    arguments = parser.parse_args()
    if arguments.speed:
        speed(arguments.punctual, arguments.seed)
    else:
        compare(arguments.punctual, arguments.sets, arguments.seed)


if __name__ == "__main__":
    main()
