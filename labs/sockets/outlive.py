"""A program whose host takes its sockets away: what it sees, that new sockets are the guest's own, and that
they are the host's again when another server has begun."""

import errno
import socket
import time

ADDRESS = ("127.0.0.1", 7000)


def calls():
    with open("/sys/module/punctual_sockets/parameters/calls") as file:
        return int(file.read())


def socket_of_host():
    """A socket for which the module made a call, as soon as there is one."""
    while True:
        before = calls()
        new = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        if calls() > before:
            return new
        new.close()
        time.sleep(0.1)


def failing(call):
    try:
        call()
    except OSError as why:
        print("LAB saw", errno.errorcode[why.errno], flush=True)


def echo_once():
    with socket_of_host() as again:
        again.bind(ADDRESS)
        data, peer = again.recvfrom(10)
        again.sendto(data, peer)
        print("LAB saw", data.decode(), flush=True)


with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as lost, socket.socket() as listener:
    lost.bind(ADDRESS)
    listener.bind(("127.0.0.1", 7001))
    listener.listen()
    print("LAB ready", flush=True)
    for call in (lambda: lost.recv(1), listener.accept, lambda: lost.sendto(b"x", ADDRESS)):
        failing(call)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.bind(ADDRESS)
        own.sendto(b"own", own.getsockname())
        print("LAB saw", own.recv(3).decode(), flush=True)
    print("LAB without", flush=True)
    socket_of_host().close()
    # The socket of the server before is still open, and stays without use.
    failing(lambda: lost.send(b"x"))
while True:
    try:
        echo_once()
        break
    except ConnectionResetError:
        # This server was killed, too.
        pass
