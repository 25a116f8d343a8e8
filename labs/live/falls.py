"""Ends the scheduler of a run in every way but the run's own, and watches the thread that it had.

usage: falls.py PROGRAM kills|ejections|stalls TIMES [OPTION...]

Attaches PROGRAM to a process that works, with `--enforce sched-ext` and these options, and then
  kills      kills the run (SIGKILL): the thread is in the fair class once the kernel has noticed, and the
             guardian gives its class back
  ejections  lets the kernel end the scheduler (SysRq-S): the freezer takes over, and the run goes on until
             it ends, which puts everything back
  stalls     stops the run for longer than the kernel's watchdog waits (30 s), which ends the scheduler; the
             freezer takes over when the run goes on. Under sporadic, whose budgets the run gives back
Prints how long each took. Fails if one does not happen, or took longer than docs/live.md says.
"""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

STATE = pathlib.Path("/sys/kernel/sched_ext/state")
OTHER, FIFO, EXT = 0, 1, 7
ALL = os.sched_getaffinity(0)
# From the end of the scheduler, in s: docs/live.md, "When the scheduler ends".
FAIR_WITHIN, TAKEN_OVER_WITHIN = 0.1, 0.25
# It wants a third of a processor, a fifth of which its budget is, and leaves time in between: QEMU, where it
# translates both processors in one thread, changes between them when one is idle, or after 100 ms.
HOG = """import time
while True:
    end = time.monotonic() + 0.0005
    while time.monotonic() < end:
        pass
    time.sleep(0.001)
"""
HOST = """[machine]
processors = 2
[pool.guests]
processors = [1]
policy = "{}"
[domain.hog]
budget = "2ms"
period = "10ms"
priority = 1
attach = {{ threads = [{}] }}
"""


def wait_until(what, holds, within=20.0):
    """How long it takes until something holds, in s."""
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > within:
            sys.exit(f"{what} did not happen within {within} s")
        time.sleep(0.0005)
    return time.monotonic() - began


def leave():
    """Leaves the processor of this program, which looks on from processor 0."""
    os.sched_setaffinity(0, ALL)


class Attached:
    """A run that has a process that works."""

    def __init__(self, program, folder, policy, *options):
        self.hog = subprocess.Popen([sys.executable, "-c", HOG], preexec_fn=leave)
        host = folder / "host.toml"
        host.write_text(HOST.format(policy, self.hog.pid))
        self.log = folder / "log"
        with self.log.open("w") as log:
            command = [program, "attach", host, "--enforce", "sched-ext", "--json", *options]
            self.run = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=leave)
        wait_until("the run", lambda: self.has(EXT) or self.run.poll() is not None)
        if self.run.poll() is not None:
            sys.exit(f"the run ended with {self.run.returncode}:\n{self.log.read_text()}")
        time.sleep(0.1)

    def has(self, policy):
        return os.sched_getscheduler(self.hog.pid) == policy

    def end(self):
        self.run.send_signal(signal.SIGINT)
        code = self.run.wait(timeout=20)
        if code:
            sys.exit(f"the run ended with {code}:\n{self.log.read_text()}")
        self.check_put_back()

    def check_put_back(self):
        wait_until("the way back", lambda: self.has(OTHER))
        if os.sched_getaffinity(self.hog.pid) != ALL:
            sys.exit("the process is still confined")
        self.hog.kill()
        self.hog.wait()


def disabled():
    return STATE.read_text().strip() == "disabled"


def kill(attached):
    attached.run.kill()
    fair = wait_until("the end of the scheduler", disabled)
    back = fair + wait_until("the way back", lambda: attached.has(OTHER))
    attached.run.wait()
    attached.check_put_back()
    return {"fair": fair, "given back": back}


def eject(attached):
    pathlib.Path("/proc/sysrq-trigger").write_text("S")
    return taken_over(attached)


def stall(attached):
    attached.run.send_signal(signal.SIGSTOP)
    wait_until("the watchdog", disabled, within=60)
    attached.run.send_signal(signal.SIGCONT)
    return taken_over(attached)


def taken_over(attached):
    fair = wait_until("the end of the scheduler", disabled)
    freezer = fair + wait_until("the freezer", lambda: attached.has(FIFO))
    attached.end()
    if "the kernel ended the run's scheduler" not in attached.log.read_text():
        sys.exit(f"the run does not say that it was ejected:\n{attached.log.read_text()}")
    return {"fair": fair, "taken over": freezer}


def main():
    program, kind, times = sys.argv[1], sys.argv[2], int(sys.argv[3])
    act, policy, options = {
        "kills": (kill, "deferrable", sys.argv[4:]),
        "ejections": (eject, "deferrable", sys.argv[4:]),
        "stalls": (stall, "sporadic", ["--silence-ms", "100000", *sys.argv[4:]]),
    }[kind]
    os.sched_setaffinity(0, {0})
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(times):
            for what, took in act(Attached(program, pathlib.Path(folder), policy, *options)).items():
                found.setdefault(what, []).append(took)
    for what, took in found.items():
        took.sort()
        middle, most = took[len(took) // 2], took[-1]
        print(f"{kind}: {what} p50 {middle * 1e3:.1f} ms, most {most * 1e3:.1f} ms ({len(took)} times)")
    if max(found["fair"]) > FAIR_WITHIN or max(found.get("taken over", [0])) > TAKEN_OVER_WITHIN:
        sys.exit(f"{kind}: later than docs/live.md says")


main()
