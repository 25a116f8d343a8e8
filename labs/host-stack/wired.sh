#!/usr/bin/env bash
# What the machine of `labs/lab host-stack partitioned` does: asks under one method after the other, in turn.
#
# usage: labs/host-stack/wired.sh PUNCTUAL WIRE COUNT GAP_US RUNS|trace "PER_SECOND..." METHOD...
# usage: labs/host-stack/wired.sh PUNCTUAL WIRE COUNT GAP_US RUNS|trace "FLOOD..." METHOD...
# of a trace of the servers' processor; or `refused METHOD: WHY`
set -euo pipefail
punctual=$1
wire=$2
count=$3
gap_us=$4
runs=$5
rates=$6
shift 6
# Programs that are not in memory would be read while the machine's clock runs on.
cp "$punctual" /tmp/punctual
cp "$wire" /tmp/wire
/tmp/punctual --version >/dev/null
taskset -p -c 0 $$ >/dev/null
echo -1 >/proc/sys/kernel/sched_rt_runtime_us

# The cards by their addresses: two of the kernel, each wired to one that wire drives.
for device in /sys/class/net/*; do
    name=${device##*/}
    pci=$(basename "$(readlink "$device/device" || true)")
    case $(cat "$device/address") in
        52:54:00:18:00:01) card=urgent0 network=78 ;;
        52:54:00:18:00:02) card=flood0 network=79 ;;
        52:54:00:18:01:01) urgent=$pci && echo "$pci" >/sys/bus/pci/drivers/e1000e/unbind && continue ;;
        52:54:00:18:01:02) flood=$pci && echo "$pci" >/sys/bus/pci/drivers/e1000e/unbind && continue ;;
        *) continue ;;
    esac
    ip link set "$name" down
    ip link set "$name" name "$card"
    ip address add "10.$network.0.2/24" dev "$card"
    ip link set "$card" up
    ip neigh add "10.$network.0.1" lladdr "52:54:00:18:01:0$((network - 77))" dev "$card" nud permanent
done
sleep 3

# measure RUN METHOD
#
# The processors of this machine take turns, so whatever runs on processor 0 keeps the others waiting: the
# command and its guardian stop meanwhile. They do not miss each other within that time.
measure() {
    local server=2 rate
    [ "$2" != exclusive ] || server=1
    for rate in $rates; do
        pkill -STOP -x punctual
        echo "result $1 $2 $rate $(/tmp/wire "$urgent" "$flood" 0 $server 2 "$count" "$gap_us" "$rate" "$1")"
        pkill -CONT -x punctual
        sleep 1
    done
}

# measure_traced METHOD
measure_traced() (
    method=$1
    cd /sys/kernel/tracing
    echo 4 >tracing_cpumask
    echo 4096 >buffer_size_kb
    for event in irq napi sched/sched_switch sched/sched_waking sched/sched_pi_setprio; do
        echo 1 >"events/$event/enable"
    done
    measure 1 "$method"
    echo 0 >tracing_on
    sed "/^#/d; s/^/trace $method /" trace
    echo >trace
    echo 1 >tracing_on
)

[ "$runs" != trace ] || { traced=yes && runs=1; }
# Starts the command, $host_stack, and waits until it has changed everything; false if it refuses.
apply() {
    /tmp/punctual host-stack labs/host-stack/wire.toml --set "host_stack.method=$1" >/tmp/log 2>&1 &
    host_stack=$!
    until grep -q 'Inversions that remain' /tmp/log; do
        kill -0 "$host_stack" 2>/dev/null || { echo "refused $1: $(tail -1 /tmp/log)" && return 1; }
        sleep 0.2
    done
}

for run in $(seq "$runs"); do
    for method; do
        apply "$method" || continue
        [ "$run" != 1 ] || sed 's/^/log /' /tmp/log
        if [ -n "${traced:-}" ]; then measure_traced "$method"; else measure "$run" "$method"; fi
        kill -INT "$host_stack"
        wait "$host_stack"
    done
done
# The command has put back what it changed, and its guardian does if the command is killed.
restored() {
    for _ in $(seq 50); do
        [ "$(cat $switch)" != 0 ] || return 0
        sleep 0.2
    done
    echo "rtnet_prio is not restored after $1"
    exit 1
}
switch=/proc/sys/net/core/rtnet_prio
if [ -e $switch ]; then
    restored "Ctrl-C"
    apply partitioned
    [ "$(cat $switch)" = 47 ]
    kill -KILL "$host_stack"
    restored SIGKILL
fi
! dmesg | grep -E 'WARNING|BUG|Call Trace|Dead loop|huh, entered|local softirq work is pending'
