#!/usr/bin/env bash
# A [host_stack] on a real Linux, beside the model: urgent requests on one card, a flood on another.
#
# usage: labs/lab host-stack measure [COUNT]
#        labs/lab host-stack partitioned [COUNT [RUNS]]
#        labs/lab host-stack sequences
#        labs/lab host-stack kernels
#   measure      COUNT (1000) questions under each method that a stock kernel has, alone and beside the flood,
#                and the simulator's prediction for the same file
#   partitioned  RUNS (5) times COUNT (400) questions under each method of a kernel with two softirq locks
#                (kernel/README.md), in turn, and of the same kernel without PREEMPT_RT; in instructions
#   sequences    the steps between an urgent interrupt and the server's turn in that kernel's trace, compared
#                with labs/host-stack/sequences.txt
#   kernels      do the patches of kernel/ apply, and do their files compile? The gate leaves it out, since
#                the source is a download of 150 MB.
#
# The lab `kernel` boots Debian's newest kernels with two virtio cards, whose other ends are TAP interfaces in
# a network namespace of this lab's own: cloud for `vanilla`, rt (PREEMPT_RT) for the methods with threads,
# which `punctual host-stack` applies one after the other. The processors are translated: only ratios count.
# `partitioned` builds two kernels first, 20 minutes or so. Its machine counts instructions (QEMU's -icount),
# one a nanosecond, so other load does not matter. Three processors: 0 is the world beyond the cards.
# environment: PUNCTUAL (the program; by default it is built), GAP_US (2000, between questions), FLOOD
#   (8000 datagrams of 1000 bytes a second), METHODS (threaded exclusive threaded-napi-unlocked, on rt;
#   `partitioned`: threaded partitioned threaded-napi exclusive), RATES (`partitioned`: the floods)
# shellcheck source=labs/lib.sh
. "$(dirname "$0")/../lib.sh"
lab=$PWD/target/lab/host-stack
count=${2:-1000}
case $count in *[!0-9]* | '') usage ;; esac

# wired KERNEL METHOD...
wired() {
    local kernel=$1 devices='-icount shift=0,sleep=off' card addr=16
    shift
    for card in 1 2; do
        devices+=" -netdev hubport,id=near$card,hubid=$card -netdev hubport,id=far$card,hubid=$card"
        devices+=" -device e1000e,netdev=near$card,mac=52:54:00:18:00:0$card,romfile=,addr=$addr"
        devices+=" -device e1000e,netdev=far$card,mac=52:54:00:18:01:0$card,romfile=,addr=$((addr + 1))"
        addr=$((addr + 2))
    done
    ACCELERATOR=tcg,thread=single PROCESSORS=3 TIMEOUT_S=${TIMEOUT_S:-3600} DEVICES=$devices \
        labs/lab kernel run --kernel "target/lab/linux/$kernel/bzImage" labs/host-stack/wired.sh \
        "$punctual" "$lab/wire" "$count" 1000 "$runs" "$rates" "$@"
}

# build KERNEL...
build() {
    need qemu-system-x86_64 cc python3 cargo
    mkdir -p "$lab"
    build_punctual
    kernel/build.sh target/lab/linux "$@"
    cc -O2 -static -o "$lab/wire" labs/host-stack/wire.c -lm
}

sequences() {
    count=20 runs=trace rates=200000
    build rt
    wired rt threaded partitioned >"$lab/trace"
    python3 labs/host-stack/sequences.py "$lab/trace" labs/host-stack/sequences.txt
}

partitioned() {
    count=${1:-400} runs=${2:-5} rates=${RATES:-0 50000 100000 200000}
    build rt vanilla
    wired vanilla vanilla | tee "$lab/wired"
    # shellcheck disable=SC2086  # One word for each method.
    wired rt ${METHODS:-threaded partitioned threaded-napi exclusive} | tee -a "$lab/wired"
    python3 labs/host-stack/wired.py "$lab/wired"
}

case ${1:-} in
    measure) ;;
    partitioned)
        partitioned "${@:2}"
        exit
        ;;
    sequences)
        sequences
        exit
        ;;
    kernels) exec kernel/build.sh target/lab/linux check ;;
    *) usage ;;
esac

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
