#!/usr/bin/env bash
# Starts a service with VMs that are look-alikes (shells with the command line of QEMU), and opens its page in
# a browser.
#
# usage: scripts/check-report/web.sh PUNCTUAL CHROMIUM [SCREENSHOTS]
#   With SCREENSHOTS, a folder, it tests nothing and takes pictures of the page after five minutes.
#   NODE_PATH has playwright-core and axe-core.
# exit: 0 everything is good, 1 something is not.
set -euo pipefail
punctual=$1 chromium=$2 pictures=${3:-}
parts="$(cd "$(dirname "$0")" && pwd)"
work="$(mktemp -d)"
# What is started is ended without a word.
started=()
trap 'kill -KILL "${started[@]}" 2>/dev/null; rm -rf "$work"' EXIT
mkdir -p "$work/etc" "$work/run"
: >"$work/web.log"
cat >"$work/etc/host.toml" <<'END'
[pool.rt]
processors = [0]
policy = "deferrable"

[class.relay]
match = [{ name = "relay-*" }]
pool = "rt"
budget = "5ms"
period = "10ms"
priority = 1
END

# Nothing ever comes from there: a way to sleep without another process.
mkfifo "$work/never"
exec 3<>"$work/never"
# vm NAME SCRIPT: a vCPU on processor 0 that does what the script says.
vm() {
    (
        taskset -pc 0 $BASHPID
        exec -a /usr/bin/qemu-system-x86_64 bash -c "printf 'CPU 0/KVM' >/proc/\$\$/comm; $2" sh \
            -name "guest=$1,debug-threads=on"
    ) </dev/null >/dev/null 2>&1 &
    disown
    started+=($!)
}

spin='for ((i = 0; i < 2000; i++)); do :; done'
"$punctual" serve --config "$work/etc" --run "$work/run" 2>"$work/serve.log" &
service=$!
disown
started+=("$service")
vm relay-feeder "while :; do $spin; read -rt 0.01 -u 3 || :; done"
vm web-7 "while :; do $spin; $spin; read -rt 0.02 -u 3 || :; done"
if [ -z "$pictures" ]; then
    vm '<script>document.title = "bad"; alert(1)</script>' 'read -r -u 3'
    vm "$(printf 'x%.0s' {1..10000})" 'read -r -u 3'
else
    vm hmi "while :; do $spin; read -rt 0.2 -u 3 || :; done"
    vm archive "while :; do $spin; $spin; $spin; read -rt 0.05 -u 3 || :; done"
fi
"$punctual" status --run "$work/run" --web 127.0.0.1:0 >"$work/web.log" &
disown
started+=($!)
for _ in {1..100}; do
    url="$(sed -n 's/^the page is at //p' "$work/web.log")"
    [ -z "$url" ] || break
    sleep 0.1
done
# A picture has a history.
[ -z "$pictures" ] || sleep 310
node "$parts/web.js" "$chromium" "$url" "$service" $pictures
