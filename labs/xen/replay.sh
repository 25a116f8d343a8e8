#!/usr/bin/env bash
# Are the decisions that policies make inside a real Xen those that they make here? Records every call of the
# scheduler in Xen, with every answer, under each policy, and makes the same calls here.
#
# usage: labs/xen/replay.sh
# exit: 0 every answer is the same; 1 one is not; 77 skipped: something is missing here. The trace is
# target/xen-lab/replay.out, its pool with the most decisions for ui.perfetto.dev replay.pftrace beside it.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=labs/xen/machine.sh
. labs/xen/machine.sh

prepare release
# shellcheck disable=SC2034 # for boot
seconds_max=1200 memory=2048 dom0="dom0_mem=1024M,max:1024M dom0_max_vcpus=1"
boot release replay "sched=punctual" "$parts/dom0/replay.sh" "$punctual"
"$punctual" xen replay "$lab/replay.out" --trace "$lab/replay.pftrace"
