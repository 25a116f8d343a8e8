#!/usr/bin/env bash
# What the machine of labs/lab host-stack does: a server on each card, and the cards handled by one
# method after the other, each until the other side says that it has asked enough.
#
# usage: labs/host-stack/inside.sh PUNCTUAL TOOLS CONFIG METHOD...
#   CONFIG is the kernel's configuration.
set -euo pipefail
punctual=$1
tools=$2
config=$3
shift 3
host=labs/host-stack/host.toml

# The cards by their addresses.
for device in /sys/class/net/*; do
    name=${device##*/}
    case $(cat "$device/address") in
        52:54:00:18:00:01) card=urgent0 address=10.78.0.2/24 ;;
        52:54:00:18:00:02) card=flood0 address=10.79.0.2/24 ;;
        *) continue ;;
    esac
    ip link set "$name" down
    ip link set "$name" name "$card"
    ip address add "$address" dev "$card"
    ip link set "$card" up
done
# A flood may take all the time that there is: what the urgent ones wait for is what is measured.
echo -1 >/proc/sys/kernel/sched_rt_runtime_us
chrt -f 47 "$tools/round-trips" serve 10.78.0.2 7000 >/dev/null &
server=$!
"$tools/flood" count 10.79.0.2 9000 >/tmp/came &
exec 3<>/dev/tcp/10.78.0.1/7100
# Where the doctor looks for it; the kernel's own folder is not in this machine.
cp "$config" "/boot/config-$(uname -r)"
lock=$(grep -E 'PREEMPT_RT_NEEDS_BH_LOCK' "$config" || echo "no PREEMPT_RT_NEEDS_BH_LOCK")
echo "kernel $(uname -rv); its configuration: $lock" >&3
for method in "$@"; do
    "$punctual" host-stack "$host" --set "host_stack.method=$method" >/tmp/told 2>&1 &
    host_stack=$!
    until grep -q 'Inversions that remain' /tmp/told || ! kill -0 "$host_stack" 2>/dev/null; do
        sleep 0.2
    done
    sleep 1
    if ! kill -0 "$host_stack" 2>/dev/null; then
        echo "refused $method: $(tail -1 /tmp/told)" >&3
        continue
    fi
    # Under `exclusive` threads with a priority have the processors set aside, and all others the rest.
    case $method in
        exclusive) taskset -p -c 1 "$server" >/dev/null ;;
        *) taskset -p -c 0,1 "$server" >/dev/null ;;
    esac
    sed -n '/^Inversions/,$s/^  /inversion /p' /tmp/told >&3
    : >/tmp/came
    echo "method $method" >&3
    read -r _ <&3
    echo "came $(sort -n /tmp/came | tail -1)" >&3
    kill -INT "$host_stack"
    wait "$host_stack"
done
echo "done" >&3
