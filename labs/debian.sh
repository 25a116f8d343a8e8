# Stock Debian for guests of QEMU: what the labs share. Sourced in the project's folder, with $lab set.
# shellcheck shell=bash disable=SC2154
#
# fetch PACKAGE...   downloads packages of Debian 12 with what they depend on and the distribution's kernel,
#                    and unpacks them into $lab/root and $lab/kernel; $version is the kernel's
# fetch_kernel SUITE DIRECTORY [FLAVOUR [PACKAGE...]]  downloads a suite's kernel (`cloud`) and packages into
#                    a directory; $version is the kernel's
# fetch_builder SUITE DIRECTORY  makes a directory a root with compiler, headers of the kernel and DKMS
# in_builder DIRECTORY COMMAND...  runs a command in it
# modules NAME...    copies modules with what they depend on from $kernel to $guest/modules, and writes the
#                    order in which they are loaded into its file `order`
# guest_files INIT   starts $guest with the packages and INIT as first process
# pack DIRECTORY     prints it as an archive for a kernel
# in_root PROGRAM [ARGUMENT...]  runs a program of the packages on the host
# fetch_qemu SUITE   unpacks a suite's QEMU into $lab/qemu-SUITE, once; $qemu is how it is started, with its
#                    own loader and libraries
guest=$lab/guest
kernel=${kernel:-$lab/kernel}

# Makes a suite the source of packages. The mirror is the one that this machine's Debian uses; its own state
# is not touched.
use_suite() {
    local apt=$lab/apt-$1 mirror key=/usr/share/keyrings/debian-archive-keyring.gpg
    mkdir -p "$apt"/{lists/partial,cache/archives/partial}
    # shellcheck disable=SC2016  # The word is for APT.
    mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | grep debian | grep -v security |
        head -1)
    : >"$apt/status"
    echo "deb [signed-by=$key] $mirror $1 main" >"$apt/sources.list"
    archives=$apt/cache/archives
    apt_options=(-qq -o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=/dev/null
        -o "Dir::State::lists=$apt/lists" -o "Dir::State::status=$apt/status" -o "Dir::Cache=$apt/cache"
        -o APT::Sandbox::User=root -o APT::Install-Recommends=false -o Dir::Etc::preferencesparts=/dev/null)
    apt-get "${apt_options[@]}" update
}

# Downloads packages and what they depend on, and unpacks them all into a directory.
unpack() {
    local root=$1 package
    shift
    rm -f "$archives"/*.deb
    apt-get "${apt_options[@]}" --yes --download-only install "$@" >/dev/null || return 1
    rm -rf "$root"
    mkdir -p "$root"
    for package in "$archives"/*.deb; do dpkg -x "$package" "$root"; done
}

fetch() {
    use_suite bookworm && unpack "$lab/root" "$@" && fetch_kernel bookworm "$lab/kernel"
}

# Newer suites have the kernel's files in packages of their own.
fetch_kernel() {
    local package packages to=$2 flavour=${3:-cloud}
    use_suite "$1" || return 1
    shift $(($# < 3 ? $# : 3))
    version=$(apt-cache "${apt_options[@]}" depends "linux-image-$flavour-amd64" |
        sed -n 's/.*Depends: linux-image-\([0-9].*\)/\1/p')
    packages=("linux-image-$version")
    if apt-cache "${apt_options[@]}" show "linux-binary-$version" >/dev/null 2>&1; then
        packages=("linux-binary-$version" "linux-modules-$version")
    fi
    rm -rf "$to.new" "$lab/debs"
    mkdir -p "$to.new" "$lab/debs"
    (cd "$lab/debs" && apt-get "${apt_options[@]}" download "${packages[@]}" "$@") || return 1
    for package in "$lab"/debs/*.deb; do dpkg -x "$package" "$to.new"; done
    cp "$(find "$to.new" -name 'vmlinuz*' -type f | sed -n 1p)" "$to.new/vmlinuz"
    echo "$version" >"$to.new/version"
    rm -rf "$to"
    mv "$to.new" "$to"
}

fetch_builder() {
    local root=$2 directory
    use_suite "$1" || return 1
    unpack "$root" linux-headers-cloud-amd64 dkms bash coreutils findutils grep mawk sed || return 1
    # Packages of Debian 12 are unpacked into /bin and others beside /usr.
    for directory in bin sbin lib lib64; do
        [ ! -L "$root/$directory" ] || continue
        mkdir -p "$root/usr/$directory"
        [ ! -d "$root/$directory" ] || cp -a "$root/$directory/." "$root/usr/$directory/"
        rm -rf "${root:?}/$directory"
        ln -s "usr/$directory" "$root/$directory"
    done
    # What the packages' own scripts would make.
    [ -e "$root/bin/sh" ] || ln -s bash "$root/bin/sh"
    [ -e "$root/bin/awk" ] || ln -s mawk "$root/bin/awk"
    mknod -m 666 "$root/dev/null" c 1 3
    ln -s /proc/self/fd "$root/dev/fd"
}

in_builder() {
    # shellcheck disable=SC2016  # The words are the inner shell's.
    unshare --mount sh -c 'mount -t proc proc "$1/proc" && exec chroot "$@"' in_builder "$1" \
        /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin "${@:2}"
}

modules() {
    local name file
    for name; do
        [ ! -e "$guest/modules/$name.ko" ] || continue
        file=$(find "$kernel" -name "$name.ko*" -o -name "${name//_/-}.ko*" | sed -n 1p)
        case $file in
            # It is part of the kernel itself.
            '') continue ;;
            *.xz) xz -dc "$file" >"$guest/modules/$name.ko" ;;
            *) cp "$file" "$guest/modules/$name.ko" ;;
        esac
        # shellcheck disable=SC2046  # One word for each module.
        modules $(modinfo -F depends "$guest/modules/$name.ko" | tr ',' ' ')
        echo "$name" >>"$guest/modules/order"
    done
}

guest_files() {
    rm -rf "$guest"
    mkdir -p "$guest"/{proc,sys,dev,run,tmp,modules,lab}
    cp -r "$lab/root/." "$guest/"
    rm -rf "$guest"/usr/share/{doc,man,locale,perl,info,zoneinfo} "$guest/usr/lib/python3.11/test" \
        "$guest"/usr/lib/x86_64-linux-gnu/{perl*,gconv,libperl*}
    modules virtio_pci virtio_net
    install -m 755 "$1" "$guest/init"
    echo 'root:x:0:0::/root:/bin/sh' >"$guest/etc/passwd"
    echo 'root:x:0:' >"$guest/etc/group"
}

pack() {
    (cd "$1" && find . | cpio --quiet -o -H newc | gzip -1)
}

in_root() {
    local root=$lab/root program=$1
    shift
    "$root/lib64/ld-linux-x86-64.so.2" \
        --library-path "$root/usr/lib/x86_64-linux-gnu:$root/lib/x86_64-linux-gnu" "$root/$program" "$@"
}

fetch_qemu() {
    local root=$lab/qemu-$1
    if [ ! -s "$root/complete" ]; then
        use_suite "$1" && unpack "$root" qemu-system-x86 || return 1
        echo "$1" >"$root/complete"
    fi
    # shellcheck disable=SC2034  # For who calls.
    qemu=(env "QEMU_MODULE_DIR=$root/usr/lib/x86_64-linux-gnu/qemu"
        "$(find "$root" -name 'ld-linux-x86-64.so.2' ! -type l | sed -n 1p)"
        --library-path "$root/usr/lib/x86_64-linux-gnu:$root/lib/x86_64-linux-gnu"
        "$root/usr/bin/qemu-system-x86_64" -L "$root/usr/share/qemu" -L "$root/usr/share/seabios")
}
