"""What a kernel does between an urgent interrupt that comes in a flood's softirq and the server's turn.

usage: sequences.py LINES EXPECTED
LINES are those of labs/host-stack/wired.sh with a trace. Prints each method's most frequent sequence.
exit: 0 they are those of EXPECTED, which has `METHOD:` and a step on each line; 1 they are not.
"""

import collections
import re
import sys

LINE = re.compile(r"trace (?P<method>\S+) +(?P<comm>.{16})-\d+ +\[\d+\] \S+ +[\d.]+: "
                  r"(?P<event>\w+): (?P<rest>.*)")
SERVER_PRIO = 52  # SCHED_FIFO 47


class Watch:
    """The steps of one method, as its trace's events come."""

    def __init__(self):
        self.irq = None
        self.softirq_of = None
        self.steps = None
        self.found = collections.Counter()

    def who(self, comm, prio=None):
        if comm.startswith(f"irq/{self.irq}-"):
            return "urgent"
        if comm.startswith("irq/") and "-flood0" in comm or comm.startswith("ksoftirqd"):
            return "common"
        if comm == "wire":
            return "server" if prio == SERVER_PRIO else "sink"
        return "other"

    def add(self, step):
        if self.steps is not None and (not self.steps or self.steps[-1] != step):
            self.steps.append(step)

    def see(self, comm, event, rest):
        fields = dict(re.findall(r"(\w+)=(\S+)", rest))
        handler = getattr(self, event, None)
        if handler:
            handler(comm, fields, rest)

    def irq_handler_entry(self, comm, fields, _):
        if fields["name"].startswith("urgent0-rx"):
            self.irq = fields["irq"]
            common = self.softirq_of is not None and self.who(comm) == "common"
            self.steps = ["an interrupt of the urgent card"] if common else None

    def softirq_entry(self, comm, fields, rest):
        action = rest.split("action=")[1].rstrip("]")
        if action == "NET_RX" and self.who(comm) == "common":
            self.softirq_of = comm
        if self.who(comm) == "urgent":
            self.add(f"urgent serves {action}")

    def softirq_exit(self, comm, fields, _):
        if self.who(comm) == "common":
            self.softirq_of = None

    def napi_poll(self, comm, fields, rest):
        device = re.search(r"for device (\S+)", rest).group(1)
        self.add(f"{self.who(comm)} has polled {device}")

    def sched_waking(self, _, fields, __):
        who = self.who(fields["comm"], int(fields["prio"]))
        if who in ("urgent", "server"):
            self.add(f"{who} wakes")

    def sched_pi_setprio(self, _, fields, __):
        if int(fields["newprio"]) < int(fields["oldprio"]):
            self.add(f"{self.who(fields['comm'])} inherits")

    def sched_switch(self, _, __, rest):
        after = re.search(r"next_comm=(.*) next_pid=\d+ next_prio=(\d+)", rest)
        who = self.who(after.group(1), int(after.group(2)))
        self.add(f"{who} runs")
        if who == "server" and self.steps:
            self.found[tuple(self.steps)] += 1
            self.steps = None


def main():
    lines, expected_path = sys.argv[1:]
    watches = collections.defaultdict(Watch)
    with open(lines, encoding="utf-8") as file:
        for line in file:
            if match := LINE.match(line):
                watches[match["method"]].see(match["comm"].strip(), match["event"], match["rest"])
    text = ""
    for method, watch in watches.items():
        (steps, count), = watch.found.most_common(1) or [((), 0)]
        print(f"{method}: {count} of {sum(watch.found.values())} urgent interrupts in a flood's softirq",
              file=sys.stderr)
        text += f"{method}:\n" + "".join(f"  {step}\n" for step in steps)
    print(text, end="")
    with open(expected_path, encoding="utf-8") as file:
        expected = "".join(line for line in file if not line.startswith("#"))
    return int(text != expected)


if __name__ == "__main__":
    sys.exit(main())
