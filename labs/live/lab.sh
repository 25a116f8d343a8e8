#!/usr/bin/env bash
# Enforcement on this machine: what it costs, how exact it is, what it keeps apart, what disturbs it.
#
# usage: labs/lab live MODE [ARGUMENT]
#   enforcement [SECONDS]  evidence of enforcement for five vCPUs under each server, then cyclictest's
#             wake-up latency beside a hog, five times in turn under plain SCHED_FIFO and under enforcement;
#             each run takes 5 s
#   isolation [SECONDS]  a task set of 60 % load in four domains beside a fifth, the most urgent one with a
#             budget of 1 ms in 10 ms, that misbehaves: a hog, a bomb of busy processes, a VM that a timer
#             wakes every 100 us; deadlines missed under enforcement and under plain Linux; 10 s a run
#   standstill [TIMES]  the machine below a run of the lab `kernel` is stopped for 100 ms about every
#             second, 12 times; fails if less than 95 % of the time is called a standstill
#   sched-ext [SECONDS [TIMES]]  enforcement by a scheduler in the kernel, in the machine of the lab
#             `kernel`, by counted instructions: budgets under each server and wake-ups, in turn with the
#             freezer, 5 s a run; a unit that is killed; the scheduler's end, 10 times each: the run is
#             killed, the kernel ends the scheduler. Fails if something is not as docs/live.md says
#   sched-ext-cost [SECONDS [POLICY...]]  what a release build takes of a processor there, in turn with the
#             freezer: one unit that spins, four, and one that wakes up every 1.1 ms beside another, 3 s each,
#             under each server or under these; and what the most urgent unit sees
#   partition [SECONDS [TIMES [ROUNDS]]]  pools that are isolated cpuset partitions, in the machine of the lab
#             `kernel`: 24 runs that end at random moments, with everything compared before and after; then
#             who had the processor of a unit beside fair processes that spin, and the unit's wake-ups,
#             shared and isolated, 4 s a run, 3 times each
#   waits-bpf [SECONDS]  what VMs wait for, by programs in the kernel, in the machine of the lab `kernel`:
#             causes that are injected, sums beside those by tracepoints on the same VMs (10 s), and the cost
#             of both. Fails if less than 95 % is named rightly, or if the sums differ. SUITE=bookworm does it
#             under Linux 6.1
#   smp [ROUNDS [MS [POLICY...]]]  the work of a translated Linux guest whose two vCPUs share processor 1 and
#             wait for each other, ten loads of 1,000 ms: under plain Linux, and with one budget for the VM
#             under each policy, in turn, 3 rounds; then what the simulator predicts. Fails if a load hangs
#   hints [MS]  what KVM counts of a guest of two vCPUs on one processor, on one each, and of three on one,
#             in the machine of the lab `kernel`: each load of 3,000 ms, counters of debugfs beside those of
#             `punctual why`. Fails if they differ. APPEND=setcpuid=pausefilter,pfthreshold makes KVM
#             intercept PAUSE, which the emulated processor can, although it lacks the filter: each PAUSE of
#             the guest is an exit then
#   offline [TIMES]  the processor of two units goes offline and comes back while a run is attached, in the
#             machine of the lab `kernel`, 10 times; fails if a unit is real-time elsewhere for longer than
#             200 ms, or something is left behind
#   interrupts [PROCESSOR [BUSY_PROCESSOR]]  how long an interrupt from a processor (0) to a busy one (1)
#             takes: microseconds on a good machine, up to 4 ms on virtual machines that deliver it at the
#             other processor's next timer tick. Wake-ups across processors contain it
#
# The first two and smp need root, and a machine on which nothing else runs. Threads that spin stay on
# processor 1.
# environment: PUNCTUAL (the program; by default it is built)
# shellcheck source=labs/lib.sh
. "$(dirname "$0")/../lib.sh"

enforcement() {
    local seconds=${1:-5} loops hog
    loops=$((seconds * 1000))
    need cyclictest taskset chrt python3
    build_punctual
    echo "== five vCPUs, one of them a hog (examples/misbehaving.toml as processes), $seconds s each"
    "$punctual" run examples/misbehaving.toml --as process --duration "${seconds}s" \
        --policy deferrable,periodic,polling,sporadic,rtds,sedf

    echo
    echo "== wake-ups beside a hog on processor 1, in us: cyclictest, 1 ms interval"
    cat >"$scratch/host.toml" <<EOF
[machine]
processors = 2
[pool.guests]
processors = [1]
policy = "deferrable"
[domain.cyclictest]
budget = "5ms"
period = "10ms"
priority = 1
process = { command = [
    "cyclictest", "-q", "-m", "-t1", "-p70", "-i1000", "-l$loops", "-h1000", "--json=$scratch/enforced.json",
] }
[domain.hog]
budget = "4ms"
period = "10ms"
priority = 2
process = { command = ["sh", "-c", "while :; do :; done"] }
EOF
    for _ in 1 2 3 4 5; do
        # `timeout` itself stays off the hog's processor and class, or it would starve with everybody else.
        taskset -c 0 timeout $((seconds + 5)) taskset -c 1 chrt -f 2 sh -c 'while :; do :; done' &
        hog=$!
        cyclictest -q -m -t1 -a1 -p70 -i1000 -l"$loops" -h1000 --json="$scratch/plain.json" >/dev/null
        kill "$hog"
        wait "$hog" 2>/dev/null || true
        python3 labs/live/quantiles.py "$scratch/plain.json" SCHED_FIFO
        "$punctual" run "$scratch/host.toml" --duration "$((seconds + 2))s" >/dev/null 2>&1
        python3 labs/live/quantiles.py "$scratch/enforced.json" enforced
    done
}

# beside WHAT FORM LINE: that line is the task of the domain that misbehaves
beside() {
    local host=$scratch/host.toml
    { printf 'name = "60 %% load beside %s"\n' "$1"; cat labs/live/isolation.toml; echo "$3"; } >"$host"
    printf '\n== 60 %% load beside %s\n' "$1"
    "$punctual" run "$host" --as "$2" --duration "${seconds}s" \
        --policy deferrable,periodic,sporadic,linux-cfs,linux-fifo
}

isolation() {
    local seconds=${1:-10}
    build_punctual
    beside "a hog" process 'task.stuck = { hog = true }'
    # shellcheck disable=SC2016  # The words are the inner shell's.
    beside "a bomb of sixteen busy processes" process 'process.command = [
    "sh", "-c", "for i in $(seq 15); do (while :; do :; done) & done; while :; do :; done"]'
    beside "a VM that is woken every 100 us" vm 'vm = {}
task.flood = { period = "100us", cost = "5us" }'
}

# The kernel in the machine does not learn that QEMU was stopped, as under a hypervisor without a clock of
# stolen time.
standstill() {
    local times=${1:-12} lab folder=target/lab/standstill code=0
    cargo build --quiet --locked -p punctual
    mkdir -p $folder
    sed "s/@SECONDS@/$((times + 3))/" labs/live/standstill.toml >$folder/host.toml
    : >$folder/results
    labs/lab kernel run target/debug/punctual run "$PWD/$folder/host.toml" --as process --policy deferrable \
        --blame --json --progress >$folder/results 2>$folder/errors &
    lab=$!
    wait_for_process $lab $folder/errors grep -q 'running for' $folder/results || {
        wait "$lab" || code=$?
        tail -n 20 $folder/results >&2
        exit "$((code == 0 ? 1 : code))"
    }
    sleep 1
    python3 labs/live/stop.py "$(cat target/lab/pid-cloud)" "$times" >"$scratch/stopped"
    wait "$lab" || true
    python3 labs/live/standstill.py $folder/results "$scratch/stopped"
}

# build_for_kernel [OPTION...]: builds what the machine of the lab `kernel` runs: $punctual with sched-ext, by
# Cargo with these options, and $observer.
build_for_kernel() {
    local profile=debug
    observer=$PWD/target/lab/observe
    need cc
    mkdir -p target/lab
    cc -O2 -static -Wall -Wextra -o "$observer" labs/live/observe.c
    if [ -z "${PUNCTUAL:-}" ]; then
        need clang
        [ $# = 0 ] || profile=release
        cargo build --quiet --locked -p punctual --features sched-ext "$@"
        punctual=$PWD/${CARGO_TARGET_DIR:-target}/$profile/punctual
    fi
}

partition() {
    local observer
    build_for_kernel
    TIMEOUT_S=3600 labs/lab kernel run \
        bash labs/live/partition.sh "$punctual" "$observer" "${1:-4}" "${2:-3}" "${3:-24}" "freezer sched-ext"
}

# counted COMMAND...: one instruction is one nanosecond there, whatever else this machine does.
counted() {
    ACCELERATOR=tcg,thread=single DEVICES="-icount shift=0,sleep=off" TIMEOUT_S=3600 labs/lab kernel run "$@"
}

sched_ext() {
    local observer
    build_for_kernel
    counted bash labs/live/sched-ext.sh "$punctual" "$observer" "${1:-5}" "${2:-10}"
}

sched_ext_cost() {
    local observer seconds=${1:-3}
    [ $# = 0 ] || shift
    [ $# -gt 0 ] || set -- deferrable periodic polling sporadic sedf rtds
    build_for_kernel --release
    counted bash labs/live/sched-ext-cost.sh "$punctual" "$observer" "$seconds" "$@"
}

waits_bpf() {
    local vm=$PWD/target/lab/vm debug=$PWD/${CARGO_TARGET_DIR:-target}/debug tests
    need cc clang
    mkdir -p target/lab
    cc -O2 -static -pthread -Wall -Wextra -o "$vm" labs/live/vm.c
    cargo build --quiet --locked -p punctual-service --features waits-bpf --example waits-cost
    tests=$(cargo test --locked -p punctual --all-features --test live_waits --no-run 2>&1 |
        sed -n 's/^ *Executable .*(\(.*\))$/\1/p')
    TIMEOUT_S=1800 labs/lab kernel run bash labs/live/waits-bpf.sh "${PUNCTUAL:-$debug/punctual}" \
        "$(realpath "$tests")" "$debug/examples/waits-cost" "$vm" "${1:-10}"
}

# smp_guest INITRD: packs smp-guest.c there; $image is Debian's kernel for it, and $punctual is built.
smp_guest() {
    local lab=$PWD/target/lab kernel=$PWD/target/lab/bookworm-cloud
    need cc cpio qemu-system-x86_64 python3
    build_punctual
    # shellcheck source=labs/debian.sh
    . labs/debian.sh
    if [ ! -d "$kernel" ]; then
        echo "fetching Debian's kernel for the guest ..." >&2
        fetch_kernel bookworm "$kernel" cloud || skip "Debian's kernel cannot be fetched here"
    fi
    image=$(find "$kernel" -name 'vmlinuz*' -type f -print -quit)
    mkdir -p "$scratch/root/dev"
    cc -O2 -static -pthread -Wall -Wextra -o "$scratch/root/init" labs/live/smp-guest.c
    pack "$scratch/root" >"$1"
}

hints() {
    local image folder=$PWD/target/lab/hints
    mkdir -p "$folder"
    smp_guest "$folder/initrd"
    # shellcheck disable=SC2016  # The machine expands it.
    TIMEOUT_S=1200 labs/lab kernel run bash -c 'mount -t debugfs none /sys/kernel/debug && exec "$@"' hints \
        python3 labs/live/hints.py "$punctual" "$image" "$folder/initrd" "${1:-3000}"
}

smp() {
    local rounds=${1:-3} ms=${2:-1000} image
    shift $(($# < 2 ? $# : 2))
    [ $# -gt 0 ] || set -- deferrable periodic polling sporadic rtds sedf credit fixed-priority edf
    smp_guest "$scratch/initrd"
    python3 labs/live/smp.py "$punctual" "$image" "$scratch/initrd" "$rounds" "$ms" "$@"
}

offline() {
    build_punctual
    TIMEOUT_S=1800 labs/lab kernel run python3 labs/live/offline.py "$punctual" "${1:-10}"
}

interrupts() {
    need cc
    [ "$(nproc)" -gt 1 ] || skip "there is one processor"
    cc -O2 -Wall -Wextra -pthread -o "$scratch/busy" labs/live/busy.c
    "$scratch/busy" "${1:-0}" "${2:-1}"
}

case ${1:-} in
    enforcement | isolation | standstill | interrupts) "$@" ;;
    partition | smp | offline | hints) "$@" ;;
    sched-ext) shift && sched_ext "$@" ;;
    sched-ext-cost) shift && sched_ext_cost "$@" ;;
    waits-bpf) shift && waits_bpf "$@" ;;
    *) usage ;;
esac
