#!/usr/bin/env bash
# The policies inside a real Xen: fetches Xen's source and what a domain 0 needs as Debian packages, builds
# Xen with xen/sched_punctual.c, boots it in QEMU with counted instructions, and prints what two guests that
# never rest got of a processor under each policy, beside Xen's own RTDS and the simulator.
#
# usage: scripts/xen.sh [POLICY[,OPTION=VALUE...]|own]...
# example: scripts/xen.sh deferrable,quantum=exact rtds own
# exit: 0 every share is within a point of the simulator's, 1 one is not or something failed; 77 skipped:
# something is missing here, which it says.
#
# `own` is Xen's RTDS; without a policy: the servers, RTDS, SEDF and `own`. The first time takes some 8
# minutes, a policy another 2. What is fetched and built is in target/xen-lab.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/xen/lab.sh
. scripts/xen/lab.sh

# What the simulator gives to the same two guests.
simulated() {
    local settings=() option
    IFS=, read -ra options <<< "$1"
    for option in "${options[@]:1}"; do
        case ${option#*=} in
            [0-9]*) settings+=(--set "pool.guests.${options[0]}.${option%%=*}=${option#*=}") ;;
            *) settings+=(--set "pool.guests.${options[0]}.${option%%=*}=\"${option#*=}\"") ;;
        esac
    done
    "$punctual" sim "$parts/shares.toml" --policy "${options[0]}" "${settings[@]}" --json \
        --set "domain.one.budget=$2" --set "domain.one.period=$3" \
        --set "domain.two.budget=$4" --set "domain.two.period=$5" |
        python3 -c 'import json, sys
results = json.load(sys.stdin)
print(*(round(d["cpu_time_ns"] / results["duration_ns"] * 100, 1) for d in results["domains"][:2]))'
}

[ $# -gt 0 ] || set -- deferrable periodic polling sporadic rtds sedf own
prepare release

status=0
printf '%-24s %-14s %-14s %-14s %s\n' "shares in %" "4/10, 3/10 ms" simulated "2/20, 8/10 ms" simulated
for choice; do
    name=${choice//[^a-z0-9]/-}
    case $choice in
        own) policy=rtds; boot release "$name" "$own=rtds" "$parts/shares.sh" ;;
        *) policy=$choice; boot release "$name" "sched=punctual sched_punctual=$choice" "$parts/shares.sh" ;;
    esac
    expected="$(simulated "$policy" 4ms 10ms 3ms 10ms) $(simulated "$policy" 2ms 20ms 8ms 10ms)"
    python3 "$parts/table.py" "$choice" "$lab/$name.log" "$expected" || status=1
done
exit $status
