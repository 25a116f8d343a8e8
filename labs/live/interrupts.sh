#!/usr/bin/env bash
# How long an interrupt from a processor of this machine to a busy one takes. Wake-ups across processors
# contain it, and so do latencies that are measured with two busy processors. It should take microseconds;
# some virtual machines deliver it at the other processor's next timer tick, up to 4 ms later.
#
# usage: labs/live/interrupts.sh [PROCESSOR [BUSY_PROCESSOR]]   (0 and 1)
# exit: 0 it was measured; 77 skipped: something is missing, it says what
set -euo pipefail
cd "$(dirname "$0")/../.."

command -v cc >/dev/null || { echo "skipped: a C compiler is missing"; exit 77; }
[ "$(nproc)" -gt 1 ] || { echo "skipped: there is one processor"; exit 77; }
program=$(mktemp)
trap 'rm -f "$program"' EXIT
cc -O2 -Wall -Wextra -pthread -o "$program" labs/live/busy.c
"$program" "${1:-0}" "${2:-1}"
