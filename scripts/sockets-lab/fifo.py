"""Does the next request disturb the one that is served? Counts the module's interrupts during each service.

usage: fifo.py serve NAME   in the guest: serves each request for 20 ms, and says how often it was disturbed
       fifo.py ask NAME     on the host: a request, three more while it is served, and so on
"""

import socket
import sys
import time

SERVER = ("127.0.0.1", 7000)
SERVICE_S = 0.02
ROUNDS, OTHERS = 50, 3


def interrupts():
    with open("/sys/module/punctual_sockets/parameters/interrupts") as file:
        return int(file.read())


def serve(server, name):
    server.bind(SERVER)
    print("LAB ready", name, flush=True)
    while True:
        data, address = server.recvfrom(100)
        before, end = interrupts(), time.monotonic() + SERVICE_S
        while time.monotonic() < end:
            pass
        server.sendto(b"%s %d" % (data, interrupts() - before), address)


def ask(client, name):
    client.settimeout(20)
    disturbed, order = 0, []
    for number in range(ROUNDS):
        for part in range(1 + OTHERS):
            client.sendto(b"%d" % (number * (1 + OTHERS) + part), SERVER)
            time.sleep(SERVICE_S / 8)
        for _ in range(1 + OTHERS):
            request, count = client.recv(100).split()
            order.append(int(request))
            disturbed += int(count)
    in_order = "in order" if order == sorted(order) else "out of order"
    print(f"{name}: {len(order)} requests {in_order}, {disturbed} interrupts while they were served")


with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
    if sys.argv[1] == "serve":
        serve(own, sys.argv[2])
    else:
        ask(own, sys.argv[2])
