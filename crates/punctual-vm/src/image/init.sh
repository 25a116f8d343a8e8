#!/bin/busybox sh
# The first process of a guest: drivers, then the guest program, then power off.
export PATH=/bin
busybox mount -t proc proc /proc
busybox mount -t sysfs sys /sys
busybox mount -t devtmpfs dev /dev
for module in /modules/*; do
    busybox insmod "$module" || echo "insmod $module failed"
done
# The address in a network that a switch serves.
commands= idle=
for word in $(busybox cat /proc/cmdline); do
    case $word in
        punctual.address=*)
            busybox ip address add "${word#*=}" dev eth0 && busybox ip link set eth0 up || echo "no eth0"
            ;;
        # Programs whose sockets are the host's, by commas; and how long an idle processor looks for messages.
        punctual.sockets=*)
            commands=${word#*=}
            [ "$commands" = all ] && commands="*"
            ;;
        punctual.idle_poll_us=*)
            idle="idle_poll_us=${word#*=}"
            ;;
    esac
done
if [ -n "$commands" ]; then
    busybox insmod /sockets/punctual_sockets.ko "commands=$commands" $idle || echo "no sockets of the host"
fi
# What else a measurement starts.
[ -f /start ] && busybox sh /start &
# Real-time tasks may use all of the virtual processor: that is what is measured.
echo -1 >/proc/sys/kernel/sched_rt_runtime_us
punctual-guest fifo --port org.punctual.guest
echo "punctual-guest ended: $?"
busybox poweroff -f
