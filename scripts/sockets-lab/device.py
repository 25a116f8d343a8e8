"""Shows the memory of a server as the folder of a PCI device, for the preloaded library without a VM.

usage: device.py SOCKET FOLDER     until it is killed; prints a line when the folder is there

It connects as QEMU's ivshmem device does (QEMU, docs/specs/ivshmem-spec.txt). There is no doorbell, so the
server must poll.
"""

import os
import signal
import socket
import struct
import sys

MESSAGES, MEMORY = 5, -1

with socket.socket(socket.AF_UNIX) as server:
    server.connect(sys.argv[1])
    files = {}
    for _ in range(MESSAGES):
        message, received, _, _ = socket.recv_fds(server, 8, 1)
        if received:
            files.setdefault(struct.unpack("<q", message)[0], received[0])
    os.makedirs(sys.argv[2])
    os.symlink(f"/proc/{os.getpid()}/fd/{files[MEMORY]}", os.path.join(sys.argv[2], "resource2"))
    print("there", flush=True)
    signal.pause()
