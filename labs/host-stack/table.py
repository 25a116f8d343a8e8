"""What labs/lab host-stack measured, beside what the simulator says of the same file.

usage: table.py PUNCTUAL RESULTS.json...
"""

import json
import subprocess
import sys

HOST = "labs/host-stack/host.toml"


def simulated(punctual, method, flood):
    """Mean, deviation and p99 of the response time in us, with or without the flood."""
    arguments = [punctual, "sim", HOST, "--json", "--set", f"host_stack.method={method}"]
    if not flood:
        arguments += ["--set", "host_stack.server.sink.start=1000s"]
    text = subprocess.run(arguments, stdout=subprocess.PIPE, check=True).stdout
    flow = next(flow for flow in json.loads(text)["flows"] if flow["name"] == "control")
    return flow["latency"]["mean_ns"] / 1000


def main():
    punctual, *files = sys.argv[1:]
    print("round trips of 64 bytes in us, alone and beside the flood; x is the one over the other")
    print(f"{'method':<14} {'':<6} {'mean':>9} {'deviation':>9} {'median':>9} {'p99':>9} {'max':>9}"
          f" {'flood/s':>9} {'x':>6} {'model x':>8}")
    for name in files:
        with open(name) as file:
            results = json.load(file)
        print(results["kernel"])
        for method, of in results["methods"].items():
            alone, flood = of["alone"], of["flood"]
            ratio = float(flood[1]) / float(alone[1])
            model = simulated(punctual, method, True) / simulated(punctual, method, False)
            print(f"{method:<14} {'alone':<6} " + " ".join(f"{value:>9}" for value in alone[1:]))
            print(f"{'':<14} {'flood':<6} " + " ".join(f"{value:>9}" for value in flood[1:])
                  + f" {of.get('came', ''):>9} {ratio:>6.2f} {model:>8.2f}")
            for inversion in of["inversions"]:
                print(f"{'':<14}   {inversion}")
        for method, why in results["refused"].items():
            print(f"{method:<14} refused: {why}")


main()
