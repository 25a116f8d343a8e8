"""What KVM counts of a guest whose two vCPUs share a processor, of one whose vCPUs have one each, and of one
of three vCPUs on one processor, whose kernel sends interrupts to several vCPUs at once.

usage: hints.py PUNCTUAL KERNEL INITRD MS

Each load of smp-guest.c runs for MS under a `punctual serve`. For each load it prints the work, what the
counters of debugfs and `punctual why` say of that time; then what `punctual why` and metrics say of the VM.
exit: 0; 1 where debugfs and the service do not agree
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from guest import Guest

GUESTS = (("shared", (1, 1)), ("apart", (0, 1)), ("three", (1, 1, 1)))
LOADS = "computing pipe tlb membarrier mutex paused-spinlock".split()
# Each counter of debugfs with its name in `punctual why`.
COUNTERS = {
    "directed_yield_attempted": "yields_attempted",
    "directed_yield_successful": "yields_successful",
    "preemption_reported": "preemptions_reported",
    "preemption_other": "preemptions_other",
    "halt_exits": "halts",
    "halt_attempted_poll": "polls_attempted",
    "halt_successful_poll": "polls_successful",
    "halt_wait_ns": "halt_wait_ns",
}
DEBUGFS = Path("/sys/kernel/debug/kvm")


class Machine(Guest):
    def __init__(self, kernel, initrd, name, processors):
        options = ["-accel", "kvm", "-cpu", "host", "-smp", str(len(processors))]
        super().__init__(name, kernel, initrd, (options, ""), 240)
        for thread in self.threads:
            os.sched_setaffinity(thread, {0})
        for thread, processor in zip(self.vcpus, processors, strict=True):
            os.sched_setaffinity(thread, {processor})

    def counters(self):
        (directory,) = DEBUGFS.glob(f"{self.process.pid}-*")
        return {name: int((directory / file).read_text()) for file, name in COUNTERS.items()}


class Service:
    def __init__(self, punctual, folder):
        self.punctual, self.run = punctual, folder / "run"
        self.run.mkdir()
        (folder / "etc").mkdir()
        self.log = open(folder / "log", "w")
        self.process = subprocess.Popen(
            [punctual, "serve", "--config", folder / "etc", "--run", self.run],
            stdout=self.log, stderr=self.log,
        )
        while not (self.run / "punctual" / "io.punctual.Host").exists():
            time.sleep(0.1)

    def ask(self, *arguments):
        command = [self.punctual, *arguments, "--run", self.run]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def hints(self, name):
        why = json.loads(self.ask("why", name, "--json"))
        counts = why["hints"]["total"]
        counts["spins"] = [part.get("spins") for part in why["parts"] if "vcpu" in part]
        counts["source"], counts["reason"] = why["source"]["source"], why["hints"].get("reason")
        return counts


def settled(service, machine, name):
    """Both, at a time when the guest only idles; the difference between them stays the same then."""
    time.sleep(2.5)
    return service.hints(name), machine.counters()


def since(now, before, name):
    return now[name] - before[name]


def look(service, machine, name, ms):
    failed = False
    told, counted = settled(service, machine, name)
    heads = ["load", "operations", "spins", *COUNTERS.values()]
    print(" | ".join(heads))
    for load in LOADS:
        if load == "pipe" and len(machine.vcpus) > 2:
            continue
        done = machine.operations(load, ms, len(machine.vcpus), 60)
        told_now, counted_now = settled(service, machine, name)
        spins = ["-" if None in pair else pair[1] - pair[0] for pair in zip(told["spins"], told_now["spins"])]
        of_service = [since(told_now, told, counter) for counter in COUNTERS.values()]
        of_debugfs = [since(counted_now, counted, counter) for counter in COUNTERS.values()]
        print(" | ".join(map(str, [load, done, spins, *of_service])))
        print(" | ".join(map(str, ["", "", "debugfs", *of_debugfs])), flush=True)
        # An idle guest halts now and then between the two looks; what only a load does is the same.
        failed |= of_service[:2] != of_debugfs[:2]
        told, counted = told_now, counted_now
    return failed


def main(punctual, kernel, initrd, ms):
    print(Path("/proc/version").read_text().strip())
    for file in ("pause_filter_count", "pause_filter_thresh"):
        print(file, Path("/sys/module/kvm_amd/parameters", file).read_text().strip())
    doctor = [punctual, "doctor", "--explain", "kvm-hints"]
    print(subprocess.run(doctor, capture_output=True, text=True).stdout)
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        service = Service(punctual, Path(folder))
        for name, processors in GUESTS:
            machine = Machine(kernel, initrd, name, processors)
            print(f"== {name}: vCPUs on processors {processors}")
            failed |= look(service, machine, name, ms)
            print(f"\n$ punctual why {name}\n{service.ask('why', name)}")
            metrics = service.ask("status", "--metrics").splitlines()
            print("\n".join(line for line in metrics if line.startswith("punctual_vm_")), "\n", flush=True)
            machine.process.kill()
            machine.process.wait()
        service.process.send_signal(signal.SIGTERM)
        service.process.wait()
        print(Path(folder, "log").read_text())
    sys.exit(failed)


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(*sys.argv[1:4], int(sys.argv[4]))
