"""Heavy receivers: two streams over loopback, and how much they received in a second.

usage: receivers.py SECONDS
"""

import socket
import sys
import threading
import time

END = time.monotonic() + float(sys.argv[1])
STREAMS = 2
received = [0] * STREAMS


def send(to):
    data = bytes(1 << 16)
    with socket.create_connection(to) as own:
        while time.monotonic() < END:
            own.sendall(data)


def receive(number, connection):
    while data := connection.recv(1 << 16):
        received[number] += len(data)


with socket.create_server(("127.0.0.1", 0)) as listener:
    threads = []
    for number in range(STREAMS):
        threads.append(threading.Thread(target=send, args=[listener.getsockname()], daemon=True))
        threads[-1].start()
        threads.append(threading.Thread(target=receive, args=[number, listener.accept()[0]], daemon=True))
        threads[-1].start()
    for thread in threads:
        thread.join()
print(f"{sum(received) * 8 / float(sys.argv[1]) / 1e9:.2f} Gbit/s")
