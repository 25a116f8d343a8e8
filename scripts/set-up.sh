#!/usr/bin/env bash
# Installs missing Debian packages: as root with apt-get, after printing what it installs. For other users it
# prints the command. It never fails: a step that needs a package that is still missing reports it.
#
# usage: scripts/set-up.sh COMMAND=PACKAGE... FILE=PACKAGE...   (FILE begins with a slash)
#   for example: scripts/set-up.sh qemu-system-x86_64=qemu-system-x86 busybox=busybox-static
# A command of a package PROGRAM-static must be statically linked: it is copied to guests without libraries.
set -euo pipefail

# fits COMMAND|FILE PACKAGE: is the file here, or the command, and linked as the package says?
fits() {
    local path
    [[ $1 != /* ]] || { [ -e "$1" ]; return; }
    path=$(command -v "$1") || return 1
    # ldd lists the libraries of a program that loads some.
    [[ $2 != *-static || $(ldd "$path" 2>/dev/null) != *'=>'* ]]
}

missing=()
for pair in "$@"; do
    fits "${pair%%=*}" "${pair#*=}" || missing+=("${pair#*=}")
done
[ ${#missing[@]} -gt 0 ] || exit 0
install="apt-get install --no-install-recommends ${missing[*]}"
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "Missing here; on Debian or Ubuntu: sudo $install"
    exit 0
fi
echo "Installing what is missing: $install"
export DEBIAN_FRONTEND=noninteractive
{ apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >/dev/null ||
    echo "The installation failed; continuing without these packages."
