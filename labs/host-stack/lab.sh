#!/usr/bin/env bash
# A [host_stack] on a real Linux: an urgent request/response on one network card, beside a flood on another,
# handled by every method that a stock kernel can do, and the model's prediction beside it.
#
# usage: labs/host-stack/lab.sh [COUNT]     so many questions under each method, alone and beside the flood
# exit: 0 when everything was measured; 77 skipped: something is missing, which it says.
#
# Debian's newest kernels are booted in QEMU (labs/kernel/run.sh) with two virtio cards, whose other ends are
# TAP interfaces in a network namespace of this script's own: cloud for `vanilla`, rt (PREEMPT_RT) for the
# methods with threads, which `punctual host-stack` applies one after the other. The processors are
# translated: only ratios mean something.
# environment: PUNCTUAL (the program; by default it is built), GAP_US (2000, between questions), FLOOD
#   (8000 datagrams of 1000 bytes a second), METHODS (threaded exclusive threaded-napi-unlocked, on rt)
set -euo pipefail
cd "$(dirname "$0")/../.."
count=${1:-1000}
case $count in
    *[!0-9]* | '') sed -n '2,16s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
lab=$PWD/target/lab/host-stack
skip() {
    echo "skipped: $*"
    exit 77
}
if [ "${HOST_STACK_LAB_INSIDE:-}" != yes ]; then
    for tool in qemu-system-x86_64 cc ip unshare python3 cargo chrt; do
        command -v "$tool" >/dev/null || skip "$tool is missing"
    done
    [ "$(id -u)" = 0 ] || skip "root is needed, for a network namespace with TAP interfaces"
    [ -c /dev/net/tun ] || skip "/dev/net/tun is missing"
    mkdir -p "$lab"
    [ -n "${PUNCTUAL:-}" ] || cargo build --quiet --locked --release -p punctual
    cc -O2 -static -o "$lab/round-trips" labs/sockets/round-trips.c -lm
    cc -O2 -static -o "$lab/flood" labs/host-stack/flood.c
    for kernel in cloud rt; do
        # It fetches the kernel, which the namespace cannot.
        [ -d "target/lab/${SUITE:-forky}-$kernel" ] || labs/kernel/run.sh --kernel "$kernel" true ||
            skip "no machine with the kernel $kernel"
    done
    HOST_STACK_LAB_INSIDE=yes exec unshare --net "$0" "$@"
fi

# From here on in the namespace.
punctual=${PUNCTUAL:-target/release/punctual}
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
# One kernel under these methods.
measure() {
    local kernel=$1
    shift
    python3 labs/host-stack/outside.py "$lab" "$count" "${GAP_US:-2000}" "${FLOOD:-8000}" \
        "target/lab/pid-$kernel" "$lab/$kernel.json" &
    local outside=$! config
    config=$(echo target/lab/*-"$kernel"/usr/lib/modules/*/config)
    MODULES=virtio_net DEVICES=$devices labs/kernel/run.sh --kernel "$kernel" \
        labs/host-stack/inside.sh "$punctual" "$lab" "$config" "$@" || {
        kill "$outside" 2>/dev/null || true
        return 1
    }
    wait "$outside"
}
measure cloud vanilla
# shellcheck disable=SC2086  # One word for each method.
measure rt ${METHODS:-threaded exclusive threaded-napi-unlocked}
python3 labs/host-stack/table.py "$punctual" "$lab/cloud.json" "$lab/rt.json"
