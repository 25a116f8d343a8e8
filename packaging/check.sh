#!/usr/bin/env bash
# Checks packages. From two directories, under other settings, they must be the same bytes; lintian finds
# nothing in the .deb; installed into an empty root, removed and purged it leaves only its group; libvirt's
# hook sends its message, and neither fails nor waits.
#
# usage: packaging/check.sh [deb|rpm|tar]...
# exit: 0 all of it holds; 1 it does not; 2 the command line is wrong; 77 a tool is missing
# environment: PUNCTUAL (a program that is built already: then only its packing is compared)
#
# It builds the files of the work tree that git knows. Without PUNCTUAL a format takes two release builds.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- deb rpm tar
tools=(git dpkg-deb dpkg-shlibdeps strip python3)
case " $* " in *" rpm "*) tools+=(rpmbuild) ;; esac
for tool in "${tools[@]}"; do
    command -v "$tool" >/dev/null || { echo "check-packages: skipped: $tool is missing"; exit 77; }
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
CARGO_HOME=${CARGO_HOME:-$HOME/.cargo}
PUNCTUAL=${PUNCTUAL:+$(realpath "$PUNCTUAL")}
export SOURCE_DATE_EPOCH CARGO_HOME PUNCTUAL

fail() {
    echo "check-packages: $*" >&2
    exit 1
}

# packages DIRECTORY FORMAT...: copies the source there and builds packages of it.
packages() {
    local directory=$1
    shift
    mkdir -p "$directory"
    git ls-files -z --cached --others --exclude-standard |
        xargs -0 cp --parents --target-directory "$directory"
    env -u CARGO_TARGET_DIR "$directory/packaging/build.sh" "$@" --output "$directory/packages" >/dev/null
}

same_bytes() {
    local package other="$work/a directory with another length"
    # libbpf does not build below a directory with a space in its name.
    [ -n "$PUNCTUAL" ] || other=${other// /-}
    packages "$work/one" "$@"
    (
        umask 077
        export TZ=Asia/Tokyo LC_ALL=C.UTF-8
        packages "$other" "$@"
    )
    for package in "$work"/one/packages/*; do
        cmp "$package" "$other/packages/$(basename "$package")" ||
            fail "$(basename "$package") differs between two directories"
        echo "the same bytes from two directories: $(basename "$package"), $(stat -c %s "$package") bytes"
    done
}

lint() {
    command -v lintian >/dev/null || { echo "lintian: skipped, it is missing"; return; }
    lintian --allow-root --fail-on error,warning --tag-display-limit 0 "$1" || fail "lintian finds faults"
    echo "lintian: nothing"
}

# What is in the root, but for the package manager's own files.
listing() {
    (cd "$work/root" && find . \( -path './var/lib/dpkg/[!i]*' -o -path ./var/lib/dpkg/info/format \) -prune \
        -o -printf '%M %u:%g %p\n' | sort)
}

# The same without the group's files and their lock, which systemd-sysusers writes.
without_group() {
    listing | grep -Ev ' \./etc(/(group|gshadow|passwd|shadow|\.pwd\.lock)-?)?$'
}

# An installation without a system around it (DPKG_ROOT).
installation() {
    local root=$work/root dpkg
    [ "$(id -u)" = 0 ] || { echo "installation: skipped, it needs root"; return; }
    command -v systemd-sysusers >/dev/null || { echo "installation: skipped, systemd is missing"; return; }
    dpkg=(dpkg "--root=$root" "--log=$work/dpkg.log" --force-script-chrootless --force-depends)
    # As every system with systemd has them; the helpers of its units would make them.
    mkdir -p "$root"/{run,etc/systemd/system,var/lib/{systemd,dpkg/{info,updates,triggers}}}
    : >"$root/var/lib/dpkg/status"
    without_group >"$work/before"
    "${dpkg[@]}" --install "$1" >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "it cannot be installed"; }
    grep -q '^punctual:' "$root/etc/group" || fail "the group is not made"
    [ "$(stat -c '%a' "$root/run/punctual" "$root/var/lib/punctual" | xargs)" = "750 700" ] ||
        fail "directories are not as tmpfiles.d says"
    [ -x "$root/etc/libvirt/hooks/qemu.d/punctual" ] || fail "libvirt would not run the hook"
    # A second time, and with a file of the administrator.
    echo '# ours' >>"$root/etc/punctual/host.toml"
    "${dpkg[@]}" --install "$1" >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "it cannot be upgraded"; }
    grep -qx '# ours' "$root/etc/punctual/host.toml" || fail "an upgrade changes a configuration file"
    "${dpkg[@]}" --remove punctual >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "it cannot be removed"; }
    [ -e "$root/etc/punctual/host.toml" ] || fail "removal removes the configuration"
    if [ -e "$root/usr" ] || [ -e "$root/run/punctual" ]; then fail "removal leaves files"; fi
    "${dpkg[@]}" --purge punctual >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "it cannot be purged"; }
    without_group | diff "$work/before" - ||
        fail "it leaves files behind"
    echo "installed, upgraded, removed, purged: only the group is left"
}

# The hook with other paths; $1 is the program.
hook() {
    sed "s,/usr/bin/punctual hook,$1 hook --socket $work/hook,; s,/run/punctual/hook,$work/hook," \
        packaging/libvirt-hook >"$work/libvirt-hook"
    chmod +x "$work/libvirt-hook"
    # Nobody listens.
    "$work/libvirt-hook" relay start begin - || fail "the hook fails without the service"
    python3 packaging/check-hook.py "$work" || fail "the hook is not as libvirt needs it"
}

same_bytes "$@"
for package in "$work"/one/packages/*.deb; do
    [ -e "$package" ] || continue
    lint "$package"
    installation "$package"
    dpkg-deb --extract "$package" "$work/extracted"
    hook "$work/extracted/usr/bin/punctual"
done
