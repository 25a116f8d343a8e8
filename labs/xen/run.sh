#!/usr/bin/env bash
# A host file on a real Xen: boots Xen with xen/sched_punctual.c in QEMU, runs the file there in guests under
# each policy, and prints what was simulated and what Xen did beside each other.
#
# usage: labs/xen/run.sh [HOST.toml [POLICY]...]
# example: labs/xen/run.sh host.toml deferrable rtds
# exit: 0 it ran, 1 it did not; 77 skipped: something is missing here, which it says.
#
# Without a file it is labs/xen/hosts/three.toml, without a policy deferrable, periodic, sporadic and rtds;
# `own-rtds` and `own-credit` are Xen's own. The results stay in target/xen-lab.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=labs/xen/machine.sh
. labs/xen/machine.sh

host=${1:-$parts/hosts/three.toml}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- deferrable periodic sporadic rtds
prepare release
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0
in_guests release host "$host" "" "$@" || status=1
for policy; do
    [ -e "$lab/host-$policy.json" ] || continue
    "$punctual" sim "$host" --policy "${policy#own-}" --label "simulated-$policy" --json > "$work/sim.json"
    "$punctual" compare "$work/sim.json" "$lab/host-$policy.json" || [ $? -eq 1 ]
done
exit $status
