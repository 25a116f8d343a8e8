# What every lab begins with: `. "$(dirname "$0")/../lib.sh"`. It continues in the project's folder.
# shellcheck shell=bash disable=SC2034
#
# skip REASON        ends the lab as skipped
# need TOOL...       skips it unless all of them are here
# need_root          skips it unless it can make a network namespace with TAP interfaces
# usage              ends it with its help: the command line is wrong
# in_namespaces OPTION...  runs the lab's command line again in namespaces of its own, by unshare(1)
# above_kvm NAME...  runs it again in a machine of the lab `kernel`, with these variables of the environment
#                    ($inside is `yes` after both)
# build_punctual     builds $punctual, unless PUNCTUAL names the program
# wait_for_process PROCESS LOG COMMAND...  waits until COMMAND succeeds; prints LOG if PROCESS ends instead
# $scratch           a directory that lasts as long as the lab
#
# A lab does not clean up: labs/lab ends its processes and removes $scratch, whatever ends the lab.
set -euo pipefail
lab_program=$(realpath "$0")
lab_name=$(basename "$(dirname "$lab_program")")
cd "$(dirname "$lab_program")/../.."
[ -n "${LAB_SCRATCH:-}" ] || exec labs/lab "$lab_name" "$@"
arguments=("$@")
scratch=$LAB_SCRATCH
punctual=$(realpath -m "${PUNCTUAL:-${CARGO_TARGET_DIR:-target}/release/punctual}")
inside=${LAB_INSIDE:-}

skip() {
    echo "skipped: $*"
    exit 77
}

need() {
    local tool
    for tool; do command -v "$tool" >/dev/null || skip "$tool is missing"; done
}

need_root() {
    [ "$(id -u)" = 0 ] || skip "root is needed, for a network namespace with TAP interfaces"
    [ -c /dev/net/tun ] || skip "/dev/net/tun is missing"
}

usage() {
    labs/lab "$lab_name" --help >&2
    exit 2
}

in_namespaces() {
    LAB_INSIDE=yes exec unshare "$@" "$lab_program" "${arguments[@]}"
}

above_kvm() {
    local name settings=(LAB_INSIDE=yes KVM=yes)
    for name; do [ -z "${!name:-}" ] || settings+=("$name=${!name}"); done
    MEMORY_MIB=3072 TIMEOUT_S=3600 exec labs/lab kernel run \
        env "${settings[@]}" labs/lab "$lab_name" "${arguments[@]}"
}

build_punctual() {
    [ -n "${PUNCTUAL:-}" ] || cargo build --quiet --locked --release -p punctual
}

wait_for_process() {
    until "${@:3}"; do
        kill -0 "$1" 2>/dev/null || { cat "$2" >&2; return 1; }
        sleep 0.1
    done
}
