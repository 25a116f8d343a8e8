#!/usr/bin/env bash
# Checks metrics, alerts and dashboard with Debian's Prometheus: the rules by their own tests, the metrics by
# promtool, and all of it together on real VMs under enforcement: Prometheus scrapes the service, every query
# of the dashboard has data, and seven of the eight alerts fire, each for a cause that is made on purpose.
# Here they wait for seconds instead of minutes. Only a hypervisor below can cause what PunctualStolen is
# about.
#
# exit: 0 all of that holds, 1 something does not, 77 skipped: something is missing here, which is said.
set -euo pipefail
cd "$(dirname "$0")/.."
target="$(mkdir -p "${CARGO_TARGET_DIR:-target}" && cd "${CARGO_TARGET_DIR:-target}" && pwd)"
tools=$target/check-monitoring
work="$(mktemp -d)"
started=()
# A VM that is stopped ends as well.
trap 'kill -CONT "${started[@]}" 2>/dev/null; kill "${started[@]}" 2>/dev/null; wait; rm -rf "$work"' EXIT

skip() {
    echo "check-monitoring: skipped: $1" >&2
    exit 77
}

fail() {
    tail -n 20 "$work"/*.log >&2
    echo "check-monitoring: $1" >&2
    exit 1
}

[ "$(id -u)" = 0 ] || skip "VMs are put under enforcement, which takes root"
command -v qemu-system-x86_64 >/dev/null || skip "a VM is needed (Debian: apt install qemu-system-x86)"
if command -v prometheus promtool >/dev/null; then
    bin=$(dirname "$(command -v prometheus)")
else
    # Not installed: the package would start a server.
    bin=$tools/usr/bin
    if [ ! -x "$bin/promtool" ]; then
        (mkdir -p "$tools" && cd "$tools" && apt-get -qq -o APT::Sandbox::User=root download prometheus &&
            dpkg-deb -x prometheus_*.deb .) || skip "Debian's package prometheus cannot be downloaded here"
    fi
fi
{
    "$bin/promtool" check rules packaging/prometheus/punctual.rules.yml
    "$bin/promtool" test rules packaging/prometheus/punctual.tests.yml
} >"$work/rules.log" 2>&1 || fail "a rule is wrong, or the wrong alert fires"

while read -r name; do
    grep -q "\`${name%_bucket}\`" docs/service.md || fail "docs/service.md has no metric $name"
done < <(grep -oh 'punctual_[a-z_]*' packaging/prometheus/punctual.{rules.yml,dashboard.json} | sort -u)

# With the examples, the features are those of the tests: nothing that they built is built again.
cargo build --quiet --locked --workspace --all-features --bins --examples
punctual=$target/debug/punctual
mkdir -p "$work/etc" "$work/run"
cat >"$work/etc/host.toml" <<'END'
mode = "enforce"

[pool.rt]
processors = [1]
policy = "deferrable"

[class.relay]
match = [{ name = "relay-*" }]
budget = "2ms"
period = "10ms"
priority = 1

[class.busy]
match = [{ name = "busy-*" }]
budget = "2ms"
period = "10ms"
priority = 2

[class.greedy]
match = [{ name = "greedy-*" }]
budget = "9ms"
period = "10ms"
priority = 0
END
# Guests of one sector: one sleeps from tick to tick (sti; hlt; jmp), one never does (jmp).
guest() { head -c 510 <(printf '%b' "$1" && head -c 510 /dev/zero) && printf '\x55\xaa'; }
guest '\xfb\xf4\xeb\xfd' >"$work/ticks.img"
guest '\xeb\xfe' >"$work/spins.img"
# Waits of seconds and windows of seconds, as causes are made one after the other.
sed -E 's/for: [0-9]+m/for: 1s/; s/\[5m\]/[10s]/' packaging/prometheus/punctual.rules.yml >"$work/rules.yml"

# start LOG COMMAND...: in the background, until the end.
start() {
    local log=$work/$1
    shift
    "$@" >"$log" 2>&1 </dev/null &
    started+=($!)
}

# wait_for WHAT COMMAND...: until the command succeeds, 30 s at most.
wait_for() {
    local what=$1 end=$((SECONDS + 30))
    shift
    until "$@" 2>/dev/null; do
        [ $SECONDS -lt $end ] || fail "$what: not within 30 s"
        sleep 0.2
    done
}

start enforce.log "$punctual" enforce --run "$work/run" --grace 2
wait_for "the enforcing process" test -S "$work/run/punctual/enforce"
start serve.log "$punctual" serve --config "$work/etc" --run "$work/run"
service=${started[-1]}
# vm NAME GUEST: a VM that runs one of these guests.
vm() {
    start "$1.log" qemu-system-x86_64 -name "$1,debug-threads=on" -accel tcg -display none -nodefaults -m 64 \
        -drive "file=$work/$2.img,format=raw,snapshot=on"
}
vm relay-1 ticks
relay=${started[-1]}
vm busy-1 spins
start exporter.log "$punctual" status --run "$work/run" --metrics --listen 127.0.0.1:0
wait_for "the exporter" grep -q http "$work/exporter.log"
url=$(sed -n 's/^metrics are at //p' "$work/exporter.log")
held() { grep -q '^punctual_vcpu_delivered_ratio' <<<"$("$punctual" status --run "$work/run" --metrics)"; }
wait_for "the VM under enforcement" held
"$punctual" status --run "$work/run" --metrics | "$bin/promtool" check metrics >"$work/metrics.log" 2>&1 ||
    fail "promtool finds fault with the metrics"

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
cat >"$work/prometheus.yml" <<END
global: { scrape_interval: 1s, evaluation_interval: 1s }
rule_files: [$work/rules.yml]
scrape_configs:
  - { job_name: punctual, static_configs: [{ targets: ["$(cut -d/ -f3 <<<"$url")"] }] }
END
start prometheus.log "$bin/prometheus" --config.file="$work/prometheus.yml" --storage.tsdb.path="$work/data" \
    --web.listen-address="127.0.0.1:$port"
# has EXPRESSION: there is a sample of it.
has() { [ -n "$("$bin/promtool" query instant "http://127.0.0.1:$port" "$1")" ]; }
wait_for "Prometheus scrapes" has 'up == 1 and on() punctual_up == 1'
python3 - packaging/prometheus/punctual.dashboard.json >"$work/queries" <<'END'
import json, sys

for panel in json.load(open(sys.argv[1]))["panels"]:
    for query in panel["targets"]:
        print(query["expr"].replace("$__rate_interval", "1m").replace("$domain", ".*"))
END
while read -r query; do
    wait_for "data for $query" has "$query"
done <"$work/queries"

fires() { has "ALERTS{alertname=\"$1\",alertstate=\"firing\"${2:+,$2}}"; }
is_quiet() { ! fires "$@"; }
alerts=0
# expect ALERT [LABELS]: it does not fire yet; then, by what `cause` does, it fires.
expect() {
    wait_for "$1{${2-}} is quiet" is_quiet "$@"
    cause
    wait_for "$1{${2-}} fires" fires "$@"
    alerts=$((alerts + 1))
}

cause() { kill -STOP "$relay"; }
expect PunctualHeldBack 'cause="stopped",domain="relay-1"'
kill -CONT "$relay"

cp "$work/etc/host.toml" "$work/host.toml"
cause() { echo 'mode = "sometimes"' >"$work/etc/host.toml" && kill -HUP "$service"; }
expect PunctualReloadFailed
cp "$work/host.toml" "$work/etc/host.toml"
kill -HUP "$service"
wait_for "PunctualReloadFailed ends" is_quiet PunctualReloadFailed

# A real-time thread above all VMs has their processor 8 ms of 10.
cause() {
    start spinner.log chrt -f 98 taskset -c 1 timeout 90 python3 -c '
import time
while True:
    end = time.monotonic() + 0.008
    while time.monotonic() < end:
        pass
    time.sleep(0.002)'
    spinner=${started[-1]}
}
expect PunctualPreempted 'cause="other-thread",domain="relay-1"'
wait_for "PunctualWakeupLatency{relay-1} fires" fires PunctualWakeupLatency 'domain="relay-1"'
wait_for "PunctualBudgetShort{busy-1} fires" fires PunctualBudgetShort 'domain="busy-1"'
alerts=$((alerts + 2))
kill "$spinner"

# A VM of more budget than is left, and more urgent than the others.
cause() { vm greedy-1 spins; }
expect PunctualPreempted 'cause="preempted-by-unit",domain="busy-1"'
wait_for "PunctualNotGuaranteed fires" fires PunctualNotGuaranteed
alerts=$((alerts + 1))

cause() { kill "$service"; }
expect PunctualDown
echo "check-monitoring: $(wc -l <"$work/queries") queries have data, $alerts alerts fire for their causes"
