#!/bin/sh
# Builds the policies as an object that links into Xen, as Xen is built: no operating system, position
# independent without a table of offsets, landing pads for indirect calls, thunks of Xen for indirect calls
# and returns. Then it runs a C program on it (crates/punctual-xen/tests/contract.c).
#
# usage: scripts/check-xen-lib.sh
# exit: 0 the object is TARGET/xen/punctual-policies.o, whose path is printed last; 1 it is not; 77 skipped:
# a part of the Rust toolchain is not here and could not be installed.
#
# Some of this is not stable Rust, and core is built the same way, from its source: RUSTC_BOOTSTRAP.
set -eu
cd "$(dirname "$0")/.."
target="${CARGO_TARGET_DIR:-target}/xen"

skip() {
    echo "check-xen-lib: skipped: $1" >&2
    exit 77
}

for part in "target add x86_64-unknown-none" "component add rust-src"; do
    # shellcheck disable=SC2086 # two words and a name
    rustup --quiet $part >&2 || skip "rustup $part"
done

RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR="$target" \
    RUSTFLAGS="-Crelocation-model=pic -Cforce-unwind-tables=no -Zplt=yes -Zrelax-elf-relocations=yes \
        -Zcf-protection=branch -Zretpoline-external-thunk=yes -Zfunction-return=thunk-extern" \
    cargo rustc --quiet --locked -Zbuild-std=core,alloc -p punctual-xen --crate-type staticlib \
    --target x86_64-unknown-none --release --config 'profile.release.panic="abort"' \
    --config 'profile.release.lto="fat"' --config 'profile.release.debug=false'
library="$target/x86_64-unknown-none/release/libpunctual_xen.a"

# One object that shows nothing but the functions of the header.
sed -n 's/.*\(punctual_[a-z_]*\)(.*/\1/p' crates/punctual-xen/include/punctual.h | grep -v panicked |
    sort -u > "$target/functions"
# shellcheck disable=SC2046 # a flag for each
ld -r --gc-sections $(sed 's/^/-u /' "$target/functions") "$library" -o "$target/all.o"
objcopy --keep-global-symbols="$target/functions" --strip-debug --remove-section=.comment \
    "$target/all.o" "$target/punctual-policies.o"

# What it needs of others, and what Xen does not take.
needs="$(readelf -Ws "$target/punctual-policies.o" | awk '$5 == "GLOBAL" && $7 == "UND" { print $8 }' |
    sort | paste -sd " ")"
expected="__x86_indirect_thunk_r11 __x86_return_thunk punctual_panicked"
[ "$needs" = "$expected" ] || { echo "check-xen-lib: it needs $needs, and not $expected" >&2; exit 1; }
case "$(readelf -rW "$target/punctual-policies.o")" in
*GOT*)
    echo "check-xen-lib: it has a table of offsets, which Xen has not" >&2
    exit 1
    ;;
esac
# A tail call by a register, or a call.
if objdump -d "$target/punctual-policies.o" | grep -E 'call +\*|jmp +\*'; then
    echo "check-xen-lib: these calls have no thunk" >&2
    exit 1
fi
size "$target/punctual-policies.o" | awk 'NR == 2 { print "text " $1 ", data " $2 + $3 " bytes" }'

cc -O1 -Wall -Wextra -Werror -z noexecstack -o "$target/contract" crates/punctual-xen/tests/contract.c \
    "$target/punctual-policies.o"
"$target/contract"
echo "$target/punctual-policies.o"
