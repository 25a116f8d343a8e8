#!/bin/bash
# Inside a machine of the lab `debian`, as root: runs the commands of the tutorials for hosts block by block,
# as they stand there, each page beside running VMs, and compares the machine with what it was.
# shellcheck source=labs/debian/state.sh
. ./state.sh

# said TEXT: the last block printed it.
said() { grep -q -- "$1" said || fail "$block did not print '$1'"; }

# status_says TEXT [VM]: the last block printed it with `punctual status`, or would if it waited: a translated
# machine is slow.
status_says() {
    local until=$((SECONDS + 60))
    until grep -q -- "$1" said; do
        [ $SECONDS -lt $until ] || { cat said; fail "$block: the status does not say '$1'"; }
        punctual status "${@:2}" >said
    done
}

# page FILE BLOCKS: runs the commands of a page with so many blocks.
page() {
    local block
    python3 - "$1" <<'EOF'
import pathlib, re, sys
page = pathlib.Path(sys.argv[1])
for number, block in enumerate(re.findall(r"^```sh\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S)):
    pathlib.Path(f"{page.stem}-{number:02}").write_text(block, encoding="utf-8")
EOF
    for block in "${1%.md}"-??; do
        step "$block: $(head -1 "$block")"
        bash -eu "$block" >said 2>&1 </dev/null || { cat said; fail "$block"; }
        sed 's/^/    /' said
        case $(cat "$block") in
            *observes*) said 'observes .* VMs and changes nothing' ;;
            *'sed -i'*) status_says 'holds 1 of them' ;;
            *'virsh destroy'*) status_says '^VM relay: class relay in pool rt, held' relay ;;
            *'punctual adjust'*) said 'it is paused' && status_says 'in pool rt, held' relay ;;
            *'punctual admit plc'*) said '^yes: ' && said '^no: ' ;;
            *'punctual admit relay'*) said '^yes: ' ;;
            *'class.hmi'*) status_says 'holds 3 of them' ;;
            *'--unit punctuald'*) said 'is held' && said '^punctual_' ;;
        esac
    done
    [ "$(echo "${1%.md}"-?? | wc -w)" = "$2" ] || fail "$1 has another number of blocks"
}

systemctl stop '*.timer'
for name in relay build protection plc hmi; do vm $name; done
for name in relay build; do virsh --quiet start $name; done
# What only a first start makes is there before the comparison.
for name in protection plc hmi; do virsh --quiet start $name && virsh --quiet destroy $name; done
state before
expected='\+punctual:x:[0-9]+:|[-+][0-9a-f]+ +/etc/apparmor.d/libvirt/.*'
page tutorial-libvirt.md 9
state first
# `relay` has another process and scope.
same first "$expected|[-+][0-9]+|[-+].*machine-qemu.*relay.*"
for name in relay build; do virsh --quiet destroy $name; done
for name in protection plc hmi; do virsh --quiet start $name; done
state before
page tutorial-substation.md 5
state second
same second "$expected"
step "purged: the machine is as before, but for the group"
