#!/usr/bin/env bash
# Does scripts/set-up.sh install what is missing or linked otherwise than needed, and nothing else?
#
# usage: scripts/check-set-up.sh
# exit: 0 it does; 1 it does not; 77 skipped: a static program to test with is missing
set -euo pipefail
cd "$(dirname "$0")/.."
static=$(PATH=$PATH:/sbin:/usr/sbin command -v ldconfig) || static=
[[ -n $static && $(ldd "$static" 2>/dev/null) != *'=>'* ]] ||
    { echo "check-set-up: skipped: there is no static ldconfig"; exit 77; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin"
# Nothing is installed here.
ln -s "$(command -v true)" "$work/bin/apt-get"

# expect PACKAGES PROGRAM: what set-up.sh installs where busybox is this program.
expect() {
    local said installed
    ln -sf "$2" "$work/bin/busybox"
    said=$(PATH="$work/bin:$PATH" scripts/set-up.sh sh=dash busybox=busybox-static)
    installed=$(sed -n 's/.*--no-install-recommends //p' <<<"$said")
    [ "$installed" = "$1" ] || { echo "busybox is $2: installs \"$installed\", not \"$1\""; exit 1; }
}

expect "" "$static"
expect busybox-static "$(command -v ls)"
echo "a static program is kept, a dynamic one replaced"
