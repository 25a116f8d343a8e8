#!/usr/bin/env bash
# Builds the manual as a site: every page is in its contents, no link leads nowhere, and it has what only the
# site has: the notebooks with their pictures, the reference of the Python package, and a search.
#
# usage: scripts/check-site.sh
# exit: 0 passed, 1 something is wrong, 77 skipped: Sphinx could not be installed
set -euo pipefail
cd "$(dirname "$0")/.."
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

# Beside its output Sphinx makes folders of its own.
scripts/site.sh "$work/html" >&2

wrong=0
# expect FILE TEXT
expect() {
    grep -qF -- "$2" "$work/html/$1" || { echo "check-site: $1 lacks: $2" >&2; wrong=1; }
}
for notebook in docs/notebooks/*.ipynb; do
    page="${notebook%.ipynb}.html"
    expect index.html "$page"
    expect "$page" 'class="output'
done
for name in Host Grid Results.perfetto ray.sweep dask.sweep; do
    expect python-reference.html "id=\"punctual.$name\""
done
expect searchindex.js '"docs/host-file"'
exit "$wrong"
