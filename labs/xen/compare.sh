#!/usr/bin/env bash
# Does Xen do what the simulator says? Host files in guests of a real Xen in QEMU, under every policy and
# under Xen's own RTDS and Credit: shares of the processor and response times, simulated and in Xen.
#
# usage: labs/xen/compare.sh [CASE[:POLICY,...]]...
# example: labs/xen/compare.sh short:rtds,own-rtds pools
# exit: 0 each share is within a point of the simulator's; 1 one is not, or a run failed; 77 skipped:
# something is missing here, which it says.
#
# A case is a file of labs/xen/hosts, or `three-late`: three.toml with all jobs later. Without one all of
# them are run. `own-rtds` and `own-credit` are Xen's. The tables are Markdown; the results stay in
# target/xen-lab. Simulated is each host twice: as its file says, and with what jobs and domain 0 took in Xen
# beyond that (labs/xen/costs.py); under Credit also at other phases between its ticks and the jobs.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=labs/xen/machine.sh
. labs/xen/machine.sh

every=deferrable,periodic,polling,sporadic,sedf,rtds,own-rtds,credit,own-credit
[ $# -gt 0 ] || set -- three three-late short five two-processors four pools
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# What is changed in a case's file, as words of a command line.
words_of() {
    case $1 in
        three-late) echo "--set domain.control.task.loop.offset=4ms" \
            "--set domain.video.task.frame.offset=15ms" ;;
    esac
}

file_of() { echo "$parts/hosts/${1%-late}.toml"; }

compare() {
    local case=$1 policy all args=() words phases build=release
    IFS=, read -ra all <<< "$2"
    one_processor
    if grep -q '^processors = 2$' "$(file_of "$case")"; then
        several 2
        build=poll
    fi
    in_guests "$build" "compare-$case" "$(file_of "$case")" "$(words_of "$case")" "${all[@]}" || status=1
    for policy in "${all[@]}"; do
        [ -e "$lab/compare-$case-$policy.json" ] || continue
        # shellcheck disable=SC2046,SC2207 # words
        words=("$(file_of "$case")" $(words_of "$case") --policy "${policy#own-}")
        "$punctual" sim "${words[@]}" --json > "$work/$policy.json"
        # shellcheck disable=SC2046,SC2207 # words
        words+=($(python3 "$parts/costs.py" "$(file_of "$case")" "$lab/compare-$case-$policy.json"))
        "$punctual" sim "${words[@]}" --json > "$work/$policy-costs.json"
        phases=-
        if [ "${policy#own-}" = credit ]; then
            phases=$work/$policy-phases.json
            python3 "$parts/phases.py" "$punctual" "${words[@]}" > "$phases"
        fi
        args+=("$policy" "$work/$policy.json" "$work/$policy-costs.json" "$phases"
            "$lab/compare-$case-$policy.json")
    done
    python3 "$parts/compare.py" "$case" "${args[@]}" || status=1
}

builds=()
for choice; do
    case ${choice%%:*} in
        two-processors | four | pools) builds+=(poll) ;;
        *) builds+=(release) ;;
    esac
done
mapfile -t builds < <(printf '%s\n' "${builds[@]}" | sort -u)
prepare "${builds[@]}"
status=0
for choice; do
    chosen=$every
    [ "$choice" = "${choice#*:}" ] || chosen=${choice#*:}
    compare "${choice%%:*}" "$chosen"
done
exit $status
