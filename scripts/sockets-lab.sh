#!/usr/bin/env bash
# Unmodified programs in a stock Debian 12 guest, under stock QEMU, on sockets of the host.
#
# usage: scripts/sockets-lab.sh [programs|semantics|outlive|measure [COUNT]]
#   programs   (the default) starts servers in the guest, asks them from the host, and kills the VM
#   semantics  compares what a program sees of its sockets with the guest's own network stack
#   outlive    ends the server: what a program in the guest sees, and that new sockets are the guest's own
#   measure    round trips of 64 bytes, in turn through the module and through virtio-net with TAP
# exit: 0 when everything ran; 1 when something did not; 77 skipped: something is missing, which it says.
#
# Kernel, headers and programs are Debian packages, unpacked and never installed. All sockets are in a network
# namespace of this script's own. The processor of the VM is translated: its times are no times of KVM.
# environment: PUNCTUAL (the program; by default it is built), POLL (0us: how long the server polls before it
#   sleeps), PRIORITY (none: of the server under SCHED_FIFO), GAP_US (1000, between questions),
#   MODULE_OPTIONS (of the module in the guest), VCPUS (2), TIMEOUT_S (300)
set -euo pipefail
cd "$(dirname "$0")/.."
mode=${1:-programs}
case $mode in
    programs | semantics | outlive | measure) ;;
    *) sed -n '2,18s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
lab=$PWD/target/lab/sockets
# shellcheck source=scripts/debian-lab.sh
. scripts/debian-lab.sh
packages=(busybox-static python3-minimal libpython3-stdlib memcached iperf3 redis-server nginx-light
    prometheus-node-exporter)

# Kernel, programs, and what a module is built with.
fetch_all() {
    fetch "${packages[@]}" || return 1
    fetch_kernel "linux-headers-$version" "linux-headers-${version%-cloud-amd64}-common" linux-kbuild-6.1 \
        linux-compiler-gcc-12-x86 || return 1
    # Debian's headers name the place where they would be installed.
    sed -i "s|^include /usr/src|include $lab/kernel/usr/src|" \
        "$lab/kernel/usr/src/linux-headers-$version/Makefile"
    echo "$version" >"$lab/version"
}

# The guest's files: Debian's programs, the module, and what it runs.
pack() {
    local version kernel
    version=$(cat "$lab/version")
    rm -rf "$lab/module"
    cp -r guest-module "$lab/module"
    kernel=$lab/kernel/usr/src/linux-headers-$version
    make -C "$lab/module" "KERNEL=$kernel" >"$lab/module.log" 2>&1 || {
        cat "$lab/module.log"
        return 1
    }
    guest_files scripts/sockets-lab/init
    cp "$lab/module/punctual_sockets.ko" "$lab/guest/modules/"
    cp scripts/sockets-lab/{semantics.py,outlive.py,udp-echo.py,tcp-echo.py,nginx.conf} "$lab/guest/lab/"
    cc -O2 -static -o "$lab/round-trips" scripts/sockets-lab/round-trips.c -lm
    cp "$lab/round-trips" "$lab/guest/lab/host-echo"
    cp "$lab/round-trips" "$lab/guest/lab/own-echo"
    sed -i "s/commands=\\\$commands/& ${MODULE_OPTIONS:-}/" "$lab/guest/init"
    pack_guest
}

if [ "${SOCKETS_LAB_INSIDE:-}" != yes ]; then
    for tool in qemu-system-x86_64 apt-get dpkg cpio make cc gcc-12 python3 modinfo ip unshare cargo; do
        command -v "$tool" >/dev/null || skip "$tool is missing"
    done
    [ "$(id -u)" = 0 ] || skip "root is needed, for a network namespace with a TAP interface"
    [ -c /dev/net/tun ] || skip "/dev/net/tun is missing"
    mkdir -p "$lab"
    [ -s "$lab/version" ] || fetch_all || skip "Debian's packages cannot be had"
    [ -n "${PUNCTUAL:-}" ] || cargo build --quiet --locked --release -p punctual
    pack
    SOCKETS_LAB_INSIDE=yes exec unshare --net "$0" "$@"
fi

# From here on in the namespace.
ip link set lo up
ip tuntap add tap0 mode tap
ip address add 10.77.0.1/24 dev tap0
ip link set tap0 up
scratch=$(mktemp -d)
started=()
finish() {
    for process in "${started[@]}"; do kill "$process" 2>/dev/null || true; done
    wait
    rm -rf "$scratch"
}
trap finish EXIT
cat >"$scratch/host.toml" <<TOML
[machine]
processors = 1
[pool.all]
policy = "rtds"
[domain.vm]
[domain.vm.sockets]
allow = [
    "bind udp 127.0.0.1:0-65535", "bind tcp 127.0.0.1:0-65535",
    "connect udp 127.0.0.1:0-65535", "connect tcp 127.0.0.1:0-65535",
]
poll = "${POLL:-0us}"
${PRIORITY:+priority = $PRIORITY}
[domain.vm.task.t]
period = "10ms"
cost = "1ms"
TOML
"${PUNCTUAL:-target/release/punctual}" sockets "$scratch/host.toml" --directory "$scratch" --json \
    >"$scratch/counted" 2>"$scratch/told" &
server=$!
started+=("$server")
while [ ! -S "$scratch/vm.sock" ]; do sleep 0.1; done
mkfifo "$scratch/input"
timeout "${TIMEOUT_S:-300}" qemu-system-x86_64 -accel tcg,thread=multi -smp "${VCPUS:-2}" -m 768 -cpu max \
    -nodefaults -no-reboot -nographic -serial stdio -monitor none \
    -chardev "socket,id=sockets0,path=$scratch/vm.sock" -device ivshmem-doorbell,chardev=sockets0,vectors=1 \
    -netdev tap,id=net0,ifname=tap0,script=no,downscript=no -device virtio-net-pci,netdev=net0,romfile= \
    -kernel "$lab"/kernel/boot/vmlinuz-* -initrd "$lab/initrd" \
    -append "console=ttyS0 panic=-1 quiet tsc=reliable lab=$mode" <"$scratch/input" >"$scratch/console" \
    2>"$scratch/qemu" &
vm=$!
started+=("$vm")
exec 7>"$scratch/input"

said() { tr -d '\r' <"$scratch/console" | sed -n "s/^LAB $1 \?//p"; }
# Waits until the guest says something.
wait_for() {
    until grep -q "^LAB $1" "$scratch/console"; do
        kill -0 "$vm" 2>/dev/null || {
            tail -n 20 "$scratch/console" "$scratch/qemu" "$scratch/told"
            exit 1
        }
        sleep 0.2
    done
}
status=0
wait_for kernel
echo "guest: Linux $(said kernel | head -1), unmodified; $(qemu-system-x86_64 --version | head -1)"
case $mode in
    programs)
        wait_for ready
        root=$lab/root
        libraries=$root/usr/lib/x86_64-linux-gnu:$root/lib/x86_64-linux-gnu
        iperf=("$root/lib64/ld-linux-x86-64.so.2" --library-path "$libraries" "$root/usr/bin/iperf3")
        mkfifo "$scratch/killed"
        python3 scripts/sockets-lab/clients.py "${iperf[@]}" <"$scratch/killed" >"$scratch/table" &
        clients=$!
        exec 8>"$scratch/killed"
        until grep -q '^holding' "$scratch/table" || ! kill -0 "$clients" 2>/dev/null; do sleep 0.2; done
        kill -KILL "$(pgrep -P "$vm")"
        # Without the shell's own word on it.
        wait "$vm" 2>/dev/null || true
        echo >&8
        wait "$clients" || status=1
        cat "$scratch/table"
        ;;
    semantics)
        wait_for "done"
        diff <(said own) <(said host) >"$scratch/differences" || status=1
        diff <(said own) <(said again) >>"$scratch/differences" || status=1
        echo "$(said host | wc -l) checks on the host's sockets, $(said own | wc -l) on the guest's own," \
            "$(said again | wc -l) after the module was unloaded and loaded again"
        if [ "$status" = 0 ]; then echo "no difference"; else cat "$scratch/differences"; fi
        said counted
        ;;
    outlive)
        wait_for ready
        kill -INT "$server"
        wait_for "done"
        said saw
        expected=$'ECONNRESET\nECONNRESET\nECONNRESET\nown\nthe module unloaded'
        [ "$(said saw)" = "$expected" ] || status=1
        ;;
    measure)
        wait_for ready
        "$lab/round-trips" ask "${2:-1000}" "${GAP_US:-1000}" sockets-udp:udp:127.0.0.1:7000 \
            virtio-udp:udp:10.77.0.2:7000 sockets-tcp:tcp:127.0.0.1:7000 virtio-tcp:tcp:10.77.0.2:7000
        echo >&7
        wait_for "done"
        said counted
        ;;
esac
said 'kernel says' >"$scratch/complaints"
if [ -s "$scratch/complaints" ]; then
    cat "$scratch/complaints"
    status=1
fi
kill -INT "$server" 2>/dev/null || true
wait "$server" || status=1
python3 -c "
import json, sys
counts = json.load(open(sys.argv[1]))['domains'][0]
print('server: ' + ', '.join(f'{name} {counts[name]}' for name in counts if name not in ('name', 'socket')))
" "$scratch/counted"
exit "$status"
