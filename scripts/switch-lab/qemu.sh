# QEMU of another Debian suite, run with its own loader and libraries; and a libvirt of this script's own.
# shellcheck shell=bash disable=SC2154
#
# fetch_qemu SUITE   downloads it and unpacks it into $lab/qemu-SUITE, once; $qemu is how it is started
# start_libvirt      starts libvirtd in the mount namespace that the script is in
# define NAME LISTING MODE NUMBER CONSOLE  defines and starts a domain with what `punctual switch --libvirt`
#                    printed for it

fetch_qemu() {
    local suite=$1 root=$lab/qemu-$1 apt=$lab/apt-$1 mirror loader
    local key=/usr/share/keyrings/debian-archive-keyring.gpg
    if [ ! -s "$root/complete" ]; then
        mkdir -p "$apt"/{lists/partial,cache/archives/partial} "$root"
        # shellcheck disable=SC2016  # The word is for APT.
        mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | grep debian |
            grep -v security | head -1)
        : >"$apt/status"
        echo "deb [signed-by=$key] $mirror $suite main" >"$apt/sources.list"
        local options=(-qq -o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=/dev/null
            -o "Dir::State::lists=$apt/lists" -o "Dir::State::status=$apt/status" -o "Dir::Cache=$apt/cache"
            -o APT::Sandbox::User=root -o APT::Install-Recommends=false
            -o Dir::Etc::preferencesparts=/dev/null)
        apt-get "${options[@]}" update || return 1
        apt-get "${options[@]}" --yes --download-only install qemu-system-x86 >/dev/null || return 1
        for package in "$apt"/cache/archives/*.deb; do dpkg -x "$package" "$root" || return 1; done
        echo "$suite" >"$root/complete"
    fi
    loader=$(find "$root" -name 'ld-linux-x86-64.so.2' ! -type l | head -1)
    export QEMU_MODULE_DIR=$root/usr/lib/x86_64-linux-gnu/qemu
    # shellcheck disable=SC2034  # For who calls.
    qemu=("$loader" --library-path "$root/usr/lib/x86_64-linux-gnu:$root/lib/x86_64-linux-gnu"
        "$root/usr/bin/qemu-system-x86_64" -L "$root/usr/share/qemu" -L "$root/usr/share/seabios")
}

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
    started+=("$!")
    for _ in $(seq 100); do
        if virsh --quiet -c qemu:///system list >/dev/null 2>&1; then return; fi
        sleep 0.1
    done
    cat "$scratch/libvirtd"
    return 1
}

define() {
    python3 scripts/switch-lab/domain.py "$1" "$2" "$(echo "$lab"/kernel/boot/vmlinuz-*)" "$lab/initrd" \
        "console=ttyS0 panic=-1 quiet tsc=reliable pci=nomsi lab=$3 number=$4" "$5" >"$scratch/$1.xml" ||
        return 1
    xmllint --noout --relaxng /usr/share/libvirt/schemas/domain.rng "$scratch/$1.xml" || return 1
    virsh --quiet -c qemu:///system create --validate "$scratch/$1.xml"
}
