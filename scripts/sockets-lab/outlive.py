"""A program whose host takes its sockets away: what it sees, and that new sockets are the guest's own."""

import errno
import socket

with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as lost, socket.socket() as listener:
    lost.bind(("127.0.0.1", 7000))
    listener.bind(("127.0.0.1", 7001))
    listener.listen()
    print("LAB ready", flush=True)
    for call in (lambda: lost.recv(1), listener.accept, lambda: lost.sendto(b"x", ("127.0.0.1", 7000))):
        try:
            call()
        except OSError as why:
            print("LAB saw", errno.errorcode[why.errno], flush=True)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
    own.bind(("127.0.0.1", 7000))
    own.sendto(b"own", own.getsockname())
    print("LAB saw", own.recv(3).decode(), flush=True)
