#!/usr/bin/env bash
# Builds packages of Punctual: a .deb, an .rpm, a static tarball, and a wheel of the Python package.
#
# usage: packaging/build.sh [deb|rpm|tar|wheel]... [--arch amd64|arm64] [--output DIR]
#   deb  punctual_VERSION_ARCH.deb: needs dpkg-dev; for the Debian or Ubuntu that it is built on, and newer
#   rpm  punctual-VERSION.ARCH.rpm: needs rpmbuild; for systems with this machine's C library, and newer
#   tar  punctual-VERSION-ARCH.tar.gz: static, with musl; needs Rust's target ARCH-unknown-linux-musl
#   wheel  punctual-VERSION-cp310-abi3-PLATFORM.whl: for Python 3.10 and newer; needs maturin 1.9.4 or newer
# Without a format it builds all that this machine has the tools for. DIR is target/packages by default.
# --arch is the machine's own by default. For another one, Debian's cross compiler and libraries are needed,
# and qemu-user-static, since the program itself prints its manual.
# exit: 0 all are built, their names are printed; 1 one is not; 2 the command line is wrong
# environment: SOURCE_DATE_EPOCH (the time of the last commit), PUNCTUAL (a program that is built already, for
#   all formats), XZ_LEVEL (of the .deb: 0 packs in a tenth of the time of 6), CARGO_TARGET_DIR, CARGO_HOME
#
# Nothing is downloaded: `cargo fetch --locked` gets the crates. The same commit, Rust and C library give the
# same bytes in any directory; packaging/check.sh compares.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
export LC_ALL=C TZ=UTC
umask 022

fail() {
    echo "packaging/build.sh: $*" >&2
    exit 1
}

usage() {
    sed -n '4,12s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

output=target/packages
machine=$(uname -m)
arch=$machine
formats=()
while [ $# -gt 0 ]; do
    case $1 in
        deb | rpm | tar | wheel) formats+=("$1") ;;
        --arch)
            shift
            case ${1:-} in
                amd64) arch=x86_64 ;;
                arm64) arch=aarch64 ;;
                *) usage ;;
            esac ;;
        --output) shift; output=${1:-}; [ -n "$output" ] || usage ;;
        *) usage ;;
    esac
    shift
done
output=$(realpath -m "$output")

gnu=$arch-unknown-linux-gnu
musl=$arch-unknown-linux-musl
debian=$(sed 's/x86_64/amd64/; s/aarch64/arm64/' <<<"$arch")
# What the names of another architecture's tools begin with, and what runs its programs.
prefix=
runner=()
if [ "$arch" != "$machine" ]; then
    prefix=$arch-linux-gnu-
    runner=("qemu-$arch-static")
    for triple in "$gnu" "$musl"; do
        export "CARGO_TARGET_$(tr a-z- A-Z_ <<<"$triple")_LINKER=${prefix}gcc"
        export "CC_${triple//-/_}=${prefix}gcc"
    done
fi

# lacking_for_other FORMAT: what this machine lacks for another architecture.
lacking_for_other() {
    local library
    command -v "${prefix}gcc" >/dev/null ||
        { echo "${prefix}gcc is missing (apt install gcc-${arch/_/-}-linux-gnu)"; return; }
    [ "$1" = tar ] || [ -d "$(rustc --print target-libdir --target "$gnu")" ] ||
        { echo "Rust has no library for it (rustup target add $gnu)"; return; }
    [ "$1" != wheel ] || return 0
    command -v "${runner[0]}" >/dev/null ||
        { echo "${runner[0]} is missing (apt install qemu-user-static)"; return; }
    case $1 in deb | rpm)
        for library in libelf.so libz.so; do
            [ -e "/usr/lib/$arch-linux-gnu/$library" ] || {
                echo -n "$library of $debian is missing (dpkg --add-architecture $debian; apt update; "
                echo "apt install libelf-dev:$debian zlib1g-dev:$debian)"
                return
            }
        done ;;
    esac
}

# missing FORMAT: what this machine lacks for it.
missing() {
    local tool
    if [ "$arch" != "$machine" ]; then
        tool=$(lacking_for_other "$1")
        [ -z "$tool" ] || { echo "$tool"; return; }
    fi
    case $1 in
        deb | rpm) [ -n "${PUNCTUAL:-}" ] || command -v clang >/dev/null ||
            { echo "clang is missing, for programs in the kernel (apt install clang libelf-dev)"; return; } ;;
    esac
    case $1 in
        deb) for tool in dpkg-deb dpkg-shlibdeps; do
            command -v $tool >/dev/null || { echo "$tool is missing (apt install dpkg-dev)"; return; }
        done ;;
        rpm) command -v rpmbuild >/dev/null ||
            echo "rpmbuild is missing (apt install rpm, dnf install rpm-build)" ;;
        tar) [ -n "${PUNCTUAL:-}" ] || [ -d "$(rustc --print target-libdir --target "$musl")" ] ||
            echo "Rust cannot build static programs here (rustup target add $musl)" ;;
        wheel) command -v maturin >/dev/null || echo "maturin is missing (pip install maturin)" ;;
    esac
}
if [ ${#formats[@]} = 0 ]; then
    for format in deb rpm tar wheel; do
        lack=$(missing $format)
        if [ -z "$lack" ]; then formats+=("$format"); else echo "$format is left out: $lack" >&2; fi
    done
fi
for format in "${formats[@]}"; do
    lack=$(missing "$format")
    [ -z "$lack" ] || fail "$format: $lack"
done

# A version between releases sorts before the release that it leads to.
version=$(sed -n '/^\[workspace\.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
if [ "$(git rev-parse --show-toplevel 2>/dev/null)" = "$root" ]; then
    SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
    if ! git describe --exact-match --match "v$version" >/dev/null 2>&1; then
        version+="~git$(date -d "@$(git log -1 --format=%ct)" +%Y%m%d%H%M%S).$(git rev-parse --short=8 HEAD)"
    fi
    git diff --quiet HEAD || version+=.modified
fi
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:?without git it has to be set}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# remapped COMMAND [ARGUMENT...]: builds with it, in $target. No path of this machine gets into what is built.
target=${CARGO_TARGET_DIR:-$root/target}/packaging
remapped() {
    local separator=$'\x1f' flags
    # The last prefix that fits counts, so the target directory comes after the source around it.
    # Rust's standard library has these names where its source is not installed.
    flags="--remap-path-prefix=$(rustc --print sysroot)/lib/rustlib/src/rust"
    flags+="=/rustc/$(rustc -vV | sed -n 's/^commit-hash: //p')"
    flags+=$separator--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo
    flags+=$separator--remap-path-prefix=$root=/punctual
    flags+=$separator--remap-path-prefix=$target=/target
    CARGO_ENCODED_RUSTFLAGS=$flags CARGO_TARGET_DIR=$target CARGO_INCREMENTAL=0 CARGO_NET_OFFLINE=true \
        "$@" --locked --offline --profile packaged
}

# build TARGET [OPTION...]: builds the program for it; its path is $program, and these are $options.
build() {
    program=${PUNCTUAL:-$target/$1/packaged/punctual}
    options=("${@:2}")
    [ -z "${PUNCTUAL:-}" ] || return 0
    [[ $target != *[[:space:]]* ]] ||
        fail "libbpf does not build below a directory with a space in its name: set CARGO_TARGET_DIR"
    remapped cargo build --quiet --package punctual --bin punctual --target "$@" ||
        fail "the program could not be built (cargo fetch --locked downloads the crates)"
}

# put MODE SOURCE TARGET: a file of the package.
put() { install -D -m "$1" "$2" "$stage/$3"; }

# compressed SOURCE TARGET: the same, as gzip without name and time.
compressed() {
    install -d -m 755 "$(dirname "$stage/$2")"
    gzip -9n <"$1" >"$stage/$2"
}

# contents TARGET DIRECTORY_FOR_ZSH: puts everything but what one format alone has into $stage.
contents() {
    local page file doc=usr/share/doc/punctual
    stage=$work/stage-$format
    rm -rf "$stage" "$work/man"
    put 755 "$program" usr/bin/punctual
    "${prefix}strip" --remove-section=.comment --remove-section=.note "$stage/usr/bin/punctual"

    "${runner[@]}" "$program" man --out "$work/man"
    for page in "$work"/man/*; do compressed "$page" "usr/share/man/man1/$(basename "$page").gz"; done
    "${runner[@]}" "$program" completions bash >"$work/completion"
    put 644 "$work/completion" usr/share/bash-completion/completions/punctual
    "${runner[@]}" "$program" completions zsh >"$work/completion"
    put 644 "$work/completion" "usr/share/zsh/$2/_punctual"
    "${runner[@]}" "$program" completions fish >"$work/completion"
    put 644 "$work/completion" usr/share/fish/vendor_completions.d/punctual.fish

    for file in README.md docs/*.md docs/tutorial/* docs/images/* examples/*; do
        put 644 "$file" "$doc/$file"
    done
    for file in packaging/prometheus/*; do
        put 644 "$file" "$doc/prometheus/$(basename "$file")"
    done
    packaging/third-party.py "$1" "${options[@]}" >"$work/third-party"
    compressed "$work/third-party" $doc/third-party.txt.gz

    put 644 packaging/host.toml etc/punctual/host.toml
    install -d -m 755 "$stage/etc/punctual/host.d"
    put 755 packaging/libvirt-hook etc/libvirt/hooks/qemu.d/punctual
    put 644 packaging/systemd/sysusers.conf usr/lib/sysusers.d/punctual.conf
    put 644 packaging/systemd/tmpfiles.conf usr/lib/tmpfiles.d/punctual.conf
    for file in punctuald.service punctual-enforce.service punctual-enforce.socket \
        punctual-certify.service punctual-certify.timer punctual-metrics.service punctual-web.service; do
        put 644 packaging/$file usr/lib/systemd/system/$file
    done
    put 644 packaging/tuned/tuned.conf usr/lib/tuned/punctual-host/tuned.conf
    # tuned 2.23 and later look for profiles in this directory.
    install -d -m 755 "$stage/usr/lib/tuned/profiles"
    ln -s ../punctual-host "$stage/usr/lib/tuned/profiles/punctual-host"
    put 644 packaging/tuned/variables.conf etc/tuned/punctual-host-variables.conf
    put 755 packaging/tuned/pool-processors usr/libexec/punctual/pool-processors
}

licences() {
    local file
    for file in LICENSE-MIT LICENSE-APACHE LICENSES/GPL-2.0-only.txt; do
        put 644 "$file" "usr/share/licenses/punctual/$(basename "$file")"
    done
}

# All times are the commit's.
settle() { find "$stage" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +; }

# A block for each file, one for each directory: the kibibytes that Debian's Policy asks for.
installed_kib() {
    find "$stage" -path "$stage/DEBIAN" -prune -o -type f -printf '%s\n' -o -printf '1\n' |
        awk '{ kib += int(($1 + 1023) / 1024) } END { print kib }'
}

deb() {
    local depends control=$work/control libc=libc6-dev:$debian
    [ -z "$prefix" ] || libc=libc6-dev-$debian-cross
    build "$gnu" --features punctual/waits-bpf
    contents "$gnu" vendor-completions
    put 644 packaging/debian/copyright usr/share/doc/punctual/copyright
    compressed CHANGELOG.md usr/share/doc/punctual/changelog.gz
    packaging/debian/changelog "$version-1" >"$work/changelog"
    compressed "$work/changelog" usr/share/doc/punctual/changelog.Debian.gz
    put 644 packaging/debian/lintian-overrides usr/share/lintian/overrides/punctual

    mkdir -p "$work/source/debian"
    printf 'Source: punctual\n\nPackage: punctual\nArchitecture: any\n' >"$work/source/debian/control"
    depends=$(cd "$work/source" &&
        DEB_HOST_ARCH=$debian dpkg-shlibdeps -O "$stage/usr/bin/punctual" 2>/dev/null |
        sed -n 's/^shlibs:Depends=//p')
    [ -n "$depends" ] || fail "deb: dpkg-shlibdeps found no dependencies"
    mkdir -m 755 "$stage/DEBIAN"
    # The guest program inside is linked statically with the C library.
    sed -e "s/@VERSION@/$version-1/" -e "s/@ARCHITECTURE@/$debian/" -e "s/@SHLIBS@/$depends/" \
        -e "s/@KIB@/$(installed_kib)/" \
        -e "s/@BUILT_USING@/$(dpkg-query -W -f '${source:Package} (= ${source:Version})' "$libc")/" \
        packaging/debian/control >"$control"
    install -m 644 "$control" "$stage/DEBIAN/control"
    (cd "$stage" && find etc -type f | sort | sed 's,^,/,') >"$stage/DEBIAN/conffiles"
    (cd "$stage" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$stage/DEBIAN/md5sums"
    install -m 755 packaging/debian/{postinst,prerm,postrm} "$stage/DEBIAN"
    settle
    # One thread, because more would cut the data into more blocks.
    dpkg-deb --root-owner-group --threads-max=1 -Zxz -z"${XZ_LEVEL:-6}" --build "$stage" \
        "$output/punctual_$version-1_$debian.deb" >/dev/null
    echo "$output/punctual_$version-1_$debian.deb"
}

rpm() {
    build "$gnu" --features punctual/waits-bpf
    contents "$gnu" site-functions
    licences
    put 644 CHANGELOG.md usr/share/doc/punctual/CHANGELOG.md
    settle
    rpmbuild -bb --define "_topdir $work/rpm" --define "_rpmdir $work/rpm" --define "staged $stage" \
        --define "upstream $version" --target "$arch-linux" \
        --buildroot "$work/buildroot" packaging/rpm/punctual.spec >"$work/rpm.log" 2>&1 ||
        { cat "$work/rpm.log" >&2; fail "rpm: rpmbuild failed"; }
    mv "$work"/rpm/*/*.rpm "$output/"
    echo "$output/punctual-$version-1.$arch.rpm"
}

tarball() {
    build "$musl"
    contents "$musl" site-functions
    licences
    put 644 CHANGELOG.md usr/share/doc/punctual/CHANGELOG.md
    settle
    tar --create --directory "$stage" --sort=name --owner=0 --group=0 --numeric-owner --format=gnu \
        --transform "s,^\.,punctual-$version-$arch," . | gzip -9n >"$output/punctual-$version-$arch.tar.gz"
    echo "$output/punctual-$version-$arch.tar.gz"
}

# With Python's stable interface, one wheel is for all versions of it.
wheel() {
    local built
    remapped maturin build --manifest-path crates/punctual-python/Cargo.toml --target "$gnu" \
        --out "$work/wheel" >"$work/wheel.log" 2>&1 ||
        { cat "$work/wheel.log" >&2; fail "wheel: maturin failed"; }
    built=$(basename "$work"/wheel/*.whl)
    mv "$work/wheel/$built" "$output/"
    echo "$output/$built"
}

mkdir -p "$output"
for format in "${formats[@]}"; do
    case $format in
        deb) deb ;;
        rpm) rpm ;;
        tar) tarball ;;
        wheel) wheel ;;
    esac
done
