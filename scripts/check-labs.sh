#!/usr/bin/env bash
# Does every lab end what it started when a signal ends it? Tools that a lab calls hang, beside an orphan that
# ignores signals in a session, a network namespace and a mount of its own; INT, TERM and HUP end the lab. And
# is a demo without results an error?
#
# usage: scripts/check-labs.sh
# exit: 0 nothing is left; 1 something is, or a script has a fault; 77 skipped: root or shellcheck is missing.
# A lab that this machine lacks something for is named and not tried.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v shellcheck >/dev/null || { echo "check-labs: skipped: shellcheck is missing"; exit 77; }
unshare --net --mount true 2>/dev/null || { echo "check-labs: skipped: namespaces need root"; exit 77; }

# SC2317: functions that a word of the command line calls.
shellcheck --external-sources --exclude=SC2317 labs/*.sh labs/*/*.sh scripts/*.sh kernel/*.sh .ci/run
# Whether the patches apply and compile is left to `labs/lab host-stack kernels`: the source is 150 MB.
git apply --numstat kernel/*.patch >/dev/null

work=$(mktemp -d)
orphans() {
    local orphan
    # shellcheck disable=SC2013  # Words.
    for orphan in $(cat "$work/orphans" 2>/dev/null); do [ ! -d "/proc/$orphan" ] || echo "$orphan"; done
}
trap 'orphans | xargs -r kill -KILL; rm -rf "$work"' EXIT
mkdir "$work"/{tmp,bin}
cat >"$work/bin/hangs" <<HANGS
#!/bin/bash
trap '' INT TERM HUP
touch "\$TMPDIR/file"
setsid unshare --net --mount sh -c 'echo \$\$ >>$work/orphans
    mount -t tmpfs none /mnt && touch $work/hangs
    while :; do sleep 1; done' >/dev/null 2>&1 </dev/null &
sleep 1000
HANGS
chmod +x "$work/bin/hangs"
for tool in cargo apt-get cc qemu-system-x86_64 dpkg-source busybox cpio xz modinfo objcopy; do
    ln -s hangs "$work/bin/$tool"
done

# ends SIGNAL VARIABLE=VALUE... labs/lab NAME MODE
ends() {
    local signal=$1 lab left code=0
    shift
    rm -f "$work"/{hangs,orphans}
    env LAB_GRACE_S=1 TMPDIR="$work/tmp" PATH="$work/bin:$PATH" "$@" >"$work/output" 2>&1 </dev/null &
    lab=$!
    for _ in $(seq 300); do
        if [ -e "$work/hangs" ] || ! kill -0 "$lab" 2>/dev/null; then break; fi
        sleep 0.1
    done
    [ -e "$work/hangs" ] || {
        wait "$lab" || code=$?
        echo "$*: it ends with $code before it calls a tool:"
        cat "$work/output"
        [ "$code" = 77 ]
        return
    }
    kill -s "$signal" "$lab"
    wait "$lab" || code=$?
    [ "$code" = $((128 + $(kill -l "$signal"))) ] || { echo "$*: exit code $code after $signal"; return 1; }
    left=$(orphans; ls "$work/tmp")
    [ -z "$left" ] || { echo "$*: processes or files are left after $signal: $left"; return 1; }
}

failed=0
for signal in INT TERM HUP; do
    for lab in "host-stack measure" "kernel tests" "live standstill" "sockets programs" "switch programs" \
        "xen demo"; do
        # shellcheck disable=SC2086  # A lab and its mode.
        ends $signal labs/lab $lab || failed=1
    done
    ends $signal PATH="$PATH" PUNCTUAL="$work/bin/hangs" labs/lab live isolation || failed=1
done
! python3 labs/xen/demo.py 2>/dev/null || { echo "labs/xen/demo.py: no error without results"; failed=1; }
[ $failed = 0 ] && echo "6 labs, 3 signals: nothing is left"
exit $failed
