#!/bin/bash
# Inside a machine of the lab `debian`, as root: the service of the package beside this script under systemd,
# with VMs of libvirt: start, reload, metadata, journal, varlink, users, kills; then removes and purges it,
# and compares the machine with what it was.
# shellcheck source=labs/debian/state.sh
. ./state.sh
STARTS=10
KILLS=10
configuration=/etc/punctual/host.d/lab.toml
socket=/run/punctual/io.punctual.Host
registry=/run/varlink/registry/io.punctual.Host
actor="<punctual:actor xmlns:punctual='urn:punctual:actor:1' class='hmi'/>"

show() { systemctl show --property "$1" --value punctuald; }

# until_so SECONDS COMMAND...: waits until the command succeeds.
until_so() {
    local until=$((SECONDS + $1))
    shift
    until "$@"; do
        [ $SECONDS -lt $until ] ||
            { punctual status; journalctl --unit punctuald --lines 30; fail "never: $*"; }
        sleep 0.1
    done
}

# vm_is NAME EXPRESSION: does it hold of the VM `vm` in the service's answer?
vm_is() {
    punctual status --json | python3 -c '
import json, sys
vms = [vm for vm in json.load(sys.stdin)["actors"] if vm["name"] == sys.argv[1]]
sys.exit(not (vms and eval(sys.argv[2], {"vm": vms[0]})))' "$1" "$2"
}

host_value() {
    punctual status --json |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["host"][sys.argv[1]])' "$1"
}

# entries EVENT: how many entries of this kind are in the journal.
entries() {
    journalctl --sync
    journalctl --quiet --unit punctuald "PUNCTUAL_EVENT=$1" --output cat | wc -l
}

status_says() { [[ "$(show StatusText)" == *"$1"* ]]; }

# call METHOD [PARAMETERS]: prints the reply, or how the connection fails, as the user who runs it.
cat >call.py <<'EOF'
import json, socket, sys
call = {"method": sys.argv[1], "parameters": json.loads(sys.argv[2] if sys.argv[2:] else "{}")}
with socket.socket(socket.AF_UNIX) as service:
    service.settimeout(60)
    try:
        service.connect("/run/punctual/io.punctual.Host")
    except OSError as error:
        sys.exit(error.strerror)
    service.sendall(json.dumps(call).encode() + b"\0")
    reply = b""
    while not reply.endswith(b"\0"):
        reply += service.recv(65536)
print(reply[:-1].decode())
EOF
chmod 644 call.py

step "started: $(system), $(systemctl --version | sed -n 1p)," \
    "$(virsh version --daemon | tail -2 | sed -n 1p)"
# They would change the machine meanwhile.
systemctl stop '*.timer'
useradd --no-create-home reader && useradd --no-create-home stranger
vm relay && vm plc-1 && vm hmi-1 "$actor" && vm plc-2
virsh --quiet start relay
# What only a first start makes is there before the comparison.
virsh --quiet start plc-2 && virsh --quiet destroy plc-2
for name in plc-1 hmi-1; do virsh --quiet undefine $name; done
state before

apt install "$deb"
systemctl is-active --quiet punctuald || { systemctl status punctuald; fail "the service is not active"; }
[ "$(systemctl is-enabled punctuald)" = enabled ] || fail "the service is not enabled"
[ "$(show Type)" = notify ] || fail "Type=$(show Type)"
! journalctl --quiet --boot _PID=1 --grep 'punctuald\.service:.*(Unknown|Failed to parse|ignoring)' ||
    fail "systemd does not understand the unit"
[ "$(stat -c '%a %U:%G' /run/punctual $socket /run/punctual/hook | xargs)" = \
    "750 root:punctual 660 root:punctual 600 root:root" ] || { ls -la /run/punctual; fail "/run/punctual"; }
until_so 60 status_says "Observes 1 VM"
step "punctuald is active, Type=$(show Type), $(show StatusText)"
systemctl status --no-pager --lines 3 punctuald | sed 's/^/    /'
security=$(systemd-analyze security --no-pager punctuald.service | tail -1)
step "systemd-analyze security: ${security#* }"

usermod --append --groups punctual reader
cat >$configuration <<'EOF'
[pool.rt]
processors = [1]
policy = "deferrable"

[class.plc]
match = [{ libvirt = "plc-*" }]
pool = "rt"
budget = "2ms"
period = "10ms"
priority = 1

[class.hmi]
match = [{ metadata = "hmi" }]
pool = "rt"
best_effort = true
EOF
start=$(date +%s%N)
systemctl reload punctuald || fail "systemctl reload fails"
ms=$((($(date +%s%N) - start) / 1000000))
[ "$(host_value classes | grep -o "'name'" | wc -l)" = 2 ] || fail "no classes after the reload"
[ "$(entries reloaded)" = 1 ] || fail "not one reload, but $(entries reloaded)"
step "systemctl reload takes $ms ms, and the classes are there when it returns"
[ "$(/usr/libexec/punctual/pool-processors)" = 1 ] || fail "pool-processors does not print 1"

called_by_libvirt
before=$(host_value hook_messages)
virsh --quiet create plc-1.xml
virsh --quiet create hmi-1.xml
until_so 60 vm_is plc-1 'vm["class"] == "plc" and vm["is_libvirt"] and vm["unit"].startswith("machine-qemu")'
until_so 60 vm_is hmi-1 'vm["class"] == "hmi" and "vcpu" in [thread["role"] for thread in vm["threads"]]'
called=$(($(host_value hook_messages) - before))
[ $called -ge 6 ] || fail "libvirt's hook sent $called messages for two VMs"
step "two transient VMs of virsh: seen, matched by name and metadata; the hook sent $called messages"
punctual status | sed 's/^/    /'
punctual status plc-1 | sed 's/^/    /'

[ "$(host_value hook_garbage)" = 0 ] || fail "the hook sends garbage"
as_packaged
python3 starts.py $STARTS
until_so 60 vm_is plc-1 True

virsh --quiet metadata relay --uri urn:punctual:actor:1 --key punctual --set '<actor class="hmi"/>' --live
start=$(date +%s%N)
until_so 60 vm_is relay 'vm["class"] == "hmi"'
step "virsh metadata: seen at most $((($(date +%s%N) - start) / 1000000)) ms after it returns"

printf '[class.broken]\nbest_effort = true\nmatch = 7\n' >/etc/punctual/host.d/broken.toml
code=0
systemctl reload punctuald 2>reload.log || code=$?
[ $code != 0 ] || fail "systemctl reload succeeds with a broken file"
systemctl is-active --quiet punctuald || fail "a broken file ends the service"
vm_is plc-1 'vm["class"] == "plc"' || fail "a broken file changes classes"
until_so 10 status_says "/etc/punctual/host.d/broken.toml:3"
[ "$(journalctl --quiet --unit punctuald MESSAGE_ID=00eef034dca84ec0a359c263459b31d4 --output json |
    python3 -c 'import json, sys; print(json.loads(sys.stdin.readline())["PRIORITY"])')" = 3 ] ||
    fail "the journal does not say that the reload was refused"
step "a broken reload: exit code $code, $(show StatusText)"
rm /etc/punctual/host.d/broken.toml
systemctl reload punctuald || fail "systemctl reload fails"
until_so 10 status_says "Observes 3 VMs, 3 in a class"

journalctl --sync
journalctl --quiet --unit punctuald --output json | python3 -c '
import collections, json, sys
entries = [json.loads(line) for line in sys.stdin]
own = [entry for entry in entries if "PUNCTUAL_EVENT" in entry]
kinds = collections.Counter((entry["PUNCTUAL_EVENT"], entry["MESSAGE_ID"]) for entry in own)
assert {kind for kind, _ in kinds} >= {"started", "seen", "matched", "released", "reloaded"}, kinds
assert len(kinds) == len(dict(kinds)), kinds
matched = [entry for entry in own if entry["PUNCTUAL_EVENT"] == "matched"]
one = next(entry for entry in matched if entry["PUNCTUAL_ACTOR"] == "plc-1")
assert one["PUNCTUAL_CLASS"] == "plc" and int(one["PUNCTUAL_ACTOR_PID"]) > 1, one
assert one["SYSLOG_IDENTIFIER"] == "punctuald" and one["_SYSTEMD_UNIT"] == "punctuald.service", one
print(f"    journal: {dict((kind, count) for (kind, _), count in kinds.items())}")' ||
    fail "fields are missing in the journal"

[ "$(readlink -f $registry)" = $socket ] || fail "$registry is $(readlink -f $registry)"
if command -v varlinkctl >/dev/null; then
    for address in $socket $registry; do
        varlinkctl info "$address" >info.log || fail "varlinkctl info $address"
        grep -q io.punctual.Host info.log || { cat info.log; fail "varlinkctl info: no interface"; }
    done
    varlinkctl introspect $socket io.punctual.Host >introspect.log || fail "varlinkctl introspect"
    grep -q 'method Monitor' introspect.log || { cat introspect.log; fail "varlinkctl introspect"; }
    grep -q '"mode"' <<<"$(varlinkctl call $registry io.punctual.Host.Status '{}')" ||
        fail "varlinkctl call Status"
    [ "$(varlinkctl call --more --json=short $socket io.punctual.Host.List '{}' |
        grep -c '"actor"')" = 3 ] ||
        fail "varlinkctl call --more List"
    ! varlinkctl call $socket io.punctual.Host.Describe '{"name":"nobody"}' >error.log 2>&1 || fail "Describe"
    grep -q io.punctual.Host.NoSuchActor error.log || { cat error.log; fail "no name of the error"; }
    step "varlinkctl: info, introspect ($(grep -c '^method' introspect.log) methods), call, more, errors"
fi
as() { runuser --user "$1" -- "${@:2}"; }
[[ "$(as stranger python3 call.py io.punctual.Host.Status 2>&1)" == "Permission denied" ]] ||
    fail "a user outside of the group may connect"
! as stranger punctual status 2>stranger.log || fail "a user outside of the group reads"
[[ "$(as reader python3 call.py io.punctual.Host.Status)" == '{"parameters":{"host":'* ]] ||
    fail "a member of the group cannot read"
systemctl start punctual-enforce.service
as reader punctual status >/dev/null || fail "a member of the group cannot use punctual status"
systemctl stop punctual-enforce.service
[[ "$(as reader python3 call.py io.punctual.Host.Reload)" == *'"io.punctual.Host.NotPermitted"'* ]] ||
    fail "a member of the group may reload"
! as reader punctual serve --reload 2>reload.log || fail "a member of the group may reload"
step "users: $(cat stranger.log); reader: $(cat reload.log)"

# Prints a page as Python writes bytes.
get() { python3 -c 'import sys, urllib.request as web; print(web.urlopen(sys.argv[1]).read())' "$1"; }
up() { [[ "$(get http://127.0.0.1:9931/metrics 2>/dev/null)" == *'\npunctual_up 1\n'* ]]; }
page() { [[ "$(get http://127.0.0.1:9932/data.json 2>/dev/null)" == *'"is_connected":true'* ]]; }
systemctl enable --quiet --now punctual-metrics punctual-web
until_so 10 up
until_so 10 page
for unit in punctual-metrics punctual-web; do
    step "$unit runs as $(ps -o user= "$(systemctl show --property MainPID --value $unit)" | xargs):" \
        "$(systemd-analyze security --no-pager $unit.service | tail -1 | xargs)"
done
systemctl disable --quiet --now punctual-metrics punctual-web

state held
python3 - $KILLS <<'EOF'
import json, os, signal, subprocess, sys, time

def main_pid():
    return int(subprocess.check_output(["systemctl", "show", "--property=MainPID", "--value", "punctuald"]))

def status():
    done = subprocess.run(["punctual", "status", "--json"], capture_output=True, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else None

times_ms = []
for _ in range(int(sys.argv[1])):
    killed, start = main_pid(), time.monotonic()
    os.kill(killed, signal.SIGKILL)
    while not (answer := status()) or main_pid() in (0, killed):
        assert time.monotonic() - start < 60, "the service does not come back"
    times_ms.append((time.monotonic() - start) * 1000)
    vms = {vm["name"]: vm["class"] for vm in answer["actors"]}
    assert vms == {"relay": "hmi", "plc-1": "plc", "hmi-1": "hmi"}, vms
times_ms.sort()
print(f"    killed (-9) {len(times_ms)} times: it answers and knows all VMs after "
      f"{times_ms[len(times_ms) // 2]:.0f} ms at the median, {times_ms[-1]:.0f} ms at most")
EOF
[ "$(show NRestarts)" = $KILLS ] || fail "systemd counts $(show NRestarts) restarts"
state killed
diff held/threads killed/threads || fail "a kill changes threads of VMs"
step "kills: threads of VMs as before"

# Enforcement. The vCPU of plc-1 belongs to a unit while it is held.
process_of() {
    punctual status "$1" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["process"])'
}
plc=$(process_of plc-1)
unit_of_vcpu() {
    local thread
    for thread in /proc/"$plc"/task/*; do
        case $(cat "$thread/comm") in CPU*) cat "$thread/cgroup" ;; esac
    done
}
main_pid() { systemctl show --property MainPID --value "$1"; }
sed -i '1i mode = "enforce"' $configuration
systemctl reload punctuald || fail "systemctl reload fails with enforcement"
until_so 120 vm_is plc-1 'vm["state"] == "held" and vm["budgets"]'
until_so 120 vm_is hmi-1 'vm["state"] == "held"'
unit=$(unit_of_vcpu)
[[ "$unit" == */punctual-*-attached/unit* ]] || fail "the vCPU is in $unit"
status_says "held" || fail "StatusText: $(show StatusText)"
step "enforcement: $(show StatusText)"
punctual status plc-1 | sed 's/^/    /'
punctual admit plc | sed 's/^/    /' || fail "punctual admit"
for _ in 1 2 3; do
    kill -9 "$(main_pid punctuald)"
    sleep 1
    [ "$(unit_of_vcpu)" = "$unit" ] || fail "a kill of the service moves the vCPU to $(unit_of_vcpu)"
done
systemctl restart punctuald
until_so 60 vm_is plc-1 'vm["state"] == "held"'
[ "$(unit_of_vcpu)" = "$unit" ] || fail "a restart of the service moves the vCPU"
step "enforcement: kills and a restart of the service move nothing"
cat >>$configuration <<'EOF'
[class.tools]
match = [{ exec = "tool" }, { unit = "tap.service" }]
budget = "1ms"
period = "10ms"
priority = 9
EOF
systemctl reload punctuald || fail "systemctl reload fails with a class of units"
systemd-run --quiet --unit tap sleep 1000
punctual exec tool -- sleep 1001 &
tool=$!
scope=punctual-exec.tool.$tool.scope
until_so 60 vm_is tap.service 'vm["state"] == "held" and vm["kind"] == "unit"'
until_so 60 vm_is "$scope" 'vm["state"] == "held"'
grep -q "/$scope/punctual-.*-attached/unit" "/proc/$tool/cgroup" || fail "$(cat /proc/$tool/cgroup)"
step "enforcement: a service of systemd and a program of punctual exec are held"
# A disk's interrupts: the kernel manages those of its queues itself, the others go where the class says.
disk=$(basename "$(readlink -f /sys/block/vda/device/..)")
affinities() { (cd "/sys/bus/pci/devices/$disk/msi_irqs" && for irq in *; do
    echo "$irq $(cat "/proc/irq/$irq/smp_affinity_list")"
done); }
own=$(awk -v name="$(basename "$(readlink -f /sys/block/vda/device)")-config" '$NF == name { print $1 + 0 }' \
    /proc/interrupts)
affinities >affinities.before
printf '[class.disk]\nmatch = [{ interrupts = "%s" }]\ninterrupts = "host"\npool = "rt"\n' "$disk" \
    >>$configuration
systemctl reload punctuald || fail "systemctl reload fails with a class of interrupts"
is_on_host() { [ "$(cat "/proc/irq/$own/smp_affinity_list")" = 0 ]; }
until_so 60 is_on_host
step "enforcement: interrupt $own of $disk is on processor 0; $(wc -l <affinities.before) interrupts"
punctual status | sed -n '/^interrupts of/,/^$/s/^/    /p'
echo 0-1 >"/proc/irq/$own/smp_affinity_list"
until_so 10 is_on_host
step "enforcement: what another program moved is put back"
systemctl stop tap.service
kill "$tool"
tool_is_gone() { ! punctual status "$scope" >tool.log 2>&1; }
until_so 60 tool_is_gone
killed=$(main_pid punctual-enforce.service)
kill -9 "$killed"
start=$(date +%s%N)
held_by_another() {
    [ "$(main_pid punctual-enforce.service)" != "$killed" ] && vm_is plc-1 'vm["state"] == "held"'
}
until_so 120 held_by_another
ms=$((($(date +%s%N) - start) / 1000000))
step "enforcement: held again $ms ms after a kill of the enforcing process"
ended() {
    sed -i '/^mode = /d' $configuration
    systemctl reload punctuald || fail "systemctl reload fails"
    until_so 60 vm_is plc-1 'vm["state"] == "matched"'
    until_so 60 vm_is hmi-1 'vm["state"] == "matched"'
}
ended
same_threads() { state let-go && diff held/threads let-go/threads >threads.diff; }
until_so 60 same_threads
affinities | diff affinities.before - || fail "an interrupt is not where it was"
[ "$(cat /proc/sys/kernel/sched_rt_runtime_us)" = 950000 ] || fail "the kernel's limit is not put back"
step "enforcement: ended by a reload, and all threads are as before"
sed -i '1i mode = "enforce"' $configuration
systemctl reload punctuald || fail "systemctl reload fails"
virsh --quiet destroy plc-1
start=$(date +%s%N)
virsh --quiet create plc-1.xml
returned=$(date +%s%N)
until_so 120 vm_is plc-1 'vm["state"] == "held"'
held=$(date +%s%N)
step "enforcement: virsh create took $(((returned - start) / 1000000)) ms; held at most" \
    "$(((held - returned) / 1000000)) ms after it returned"
ended

touch /run/punctual/1.journal
systemctl stop punctuald
[ -e /run/punctual/1.journal ] || fail "the end of the service removes journals of live runs"
rm /run/punctual/1.journal
left=$(find /run/punctual -mindepth 1 ! -name enforce ! -name machine -printf '%P ')
[ "$left" = "lock " ] || fail "after the end of the service there is $left in /run/punctual"
! punctual status 2>stopped.log || fail "punctual status without the service"
step "stopped: $(cat stopped.log)"
systemctl start punctuald
until_so 60 vm_is plc-1 'vm["class"] == "plc"'

virsh --quiet destroy plc-1
virsh --quiet destroy hmi-1
virsh --quiet metadata relay --uri urn:punctual:actor:1 --remove --live
rm $configuration
gpasswd --delete reader punctual >/dev/null
apt remove punctual
! systemctl is-active --quiet punctuald || fail "the service runs after the removal"
state removed
# libvirt keeps a profile for each VM that it has started.
expected='\+punctual:x:[0-9]+:|\+[0-9a-f]+ +/etc/apparmor.d/libvirt/.*'
kept='.* /(etc|var/lib)/.*punctual.*|.* /etc/libvirt/hooks/qemu.d .*'
# Units stay enabled until the purge.
kept+='|\+punctual.* not-found inactive'
same removed "$kept|$expected"
step "removed: only configuration and state are left"
apt purge punctual
state purged
same purged "$expected"
step "purged: the machine is as before, but for the group"
