#!/bin/bash
# Inside a machine of the lab `debian`, as root: installs the .rpm beside this script with rpm, uses it,
# upgrades and erases it, and compares the machine with what it was. What the package requires has other names
# in Debian, so rpm does not look for it.
# shellcheck source=labs/debian/state.sh
. ./state.sh
rpm=$(echo "$PWD"/*.rpm)
# The rpm of Debian 12 asks for this option, that of Debian 13 does not know it.
force=()
# The database is this job's.
! command rpm --force-debian --version >/dev/null 2>&1 || force=(--force-debian)
rpm() {
    command rpm "${force[@]}" --dbpath "$PWD/rpmdb" --nodeps "$@" >rpm.log 2>&1 ||
        { cat rpm.log; fail "rpm $*"; }
}

step "started: $(system), $(command rpm --version)"
systemctl stop '*.timer'
vm relay
vm other
virsh --quiet start relay
# What only a first start makes is there before the comparison.
virsh --quiet start other && virsh --quiet destroy other
state before

start=$(date +%s%N)
rpm --install "$rpm"
step "installed in $((($(date +%s%N) - start) / 1000000)) ms; $(punctual --version)"
# systemd-sysusers says what it does.
! grep -v '^Creating group' rpm.log || fail "rpm prints something"
[ "$(getent group punctual | cut -d: -f1)" = punctual ] || fail "there is no group punctual"
[ "$(stat -c '%a %U:%G' /run/punctual /var/lib/punctual | xargs)" = "750 root:punctual 700 root:root" ] ||
    fail "/run/punctual or /var/lib/punctual is not as tmpfiles.d says"
systemctl is-active --quiet punctuald || { systemctl status punctuald; fail "the service is not active"; }
[ "$(systemctl is-enabled punctuald)" = enabled ] || fail "the service is not enabled"
punctual status --json >status.log
grep -q '"relay"' status.log || { cat status.log; fail "the service does not see the VM"; }
step "punctuald is active and enabled, and sees the VM"
code=0
punctual check /usr/share/doc/punctual/examples/five-vms.toml >check.log 2>&1 || code=$?
[ $code -eq 0 ] || { cat check.log; fail "check: exit code $code"; }
$hook other started begin - </dev/null || fail "the hook fails"

echo '# of this machine' >>/etc/punctual/host.toml
pid=$(systemctl show --property MainPID --value punctuald)
rpm --upgrade --replacepkgs "$rpm"
grep -qx '# of this machine' /etc/punctual/host.toml || fail "an upgrade changes a configuration file"
sed -i '$d' /etc/punctual/host.toml
systemctl is-active --quiet punctuald || fail "the service does not run after an upgrade"
[ "$pid" != "$(systemctl show --property MainPID --value punctuald)" ] || fail "the old service runs on"
step "upgraded: configuration kept, the service started again"

rpm --erase punctual
state erased
# Directories that belong to Fedora's package filesystem stay, and so does the group.
others='fish(/vendor_completions\.d)?|licenses|zsh/site-functions'
same erased "\+punctual:x:[0-9]+:|\+.* /usr/share/($others) "
virsh --quiet start other
virsh --quiet destroy other
step "erased: the machine is as before, but for the group"
