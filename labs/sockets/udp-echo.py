"""Echoes datagrams. It knows nothing of where its socket is."""

import socket

with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
    server.bind(("127.0.0.1", 7000))
    while True:
        data, address = server.recvfrom(65536)
        server.sendto(data, address)
