#!/bin/sh
# Imports the files of other projects and writes what became of each: a file of a known format is imported, or
# refused with a message. It is no test, because nothing here says which of the two is right.
#
# usage: scripts/try-imports.sh DIRECTORY... >table.tsv
#   DIRECTORY  for example a clone of libvirt (tests/qemuxmlconfdata), virt-manager (tests/data), rt-app
#              (doc/examples), LISA, Xen (docs, tools/examples) or SchedCAT (example)
# columns: file, format, "imported", "refused" or "failed", number of notes, first message
# exit: 0; 1: the program ended otherwise than with a host file or a message; 2: usage
set -eu
[ $# -gt 0 ] || {
    sed -n 's/^# usage: /usage: /p' "$0" >&2
    exit 2
}
punctual="${PUNCTUAL:-$(dirname "$0")/../target/debug/punctual}"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

# The format of a file by what is in it; nothing for a file of no format.
format() {
    case "$1" in
    *.json | *.json.in) grep -q '"tasks"' "$1" && echo rt-app ;;
    *.csv) sed '/^#/d' "$1" | head -n 1 | grep -qi 'period' && echo csv ;;
    *.cfg | *.hvm | *.pvlinux | *.hvmlite | *.xl)
        grep -Eq '^[[:space:]]*(vcpus|maxvcpus|kernel|builder|sched)[[:space:]]*=' "$1" && echo xl
        ;;
    *)
        # Documents are XML from the beginning; texts about them are not.
        if ! grep -I -m 1 '[^[:space:]]' "$1" | grep -q '^[[:space:]]*<'; then
            :
        elif grep -q '<domain[ >]' "$1"; then
            echo libvirt
        elif grep -Eq '<(taskset|testpoint)[ />]' "$1"; then
            echo schedcat
        elif grep -q '<system os_scheduler' "$1"; then
            echo carts
        elif grep -q '<simulation[ >]' "$1"; then
            echo simso
        fi
        ;;
    esac
    true
}

find "$@" -type f -size -2048k ! -path '*/.git/*' | LC_ALL=C sort >"$work/files"
while IFS= read -r file; do
    format="$(format "$file")"
    [ -n "$format" ] || continue
    code=0
    "$punctual" import --from "$format" "$file" >"$work/host.toml" 2>"$work/said" || code=$?
    case "$code" in
    0) outcome=imported ;;
    2) outcome=refused ;;
    *) outcome=failed ;;
    esac
    [ "$code" -ne 2 ] || grep -q '^error' "$work/said" || outcome=failed
    notes="$(grep -c '^warning' "$work/said" || true)"
    message="$(head -n 1 "$work/said" | tr '\t' ' ')"
    printf '%s\t%s\t%s\t%s\t%s\n' "$file" "$format" "$outcome" "$notes" "$message"
done <"$work/files" | tee "$work/table"

cut -f 2,3 "$work/table" | LC_ALL=C sort | uniq -c >&2
! cut -f 3 "$work/table" | grep -q failed
