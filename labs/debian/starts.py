#!/usr/bin/env python3
"""Starts a VM of libvirt again and again, and prints when the service sees it: after the start of its
process, and after the return of `virsh start`. Inside a machine of the lab `debian`.

usage: starts.py COUNT
"""

import json
import pathlib
import queue
import socket
import subprocess
import sys
import threading
import time

VM = "plc-2"
LIMIT_S = 60


def now():
    """In the clock of /proc/PID/stat."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def monitor(events):
    """Puts each event, with the time at which it came, into the queue."""
    with socket.socket(socket.AF_UNIX) as service:
        service.connect("/run/punctual/io.punctual.Host")
        service.sendall(b'{"method":"io.punctual.Host.Monitor","more":true}\0')
        received = b""
        while piece := service.recv(65536):
            *messages, received = (received + piece).split(b"\0")
            for message in messages:
                events.put((now(), json.loads(message)["parameters"]["event"]))


def until(events, kind, process):
    """When the event of this kind about the VM's process came; libvirt starts others that look like it."""
    while True:
        at, event = events.get(timeout=LIMIT_S)
        if event["kind"] == kind and event.get("process") == process:
            return at


def started(process):
    fields = pathlib.Path(f"/proc/{process}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return int(fields[19]) / 100


def distribution(what, times_s):
    ordered = sorted(time_s * 1000 for time_s in times_s)
    at = [ordered[round((len(ordered) - 1) * share)] for share in (0, 0.5, 0.9, 1)]
    least, median, most_of, most = (f"{time_ms:.0f} ms" for time_ms in at)
    print(f"    {what}: least {least}, median {median}, 90 % {most_of}, most {most}")


def main():
    events, count = queue.Queue(), int(sys.argv[1])
    threading.Thread(target=monitor, args=(events,), daemon=True).start()
    assert events.get(timeout=LIMIT_S)[1]["kind"] == "monitoring"
    takes, of_process, of_return, of_class, ends = [], [], [], [], []
    for _ in range(count):
        start = now()
        subprocess.run(["virsh", "--quiet", "start", VM], check=True)
        returned = now()
        process = int(pathlib.Path(f"/run/libvirt/qemu/{VM}.pid").read_text(encoding="ascii"))
        seen = until(events, "seen", process)
        matched = until(events, "matched", process)
        takes.append(returned - start)
        of_process.append(seen - started(process))
        of_return.append(seen - returned)
        of_class.append(matched - returned)
        subprocess.run(["virsh", "--quiet", "destroy", VM], check=True)
        destroyed = now()
        ends.append(until(events, "released", process) - destroyed)
    print(f"    {count} starts:")
    distribution("virsh start takes", takes)
    distribution("from the start of the process to seen", of_process)
    distribution("from the return of virsh start to seen", of_return)
    distribution("from the return of virsh start to its class", of_class)
    distribution("from the return of virsh destroy to released", ends)


if __name__ == "__main__":
    main()
