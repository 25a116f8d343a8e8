#!/usr/bin/env python3
"""What the page costs: processor time of `punctual serve` and `punctual status --web`, without and with a
viewer, alternating, and of an older `punctual serve` that keeps no history.

usage: measure.py PUNCTUAL OLD-PUNCTUAL VM   (VM is the example waits-cost of crates/punctual-service)
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request

LENGTH_S, PAIRS = 5, 3
punctual, old, vm = sys.argv[1:]


def ran_s(process):
    """Processor time of all threads of a process."""
    fields = open(f"/proc/{process}/stat").read().rpartition(")")[2].split()
    # In ticks; the service has one thread, whose time is known to the ns.
    ticks = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    own = int(open(f"/proc/{process}/schedstat").read().split()[0]) / 1e9
    return max(ticks, own)


def look(url, state):
    query = "data.json?since={}&started_us={}".format(*state)
    data = json.load(urllib.request.urlopen(url + query))
    return data["history"]["last"], data["host"]["started_us"]


def rest(length_s, url=None):
    state, end = (0, 0), time.monotonic() + length_s
    while (left := end - time.monotonic()) > 0:
        if url:
            state = look(url, state)
        time.sleep(min(1, max(0, left)))


def measure(processes, url=None):
    before, start = [ran_s(one) for one in processes], time.monotonic()
    rest(LENGTH_S, url)
    length = time.monotonic() - start
    return [100 * (ran_s(one) - was) / length for one, was in zip(processes, before)]


def serve(program, folder):
    return subprocess.Popen([program, "serve", "--config", "etc", "--run", "run"], cwd=folder,
                            stderr=subprocess.DEVNULL)


print("VMs  waits     who                        percent of a processor, each time")
for count in (1, 100):
    with tempfile.TemporaryDirectory() as folder:
        os.makedirs(f"{folder}/etc/host.d")
        os.makedirs(f"{folder}/run")
        vms = [subprocess.Popen(["/usr/bin/qemu-system-x86_64", "-name", f"vm{number}"], executable=vm,
                                stdin=subprocess.PIPE, env={"PUNCTUAL_EXAMPLE_VM": "100000"})
               for number in range(count)]
        for source in ("off", "switches"):
            open(f"{folder}/etc/host.toml", "w").write(f"waits = '{source}'\n")
            service = serve(old, folder)
            rest(4)
            found = [measure([service.pid])[0] for _ in range(PAIRS)]
            times = " ".join(f"{x:.2f}" for x in found)
            print(f"{count:>3}  {source:<8}  {'serve, without a history':<26} {times}", flush=True)
            service.terminate()
            service.wait()
            service = serve(punctual, folder)
            rest(4)
            web = subprocess.Popen([punctual, "status", "--run", "run", "--web", "127.0.0.1:0"], cwd=folder,
                                   stdout=subprocess.PIPE, text=True)
            url = re.search(r"http\S+", web.stdout.readline()).group()
            both = [service.pid, web.pid]
            rest(2, url)
            found = [(measure(both), measure(both, url)) for _ in range(PAIRS)]
            for index, who in enumerate(("serve", "status --web")):
                for viewer, what in enumerate(("nobody looks", "one viewer")):
                    times = " ".join(f"{pair[viewer][index]:.2f}" for pair in found)
                    print(f"{count:>3}  {source:<8}  {who + ', ' + what:<26} {times}", flush=True)
            web.kill()
            service.terminate()
            service.wait()
        for one in vms:
            one.kill()
            one.wait()
