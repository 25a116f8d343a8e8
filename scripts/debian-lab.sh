# Stock Debian 12 for guests of QEMU: what the labs share. Sourced in the project's folder, with $lab set.
# shellcheck shell=bash disable=SC2154
#
# fetch PACKAGE...   downloads packages with what they depend on and the distribution's kernel, and unpacks
#                    them into $lab/root and $lab/kernel; $version is the kernel's
# fetch_kernel NAME...  downloads further packages of the kernel, and unpacks them into $lab/kernel
# modules NAME...    copies modules with what they depend on to $lab/guest/modules
# guest_files INIT   starts $lab/guest with the packages and INIT as first process
# pack_guest         packs it as $lab/initrd
# in_root PROGRAM [ARGUMENT...]  runs a program of the packages on the host

skip() {
    echo "skipped: $*"
    exit 77
}

# The mirror is the one that this machine's Debian uses; its own state is not touched.
fetch() {
    local apt=$lab/apt mirror image key=/usr/share/keyrings/debian-archive-keyring.gpg
    mkdir -p "$apt"/{lists/partial,cache/archives/partial}
    # shellcheck disable=SC2016  # The word is for APT.
    mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | grep debian | grep -v security |
        head -1)
    : >"$apt/status"
    echo "deb [signed-by=$key] $mirror bookworm main" >"$apt/sources.list"
    apt_options=(-qq -o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=/dev/null
        -o "Dir::State::lists=$apt/lists" -o "Dir::State::status=$apt/status" -o "Dir::Cache=$apt/cache"
        -o APT::Sandbox::User=root -o APT::Install-Recommends=false -o Dir::Etc::preferencesparts=/dev/null)
    apt-get "${apt_options[@]}" update || return 1
    apt-get "${apt_options[@]}" --yes --download-only install "$@" >/dev/null || return 1
    image=$(apt-cache "${apt_options[@]}" depends linux-image-cloud-amd64 |
        awk '/Depends: linux-image-[0-9]/ { print $2 }')
    # shellcheck disable=SC2034  # For who calls.
    version=${image#linux-image-}
    rm -rf "$lab/kernel" "$lab/root" "$lab/debs"
    mkdir -p "$lab/kernel" "$lab/root" "$lab/debs"
    for package in "$apt"/cache/archives/*.deb; do dpkg -x "$package" "$lab/root"; done
    fetch_kernel "$image"
}

fetch_kernel() {
    local package
    rm -f "$lab"/debs/*.deb
    (cd "$lab/debs" && apt-get "${apt_options[@]}" download "$@") || return 1
    for package in "$lab"/debs/*.deb; do dpkg -x "$package" "$lab/kernel"; done
}

# Says in $lab/guest/modules/order in which order they are loaded.
modules() {
    local name file
    for name in "$@"; do
        file=$(find "$lab/kernel/lib/modules" -name "$name.ko" -o -name "${name//_/-}.ko" | head -1)
        if [ -z "$file" ] || [ -e "$lab/guest/modules/$name.ko" ]; then continue; fi
        # shellcheck disable=SC2046  # One word for each module.
        modules $(modinfo -F depends "$file" | tr ',' ' ')
        cp "$file" "$lab/guest/modules/$name.ko"
        echo "$name" >>"$lab/guest/modules/order"
    done
}

guest_files() {
    rm -rf "$lab/guest"
    mkdir -p "$lab/guest"/{proc,sys,dev,run,tmp,modules,lab}
    cp -r "$lab/root/." "$lab/guest/"
    rm -rf "$lab"/guest/usr/share/{doc,man,locale,perl,info,zoneinfo} "$lab/guest/usr/lib/python3.11/test" \
        "$lab"/guest/usr/lib/x86_64-linux-gnu/{perl*,gconv,libperl*}
    modules virtio_pci virtio_net
    install -m 755 "$1" "$lab/guest/init"
    echo 'root:x:0:0::/root:/bin/sh' >"$lab/guest/etc/passwd"
    echo 'root:x:0:' >"$lab/guest/etc/group"
}

pack_guest() {
    (cd "$lab/guest" && find . | cpio --quiet -o -H newc | gzip -1) >"$lab/initrd"
}

in_root() {
    local root=$lab/root program=$1
    shift
    "$root/lib64/ld-linux-x86-64.so.2" \
        --library-path "$root/usr/lib/x86_64-linux-gnu:$root/lib/x86_64-linux-gnu" "$root/$program" "$@"
}
