"""Pings and small frames of guests on two networks, from lines "NETWORK ping|udp WHAT IT SAID"."""

import re
import sys

times, rates = {}, {}
for line in sys.stdin:
    network, program, said = (line.rstrip().split(" ", 2) + ["", ""])[:3]
    if program == "ping" and (found := re.search(r"time=([0-9.]+) ms", said)):
        times.setdefault(network, []).append(float(found[1]))
    # [  5]   0.00-5.00   sec   824 KBytes  1.35 Mbits/sec  0.2 ms  21000/45765 (46%)  receiver
    if program == "udp" and said.endswith("receiver"):
        seconds = float(re.search(r"-([0-9.]+) +sec", said)[1])
        lost, sent = map(int, re.search(r"(\d+)/(\d+) \(", said).groups())
        rates.setdefault(network, []).append((sent / seconds, (sent - lost) / seconds))
for network, own in times.items():
    own.sort()
    place = lambda share: own[min(len(own) - 1, int(share * len(own)))]
    frames = ", ".join(f"{sent:.0f} sent, {got:.0f} arrived" for sent, got in rates.get(network, []))
    print(f"{network}: {len(own)} pings, p50 {place(.5):.2f} ms, p99 {place(.99):.2f} ms, "
          f"most {own[-1]:.2f} ms; frames of 64 bytes a second: {frames}")
