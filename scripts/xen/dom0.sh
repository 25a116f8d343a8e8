#!/bin/sh
# The first program of domain 0: starts Xen's tools, runs /job/run with the functions below, and ends the
# machine, whatever becomes of it.
export PATH=/bin LD_LIBRARY_PATH=/lib64
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs shm /dev/shm
exec < /dev/console > /dev/console 2>&1
for module in xen-evtchn xen-privcmd xen-gntdev xen-gntalloc xenfs; do insmod "/modules/$module.ko"; done
mkdir -p /run/xen /run/xenstored /run/lock/xl /var/log/xen /var/lib/xen
mount -t xenfs xenfs /proc/xen
xenstored --pid-file /run/xen/xenstored.pid
tries=0
until xenstore-ls / > /dev/null 2>&1; do
    tries=$((tries + 1))
    [ $tries -lt 100 ] || poweroff -f
    sleep 0.1
done
xen-init-dom0
xenconsoled --log=guest --log-dir=/var/log/xen --pid-file=/run/xen/xenconsoled.pid

# burner NAME [OPTION]: a guest that never rests (see burn.c for an option); returns when it runs
burner() {
    burner_name=$1
    printf '%s\n' "name=\"$burner_name\"" 'type="pv"' 'kernel="/vmlinux"' 'ramdisk="/guest.cpio"' \
        'memory=160' 'tsc_mode="native"' \
        "extra=\"console=hvc0 quiet loglevel=3 nokaslr mitigations=off $2\"" > "/$burner_name.cfg"
    xl create -q "/$burner_name.cfg" || return 1
    until grep -q BURNS "/var/log/xen/guest-$burner_name.log" 2> /dev/null; do sleep 0.2; done
}

# What a domain ran, and domain 0's clock, in ms. `xl list` has tenths of seconds.
ran() { xl list "$1" | awk 'NR == 2 { printf "%d", $6 * 1000 }'; }
now() { awk '{ printf "%d", $1 * 1000 }' /proc/uptime; }

# send FILE: it is what the machine leaves behind. nc does not always end when all is sent.
send() {
    insmod /modules/e1000.ko
    ifconfig eth0 10.0.2.15 up
    timeout 120 nc -w 5 10.0.2.100 9 < "$1"
}

cd /job || poweroff -f
# shellcheck source=/dev/null
. ./run
sleep 1
poweroff -f
