#!/usr/bin/env python3
"""How long QEMU's monitor takes to answer while the VM's only vCPU is under enforcement.

usage: measure.py ROUNDS PUNCTUAL...   (programs, in turn; as root, with qemu-system-x86_64)

The guest is a boot sector that reads the clock of a PC over and over, so that its vCPU, which is translated,
has QEMU's big lock most of the time. A client asks for `query-status` every 13 ms.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# cli; again: mov al,0; out 0x70,al; in al,0x71; jmp again
GUEST = bytes([0xFA, 0xB0, 0x00, 0xE6, 0x70, 0xE4, 0x71, 0xEB, 0xF8]).ljust(510, b"\0") + b"\x55\xaa"


class Monitor:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(path))
        self.file = self.socket.makefile("rw")
        self.file.readline()
        self.ask("qmp_capabilities")

    def ask(self, command):
        self.file.write(json.dumps({"execute": command}) + "\n")
        self.file.flush()
        while "return" not in (answer := json.loads(self.file.readline())):
            pass
        return answer["return"]


def processor_time(thread):
    return int(Path(f"/proc/{thread}/schedstat").read_text().split()[0]) / 1e9


def answers(monitor, thread, seconds):
    """Times of answers in ms, ascending, and the vCPU's share of a processor in percent."""
    times, begin, before = [], time.monotonic(), processor_time(thread)
    while time.monotonic() < begin + seconds:
        asked = time.monotonic()
        monitor.ask("query-status")
        times.append((time.monotonic() - asked) * 1e3)
        time.sleep(0.013)
    return sorted(times), 100 * (processor_time(thread) - before) / (time.monotonic() - begin)


def row(name, measured):
    times, share = measured
    p50, p90, p99 = (times[int(len(times) * q)] for q in (0.5, 0.9, 0.99))
    print(f"{name:34} {p50:7.2f} {p90:7.2f} {p99:7.2f} {times[-1]:7.2f}   {share:5.1f} %", flush=True)


def enforced(program, budget, period, monitor, thread, directory):
    host = directory / "host.toml"
    host.write_text(
        'name = "lock"\n[machine]\nprocessors = 2\n[pool.guests]\nprocessors = [1]\npolicy = "deferrable"\n'
        f'[domain.vm]\nbudget = "{budget}"\nperiod = "{period}"\nattach = {{ threads = [{thread}] }}\n'
    )
    environment = dict(os.environ, PUNCTUAL_STATE=str(directory / "state"))
    nowhere = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    run = subprocess.Popen([program, "attach", host], env=environment, **nowhere)
    time.sleep(1)
    measured = answers(monitor, thread, 8)
    run.send_signal(signal.SIGINT)
    assert run.wait() == 0
    return measured


def main(rounds, programs):
    with tempfile.TemporaryDirectory() as directory:
        directory = Path(directory)
        (directory / "boot.img").write_bytes(GUEST)
        machine = subprocess.Popen([
            "qemu-system-x86_64", "-accel", "tcg", "-display", "none", "-m", "32",
            "-drive", f"format=raw,file={directory}/boot.img",
            "-qmp", f"unix:{directory}/monitor,server=on,wait=off",
        ])
        try:
            time.sleep(2)
            monitor = Monitor(directory / "monitor")
            thread = monitor.ask("query-cpus-fast")[0]["thread-id"]
            title = f"answers in ms, load {os.getloadavg()[0]:.1f}"
            print(f"{title:34}     p50     p90     p99     max    share")
            for _ in range(rounds):
                row("not enforced", answers(monitor, thread, 4))
                for budget, period in [("20ms", "100ms"), ("2ms", "10ms")]:
                    for number, program in enumerate(programs):
                        measured = enforced(program, budget, period, monitor, thread, directory)
                        row(f"program {number + 1}, {budget} in {period}", measured)
        finally:
            machine.kill()
            machine.wait()


main(int(sys.argv[1]), sys.argv[2:])
