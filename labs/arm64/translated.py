#!/usr/bin/env python3
"""Runs a command in a mount namespace in which QEMU runs the programs of arm64.

usage: labs/arm64/translated.py QEMU COMMAND [ARGUMENT...]    as root
       QEMU is the path of qemu-aarch64-static

What is registered with the kernel (binfmt_misc) belongs to a user namespace, in which every user is itself:
Linux 6.7 and later. The machine outside sees nothing of it, and it ends with its last process.
"""

import ctypes
import os
import sys

CLONE_NEWNS = 0x20000
CLONE_NEWUSER = 0x10000000
# Programs (ELF) of 64 bits for arm64 in executables and shared objects, as /usr/lib/binfmt.d has them.
MAGIC = r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
MASK = r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"
EVERYBODY = "0 0 4294967295\n"


def inside(qemu, command):
    done = os.spawnlp(os.P_WAIT, "mount", "mount", "-t", "binfmt_misc", "none", "/proc/sys/fs/binfmt_misc")
    if done != 0:
        return done
    # F: the file is opened here, so it runs in other roots too.
    with open("/proc/sys/fs/binfmt_misc/register", "w", encoding="ascii") as register:
        register.write(f":arm64:M::{MAGIC}:{MASK}:{qemu}:F")
    return os.execvp(command[0], command)


def main():
    if len(sys.argv) < 3:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    ready, told = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0:
            print("unshare:", os.strerror(ctypes.get_errno()), file=sys.stderr)
            os._exit(1)
        os.write(ready[1], b".")
        os.read(told[0], 1)
        try:
            os._exit(inside(sys.argv[1], sys.argv[2:]))
        except OSError as error:
            print(f"translated.py: {error}", file=sys.stderr)
            os._exit(1)
    os.close(ready[1])
    if os.read(ready[0], 1):
        for name in ("uid_map", "gid_map"):
            with open(f"/proc/{child}/{name}", "w", encoding="ascii") as ids:
                ids.write(EVERYBODY)
        os.write(told[1], b".")
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    sys.exit(main())
