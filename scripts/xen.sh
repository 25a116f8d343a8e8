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
lab=$PWD/target/xen-lab
parts=$PWD/scripts/xen
xen_version=4.17

skip() {
    echo "xen: skipped: $1" >&2
    exit 77
}

# shellcheck source=/dev/null
. /etc/os-release
[ "${VERSION_ID:-}" = 12 ] || skip "Debian 12 is needed, whose Xen is $xen_version"
for tool in apt-get dpkg-source qemu-system-x86_64 busybox cc make python3 cpio objcopy; do
    command -v "$tool" >/dev/null || skip "$tool is missing"
done
mkdir -p "$lab"

# Downloads packages into $lab/packages, unpacks them into $lab/root, and Xen's source into $lab/source.
fetch() {
    local apt=$lab/apt kernel flags
    mkdir -p "$lab/packages" "$lab/root" "$apt"/{etc,state/lists/partial,cache/archives/partial}
    sed 's/^Types: .*/Types: deb deb-src/' /etc/apt/sources.list.d/debian.sources > "$apt/etc/all.sources" ||
        skip "no list of Debian's packages is here"
    flags=(-qq -oDir::Etc::sourcelist=/dev/null -oDir::Etc::sourceparts="$apt/etc"
        -oDir::State::lists="$apt/state/lists" -oDir::Cache="$apt/cache" -oAPT::Sandbox::User=root)
    apt-get "${flags[@]}" update || skip "no package can be had"
    kernel=$(apt-cache "${flags[@]}" depends linux-image-amd64 | awk '/Depends: linux-image/ { print $2 }')
    (cd "$lab/packages" && apt-get "${flags[@]}" download "$kernel" "xen-utils-$xen_version" \
        xen-utils-common xenstore-utils libxencall1 libxendevicemodel1 libxenevtchn1 libxenforeignmemory1 \
        libxengnttab1 libxenhypfs1 libxenmisc$xen_version libxenstore4 libxentoolcore1 libxentoollog1 \
        libyajl2 libfdt1 libnl-3-200 libnl-route-3-200 bison flex m4)
    for package in "$lab"/packages/*.deb; do dpkg -x "$package" "$lab/root"; done
    # The newest version may be listed and missing.
    local version
    for version in $(apt-cache "${flags[@]}" showsrc xen |
        sed -n "s/^Version: \($xen_version.*\)/\1/p" | sort -Vru); do
        (cd "$apt" && apt-get "${flags[@]}" source --download-only "xen=$version") && break
    done
    dpkg-source -x "$apt"/xen_*.dsc "$lab/source" > /dev/null
    touch "$lab/fetched"
}

# Builds Xen into $lab/$1: with our scheduler in place of RTDS, or as it is.
build() {
    local tree=$lab/$1
    if [ ! -d "$tree" ]; then
        cp -a "$lab/source" "$tree"
        echo "obj-\$(CONFIG_PUNCTUAL) += sched_punctual.o punctual-policies.o" \
            >> "$tree/xen/common/sched/Makefile"
    fi
    local rtds=y ours=n
    if [ "$1" = ours ]; then
        rtds=n ours=y
        cp xen/sched_punctual.c crates/punctual-xen/include/punctual.h "$tree/xen/common/sched/"
        cp "$policies" "$tree/xen/common/sched/"
    fi
    (
        cd "$tree/xen"
        export PATH=$lab/root/usr/bin:$PATH BISON_PKGDATADIR=$lab/root/usr/share/bison
        export M4=$lab/root/usr/bin/m4 PYTHON=/usr/bin/python3 XEN_CONFIG_EXPERT=y
        # Once: what is configured anew is built anew.
        if [ ! -e "$tree/configured" ]; then
            make defconfig
            printf 'CONFIG_%s\n' EXPERT=y UNSUPPORTED=y "SCHED_RTDS=$rtds" >> .config
            make olddefconfig
            touch "$tree/configured"
        fi
        make -j"$(nproc)" CONFIG_PUNCTUAL=$ours
    ) > "$lab/$1.log" 2>&1 || { tail -30 "$lab/$1.log"; echo "xen: it cannot be built" >&2; exit 1; }
}

# Boots $lab/$1 with Xen's options $2; what dom0 says is in $lab/$3.log.
boot() {
    timeout 600 qemu-system-x86_64 -M pc -cpu qemu64 -accel tcg,thread=single \
        -icount shift=2,sleep=off,align=off -rtc base=2026-01-01T00:00:00,clock=vm -seed 1 -m 1536 -smp 1 \
        -display none -vga none -nodefaults -no-user-config -monitor none -serial "file:$lab/$3.log" \
        -no-reboot -kernel "$lab/$1/xen/xen" -append "com1=115200,8n1 console=com1 dom0_mem=512M,max:512M \
dom0_max_vcpus=1 loglvl=info spec-ctrl=no xpti=no pcid=no smep=no smap=no watchdog=0 cpufreq=none \
no-real-mode $2" -initrd "$lab/vmlinux console=hvc0 nokaslr mitigations=off quiet loglevel=4 audit=0,\
$lab/dom0.cpio" < /dev/null > "$lab/$3.qemu" 2>&1 || true
}

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

[ -e "$lab/fetched" ] || { echo "Fetching packages"; fetch; }
echo "Building the policies, Xen and the domains"
cargo build --quiet --locked --release -p punctual
punctual=${CARGO_TARGET_DIR:-target}/release/punctual
built=$(scripts/check-xen-lib.sh) || exit $?
policies=$(realpath "$(tail -1 <<< "$built")")
[ $# -gt 0 ] || set -- deferrable periodic polling sporadic rtds sedf own
build ours
case " $* " in *" own "*) build xen ;; esac
chmod +x "$parts/domains.sh"
"$parts/domains.sh" "$lab"

status=0
printf '%-24s %-14s %-14s %-14s %s\n' "shares in %" "4/10, 3/10 ms" simulated "2/20, 8/10 ms" simulated
for choice; do
    name=${choice//[^a-z0-9]/-}
    case $choice in
        own) policy=rtds; boot xen "sched=rtds" "$name" ;;
        *) policy=$choice; boot ours "sched=punctual sched_punctual=$choice" "$name" ;;
    esac
    expected="$(simulated "$policy" 4ms 10ms 3ms 10ms) $(simulated "$policy" 2ms 20ms 8ms 10ms)"
    python3 "$parts/table.py" "$choice" "$lab/$name.log" "$expected" || status=1
done
exit $status
