"""Who had the processor of a run's pool, and what its unit observed: shares.py RESULTS.json OUTPUT"""
import json, sys

results = json.load(open(sys.argv[1]))
processor = next(processor for processor in results["processors"] if "host" in processor)
duration = processor["busy_ns"] + processor["idle_ns"] + processor["overhead_ns"]
duration = results.get("duration_ns", duration)
shares = [("unit", results["vcpus"][0]["cpu_time_ns"]), ("others", processor["host"]["others_ns"])]
print(", ".join(f"{who} {time_ns / duration:.2%}" for who, time_ns in shares), end="")
observed = [line.split(": ", 1)[1].strip() for line in open(sys.argv[2]) if line.startswith("observed")]
print("".join(f"; {line}" for line in observed))
