"""What the simulator has for a host at other phases between its jobs and the ticks and refills of Credit,
which follow each other every 30 ms: all jobs come 0, 1.5, 3 ... 28.5 ms later, and at each of these phases
those of one guest 0.2 ms after the others', because guests' clocks are known to that. Writes a list of
results.

usage: phases.py PUNCTUAL HOST.toml [WORD of `punctual sim`]...
"""
import json
import subprocess
import sys
import tomllib

from costs import ns

STEPS, STEP_NS, CLOCK_NS = 20, 1_500_000, 200_000

punctual, file, *words = sys.argv[1:]
host = tomllib.load(open(file, "rb"))
offsets_ns = {
    f"domain.{domain}.task.{name}.offset": ns(task.get("offset", "0ns"))
    for domain, keys in host["domain"].items()
    for name, task in keys.get("task", {}).items()
    if "period" in task
}
for word in words:
    key, _, value = word.partition("=")
    if key in offsets_ns:
        offsets_ns[key] = ns(value)
guests = {key.rsplit(".", 3)[0] for key in offsets_ns} - {"domain.Domain-0"}
results = []
for step in range(STEPS):
    for late in ["", *sorted(guests)]:
        later = []
        for key, offset_ns in offsets_ns.items():
            later_ns = step * STEP_NS + (CLOCK_NS if key.startswith(f"{late}.") else 0)
            later += ["--set", f"{key}={offset_ns + later_ns}ns"]
        words_now = [punctual, "sim", file, *words, *later, "--json"]
        results.append(json.loads(subprocess.run(words_now, stdout=subprocess.PIPE, check=True).stdout))
json.dump(results, sys.stdout)
