"""A QEMU whose guest is smp-guest.c, and what it answers; for smp.py and hints.py."""

import os
import subprocess
import sys
import time
from pathlib import Path


class Guest:
    def __init__(self, name, kernel, initrd, options, patience_s):
        """`options` are further ones of QEMU and of the guest's kernel."""
        of_qemu, of_kernel = options
        self.process = subprocess.Popen(
            ["qemu-system-x86_64", *of_qemu, "-m", "256", "-nodefaults", "-display", "none", "-no-reboot"]
            + ["-name", f"guest={name},debug-threads=on", "-serial", "stdio", "-kernel", kernel]
            + ["-initrd", initrd]
            + ["-append", f"console=ttyS0 quiet tsc=reliable nowatchdog panic=-1 {of_kernel}"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        os.set_blocking(self.process.stdout.fileno(), False)
        self.text = b""
        if not self.line_with(b"ready", patience_s):
            sys.exit(f"the guest does not boot: {self.text.decode(errors='replace')}")
        tasks = Path(f"/proc/{self.process.pid}/task")
        self.threads = {int(task.name): (task / "comm").read_text() for task in tasks.iterdir()}
        self.vcpus = sorted(thread for thread, comm in self.threads.items() if comm.startswith("CPU "))

    def line_with(self, word, seconds):
        """The next line that begins so; None if it does not come in time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.text += self.process.stdout.read() or b""
            *lines, rest = self.text.split(b"\n")
            if found := [line for line in lines if line.startswith(word)]:
                self.text = rest
                return found[0].decode()
            time.sleep(0.005)
        return None

    def operations(self, load, ms, threads, patience_s):
        """How many each thread did in that time; None for a hang."""
        self.process.stdin.write(f"{load} {ms:.0f} {threads}\n".encode())
        self.process.stdin.flush()
        answer = self.line_with(b"done " + load.encode() + b" ", ms / 1000 + patience_s)
        return [int(word) for word in answer.split()[2:]] if answer else None
