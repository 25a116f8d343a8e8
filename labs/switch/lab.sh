#!/usr/bin/env bash
# Stock Debian 12 guests, under stock QEMU, on `punctual switch`; the switch beside Linux's bridge and OVS.
#
# usage: labs/lab switch MODE [ARGUMENT...]
#   programs  ping and iperf3 between two guests and from a guest to the host by a TAP uplink; Debian's
#             tcpdump reads what a capture uplink wrote
#   libvirt   one of the guests is a domain of libvirt, made of what `punctual switch --libvirt` prints, in
#             VLAN 10 of a network with an MTU of 1,400; it pings the other. libvirtd is this lab's own
#   restarts [COUNT [SEED]]  the switch and three guests that send to each other; COUNT times (100) a random
#             one is ended or killed and started again. Each flow's frames come once, in order
#   measure-guests [ROUNDS]  two guests on the switch, and on a Linux bridge with TAPs and QEMU's own
#             virtio-net, in turn (with KVM=yes on the bridge with vhost-net, too): 500 pings, and UDP in
#             frames of 64 bytes for 5 s
#   measure-host [ROUNDS]  no guest: frames of 64 bytes a second through a Linux bridge, between two TAPs and
#             between packet sockets of two veth pairs, in turn with the switch: between interface uplinks on
#             veth pairs, and under its own load generator
#   measure-ovs [ROUNDS]  no guest: the load generator on the switch, and on Open vSwitch with DPDK, in turn
#   instructions [--parts] [LOAD...]  instructions of a plane for each packet, counted by valgrind: one flow,
#             one flow beside 248 idle ports, sixteen flows, and urgent frames beside two floods (LOAD: one,
#             one-of-250, sixteen, mixed); fails if one costs 5 percent more than is recorded; with --parts
#             what each part of the code takes under RTCA 1
#
# Kernel and programs are Debian packages, unpacked and never installed. All interfaces are in a network
# namespace of this lab's own. The processors of guests are translated: their times are not those of KVM. With
# KVM=yes all of it runs above a kernel that has KVM and vhost-net (the lab `kernel`), which is translated.
# environment: PUNCTUAL (the program; by default it is built), MEASURE (the example of punctual-switch,
#   likewise), TIMEOUT_S (300), QEMU_SUITE (the Debian suite whose QEMU is taken, from packages that are
#   unpacked; by default the installed one), KVM (yes: see above), CLOUD_HYPERVISOR (where the program of that
#   name is, not below /tmp: guests are its VMs instead of QEMU's; it needs KVM=yes)
# shellcheck source=labs/lib.sh
. "$(dirname "$0")/../lib.sh"
lab=$PWD/target/lab/switch
# shellcheck source=labs/debian.sh
. labs/debian.sh
# shellcheck source=labs/switch/libvirt.sh
. labs/switch/libvirt.sh
# shellcheck source=labs/switch/ovs.sh
. labs/switch/ovs.sh
# shellcheck source=labs/switch/restarts.sh
. labs/switch/restarts.sh
qemu=(qemu-system-x86_64)
measure=${MEASURE:-target/release/examples/measure}
mode=${1:-}
case $mode in
    programs | libvirt | restarts | measure-guests | measure-host | measure-ovs) ;;
    instructions)
        need cargo valgrind addr2line python3
        [ -n "${MEASURE:-}" ] || cargo build --quiet --locked --release -p punctual-switch \
            --features testing,rustix/use-libc-auxv --example measure
        python3 labs/switch/instructions.py "$measure" "${@:2}"
        exit
        ;;
    *) usage ;;
esac

# What the mode needs, fetched and built.
prepare() {
    need ip unshare cargo cc python3
    need_root
    mkdir -p "$lab"
    [ "$mode" = measure-ovs ] || build_punctual
    if [[ $mode = measure-host || $mode = measure-ovs ]]; then
        cc -O2 -Wall -pthread -o "$lab/frames" labs/switch/frames.c
        [ "$mode" = measure-host ] || { need apt-get dpkg && fetch_ovs; } || skip "Open vSwitch cannot be had"
        [ -n "${MEASURE:-}" ] || cargo build --quiet --locked --release -p punctual-switch --example measure
        return
    fi
    need qemu-system-x86_64 apt-get dpkg cpio modinfo
    [ "$mode" != libvirt ] || need libvirtd virsh xmllint
    if [ ! -s "$lab/version" ]; then
        fetch busybox-static iputils-ping iperf3 tcpdump || skip "Debian's packages cannot be had"
        echo "$version" >"$lab/version"
    fi
    if [ -n "${QEMU_SUITE:-}" ]; then
        fetch_qemu "$QEMU_SUITE" || skip "QEMU of Debian $QEMU_SUITE cannot be had"
    fi
    if [ -n "${CLOUD_HYPERVISOR:-}" ]; then
        [ "${KVM:-}" = yes ] || skip "Cloud Hypervisor needs KVM (KVM=yes)"
        [ -x "$CLOUD_HYPERVISOR" ] || skip "$CLOUD_HYPERVISOR (CLOUD_HYPERVISOR) is no program"
    fi
    guest_files labs/switch/init
    cc -O2 -Wall -static -o "$guest/bin/flows" labs/switch/flows.c
    pack "$guest" >"$lab/initrd"
}
if [ "$inside" != yes ]; then
    prepare
    [ "${KVM:-}" != yes ] || above_kvm PUNCTUAL TIMEOUT_S RESTART_LIMIT_S QEMU_SUITE CLOUD_HYPERVISOR
    in_namespaces --net --mount
fi

ip link set lo up
if [ -n "${QEMU_SUITE:-}" ]; then fetch_qemu "$QEMU_SUITE"; fi

is_there() { ip link show "$1" >/dev/null 2>&1; }
is_promiscuous() { grep -q 'promiscuity 1' <<<"$(ip -details link show "$1")"; }

# Frames a second from the veth pair c to d, by interface uplinks of the switch.
measure_interfaces() {
    local switch folder=$scratch/interfaces
    rm -rf "$folder"
    mkdir "$folder"
    "$punctual" switch labs/switch/host.toml --sockets "$folder" --json \
        --uplink interface:veth-c --uplink interface:veth-d >"$folder/counted" 2>"$folder/told" &
    switch=$!
    wait_for_process $switch "$folder/told" is_promiscuous veth-d || return 1
    # The switch learns where the receiver is from what it sends: to everybody, from 02:00:00:00:00:03.
    python3 -c 'if True:
        import socket
        far = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        far.bind(("far-d", 0))
        far.send(bytes.fromhex("ffffffffffff" "020000000003" "88b5") + bytes(50))'
    sleep 0.2
    echo "switch, veth  $("$lab/frames" packet far-c far-d 02:00:00:00:00:03 2) packets/s"
    kill -INT "$switch"
    wait "$switch"
    python3 -c 'if True:
        import json, sys
        for port in json.load(sys.stdin)["ports"]:
            if port["name"].startswith("interface"):
                print(port["name"], "sent", port["sent"], "drops", port["drops"])' <"$folder/counted" >&2
}

# The bridge of the namespace, with two TAPs and two pairs of veth, in turn with the switch.
measure_host() {
    local end round
    ip link add bridge0 type bridge || skip "the kernel has no bridge"
    ip link set bridge0 up
    for end in a b; do
        ip tuntap add "tap-$end" mode tap
        ip link add "veth-$end" type veth peer name "far-$end"
        ip link set "tap-$end" master bridge0 up
        ip link set "veth-$end" master bridge0 up
        ip link set "far-$end" up
    done
    for end in c d; do
        ip link add "veth-$end" type veth peer name "far-$end"
        ip link set "veth-$end" up
        ip link set "far-$end" up
    done
    # Nobody answers from these addresses, so the bridge is told where they are.
    bridge fdb add 02:00:00:00:00:02 dev tap-b master static
    bridge fdb add 02:00:00:00:00:03 dev veth-b master static
    for ((round = 0; round < ${1:-4}; round++)); do
        echo "bridge, TAP  $("$lab/frames" tap tap-a tap-b 02:00:00:00:00:02 2) packets/s"
        echo "bridge, veth  $("$lab/frames" packet far-a far-b 02:00:00:00:00:03 2) packets/s"
        measure_interfaces
        "$measure" throughput
    done | tee >(cat >&2) | python3 labs/switch/host-table.py
}
# guest NAME NUMBER MODE: starts one, whose process is $!, on $network; its console is $scratch/NAME.
network=switch
processor=(-accel "tcg,thread=multi" -cpu max)
# Debian 12's QEMU crashes when a translated guest masks messages of a vhost-user device.
interrupts=,vectors=0
if [ "${KVM:-}" = yes ]; then processor=(-accel kvm -cpu host) interrupts=; fi
guest() {
    local mac card line
    mac=52:54:00:10:00:0$2
    line="console=ttyS0 panic=-1 quiet tsc=reliable lab=$3 number=$2"
    if [ -n "${CLOUD_HYPERVISOR:-}" ] && [ "$network" = switch ]; then
        # Its filters of system calls are for another C library than Debian's.
        timeout "${TIMEOUT_S:-300}" "$CLOUD_HYPERVISOR" --seccomp false \
            --cpus boot=1 --memory size=512M,shared=on \
            --kernel "$lab"/kernel/boot/vmlinuz-* --initramfs "$lab/initrd" --cmdline "$line" \
            --serial tty --console off --net "vhost_user=true,socket=$scratch/$1.sock,mac=$mac" \
            </dev/null >"$scratch/$1" 2>"$scratch/$1.qemu" &
        return
    fi
    case $network in
        switch)
            # shellcheck disable=SC2054  # The commas are for QEMU.
            card=(-chardev "socket,id=net0,path=$scratch/$1.sock,reconnect=1"
                -netdev vhost-user,id=net0,chardev=net0) ;;
        bridge) card=(-netdev "tap,id=net0,ifname=tap-$1,script=no,downscript=no,vhost=off") ;;
        vhost-net) card=(-netdev "tap,id=net0,ifname=tap-$1,script=no,downscript=no,vhost=on") ;;
    esac
    timeout "${TIMEOUT_S:-300}" "${qemu[@]}" "${processor[@]}" -smp 1 -m 512 \
        -nodefaults -no-reboot -nographic -serial stdio -monitor none -machine memory-backend=memory \
        -object memory-backend-memfd,id=memory,size=512M,share=on \
        "${card[@]}" \
        -device "virtio-net-pci,netdev=net0,mac=$mac$interrupts,romfile=" \
        -kernel "$lab"/kernel/boot/vmlinuz-* -initrd "$lab/initrd" \
        -append "$line" </dev/null >"$scratch/$1" 2>"$scratch/$1.qemu" &
}
# Two guests on the network $network: what one of them measures.
measure_round() {
    local asking started=()
    rm -f "$scratch"/{a,b}
    if [ "$network" = switch ]; then
        "$punctual" switch labs/switch/host.toml --sockets "$scratch" >/dev/null 2>"$scratch/told" &
        started+=($!)
        wait_for_process $! "$scratch/told" test -S "$scratch/b.sock"
    fi
    guest b 2 serve
    started+=($!)
    guest a 1 measure
    asking=$!
    wait "$asking" || true
    kill -INT "${started[@]}" 2>/dev/null || true
    wait "${started[@]}" || true
    grep -q '^LAB done' "$scratch/a" || { tail -n 20 "$scratch"/{a,a.qemu} >&2; return 1; }
    said a 'ping said' | sed "s/^/$network ping /"
    said a 'udp-small said' | sed "s/^/$network udp /"
}

measure_guests() {
    local round end
    ip link add bridge0 type bridge || skip "the kernel has no bridge"
    ip link set bridge0 up
    for end in a b; do
        ip tuntap add "tap-$end" mode tap
        ip link set "tap-$end" master bridge0 up
    done
    for ((round = 0; round < ${1:-2}; round++)); do
        for network in switch bridge ${KVM:+vhost-net}; do
            # A guest of a translated KVM sometimes ends while it boots ("KVM: entry failed").
            measure_round || measure_round || measure_round
        done
    done | python3 labs/switch/guests-table.py
}

# A domain of libvirt and a VM of QEMU.
through_libvirt() {
    start_libvirt
    "$punctual" switch labs/switch/vlan.toml --sockets "$scratch" --check \
        --json --libvirt >"$scratch/counted" 2>"$scratch/told" &
    switch=$!
    wait_for_process $switch "$scratch/told" test -S "$scratch/b.sock" -a -s "$scratch/told" || return 1
    guest b 2 answer
    define a "$scratch/told" ping 1 "$scratch/a" || { cat "$scratch/libvirtd"; return 1; }
    virsh -c qemu:///system list
    for _ in $(seq "${TIMEOUT_S:-300}"); do
        ! grep -q '^LAB done' "$scratch/a" || break
        sleep 1
    done
    kill -INT "$switch"
    wait "$switch" || { cat "$scratch/told"; return 1; }
    echo "libvirt $(libvirtd --version | sed 's/.* //'); $("${qemu[@]}" --version | sed -n 1p)"
    said a 'ping said' | grep -E 'packet loss|rtt' || { tail -n 20 "$scratch"/{a,b,told}; return 1; }
    grep -q ', 0% packet loss' <<<"$(said a 'ping said')"
}
said() { tr -d '\r' <"$scratch/$1" | sed -n "s/^LAB $2 \?//p"; }

frames() { in_root usr/bin/tcpdump -Z root -nn -r "$scratch/frames.pcap" "$@" 2>"$scratch/complaints"; }

programs() {
    local switch asking status=0 vmm
    "$punctual" switch labs/switch/host.toml --sockets "$scratch" --check --json --uplink tap:lab0 \
        --uplink "capture:$scratch/frames.pcap" >"$scratch/counted" 2>"$scratch/told" &
    switch=$!
    wait_for_process $switch "$scratch/told" is_there lab0
    wait_for_process $switch "$scratch/told" test -S "$scratch/b.sock"
    ip address add 10.78.0.254/24 dev lab0
    in_root usr/bin/iperf3 -s >/dev/null &
    guest b 2 serve
    guest a 1 ask
    asking=$!
    wait "$asking" || true
    if ! grep -q '^LAB done' "$scratch/a"; then
        tail -n 20 "$scratch/a" "$scratch/b" "$scratch"/*.qemu "$scratch/told"
        exit 1
    fi
    kill -INT "$switch"
    # Exit code 3 says that an invariant of the switch broke.
    wait "$switch" || { cat "$scratch/told"; status=1; }
    vmm=("${qemu[@]}")
    [ -z "${CLOUD_HYPERVISOR:-}" ] || vmm=("$CLOUD_HYPERVISOR")
    echo "guests: Linux $(said a kernel | sed -n 1p), unmodified; $("${vmm[@]}" --version | sed -n 1p)"
    frames >"$scratch/all" || status=1
    grep -v '^reading from file' "$scratch/complaints" && status=1
    echo "tcpdump: $(in_root usr/bin/tcpdump --version 2>&1 | sed -n 1p)"
    frames 'icmp[icmptype] = icmp-echo and ip dst 10.78.0.255' >"$scratch/broadcasts" || status=1
    python3 labs/switch/check.py "$scratch/a" "$scratch/counted" \
        "$(wc -l <"$scratch/all")" "$(wc -l <"$scratch/broadcasts")" || status=1
    said a 'kernel says' >"$scratch/complaints"
    said b 'kernel says' >>"$scratch/complaints"
    if [ -s "$scratch/complaints" ]; then
        cat "$scratch/complaints"
        status=1
    fi
    return "$status"
}

case $mode in
    programs) programs ;;
    libvirt) through_libvirt ;;
    restarts)
        TIMEOUT_S=${TIMEOUT_S:-7200}
        restarts "${2:-100}" "${3:-1}" || { tail -n 30 "$scratch"/{a,b,c}{,.qemu} "$scratch/told"; exit 1; }
        ;;
    measure-guests) measure_guests "${2:-2}" ;;
    measure-host) measure_host "${2:-4}" ;;
    measure-ovs) measure_ovs "${2:-4}" ;;
esac
