"""Asks the servers of the guest, from the host, and prints a table of what answered.

usage: clients.py IPERF3...     the command that starts iperf3
       clients.py only SERVER  asks one of them, whatever else there is
"""

import json
import socket
import subprocess
import sys
import time
import urllib.request

HOST = "127.0.0.1"


def connection(port):
    return socket.create_connection((HOST, port), 10)


def until(call, seconds=60):
    """Calls until the server is there."""
    end = time.monotonic() + seconds
    while True:
        try:
            return call()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def udp_echo():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(1)

        def ask(data):
            client.sendto(data, (HOST, 7000))
            return client.recv(65536)

        until(lambda: ask(b"first"))
        for size in (0, 1, 1400, 65507):
            assert ask(b"x" * size) == b"x" * size
    return "datagrams of 0 to 65,507 bytes came back"


def tcp_echo():
    clients = [until(lambda: connection(7001)) for _ in range(20)]
    data = bytes(range(256)) * 1024
    for client in clients:
        client.sendall(data)
    for client in clients:
        received = b""
        while len(received) < len(data):
            received += client.recv(1 << 20)
        assert received == data
        client.close()
    return "20 connections echoed 256 KiB each"


def memcached():
    with until(lambda: connection(7002)) as client:
        file = client.makefile("rb")
        for number in range(500):
            client.sendall(b"set k%d 0 0 5\r\nhello\r\nget k%d\r\n" % (number, number))
            assert file.readline() == b"STORED\r\n"
            assert [file.readline() for _ in range(3)][1] == b"hello\r\n"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(5)
        client.sendto(b"\0\1\0\0\0\1\0\0get k7\r\n", (HOST, 7002))
        assert client.recv(1500)[8:].endswith(b"hello\r\nEND\r\n")
    return "1,000 requests over TCP, one over UDP"


def redis():
    clients = [until(lambda: connection(7004)) for _ in range(10)]
    for number in range(100):
        for client in clients:
            client.sendall(b"SET k%d v\r\nGET k%d\r\n" % (number, number))
        for client in clients:
            received = b""
            while len(received) < 12:
                received += client.recv(100)
            assert received == b"+OK\r\n$1\r\nv\r\n", received
    return "2,000 requests over 10 connections"


def nginx():
    def get():
        return urllib.request.urlopen(f"http://{HOST}:7005/large", timeout=10).read()

    for _ in range(5):
        assert len(until(get)) == 1 << 20
    return "5 files of 1 MiB, by sendfile"


def go():
    def get():
        return urllib.request.urlopen(f"http://{HOST}:7006/metrics", timeout=20).read()

    assert b"go_goroutines" in until(get)
    return "its metrics"


def iperf3(arguments, host=HOST):
    def run():
        command = [*sys.argv[1:], "-c", host, "-p", "7003", "-t", "2", "-J", *arguments]
        output = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=False).stdout)
        if "error" in output:
            raise OSError(output["error"])
        return output

    end = until(run)["end"]
    summed = end.get("sum_received") or end["sum"]
    lost = f", {summed['lost_packets']} lost" if "lost_packets" in summed else ""
    return f"{summed['bits_per_second'] / 1e6:.0f} Mbit/s{lost}"


SERVERS = [
    ("Python, UDP echo", udp_echo),
    ("Python asyncio, TCP echo", tcp_echo),
    ("memcached", memcached),
    ("redis", redis),
    ("nginx", nginx),
    ("Go (node exporter)", go),
    ("iperf3, to the guest", lambda: iperf3([])),
    ("iperf3, from the guest", lambda: iperf3(["-R"])),
    ("iperf3, IPv6", lambda: iperf3([], "::1")),
    ("iperf3, 3 connections", lambda: iperf3(["-P", "3"])),
    ("iperf3, UDP 20 Mbit/s", lambda: iperf3(["-u", "-b", "20M"])),
]



def ran(name, ask):
    try:
        print(f"{name:26} {'yes':5} {ask()}", flush=True)
        return True
    except Exception as why:
        print(f"{name:26} {'no':5} {type(why).__name__}: {why}", flush=True)
        return False


if sys.argv[1] == "only":
    sys.exit(not all([ran(name, ask) for name, ask in SERVERS if name == sys.argv[2]]))
print(f"{'server':26} {'ran':5} what")
failed = sum(not ran(name, ask) for name, ask in SERVERS)

# Connections that are open when the VM is killed.
held = [connection(port) for port in (7001, 7002, 7004)]
print(f"holding {len(held)} connections", flush=True)
sys.stdin.readline()
start = time.monotonic()
for client in held:
    try:
        assert client.recv(1) == b""
    except ConnectionResetError:
        pass
closed = time.monotonic()
for port in (7001, 7002, 7004, 7005):
    try:
        connection(port)
        failed += 1
        print(f"port {port} is still open")
    except ConnectionRefusedError:
        pass
print(f"the VM was killed: its connections ended after {(closed - start) * 1000:.0f} ms, its ports are free")
sys.exit(failed > 0)
