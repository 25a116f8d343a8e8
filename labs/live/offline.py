"""Takes the processor of a unit offline and online again while a run is attached to it.

usage: offline.py PROGRAM TIMES
example, in the machine of the lab `kernel`: offline.py target/debug/punctual 10

The pool has processor 1, on which two processes spin with budgets of 2 and 3 ms in 10 ms. Processor 1 goes
offline for two seconds and comes back, TIMES times, each under a run of its own. Prints for each time what
the units had of a processor, and in which class and where they were: before, while the processor was gone,
and after; then what the run said.
exit: 0; 1 where a unit was real-time elsewhere than on processor 1 for longer than 200 ms, or something was
      left behind
"""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

ONLINE = pathlib.Path("/sys/devices/system/cpu/cpu1/online")
UNITS = 2
ASTRAY_MAX_S = 0.2
STUCK_S = 20
HOST = """[machine]
processors = 2
[pool.guests]
processors = [1]
policy = "deferrable"
"""
DOMAIN = """[domain.unit{}]
budget = "{}ms"
period = "10ms"
priority = {}
attach = {{ threads = [{}] }}
"""
SPIN = "while True:\n pass"


def state(thread):
    """What is compared before and after: policy, priority, processors, control group."""
    group = pathlib.Path(f"/proc/{thread}/cgroup").read_text().strip()
    priority = os.sched_getparam(thread).sched_priority
    return os.sched_getscheduler(thread), priority, sorted(os.sched_getaffinity(thread)), group


def tell_blocked():
    """Who waits in the kernel, and where."""
    for task in pathlib.Path("/proc").glob("[0-9]*/task/[0-9]*"):
        try:
            state = (task / "stat").read_text().rsplit(")", 1)[1].split()[0]
            name, stack = (task / "comm").read_text().strip(), (task / "stack").read_text()
            status = (task / "sched").read_text().split("policy")[1].split()[1]
        except OSError:
            continue
        if state == "D" or "punctual" in name or "enforcer" in name or state == "R":
            print(f"{task}: {name}, {state}, policy {status}\n{stack}", flush=True)


def change(write):
    alarm = threading.Timer(STUCK_S, tell_blocked)
    alarm.start()
    began = time.monotonic()
    ONLINE.write_text(write)
    alarm.cancel()
    what = "online" if write == "1" else "offline"
    print(f"  processor 1 is {what} after {time.monotonic() - began:.2f} s", flush=True)


def used_s(thread):
    return int(pathlib.Path(f"/proc/{thread}/schedstat").read_text().split()[0]) / 1e9


def shares(threads, seconds):
    """The part of a processor that each has, where and in which class it was at the end, and for how long at
    most one was real-time elsewhere than on processor 1."""
    began, before = time.monotonic(), [used_s(thread) for thread in threads]
    since, astray_s = {}, 0
    while time.monotonic() - began < seconds:
        for thread in threads:
            place = os.sched_getscheduler(thread), sorted(os.sched_getaffinity(thread))
            if place[0] == os.SCHED_FIFO and place[1] != [1]:
                astray_s = max(astray_s, time.monotonic() - since.setdefault(thread, time.monotonic()))
            else:
                since.pop(thread, None)
        time.sleep(0.01)
    passed = time.monotonic() - began
    had = [(used_s(thread) - was) / passed for thread, was in zip(threads, before)]
    places = [(os.sched_getscheduler(thread), sorted(os.sched_getaffinity(thread))) for thread in threads]
    return had, places, astray_s


def once(program, directory, threads):
    """Returns what was wrong."""
    wrong, before = [], [state(thread) for thread in threads]
    host = directory / "host.toml"
    domains = [DOMAIN.format(n, 2 + n, 1 + n, thread) for n, thread in enumerate(threads)]
    host.write_text(HOST + "".join(domains))
    environment = dict(os.environ, PUNCTUAL_STATE=str(directory / "state"))
    with open(directory / "log", "w") as log:
        run = subprocess.Popen([program, "attach", host], stdout=log, stderr=log, env=environment)
    end = time.monotonic() + 60
    while not all(os.sched_getscheduler(thread) == os.SCHED_FIFO for thread in threads):
        if time.monotonic() > end or run.poll() is not None:
            return ["the units do not come under enforcement: " + (directory / "log").read_text()]
        time.sleep(0.05)
    for what, write in [("with both", None), ("with one", "0"), ("with both again", "1")]:
        if write:
            threading.Thread(target=change, args=[write]).start()
        had, places, astray_s = shares(threads, 2)
        text = ", ".join(f"{100 * share:.0f} % of a processor" for share in had)
        print(f"  {what}: {text}, class and processors {places}, astray {1000 * astray_s:.0f} ms", flush=True)
        if astray_s > ASTRAY_MAX_S:
            wrong.append(f"{what}: a unit was real-time for {astray_s:.3f} s on a processor that is not its")
    run.send_signal(signal.SIGINT)
    status = run.wait(60)
    print((directory / "log").read_text(), f"  exit status {status}", sep="", flush=True)
    after = [state(thread) for thread in threads]
    for was, now in zip(before, after):
        if was != now:
            wrong.append(f"was {was}, is {now}")
    return wrong


def main(program, times):
    wrong = []
    for number in range(times):
        victims = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(UNITS)]
        try:
            with tempfile.TemporaryDirectory() as directory:
                print(f"time {number + 1}", flush=True)
                wrong += once(program, pathlib.Path(directory), [victim.pid for victim in victims])
        finally:
            ONLINE.write_text("1")
            for victim in victims:
                victim.kill()
                victim.wait()
    print("\n".join(wrong) or "no unit was real-time elsewhere for longer, and nothing was left behind")
    return 1 if wrong else 0


if __name__ == "__main__":
    os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(98))
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
