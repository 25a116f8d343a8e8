"""What the simulator has for a host at 20 phases between its jobs and the ticks and refills of Credit, which
follow each other every 30 ms: all jobs come 0, 1.5, 3 ... 28.5 ms later. Writes a list of results.

usage: phases.py PUNCTUAL HOST.toml [WORD of `punctual sim`]...
"""
import json
import subprocess
import sys
import tomllib

from costs import ns

STEPS, STEP_NS = 20, 1_500_000

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
results = []
for step in range(STEPS):
    later = []
    for key, offset_ns in offsets_ns.items():
        later += ["--set", f"{key}={offset_ns + step * STEP_NS}ns"]
    said = subprocess.run([punctual, "sim", file, *words, *later, "--json"], stdout=subprocess.PIPE, check=True)
    results.append(json.loads(said.stdout))
json.dump(results, sys.stdout)
