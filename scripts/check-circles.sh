#!/bin/sh
# Checks that no files of a crate, and no C files of the guest module, depend on each other in a circle.
#
# usage: scripts/check-circles.sh
# exit: 0 no circle, 1 a circle, which is printed with the names that tie it, or the script misses one.
set -eu
cd "$(dirname "$0")/.."
circles() { python3 scripts/check-circles/circles.py "$@"; }

# A script that finds nothing passes every tree: it must find this circle, one half of which is a re-export.
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
mkdir "$work/src"
echo 'mod a; mod b; pub use b::B;' >"$work/src/lib.rs"
echo 'use crate::B; pub struct A(pub B);' >"$work/src/a.rs"
echo 'use crate::a::A; pub struct B(pub Option<Box<A>>);' >"$work/src/b.rs"
code=0
circles "$work" >"$work/found" || code=$?
if [ "$code" != 1 ] || ! grep -q '^circle of 2 files:$' "$work/found"; then
    echo "check-circles: circles.py misses a circle through a re-export (exit status $code):" >&2
    cat "$work/found" >&2
    exit 1
fi

circles crates/* guest-module guest-module/preload
