#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Builds Linux 6.12 with the patches of this folder, from Debian 12's package linux-source-6.12.
#
# usage: kernel/build.sh DIRECTORY rt|vanilla|xen|check...
#   rt       DIRECTORY/rt/bzImage: PREEMPT_RT and NET_RT_SOFTIRQ, with a small configuration for QEMU
#   vanilla  DIRECTORY/vanilla/bzImage: the same without PREEMPT_RT, where the first patch has no effect
#   xen      DIRECTORY/xen/vmlinux: domain 0 of Xen and its paravirtualised guests, with netback and netfront
#   check    only applies the patches and compiles the files that they change, as for rt, with netconsole
# environment: JOBS (2)
# exit: 0 built; 1 it could not be; 77 skipped, because something is missing, which it names
#
# The source (a download of 150 MB) and the objects stay in DIRECTORY, about 3 GB, so a second build compiles
# only what has changed. The first takes 10 minutes or so for each kernel, on two processors.
set -euo pipefail
patches=("$(realpath "$(dirname "$0")")"/0*.patch)
[ $# -ge 2 ] || { sed -n '3,/^$/s/^# \?//p' "$0" >&2; exit 2; }
for tool in apt-get dpkg-deb bc flex bison make gcc patch xz; do
    command -v $tool >/dev/null || { echo "skipped: $tool is missing"; exit 77; }
done
[ -e /usr/include/libelf.h ] || { echo "skipped: libelf-dev is missing"; exit 77; }
mkdir -p "$1"
directory=$(realpath "$1")
source=$directory/linux-source-6.12
shift

# The sum of the patches that were applied tells whether the source is this one.
unpack() {
    local sum file
    sum=$(cat "${patches[@]}" | sha256sum)
    [ "$(cat "$source/.patched" 2>/dev/null)" != "$sum" ] || return 0
    cd "$directory"
    rm -rf before
    mkdir before
    if [ ! -e package/usr/src/linux-source-6.12.tar.xz ]; then
        apt-get -qq -o APT::Sandbox::User=root download linux-source-6.12 ||
            { echo "skipped: linux-source-6.12 cannot be downloaded here"; exit 77; }
        dpkg-deb -x linux-source-6.12_*.deb package
        rm linux-source-6.12_*.deb
    fi
    if [ -e "$source/.patched" ]; then
        # Only files that other versions of the patches changed: the others keep their objects.
        xargs -a "$source/.changed" cp -p --parents -t before
        xargs -a "$source/.changed" tar xf package/usr/src/linux-source-6.12.tar.xz
        [ ! -e "$source/.added" ] || xargs -a "$source/.added" rm -f
    else
        tar xf package/usr/src/linux-source-6.12.tar.xz
    fi
    cd "$source"
    sed -n 's|^--- a/|linux-source-6.12/|p' "${patches[@]}" | sort -u >.changed
    sed -n '\|^--- /dev/null|{n;s|^+++ b/|linux-source-6.12/|p}' "${patches[@]}" >.added
    cat "${patches[@]}" | patch --quiet -p1
    # A header that is what it was is not new to the objects that include it.
    find "$directory/before" -type f -printf '%P\n' | while read -r file; do
        ! cmp -s "../before/$file" "../$file" || touch -r "../before/$file" "../$file"
    done
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
    local xen=(XEN XEN_PV XEN_PV_SMP XEN_DOM0 XEN_BACKEND XEN_NETDEV_BACKEND XEN_NETDEV_FRONTEND HVC_DRIVER
        HVC_XEN XEN_DEV_EVTCHN XENFS XEN_COMPAT_XENFS XEN_SYS_HYPERVISOR XEN_GNTDEV XEN_GRANT_DEV_ALLOC
        XEN_PRIVCMD HZ_250)
    local off=(IPV6 BPF_SYSCALL NETFILTER XFRM WIRELESS WLAN RANDOMIZE_BASE)
    case $1 in
        rt) options+=(PREEMPT_RT NET_RT_SOFTIRQ) ;;
        check) options+=(PREEMPT_RT NET_RT_SOFTIRQ NETCONSOLE "${xen[@]}") ;;
        vanilla) options+=(PREEMPT_VOLUNTARY) ;;
        xen) options+=(PREEMPT_VOLUNTARY "${xen[@]}") ;;
    esac
    make -s O="$build" tinyconfig
    # shellcheck disable=SC2046  # Words.
    ./scripts/config --file "$build/.config" --set-val NR_CPUS 4 \
        $(printf -- '-e %s ' "${options[@]}") $(printf -- '-d %s ' "${off[@]}")
    make -s O="$build" olddefconfig
    local option
    for option in "${options[@]}"; do
        case $option in
            NET_RT_SOFTIRQ | XEN_NETDEV_BACKEND | XEN_NETDEV_FRONTEND)
                grep -q "^CONFIG_$option=y" "$build/.config" ||
                    { echo "the configuration excludes $option"; exit 1; }
                ;;
        esac
    done
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
        xen)
            configure xen
            nice make -s -j"${JOBS:-2}" O="$directory/xen" vmlinux
            echo "$directory/xen/vmlinux"
            ;;
        check)
            configure check
            mapfile -t objects < <(sed -n 's|^linux-source-6.12/\(.*\)\.c$|\1.o|p' .changed .added)
            nice make -s -j"${JOBS:-2}" O="$directory/check" "${objects[@]}"
            echo "the patches apply, and their files compile"
            ;;
        *) echo "build.sh: $what: expected rt, vanilla, xen or check" >&2; exit 2 ;;
    esac
done
