#!/usr/bin/env bash
# A paper's experiments in guests of a real Xen in QEMU, beside simulation and paper.
#
# usage: labs/xen/reproduce.sh rt-xen|nautilus [own-rtds|own-credit] [OPTION of `punctual reproduce`]...
# example: labs/xen/reproduce.sh nautilus own-rtds --quick
# exit: 0 it ran, 1 it did not; 77 skipped: something is missing here, which it says.
#
# Under Punctual's scheduler, or as it is said under Xen's own RTDS or Credit (nautilus alone; a configuration
# with another scheduler is left out then). The output stays in target/xen-lab.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=labs/xen/machine.sh
. labs/xen/machine.sh

paper=${1:?"a paper is missing: rt-xen or nautilus"}
shift
options=sched=punctual name=reproduce-$paper
case ${1:-} in
    own-*)
        options=$own=${1#own-} name+=-$1
        shift
        ;;
esac
# A processor that halts leaves its time to the other one, which makes it faster: no matter to cyclictest,
# whose tasks hardly execute.
[ "$paper" != nautilus ] || several 2
prepare release
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo "$paper $*" > "$work/line"
cp "$punctual" "$work/punctual"
# shellcheck disable=SC2034 # for boot
memory=2048 seconds_max=7200
boot release "$name" "$options" "$parts/dom0/reproduce.sh" "$work/line" "$work/punctual"
[ -s "$lab/$name.out" ] || { echo "xen-reproduce: no result; see $lab/$name.log" >&2; exit 1; }
cat "$lab/$name.out"
