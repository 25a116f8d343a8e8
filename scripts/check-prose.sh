#!/bin/sh
# Finds phrases that the project's prose avoids (check-prose/words.txt) in documents, comments and messages,
# first in a made-up file that has one across a line break, then in every file of the repository.
#
# usage: scripts/check-prose.sh
# exit: 0 none, 1 some (each is printed with file, line and what to write instead), 77 skipped: python3 or git
# is missing.
#
# Inputs of tests that are wrong on purpose or come from other programs are left out.
set -eu
cd "$(dirname "$0")/.."

skip() {
    echo "check-prose: skipped: $1" >&2
    exit 77
}

command -v python3 >/dev/null || skip "python3 is needed (Debian: apt install python3)"
git rev-parse --is-inside-work-tree >/dev/null 2>&1 || skip "the list of files comes from git"

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
printf '// It waits for\n// ever.\n' >"$work/made_up.rs" # prose: quoted
if python3 scripts/check-prose/prose.py "$work/made_up.rs" >"$work/found"; then
    echo "check-prose: the phrase of the made-up file was not found" >&2
    exit 1
fi
grep -q 'made_up.rs:1: .for ever' "$work/found" || { # prose: quoted
    echo "check-prose: another phrase than that of the made-up file was found:" >&2
    cat "$work/found" >&2
    exit 1
}

git ls-files -z '*.md' '*.rs' '*.c' '*.h' '*.js' '*.py' '*.sh' '*.toml' \
    ':!*/tests/fixtures/*' ':!*/malformed/*' >"$work/files"
xargs -0 python3 scripts/check-prose/prose.py <"$work/files" || exit 1
