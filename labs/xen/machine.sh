# What the scripts with a real Xen share: packages, builds, booting. Sourced in the project's folder.
# shellcheck shell=bash
#
# prepare BUILD...  fetches packages, builds the policies, each BUILD of Xen, and domain 0: `release`, `debug`
#                   with assertions, `count` counts what a scheduler takes (count.py), and `poll` is for
#                   several processors (see `several`). All of them have Punctual's scheduler and Xen's own:
#                   $own is the option without which Punctual's stands for RTDS
# prepare_machine BUILD...  the same without $punctual, the program
# one_processor     the machines that follow have one processor, as those do for which nothing is said
# several N         the machines that follow have N processors, which execute in turn
# boot BUILD NAME OPTIONS JOB [FILE...]
#                   boots it in QEMU with OPTIONS of Xen. Domain 0 runs the shell script JOB beside copies of
#                   the FILEs, with functions of dom0/init; what it prints is in $lab/NAME.log, what it sends
#                   in $lab/NAME.out. $machine, $memory and $dom0 are other options of QEMU and Xen,
#                   and $vmlinux is another kernel of domain 0.
# in_guests BUILD NAME HOST WORDS POLICY...
#                   runs the host file HOST in guests of Xen under each policy, in one boot; `own-rtds` and
#                   `own-credit` are Xen's own schedulers, with a boot each. WORDS are other options of
#                   `punctual xen run`. Results are $lab/NAME-POLICY.json; 1 if one is missing, which is said
# $XEN_VERSION is the Xen: 4.17 (Debian 12's, the default) or 4.20 (Debian 13's). Its tools come with it, and
# everything else is this machine's Debian 12: compiler, kernel of all domains, busybox.
parts=$PWD/labs/xen
xen_version=${XEN_VERSION:-4.17}
lab=$PWD/target/xen-lab
[ "$xen_version" = 4.17 ] || lab+=-$xen_version

# One instruction takes 4 ns of the machine's time, and one processor runs at a time: the same every time.
counted=(-accel "tcg,thread=single" -icount "shift=2,sleep=off,align=off" -seed 1)
# shellcheck disable=SC2034 # for who boots Xen's own schedulers
own="sched_punctual=off sched"

# QEMU, counting, gives the time until the machine's next timer to the processors in turn, in equal parts;
# since 8.1, so Debian 13's is taken. An interrupt ends the turns, and then those behind have less: Xen uses N
# of 8 processors, whose parts are so small that it makes little difference. A network filter has a timer of
# its own, which makes them shorter than what a guest measures of its processor's speed. A processor that
# halts leaves its time to the others, so that they would be faster while it idles: the build `poll` does not
# halt.
# shellcheck disable=SC2034 # for boot
several() {
    machine=("${counted[@]}" -smp 8 -object "filter-buffer,id=turns,netdev=net,interval=200")
    processors=maxcpus=$1
    mapfile -t qemu < <(
        lab=$PWD/target/qemu
        mkdir -p "$lab"
        # shellcheck source=labs/debian.sh
        . labs/debian.sh
        fetch_qemu trixie >&2 && printf '%s\n' "${qemu[@]}"
    )
    [ ${#qemu[@]} -gt 0 ] || skip "QEMU of Debian 13 cannot be had"
}

# shellcheck disable=SC2034 # for boot
one_processor() {
    machine=("${counted[@]}" -smp 1)
    processors=
    qemu=(qemu-system-x86_64)
}
one_processor

dom0="dom0_mem=512M,max:512M dom0_max_vcpus=1"
memory=1536

# apt_of SUITE: $flags are those for a state of apt's own, with Debian's packages of SUITE.
apt_of() {
    local apt=$lab/apt-$1
    mkdir -p "$apt"/{etc,state/lists/partial,cache/archives/partial}
    sed "s/^Types: .*/Types: deb deb-src/; /^Suites:/s/bookworm/$1/g" \
        /etc/apt/sources.list.d/debian.sources > "$apt/etc/all.sources" ||
        skip "no list of Debian's packages is here"
    flags=(-qq -oDir::Etc::sourcelist=/dev/null -oDir::Etc::sourceparts="$apt/etc"
        -oDir::State::lists="$apt/state/lists" -oDir::Cache="$apt/cache" -oAPT::Sandbox::User=root)
    apt-get "${flags[@]}" update || skip "no package can be had"
}

# fetch_source: Xen's source into $lab/source.
fetch_source() {
    local version apt=$lab/source-package
    mkdir -p "$apt"
    # The newest version may be listed and missing.
    for version in $(apt-cache "${flags[@]}" showsrc xen |
        sed -n "s/^Version: \($xen_version.*\)/\1/p" | sort -Vru); do
        (cd "$apt" && apt-get "${flags[@]}" source --download-only "xen=$version") && break
    done
    ls "$apt"/xen_*.dsc > /dev/null 2>&1 || skip "the source of Xen $xen_version cannot be had"
    dpkg-source -x "$apt"/xen_*.dsc "$lab/source" > /dev/null
}

# Downloads packages into $lab/packages and unpacks them into $lab/root.
fetch() {
    local flags kernel package more=()
    mkdir -p "$lab/packages" "$lab/root"
    apt_of bookworm
    kernel=$(apt-cache "${flags[@]}" depends linux-image-amd64 | awk '/Depends: linux-image/ { print $2 }')
    (cd "$lab/packages" && apt-get "${flags[@]}" download "$kernel" bison flex m4)
    if [ "$xen_version" != 4.17 ]; then
        more=(libc6)
        apt_of trixie
    fi
    (cd "$lab/packages" && apt-get "${flags[@]}" download "xen-utils-$xen_version" "${more[@]}" \
        xen-utils-common xenstore-utils libxencall1 libxendevicemodel1 libxenevtchn1 libxenforeignmemory1 \
        libxengnttab1 libxenhypfs1 "libxenmisc$xen_version" libxenstore4 libxentoolcore1 libxentoollog1 \
        libyajl2 libfdt1 libnl-3-200 libnl-route-3-200)
    for package in "$lab"/packages/*.deb; do dpkg -x "$package" "$lab/root"; done
    [ -d "$lab/source" ] || fetch_source
    touch "$lab/fetched"
}

# Builds Xen into $lab/$1.
build() {
    local tree=$lab/$1 debug=n
    [ "$1" != debug ] || debug=y
    if [ ! -d "$tree" ]; then
        # What is there already is built from that on.
        cp -a "$(if [ "$1" != debug ] && [ -e "$lab/release/xen/xen" ]; then echo "$lab/release"
            else echo "$lab/source"; fi)" "$tree"
        # New cpupools get the first scheduler with RTDS's number.
        grep -q '^obj-y += sched_punctual' "$tree/xen/common/sched/Makefile" ||
            sed -i '1i obj-y += sched_punctual.o punctual-policies.o' "$tree/xen/common/sched/Makefile"
    fi
    cp xen/sched_punctual.c crates/punctual-xen/include/*.h "$policies" "$tree/xen/common/sched/"
    case $1 in
        count) python3 "$parts/count.py" "$tree/xen/common/sched" ;;
        poll) sed -i '/cf_check default_idle/,/^}/s/safe_halt();/local_irq_enable();/' \
            "$tree/xen/arch/x86/domain.c" ;;
    esac
    (
        cd "$tree/xen"
        export PATH=$lab/root/usr/bin:$PATH BISON_PKGDATADIR=$lab/root/usr/share/bison
        export M4=$lab/root/usr/bin/m4 PYTHON=/usr/bin/python3 XEN_CONFIG_EXPERT=y
        # Once: a new configuration makes everything build again.
        if [ ! -e "$tree/configured" ]; then
            make defconfig
            printf 'CONFIG_%s\n' EXPERT=y UNSUPPORTED=y SCHED_RTDS=y "DEBUG=$debug" >> .config
            make olddefconfig
            touch "$tree/configured"
        fi
        make -j"$(nproc)"
    ) > "$lab/$1.build" 2>&1 || { tail -30 "$lab/$1.build"; echo "xen: it cannot be built" >&2; exit 1; }
}

# result NAME POLICY: the results under that policy of host.sh in the boot NAME.
result() {
    python3 - "$lab/$1.log" "$2" <<'END'
import json, sys
for line in open(sys.argv[1], errors="replace"):
    if line.startswith("HOST-RESULT "):
        results = json.loads(line.removeprefix("HOST-RESULT "))
        if results["pools"][0]["policy"] == sys.argv[2]:
            sys.exit(print(json.dumps(results)))
sys.exit(1)
END
}

prepare() {
    prepare_machine "$@"
    cargo build --quiet --locked --release -p punctual
    # shellcheck disable=SC2034 # for who sources this
    punctual=$(realpath "${CARGO_TARGET_DIR:-target}/release/punctual")
}

prepare_machine() {
    local tool name built
    # shellcheck source=/dev/null
    . /etc/os-release
    [ "${VERSION_ID:-}" = 12 ] || skip "Debian 12 is needed"
    for tool in apt-get dpkg-source qemu-system-x86_64 busybox cc make python3 cpio objcopy; do
        command -v "$tool" >/dev/null || skip "$tool is missing"
    done
    # The domains have no libraries for it: their programs would end with 127.
    [[ $(ldd "$(command -v busybox)" 2>/dev/null) != *'=>'* ]] ||
        skip "busybox is linked dynamically; install the package busybox-static"
    mkdir -p "$lab"
    # shellcheck disable=SC2119 # its own $1 is another function's
    [ -e "$lab/fetched" ] || { echo "Fetching packages" >&2; fetch; }
    echo "Building the policies, Xen and the domains" >&2
    built=$(scripts/check-xen-lib.sh) || exit $?
    policies=$(realpath "$(tail -1 <<< "$built")")
    for name; do build "$name"; done
    "$parts/domains.sh" "$lab" "$xen_version"
}

boot() {
    local build=$1 name=$2 options=$3 job
    job=$(mktemp -d)
    mkdir "$job/job"
    cp "$4" "$job/job/run"
    [ $# -lt 5 ] || cp "${@:5}" "$job/job/"
    # Domain 0 has it in memory, twice while it starts.
    [ ! -e "$job/job/punctual" ] || strip "$job/job/punctual"
    (cd "$job" && find job | cpio --create --format=newc --quiet > "$lab/$name.cpio")
    # Two archives are one.
    cat "$lab/dom0.cpio" "$lab/$name.cpio" > "$lab/$name.initrd"
    rm -rf "$job" "$lab/$name.cpio"
    # The first limit is processor time of QEMU: neither a busy host nor one that stops it for a while ends
    # it. The second limit is for a machine that hangs without using processor time.
    (
        ulimit -c 0 -t "${seconds_max:-600}"
        exec timeout --foreground $((${seconds_max:-600} * 10)) \
            "${qemu[@]}" -M pc -cpu qemu64 "${machine[@]}" \
            -rtc base=2026-01-01T00:00:00,clock=vm -m "$memory" -display none -vga none -nodefaults \
            -no-user-config -monitor none -serial "file:$lab/$name.log" -no-reboot \
            -chardev "file,id=out,path=$lab/$name.out" -device e1000,netdev=net \
            -netdev user,id=net,restrict=on,guestfwd=tcp:10.0.2.100:9-chardev:out \
            -kernel "$lab/$build/xen/xen" \
            -append "com1=115200,8n1 console=com1 $dom0 loglvl=info spec-ctrl=no \
xpti=no pcid=no smep=no smap=no watchdog=0 cpufreq=none no-real-mode $processors $options" \
            -initrd "${vmlinux:-$lab/vmlinux} console=hvc0 nokaslr mitigations=off quiet loglevel=4 audit=0,\
$lab/$name.initrd" < /dev/null > "$lab/$name.qemu" 2>&1
    ) || true
    rm "$lab/$name.initrd"
}

in_guests() {
    local build=$1 name=$2 host=$3 words=$4 policy ours=() status=0 work
    shift 4
    work=$(mktemp -d)
    cp "$host" "$work/host.toml"
    strip -o "$work/punctual" "$punctual"
    for policy; do
        case $policy in
            own-*) boot_host "$own=${policy#own-}" "$name-$policy" "$policy" ;;
            *) ours+=("$policy") ;;
        esac
    done
    [ ${#ours[@]} -eq 0 ] || boot_host "sched=punctual" "$name-ours" "${ours[@]}"
    rm -r "$work"
    return $status
}

# boot_host OPTIONS BOOT POLICY...: a boot of in_guests, whose variables it uses.
boot_host() {
    local options=$1 boot=$2 policy
    # shellcheck disable=SC2034 # for boot
    local seconds_max=$((300 + 600 * ($# - 2))) memory=2048
    shift 2
    for policy; do echo "xen-$policy host.toml $words --policy ${policy#own-}"; done > "$work/runs"
    boot "$build" "$boot" "$options" "$parts/dom0/host.sh" "$work/host.toml" "$work/runs" "$work/punctual"
    for policy; do
        result "$boot" "${policy#own-}" > "$lab/$name-$policy.json" || {
            echo "$name under $policy: no result; see $lab/$boot.log" >&2
            rm "$lab/$name-$policy.json"
            status=1
        }
    done
}
