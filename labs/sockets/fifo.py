"""Does the next request disturb the one that is served? Counts the module's interrupts on each processor.

usage: fifo.py serve NAME PROCESSOR    in the guest: serves at port 7000 + PROCESSOR, on that processor
       fifo.py ask NAME PROCESSORS     on the host: a request of processor 0, three more while it is served,
                                       and so on; beside them, with more processors, short ones of processor 1

A request of digits is served for 20 ms, any other one at once. An answer has the interrupts that the
processor took since the request before was answered, and while this one was served.
"""

import os
import socket
import statistics
import sys
import threading
import time

SERVICE_S = 0.02
ROUNDS, OTHERS = 50, 3
SHORT_GAP_S = 0.003


def server_of(processor):
    return ("127.0.0.1", 7000 + processor)


def interrupts(processor):
    with open("/proc/interrupts") as file:
        columns = [line.split() for line in file if "punctual_sockets" in line]
    return sum(int(line[1 + processor]) for line in columns)


def serve(server, name, processor):
    os.sched_setaffinity(0, {processor})
    server.bind(server_of(processor))
    print("LAB ready", name, flush=True)
    last = interrupts(processor)
    while True:
        data, address = server.recvfrom(100)
        before, end = interrupts(processor), time.monotonic() + SERVICE_S
        while data.isdigit() and time.monotonic() < end:
            pass
        after = interrupts(processor)
        server.sendto(b"%s %d %d" % (data, before - last, after - before), address)
        last = after


def until_answered(client):
    """The guest's servers start one after the other."""
    client.settimeout(1)
    for _ in range(60):
        client.send(b"hello")
        try:
            return client.recv(100)
        except OSError:
            time.sleep(0.1)
    raise TimeoutError("the guest does not answer")


def ask_short(client, until, told):
    while not until.is_set():
        start = time.monotonic()
        client.send(b"short")
        _, between, during = client.recv(100).split()
        told.append((int(between) + int(during), (time.monotonic() - start) * 1e6))
        time.sleep(SHORT_GAP_S)


def ask_long(client):
    disturbed, order = 0, []
    for number in range(ROUNDS):
        for part in range(1 + OTHERS):
            client.send(b"%d" % (number * (1 + OTHERS) + part))
            time.sleep(SERVICE_S / 8)
        for _ in range(1 + OTHERS):
            request, _, during = client.recv(100).split()
            order.append(int(request))
            disturbed += int(during)
    in_order = "in order" if order == sorted(order) else "out of order"
    return f"{len(order)} requests {in_order}, {disturbed} interrupts while they were served"


def ask(client, name, processors):
    until, told = threading.Event(), []
    clients = [client] + [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(processors - 1)]
    for processor, own in enumerate(clients):
        own.connect(server_of(processor))
        until_answered(own)
        own.settimeout(20)
    others = [threading.Thread(target=ask_short, args=(own, until, told)) for own in clients[1:2]]
    for other in others:
        other.start()
    print(f"{name}: {ask_long(client)}")
    until.set()
    for other in others:
        other.join()
    if told:
        counts, times = zip(*told)
        median, p99 = statistics.median(times), statistics.quantiles(times, n=100)[98]
        print(f"{name}, the other processor: {len(told)} short requests, {sum(counts)} interrupts, "
              f"median {median:.0f} us, p99 {p99:.0f} us")


with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
    {"serve": serve, "ask": ask}[sys.argv[1]](own, sys.argv[2], int(sys.argv[3]))
