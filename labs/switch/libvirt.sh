# A libvirt of this script's own.
# shellcheck shell=bash disable=SC2154
#
# start_libvirt      starts libvirtd in the mount namespace that the script is in
# define NAME LISTING MODE NUMBER CONSOLE  defines and starts a domain with what `punctual switch --libvirt`
#                    printed for it

start_libvirt() {
    local place
    # Its state is in memory, and gone with the namespace.
    for place in /run /var/lib/libvirt /var/cache/libvirt /var/log/libvirt /etc/libvirt; do
        mkdir -p "$place"
        mount -t tmpfs libvirt "$place"
    done
    # Its package would add this user, and it does not start without.
    for place in passwd group; do
        cp "/etc/$place" "$scratch/$place"
        grep -q '^libvirt-qemu:' "/etc/$place" || echo 'libvirt-qemu:x:64055:' >>"$scratch/$place"
    done
    sed -i 's|^libvirt-qemu:x:64055:$|libvirt-qemu:x:64055:64055::/nonexistent:/usr/sbin/nologin|' \
        "$scratch/passwd"
    for place in passwd group; do mount --bind "$scratch/$place" "/etc/$place"; done
    cat >/etc/libvirt/qemu.conf <<'CONFIGURATION'
user = "root"
group = "root"
security_driver = "none"
cgroup_controllers = []
namespaces = []
stdio_handler = "file"
remember_owner = 0
CONFIGURATION
    printf 'listen_tls = 0\nauth_unix_rw = "none"\n' >/etc/libvirt/libvirtd.conf
    libvirtd >"$scratch/libvirtd" 2>&1 &
    wait_for_process $! "$scratch/libvirtd" eval 'virsh --quiet -c qemu:///system list >/dev/null 2>&1'
}

define() {
    python3 labs/switch/domain.py "$1" "$2" "$(echo "$lab"/kernel/boot/vmlinuz-*)" "$lab/initrd" \
        "console=ttyS0 panic=-1 quiet tsc=reliable pci=nomsi lab=$3 number=$4" "$5" >"$scratch/$1.xml" ||
        return 1
    xmllint --noout --relaxng /usr/share/libvirt/schemas/domain.rng "$scratch/$1.xml" || return 1
    virsh --quiet -c qemu:///system create --validate "$scratch/$1.xml"
}
