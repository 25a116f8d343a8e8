"""What a program can see of sockets, one line for each check: the same on a guest's own stack and the host's.

usage: semantics.py FIRST-PORT [ADDRESS [CHECK...]]     about 20 ports from there, of 127.0.0.1 or ADDRESS;
       without these checks
"""

import ctypes
import errno
import os
import select
import signal
import socket
import struct
import sys
import threading
import time

PORT = int(sys.argv[1])
HOST = sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1"
FAMILY = socket.AF_INET6 if ":" in HOST else socket.AF_INET
# The largest payload of UDP: IPv6 does not count its header.
LARGEST = 65527 if FAMILY == socket.AF_INET6 else 65507
STREAM, DATAGRAM = socket.SOCK_STREAM, socket.SOCK_DGRAM
CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def error(call, *arguments):
    """The name of the error that a call fails with, or what it returns."""
    try:
        return call(*arguments)
    except TimeoutError as why:
        return "timeout" if why.errno is None else errno.errorcode[why.errno]
    except OSError as why:
        return errno.errorcode[why.errno]


def now(waited, flags=0):
    """What recv returns without waiting, on a socket that would wait."""
    waited.setblocking(True)
    outcome = error(waited.recv, 10, flags | socket.MSG_DONTWAIT)
    waited.settimeout(10)
    return outcome


def own(kind, port=None):
    new = socket.socket(FAMILY, kind)
    new.settimeout(10)
    if port is not None:
        new.bind((HOST, port))
    return new


def pair(port):
    """A connection, the side that connected and the side that accepted."""
    with own(STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        listener.listen()
        client = own(STREAM)
        client.connect((HOST, port))
        accepted, address = listener.accept()
        accepted.settimeout(10)
        assert address == client.getsockname()
        return client, accepted


def raw_error(call, each, name):
    """What bind or connect with these bytes as address fails with."""
    library = ctypes.CDLL(None, use_errno=True)
    outcome = getattr(library, call)(each.fileno(), name, len(name))
    return errno.errorcode[ctypes.get_errno()] if outcome < 0 else outcome


def ready(waited, mask, limit=5000):
    poll = select.poll()
    poll.register(waited, mask)
    return [events for _, events in poll.poll(limit)]


def soon(condition):
    for _ in range(500):
        if condition():
            return True
        time.sleep(0.01)
    return False


@check
def bind_to_port_0_has_a_name():
    with own(STREAM, 0) as one, own(DATAGRAM, 0) as two:
        return [name[0] == HOST and name[1] > 0 for name in (one.getsockname(), two.getsockname())]


@check
def two_binds_of_one_port():
    with own(DATAGRAM, PORT) as _:
        return error(own, DATAGRAM, PORT)


@check
def reuse_port():
    with own(DATAGRAM) as one, own(DATAGRAM) as two:
        for each in (one, two):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            each.bind((HOST, PORT))
        return one.getsockname() == two.getsockname()


@check
def datagrams_peek_truncate_and_empty():
    with own(DATAGRAM, PORT) as one, own(DATAGRAM, PORT + 1) as two:
        two.sendto(b"hello", (HOST, PORT))
        two.sendto(b"", (HOST, PORT))
        peeked = one.recvfrom(3, socket.MSG_PEEK)
        cut, _, flags, _ = one.recvmsg(3)
        empty = one.recvfrom(10)
        return peeked, cut, flags & socket.MSG_TRUNC > 0, empty, now(one)


@check
def truncated_length():
    with own(DATAGRAM, PORT) as one, own(DATAGRAM) as two:
        two.sendto(b"x" * 5000, (HOST, PORT))
        return one.recv_into(bytearray(10), 10, socket.MSG_TRUNC)


@check
def scattered_and_gathered():
    with own(DATAGRAM, PORT) as one, own(DATAGRAM) as two:
        two.sendmsg([b"ab", b"cde"], [], 0, (HOST, PORT))
        first, second = bytearray(3), bytearray(10)
        count = one.recvmsg_into([first, second])[0]
        return count, bytes(first), bytes(second[:2])


@check
def largest_datagram():
    with own(DATAGRAM, PORT) as one, own(DATAGRAM) as two:
        sent = two.sendto(b"x" * LARGEST, (HOST, PORT))
        return sent, len(one.recv(70000)), error(two.sendto, b"x" * (LARGEST + 1), (HOST, PORT))


@check
def connected_datagrams():
    with own(DATAGRAM, PORT) as one, own(DATAGRAM, PORT + 1) as two, own(DATAGRAM, PORT + 2) as stranger:
        one.connect((HOST, PORT + 1))
        stranger.sendto(b"no", (HOST, PORT))
        two.sendto(b"yes", (HOST, PORT))
        return one.recv(10), one.getpeername(), one.send(b"back"), two.recv(10)


@check
def refused_datagram():
    with own(DATAGRAM) as one:
        one.connect((HOST, PORT + 9))
        one.send(b"nobody")
        return error(one.recv, 10), error(one.getpeername)[:2] == (HOST, PORT + 9)


@check
def receive_timeout():
    with own(DATAGRAM, PORT) as one:
        one.setblocking(True)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 200000))
        start = time.monotonic()
        return error(one.recv, 1), 0.15 < time.monotonic() - start < 2


@check
def refused_connection():
    with own(STREAM) as one:
        return error(one.connect, (HOST, PORT + 9))


@check
def connection_that_does_not_wait():
    with own(STREAM) as listener, own(STREAM) as one, own(STREAM) as refused:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, PORT))
        listener.listen()
        one.setblocking(False)
        refused.setblocking(False)
        codes = one.connect_ex((HOST, PORT)), refused.connect_ex((HOST, PORT + 9))
        ready(one, select.POLLOUT), ready(refused, select.POLLOUT)
        results = [each.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) for each in (one, refused)]
        return [code in (0, errno.EINPROGRESS, errno.ECONNREFUSED) for code in codes], results


@check
def accept_that_does_not_wait():
    with own(STREAM, 0) as listener:
        listener.listen()
        listener.setblocking(False)
        accepting = listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        return error(listener.accept), accepting, error(own(STREAM).accept)


@check
def accept_waits_while_others_connect():
    with own(STREAM, 0) as listener:
        listener.listen()
        found = []
        thread = threading.Thread(target=lambda: found.extend(listener.accept()[0] for _ in range(3)))
        thread.start()
        time.sleep(0.1)
        clients = [own(STREAM) for _ in range(3)]
        for client in clients:
            client.connect(listener.getsockname())
        thread.join(10)
        return len(found), sorted(each.getpeername() for each in found) == sorted(
            each.getsockname() for each in clients
        )


@check
def half_close():
    client, server = pair(PORT + 3)
    client.shutdown(socket.SHUT_WR)
    events = ready(server, select.POLLIN | select.POLLRDHUP)
    server.sendall(b"still")
    return events, server.recv(1), client.recv(10), error(client.send, b"x")


@check
def wait_for_all():
    client, server = pair(PORT + 3)
    client.sendall(b"ab")
    timer = threading.Timer(0.2, client.sendall, [b"cde"])
    timer.start()
    server.setblocking(True)
    return server.recv(5, socket.MSG_WAITALL), server.getpeername() == client.getsockname()


@check
def peek_of_a_stream():
    client, server = pair(PORT + 3)
    client.sendall(b"hello")
    return server.recv(2, socket.MSG_PEEK), server.recv(10), now(server)


@check
def bulk_both_ways():
    client, server = pair(PORT + 3)
    data = bytes(range(256)) * 16384
    thread = threading.Thread(target=client.sendall, args=[data])
    thread.start()
    received = bytearray()
    while len(received) < len(data):
        received += server.recv(1 << 20)
    thread.join(10)
    return received == data


@check
def broken_pipe_and_its_signal():
    client, server = pair(PORT + 3)
    server.close()
    soon(lambda: now(client) == b"")
    client.send(b"x")
    soon(lambda: ready(client, 0, 0) != [])
    caught = []
    signal.signal(signal.SIGPIPE, lambda *_: caught.append(1))
    first = soon(lambda: error(client.send, b"x") == "EPIPE")
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    quiet = error(client.send, b"x", socket.MSG_NOSIGNAL)
    return first, len(caught) > 0, quiet


@check
def reset():
    client, server = pair(PORT + 3)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    server.close()
    return [events & (select.POLLERR | select.POLLHUP) > 0 for events in ready(client, select.POLLIN)], error(
        client.recv, 1
    )


@check
def a_signal_interrupts_and_a_call_goes_on():
    with own(DATAGRAM, PORT) as one, own(DATAGRAM) as two:
        caught = []
        signal.signal(signal.SIGALRM, lambda *_: (caught.append(1), two.sendto(b"woken", (HOST, PORT))))
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        one.setblocking(True)
        return one.recv(10), len(caught)


@check
def edge_triggered():
    client, server = pair(PORT + 3)
    epoll = select.epoll()
    epoll.register(server, select.EPOLLIN | select.EPOLLET)
    client.send(b"a")
    first = [events for _, events in epoll.poll(5)]
    again = epoll.poll(0.1)
    client.send(b"b")
    second = [events for _, events in epoll.poll(5)]
    return first, again, second, server.recv(10)


@check
def level_triggered():
    client, server = pair(PORT + 3)
    epoll = select.epoll()
    epoll.register(server, select.EPOLLIN)
    client.send(b"a")
    counts = [len(epoll.poll(5)), len(epoll.poll(5))]
    server.recv(10)
    return counts, epoll.poll(0.1)


@check
def full_becomes_writable():
    client, server = pair(PORT + 3)
    client.setblocking(False)
    while error(client.send, b"x" * 65536) != "EAGAIN":
        pass
    full = ready(client, select.POLLOUT, 0)
    server.setblocking(False)
    soon(lambda: error(server.recv, 1 << 20) == "EAGAIN" and ready(client, select.POLLOUT, 0) != [])
    return full, ready(client, select.POLLOUT)


@check
def options():
    with own(STREAM) as one, own(DATAGRAM) as two:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        wanted = (
            (one, socket.IPPROTO_TCP, socket.TCP_NODELAY),
            (one, socket.SOL_SOCKET, socket.SO_KEEPALIVE),
            (one, socket.SOL_SOCKET, socket.SO_TYPE),
            (one, socket.SOL_SOCKET, socket.SO_PROTOCOL),
            (two, socket.SOL_SOCKET, socket.SO_PROTOCOL),
            (two, socket.SOL_SOCKET, socket.SO_DOMAIN),
            (two, socket.SOL_SOCKET, socket.SO_ERROR),
        )
        return [each.getsockopt(level, option) for each, level, option in wanted]


@check
def wrong_arguments():
    with own(STREAM) as one, own(DATAGRAM) as two:
        return (
            error(two.listen),
            error(one.getpeername),
            now(one),
            error(two.send, b"x"),
            error(one.setsockopt, socket.IPPROTO_TCP, 9999, 1),
        )


@check
def a_child_has_the_same_sockets():
    client, server = pair(PORT + 3)
    child = os.fork()
    if child == 0:
        server.sendall(server.recv(10) + b"!")
        os._exit(0)
    server.close()
    client.sendall(b"hi")
    answer = client.recv(10)
    os.waitpid(child, 0)
    return answer, client.recv(1)


@check
def a_descriptor_is_passed():
    client, server = pair(PORT + 3)
    one, two = socket.socketpair(socket.AF_UNIX)
    socket.send_fds(one, [b"x"], [server.fileno()])
    server.close()
    passed = socket.socket(fileno=socket.recv_fds(two, 1, 1)[1][0])
    client.sendall(b"hi")
    return ready(passed, select.POLLIN), passed.recv(10)


@check
def a_program_that_dies_leaves_nothing():
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        listener = own(STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, PORT + 4))
        listener.listen()
        os.write(writer, b"x")
        accepted = listener.accept()
        time.sleep(60)
        os._exit(len(accepted))
    os.read(reader, 1)
    client = own(STREAM)
    client.connect((HOST, PORT + 4))
    time.sleep(0.3)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with own(STREAM) as next_one:
        return client.recv(1), error(next_one.connect, (HOST, PORT + 4))


@check
def sendfile():
    client, server = pair(PORT + 3)
    with open("/tmp/semantics", "wb+") as file:
        file.write(b"0123456789" * 1000)
        file.flush()
        sent = os.sendfile(client.fileno(), file.fileno(), 5, 9000)
    client.close()
    received = b""
    while part := server.recv(65536):
        received += part
    return sent, len(received), received[:6]


@check
def bytes_waiting():
    import fcntl
    import termios

    client, server = pair(PORT + 3)
    client.sendall(b"12345")
    ready(server, select.POLLIN)
    return struct.unpack("i", fcntl.ioctl(server, termios.FIONREAD, b"\0" * 4))[0]


@check
def connections_in_a_row():
    with own(STREAM, 0) as listener:
        listener.listen(16)
        for _ in range(int(os.environ.get("CONNECTIONS", 1000))):
            client = own(STREAM)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.connect(listener.getsockname())
            listener.accept()[0].close()
            client.close()
    return True


IPV6, V6ONLY = socket.IPPROTO_IPV6, socket.IPV6_V6ONLY


def both(kind, only=0):
    """A socket of IPv6 that takes IPv4 too, unless it is for IPv6 only."""
    new = socket.socket(socket.AF_INET6, kind)
    new.settimeout(10)
    new.setsockopt(IPV6, V6ONLY, only)
    return new


def ipv6_check(function):
    if FAMILY == socket.AF_INET6:
        CHECKS.append(function)
    return function


@ipv6_check
def connections_of_both_families():
    with both(STREAM) as listener, socket.socket() as ipv4, own(STREAM) as ipv6:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("::", PORT + 5))
        listener.listen()
        ipv4.connect(("127.0.0.1", PORT + 5))
        ipv6.connect(("::1", PORT + 5))
        accepted = [listener.accept() for _ in range(2)]
        names = [(each.getsockname(), each.getpeername() == peer, peer[0]) for each, peer in accepted]
        accepted[0][0].sendall(b"hi")
        return names, ipv4.getpeername(), ipv4.recv(10), listener.getsockopt(IPV6, V6ONLY)


@ipv6_check
def ipv6_only_leaves_the_port_to_ipv4():
    with both(STREAM, 1) as one, socket.socket() as two, both(STREAM) as three:
        for each in (one, two, three):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(("::", PORT + 6))
        two.bind(("0.0.0.0", PORT + 6))
        one.listen()
        two.listen()
        late = error(one.setsockopt, IPV6, V6ONLY, 0)
        return late, error(three.bind, ("::", PORT + 6)), one.getsockname(), two.getsockname()


@ipv6_check
def datagrams_of_both_families():
    with both(DATAGRAM) as one, socket.socket(socket.AF_INET, DATAGRAM) as two, both(DATAGRAM, 1) as only:
        two.settimeout(10)
        one.bind(("::", PORT + 7))
        two.bind(("127.0.0.1", 0))
        two.sendto(b"ping", ("127.0.0.1", PORT + 7))
        data, peer = one.recvfrom(10)
        one.sendto(b"pong", peer)
        only_error = error(only.sendto, b"x", ("::ffff:127.0.0.1", PORT + 7))
        return data, peer[0], two.recv(10), only_error


@ipv6_check
def a_connection_to_a_mapped_address():
    with socket.socket() as listener, both(STREAM) as client, both(STREAM, 1) as only:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        mapped = ("::ffff:127.0.0.1", listener.getsockname()[1])
        client.connect(mapped)
        return client.getpeername()[0], client.getsockname()[0], error(only.connect, mapped)


@ipv6_check
def wrong_families():
    with own(STREAM) as ipv6, own(DATAGRAM) as datagram, socket.socket() as ipv4:
        errors = []
        for each, name in ((ipv6, b"\2\0\0\7\x7f\0\0\1" + b"\0" * 20), (ipv4, b"\12\0\0\7" + b"\0" * 24)):
            for call in ("bind", "connect"):
                errors.append(raw_error(call, each, name))
        errors.append(raw_error("bind", ipv6, b"\12\0\0\7"))
        errors.append(raw_error("connect", datagram, b"\2\0\0\7\x7f\0\0\1" + b"\0" * 8))
        return errors


@ipv6_check
def options_of_ipv6():
    with own(STREAM) as one:
        one.setsockopt(IPV6, socket.IPV6_UNICAST_HOPS, 9)
        one.setsockopt(IPV6, socket.IPV6_TCLASS, 16)
        wanted = (socket.IPV6_UNICAST_HOPS, socket.IPV6_TCLASS, V6ONLY)
        return [one.getsockopt(IPV6, option) for option in wanted], error(one.getsockopt, IPV6, 9999)


for function in CHECKS:
    if function.__name__ in sys.argv[3:]:
        continue
    try:
        outcome = function()
    except Exception as why:  # It is an outcome like any other, and compared.
        outcome = f"{type(why).__name__}: {why}"
    print(f"{function.__name__}: {outcome}", flush=True)
