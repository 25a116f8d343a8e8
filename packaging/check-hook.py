"""Calls the hook in a directory as libvirt does, with a service that listens, one that does not read, and a
program that hangs. packaging/check.sh calls it."""

import os
import pathlib
import socket
import subprocess
import sys
import time

# A hook waits for at most 0.1 s; the rest is what a busy machine may take.
LIMIT_S = 2


def call(hook, *arguments):
    start = time.monotonic()
    done = subprocess.run([hook, *arguments], input=b"<domain/>" * 100_000, capture_output=True, check=False)
    took_s = time.monotonic() - start
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b""), done
    assert took_s < LIMIT_S, f"{arguments}: {took_s} s"
    return took_s


def received(service):
    try:
        return service.recv(8192)
    except BlockingIOError:
        return None


def main():
    work = pathlib.Path(sys.argv[1])
    hook, path = work / "libvirt-hook", work / "hook"
    service = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    service.bind(str(path))
    service.setblocking(False)

    call(hook, "relay of two", "migrate", "begin", "qemu+ssh://other/system")
    assert received(service) == b"relay of two migrate begin"
    garbage = [
        [], ["a"], ["a", "b"], ["", "start", "begin"], ["--help", "start"],
        ["a\nb", "start", "begin"], ["a\x1b[2J", "start", "begin"], ["x" * 5000, "start", "begin"],
        [b"\xff", "start", "begin"], ["$(touch /tmp/x)", "; reboot", "`id`"],
    ]
    for arguments in garbage:
        call(hook, *arguments)
        assert received(service) is None, arguments

    times_ms = sorted(call(hook, "relay", "started", "begin", "-") * 1000 for _ in range(20))
    text = hook.read_text(encoding="utf-8")
    program = text.split("0.1 ")[1].split(" hook")[0]
    hook.write_text(text.replace(program, "/bin/sleep 60; :"), encoding="utf-8")
    hangs_ms = call(hook, "relay", "started", "begin", "-") * 1000
    os.unlink(path)
    print(f"the hook takes {times_ms[10]:.1f} ms (median of 20), {hangs_ms:.0f} ms if the program hangs")


if __name__ == "__main__":
    main()
