#!/usr/bin/env bash
# Runs the live tests under other kernels: Debian's newest with real KVM (nested), and with PREEMPT_RT.
#
# usage: scripts/live-kernels.sh [cloud|rt]
# exit: 0 all passed, 77 skipped because something is missing, which is said, else failed.
#
# Minutes, so no step of the gate. Both machines are translated by QEMU: an instruction takes some 20 times as
# long, so tests that judge shares of slices of 1 ms are left out below, and those that boot VMs with Linux.
set -euo pipefail
cd "$(dirname "$0")/.."

echo "building the tests ..."
tests=(--test live --test live_faults --test live_kvm)
mapfile -t programs < <(cargo test --locked -p punctual "${tests[@]}" --no-run 2>&1 | tee /dev/stderr |
    sed -n 's/^ *Executable .*(\(.*\))$/\1/p')
[ ${#programs[@]} = 3 ] || { echo "expected three programs of tests, got: ${programs[*]}" >&2; exit 1; }

# Each of these needs looks within a millisecond, or a VM with Linux, which boots for minutes here.
left_out=(credit_with_short_slices_shares_the_processor
    a_vm_that_is_killed_ends_the_run_with_its_name
    a_guest_that_does_not_boot_ends_the_run_with_its_name_and_nothing_is_left)

failed=0
for kernel in ${1:-cloud rt}; do
    for program in "${programs[@]}"; do
        echo "== $kernel: $(basename "$program")"
        code=0
        TIMEOUT_S=${TIMEOUT_S:-900} scripts/host-lab.sh --kernel "$kernel" "$program" --test-threads=1 \
            "${left_out[@]/#/--skip=}" || code=$?
        [ "$code" != 77 ] || exit 77
        [ "$code" = 0 ] || failed=1
    done
done
exit $failed
