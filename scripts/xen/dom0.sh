#!/bin/sh
# The first program of domain 0: starts Xen's tools and two guests that never rest, sets their budgets, and
# says what they ran: lines of LABEL SECONDS ONE TWO, all in ms, between instants of domain 0's clock.
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
until xenstore-ls / > /dev/null 2>&1; do sleep 0.1; done
xen-init-dom0
xenconsoled --log=guest --log-dir=/var/log/xen --pid-file=/run/xen/xenconsoled.pid

for guest in one two; do
    printf '%s\n' "name=\"$guest\"" 'type="pv"' 'kernel="/vmlinux"' 'ramdisk="/guest.cpio"' 'memory=160' \
        'extra="console=hvc0 quiet loglevel=3 nokaslr mitigations=off"' 'tsc_mode="native"' > "/$guest.cfg"
    xl create -q "/$guest.cfg" || poweroff -f
    until grep -q BURNS "/var/log/xen/guest-$guest.log" 2> /dev/null; do sleep 0.2; done
done

# Budgets are counted from one tick of the clock to the next: `xl list` has tenths of seconds.
ran() { xl list "$1" | awk 'NR == 2 { printf "%d", $6 * 1000 }'; }
now() { awk '{ printf "%d", $1 * 1000 }' /proc/uptime; }

# measure LABEL: what both guests run in 20 s
measure() {
    sleep 1
    start=$(now) one=$(ran one) two=$(ran two)
    sleep 20
    echo "SHARES $1 $(($(now) - start)) $(($(ran one) - one)) $(($(ran two) - two))"
}

budgets() {
    xl sched-rtds -d one -v all -p "$1" -b "$2" -e 0 && xl sched-rtds -d two -v all -p "$3" -b "$4" -e 0
}

# Enough for the tools, and little to idle away under the periodic server.
xl sched-rtds -d Domain-0 -v all -p 10000 -b 500 -e 1
budgets 10000 4000 10000 3000 && measure first
budgets 20000 2000 10000 8000 && measure second
xl debug-keys r
sleep 1
echo SHARES-END
poweroff -f
