# shellcheck shell=sh disable=SC3028,SC2154,SC2086
# In domain 0: for $minutes guests come and go, are paused, pinned, given other parameters and cpupools,
# processors leave and return, policies change; all at random, or only $steps, numbers of `step`. Both and
# $seed are in ./settings. The last lines are STRESS with what was done, and free memory of Xen in MiB before
# and after.
# shellcheck source=/dev/null
. ./settings
RANDOM=$seed
policies="rtds deferrable periodic polling sporadic sedf credit"
xl_() { timeout 120 xl "$@" > /dev/null 2>&1; }

# one WORD...: $it is one of them
one() {
    shift $((RANDOM % $#))
    it=$1
}

guest() { one one two three; }
exists() { xl list "$1" > /dev/null 2>&1; }

make_guest() {
    exists "$1" && return 1
    vcpus=$((RANDOM % 3 + 1))
    printf '%s\n' "name=\"$1\"" 'type="pv"' 'kernel="/vmlinux"' 'ramdisk="/guest.cpio"' 'memory=160' \
        'extra="console=hvc0 quiet loglevel=3 nokaslr mitigations=off"' "vcpus=$vcpus" > "/$1.cfg"
    xl_ create -q "/$1.cfg"
}

second_pool() {
    if xl cpupool-list second > /dev/null 2>&1; then
        for name in one two three; do exists $name && xl_ cpupool-migrate $name Pool-0; done
        xl_ cpupool-destroy second
        xl_ cpupool-cpu-add Pool-0 2
    else
        xl_ cpupool-cpu-remove Pool-0 2
        xl_ cpupool-create 'name="second"' 'sched="rtds"' 'cpus=["2"]'
    fi
}

budget() {
    period=$((RANDOM % 40 + 1))
    budget=$((period * (RANDOM % 900 + 50)))
    xl_ sched-rtds -d "$1" -v all -p $((period * 1000)) -b $budget -e $((RANDOM % 2))
}

another_policy() {
    one $policies
    policy=$it
    one Pool-0 second
    ./punctual xen pool $it --policy $policy > /dev/null 2>&1
}

pin() {
    guest
    name=$it
    one 0 1 2 0-1 1-2 0-2 all
    hard=$it
    one 0 1 all
    xl_ vcpu-pin $name all $hard $it
}

step() {
    one ${steps:-0 1 2 3 4 5 6 7 8 9 10 11}
    what=$it
    guest
    case $what in
        0 | 1) make_guest $it ;;
        2) xl_ destroy $it ;;
        3)
            xl_ pause $it
            xl_ unpause $it
            ;;
        4) pin ;;
        5 | 6) budget $it ;;
        7)
            name=$it
            one Pool-0 second
            xl_ cpupool-migrate $name $it
            ;;
        8) second_pool ;;
        9) xl_ vcpu-set $it $((RANDOM % 3 + 1)) ;;
        10) another_policy ;;
        11)
            timeout 60 xen-hptool cpu-offline 1 > /dev/null 2>&1
            timeout 60 xen-hptool cpu-online 1 > /dev/null 2>&1
            ;;
    esac
}

# Nothing but domain 0 in one pool.
clear_all() {
    for name in one two three; do exists $name && xl_ destroy $name; done
    while [ "$(xl list | wc -l)" -gt 2 ]; do sleep 0.5; done
    xl cpupool-list second > /dev/null 2>&1 && second_pool
    ./punctual xen pool Pool-0 --policy rtds > /dev/null 2>&1
    sleep 2
}

free_mib() { xl info | awk '$1 == "free_memory" { print $3 }'; }

# Xen's console says what memory is free, and what pools of the scheduler have.
memory() {
    echo "STRESS-MEMORY $1"
    xl debug-keys m
    xl debug-keys r
    sleep 1
}

done_=0 refused=0
run_until() {
    while [ "$(cut -d. -f1 /proc/uptime)" -lt "$1" ]; do
        if step; then done_=$((done_ + 1)); else refused=$((refused + 1)); fi
        [ $(((done_ + refused) % 25)) -ne 0 ] || echo "STEP $done_ done, $refused refused"
    done
    clear_all
}

# Guests' budgets are random, and together may be more than the processors have: nobody may keep domain 0 from
# going on.
chmod +x punctual
./punctual xen set Domain-0 --priority 0 || echo "STRESS-ERROR domain 0 has no priority"
# Under RTDS and SEDF the earliest deadline counts: that of the shortest period.
xl sched-rtds -d 0 -v all -p 500 -b 450 -e 1 || echo "STRESS-ERROR domain 0 has no budget"
begin=$(cut -d. -f1 /proc/uptime)
run_until $((begin + 60))
before=$(free_mib)
memory before
run_until $((begin + minutes * 60))
memory after
echo "STRESS $done_ done, $refused refused, free MiB $before $(free_mib)"
