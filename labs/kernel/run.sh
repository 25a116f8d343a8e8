#!/usr/bin/env bash
# Runs a command under another Linux kernel: Debian's newest one, booted in QEMU, above this machine's files.
#
# usage: labs/kernel/run.sh [--kernel cloud|rt] COMMAND [ARGUMENT...]
# example: labs/kernel/run.sh --kernel rt target/debug/punctual doctor
# exit: the command's status; 77 when something is missing here, which it says; 124 when time was up.
#
# cloud (the default) has real KVM, nested in the translated processor; rt has PREEMPT_RT and no KVM. Both
# have cgroup version 2 alone. The machine sees this machine's files, read only; what the command writes is
# lost with it. The processor is translated: its times say nothing about a real machine.
# environment: SUITE (Debian suite of the kernel: forky), PROCESSORS (2), MEMORY_MIB (2048), TIMEOUT_S (600),
#   MODULES (further ones to load), DEVICES (further arguments of QEMU)
set -euo pipefail
cd "$(dirname "$0")/../.."

kernel=cloud
if [ "${1:-}" = --kernel ]; then
    kernel=${2:-}
    shift 2
fi
case $kernel in
    cloud | rt) ;;
    *) echo "host-lab: --kernel is cloud or rt, not '$kernel'" >&2; exit 2 ;;
esac
[ $# -gt 0 ] || { sed -n '2,12s/^# \{0,1\}//p' "$0"; exit 2; }
skip() {
    echo "skipped: $*"
    exit 77
}
virtiofsd=$(command -v /usr/libexec/virtiofsd /usr/lib/qemu/virtiofsd | head -1) ||
    skip "virtiofsd is missing (Debian 12: qemu-system-common): it gives another kernel these files"
for tool in qemu-system-x86_64 apt-get dpkg cpio xz modinfo; do
    command -v "$tool" >/dev/null || skip "$tool is missing, which booting another kernel needs"
done

suite=${SUITE:-forky}
lab=$PWD/target/lab
files=$lab/$suite-$kernel
mkdir -p "$lab"

# Downloads the kernel's packages, from the mirror that this machine's Debian uses, and unpacks them.
fetch_kernel() {
    local apt=$lab/apt-$suite mirror image version package
    rm -rf "$lab/packages"
    mkdir -p "$apt"/{lists/partial,cache/archives/partial} "$lab/packages"
    # shellcheck disable=SC2016  # The word is for APT.
    mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | grep -v security | head -1)
    local key=/usr/share/keyrings/debian-archive-keyring.gpg
    echo "deb [signed-by=$key] $mirror $suite main" >"$apt/sources.list"
    local options=(-qq -o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=/dev/null
        -o "Dir::State::lists=$apt/lists" -o "Dir::Cache=$apt/cache" -o APT::Sandbox::User=root)
    apt-get "${options[@]}" update || return 1
    image=$(apt-cache "${options[@]}" depends "linux-image-$kernel-amd64" |
        awk '/Depends: linux-image-[0-9]/ { print $2 }')
    version=${image#linux-image-}
    [ -n "$version" ] || return 1
    local packages=("linux-binary-$version" "linux-modules-$version" "linux-base-$version" busybox-static)
    (cd "$lab/packages" && apt-get "${options[@]}" download "${packages[@]}") || return 1
    rm -rf "$files.new"
    mkdir "$files.new"
    for package in "${packages[@]}"; do
        dpkg -x "$(echo "$lab/packages/${package}_"*.deb)" "$files.new"
    done
    rm -rf "$files"
    mv "$files.new" "$files"
}
if [ ! -d "$files" ]; then
    echo "host-lab: fetching Debian $suite's kernel ($kernel) ..." >&2
    fetch_kernel || skip "the kernel of Debian $suite cannot be fetched here"
fi
modules=$(echo "$files"/usr/lib/modules/*)
image=$(find "$files" -name 'vmlinuz*' -type f | head -1)

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root"/{bin,proc,sys,dev,modules,lower,upper,root}
find "$files" -path '*bin/busybox' -type f -exec cp {} "$root/bin/busybox" \;

# Copies a module and what it depends on; writes the order in which they are loaded.
add_module() {
    local name=$1 file needed
    ! grep -qx "$name" "$root/modules/order" || return 0
    file=$(find "$modules" -name "$name.ko.xz" -o -name "${name//_/-}.ko.xz" | head -1)
    # It is part of the kernel itself.
    [ -n "$file" ] || return 0
    xz -dc "$file" >"$root/modules/$name.ko"
    for needed in $(modinfo -F depends "$root/modules/$name.ko" | tr ',' ' '); do
        add_module "${needed//-/_}"
    done
    echo "$name" >>"$root/modules/order"
}
: >"$root/modules/order"
for module in virtio_pci virtiofs overlay; do add_module "$module"; done
for module in ${MODULES:-}; do add_module "$module"; done
if [ "$kernel" = cloud ]; then
    for module in kvm_amd vhost_net tun bridge; do add_module "$module"; done
fi

{
    # What tests are told by the environment holds there too.
    export -p | grep -E '^declare -x (PUNCTUAL|RUST)_' || true
    echo 'export PUNCTUAL_TRANSLATED=1'
    printf '%q ' "$@"
} >"$root/command"
cat >"$root/init" <<INIT
#!/bin/busybox sh
export PATH=/bin
/bin/busybox --install -s /bin
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
ln -s /proc/self/fd /dev/fd
while read -r module; do
    insmod /modules/\$module.ko || echo "host-lab: \$module cannot be loaded"
done </modules/order
mount -t virtiofs -o ro files /lower || { echo "host-lab: the files cannot be mounted"; poweroff -f; }
mount -t tmpfs -o size=75% none /upper
mkdir /upper/changes /upper/work
mount -t overlay -o lowerdir=/lower,upperdir=/upper/changes,workdir=/upper/work,index=off,xino=off none /root
mount -t tmpfs none /root/run
cp /command /root/run/.command
for directory in proc sys dev; do mount -o move /\$directory /root/\$directory; done
mount -t tmpfs none /root/tmp
mkdir -p /root/dev/pts /root/dev/shm
mount -t devpts none /root/dev/pts
mount -t tmpfs none /root/dev/shm
mount -t cgroup2 none /root/sys/fs/cgroup
mount -t tracefs none /root/sys/kernel/tracing
ip link set lo up
export HOME=/root PATH="$PATH" TERM=dumb
echo host-lab-begins
chroot /root /bin/bash -c 'cd "$PWD" && . /run/.command'
echo "host-lab-status \$?"
poweroff -f
INIT
chmod +x "$root/init"
initrd=$lab/initrd-$kernel.$$
trap 'rm -rf "$root" "$initrd"' EXIT
(cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$initrd"

console=$lab/console-$kernel
socket=$root/files
memory=${MEMORY_MIB:-2048}M
# The machine takes interrupts of its files on processor 0, as one line and not as messages, which the kernel
# would spread: processes that end would wait for the processor on which live tests spin.
read -ra devices <<<"${DEVICES:-}"
boot="console=ttyS0 panic=-1 quiet tsc=reliable irqaffinity=0"
# Boots the machine, which runs the command; 124 when time was up.
boot_once() {
    "$virtiofsd" --socket-path="$socket" -o source=/,sandbox=chroot,cache=always,xattr \
        >"$console.files" 2>&1 &
    for _ in $(seq 50); do
        [ ! -S "$socket" ] || break
        sleep 0.1
    done
    timeout "${TIMEOUT_S:-600}" qemu-system-x86_64 \
        -machine q35,memory-backend=memory -accel tcg,thread=multi \
        -object "memory-backend-memfd,id=memory,size=$memory,share=on" -m "$memory" \
        -cpu EPYC-Rome,+svm,+npt -smp "${PROCESSORS:-2}" \
        -pidfile "$lab/pid-$kernel" \
        -nodefaults -no-user-config -no-reboot -display none -serial stdio -monitor none \
        -kernel "$image" -initrd "$initrd" -append "$boot" -chardev "socket,id=files,path=$socket" \
        -device vhost-user-fs-pci,chardev=files,tag=files,vectors=0 "${devices[@]}" \
        </dev/null 2>"$console.qemu" | sed -u 's/\r$//' | tee "$console" |
        sed -u '/^host-lab-/d; /SeaBIOS\|Booting from\|reboot: Power down/d' || return "${PIPESTATUS[0]}"
}
# A kernel that patches its own code while it boots sometimes dies of it on translated processors (an int3 in
# a static key). Nothing of the command has run then.
for attempt in 1 2 3; do
    code=0
    boot_once || code=$?
    [ "$code" != 124 ] || { echo "host-lab: time is up after ${TIMEOUT_S:-600} s" >&2; exit 124; }
    ! grep -q '^host-lab-begins$' "$console" || break
    echo "host-lab: the machine ended while it booted (attempt $attempt of 3)" >&2
    cp "$console" "$console.$attempt"
    rm -f "$socket"
done
status=$(sed -n 's/^host-lab-status \([0-9]*\)$/\1/p' "$console" | tail -1)
if [ -z "$status" ]; then
    echo "host-lab: the machine ended before the command did; see $console and $console.qemu" >&2
    exit 1
fi
exit "$status"
