#!/usr/bin/env bash
# RT-Xen's Table 1 in a real Xen, in counted instructions: five guests with its task sets (even share, 70 %
# load), how often each policy decides and switches in 10 s, and what that takes, beside the figures of paper
# and simulator.
#
# usage: labs/xen/overhead.sh [POLICY]...
# exit: 0 it was measured, 1 not; 77 skipped: something is missing here.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=labs/xen/machine.sh
. labs/xen/machine.sh

[ $# -gt 0 ] || set -- deferrable periodic polling sporadic credit sedf own-rtds
prepare count
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
strip -o "$work/punctual" "$punctual"
cat papers/rt-xen/even.toml "$parts/manager.toml" > "$work/host.toml"
# shellcheck disable=SC2034 # for boot
memory=2048 seconds_max=900
status=0
python3 "$parts/overhead.py"
for policy; do
    name=overhead-$policy options=sched=punctual
    case $policy in own-*) options=$own=${policy#own-} ;; esac
    echo "--policy ${policy#own-}" > "$work/line"
    boot count "$name" "$options" "$parts/dom0/overhead.sh" "$work/host.toml" "$work/line" "$work/punctual"
    "$punctual" sim "$work/host.toml" --policy "${policy#own-}" --seed 1 --duration 10s --json > "$work/sim"
    python3 "$parts/overhead.py" "$policy" "$work/sim" "$lab/$name.log" || status=1
done
exit $status
