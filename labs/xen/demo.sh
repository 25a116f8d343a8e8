#!/usr/bin/env bash
# The policies inside a real Xen: fetches Xen's source and what a domain 0 needs as Debian packages, builds
# Xen with xen/sched_punctual.c, boots it in QEMU with counted instructions, and prints two tables beside the
# simulator's figures: the demo (examples/misbehaving.toml) in guests of Xen, who missed deadlines and who had
# what share of the processor, under servers and under Xen's own Credit; and what two guests that never rest
# got under each policy and under Xen's own RTDS.
#
# usage: labs/xen/demo.sh [demo|POLICY[,OPTION=VALUE...]|own]...
# example: labs/xen/demo.sh deferrable,quantum=exact rtds own
# exit: 0 every share is within a point of the simulator's, 1 one is not or something failed; 77 skipped:
# something is missing here, which it says.
#
# `demo` is the first table, a policy a row of the second one, and `own` the row of Xen's RTDS. Without words:
# the demo, the servers, RTDS, SEDF and `own`. The first time takes some 8 minutes, the demo another 10, a
# policy 2. What is fetched and built is in target/xen-lab.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=labs/xen/machine.sh
. labs/xen/machine.sh

# What the simulator gives to the two guests that never rest.
simulated_shares() {
    local settings=() option options
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

# The demo on one processor, which domain 0 shares: its guests and their parameters are those of the example.
# Credit is Xen's.
demo() {
    local policies=(deferrable periodic sporadic own-credit) policy title simulated args=() words work
    work=$(mktemp -d)
    cat examples/misbehaving.toml "$parts/manager.toml" > "$work/demo.toml"
    words=(--set machine.processors=1 --set "pool.guests.processors=[0]"
        --set 'pool.guests.credit.refill="period"' --set 'pool.guests.credit.ticks="drifting"'
        --set 'pool.guests.credit.ratelimit="1ms"')
    in_guests release demo "$work/demo.toml" "${words[*]}" "${policies[@]}" || status=1
    for policy in "${policies[@]}"; do
        [ -e "$lab/demo-$policy.json" ] || continue
        simulated=$work/$policy.json
        "$punctual" sim "$work/demo.toml" "${words[@]}" --policy "${policy#own-}" --json > "$simulated"
        title=$policy
        [ "$policy" != own-credit ] || title="Xen's Credit"
        args+=("$title" "$simulated" "$lab/demo-$policy.json")
    done
    python3 "$parts/demo.py" "${args[@]}" || status=1
    rm -r "$work"
}

# shares POLICY...: the table of the guests that never rest
shares() {
    local choice name policy options expected
    printf '%-24s %-14s %-14s %-14s %s\n' "shares in %" "4/10, 3/10 ms" simulated "2/20, 8/10 ms" simulated
    for choice; do
        name=${choice//[^a-z0-9]/-}
        case $choice in
            own) policy=rtds options=$own=rtds ;;
            *) policy=$choice options="sched=punctual sched_punctual=$choice" ;;
        esac
        boot release "$name" "$options" "$parts/dom0/shares.sh"
        expected=$(simulated_shares "$policy" 4ms 10ms 3ms 10ms; simulated_shares "$policy" 2ms 20ms 8ms 10ms)
        python3 "$parts/table.py" "$choice" "$lab/$name.log" "$expected" || status=1
    done
}

[ $# -gt 0 ] || set -- demo deferrable periodic polling sporadic rtds sedf own
prepare release

status=0
rows=()
for choice; do
    case $choice in
        demo) demo ;;
        *) rows+=("$choice") ;;
    esac
done
[ ${#rows[@]} -eq 0 ] || shares "${rows[@]}"
exit $status
