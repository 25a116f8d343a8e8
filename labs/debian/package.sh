#!/bin/bash
# Inside a machine of the lab `debian`, as root: installs the package beside this script, uses it, removes and
# purges it, and compares the machine with what it was.
# shellcheck source=labs/debian/state.sh
. ./state.sh

step "started: $(system), $(virsh version --daemon | tail -2 | sed -n 1p)"
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
systemctl is-active --quiet punctuald || { systemctl status punctuald; fail "the service is not active"; }
step "punctuald is $(systemctl is-active punctuald) and $(systemctl is-enabled punctuald)"

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

for words in "" "x" "a b c d e f" "-- --socket /etc/passwd" "$(printf 'a\033[2J start begin')" "--help x"; do
    # shellcheck disable=SC2086  # Words.
    [ -z "$($hook $words 2>&1 </dev/null)" ] || fail "the hook prints something: $words"
done
start=$(date +%s%N)
for _ in 1 2 3 4 5 6 7 8 9 10; do $hook other started begin - </dev/null; done
step "the hook takes $((($(date +%s%N) - start) / 10000000)) ms"
called_by_libvirt
start=$(date +%s%N)
virsh --quiet start other
step "virsh start with the hook: $((($(date +%s%N) - start) / 1000000)) ms"
virsh --quiet destroy other
as_packaged

echo '# of this machine' >>/etc/punctual/host.toml
apt install --reinstall "$deb"
grep -qx '# of this machine' /etc/punctual/host.toml || fail "an upgrade changes a configuration file"
sed -i '$d' /etc/punctual/host.toml
step "installed again: configuration kept"

apt remove punctual
state removed
# Configuration stays, the hook among it, which does nothing without the program.
kept='.* /(etc|var/lib)/.*punctual.*|.* /etc/libvirt/hooks/qemu.d .*|\+punctual:x:[0-9]+:'
# Units stay enabled until the purge.
kept+='|\+punctual.* not-found inactive'
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
grep -qx 1 <<<"$(/usr/libexec/punctual/pool-processors)" || fail "pool-processors"
timeout 400 systemctl start tuned || { tail -30 /var/log/tuned/tuned.log; fail "tuned does not start"; }
step "tuned has started"
grep -q punctual-host <<<"$(tuned-adm list)" || fail "tuned does not know the profile"
tuned-adm profile punctual-host || { tail -20 /var/log/tuned/tuned.log; fail "tuned refuses the profile"; }
[ "$(cat /proc/sys/kernel/timer_migration /sys/devices/virtual/workqueue/cpumask | xargs)" = "0 1" ] ||
    { tail -20 /var/log/tuned/tuned.log; fail "the profile sets nothing"; }
step "tuned: the profile is active, and kernel work stays off processor 1"
