#!/usr/bin/env bash
# What the scheduler costs in a real Xen, in counted instructions: Punctual's RTDS beside Xen's own on the
# same work, and other policies beside them.
#
# usage: labs/xen/cost.sh [POLICY[,OPTION=VALUE...]|own]...
# exit: 0 it was measured, 1 not; 77 skipped: something is missing here.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=labs/xen/machine.sh
. labs/xen/machine.sh

[ $# -gt 0 ] || set -- own rtds deferrable periodic polling sporadic sedf
prepare count
for choice; do
    name=cost-${choice//[^a-z0-9]/-}
    case $choice in
        own) boot count "$name" "$own=rtds" "$parts/dom0/cost.sh" ;;
        *) boot count "$name" "sched=punctual sched_punctual=$choice" "$parts/dom0/cost.sh" ;;
    esac
    python3 "$parts/cost.py" "$choice" "$lab/$name.log"
done
