# What the scripts with a real Xen share: packages, builds, booting. Sourced in the project's folder.
# shellcheck shell=bash
#
# prepare BUILD...  fetches packages, builds the policies, each BUILD of Xen, and domain 0:
#                   `own` has Xen's RTDS, `ours` our scheduler in its place, `debug` ours with assertions,
#                   `count-own` and `count-ours` count what their scheduler takes (count.py)
# boot BUILD NAME OPTIONS JOB [FILE...]
#                   boots it in QEMU with OPTIONS of Xen. Domain 0 runs the shell script JOB beside copies of
#                   the FILEs, with functions of dom0.sh; what it prints is in $lab/NAME.log, what it sends in
#                   $lab/NAME.out. $machine, $memory and $dom0 are other options of QEMU and Xen.
lab=$PWD/target/xen-lab
parts=$PWD/scripts/xen
xen_version=4.17

# One instruction takes 4 ns of the machine's time, and one processor runs at a time: the same every time.
counted=(-accel "tcg,thread=single" -icount "shift=2,sleep=off,align=off" -seed 1 -smp 1)
machine=("${counted[@]}")
dom0="dom0_mem=512M,max:512M dom0_max_vcpus=1"
memory=1536

skip() {
    echo "$(basename "$0" .sh): skipped: $1" >&2
    exit 77
}

# Downloads packages into $lab/packages, unpacks them into $lab/root, and Xen's source into $lab/source.
fetch() {
    local apt=$lab/apt kernel flags package version
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
    for version in $(apt-cache "${flags[@]}" showsrc xen |
        sed -n "s/^Version: \($xen_version.*\)/\1/p" | sort -Vru); do
        (cd "$apt" && apt-get "${flags[@]}" source --download-only "xen=$version") && break
    done
    dpkg-source -x "$apt"/xen_*.dsc "$lab/source" > /dev/null
    touch "$lab/fetched"
}

# Builds Xen into $lab/$1.
build() {
    local tree=$lab/$1 rtds=n ours=y debug=n
    case $1 in
        own | count-own) rtds=y ours=n ;;
        debug) debug=y ;;
    esac
    if [ ! -d "$tree" ]; then
        cp -a "$lab/source" "$tree"
        echo "obj-\$(CONFIG_PUNCTUAL) += sched_punctual.o punctual-policies.o" \
            >> "$tree/xen/common/sched/Makefile"
    fi
    if [ "$ours" = y ]; then
        cp xen/sched_punctual.c crates/punctual-xen/include/*.h "$policies" "$tree/xen/common/sched/"
    fi
    case $1 in count-*) python3 "$parts/count.py" "$tree/xen/common/sched" ;; esac
    (
        cd "$tree/xen"
        export PATH=$lab/root/usr/bin:$PATH BISON_PKGDATADIR=$lab/root/usr/share/bison
        export M4=$lab/root/usr/bin/m4 PYTHON=/usr/bin/python3 XEN_CONFIG_EXPERT=y
        # Once: what is configured anew is built anew.
        if [ ! -e "$tree/configured" ]; then
            make defconfig
            printf 'CONFIG_%s\n' EXPERT=y UNSUPPORTED=y "SCHED_RTDS=$rtds" "DEBUG=$debug" >> .config
            make olddefconfig
            touch "$tree/configured"
        fi
        make -j"$(nproc)" CONFIG_PUNCTUAL=$ours
    ) > "$lab/$1.build" 2>&1 || { tail -30 "$lab/$1.build"; echo "xen: it cannot be built" >&2; exit 1; }
}

prepare() {
    local tool name built
    # shellcheck source=/dev/null
    . /etc/os-release
    [ "${VERSION_ID:-}" = 12 ] || skip "Debian 12 is needed, whose Xen is $xen_version"
    for tool in apt-get dpkg-source qemu-system-x86_64 busybox cc make python3 cpio objcopy; do
        command -v "$tool" >/dev/null || skip "$tool is missing"
    done
    mkdir -p "$lab"
    [ -e "$lab/fetched" ] || { echo "Fetching packages" >&2; fetch; }
    echo "Building the policies, Xen and the domains" >&2
    cargo build --quiet --locked --release -p punctual
    # shellcheck disable=SC2034 # for who sources this
    punctual=$(realpath "${CARGO_TARGET_DIR:-target}/release/punctual")
    built=$(scripts/check-xen-lib.sh) || exit $?
    policies=$(realpath "$(tail -1 <<< "$built")")
    for name; do build "$name"; done
    "$parts/domains.sh" "$lab"
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
    timeout "${seconds_max:-600}" qemu-system-x86_64 -M pc -cpu qemu64 "${machine[@]}" \
        -rtc base=2026-01-01T00:00:00,clock=vm -m "$memory" -display none -vga none -nodefaults \
        -no-user-config -monitor none -serial "file:$lab/$name.log" -no-reboot \
        -chardev "file,id=out,path=$lab/$name.out" -device e1000,netdev=net \
        -netdev user,id=net,restrict=on,guestfwd=tcp:10.0.2.100:9-chardev:out \
        -kernel "$lab/$build/xen/xen" -append "com1=115200,8n1 console=com1 $dom0 loglvl=info spec-ctrl=no \
xpti=no pcid=no smep=no smap=no watchdog=0 cpufreq=none no-real-mode $options" \
        -initrd "$lab/vmlinux console=hvc0 nokaslr mitigations=off quiet loglevel=4 audit=0,\
$lab/$name.initrd" < /dev/null > "$lab/$name.qemu" 2>&1 || true
    rm "$lab/$name.initrd"
}
