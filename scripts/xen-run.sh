#!/usr/bin/env bash
# A host file on a real Xen: boots Xen with xen/sched_punctual.c in QEMU, runs the file there in guests under
# each policy, and prints what was simulated and what Xen did beside each other.
#
# usage: scripts/xen-run.sh [HOST.toml [POLICY]...]
# example: scripts/xen-run.sh host.toml deferrable rtds
# exit: 0 it ran, 1 it did not; 77 skipped: something is missing here, which it says.
#
# Without a file it is scripts/xen/hosts/three.toml, without a policy deferrable, periodic, sporadic and rtds.
# The results stay in target/xen-lab.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/xen/lab.sh
. scripts/xen/lab.sh

host=${1:-$parts/hosts/three.toml}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- deferrable periodic sporadic rtds
prepare release
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$host" "$work/host.toml"
for policy; do echo "xen-$policy host.toml --policy $policy"; done > "$work/runs"
strip -o "$work/punctual" "$punctual"
seconds_max=$((300 + 400 * $#))
boot release host "sched=punctual" "$parts/host.sh" "$work/host.toml" "$work/runs" "$work/punctual"
status=0
for policy; do
    if ! result host "$policy" > "$lab/host-$policy.json"; then
        echo "xen-run: $policy: no result; see $lab/host.log" >&2
        status=1
        continue
    fi
    "$punctual" sim "$host" --policy "$policy" --label "simulated-$policy" --json > "$work/sim.json"
    "$punctual" compare "$work/sim.json" "$lab/host-$policy.json" || [ $? -eq 1 ]
done
exit $status
