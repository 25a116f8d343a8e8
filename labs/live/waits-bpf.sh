#!/usr/bin/env bash
# What `labs/lab live waits-bpf` does in the machine of the lab `kernel`: PROGRAM TESTS COST VM SECONDS
set -euo pipefail
program=$1 tests=$2 cost=$3 vm=$4 seconds=$5
failed=0

echo "== causes that are injected, under $(uname -r)"
PUNCTUAL_NO_SKIP=1 "$tests" --exact programs_in_the_kernel_name_what_a_vcpu_waited_for --nocapture || failed=1

echo "== sums by cause in ms, of $seconds s, by both sources at once"
python3 labs/live/waits.py "$program" "$vm" "$seconds" || failed=1

echo "== cost, with 100 wake-ups a second of each VM"
"$cost" 100 1,10,100 off tracepoints bpf || failed=1
exit "$failed"
