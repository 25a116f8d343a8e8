"""What enforcement takes of a processor: cost.py PROCESS SECONDS

Reads, for SECONDS, the processor time of the enforcers of a run for each time that they had a processor, and
at the end the run time of its BPF programs (/proc/PROCESS/fdinfo; kernel.bpf_stats_enabled; timers'
functions are not in it). Begins when the enforcers have been there for 1.5 s.

The enforcers' share is the middle time of a look, by how many there were. The mean is printed as well: in it
is what the other processor did meanwhile, where one thread translates both in turns.
"""
import pathlib, statistics, sys, time

INTERVAL_S = 0.03


def enforcers(process):
    tasks = [task for task in (process / "task").iterdir() if task.name.isdigit()]
    return [task for task in tasks if (task / "comm").read_text().startswith("enforcer/")]


def looks(tasks):
    """Processor time and times on a processor, of all."""
    of = [list(map(int, (task / "schedstat").read_text().split())) for task in tasks]
    return sum(ran for ran, _, _ in of), sum(times for _, _, times in of)


def programs(process):
    """Run time and calls of all programs."""
    found = {}
    for fd in (process / "fdinfo").iterdir():
        try:
            of = dict(line.split(":", 1) for line in fd.read_text().splitlines() if ":" in line)
        except FileNotFoundError:
            continue
        # A program may have several descriptors.
        if "run_time_ns" in of:
            found[int(of["prog_id"])] = (int(of["run_time_ns"]), int(of["run_cnt"]))
    return [sum(values) for values in zip(*found.values())] or [0, 0]


process, seconds = pathlib.Path("/proc") / sys.argv[1], float(sys.argv[2])
while not (tasks := enforcers(process)):
    time.sleep(0.05)
time.sleep(1.5)
bpf_before, before, began = programs(process), looks(tasks), time.monotonic_ns()
last, each = before, []
while time.monotonic_ns() - began < seconds * 1e9:
    time.sleep(INTERVAL_S)
    now = looks(tasks)
    if now[1] > last[1]:
        each += [(now[0] - last[0]) / (now[1] - last[1])] * (now[1] - last[1])
        last = now
took = time.monotonic_ns() - began
bpf, calls = (now - then for now, then in zip(programs(process), bpf_before))
count = last[1] - before[1]
share, mean = statistics.median(each) * count / took, (last[0] - before[0]) / took
print(f"cost: enforcer {share:.3%} (mean {mean:.3%}, {count * 1e9 / took:.0f} looks a second), "
      f"BPF {bpf / took:.3%} ({calls * 1e9 / took:.0f} calls)")
