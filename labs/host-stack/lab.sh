#!/usr/bin/env bash
# A [host_stack] on a real Linux, beside the model: urgent requests on one card, a flood on another.
#
# usage: labs/lab host-stack measure [COUNT]
#   measure  COUNT (1000) questions under each method that a stock kernel has, alone and beside the flood, and
#            the simulator's prediction for the same file
#
# The lab `kernel` boots Debian's newest kernels with two virtio cards, whose other ends are TAP interfaces in
# a network namespace of this lab's own: cloud for `vanilla`, rt (PREEMPT_RT) for the methods with threads,
# which `punctual host-stack` applies one after the other. The processors are translated: only ratios count.
# environment: PUNCTUAL (the program; by default it is built), GAP_US (2000, between questions), FLOOD
#   (8000 datagrams of 1000 bytes a second), METHODS (threaded exclusive threaded-napi-unlocked, on rt)
# shellcheck source=labs/lib.sh
. "$(dirname "$0")/../lib.sh"
lab=$PWD/target/lab/host-stack
count=${2:-1000}
[ "${1:-}" = measure ] || usage
case $count in *[!0-9]* | '') usage ;; esac

if [ "$inside" != yes ]; then
    need qemu-system-x86_64 cc ip unshare python3 cargo chrt
    need_root
    mkdir -p "$lab"
    build_punctual
    cc -O2 -static -o "$lab/round-trips" labs/sockets/round-trips.c -lm
    cc -O2 -static -o "$lab/flood" labs/host-stack/flood.c
    for kernel in cloud rt; do
        # It fetches the kernel, which the namespace cannot.
        [ -d "target/lab/${SUITE:-forky}-$kernel" ] || labs/lab kernel run --kernel "$kernel" true ||
            skip "no machine with the kernel $kernel"
    done
    in_namespaces --net
fi

ip link set lo up
card=0
devices=
for network in 78 79; do
    ip tuntap add "tap$card" mode tap
    ip address add "10.$network.0.1/24" dev "tap$card"
    ip link set "tap$card" up
    devices+=" -netdev tap,id=net$card,ifname=tap$card,script=no,downscript=no"
    devices+=" -device virtio-net-pci,netdev=net$card,romfile=,mac=52:54:00:18:00:0$((card + 1))"
    card=$((card + 1))
done
# measure KERNEL METHOD...
measure() {
    local kernel=$1 outside config
    shift
    python3 labs/host-stack/outside.py "$lab" "$count" "${GAP_US:-2000}" "${FLOOD:-8000}" \
        "target/lab/pid-$kernel" "$lab/$kernel.json" &
    outside=$!
    config=$(echo target/lab/*-"$kernel"/usr/lib/modules/*/config)
    MODULES=virtio_net DEVICES=$devices labs/lab kernel run --kernel "$kernel" \
        labs/host-stack/inside.sh "$punctual" "$lab" "$config" "$@"
    wait "$outside"
}
measure cloud vanilla
# shellcheck disable=SC2086  # One word for each method.
measure rt ${METHODS:-threaded exclusive threaded-napi-unlocked}
python3 labs/host-stack/table.py "$punctual" "$lab/cloud.json" "$lab/rt.json"
