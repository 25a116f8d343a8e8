"""Shows the memory of a server as the folder of a PCI device, for the preloaded library without a VM.

usage: device.py SOCKET FOLDER     until it is killed; prints a line when the folder is there

It connects as QEMU's ivshmem device does (QEMU, docs/specs/ivshmem-spec.txt). The library has no doorbell in
that folder: this program rings it whenever the server sleeps (docs/vmrpc.md).
"""

import mmap
import os
import socket
import struct
import sys
import time

MESSAGES, MEMORY, HOST = 12, -1, 0
HOST_SLEEPING_AT = 128

with socket.socket(socket.AF_UNIX) as server:
    server.connect(sys.argv[1])
    files = {}
    for _ in range(MESSAGES):
        message, received, _, _ = socket.recv_fds(server, 8, 1)
        if received:
            files.setdefault(struct.unpack("<q", message)[0], received[0])
    os.makedirs(sys.argv[2])
    os.symlink(f"/proc/{os.getpid()}/fd/{files[MEMORY]}", os.path.join(sys.argv[2], "resource2"))
    memory = mmap.mmap(files[MEMORY], 0)
    print("there", flush=True)
    while True:
        if memory[HOST_SLEEPING_AT]:
            os.write(files[HOST], struct.pack("=Q", 1))
        time.sleep(0.0002)
