"""Compares standstills that a run reports with those it had: standstill.py RESULTS STOPPED

exit: 0 when at least 95 % of the time was called a standstill
"""
import json, sys

text = open(sys.argv[1]).read()
results = json.loads(text[text.index("\n{") + 1 : text.rindex("}") + 1])
stopped = [int(line) for line in open(sys.argv[2])]
processor = next(p for p in results["processors"] if "disturbance" in p)
intervals = processor["disturbance"]["intervals"]
length = lambda interval: interval["until_ns"] - interval["from_ns"]
# What is about as long as a stop is one: the translated processor has hiccups of its own, which are shorter.
long = [interval for interval in intervals if length(interval) >= 60_000_000]
called = {}
for interval in long:
    called[interval["cause"]] = called.get(interval["cause"], 0) + length(interval)
named = called.get("standstill", 0)
print(f"stopped {len(stopped)} times, {sum(stopped) / 1e6:.1f} ms in all")
by_cause = ", ".join(f"{cause} {time_ns / 1e6:.1f} ms" for cause, time_ns in called.items())
print(f"disturbances of 60 ms and more: {len(long)}, {by_cause}")
others = [f"{length(i) / 1e6:.1f} ms by {i.get('by')}" for i in long if i["cause"] != "standstill"]
print("  of these not a standstill:", ", ".join(others) or "none")
shorter = sum(length(interval) for interval in intervals) - sum(map(length, long))
print(f"shorter ones: {shorter / 1e6:.1f} ms; late jobs: {results['tasks'][0]['jobs']['missed']}")
blame = results["tasks"][0]["blame"]["late"]["causes"] if results["tasks"][0].get("blame") else []
print("late jobs:", {cause["cause"]: round(cause["time_ns"] / 1e6, 1) for cause in blame})
share = min(named, sum(stopped)) / sum(stopped)
print(f"{share:.1%} of the time was called a standstill")
sys.exit(share < 0.95)
