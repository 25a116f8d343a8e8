#!/usr/bin/env bash
# Runs the live tests under other kernels: Debian's newest with real KVM (nested), and with PREEMPT_RT.
#
# usage: labs/kernel/tests.sh [cloud|rt]
# exit: 0 all passed, 77 skipped because something is missing, which is said, else failed.
#
# Minutes, so no step of the gate. Both machines are translated by QEMU: an instruction takes some 20 times as
# long. What is left out below is said with the reason.
# environment: TIMEOUT_S (900), for each program of tests
set -euo pipefail
cd "$(dirname "$0")/../.."

echo "building the tests ..."
tests=(live live_faults live_limits live_kvm)
mapfile -t programs < <(cargo test --locked -p punctual "${tests[@]/#/--test=}" --no-run 2>&1 |
    tee /dev/stderr | sed -n 's/^ *Executable .*(\(.*\))$/\1/p')
[ ${#programs[@]} = ${#tests[@]} ] || { echo "expected programs of ${tests[*]}: ${programs[*]}" >&2; exit 1; }

short="it judges shares of slices of 1 ms, and a look takes longer here"
image="it needs the image of VMs, which this machine cannot fetch, or boots it, which takes minutes here"
left_out=(
    "credit_with_short_slices_shares_the_processor: $short"
    "a_vm_that_is_killed_is_named_and_the_others_are_measured: $image"
    "vms_that_do_not_boot_are_named_and_the_others_are_measured: $image"
    "where_no_guest_boots_the_run_ends_with_the_first_ones_name_and_nothing_is_left: $image")
printf 'left out: %s\n' "${left_out[@]}"
skip=("${left_out[@]%%:*}")

failed=0
for kernel in ${1:-cloud rt}; do
    for program in "${programs[@]}"; do
        echo "== $kernel: $(basename "$program")"
        code=0
        # What is skipped is said by the tests themselves, hence --nocapture.
        TIMEOUT_S=${TIMEOUT_S:-900} labs/kernel/run.sh --kernel "$kernel" "$program" --test-threads=1 \
            --nocapture "${skip[@]/#/--skip=}" || code=$?
        [ "$code" != 77 ] || exit 77
        [ "$code" = 0 ] || { failed=1 && echo "== $kernel: $(basename "$program") failed ($code)"; }
    done
done
exit $failed
