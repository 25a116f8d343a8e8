#!/usr/bin/env bash
# Checks metrics, alerts and dashboard with Debian's Prometheus: the rules by their own tests, the metrics by
# promtool, and all of it together on a real VM under enforcement: Prometheus scrapes the service, every query
# of the dashboard has data, a VM that is stopped and a service that is gone raise their alerts.
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
END

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
# The firmware finds nothing to boot from, and looks again and again.
start vm.log qemu-system-x86_64 -name relay-1,debug-threads=on -accel tcg -display none -nodefaults -m 64
vm=${started[-1]}
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
rule_files: [$PWD/packaging/prometheus/punctual.rules.yml]
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

kill -STOP "$vm"
wait_for "the alert of a VM that is stopped" has 'ALERTS{alertname="PunctualHeldBack",cause="stopped"}'
kill -CONT "$vm"
has 'ALERTS{alertname="PunctualDown"}' && fail "PunctualDown fires although the service answers"
kill "$service"
wait_for "the alert of a service that is gone" has 'ALERTS{alertname="PunctualDown"}'
echo "check-monitoring: $(wc -l <"$work/queries") queries have data, and the alerts come"
