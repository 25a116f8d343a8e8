"""What is beyond the cards of labs/lab host-stack: asks under each method, alone and beside a flood.

Who asks, and QEMU's thread that moves packets, are under SCHED_FIFO: what is beyond a card is never short of
processor time. Neither spins.

usage: outside.py TOOLS COUNT GAP_US FLOOD_PER_SECOND PID_FILE OUT.json
"""

import json
import socket
import subprocess
import sys
import time

FLOOD_BYTES = 1000


def ask(tools, count, gap_us):
    """A round trip's mean, deviation, median and p99 in us."""
    server = "urgent:udp:10.78.0.2:7000"
    question = ["chrt", "-f", "60", f"{tools}/round-trips", "ask", str(count), str(gap_us), server]
    lines = subprocess.run(question, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    words = lines[-1].split()
    return words[1:]


def main():
    tools, count, gap_us, per_second, pid_file, out = sys.argv[1:]
    listener = socket.create_server(("10.78.0.1", 7100))
    connection, _ = listener.accept()
    inside = connection.makefile("rw")
    results = {"kernel": "", "methods": {}, "inversions": [], "refused": {}}
    inversions = []
    for line in inside:
        what, _, rest = line.strip().partition(" ")
        if what == "kernel":
            results["kernel"] = rest
            with open(pid_file) as file:
                subprocess.run(["chrt", "-f", "-p", "55", file.read().strip()], check=True)
        elif what == "inversion":
            inversions.append(rest)
        elif what == "refused":
            method, _, why = rest.partition(": ")
            results["refused"][method] = why
        elif what == "method":
            method = {"inversions": inversions}
            inversions = []
            method["alone"] = ask(tools, count, gap_us)
            flood = [f"{tools}/flood", "send", "10.79.0.2", "9000", per_second, str(FLOOD_BYTES)]
            sender = subprocess.Popen(flood)
            time.sleep(1)
            method["flood"] = ask(tools, count, gap_us)
            sender.terminate()
            sender.wait()
            results["methods"][rest] = method
            print("next", file=inside, flush=True)
        elif what == "came":
            list(results["methods"].values())[-1]["came"] = rest
        elif what == "done":
            break
    with open(out, "w") as file:
        json.dump(results, file, indent=1)


main()
