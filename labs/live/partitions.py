"""Isolated partitions of runs, made and undone: partitions.py PROGRAM ROUNDS

Needs root, two processors and cpusets of cgroup version 2. In each round a run with `--isolate` attaches
to a process, or starts one, beside fair processes, and ends in one of four ways at a random moment: it is
interrupted, it is killed, its guardian is killed, or both are killed and `punctual restore` undoes the run.
Then the affinity, class and cgroup of every thread of the machine, the cgroups and the controllers must be
as before. Prints how many rounds came to a partition. The runs that must be refused are tried first.
"""

import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path("/sys/fs/cgroup")
ALL = os.sched_getaffinity(0)
SPIN = "while :; do :; done"
HOST = """[machine]
processors = 2
[pool.guests]
processors = [1]
policy = "deferrable"
[domain.unit]
budget = "5ms"
period = "10ms"
priority = 1
{}
"""
STARTED = 'process = { command = ["sh", "-c", "(while :; do :; done) & while :; do :; done"] }'
# Workers and RCU's boosters come and go, and their processors are the kernel's own business.
OWN = re.compile(r"kworker|punctual|migration|rcu_exp")


def leave():
    os.sched_setaffinity(0, ALL)


def spin(group=None):
    process = subprocess.Popen(["sh", "-c", SPIN], preexec_fn=leave)
    if group:
        (group / "cgroup.procs").write_text(str(process.pid))
    return process


def vm(home):
    """As a VM of libvirt: a process with threads in threaded groups of their own. The second is its vCPU."""
    work = "import threading\nthreading.Thread(target=lambda: [0 for _ in iter(int, 1)]).start()"
    process = subprocess.Popen([sys.executable, "-c", work], preexec_fn=leave)
    tasks = pathlib.Path(f"/proc/{process.pid}/task")
    while len(os.listdir(tasks)) < 2:
        time.sleep(0.05)
    (home / "cgroup.procs").write_text(str(process.pid))
    for group, tid in zip([home / "emulator", home / "vcpu0"], sorted(os.listdir(tasks), key=int)):
        group.mkdir()
        (group / "cgroup.type").write_text("threaded")
        (group / "cgroup.threads").write_text(tid)
    return process, tid


def threads():
    """Name, class, priority, affinity and group of every thread."""
    found = {}
    for task in pathlib.Path("/proc").glob("[0-9]*/task/[0-9]*"):
        try:
            tid, name = int(task.name), (task / "comm").read_text().strip()
            if OWN.search(name) or tid == os.getpid():
                continue
            found[tid] = (
                name,
                os.sched_getscheduler(tid),
                os.sched_getparam(tid).sched_priority,
                tuple(sorted(os.sched_getaffinity(tid))),
                (task / "cgroup").read_text().strip(),
            )
        except (ProcessLookupError, FileNotFoundError):
            continue
    return found


def groups():
    """Each cgroup with what its cpuset says."""
    files = ["cgroup.subtree_control", *(f"cpuset.cpus.{name}" for name in ("partition", "effective"))]
    read = lambda file: file.read_text().strip() if file.exists() else None
    directories = [ROOT, *(path for path in ROOT.rglob("*") if path.is_dir())]
    return {str(path): [read(path / file) for file in files] for path in directories}


def state():
    return threads(), groups()


def differences(before, after):
    told = []
    for old, new in zip(before, after):
        # What came or ended meanwhile has no state before.
        both = old.keys() & new.keys() if old is before[0] else old.keys() | new.keys()
        told += [f"{key}: {old.get(key)} -> {new.get(key)}" for key in both if old.get(key) != new.get(key)]
    return told


def children(pid):
    return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def guardian_of(run):
    try:
        is_one = lambda child: b"guardian" in pathlib.Path(f"/proc/{child}/cmdline").read_bytes()
        return next(filter(is_one, children(run)), None)
    except FileNotFoundError:
        return None


def kill(pid, number=signal.SIGKILL):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


class Runs:
    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        self.environment = {**os.environ, "PUNCTUAL_STATE": str(folder / "state")}

    def start(self, domain, *options):
        host = self.folder / "host.toml"
        host.write_text(HOST.format(domain))
        attaches = domain.startswith("attach")
        command = [self.program, "attach" if attaches else "run", host, "--isolate", *options]
        command += [] if attaches else ["--duration", "60s"]
        self.log = (self.folder / "log").open("w+")
        environment, log = self.environment, self.log
        return subprocess.Popen(command, stdout=log, stderr=log, env=environment, preexec_fn=leave)

    def said(self):
        self.log.seek(0)
        return self.log.read()

    def restore(self):
        done = subprocess.run([self.program, "restore"], env=self.environment, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"restore failed: {done.stdout}{done.stderr}")

    def journals(self):
        return list((self.folder / "state").glob("*.journal"))


def partition_of(run):
    file = ROOT / f"punctual-{run}-isolated/pool0/cpuset.cpus.partition"
    try:
        return file.read_text().strip()
    except OSError:
        return None


def refused(runs, words):
    run = runs.start(STARTED)
    code = run.wait(timeout=60)
    if code != 2 or words not in runs.said():
        sys.exit(f"expected a refusal with {words!r}, got {code}:\n{runs.said()}")
    print("refused:", next(line for line in runs.said().splitlines() if words in line))


def refusals(runs):
    (ROOT / "cgroup.subtree_control").write_text("+cpuset")
    other = ROOT / "other"
    other.mkdir()
    for file, content in [("cpuset.cpus", "1"), ("cpuset.cpus.exclusive", "1")]:
        (other / file).write_text(content)
        refused(runs, f"/other has processors 1 in `{file}`")
        (other / file).write_text("\n")
    other.rmdir()
    (ROOT / "cgroup.subtree_control").write_text("-cpuset")


def end(runs, run, how):
    guardian = guardian_of(run.pid)
    if how == "interrupted":
        run.send_signal(signal.SIGINT)
    if how in ("guardian", "both") and guardian:
        kill(guardian)
    if how in ("run", "both"):
        run.kill()
    if how == "guardian" and not guardian:
        run.send_signal(signal.SIGINT)
    run.wait(timeout=60)
    if how == "both":
        runs.restore()
    give_up = time.monotonic() + 20
    while runs.journals() or any(ROOT.glob("punctual-*")):
        if time.monotonic() > give_up:
            sys.exit(f"{how}: {runs.journals()} and {list(ROOT.glob('punctual-*'))} are left:\n{runs.said()}")
        time.sleep(0.01)


def main():
    program, rounds = sys.argv[1], int(sys.argv[2])
    os.sched_setaffinity(0, {0})
    random.seed(rounds)
    isolated = 0
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(program, pathlib.Path(folder))
        refusals(runs)
        home = ROOT / "home"
        home.mkdir()
        victim, vcpu = vm(home)
        beside, bound = [spin(), spin()], spin()
        os.sched_setaffinity(bound.pid, {1})
        before = state()
        longest = 0.0
        for number in range(rounds):
            how = ["interrupted", "run", "guardian", "both"][number % 4]
            began = time.monotonic()
            domain = STARTED if number // 4 % 2 else f"attach = {{ threads = [{vcpu}] }}"
            run = runs.start(domain)
            if number < 2:
                # How long it takes here until the partition is there.
                while partition_of(run.pid) != "isolated":
                    if run.poll() is not None or time.monotonic() - began > 60:
                        sys.exit(f"the run ended with {run.returncode}:\n{runs.said()}")
                    time.sleep(0.002)
                time.sleep(0.1)
                longest = max(longest, time.monotonic() - began)
                strangers = [pid for pid in (*beside, bound) if 1 in os.sched_getaffinity(pid.pid)]
                if strangers:
                    sys.exit(f"processes may run on the pool's processor: {strangers}")
            else:
                time.sleep(random.uniform(longest * 0.3, longest * 1.7))
            found = partition_of(run.pid)
            isolated += found == "isolated"
            print(f"{number}: {how} after {time.monotonic() - began:.1f} s, {found}", flush=True)
            end(runs, run, how)
            told = differences(before, state())
            if told:
                sys.exit(f"round {number}, {how}: not as before:\n" + "\n".join(told) + "\n" + runs.said())
        for process in (victim, bound, *beside):
            process.kill()
            process.wait()
        for group in (home / "emulator", home / "vcpu0", home):
            group.rmdir()
    print(f"{rounds} rounds, {isolated} with a partition: everything was as before")


main()
