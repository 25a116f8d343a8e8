# Open vSwitch with DPDK of Debian 12, unpacked, beside the switch under the same load generator.
# shellcheck shell=bash disable=SC2154
#
# fetch_ovs           downloads it and unpacks it into $lab/ovs, once
# measure_ovs ROUNDS  one vhost-user socket to another, in turn: round trips, packets a second by length,
#                     flows and direction, times at parts of the most; a minute and a half a round

fetch_ovs() {
    [ ! -s "$lab/ovs/complete" ] || return 0
    use_suite bookworm || return 1
    unpack "$lab/ovs" openvswitch-switch-dpdk librte-mempool-ring23 || return 1
    # DPDK loads drivers from no directory that others may write to.
    chmod -R go-w "$lab/ovs"
    echo bookworm >"$lab/ovs/complete"
}

in_ovs() {
    local root=$lab/ovs program=$1
    shift
    env LD_LIBRARY_PATH="$root/usr/lib/x86_64-linux-gnu:$root/lib/x86_64-linux-gnu" "$root/$program" "$@"
}

# The same in the background; $! is the process of the program itself.
start_in_ovs() {
    local log=$1
    shift
    # shellcheck disable=SC2031
    (export LD_LIBRARY_PATH=$lab/ovs/usr/lib/x86_64-linux-gnu:$lab/ovs/lib/x86_64-linux-gnu
        exec "$lab/ovs/$1" "${@:2}") >"$log" 2>&1 &
}

# Sockets are $scratch/a and $scratch/b; the thread that polls is on processor 1, the others on processor 0.
start_ovs() {
    local port database=unix:$scratch/db.sock ring
    export OVS_RUNDIR=$scratch OVS_LOGDIR=$scratch OVS_DBDIR=$scratch OVS_SYSCONFDIR=$scratch
    export OVS_PKGDATADIR=$lab/ovs/usr/share/openvswitch
    mount -t tmpfs dpdk /run
    in_ovs usr/bin/ovsdb-tool create "$scratch/conf.db" "$OVS_PKGDATADIR/vswitch.ovsschema"
    start_in_ovs "$scratch/ovsdb" usr/sbin/ovsdb-server "$scratch/conf.db" --remote="p$database"
    wait_for_process $! "$scratch/ovsdb" test -S "$scratch/db.sock" || return 1
    ring=$(find "$lab/ovs" -name 'librte_mempool_ring.so.*' | sed -n 1p)
    ask_ovs() { in_ovs usr/bin/ovs-vsctl --db="$database" --timeout=20 "$@"; }
    ask_ovs --no-wait init -- set Open_vSwitch . other_config:dpdk-init=true \
        other_config:dpdk-lcore-mask=0x1 other_config:pmd-cpu-mask=0x2 other_config:vhost-sock-dir=. \
        other_config:dpdk-extra="--no-huge --legacy-mem -m 256 --no-pci --no-telemetry -d $ring"
    start_in_ovs "$scratch/vswitchd" usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk "$database"
    ovs=$!
    ask_ovs add-br bridge0 -- set bridge bridge0 datapath_type=netdev
    for port in a b; do ask_ovs add-port bridge0 "$port" -- set Interface "$port" type=dpdkvhostuser; done
    for port in a b; do wait_for_process "$ovs" "$scratch/vswitchd" test -S "$scratch/$port" || return; done
}

measure_ovs() {
    local round input ovs
    start_ovs || return 1
    mkdir "$scratch/switch"
    coproc exec "$measure" serve "$scratch/switch"
    input=${COPROC[1]}
    until [ -S "$scratch/switch/1.sock" ]; do sleep 0.1; done
    for ((round = 0; round < ${1:-4}; round++)); do
        # The switch sleeps while nobody sends; the other one polls, so it is stopped.
        kill -STOP "$ovs"
        "$measure" sockets "$scratch"/switch/{0,1}.sock | sed 's/^/switch  /'
        kill -CONT "$ovs"
        "$measure" sockets "$scratch"/{a,b} | sed 's/^/OVS-DPDK/'
    done | tee >(cat >&2) | python3 labs/switch/ovs-table.py
    exec {input}>&-
}
