"""Work of a guest with two vCPUs on one processor, under plain Linux and under policies.

usage: smp.py PUNCTUAL KERNEL INITRD ROUNDS MS POLICY...

The loads of smp-guest.c run for MS each, one after the other: under plain Linux, confined to processor 1, and
under each policy, the vCPUs with one budget, in turn. What counts is the work for each second of the vCPUs'
processor time. A load that has not ended after its time and 10 s is a hang.
exit: 0; 1 where a load hung
"""

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LOADS = "computing pipe tlb membarrier exec directory spin-barrier spinlock mutex".split()
HANG_S = 10
GOAL = 0.8


class Machine:
    def __init__(self, kernel, initrd):
        self.process = subprocess.Popen(
            ["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-smp", "2", "-m", "256", "-nodefaults"]
            + ["-name", "smp,debug-threads=on", "-display", "none", "-no-reboot", "-serial", "stdio"]
            + ["-kernel", kernel, "-initrd", initrd]
            + ["-append", "console=ttyS0 quiet tsc=reliable nowatchdog panic=-1 idle=halt"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )
        os.set_blocking(self.process.stdout.fileno(), False)
        self.text = b""
        if not self.line_with(b"ready", 60):
            sys.exit("the guest does not boot")
        tasks = Path(f"/proc/{self.process.pid}/task")
        threads = {int(task.name): (task / "comm").read_text() for task in tasks.iterdir()}
        self.vcpus = [thread for thread, name in threads.items() if name.startswith("CPU ")]
        assert len(self.vcpus) == 2, threads
        for thread in threads:
            os.sched_setaffinity(thread, {1 if thread in self.vcpus else 0})

    def line_with(self, word, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.text += self.process.stdout.read() or b""
            *lines, self.text = self.text.split(b"\n")
            if found := [line for line in lines if line.startswith(word)]:
                return found[0].decode()
            time.sleep(0.005)
        return None

    def used_s(self):
        times = [Path(f"/proc/{thread}/schedstat").read_text().split()[0] for thread in self.vcpus]
        return sum(map(int, times)) / 1e9

    def work(self, load, ms):
        """Operations a second of processor time, and the less busy vCPU's part of them; None for a hang."""
        before = self.used_s()
        self.process.stdin.write(f"{load} {ms}\n".encode())
        self.process.stdin.flush()
        answer = self.line_with(b"done " + load.encode() + b" ", ms / 1000 + HANG_S)
        if answer is None or min(counts := [int(word) for word in answer.split()[2:]]) == 0:
            return None
        return sum(counts) / (self.used_s() - before), min(counts) / sum(counts)


class Enforced:
    def __init__(self, punctual, policy, machine, directory):
        host = directory / "host.toml"
        has_budget = policy not in ("fixed-priority", "edf")
        budget = 'budget = "8ms"\nperiod = "10ms"\nbudget_of = "vm"\n' if has_budget else ""
        host.write_text(
            f'[machine]\nprocessors = 2\n[pool.guests]\nprocessors = [1]\npolicy = "{policy}"\n'
            f"[domain.vm]\n{budget}vcpus = 2\nattach = {{ process = {machine.process.pid} }}\n"
        )
        environment = dict(os.environ, PUNCTUAL_STATE=str(directory / "state"))
        self.log = directory / "log"
        with open(self.log, "w") as log:
            self.run = subprocess.Popen([punctual, "attach", host], stdout=log, stderr=log, env=environment)
        time.sleep(0.7)

    def end(self):
        self.run.send_signal(signal.SIGINT)
        if self.run.wait() != 0:
            sys.exit(self.log.read_text())


def measure(punctual, machine, rounds, ms, policies, directory):
    """By policy and load, the work of each round."""
    results = {(policy, load): [] for policy in ["linux", *policies] for load in LOADS}
    for number in range(rounds):
        for policy in ["linux", *policies]:
            run = None if policy == "linux" else Enforced(punctual, policy, machine, directory)
            try:
                for load in LOADS:
                    results[policy, load].append(machine.work(load, ms))
                    if results[policy, load][-1] is None:
                        print(f"round {number + 1}: {load} hung under {policy}", flush=True)
            finally:
                if run:
                    run.end()
    return results


def main(punctual, kernel, initrd, rounds, ms, policies):
    machine = Machine(kernel, initrd)
    try:
        with tempfile.TemporaryDirectory() as directory:
            results = measure(punctual, machine, rounds, ms, policies, Path(directory))
    finally:
        machine.process.kill()
        machine.process.wait()
    table(results, policies, rounds)
    hangs = sum(value is None for values in results.values() for value in values)
    print(f"{hangs} hangs in {rounds} rounds")
    return hangs


def table(results, policies, rounds):
    def median(which, policy, load):
        return statistics.median([value[which] if value else 0 for value in results[policy, load]])

    print(f"operations for each second of processor time, in percent of plain Linux; medians of {rounds}")
    print(f"{'load':14}{'Linux, 1/s':>12}" + "".join(f"{policy:>16}" for policy in policies))
    low = []
    for load in LOADS:
        linux = median(0, "linux", load)
        shares = {policy: median(0, policy, load) / linux if linux else 0 for policy in policies}
        print(f"{load:14}{linux:12.0f}" + "".join(f"{100 * share:16.0f}" for share in shares.values()))
        low += [f"{policy} {load}" for policy, share in shares.items() if share < GOAL]
    print(f"below {GOAL:.0%}: {', '.join(low) or 'none'}")
    print("the part of the vCPU that did less, in percent of all operations")
    for load in LOADS:
        parts = [100 * median(1, policy, load) for policy in ["linux", *policies]]
        print(f"{load:14}{parts[0]:12.0f}" + "".join(f"{part:16.0f}" for part in parts[1:]))


if __name__ == "__main__":
    punctual, kernel, initrd, rounds, ms, *policies = sys.argv[1:]
    sys.exit(main(punctual, kernel, initrd, int(rounds), int(ms), policies) > 0)
