#!/bin/sh
# Tests the Python package: against the command line on the same hosts, with data frames, with threads, forks,
# pickles, Ctrl-C and random calls; on clusters of Ray and Dask; runs the examples of docs/python.md and the
# notebooks; and checks its types with mypy and pyright.
#
# usage: scripts/check-python.sh [OPTION ...]   options as pytest takes them
# exit: 0 all passed, 1 something did not, 77 skipped: Python's programs could not be installed.
#
# The package is put together from the library that the workspace's build makes, so nothing is compiled twice.
# packaging/build.sh wheel makes what users install.
set -eu
cd "$(dirname "$0")/.."
parts=scripts/check-python
target="${CARGO_TARGET_DIR:-target}"
venv="$target/check-python"
package=crates/punctual-python

skip() {
    echo "check-python: skipped: $1" >&2
    exit 77
}

if ! cmp -s "$parts/requirements.txt" "$venv/installed.txt"; then
    rm -rf "$venv"
    python3 -m venv "$venv" >&2 || skip "python3 with venv is needed (Debian: apt install python3-venv)"
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$parts/requirements.txt" >&2 ||
        skip "pip could not install $parts/requirements.txt"
    cp "$parts/requirements.txt" "$venv/installed.txt"
fi

# With the examples, the features are those of the tests: nothing that they built is built again.
cargo build --quiet --locked --workspace --all-features --lib --bins --examples
packages="$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')"
rm -rf "$packages/punctual"
cp -r "$package/python/punctual" "$packages/punctual"
cp "$target/debug/lib_punctual.so" "$packages/punctual/_punctual.abi3.so"

mypy() {
    "$venv/bin/mypy" --no-error-summary --config-file "$package/pyproject.toml" \
        --cache-dir "$target/check-python-mypy" "$@"
}
mypy -p punctual
mypy "$package/tests/typed.py"
# It takes its program from npm's registry; what it prints on success says nothing.
"$venv/bin/pyright" --project "$package/pyproject.toml" --pythonpath "$(realpath -s "$venv")/bin/python" \
    >"$target/check-python-pyright" 2>&1 || { cat "$target/check-python-pyright" >&2; exit 1; }
PUNCTUAL="$(realpath "$target/debug/punctual")" "$venv/bin/python" -m pytest -q "$@" "$package/tests"
