"""A program whose host takes its sockets away: what it sees, that new sockets are the guest's own, and that
they are the host's again when another server has begun."""

import errno
import socket
import time

ADDRESS = ("127.0.0.1", 7000)


def is_hosts():
    """Is a new socket the host's? The module makes calls for it then."""

    def calls():
        with open("/sys/module/punctual_sockets/parameters/calls") as file:
            return int(file.read())

    before = calls()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM):
        return calls() > before


with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as lost, socket.socket() as listener:
    lost.bind(ADDRESS)
    listener.bind(("127.0.0.1", 7001))
    listener.listen()
    print("LAB ready", flush=True)
    for call in (lambda: lost.recv(1), listener.accept, lambda: lost.sendto(b"x", ADDRESS)):
        try:
            call()
        except OSError as why:
            print("LAB saw", errno.errorcode[why.errno], flush=True)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.bind(ADDRESS)
        own.sendto(b"own", own.getsockname())
        print("LAB saw", own.recv(3).decode(), flush=True)
    print("LAB without", flush=True)
    while not is_hosts():
        time.sleep(0.1)
    # The socket of the server before is still open, and stays without use.
    try:
        lost.send(b"x")
    except OSError as why:
        print("LAB saw", errno.errorcode[why.errno], flush=True)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as again:
    again.bind(ADDRESS)
    print("LAB again", flush=True)
    data, peer = again.recvfrom(10)
    again.sendto(data, peer)
    print("LAB saw", data.decode(), flush=True)
