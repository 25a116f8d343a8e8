#!/usr/bin/env bash
# Unmodified programs in a stock Debian guest, under stock QEMU, on sockets of the host.
#
# usage: labs/lab sockets MODE [COUNT]
#   programs   starts servers in the guest, asks them from the host, and kills the VM
#   semantics  compares what a program sees of its sockets with the guest's own network stack; COUNT (10000)
#              connections in a row are among it
#   outlive    ends the server: what a program in the guest sees, and that new sockets are the guest's own
#   fifo       how often the guest is interrupted while a program serves a request and others arrive, with
#              extended idle and with an interrupt for each event; a second processor serves short requests
#   preload    the same programs, one after the other, by the preloaded library instead of the module
#   selftests  tests of sockets from the kernel's source (tools/testing/selftests/net), on both stacks
#   measure    round trips of 64 bytes, COUNT (1000) in turn through the module and virtio-net with TAP
#
# Kernel, headers, compiler and programs are Debian packages, unpacked and never installed; DKMS builds the
# module in a root of them. All sockets are in a network namespace of this lab's own. The processor of the
# VM is translated: its times are not those of KVM. With KVM=yes all of it runs above a kernel that has KVM
# (the lab `kernel`), which is translated itself.
# environment: PUNCTUAL (the program; by default it is built), GUEST_SUITE (whose kernel the guest has:
#   bookworm, Linux 6.1; or forky, Linux 7), POLL (0us: how long the server polls before it sleeps),
#   PRIORITY (none: of the server under SCHED_FIFO), GAP_US (1000, between questions), PIN (yes: processor 1
#   for the guest in real time, 0 for all else; the server, QEMU and who asks are FIFO there, in this order),
#   LOAD (yes: receivers of other streams beside it), MODULE_OPTIONS (of the module in the guest), VCPUS (2),
#   ACCEL (of QEMU: tcg,thread=multi, or kvm with KVM=yes), TIMEOUT_S (300), KVM (yes: see above)
# shellcheck source=labs/lib.sh
. "$(dirname "$0")/../lib.sh"
suite=${GUEST_SUITE:-bookworm}
mode=${1:-}
count=${2:-$([ "$mode" = semantics ] && echo 10000 || echo 1000)}
case $suite:$mode in
    bookworm:* | forky:*) ;;&
    *:programs | *:semantics | *:outlive | *:fifo | *:preload | *:selftests | *:measure) ;;
    *) usage ;;
esac
lab=$PWD/target/lab/sockets
kernel=$lab/kernel-$suite
# shellcheck source=labs/debian.sh
. labs/debian.sh
packages=(busybox-static python3-minimal libpython3-stdlib memcached iperf3 redis-server nginx-light
    prometheus-node-exporter)

# Programs, kernel, and what a module is built with.
fetch_all() {
    [ -s "$lab/root/usr/bin/redis-server" ] || fetch "${packages[@]}" || return 1
    fetch_builder "$suite" "$lab/builder-$suite" && fetch_kernel "$suite" "$kernel"
}

# Tests of the kernel's source that are about plain sockets, with their arguments.
selftests=(socket reuseaddr_conflict reuseaddr_ports_exhausted reuseport_addr_any reuseport_dualstack
    sk_bind_sendto_listen sk_connect_zero_addr 'stress_reuseport_listen 3 8' 'bind_bhash 4430 ::1 127.0.0.1'
    'tcp_inq -4' 'tcp_inq -6' so_netns_cookie 'udpgso -4 -C' ipv6_flowlabel)

# Builds them; they are numbered from 1, for a name of a program has 15 characters at most.
build_selftests() {
    local from=linux-source-6.1/tools/testing/selftests archive number=0 test
    if [ ! -d "$lab/$from" ]; then
        use_suite bookworm
        (cd "$lab/debs" && rm -f linux-source* && apt-get "${apt_options[@]}" download linux-source-6.1)
        archive=$(echo "$lab"/debs/linux-source-6.1_*.deb)
        dpkg-deb --fsys-tarfile "$archive" | tar xO ./usr/src/linux-source-6.1.tar.xz | xz -dc |
            tar x -C "$lab" --wildcards "$from/*.h" "$from/net/*.c"
        rm "$archive"
    fi
    mkdir -p "$guest/lab/selftests"
    for test in "${selftests[@]}"; do
        number=$((number + 1))
        cc -O2 -static -w -I "$lab/$from" -o "$guest/lab/selftests/host-$number" \
            "$lab/$from/net/${test%% *}.c" -lpthread
        cp "$guest/lab/selftests/host-$number" "$guest/lab/selftests/own-$number"
        echo "$number $test" >>"$guest/lab/selftests/list"
    done
}

# Builds the module as DKMS does where it is installed.
build_module() {
    local builder=$lab/builder-$suite version source
    version=$(cat "$kernel/version")
    source=usr/src/punctual-sockets-$(sed -n 's/^PACKAGE_VERSION="\(.*\)"/\1/p' guest-module/dkms.conf)
    # DKMS keeps a module of the same version.
    rm -rf "${builder:?}/$source" "$builder"/var/lib/dkms/punctual-sockets \
        "$builder/lib/modules/$version"/updates/dkms/punctual_sockets.ko*
    cp -r guest-module "$builder/$source"
    in_builder "$builder" dkms install "/$source" -k "$version" >"$lab/module.log" 2>&1 || {
        cat "$lab/module.log" "$builder"/var/lib/dkms/punctual-sockets/*/build/make.log
        return 1
    }
    cp "$builder/lib/modules/$version"/updates/dkms/punctual_sockets.ko* "$lab/"
    rm -f "$guest/modules/punctual_sockets.ko"
    if [ -e "$lab/punctual_sockets.ko.xz" ]; then xz -df "$lab/punctual_sockets.ko.xz"; fi
    cp "$lab/punctual_sockets.ko" "$guest/modules/"
}

# The guest's files: Debian's programs, the module, and what it runs.
pack_all() {
    guest_files labs/sockets/init
    build_module
    cp labs/sockets/*.py labs/sockets/nginx.conf "$guest/lab/"
    cc -O2 -static -o "$lab/round-trips" labs/sockets/round-trips.c -lm
    cp "$lab/round-trips" "$guest/lab/host-echo"
    cp "$lab/round-trips" "$guest/lab/own-echo"
    make --quiet -C guest-module/preload BUILD="$lab"
    cp "$lab/punctual-preload.so" "$guest/lab/preload.so"
    [ "$mode" != selftests ] || build_selftests
    pack "$guest" >"$lab/initrd"
}

if [ "$inside" != yes ]; then
    need qemu-system-x86_64 apt-get dpkg cpio xz cc python3 modinfo ip unshare chroot cargo
    need_root
    mkdir -p "$lab"
    [ -s "$kernel/version" ] || fetch_all || skip "Debian's packages cannot be had"
    build_punctual
    pack_all
    [ "${KVM:-}" != yes ] ||
        above_kvm GUEST_SUITE PUNCTUAL POLL PRIORITY GAP_US MODULE_OPTIONS VCPUS TIMEOUT_S
    in_namespaces --net
fi

ip link set lo up
ip tuntap add tap0 mode tap
ip address add 10.77.0.1/24 dev tap0
ip link set tap0 up
cat >"$scratch/host.toml" <<TOML
[machine]
processors = 1
[pool.all]
policy = "rtds"
[domain.vm]
[domain.vm.sockets]
allow = [
    "bind udp 0.0.0.0/0:0-65535", "bind tcp 0.0.0.0/0:0-65535",
    "connect udp 0.0.0.0/0:0-65535", "connect tcp 0.0.0.0/0:0-65535",
    "bind udp [::]/0:0-65535", "bind tcp [::]/0:0-65535",
    "connect udp [::]/0:0-65535", "connect tcp [::]/0:0-65535",
]
poll = "${POLL:-0us}"
${PRIORITY:+priority = $PRIORITY}
[domain.vm.task.t]
period = "10ms"
cost = "1ms"
TOML
connects() { grep -qs 'QEMU connects' "$scratch/told" && [ -S "$scratch/vm.sock" ]; }
# Starts the server; the counts that are printed are those of the last one.
serve() {
    "$punctual" sockets "$scratch/host.toml" --directory "$scratch" --json >"$scratch/counted" \
        2>>"$scratch/told" &
    server=$!
    wait_for_process $server "$scratch/told" connects
}
serve
mkfifo "$scratch/input"
accel=${ACCEL:-tcg,thread=multi}
if [ "${KVM:-}" = yes ]; then accel=kvm; fi
options=${MODULE_OPTIONS:-}
timeout "${TIMEOUT_S:-300}" qemu-system-x86_64 -accel "$accel" -smp "${VCPUS:-2}" -m 768 -cpu max \
    -name vm,debug-threads=on -nodefaults -no-reboot -nographic -serial stdio -monitor none \
    -chardev "socket,id=sockets0,path=$scratch/vm.sock" \
    -device ivshmem-doorbell,chardev=sockets0,vectors=8 \
    -netdev tap,id=net0,ifname=tap0,script=no,downscript=no -device virtio-net-pci,netdev=net0,romfile= \
    -kernel "$kernel/vmlinuz" -initrd "$lab/initrd" \
    -append "console=ttyS0 panic=-1 quiet tsc=reliable lab=$mode count=$count options=${options// /,}" \
    <"$scratch/input" >"$scratch/console" 2>"$scratch/qemu" &
vm=$!
exec 7>"$scratch/input"

# The guest's processor has one of the machine's to itself; all else shares the other one, by priority.
pin() {
    local qemu task
    qemu=$(pgrep -P "$vm")
    taskset --all-tasks --cpu-list --pid 0 "$server" >/dev/null
    for task in /proc/"$qemu"/task/*; do
        if grep -q '^CPU' "$task/comm"; then
            taskset --cpu-list --pid 1 "${task##*/}" >/dev/null
            chrt --fifo --pid 10 "${task##*/}"
        else
            taskset --cpu-list --pid 0 "${task##*/}" >/dev/null
            chrt --fifo --pid 40 "${task##*/}"
        fi
    done
}
# Receivers beside it: two streams over the namespace's loopback for so long; the last line is their sum.
beside() {
    exec taskset --cpu-list 0 python3 labs/sockets/receivers.py "$1"
}

# What a program sees with the library and without it, on the host itself: the server's memory is shown to it
# as a device. Children and descriptors that are passed to others are the library's limits.
library_checks() {
    local memory=$scratch/memory address skipped=(a_child_has_the_same_sockets a_descriptor_is_passed)
    mkdir "$memory"
    sed 's/^priority.*//' "$scratch/host.toml" >"$memory/host.toml"
    "$punctual" sockets "$memory/host.toml" --directory "$memory" >/dev/null 2>&1 &
    while [ ! -S "$memory/vm.sock" ]; do sleep 0.1; done
    python3 labs/sockets/device.py "$memory/vm.sock" "$memory/device" >"$memory/there" &
    until grep -q there "$memory/there"; do sleep 0.1; done
    for address in 127.0.0.1 ::1; do
        python3 labs/sockets/semantics.py 8000 "$address" "${skipped[@]}" >>"$memory/own"
        LD_PRELOAD=$lab/punctual-preload.so PUNCTUAL_SOCKETS_DEVICE=$memory/device \
            python3 labs/sockets/semantics.py 8000 "$address" "${skipped[@]}" >>"$memory/library"
    done
    echo "$(wc -l <"$memory/library") checks by the library:"
    diff "$memory/own" "$memory/library" && echo "no difference"
}

said() { tr -d '\r' <"$scratch/console" | sed -n "s/^LAB $1 \?//p"; }
# Waits until the guest says something.
wait_for() {
    wait_for_process "$vm" "$scratch/console" grep -q "^LAB $1" "$scratch/console" || {
        tail -n 20 "$scratch"/{qemu,told} >&2
        exit 1
    }
}
status=0
wait_for kernel
echo "guest: Linux $(said kernel | sed -n 1p), unmodified; $(qemu-system-x86_64 --version | sed -n 1p)"
case $mode in
    programs)
        wait_for ready
        root=$lab/root
        libraries=$root/usr/lib/x86_64-linux-gnu:$root/lib/x86_64-linux-gnu
        iperf=("$root/lib64/ld-linux-x86-64.so.2" --library-path "$libraries" "$root/usr/bin/iperf3")
        mkfifo "$scratch/killed"
        python3 labs/sockets/clients.py "${iperf[@]}" <"$scratch/killed" >"$scratch/table" &
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
        wait_for checked
        # The programs have ended, the VM has not: nothing of theirs may be left, 2 s later.
        for _ in $(seq 20); do
            left=$(awk '$4 == "08"' /proc/net/tcp /proc/net/tcp6 | wc -l)
            [ "$left" != 0 ] || break
            sleep 0.1
        done
        echo "connections in CLOSE-WAIT after the programs ended: $left"
        [ "$left" = 0 ] || status=1
        echo >&7
        wait_for "done"
        diff <(said own) <(said host) >"$scratch/differences" || status=1
        diff <(said own) <(said again) >>"$scratch/differences" || status=1
        diff <(said own) <(said hotplug) >>"$scratch/differences" || status=1
        echo "$(said host | wc -l) checks on the host's sockets, $(said own | wc -l) on the guest's own," \
            "$(said again | wc -l) after the module was unloaded and loaded again," \
            "$(said hotplug | wc -l) with extended idle while a processor came and went"
        if [ "$status" = 0 ]; then echo "no difference"; else cat "$scratch/differences"; fi
        said counted
        ;;
    outlive)
        wait_for ready
        # The first server ends as it should, the second one is killed, the third one is the next.
        kill -INT "$server"
        wait_for without
        wait "$server" || status=1
        serve
        until grep -q 'reconnected' "$scratch/told"; do sleep 0.1; done
        kill -KILL "$server"
        wait "$server" 2>/dev/null || true
        serve
        said_back=$(python3 -c "
import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
    client.settimeout(0.5)
    for _ in range(80):
        client.sendto(b'host', ('127.0.0.1', 7000))
        try:
            print(client.recv(10).decode())
            break
        except OSError:
            pass") || status=1
        echo "after two other servers: $said_back"
        wait_for "done"
        said saw
        expected=$'ECONNRESET\nECONNRESET\nECONNRESET\nown\nECONNRESET\nhost\nthe module unloaded'
        [ "$(said saw)" = "$expected" ] || status=1
        ;;
    fifo)
        for kind in idle each; do
            wait_for "ready $kind"
            python3 labs/sockets/fifo.py ask "$kind" "${VCPUS:-2}" | tee -a "$scratch/fifo"
            echo >&7
        done
        wait_for "done"
        # One that was on its way when the guest awoke by itself may come late.
        awk '/while they were/ { count[$1] = $6 }
            END { exit !(count["each:"] > 0 && count["idle:"] * 10 < count["each:"]) }' \
            "$scratch/fifo" || status=1
        ;;
    preload)
        for name in udp tcp memcached redis; do
            wait_for "ready $name"
            case $name in
                udp) server_name="Python, UDP echo" ;;
                tcp) server_name="Python asyncio, TCP echo" ;;
                *) server_name=$name ;;
            esac
            python3 labs/sockets/clients.py only "$server_name" || status=1
            echo >&7
        done
        wait_for "done"
        library_checks || status=1
        ;;
    selftests)
        wait_for "done"
        echo "test (exit on the guest's own stack, on the host's)"
        join -t= <(said own | sort) <(said host | sort) | sort -n | tr '=' ' '
        said output
        ;;
    measure)
        wait_for ready
        run=()
        if [ "${PIN:-}" = yes ]; then
            pin
            run=(taskset --cpu-list 0 chrt --fifo 30)
        fi
        paths=(sockets-udp:udp:127.0.0.1:7000 virtio-udp:udp:10.77.0.2:7000
            sockets-tcp:tcp:127.0.0.1:7000 virtio-tcp:tcp:10.77.0.2:7000)
        ask() { "${run[@]}" "$lab/round-trips" ask "$count" "${GAP_US:-1000}" "$@"; }
        if [ "${LOAD:-}" = yes ]; then
            beside 3600 >/dev/null &
            load=$!
            sleep 1
        fi
        ask "${paths[@]}"
        if [ "${LOAD:-}" = yes ]; then
            kill "$load"
            wait "$load" 2>/dev/null || true
            # What the receivers beside it get while questions go one way alone.
            for path in "${paths[@]:0:2}"; do
                beside 8 >"$scratch/receivers" &
                load=$!
                count=1000000 ask "$path" >/dev/null &
                asking=$!
                wait "$load"
                pkill -P "$asking" || kill "$asking"
                wait "$asking" 2>/dev/null || true
                echo "receivers beside ${path%%:*}: $(tail -1 "$scratch/receivers")"
            done
        fi
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
print('server: ' + ', '.join(f'{name} {counts[name]}' for name in counts if isinstance(counts[name], int)))
for each in counts['segments']:
    mean, deviation, p99 = (each[key] / 1000 for key in ('mean_ns', 'stddev_ns', 'p99_ns'))
    print('%-12s %6d %8.1f %8.1f %8.1f (mean, deviation, p99; us)' %
          (each['name'], each['count'], mean, deviation, p99))
" "$scratch/counted"
exit "$status"
