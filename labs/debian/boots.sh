#!/bin/bash
# Inside a machine of the lab `debian` whose disk is kept, as root, once for each boot: installs the package
# with enforcement beside two VMs that libvirt starts at boot, upgrades it, and shuts the machine down; finds
# both held after the boot, and cuts the power; finds both held again, purges the package, and compares the
# machine with what it was.
# shellcheck source=labs/debian/state.sh
. ./state.sh
kept=/var/lib/boots
configuration=/etc/punctual/host.d/lab.toml

# held NAME: the VM's state, its vCPU's scheduling class and its group, if it is held.
held() {
    local process thread
    process=$(punctual status "$1" --json | python3 -c '
import json, sys
vm = json.load(sys.stdin)
print(vm["process"] if vm["state"] == "held" and vm["budgets"] else "")') || return 1
    [ -n "$process" ] || return 1
    for thread in /proc/"$process"/task/*; do
        case $(cat "$thread/comm") in
            CPU*) grep -q '/punctual-.*/unit' "$thread/cgroup" || return 1 ;;
        esac
    done
}

# both SECONDS: waits until both VMs are held.
both() {
    local until=$((SECONDS + $1))
    until held relay 2>/dev/null && held plc 2>/dev/null; do
        [ $SECONDS -lt $until ] || {
            punctual status
            journalctl --boot --unit punctuald --unit punctual-enforce --lines 40
            fail "not both are held"
        }
        sleep 0.5
    done
}

uptime_s() { cut -d. -f1 /proc/uptime; }

# What is the same after a boot; nothing in /run is.
lasting() {
    state "$1"
    rm "$1/vms" "$1/threads"
    sed -i '\, /run/,d' "$1/files"
    # libvirt numbers VMs in the order in which they start, which is another one at each boot.
    sed -i '/^machine-qemu/d' "$1/units" "$1/unit-files"
}

mkdir -p $kept
boot=0
while [ -e "$kept/boot$boot" ]; do boot=$((boot + 1)); done
touch "$kept/boot$boot"
case $boot in
    0)
        step "installed and upgraded: $(system)"
        systemctl stop '*.timer'
        # These VMs have no operating system that hears of a shutdown: libvirt need not wait for it.
        echo SHUTDOWN_TIMEOUT=1 >>/etc/default/libvirt-guests
        vm relay && vm plc
        for name in relay plc; do virsh --quiet autostart $name; virsh --quiet start $name; done
        lasting before
        cp -r before $kept/
        apt install "$deb"
        cat >$configuration <<'EOF'
mode = "enforce"
[pool.rt]
processors = [1]
policy = "deferrable"
[class.all]
match = [{ libvirt = "*" }]
budget = "2ms"
period = "10ms"
priority = 1
EOF
        systemctl reload punctuald
        both 60
        step "both VMs are held"
        # The same package stands in for a newer one: dpkg takes the same steps.
        start=$(date +%s%N)
        apt install --reinstall "$deb"
        ms=$((($(date +%s%N) - start) / 1000000))
        both 60
        step "an upgrade takes $ms ms; both VMs are held $((($(date +%s%N) - start) / 1000000)) ms after" \
            "its start"
        pgrep qemu-system >vms.after
        [ "$(wc -l <vms.after)" = 2 ] || fail "an upgrade ended a VM"
        step "the machine shuts down"
        echo "JOB-STATUS 0"
        systemctl poweroff --no-block
        sleep 600
        ;;
    1)
        both 300
        step "after a boot both VMs are held"
        ! journalctl --quiet --boot --priority warning --unit punctuald --unit punctual-enforce --output cat |
            grep . || fail "warnings"
        step "the power fails"
        ;;
    *)
        both 300
        step "after a power failure both VMs are held"
        rm $configuration
        apt purge punctual
        cp -r $kept/before .
        lasting after
        same after '\+punctual:x:[0-9]+:|[-+][0-9a-f]+ +/etc/apparmor.d/libvirt/.*|.* /var/lib/boots.*'
        step "purged: the machine is as before, but for the group"
        ;;
esac
