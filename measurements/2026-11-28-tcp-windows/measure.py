#!/usr/bin/env python3
"""Windows of Linux's TCP behind one queue: a sender, a router whose token bucket filter drops, a receiver.

usage: measure.py CONTROL MBIT PACKETS SECONDS [sack]      as root; makes network namespaces and removes them
prints: goodput, the least and greatest window and the mean time between losses of the second half, then a
        line for every 50 ms: seconds, congestion window, slow start threshold, packets sent again

Without `sack` there are no selective acknowledgements (NewReno). Time stamps and F-RTO are off, packets have
1514 bytes. HyStart is off if /sys/module/tcp_cubic/parameters/hystart is 0.
"""

import os
import select
import socket
import struct
import subprocess
import sys
import time

NAMES = [f"tcp-{end}-{os.getpid()}" for end in ("from", "router", "to")]
TCP_CONGESTION, TCP_INFO, TCP_MAXSEG = 13, 11, 2
# Places in struct tcp_info after its first eight bytes, in words.
THRESHOLD, WINDOW, AGAIN = 17, 18, 23
MSS = 1460


def run(*command):
    subprocess.run(command, check=True)


def inside(name, *command):
    run("ip", "netns", "exec", name, *command)


def build(mbit, packets, sack):
    source, router, sink = NAMES
    for name in NAMES:
        run("ip", "netns", "add", name)
    for ends, (left, right) in enumerate([(source, router), (router, sink)]):
        links = f"tl{ends}", f"tr{ends}"
        run("ip", "link", "add", links[0], "netns", left, "type", "veth", "peer", links[1], "netns", right)
        for name, link, host in [(left, links[0], 1), (right, links[1], 2)]:
            run("ip", "-n", name, "address", "add", f"10.9.{ends}.{host}/24", "dev", link)
            run("ip", "-n", name, "link", "set", link, "gso_max_segs", "1", "up")
    run("ip", "-n", source, "route", "add", "default", "via", "10.9.0.2")
    run("ip", "-n", sink, "route", "add", "default", "via", "10.9.1.1")
    inside(router, "sysctl", "-qw", "net.ipv4.ip_forward=1")
    inside(router, "tc", "qdisc", "add", "dev", "tl1", "root", "tbf", "rate", f"{mbit}mbit", "burst", "1540",
           "limit", str(packets * 1514))
    settings = [f"net.ipv4.tcp_sack={sack}", "net.ipv4.tcp_timestamps=0"]
    inside(sink, "sysctl", "-qw", *settings)
    inside(source, "sysctl", "-qw", "net.ipv4.tcp_frto=0", "net.ipv4.tcp_recovery=0", *settings)


def receive(seconds):
    listener = socket.create_server(("10.9.1.2", 5001))
    stream = listener.accept()[0]
    began, total = time.monotonic(), 0
    while (elapsed := time.monotonic() - began) < seconds:
        total += len(stream.recv(65536))
    print(f"goodput {total * 8 / elapsed / 1e6:.3f} Mbit/s", flush=True)


def send(seconds, control):
    stream = socket.socket()
    stream.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, control.encode())
    stream.setsockopt(socket.IPPROTO_TCP, TCP_MAXSEG, MSS)
    stream.connect(("10.9.1.2", 5001))
    stream.setblocking(False)
    began, series, data = time.monotonic(), [], bytes(65536)
    while (now := time.monotonic() - began) < seconds:
        if now >= len(series) * 0.01:
            words = struct.unpack_from("24I", stream.getsockopt(socket.IPPROTO_TCP, TCP_INFO, 232), 8)
            series.append((now, words[WINDOW], words[THRESHOLD], words[AGAIN]))
        try:
            stream.send(data)
        except BlockingIOError:
            select.select([], [stream], [], 0.005)
        except ConnectionError:
            break
    report(series)


def report(series):
    late = series[len(series) // 2:]
    losses = []
    for before, after in zip(late, late[1:]):
        if after[3] > before[3] and (not losses or after[0] - losses[-1] > 0.15):
            losses.append(after[0])
    period = (losses[-1] - losses[0]) / (len(losses) - 1)
    windows = [window for _, window, _, _ in late]
    print(f"windows {min(windows)} to {max(windows)}, a loss every {period:.3f} s")
    for now, window, threshold, again in series[::5]:
        print(f"{now:.3f} {window} {threshold if threshold < 1 << 30 else '-'} {again}")


def main():
    if sys.argv[1] == "receive":
        return receive(float(sys.argv[2]))
    if sys.argv[1] == "send":
        return send(float(sys.argv[2]), sys.argv[3])
    control, mbit, packets, seconds = sys.argv[1], *map(int, sys.argv[2:5])
    try:
        build(mbit, packets, int("sack" in sys.argv[5:]))
        command = ["ip", "netns", "exec", NAMES[2], sys.executable, __file__, "receive", str(seconds)]
        with subprocess.Popen(command) as receiver:
            time.sleep(0.5)
            inside(NAMES[0], sys.executable, __file__, "send", str(seconds), control)
            receiver.wait(10)
    finally:
        for name in NAMES:
            subprocess.run(["ip", "netns", "delete", name], check=False)


main()
