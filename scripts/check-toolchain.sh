#!/bin/sh
# Checks that the compiler has the version that Cargo.toml names as rust-version: the gate builds with the
# minimum that the project promises. rust-toolchain.toml names `stable` instead, since rustup would look for
# `1.95.0` on its server even where the installed `stable` is that version.
#
# usage: scripts/check-toolchain.sh
# exit: 0 it is that version, 1 it is another one.
set -eu
cd "$(dirname "$0")/.."

wanted="$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)"
found="$(rustc --version | sed 's/^rustc \([0-9]*\.[0-9]*\).*/\1/')"
echo "rust-version $wanted, compiler $found"
[ "$wanted" = "$found" ] || {
    echo "check-toolchain: build with Rust $wanted, or change rust-version in Cargo.toml" >&2
    exit 1
}
