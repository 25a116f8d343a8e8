#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Builds Linux 6.12 with the patch of this folder, from Debian 12's package linux-source-6.12.
#
# usage: kernel/build.sh DIRECTORY rt|vanilla|check...
#   rt       DIRECTORY/rt/bzImage: PREEMPT_RT and NET_RT_SOFTIRQ, with a small configuration for QEMU
#   vanilla  DIRECTORY/vanilla/bzImage: the same without PREEMPT_RT, where the patch has no effect
#   check    only applies the patch and compiles the files that it changes, as for rt, with netconsole
# environment: JOBS (2)
# exit: 0 built; 1 it could not be; 77 skipped, because something is missing, which it names
#
# The source (a download of 150 MB) and the objects stay in DIRECTORY, about 3 GB, so a second build compiles
# only what has changed. The first takes 10 minutes or so for each kernel, on two processors.
set -euo pipefail
patch=$(realpath "$(dirname "$0")")/0001-net-softirqs-of-urgent-devices-apart-from-others.patch
[ $# -ge 2 ] || { sed -n '3,/^$/s/^# \?//p' "$0" >&2; exit 2; }
for tool in apt-get dpkg-deb bc flex bison make gcc patch xz; do
    command -v $tool >/dev/null || { echo "skipped: $tool is missing"; exit 77; }
done
[ -e /usr/include/libelf.h ] || { echo "skipped: libelf-dev is missing"; exit 77; }
mkdir -p "$1"
directory=$(realpath "$1")
source=$directory/linux-source-6.12
shift

# The sum of the patch that was applied tells whether the source is this one.
unpack() {
    local sum
    sum=$(sha256sum <"$patch")
    [ "$(cat "$source/.patched" 2>/dev/null)" != "$sum" ] || return 0
    cd "$directory"
    if [ ! -e package/usr/src/linux-source-6.12.tar.xz ]; then
        apt-get -qq -o APT::Sandbox::User=root download linux-source-6.12 ||
            { echo "skipped: linux-source-6.12 cannot be downloaded here"; exit 77; }
        dpkg-deb -x linux-source-6.12_*.deb package
        rm linux-source-6.12_*.deb
    fi
    if [ -e "$source/.patched" ]; then
        # Only files that another version of the patch changed: the others keep their objects.
        xargs -a "$source/.changed" tar xf package/usr/src/linux-source-6.12.tar.xz
    else
        tar xf package/usr/src/linux-source-6.12.tar.xz
    fi
    cd "$source"
    sed -n 's|^+++ b/|linux-source-6.12/|p' "$patch" >.changed
    patch --quiet -p1 <"$patch"
    echo "$sum" >.patched
}

# configure KERNEL
configure() {
    local build=$directory/$1 options=(
        64BIT SMP EXPERT HIGH_RES_TIMERS PRINTK TTY SERIAL_8250 SERIAL_8250_CONSOLE BLK_DEV_INITRD RD_GZIP
        BINFMT_ELF BINFMT_SCRIPT PROC_FS PROC_SYSCTL PROC_PAGE_MONITOR SYSFS DEVTMPFS TMPFS SHMEM PCI PCI_MSI
        ACPI MULTIUSER CGROUPS CGROUP_SCHED CPUSETS NAMESPACES NET_NS FUTEX EPOLL EVENTFD SIGNALFD TIMERFD
        POSIX_TIMERS NET INET PACKET UNIX NETDEVICES ETHERNET NET_CORE VIRTIO VIRTIO_MENU VIRTIO_PCI
        VIRTIO_NET BRIDGE TUN VETH NET_VENDOR_INTEL E1000 E1000E FTRACE DEBUG_FS ENABLE_DEFAULT_TRACERS
        SCHED_DEBUG IRQ_FORCED_THREADING KALLSYMS X86_X2APIC X86_LOCAL_APIC HYPERVISOR_GUEST PARAVIRT
        UNIX98_PTYS FILE_LOCKING MEMBARRIER AIO IO_URING ADVISE_SYSCALLS SYSVIPC FUSE_FS VIRTIO_FS OVERLAY_FS
        INOTIFY_USER PROC_CHILDREN IKCONFIG IKCONFIG_PROC NO_HZ_IDLE)
    local off=(IPV6 BPF_SYSCALL NETFILTER XFRM WIRELESS WLAN RANDOMIZE_BASE)
    case $1 in
        rt) options+=(PREEMPT_RT NET_RT_SOFTIRQ) ;;
        check) options+=(PREEMPT_RT NET_RT_SOFTIRQ NETCONSOLE) ;;
        vanilla) options+=(PREEMPT_VOLUNTARY) ;;
    esac
    make -s O="$build" tinyconfig
    # shellcheck disable=SC2046  # Words.
    ./scripts/config --file "$build/.config" --set-val NR_CPUS 4 \
        $(printf -- '-e %s ' "${options[@]}") $(printf -- '-d %s ' "${off[@]}")
    make -s O="$build" olddefconfig
    [ "$1" = vanilla ] || grep -q '^CONFIG_NET_RT_SOFTIRQ=y' "$build/.config" ||
        { echo "the configuration excludes NET_RT_SOFTIRQ"; exit 1; }
}

unpack
cd "$source"
for what; do
    case $what in
        rt | vanilla)
            configure "$what"
            nice make -s -j"${JOBS:-2}" O="$directory/$what" bzImage
            cp "$directory/$what/arch/x86/boot/bzImage" "$directory/$what/bzImage"
            echo "$directory/$what/bzImage"
            ;;
        check)
            configure check
            mapfile -t objects < <(sed -n 's|^linux-source-6.12/\(.*\)\.c$|\1.o|p' .changed)
            nice make -s -j"${JOBS:-2}" O="$directory/check" "${objects[@]}"
            echo "the patch applies, and its files compile"
            ;;
        *) echo "build.sh: $what: expected rt, vanilla or check" >&2; exit 2 ;;
    esac
done
