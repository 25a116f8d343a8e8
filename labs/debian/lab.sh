#!/usr/bin/env bash
# Packages in Debian machines with systemd and libvirt.
#
# usage: labs/lab debian MODE
#   package [SUITE...]  installs the .deb in a machine of each suite (bookworm and trixie by default) beside a
#             running VM of libvirt: doctor, check, a dry run of attach, the hook, the profile for tuned, an
#             upgrade; then removes and purges it, and compares files, units, groups and the VM's threads
#             with those before. Fails at the first thing that is not as it should be
#   rpm [SUITE...]  the same for the .rpm, which Debian's rpm installs, upgrades and erases
#   service [SUITE...]  the same for the service: its unit, good and broken reloads, two VMs that virsh
#             starts, their class by name and by metadata, the time from `virsh start` to seen, the hook, the
#             journal, varlinkctl, users, kills (-9), removal
#   tutorial [SUITE...]  runs the commands of docs/tutorial-libvirt.md and of docs/tutorial-substation.md
#   boots [SUITE...]  installs the package with enforcement beside two VMs that start with the machine,
#             upgrades it, and boots the machine again, after a shutdown and after a power failure: both VMs
#             are held each time
#   soak [PART...]  the service on this machine, without systemd and libvirt, with look-alikes of VMs and a
#             configuration of its own: starts, reloads, waves, the hook, a user without rights, names with
#             terminal escapes, kills; fails if anything is left. Writes what it measured to OUTPUT
#
# All but `soak` need mmdebstrap, mke2fs and qemu-system-x86_64, and all need root. A suite's machine is built
# once, in 2 to 5 minutes, and kept below the target directory; QEMU runs it translated (TCG): `package` takes
# 5 minutes, `service` 15 or more.
# environment: DEB, RPM (packages that are built already), LAB_MACHINES (where machines are kept), MEMORY_MIB
#              (1536), TIMEOUT_S (1800); of soak: PUNCTUAL (a program that is built already), OUTPUT (a
#              directory), SCALE (1; 0.01 takes a minute)
# shellcheck source=labs/lib.sh
. "$(dirname "$0")/../lib.sh"
machines=$(realpath -m "${LAB_MACHINES:-${CARGO_TARGET_DIR:-target}/debian}")
packages=(systemd systemd-sysv dbus apparmor libvirt-daemon-system libvirt-clients qemu-system-x86
    linux-image-cloud-amd64 procps python3 tuned man-db rpm)

mirror() {
    # shellcheck disable=SC2016  # The word is for APT.
    apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | grep debian | grep -v security |
        sed -n 1p
}

# machine SUITE: makes $machine, with a disk that runs the job of a second disk, a kernel and its initramfs.
machine() {
    local root=$machines/$1.root
    machine=$machines/$1
    [ ! -e "$machine/complete" ] || return 0
    echo "== $1: a machine of packages"
    rm -rf "$machine"
    mkdir -p "$machine"
    if [ ! -d "$root" ]; then
        rm -rf "$root.new"
        mmdebstrap --quiet --format=directory --variant=minbase --include="$(IFS=,; echo "${packages[*]}")" \
            "$1" "$root.new" "deb $(mirror) $1 main"
        mv "$root.new" "$root"
    fi
    cp "$root"/boot/vmlinuz-* "$machine/vmlinuz"
    cp "$root"/boot/initrd.img-* "$machine/initrd"
    # A job starts tuned if it needs it; at boot its profile for VMs would take half a minute here.
    rm -f "$root/etc/systemd/system/multi-user.target.wants/tuned.service"
    install -m 644 labs/debian/job.service "$root/etc/systemd/system/"
    mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
    ln -s ../job.service "$root/etc/systemd/system/multi-user.target.wants/"
    mke2fs -q -t ext4 -d "$root" "$machine/disk" 3G
    rm -rf "$root"
    touch "$machine/complete"
}

# in_machine FILE...: boots $machine with the files in a directory, runs the first of them there and prints
# what it prints; succeeds if it does. Nothing on the machine's disk changes, but what a job writes is on the
# disk $kept if that is set.
in_machine() {
    local out=$scratch/out qemu start=$SECONDS drive="file=$machine/disk,format=raw,snapshot=on"
    [ -z "${kept:-}" ] || drive="file=$kept,format=raw"
    tar --create --file "$scratch/job" --transform 's,.*/,,' --absolute-names "$@"
    truncate -s %512 "$scratch/job"
    : >"$out"
    timeout "${TIMEOUT_S:-1800}" qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 2 \
        -m "${MEMORY_MIB:-1536}" -nodefaults -no-reboot -display none -nic none \
        -serial "file:$scratch/console" -serial "file:$out" -kernel "$machine/vmlinuz" \
        -initrd "$machine/initrd" -append "console=ttyS0 root=/dev/vda rw quiet JOB=$(basename "$1")" \
        -drive "$drive,if=virtio" \
        -drive "file=$scratch/job,format=raw,if=virtio,readonly=on" </dev/null &
    qemu=$!
    tail --quiet --follow --pid "$qemu" "$out" | stdbuf -oL tr -d '\r' |
        grep --line-buffered -v '^JOB-STATUS' || true
    wait "$qemu" || true
    echo "machine: $((SECONDS - start)) s"
    grep -qx 'JOB-STATUS 0' <<<"$(tr -d '\r' <"$out")" && return
    tail -5 "$scratch/console"
    return 1
}

# in_suites SUITES JOB FILE...: runs a job with the package in a machine of each suite.
in_suites() {
    local suite suites=$1 deb=${DEB:-}
    [ "$(id -u)" = 0 ] || skip "root is needed, to unpack a machine"
    need mmdebstrap mke2fs qemu-system-x86_64 dpkg-deb
    [ -n "$deb" ] || deb=$(packaging/build.sh deb --output "$scratch/packages" | tail -1)
    for suite in ${suites:-bookworm trixie}; do
        machine "$suite"
        echo "== $suite: $(basename "$deb")"
        in_machine "${@:2}" labs/debian/state.sh "$deb"
    done
}

package() { in_suites "$*" labs/debian/package.sh; }

rpm() {
    need rpmbuild
    DEB=${RPM:-$(packaging/build.sh rpm --output "$scratch/packages" | tail -1)}
    in_suites "$*" labs/debian/rpm.sh
}

service() { in_suites "$*" labs/debian/service.sh labs/debian/starts.py; }

tutorial() { in_suites "$*" labs/debian/tutorial.sh docs/tutorial-libvirt.md docs/tutorial-substation.md; }

boots() {
    local suite deb=${DEB:-} kept
    [ "$(id -u)" = 0 ] || skip "root is needed, to unpack a machine"
    need mmdebstrap mke2fs qemu-system-x86_64 dpkg-deb
    [ -n "$deb" ] || deb=$(packaging/build.sh deb --output "$scratch/packages" | tail -1)
    for suite in "${@:-bookworm}"; do
        machine "$suite"
        kept=$scratch/disk-$suite
        cp --sparse=always "$machine/disk" "$kept"
        for _ in 1 2 3; do
            echo "== $suite: a boot"
            in_machine labs/debian/boots.sh labs/debian/state.sh "$deb"
        done
        rm "$kept"
    done
}

soak() {
    need python3
    [ "$(id -u)" = 0 ] || skip "root is needed, to be a user without rights"
    build_punctual
    python3 labs/debian/soak.py --program "$punctual" --scale "${SCALE:-1}" \
        --output "${OUTPUT:-$scratch/soak}" "$@"
}

case ${1:-} in
    package | rpm | service | tutorial | boots | soak) "$@" ;;
    *) usage ;;
esac
