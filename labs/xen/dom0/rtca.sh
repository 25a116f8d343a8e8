# shellcheck shell=sh disable=SC2046,SC2086,SC2154
# In domain 0, which has a processor of its own: an urgent pair of guests, and three that flood each other,
# all on another processor. ./settings has $scheduler, $seconds, $batches, $levels and $bytes. Lines of TRIPS
# are of net.c; those of RTCA have LEVEL BATCH, processor time of domain 0 in ms, then what each guest sent
# and received in packets.
# shellcheck source=/dev/null
. ./settings
chmod +x net
ln -s /usr/bin/xenstore /bin/xenstore-write
brctl addbr br0
ifconfig br0 10.0.0.254 netmask 255.255.255.0 up
cat > /etc/xen/scripts/vif-bridge << 'HOOK'
#!/bin/sh
[ "$1" = online ] || exit 0
brctl addif br0 "$vif"
ifconfig "$vif" up
xenstore-write "$XENBUS_PATH/hotplug-status" connected
HOOK
chmod +x /etc/xen/scripts/vif-bridge

# guest ID PERIOD BUDGET PRIORITY WORD...: a guest that plays a part of net.c; times in us
guest() {
    id=$1 period=$2 budget=$3 priority=$4
    shift 4
    part=$(echo "$*" | tr ' ' ,)
    printf '%s\n' "name=\"g$id\"" 'type="pv"' 'kernel="/job/kernel"' 'ramdisk="/job/guest.cpio"' \
        'memory=80' 'tsc_mode="native"' "vif=[\"mac=00:16:3e:00:00:0$id\"]" \
        "extra=\"console=hvc0 quiet loglevel=3 nokaslr mitigations=off id=$id part=$part\"" \
        > "/g$id.cfg"
    xl create -q "/g$id.cfg" && xl vcpu-pin g$id 0 1 || return 1
    [ $scheduler = credit ] || xl sched-rtds -d g$id -v all -p $period -b $budget -e 0
    until grep -q READY "/var/log/xen/guest-g$id.log" 2> /dev/null; do sleep 0.2; done
    echo $priority > "/sys/class/net/vif$(xl domid g$id).0/rtca/priority"
    arp -s 10.0.0.$id 00:16:3e:00:00:0$id
}
[ $scheduler = credit ] || xl sched-rtds -d Domain-0 -v all -p 10000 -b 10000 -e 0
guest 1 10000 3000 7 probe 2 || return
guest 2 10000 3000 7 echo || return
guest 3 20000 6000 0 noise 0 4 $bytes || return
guest 4 20000 6000 0 noise 1 5 $bytes || return
guest 5 20000 6000 0 noise 2 3 $bytes || return
xl vcpu-list

packets() {
    for id in 1 2 3 4 5; do
        cat /sys/class/net/vif$(xl domid g$id).0/statistics/rx_packets \
            /sys/class/net/vif$(xl domid g$id).0/statistics/tx_packets
    done | tr '\n' ' '
}

# What Linux has without a patch: a thread for each NAPI instance, and real-time priorities.
threads() {
    for id in 1 2 3 4 5; do
        vif=vif$(xl domid g$id).0
        priority=$(cat /sys/class/net/$vif/rtca/priority)
        echo 1 > /sys/class/net/$vif/threaded
        ./net fifo $((priority + 1)) napi/$vif || return
        ./net fifo $((priority + 2)) $vif- || return
    done
}

fair_server=/sys/kernel/debug/sched/fair_server/cpu0/runtime
mount -t debugfs debugfs /sys/kernel/debug
fair=$(cat $fair_server)
for batch in $batches; do
    echo $fair > $fair_server
    case $batch in
        threads)
            echo 0 > /sys/module/xen_netback/parameters/rtca_batch
            threads || return
            ;;
        # Other threads of domain 0 get nothing from real-time threads.
        alone)
            echo 1 > /sys/module/xen_netback/parameters/rtca_batch
            echo 0 > $fair_server
            ;;
        *) echo $batch > /sys/module/xen_netback/parameters/rtca_batch ;;
    esac
    for level in $levels; do
        before=$(packets) time=$(ran Domain-0)
        ./net go $level $seconds "$level $batch"
        sleep $((seconds + 1))
        echo "RTCA $level $batch $(($(ran Domain-0) - time)) $before to $(packets)"
        tries=0
        until grep "^TRIPS $level $batch " /var/log/xen/guest-g1.log; do
            sleep 0.5
            tries=$((tries + 1))
            [ $tries -lt 40 ] || break
        done
    done
done
echo RTCA-END
