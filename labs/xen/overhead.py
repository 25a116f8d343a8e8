"""A row of RT-Xen's Table 1 as a real Xen has it, beside the paper's and the simulator's:
labs/lab xen overhead. Xen's counters run for about 10 s and are scaled to 10 s.

usage: overhead.py [POLICY SIMULATED.json LOG]   without them: the titles
"""
import json
import sys
import tomllib

from cost import INSTRUCTION_NS, counted

SHOWN_NS = 10_000_000_000
TITLES = ["policy", "decisions in 10 s", "instructions each", "context switches", "instructions each",
          "wake-ups, sleeps, timers", "instructions each", "of the processor"]


def main():
    if len(sys.argv) == 1:
        print("paper, simulated, in Xen; of the processor: paper, in Xen")
        for row in [TITLES, ["---"] * len(TITLES)]:
            print("| " + " | ".join(row) + " |")
        return
    policy, simulated, log = sys.argv[1:]
    pool = json.load(open(simulated))["pools"][0]
    paper = tomllib.load(open("papers/rt-xen/paper.toml", "rb"))["table1"]
    at = paper["policies"].index(policy) if policy in paper["policies"] else None
    of_paper = {key: "-" if at is None else column[at] for key, column in paper.items()}
    counts, length_ns = counted(log)

    def of(*kinds):
        """Calls in 10 s, and instructions of each."""
        calls, instructions = (sum(counts[kind][i] for kind in kinds) for i in (0, 1))
        return f"{calls * SHOWN_NS / length_ns:.0f}", f"{instructions / max(calls, 1):.0f}"

    decisions, each_decision = of("do_schedule")
    switches, each_switch = of("switch")
    taken_ns = sum(instructions for _, instructions in counts.values()) * INSTRUCTION_NS
    row = [
        policy,
        f'{of_paper["decisions"]}, {pool["decisions"]}, {decisions}',
        each_decision,
        f'{of_paper["switches"]}, {pool["context_switches"]}, {switches}',
        each_switch,
        *of("wake", "sleep", "timer", "context_saved"),
        f'{of_paper["loss_percent"]}, {taken_ns / length_ns * 100:.2f} %',
    ]
    print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
