# What jobs inside a machine of the lab `debian` share; they run as root in a directory with their files.
# shellcheck shell=bash disable=SC2034
#
# step WORD...             says how far the job is
# system                   the distribution
# fail WORD...             ends it
# apt WORD...              apt-get, whose output is printed only if it fails
# vm NAME [METADATA]       defines a VM of libvirt without a disk, with 64 MiB
# state DIRECTORY          notes files, units, groups and the threads of VMs
# same DIRECTORY PATTERN   fails unless these are as in the directory `before`, but for lines that match
# called_by_libvirt        lets libvirt call the package's hook, which may need long here
# as_packaged              makes the hook the package's again
set -euo pipefail
# A translated machine can be slow to answer.
export SYSTEMD_BUS_TIMEOUT=600
export LC_ALL=C DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin
deb=$(echo "$PWD"/*.deb)
hook=/etc/libvirt/hooks/qemu.d/punctual

step() { echo "$(cut -d' ' -f1 /proc/uptime) s  $*"; }

system() { sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' /etc/os-release; }

fail() {
    echo "FAILED: $*"
    exit 1
}

apt() { apt-get --yes --quiet "$@" >apt.log 2>&1 || { cat apt.log; fail "apt-get $*"; }; }

# What changes by itself, or by every installation of a package.
passing=()
for path in /tmp /var/tmp /var/log /var/cache /var/lib/apt '/var/lib/dpkg/[!i]*' /var/lib/systemd/timers \
    /var/lib/libvirt/qemu /root/.cache /run/job /run/systemd /run/udev /run/log /run/user /run/dbus \
    /run/libvirt; do passing+=(-path "$path" -o); done

state() {
    mkdir -p "$1"
    find / /run -xdev \( "${passing[@]}" -false \) -prune -o -printf '%M %u:%g %p %l\n' | sort -u >"$1/files"
    find /etc -type f ! -name '*-' ! -name group ! -name gshadow -print0 | sort -z |
        xargs -0 sha256sum >"$1/etc"
    systemctl list-unit-files --no-legend --plain | awk '{ print $1, $2 }' | sort >"$1/unit-files"
    systemctl list-units --all --no-legend --plain --type=service,socket,path,mount |
        awk '{ print $1, $2, $3 }' | sort >"$1/units"
    getent group | sort >"$1/groups"
    getent passwd | sort >"$1/users"
    pgrep qemu-system | sort >"$1/vms"
    # shellcheck disable=SC2013  # Words.
    for thread in $(sed 's,.*,/proc/&/task/*,' "$1/vms"); do
        echo "$(cat "$thread/comm") $(chrt -p "$(basename "$thread")" | sed 's/.*: //' | xargs)" \
            "$(grep Cpus_allowed_list "$thread/status") $(cat "$thread/cgroup")"
    done | sort >"$1/threads"
}

same() {
    local left
    left=$(diff --recursive --unified=0 before "$1" | grep '^[-+][^-+]' | grep -Evx "$2" || true)
    [ -z "$left" ] || { echo "$left"; fail "$1: the machine is not as before"; }
}

vm() {
    cat >"$1.xml" <<EOF
<domain type='qemu'>
  <name>$1</name>
  <metadata>${2:-}</metadata>
  <memory unit='MiB'>64</memory>
  <vcpu>1</vcpu>
  <os><type arch='x86_64' machine='pc'>hvm</type></os>
  <devices><emulator>/usr/bin/qemu-system-x86_64</emulator></devices>
</domain>
EOF
    virsh --quiet define "$1.xml"
}

called_by_libvirt() {
    # A translated machine may need longer than 100 ms to start a program.
    cp $hook hook.package
    sed -i 's/KILL 0.1/KILL 30/' $hook
    # libvirt looks for hooks when it starts; VMs run on.
    systemctl restart libvirtd
    virsh --quiet list >/dev/null
}

as_packaged() { cp hook.package $hook; }
