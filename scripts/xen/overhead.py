"""A row of RT-Xen's Table 1 as a real Xen has it, beside the paper's: scripts/xen-overhead.sh.

usage: overhead.py [POLICY LOG]   without both: the titles
"""
import sys
import tomllib

from cost import INSTRUCTION_NS, counted

TITLES = ["policy", "decisions in 10 s", "instructions each", "context switches", "instructions each",
          "wake-ups, sleeps, timers", "instructions each", "of the processor"]


def both(printed, ours):
    return f"{printed if printed is not None else '-'}, {ours}"


if len(sys.argv) == 1:
    print("paper, in Xen")
    for row in [TITLES, ["---"] * len(TITLES)]:
        print("| " + " | ".join(row) + " |")
    sys.exit()
policy, log = sys.argv[1:]
paper = tomllib.load(open("papers/rt-xen/paper.toml", "rb"))["table1"]
at = paper["policies"].index(policy) if policy in paper["policies"] else None


def of_paper(key):
    return None if at is None else paper[key][at]


counts = counted(log)
others = ["wake", "sleep", "timer", "context_saved"]
other_calls, other_instructions = (sum(counts[kind][i] for kind in others) for i in (0, 1))
decisions, switches = counts["do_schedule"], counts["switch"]
total = decisions[1] + switches[1] + other_instructions
row = [
    policy,
    both(of_paper("decisions"), decisions[0]),
    f"{decisions[1] / decisions[0]:.0f}",
    both(of_paper("switches"), switches[0]),
    f"{switches[1] / max(switches[0], 1):.0f}",
    f"{other_calls}",
    f"{other_instructions / max(other_calls, 1):.0f}",
    both(of_paper("loss_percent"), f"{total * INSTRUCTION_NS / 10e9 * 100:.2f}") + " %",
]
print("| " + " | ".join(row) + " |", flush=True)
