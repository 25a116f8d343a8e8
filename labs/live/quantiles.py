"""Latencies of cyclictest's thread 0: quantiles.py CYCLICTEST.json TITLE"""
import json, sys
thread = json.load(open(sys.argv[1]))["thread"]["0"]
histogram = sorted((int(us), n) for us, n in thread["histogram"].items())
total = sum(n for _, n in histogram)
def quantile(share):
    seen = 0
    for us, n in histogram:
        seen += n
        if seen >= share * total:
            return us
figures = (sys.argv[2], quantile(0.5), quantile(0.99), thread["max"], total)
print("%-12s p50 %4d  p99 %4d  max %5d  (%d wake-ups)" % figures)
