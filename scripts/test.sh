#!/usr/bin/env bash
# Everything that must hold, each step with its time and processor time; the summary comes last.
#
# usage: scripts/test.sh
# exit: 0 every step passed or was skipped, 1 a step failed.
#
# Every scripts/check-*.sh is a step of its own: it exits with 0 (passed), 77 (skipped: something it needs is
# missing here, which it says) or anything else (failed). With PUNCTUAL_NO_SKIP=1 a skipped step is a failed
# one, but for the one that PUNCTUAL_MAY_SKIP names.
set -euo pipefail
cd "$(dirname "$0")/.."

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
# What runs beside other steps does not hear of Ctrl-C by itself.
trap 'trap - INT TERM; kill -TERM 0' INT TERM

# Of the packages that checks install, most modules are never loaded: pip compiles none of them in advance.
export PIP_COMPILE=0

# Runs a step; its verdict is a line of the summary. A step that hangs is ended after LIMIT_S seconds.
step() {
    local name=$1 code=0 start=$SECONDS verdict
    shift
    printf '\n== %s\n' "$name"
    CPU="$work/cpu-$name" scripts/limit.py "${LIMIT_S:-900}" "$@" || code=$?
    case $code in
        0) verdict=passed ;;
        77) [ "$name" = "${PUNCTUAL_MAY_SKIP:-}" ] && verdict=missing || verdict=skipped ;;
        *) verdict=FAILED ;;
    esac
    printf '%-8s %5d s %5d s  %s\n' "$verdict" $((SECONDS - start)) "$(cat "$work/cpu-$name")" "$name" \
        >>"$work/summary"
}

# The same for a step that runs beside others: what it prints comes at its end, in one piece.
step_beside() {
    local output
    output="$(mktemp -p "$work")"
    step "$@" >"$output" 2>&1
    (flock 9 && cat "$output") 9>>"$work/lock"
}

step format scripts/format.sh --check
step clippy cargo clippy --workspace --all-features --all-targets --locked --quiet -- -D warnings
# Tests that change or measure the machine judge times: nothing else runs beside them. Each test program has a
# limit of its own, far above what it needs.
host="$(rustc -vV | sed -n 's/^host: //p')"
runner="CARGO_TARGET_$(tr 'a-z-' 'A-Z_' <<<"$host")_RUNNER"
machine='punctual(-(doctor|enforce|linux|run|service|sockets|switch|vm|xen-run)/.*|/(live.*|switch_reload))'
tests=(env TIMES="$work/times" "$runner=$PWD/scripts/limit.py 400" cargo test --workspace --all-features
    --locked --quiet --no-fail-fast)
# Meanwhile, what needs no second processor has what these tests leave of processor 0: anything else that
# wants it has it at once (SCHED_IDLE), and real-time threads run on processor 1 alone.
{
    export MEANWHILE="$work/machine-done" LIMIT_S=2400
    step_beside "building check-fuzz" scripts/check-fuzz.sh --build
    step_beside documentation env RUSTDOCFLAGS="-D warnings" \
        cargo doc --workspace --all-features --no-deps --locked --quiet
} &
meanwhile=$!
PROGRAMS=$machine LIMIT_S=2400 step "tests of the machine" "${tests[@]}" --tests
touch "$work/machine-done"
# Most checks wait for a browser, Python or a download and take one processor at most; builds and the other
# tests go on beside.
PROGRAMS=!$machine step_beside "other tests" "${tests[@]}" &
pure=$!
{
    step_beside check-report scripts/check-report.sh
    step_beside check-python scripts/check-python.sh
} &
longest=$!
for check in scripts/check-*.sh; do
    case $check in
        */check-fuzz.sh | */check-report.sh | */check-python.sh) ;;
        *) step_beside "$(basename "$check" .sh)" "$check" ;;
    esac
done
wait "$meanwhile" "$pure" "$longest"
step check-fuzz scripts/check-fuzz.sh

printf '\nThe test programs that took longest:\n'
sort -rn "$work/times" | sed -n 1,12p
printf '\n'
cat "$work/summary"
failures=(FAILED)
[ "${PUNCTUAL_NO_SKIP:-}" != 1 ] || failures+=(skipped)
! grep -q "${failures[@]/#/-e^}" "$work/summary"
