"""What programs said in a guest, as a table; what the switch counted beside what tcpdump read.

usage: check.py CONSOLE COUNTS FRAMES BROADCASTS; ends with 1 if something is not as it must be."""

import json
import re
import sys

PROGRAMS = [f"{peer}-{what}" for peer in ("guest", "uplink")
            for what in ("ping", "ping-large", "tcp", "tcp-reverse", "udp", "udp-small")]
# Sent to everybody by the last program of the guest.
BROADCASTS = 20

console, counts, frames, broadcasts = sys.argv[1:]
text = open(console, errors="replace").read().replace("\r", "")
wrong = []
for name in PROGRAMS:
    said = re.findall(rf"^LAB {name} said (.*)$", text, re.M)
    ended = re.search(rf"^LAB {name} exit (\d+)$", text, re.M)
    if not ended or ended[1] != "0":
        wrong.append(f"{name} ended with {ended[1] if ended else 'nothing'}: {said[-1:]}")
        continue
    wanted = r"packet loss|rtt" if "ping" in name else r"(sender|receiver)$"
    lines = [re.sub(r"^\[ *\d+\] +|, time \S+$", "", line) for line in said if re.search(wanted, line)]
    print(f"{name:18}", ("\n" + " " * 19).join(lines))
    if "ping" in name and not any(", 0% packet loss" in line for line in lines):
        wrong.append(f"{name} lost packets")

result = json.load(open(counts))
for port in result["ports"]:
    drops = {reason: count for reason, count in port["drops"].items() if count}
    name = port["name"].split(":")[0]
    print(f"port {name}: sent {port['sent']['packets']}, received {port['received']['packets']}, "
          f"dropped {drops or 'none'}")
captured = next(port for port in result["ports"] if port["name"].startswith("capture:"))
expected = captured["received"]["packets"]
print(f"tcpdump read {frames} frames of {expected} captured, "
      f"among them {broadcasts} of {BROADCASTS} broadcasts")
if int(frames) != expected or int(broadcasts) != BROADCASTS:
    wrong.append("tcpdump read other frames than were sent")
for line in wrong:
    print("wrong:", line)
sys.exit(bool(wrong))
