#!/usr/bin/env bash
# Makes what the lab `xen` boots of the packages in LAB/root: LAB/vmlinux for all domains, LAB/guest.cpio and
# LAB/dom0.cpio.
#
# usage: labs/xen/domains.sh LAB XEN-VERSION
set -euo pipefail
parts=$(cd "$(dirname "$0")" && pwd)
lab=$1
root=$lab/root
libraries=$root/usr/lib/x86_64-linux-gnu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The ELF file within the kernel's image, which is compressed by xz.
python3 - "$root"/boot/vmlinuz-* "$lab/vmlinux" <<'END'
import lzma, sys
image = open(sys.argv[1], "rb").read()
at = image.find(b"\xfd7zXZ\0")
open(sys.argv[2], "wb").write(lzma.LZMADecompressor().decompress(image[at:]))
END

# A root with busybox.
skeleton() {
    mkdir -p "$1"/{bin,lib64,modules,proc,sys,dev,tmp,run,var/lib,var/log,etc/xen/scripts}
    ln -s /run "$1/var/run"
    ln -s /run/lock "$1/var/lock"
    cp "$(command -v busybox)" "$1/bin/busybox"
    local applet
    for applet in $(busybox --list); do [ -e "$1/bin/$applet" ] || ln -s busybox "$1/bin/$applet"; done
}

# A program of a package with the libraries that it loads: those of the packages before this machine's, the
# C library too if there is one.
program() {
    local library loader=/lib64/ld-linux-x86-64.so.2
    [ ! -e "$root/usr$loader" ] || loader=$root/usr$loader
    install -D "$2" "$1/$3"
    for library in "$loader" $("$loader" --library-path "$libraries" --list "$2" |
        sed -n 's/.* => \([^ ]*\) (.*/\1/p'); do
        [ -e "$1/lib64/$(basename "$library")" ] || cp -L "$library" "$1/lib64/"
    done
}

pack() {
    (cd "$1" && find . -print0 | LC_ALL=C sort -z | cpio --null --create --format=newc --reproducible --quiet)
}

skeleton "$work/guest"
cc -O1 -static -o "$work/guest/bin/burn" "$parts/burn.c"
printf '#!/bin/sh\nmount -t devtmpfs dev /dev\nexec /bin/burn < /dev/hvc0 > /dev/hvc0 2>&1\n' \
    > "$work/guest/init"
chmod +x "$work/guest/init"
pack "$work/guest" > "$lab/guest.cpio"

skeleton "$work/dom0"
own=usr/lib/xen-$2/bin
tools=$root/$own
for tool in xl xenstored xenconsoled xen-init-dom0; do
    # The tools look for each other where the package has them.
    program "$work/dom0" "$tools/$tool" "$own/$tool"
    ln -sf "/$own/$tool" "$work/dom0/bin/$tool"
done
for tool in xentrace xen-hptool; do program "$work/dom0" "$tools/$tool" "bin/$tool"; done
program "$work/dom0" "$root/usr/bin/xenstore" usr/bin/xenstore
for tool in xenstore-ls xenstore-read; do ln -s /usr/bin/xenstore "$work/dom0/bin/$tool"; done
for library in libgcc_s.so.1 libm.so.6; do
    cp -L "$libraries/$library" "$work/dom0/lib64/" 2> /dev/null ||
        cp -L "/lib/x86_64-linux-gnu/$library" "$work/dom0/lib64/"
done
for module in xen-evtchn xen-privcmd xen-gntdev xen-gntalloc xenfs/xenfs; do
    cp "$root"/lib/modules/*/kernel/drivers/xen/$module.ko "$work/dom0/modules/"
done
cp "$root"/lib/modules/*/kernel/drivers/net/ethernet/intel/e1000/e1000.ko "$work/dom0/modules/"
echo 'autoballoon="0"' > "$work/dom0/etc/xen/xl.conf"
cp "$lab/vmlinux" "$lab/guest.cpio" "$work/dom0/"
cp "$parts/dom0/init" "$work/dom0/init"
chmod +x "$work/dom0/init"
pack "$work/dom0" > "$lab/dom0.cpio"
