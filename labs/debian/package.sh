#!/bin/bash
# Inside a machine of the lab `debian`, as root: installs the package beside this script, uses it, removes and
# purges it, and compares the machine with what it was.
set -euo pipefail
# A translated machine can be slow to answer.
export SYSTEMD_BUS_TIMEOUT=600
export LC_ALL=C DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin
deb=$(echo "$PWD"/*.deb)
unit=/usr/lib/systemd/system/punctuald.service

step() { echo "$(cut -d' ' -f1 /proc/uptime) s  $*"; }

fail() {
    echo "FAILED: $*"
    exit 1
}

# apt WORD...: its output only if it fails.
apt() { apt-get --yes --quiet "$@" >apt.log 2>&1 || { cat apt.log; fail "apt-get $*"; }; }

# What changes by itself, or by every installation of a package.
passing=()
for path in /tmp /var/tmp /var/log /var/cache /var/lib/apt '/var/lib/dpkg/[!i]*' /var/lib/systemd/timers \
    /var/lib/libvirt/qemu /root/.cache /run/job /run/systemd /run/udev /run/log /run/user /run/dbus \
    /run/libvirt; do passing+=(-path "$path" -o); done

# state DIRECTORY: files, units, groups and the threads of VMs.
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

# same DIRECTORY PATTERN: is the machine as before, but for new lines that match?
same() {
    local left
    left=$(diff --recursive --unified=0 before "$1" | grep '^[-+][^-+]' | grep -Evx "$2" || true)
    [ -z "$left" ] || { echo "$left"; fail "$1: the machine is not as before"; }
}

vm() {
    cat >"$1.xml" <<EOF
<domain type='qemu'>
  <name>$1</name>
  <memory unit='MiB'>64</memory>
  <vcpu>1</vcpu>
  <os><type arch='x86_64' machine='pc'>hvm</type></os>
  <devices><emulator>/usr/bin/qemu-system-x86_64</emulator></devices>
</domain>
EOF
    virsh --quiet define "$1.xml"
}

step "started: $(. /etc/os-release && echo "$PRETTY_NAME"), $(virsh version --daemon | tail -2 | head -1)"
# They would change the machine meanwhile.
systemctl stop '*.timer'
vm relay
vm other
virsh --quiet start relay
# What only a first start makes is there before the comparison.
virsh --quiet start other && virsh --quiet destroy other
tuned-adm off >/dev/null 2>&1 || true
state before

start=$(date +%s%N)
apt install "$deb"
step "installed in $((($(date +%s%N) - start) / 1000000)) ms; $(punctual --version)"
[ "$(getent group punctual | cut -d: -f1)" = punctual ] || fail "there is no group punctual"
! getent passwd punctual || fail "there is a user punctual"
[ "$(stat -c '%a %U:%G' /run/punctual /var/lib/punctual | xargs)" = "750 root:punctual 700 root:root" ] ||
    fail "/run/punctual or /var/lib/punctual is not as tmpfiles.d says"
man --where punctual-attach >/dev/null || fail "no manual page of punctual attach"
if [ -e $unit ]; then
    systemctl is-active --quiet punctuald || { systemctl status punctuald; fail "the service is not active"; }
    step "punctuald is $(systemctl is-active punctuald) and $(systemctl is-enabled punctuald)"
fi

code=0
punctual doctor >doctor.log 2>&1 || code=$?
[ $code -le 1 ] || { cat doctor.log; fail "doctor: exit code $code"; }
step "doctor: exit code $code, $(grep -c . doctor.log) lines"
# 0: every deadline is guaranteed.
code=0
punctual check /usr/share/doc/punctual/examples/five-vms.toml >check.log 2>&1 || code=$?
[ $code -eq 0 ] || { cat check.log; fail "check: exit code $code"; }
step "check: exit code $code, $(sed -n 2p check.log)"

cat >host.toml <<'EOF'
[machine]
processors = 2
[pool.rt]
processors = [1]
policy = "deferrable"
[domain.relay]
attach = { libvirt = "relay" }
budget = "2ms"
period = "10ms"
priority = 1
EOF
punctual attach host.toml --dry-run >attach.log 2>&1 || { cat attach.log; fail "attach --dry-run"; }
grep -q '^  relay\.0 .*SCHED_FIFO' attach.log || { cat attach.log; fail "attach does not list the vCPU"; }
step "attach --dry-run: $(grep -m 1 '^  relay\.0' attach.log | xargs)"

# Without the service a program listens in its place.
cat >listen.py <<'EOF'
import os, socket, sys
path = "/run/punctual/hook"
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as service:
    service.bind(path)
    service.settimeout(300)
    print("listening", flush=True)
    while not (message := service.recv(8192).decode()).startswith("other release"):
        print(message, flush=True)
    print(message)
os.unlink(path)
EOF
hook=/etc/libvirt/hooks/qemu.d/punctual
for words in "" "x" "a b c d e f" "-- --socket /etc/passwd" "$(printf 'a\033[2J start begin')" "--help x"; do
    # shellcheck disable=SC2086  # Words.
    [ -z "$($hook $words 2>&1 </dev/null)" ] || fail "the hook prints something: $words"
done
start=$(date +%s%N)
for _ in 1 2 3 4 5 6 7 8 9 10; do $hook other started begin - </dev/null; done
step "the hook takes $((($(date +%s%N) - start) / 10000000)) ms without a service"
# A translated machine may need longer than 100 ms to start a program. It is the package's again below.
cp $hook hook.package
sed -i 's/KILL 0.1/KILL 30/' $hook
# libvirt looks for hooks when it starts; VMs run on.
systemctl restart libvirtd
virsh --quiet list >/dev/null
if [ ! -e $unit ]; then
    python3 listen.py >events.log 2>&1 &
    until grep -q listening events.log; do sleep 0.1; done
fi
start=$(date +%s%N)
virsh --quiet start other
step "virsh start with the hook: $((($(date +%s%N) - start) / 1000000)) ms"
virsh --quiet destroy other
if [ ! -e $unit ]; then
    wait $! || { cat events.log; fail "not all events came from the hook"; }
    for event in "prepare begin" "start begin" "started begin" "stopped end" "release end"; do
        grep -qx "other $event" events.log || { cat events.log; fail "no event $event"; }
    done
    step "the hook: $(($(wc -l <events.log) - 1)) events of a start and a stop"
fi
cp hook.package $hook

echo '# of this machine' >>/etc/punctual/host.toml
apt install --reinstall "$deb"
grep -qx '# of this machine' /etc/punctual/host.toml || fail "an upgrade changes a configuration file"
sed -i '$d' /etc/punctual/host.toml
step "installed again: configuration kept"

apt remove punctual
state removed
# Configuration stays, the hook among it, which does nothing without the program.
kept='.* /(etc|var/lib)/.*punctual.*|.* /etc/libvirt/hooks/qemu.d .*|\+punctual:x:[0-9]+:'
same removed "$kept"
virsh --quiet start other
virsh --quiet destroy other
step "removed: only configuration and state are left"

apt purge punctual
state purged
same purged '\+punctual:x:[0-9]+:'
step "purged: the machine is as before, but for the group"

apt install "$deb"
cp host.toml /etc/punctual/host.toml
/usr/libexec/punctual/pool-processors | grep -qx 1 || fail "pool-processors"
timeout 400 systemctl start tuned || { tail -30 /var/log/tuned/tuned.log; fail "tuned does not start"; }
step "tuned has started"
tuned-adm list | grep -q punctual-host || fail "tuned does not know the profile"
tuned-adm profile punctual-host || { tail -20 /var/log/tuned/tuned.log; fail "tuned refuses the profile"; }
[ "$(cat /proc/sys/kernel/timer_migration /sys/devices/virtual/workqueue/cpumask | xargs)" = "0 1" ] ||
    { tail -20 /var/log/tuned/tuned.log; fail "the profile sets nothing"; }
step "tuned: the profile is active, and kernel work stays off processor 1"
