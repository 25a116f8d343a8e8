"""Compares what two services say of the same VMs: one whose programs in the kernel add up what they wait for,
and one that reads the kernel's tracepoints.

usage: waits.py PROGRAM VM SECONDS
  PROGRAM  punctual, built with the cargo feature `waits-bpf`
  VM       labs/live/vm.c, compiled
exit: 0 the sums of each cause agree to 5 % and 20 ms, 1 they do not, 77 the machine permits one of them only
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import time

# By VM: vCPUs, work and sleep in us, processor. All together wake up 3,000 times a second: with more than
# 20,000 events a second the other service would take samples instead.
VMS = {
    "even": (2, 300, 1_700, 1),
    "short": (4, 20, 4_000, 1),
    "long": (1, 5_000, 20_000, 1),
    "free": (2, 50, 2_000, 0),
}
SOURCES = ("bpf", "tracepoints")


class Service:
    def __init__(self, program, source, folder):
        self.program, self.source, self.folder = program, source, pathlib.Path(folder) / source
        for part in ("etc/host.d", "run"):
            (self.folder / part).mkdir(parents=True)
        (self.folder / "etc/host.toml").write_text(f"waits = '{source}'\n")
        mount = 'mount -t tracefs tracefs /sys/kernel/tracing 2>/dev/null; exec "$0" "$@"'
        self.process = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", mount, program, "serve", "--config", "etc", "--run", "run"],
            cwd=self.folder, stderr=subprocess.DEVNULL)

    def ask(self, vm):
        command = [self.program, "why", vm, "--run", "run", "--json"]
        return subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def why(self, vm):
        return answer(self.ask(vm))


def answer(process):
    out = process.communicate()[0]
    return json.loads(out) if process.returncode == 0 else None


def sums(services):
    """By VM, vCPU and cause, in ns; wake-ups by VM and vCPU; of each service, at about the same time."""
    all_found = [{} for _ in services]
    for vm in VMS:
        asked = [service.ask(vm) for service in services]
        for found, why in zip(all_found, map(answer, asked)):
            for part in why["parts"]:
                if part.get("vcpu") is None:
                    continue
                for cause in part["causes"]:
                    found[vm, part["vcpu"], cause["cause"]] = cause["time_ns"]
                found[vm, part["vcpu"], "wake-ups"] = part["wakeups"]
    return all_found


def compare(both):
    """Prints the sums, and returns whether they agree."""
    agree = True
    print(f"{'VM':<6} vCPU {'cause':<20} {'bpf':>14} {'tracepoints':>14}")
    for key in sorted(both[0].keys() | both[1].keys()):
        one, other = (sums.get(key, 0) for sums in both)
        slack = 20 if key[2] == "wake-ups" else 20_000_000
        good = abs(one - other) <= max(one, other) // 20 + slack
        agree &= good
        if one or other:
            unit = 1 if key[2] == "wake-ups" else 1e6
            print(f"{key[0]:<6} {key[1]:>4} {key[2]:<20} {one / unit:>14.1f} {other / unit:>14.1f}"
                  f"{'' if good else '  differ'}")
    return agree


def main():
    program, vm, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    with tempfile.TemporaryDirectory() as folder:
        services = [Service(program, source, folder) for source in SOURCES]
        processes = [
            subprocess.Popen(["/usr/bin/qemu-system-x86_64", "-name", f"guest={name},debug-threads=on",
                              *map(str, load)], executable=vm) for name, load in VMS.items()]
        try:
            deadline = time.monotonic() + 60
            while not all(why and len(why["parts"]) > VMS[name][0] and why["source"]["source"] != "none"
                          for service in services for name in VMS for why in [service.why(name)]):
                if time.monotonic() > deadline:
                    sys.exit("the VMs are not seen")
                time.sleep(0.2)
            for service in services:
                source = service.why("even")["source"]
                print(service.source, source)
                if source["source"] != service.source:
                    sys.exit(77)
            before = sums(services)
            time.sleep(seconds)
            after = sums(services)
            for service in services:
                source = service.why("even")["source"]
                print("at the end", service.source, source)
                if source["source"] != service.source:
                    sys.exit(f"{service.source} was not read until the end")
            both = [{key: ns - old.get(key, 0) for key, ns in new.items()} for new, old in zip(after, before)]
            sys.exit(0 if compare(both) else 1)
        finally:
            for process in [*processes, *(service.process for service in services)]:
                process.terminate()
                process.wait()


if __name__ == "__main__":
    main()
