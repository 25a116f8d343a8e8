#!/usr/bin/env bash
# Everything that must hold, each step with its time; the summary comes last.
#
# usage: scripts/test.sh
# exit: 0 every step passed or was skipped, 1 a step failed.
#
# Every scripts/check-*.sh is a step of its own: it exits with 0 (passed), 77 (skipped: something it needs is
# missing here, which it says) or anything else (failed). With PUNCTUAL_NO_SKIP=1 a skipped step is a failed
# one.
set -euo pipefail
cd "$(dirname "$0")/.."

summary=()
failed=0

step() {
    local name=$1 code=0 start=$SECONDS verdict
    shift
    printf '\n== %s\n' "$name"
    "$@" || code=$?
    case $code in
        0) verdict=passed ;;
        77) verdict=skipped; [ "${PUNCTUAL_NO_SKIP:-}" != 1 ] || failed=1 ;;
        *) verdict=FAILED; failed=1 ;;
    esac
    summary+=("$(printf '%-8s %5d s  %s' "$verdict" $((SECONDS - start)) "$name")")
}

step format scripts/format.sh --check
step clippy cargo clippy --workspace --all-features --all-targets --locked --quiet -- -D warnings
step documentation env RUSTDOCFLAGS="-D warnings" \
    cargo doc --workspace --all-features --no-deps --locked --quiet
step tests cargo test --workspace --all-features --locked --quiet --no-fail-fast
for check in scripts/check-*.sh; do
    step "$(basename "$check" .sh)" "$check"
done

printf '\n'
printf '%s\n' "${summary[@]}"
exit $failed
