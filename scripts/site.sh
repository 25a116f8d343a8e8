#!/usr/bin/env bash
# Builds the manual as a site with search: the pages of docs/, the notebooks and the reference of the Python
# package.
#
# usage: scripts/site.sh [DIR]   DIR is target/site/html by default
# exit: 0 it is in DIR, 1 a page or a link is wrong, 77 skipped: Sphinx could not be installed
set -euo pipefail
cd "$(dirname "$0")/.."
parts=scripts/site
target="${CARGO_TARGET_DIR:-target}/site"
output="$(realpath -m "${1:-$target/html}")"
venv=$target/venv

skip() {
    echo "site: skipped: $1" >&2
    exit 77
}

if ! cmp -s "$parts/requirements.txt" "$venv/installed.txt"; then
    rm -rf "$venv"
    python3 -m venv "$venv" >&2 || skip "python3 with venv is needed (Debian: apt install python3-venv)"
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$parts/requirements.txt" >&2 ||
        skip "pip could not install $parts/requirements.txt"
    cp "$parts/requirements.txt" "$venv/installed.txt"
fi

# The reference is written by the package itself.
cargo build --quiet --locked --workspace --all-features --lib --bins --examples
rm -rf "$target/package" "$target/pages"
mkdir -p "$target/package" "$target/pages"
cp -r crates/punctual-python/python/punctual "$target/package/"
cp "${CARGO_TARGET_DIR:-target}/debug/lib_punctual.so" "$target/package/punctual/_punctual.abi3.so"

# Pages link to files of the repository, so these are where the pages expect them.
git ls-files -z | tar -c --null -T - | tar -x -C "$target/pages"
cp "$parts/conf.py" "$parts/index.md" "$parts/python-reference.md" "$target/pages"
PUNCTUAL_PACKAGE="$(realpath "$target/package")" \
    PUNCTUAL_VERSION="$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | sed -n 1p)" \
    "$venv/bin/python" -m sphinx -q -j auto -W --keep-going "$target/pages" "$output"
echo "site: $output/index.html"
