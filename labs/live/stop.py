"""Stops a process for 100 ms about every second, and prints each time in ns: stop.py PROCESS TIMES"""
import os, signal, sys, time

qemu, times = int(sys.argv[1]), int(sys.argv[2])
for _ in range(times):
    began = time.monotonic_ns()
    os.kill(qemu, signal.SIGSTOP)
    time.sleep(0.1)
    os.kill(qemu, signal.SIGCONT)
    print(time.monotonic_ns() - began)
    time.sleep(0.83)
