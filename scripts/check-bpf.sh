#!/bin/sh
# Compiles the programs for the kernel (bpf/ of crates/punctual-scx and crates/punctual-waits-bpf), and checks
# that each loader finds in them what it asks for.
#
# usage: scripts/check-bpf.sh
# exit: 0 they do, 1 one does not, 77 skipped: clang is missing.
set -eu
cd "$(dirname "$0")/.."
if ! "${CLANG:-clang}" --version >/dev/null 2>&1; then
    echo "check-bpf: skipped: clang is needed (Debian: apt install clang)" >&2
    exit 77
fi
for crate in punctual-scx punctual-waits-bpf; do
    tested="$(cargo test --locked -p "$crate" --all-features 2>&1)" || { echo "$tested" >&2; exit 1; }
    case $tested in
        *the_object_has_what_the_loader_asks_for*) ;;
        *)
            # Cargo does not compile it again because clang has come since.
            echo "check-bpf: $crate was built without clang: touch crates/$crate/build.rs" >&2
            exit 1
            ;;
    esac
done
