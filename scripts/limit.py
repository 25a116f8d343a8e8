#!/usr/bin/env python3
"""Runs a command that must end within a time: a step of scripts/test.sh, or one test program for cargo.

usage: scripts/limit.py SECONDS COMMAND [ARGUMENT...]
exit: that of the command; 124 when it had not ended in time. What its processes were waiting for is printed
then, and they are ended, 5 seconds later by force.
environment:
  TIMES     a file that gets a line for each command: its time, its processor time and its name
  MEANWHILE a file: until it is there, the command has what everything else leaves of processor 0
  CPU       a file that gets the processor time of the command, in whole seconds
  PROGRAMS  a pattern of PACKAGE/NAME: other test programs are not run; with ! in front, those are not
"""

import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import time


def read(path):
    try:
        return pathlib.Path(path).read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return "?"


def tree(pid):
    """The process and all below it, parents first."""
    found = [pid]
    for process in found:
        for children in pathlib.Path(f"/proc/{process}/task").glob("*/children"):
            found += [int(child) for child in read(children).split() if child.isdigit()]
    return found


def show(processes):
    for pid in processes:
        print(f"  {pid} {read(f'/proc/{pid}/cmdline')[:300]}", file=sys.stderr)
        for task in pathlib.Path(f"/proc/{pid}/task").glob("*"):
            state = read(task / "stat").rpartition(")")[2].split()[:1]
            print(f"    {read(task / 'comm')}: {''.join(state)} {read(task / 'wchan')}", file=sys.stderr)


def give_up_priorities(processes):
    """A thread of real time that spins can keep another one off its processor, which then never ends."""
    for pid in processes:
        for task in pathlib.Path(f"/proc/{pid}/task").glob("*"):
            try:
                os.sched_setscheduler(int(task.name), os.SCHED_OTHER, os.sched_param(0))
            except OSError:
                pass


def end(running, processes):
    """Ends them, and by force what is left then."""
    give_up_priorities(processes)
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in processes:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass
        try:
            running.wait(5)
        except subprocess.TimeoutExpired:
            pass


def become_meanwhile():
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    os.sched_setaffinity(0, {0})


def become_usual(processes, processors):
    give_up_priorities(processes)
    for pid in processes:
        for task in pathlib.Path(f"/proc/{pid}/task").glob("*"):
            try:
                os.sched_setaffinity(int(task.name), processors)
            except OSError:
                pass


def wait(running, limit, meanwhile, processors):
    """Waits for the end; the exit code."""
    start = time.monotonic()
    while meanwhile:
        try:
            return running.wait(1)
        except subprocess.TimeoutExpired:
            if os.path.exists(meanwhile):
                # Twice: a process may be forking.
                for _ in range(2):
                    become_usual(tree(running.pid), processors)
                meanwhile = None
            elif time.monotonic() - start > limit:
                raise
    return running.wait(max(0, limit - (time.monotonic() - start)))


def is_wanted(program):
    """Is this a test program of PROGRAMS? Cargo names its package."""
    pattern, package = os.environ.get("PROGRAMS"), os.environ.get("CARGO_PKG_NAME")
    if not pattern or not package:
        return True
    # Cargo adds a hash to the name.
    name = f"{package}/{os.path.basename(program).rpartition('-')[0]}"
    return bool(re.fullmatch(pattern.removeprefix("!"), name)) != pattern.startswith("!")


def main():
    limit, command = float(sys.argv[1]), sys.argv[2:]
    if not is_wanted(command[0]):
        return 0
    # Not for the commands that this one has run within limits of their own.
    cpu, meanwhile = os.environ.pop("CPU", None), os.environ.pop("MEANWHILE", None)
    if meanwhile and os.path.exists(meanwhile):
        meanwhile = None
    processors = os.sched_getaffinity(0)
    start = time.monotonic()
    running = subprocess.Popen(command, preexec_fn=become_meanwhile if meanwhile else None)
    # Ctrl-C and the end of the gate reach the command, too: it decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: running.terminate())
    try:
        code = wait(running, limit, meanwhile, processors)
    except subprocess.TimeoutExpired:
        print(f"{' '.join(command)[:300]} has not ended after {limit:.0f} s:", file=sys.stderr)
        processes = tree(running.pid)
        show(processes)
        end(running, processes)
        code = 124
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    used_s = used.ru_utime + used.ru_stime
    if times := os.environ.get("TIMES"):
        with open(times, "a", encoding="utf-8") as file:
            name = os.path.basename(command[0])
            file.write(f"{time.monotonic() - start:7.1f} s {used_s:7.1f} s  {name}\n")
    if cpu:
        pathlib.Path(cpu).write_text(f"{used_s:.0f}", encoding="utf-8")
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
