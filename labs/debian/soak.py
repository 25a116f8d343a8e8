#!/usr/bin/env python3
"""The service of this machine for many events, beside an installed one: with a configuration, a runtime
directory and look-alikes of VMs of its own, which are shells with the command line of QEMU. After each part
its descriptors, threads, memory and files are compared with those before; they must be the same, memory
within 4 MiB.

usage: soak.py --program PUNCTUAL --output DIRECTORY [--scale SHARE] [PART...]
parts: starts reloads waves hook user names kills (all by default, in this order)
exit: 0 nothing is left and all answers were right, 1 otherwise; DIRECTORY/soak.json has what was measured
"""

import argparse
import json
import os
import pathlib
import queue
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

LIMIT_S = 60
NOBODY = 65534
# Of memory, the allocator keeps some.
GROWTH_KIB_MAX = 4096
RESIDENT_KIB_MAX = 30 << 10
CALL = "io.punctual.Host."
CLASSES = """
[class.{other}]
match = [{{ name = "soak-b-*" }}]
[class.relay]
match = [{{ name = "soak-a-*" }}]
"""
ESCAPES = "\x1b[2J\x1b]0;title\x07\u202e"


def wait(what, holds):
    until = time.monotonic() + LIMIT_S
    while not (value := holds()):
        assert time.monotonic() < until, f"waited for: {what}"
        time.sleep(0.01)
    return value


def distribution(values):
    ordered = sorted(values)
    at = {"least": 0, "median": 0.5, "99 %": 0.99, "most": 1}
    return {name: round(ordered[round((len(ordered) - 1) * share)], 1) for name, share in at.items()}


class Connection:
    """A client of the control interface."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(LIMIT_S)
        self.socket.connect(str(path))
        self.received = b""

    def send(self, method, more=False, **parameters):
        call = {"method": CALL + method, "parameters": parameters, "more": more}
        self.socket.sendall(json.dumps(call).encode() + b"\0")

    def receive(self):
        while b"\0" not in self.received:
            piece = self.socket.recv(1 << 16)
            assert piece, "the service ended the connection"
            self.received += piece
        message, self.received = self.received.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **parameters):
        self.send(method, **parameters)
        return self.receive()


class Vms:
    """Look-alikes that end together."""

    def __init__(self, names):
        ends, self.input = os.pipe()
        self.processes = [self.start(name, ends) for name in names]
        os.close(ends)

    @staticmethod
    def start(name, ends):
        arguments = ["/usr/bin/qemu-system-x86_64", "-c", "read x", "sh", "-name", f"guest={name}"]
        return subprocess.Popen(arguments, executable="/bin/sh", stdin=ends)

    def end(self):
        os.close(self.input)
        for process in self.processes:
            process.wait()


class Service:
    """A service in a folder, with a manager that notes what it is sent."""

    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        for name in ("etc/host.d", "run/libvirt/qemu", "run/punctual"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        self.configure("other")
        self.sent = queue.Queue()
        self.manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.manager.bind(str(folder / "notify"))
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        while True:
            self.sent.put(self.manager.recv(65536).decode())

    def configure(self, other):
        (self.folder / "etc/host.toml").write_text(CLASSES.format(other=other), encoding="utf-8")

    def command(self, *arguments):
        environment = dict(os.environ, NOTIFY_SOCKET=str(self.folder / "notify"))
        return {"args": [self.program, *arguments], "cwd": self.folder, "env": environment}

    def start(self):
        log = open(self.folder / "log", "ab")
        options = self.command("serve", "--config", "etc", "--run", "run")
        self.process = subprocess.Popen(**options, stderr=log)
        log.close()

    def notified(self, begin):
        while not self.sent.get(timeout=LIMIT_S).startswith(begin):
            pass

    def forget(self):
        """What a service that was killed has sent."""
        time.sleep(0.01)
        while not self.sent.empty():
            self.sent.get()

    def run(self, *arguments):
        options = self.command(*arguments)
        return subprocess.run(**options, capture_output=True, check=False, timeout=LIMIT_S)

    def path(self, name):
        return self.folder / "run/punctual" / name

    def connect(self):
        return Connection(self.path("io.punctual.Host"))

    def host(self):
        return self.connect().call("Status")["parameters"]["host"]

    def vms(self):
        """The names of VMs by their process."""
        connection, names = self.connect(), {}
        connection.send("List", more=True)
        while True:
            reply = connection.receive()
            if vm := reply["parameters"].get("actor"):
                names[str(vm["process"])] = vm["name"]
            if not reply.get("continues"):
                return names

    def names(self):
        return list(self.vms().values())

    def end(self):
        self.process.terminate()
        assert self.process.wait(LIMIT_S) == 0, "the service fails at its end"
        left = sorted(path.name for path in self.path("").iterdir())
        assert left == ["lock"], f"after its end there is {left}"


class Monitor:
    """The events of a service, with the time at which each came."""

    def __init__(self, service):
        self.connection, self.events = service.connect(), queue.Queue()
        self.connection.send("Monitor", more=True)
        assert self.connection.receive()["parameters"]["event"]["kind"] == "monitoring"
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        try:
            while True:
                event = self.connection.receive()["parameters"]["event"]
                self.events.put((time.monotonic(), event))
        except (AssertionError, OSError):
            pass

    def until(self, kind, process):
        while True:
            at, event = self.events.get(timeout=LIMIT_S)
            if event["kind"] == kind and event.get("process") == process:
                return at

    def take(self, count, kind, prefix):
        """Takes so many events of VMs whose name begins so; the time of the last one."""
        at = 0
        while count:
            at, event = self.events.get(timeout=LIMIT_S)
            count -= event["kind"] == kind and event.get("actor", "").startswith(prefix)
        return at

    def end(self):
        self.connection.socket.shutdown(socket.SHUT_RDWR)
        self.connection.socket.close()


def descriptors(process):
    return len(os.listdir(f"/proc/{process}/fd"))


def descriptors_beside(service):
    """Descriptors that are not of VMs, once there are none of VMs that have ended; others' VMs come and go.
    """

    def count():
        vms = service.vms()
        # A client that has left is noticed with the next event.
        time.sleep(0.2)
        links = []
        for name in os.listdir(f"/proc/{service.process.pid}/fd"):
            try:
                links.append(os.readlink(f"/proc/{service.process.pid}/fd/{name}"))
            except FileNotFoundError:
                pass
        # /proc/loadavg is one of them, too.
        of_processes = [link.split("/")[2] for link in links if link.startswith("/proc/")]
        of_vms = [process for process in of_processes if process.isdigit()]
        ends = links.count("anon_inode:[pidfd]")
        return len(links) - len(of_vms) - ends if set(of_vms) <= set(vms) and ends == len(vms) else None

    # The least of several: a look has some open for a moment.
    return min(wait("no descriptors of VMs that have ended", count) for _ in range(5))


def memory(process):
    lines = pathlib.Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def residue(service):
    """What could be left, once the service knows no VM of ours and no client."""
    process = service.process.pid
    wait("no VM of ours", lambda: not any(name.startswith("soak-") for name in service.names()))
    return {
        "descriptors": descriptors_beside(service),
        "memory_kib": memory(process),
        "threads": len(os.listdir(f"/proc/{process}/task")),
        "files": sorted(path.name for path in service.path("").iterdir()),
        "cgroups of the machine": sum(1 for _ in os.walk("/sys/fs/cgroup")),
    }


def start_once(monitor, name):
    """Starts a VM and ends it; from its start to seen, from its end to released, in ms."""
    start = time.monotonic()
    vm = Vms([name])
    process = vm.processes[0].pid
    seen = monitor.until("seen", process)
    end = time.monotonic()
    vm.end()
    return (seen - start) * 1000, (monitor.until("released", process) - end) * 1000


def starts(service, scale):
    monitor, seen_ms, released_ms = Monitor(service), [], []
    for number in range(round(1000 * scale)):
        # At different times between two looks.
        time.sleep(number * 37 % 150 / 1000)
        seen, released = start_once(monitor, f"soak-a-{number}")
        seen_ms.append(seen)
        released_ms.append(released)
    monitor.end()
    late = sum(ms > 250 for ms in seen_ms)
    return {"seen_ms": seen_ms, "released_ms": released_ms, "seen later than 250 ms": late}


def reload_once(service, connection, number):
    """Reads the configuration again, by SIGHUP or by a call; in ms."""
    is_broken = number % 10 == 9
    broken = service.folder / "etc/host.d/broken.toml"
    if is_broken:
        broken.write_text("[class.broken]\nmatch = 7\n", encoding="utf-8")
    else:
        service.configure("other" if number % 2 else "another")
    start = time.monotonic()
    if number % 3:
        reply = connection.call("Reload")
        assert reply.get("error") == (CALL + "BrokenFile" if is_broken else None), reply
    else:
        service.process.send_signal(signal.SIGHUP)
        service.notified("RELOADING=1")
        service.notified("READY=1")
    took_ms = (time.monotonic() - start) * 1000
    if is_broken:
        broken.unlink()
    return took_ms, is_broken


def reloads(service, scale):
    vms = Vms([f"soak-{kind}-{number}" for kind in "ab" for number in range(50)])
    wait("all VMs", lambda: sum(name.startswith("soak-") for name in service.names()) == 100)
    monitor, connection = Monitor(service), service.connect()
    took_ms, refused, moves, before = [], 0, 0, "other"
    for number in range(round(1000 * scale)):
        took, is_broken = reload_once(service, connection, number)
        took_ms.append(took)
        refused += is_broken
        now = before if is_broken else "other" if number % 2 else "another"
        moves, before = moves + 50 * (now != before), now
    monitor.take(moves, "matched", "soak-b-")
    time.sleep(0.2)
    others = [event for _, event in monitor.events.queue if event["kind"] in ("matched", "unmatched")]
    assert not others, f"VMs changed their class without need: {others[:3]}"
    monitor.end()
    connection.socket.close()
    vms.end()
    return {"reload_ms": took_ms, "refused": refused, "VMs moved": moves}


def waves(service, scale):
    of_wave, monitor = 500, Monitor(service)
    all_seen_ms, all_released_ms, peaks = [], [], []
    for wave in range(max(1, round(10_000 * scale / of_wave))):
        start = time.monotonic()
        vms = Vms([f"soak-a-{wave}-{number}" for number in range(of_wave)])
        all_seen_ms.append((monitor.take(of_wave, "seen", "soak-a-") - start) * 1000)
        process = service.process.pid
        peaks.append({"descriptors": descriptors(process), "memory_kib": memory(process)})
        end = time.monotonic()
        vms.end()
        all_released_ms.append((monitor.take(of_wave, "released", "soak-a-") - end) * 1000)
    monitor.end()
    return {"all_seen_ms": all_seen_ms, "all_released_ms": all_released_ms, "peaks": peaks}


def hook(service, scale):
    before, chance = service.host(), random.Random(35)
    count = round(20_000 * scale)
    words = ["", "--help", "a\nb", ESCAPES, "x" * 5000, "$(reboot)", "start", "begin", "-", "\udcff"]
    for _ in range(round(200 * scale)):
        arguments = [chance.choice(words) for _ in range(chance.randrange(6))]
        done = service.run("hook", "--socket", service.path("hook"), "--", *arguments)
        # Exit code 2 is that of the command line; the hook's script ends with 0 in any case.
        assert done.returncode in (0, 2) and b"panicked" not in done.stderr, (arguments, done)
    from_program = service.host()["hook_messages"] - before["hook_messages"]
    monitor, sender = Monitor(service), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    def flood():
        sender.connect(str(service.path("hook")))
        for _ in range(count):
            sender.send(b"\xff" + chance.randbytes(chance.randrange(4500)))

    flooding = threading.Thread(target=flood)
    flooding.start()
    seen_ms = [start_once(monitor, "soak-a-hook")[0] for _ in range(20)]
    flooding.join()
    sender.close()
    monitor.end()
    counted = wait("all garbage is counted",
                   lambda: service.host()["hook_garbage"] - before["hook_garbage"] >= count)
    assert counted
    refused = as_nobody(connect, service.path("hook"), socket.SOCK_DGRAM)()
    assert refused == "PermissionError", f"a user without rights may use the hook: {refused}"
    return {"garbage": count, "messages of the program": from_program, "seen_ms": seen_ms}


def as_nobody(function, *arguments):
    """Begins to run a function as a user without rights; the result is there when what this returns is
    called: the function's, or the name of its error."""
    output, of_child = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        try:
            result = function(*arguments)
        except OSError as error:
            result = type(error).__name__
        os.write(of_child, json.dumps(result).encode())
        os._exit(0)
    os.close(of_child)

    def end():
        with open(output, encoding="utf-8") as file:
            result = json.loads(file.read())
        os.waitpid(child, 0)
        return result

    return end


def connect(path, kind):
    with socket.socket(socket.AF_UNIX, kind) as client:
        client.connect(str(path))


CALLS = [json.dumps({"method": method, "parameters": parameters, "more": more}).encode()
         for more in (False, True) for method, parameters in (
             (CALL + "Status", {}), (CALL + "List", {}), (CALL + "Monitor", {}), (CALL + "Reload", {}),
             (CALL + "Describe", {"name": "x" * 1000}),
             ("org.varlink.service.GetInterfaceDescription", {"interface": CALL[:-1]}))]


def message(chance):
    """What a hostile client sends: bytes, brackets, parts of calls, changed calls, calls, many calls."""
    call = bytearray(chance.choice(CALLS))
    match chance.randrange(6):
        case 0:
            return chance.randbytes(chance.randrange(2000)) + bytes(chance.randrange(3))
        case 1:
            return b"[" * chance.randrange(70_000) + b"\0"
        case 2:
            return bytes(call)[:chance.randrange(len(call))]
        case 3:
            for _ in range(1 + chance.randrange(4)):
                call[chance.randrange(len(call))] = chance.randrange(256)
            return bytes(call + b"\0")
        case 4:
            return bytes(call + b"\0")
        case _:
            return bytes(call + b"\0") * chance.randrange(3000)


def fuzz(path, seconds, seed):
    """Connects and sends for so long; some connections stay, and read nothing."""
    until, chance, kept = time.monotonic() + seconds, random.Random(seed), []
    counts = {"connections": 0, "refused or ended": 0, "answers": 0}
    while time.monotonic() < until:
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(0.05)
        try:
            client.connect(str(path))
            counts["connections"] += 1
            for _ in range(1 + chance.randrange(5)):
                client.sendall(message(chance))
                if chance.randrange(2):
                    counts["answers"] += len(client.recv(65536)) > 0
        except OSError:
            counts["refused or ended"] += 1
        kept.append(client)
        while len(kept) > chance.randrange(40):
            kept.pop(chance.randrange(len(kept))).close()
    return counts


def user(service, scale):
    path, seconds = service.path("io.punctual.Host"), max(2, 60 * scale)
    refused = as_nobody(connect, path, socket.SOCK_STREAM)()
    assert refused == "PermissionError", f"a user without rights may connect: {refused}"
    monitor, status_ms, seen_ms = Monitor(service), [], []
    # As a member of the group, who may connect.
    mode = path.stat().st_mode
    path.chmod(0o666)
    fuzzers = [as_nobody(fuzz, path, seconds, seed) for seed in range(2)]
    peak_kib, peak, until = 0, 0, time.monotonic() + seconds
    while time.monotonic() < until:
        start = time.monotonic()
        service.host()
        status_ms.append((time.monotonic() - start) * 1000)
        peak_kib = max(peak_kib, memory(service.process.pid))
        peak = max(peak, descriptors(service.process.pid))
        seen_ms.append(start_once(monitor, "soak-a-fuzz")[0])
    fuzzers = [end() for end in fuzzers]
    path.chmod(mode)
    reloaded = [event for _, event in monitor.events.queue if event["kind"].startswith("reload")]
    assert not reloaded, f"a user without rights reloads: {reloaded}"
    monitor.end()
    assert peak_kib < RESIDENT_KIB_MAX, f"{peak_kib} KiB"
    dropped = service.host()["clients_dropped"]
    return {"seconds": seconds, "fuzzers": fuzzers, "clients dropped": dropped, "status_ms": status_ms,
            "seen_ms": seen_ms, "peak": {"memory_kib": peak_kib, "descriptors": peak}}


def names(service, _):
    """What others wrote is shown without what a terminal obeys."""
    shown = {}
    vms = Vms([f"soak-b-{ESCAPES}", "soak-b-a\nb", f"soak-b-{'x' * 10_000}", "soak-b-\u200b"])
    wait("all VMs", lambda: sum(name.startswith("soak-b-") for name in service.names()) == 4)
    broken = service.folder / f"etc/host.d/{ESCAPES.replace('/', '')}.toml"
    run, etc = ["--run", "run"], ["--config", "etc"]
    bad = [f"[class.a]\nmatch = \"{ESCAPES}\"\n", f"[class.\"{ESCAPES}\"]\nmatch = 1\n",
           f"# {ESCAPES}\n{ESCAPES} = 1\n", "[class.a]\nmatch = [{ name = \"\\u001b[2J\", x = 1 }]\n"]
    for text in bad:
        broken.write_text(text, encoding="utf-8")
        for command in (["serve", "--reload", *run], ["serve", "--check", *etc], ["status", *run],
                        ["status", str(vms.processes[0].pid), *run]):
            done = service.run(*command)
            expected = 0 if command[0] == "status" else 2
            assert done.returncode == expected, (command, done)
            output = (done.stdout + done.stderr).decode()
            wrong = [c for c in output if (ord(c) < 32 and c != "\n") or c in "\x7f\u202e\u200b"]
            assert not wrong, f"{command}: {output!r}"
            shown[" ".join(command[:2])] = output
    broken.unlink()
    assert service.run("serve", "--reload", *run).returncode == 0
    vms.end()
    log = (service.folder / "log").read_text(encoding="utf-8")
    assert "\x1b" not in log and "\u202e" not in log, "the log has escapes"
    return {"refused": len(bad), "shown": {key: text[:600] for key, text in shown.items()}}


def kills(service, scale):
    vms, chance = Vms([f"soak-a-{number}" for number in range(20)]), random.Random(35)
    ready_ms, counts, before_ready = [], [], 0
    for _ in range(round(200 * scale)):
        service.process.kill()
        service.process.wait()
        service.forget()
        start = time.monotonic()
        service.start()
        if chance.randrange(3) == 0:
            # Killed again before it is ready, perhaps.
            time.sleep(chance.random() * 0.05)
            before_ready += 1
            continue
        service.notified("READY=1")
        ready_ms.append((time.monotonic() - start) * 1000)
        known = [name for name in service.names() if name.startswith("soak-a-")]
        assert len(known) == 20, f"{len(known)} of 20 VMs after a restart"
        counts.append(descriptors(service.process.pid))
        time.sleep(chance.random() * 0.3)
    service.process.kill()
    service.process.wait()
    service.forget()
    service.start()
    service.notified("READY=1")
    vms.end()
    return {"kills": round(200 * scale) + 1, "of which at most 50 ms after the start": before_ready,
            "ready_ms": ready_ms, "descriptors": [min(counts), max(counts)]}


PARTS = {part.__name__: part for part in (starts, reloads, waves, hook, user, names, kills)}


def short(result):
    """A result with distributions in place of long lists."""
    is_long = lambda value: isinstance(value, list) and len(value) > 2 and isinstance(value[0], float)
    return {key: distribution(value) if is_long(value) else value for key, value in result.items()}


def play(service, name, scale):
    before = residue(service)
    start = time.monotonic()
    result = PARTS[name](service, scale)
    seconds = round(time.monotonic() - start, 1)
    after = residue(service)
    assert service.process.poll() is None, "the service has ended"
    # Others may make control groups meanwhile.
    for key in ("descriptors", "threads", "files"):
        assert before[key] == after[key], f"{name}: {key} {before[key]} before, {after[key]} after"
    growth = after["memory_kib"] - before["memory_kib"]
    assert growth < GROWTH_KIB_MAX, f"{name}: {growth} KiB more than before"
    print(f"{name}, {seconds} s: {json.dumps({k: v for k, v in short(result).items() if k != 'shown'})}")
    print(f"    before {json.dumps(before)}\n    after  {json.dumps(after)}", flush=True)
    return {"seconds": seconds, "before": before, "after": after, **result}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True, type=pathlib.Path)
    parser.add_argument("--output", required=True, type=pathlib.Path)
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("parts", nargs="*", metavar="PART")
    options = parser.parse_args()
    if unknown := [part for part in options.parts if part not in PARTS]:
        parser.error(f"no part {unknown[0]!r}; there are {' '.join(PARTS)}")
    with tempfile.TemporaryDirectory() as scratch:
        # The user without rights may look for the sockets.
        folder = pathlib.Path(scratch)
        for directory in (folder, folder.parent):
            if directory.stat().st_uid == os.geteuid() and directory != pathlib.Path("/tmp"):
                directory.chmod(0o711)
        service = Service(options.program, folder)
        service.start()
        service.notified("READY=1")
        # What only first events make is there before the first comparison.
        monitor = Monitor(service)
        for _ in range(20):
            start_once(monitor, "soak-a-first")
        monitor.end()
        results = {}
        try:
            for name in options.parts or PARTS:
                results[name] = play(service, name, options.scale)
            service.end()
        finally:
            if service.process.poll() is None:
                service.process.kill()
            options.output.mkdir(parents=True, exist_ok=True)
            (options.output / "soak.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
