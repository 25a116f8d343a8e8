#!/usr/bin/env bash
# The policies inside a real Xen, booted in QEMU with counted instructions.
#
# usage: labs/lab xen MODE [ARGUMENT...]
#   demo      examples/misbehaving.toml in guests: who missed deadlines and who had what share of the
#             processor, under servers and under Xen's own Credit, beside the simulator's figures; 10 minutes
#   shares [POLICY[,OPTION=VALUE...]|own]...  what two guests that never rest got under each policy, each
#             share within a point of the simulator's; `own` is Xen's RTDS; 2 minutes a policy
#   run [HOST.toml [POLICY]...]  a host file in guests under each policy, beside the simulator; by default
#             labs/xen/hosts/three.toml under deferrable, periodic, sporadic and rtds
#   compare [CASE[:POLICY,...]]...  host files of labs/xen/hosts under every policy: shares and response
#             times; fails if a share is not within a point. `three-late` is three.toml with all jobs later.
#             Each host is simulated twice: as its file says, and with what jobs and domain 0 took in Xen
#             beyond that (costs.py); under Credit also at other phases between its ticks and the jobs
#   reproduce rt-xen|nautilus [own-rtds|own-credit] [OPTION of `punctual reproduce`]...  a paper's
#             experiments, beside simulation and paper
#   replay    every call of the scheduler in Xen with its answer, under each policy, and the same calls made
#             here; fails if an answer differs. The trace is target/xen-lab/replay.out, its pool with the
#             most decisions for ui.perfetto.dev replay.pftrace beside it
#   cost [POLICY[,OPTION=VALUE...]|own]...  what the scheduler takes, Punctual's RTDS beside Xen's own
#   overhead [POLICY]...  RT-Xen's Table 1 (even share, 70 % load): decisions and switches in 10 s, and what
#             they take, beside paper and simulator
#   fail      a policy panics on purpose: the machine goes on in round robin, and another policy takes over
#   stress [MINUTES [SEED [STEPS]]]  a debug build on three processors that execute at the same time: guests
#             come and go, are paused, pinned, moved between cpupools, processors are taken away, policies
#             change, at random, for 10 minutes. Nothing may break, and no memory may be gone at the end.
#             STEPS are numbers of changes in dom0/stress.sh ("8 11": processors leave and return)
#   soft      a guest runs where its soft affinity says while those processors are free
#   rtca [SCHEDULER...]  round trips of an urgent pair of guests beside three that flood each other, as Linux
#             is shipped and with kernel/0002, by batch. Domain 0 has one processor, all guests share another.
#             SCHEDULER is a policy or own-credit; by default both deferrable and own-credit. With
#             RTCA_BATCHES="0 1 64 238 alone threads" also batch 1 while the rest of domain 0 gets nothing,
#             and what Linux offers without the patch: threaded NAPI and real-time priorities. Others:
#             RTCA_LEVELS ("0 1 2 3", how many flood), RTCA_SECONDS (2), RTCA_BYTES (1400, of a packet)
#   policies  the policy of a pool changes 28 times, under a guest that never rests and one that sleeps and
#             wakes: each of them runs on, with its budget
#
# It fetches Xen's source and what a domain 0 needs as Debian packages, and builds Xen with
# xen/sched_punctual.c, in target/xen-lab, which takes 8 minutes the first time; logs and results are there.
# `own-rtds` and `own-credit` are Xen's own schedulers. Needs Debian 12 and root.
# environment: XEN_VERSION (4.17, Debian 12's; 4.20 is Debian 13's)
# shellcheck source=labs/lib.sh disable=SC2034  # Much is for `boot`.
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/xen/machine.sh
. labs/xen/machine.sh
status=0

# What the simulator gives to the two guests that never rest.
simulated_shares() {
    local settings=() option options
    IFS=, read -ra options <<< "$1"
    for option in "${options[@]:1}"; do
        case ${option#*=} in
            [0-9]*) settings+=(--set "pool.guests.${options[0]}.${option%%=*}=${option#*=}") ;;
            *) settings+=(--set "pool.guests.${options[0]}.${option%%=*}=\"${option#*=}\"") ;;
        esac
    done
    "$punctual" sim "$parts/shares.toml" --policy "${options[0]}" "${settings[@]}" --json \
        --set "domain.one.budget=$2" --set "domain.one.period=$3" \
        --set "domain.two.budget=$4" --set "domain.two.period=$5" |
        python3 -c 'import json, sys
results = json.load(sys.stdin)
print(*(round(d["cpu_time_ns"] / results["duration_ns"] * 100, 1) for d in results["domains"][:2]))'
}

# The demo on one processor, which domain 0 shares: its guests and their parameters are those of the example.
# Credit is Xen's.
demo() {
    local policies=(deferrable periodic sporadic own-credit)
    local policy title simulated args=() words work=$scratch
    prepare release
    cat examples/misbehaving.toml "$parts/manager.toml" > "$work/demo.toml"
    words=(--set machine.processors=1 --set "pool.guests.processors=[0]"
        --set 'pool.guests.credit.refill="period"' --set 'pool.guests.credit.ticks="drifting"'
        --set 'pool.guests.credit.ratelimit="1ms"')
    in_guests release demo "$work/demo.toml" "${words[*]}" "${policies[@]}" || status=1
    for policy in "${policies[@]}"; do
        [ -e "$lab/demo-$policy.json" ] || continue
        simulated=$work/$policy.json
        "$punctual" sim "$work/demo.toml" "${words[@]}" --policy "${policy#own-}" --json > "$simulated"
        title=$policy
        [ "$policy" != own-credit ] || title="Xen's Credit"
        args+=("$title" "$simulated" "$lab/demo-$policy.json")
    done
    python3 "$parts/demo.py" "${args[@]}" || status=1
}

# shares POLICY...: the table of the guests that never rest
shares() {
    local choice name policy options expected
    [ $# -gt 0 ] || set -- deferrable periodic polling sporadic rtds sedf own
    prepare release
    printf '%-24s %-14s %-14s %-14s %s\n' "shares in %" "4/10, 3/10 ms" simulated "2/20, 8/10 ms" simulated
    for choice; do
        name=${choice//[^a-z0-9]/-}
        case $choice in
            own) policy=rtds options=$own=rtds ;;
            *) policy=$choice options="sched=punctual sched_punctual=$choice" ;;
        esac
        boot release "$name" "$options" "$parts/dom0/shares.sh"
        expected=$(simulated_shares "$policy" 4ms 10ms 3ms 10ms; simulated_shares "$policy" 2ms 20ms 8ms 10ms)
        python3 "$parts/table.py" "$choice" "$lab/$name.log" "$expected" || status=1
    done
}

run() {
    local host=${1:-$parts/hosts/three.toml} policy
    [ $# -eq 0 ] || shift
    [ $# -gt 0 ] || set -- deferrable periodic sporadic rtds
    prepare release
    in_guests release host "$host" "" "$@" || status=1
    for policy; do
        [ -e "$lab/host-$policy.json" ] || continue
        "$punctual" sim "$host" --policy "${policy#own-}" --label "simulated-$policy" --json \
            >"$scratch/sim.json"
        "$punctual" compare "$scratch/sim.json" "$lab/host-$policy.json" || [ $? -eq 1 ]
    done
}

# What is changed in a case's file, as words of a command line.
words_of() {
    case $1 in
        three-late) echo "--set domain.control.task.loop.offset=4ms" \
            "--set domain.video.task.frame.offset=15ms" ;;
    esac
}

file_of() { echo "$parts/hosts/${1%-late}.toml"; }

compare_one() {
    local case=$1 policy all args=() words phases build=release work=$scratch
    IFS=, read -ra all <<< "$2"
    one_processor
    if grep -q '^processors = 2$' "$(file_of "$case")"; then
        several 2
        build=poll
    fi
    in_guests "$build" "compare-$case" "$(file_of "$case")" "$(words_of "$case")" "${all[@]}" || status=1
    for policy in "${all[@]}"; do
        [ -e "$lab/compare-$case-$policy.json" ] || continue
        # shellcheck disable=SC2046,SC2207 # words
        words=("$(file_of "$case")" $(words_of "$case") --policy "${policy#own-}")
        "$punctual" sim "${words[@]}" --json > "$work/$policy.json"
        # shellcheck disable=SC2046,SC2207 # words
        words+=($(python3 "$parts/costs.py" "$(file_of "$case")" "$lab/compare-$case-$policy.json"))
        "$punctual" sim "${words[@]}" --json > "$work/$policy-costs.json"
        phases=-
        if [ "${policy#own-}" = credit ]; then
            phases=$work/$policy-phases.json
            python3 "$parts/phases.py" "$punctual" "${words[@]}" > "$phases"
        fi
        args+=("$policy" "$work/$policy.json" "$work/$policy-costs.json" "$phases"
            "$lab/compare-$case-$policy.json")
    done
    python3 "$parts/compare.py" "$case" "${args[@]}" || status=1
}

compare() {
    local choice chosen builds=()
    [ $# -gt 0 ] || set -- three three-late short five two-processors four pools
    for choice; do
        case ${choice%%:*} in
            two-processors | four | pools) builds+=(poll) ;;
            *) builds+=(release) ;;
        esac
    done
    mapfile -t builds < <(printf '%s\n' "${builds[@]}" | sort -u)
    prepare "${builds[@]}"
    for choice; do
        chosen=deferrable,periodic,polling,sporadic,sedf,rtds,own-rtds,credit,own-credit
        [ "$choice" = "${choice#*:}" ] || chosen=${choice#*:}
        compare_one "${choice%%:*}" "$chosen"
    done
}

reproduce() {
    local paper=$1 options=sched=punctual name=reproduce-$1
    shift
    case ${1:-} in
        own-*)
            options=$own=${1#own-} name+=-$1
            shift
            ;;
    esac
    # A processor that halts leaves its time to the other one, which makes it faster. That does not matter to
    # cyclictest, whose tasks hardly execute.
    [ "$paper" != nautilus ] || several 2
    prepare release
    echo "$paper $*" >"$scratch/line"
    cp "$punctual" "$scratch/punctual"
    memory=2048 seconds_max=7200
    boot release "$name" "$options" "$parts/dom0/reproduce.sh" "$scratch/line" "$scratch/punctual"
    [ -s "$lab/$name.out" ] || { echo "xen reproduce: no result; see $lab/$name.log" >&2; exit 1; }
    cat "$lab/$name.out"
}

replay() {
    prepare release
    seconds_max=1200 memory=2048 dom0="dom0_mem=1024M,max:1024M dom0_max_vcpus=1"
    boot release replay sched=punctual "$parts/dom0/replay.sh" "$punctual"
    "$punctual" xen replay "$lab/replay.out" --trace "$lab/replay.pftrace"
}

cost() {
    local choice name options
    [ $# -gt 0 ] || set -- own rtds deferrable periodic polling sporadic sedf
    prepare count
    for choice; do
        name=cost-${choice//[^a-z0-9]/-} options="sched=punctual sched_punctual=$choice"
        [ "$choice" != own ] || options=$own=rtds
        boot count "$name" "$options" "$parts/dom0/cost.sh"
        python3 "$parts/cost.py" "$choice" "$lab/$name.log"
    done
}

overhead() {
    local policy name options
    [ $# -gt 0 ] || set -- deferrable periodic polling sporadic credit sedf own-rtds
    prepare count
    strip -o "$scratch/punctual" "$punctual"
    cat papers/rt-xen/even.toml "$parts/manager.toml" >"$scratch/host.toml"
    memory=2048 seconds_max=900
    python3 "$parts/overhead.py"
    for policy; do
        name=overhead-$policy options=sched=punctual
        case $policy in own-*) options=$own=${policy#own-} ;; esac
        echo "--policy ${policy#own-}" >"$scratch/line"
        boot count "$name" "$options" "$parts/dom0/overhead.sh" "$scratch"/{host.toml,line,punctual}
        "$punctual" sim "$scratch/host.toml" --policy "${policy#own-}" --seed 1 --duration 10s --json \
            >"$scratch/sim"
        python3 "$parts/overhead.py" "$policy" "$scratch/sim" "$lab/$name.log" || status=1
    done
}

fail() {
    prepare debug
    boot debug fail "$rtds" "$parts/dom0/fail.sh" "$punctual"
    grep -aE '^FAIL|punctual: |round robin' "$lab/fail.log" | tr -d '\r' | sort -u
    python3 "$parts/fail.py" "$lab/fail.log"
}

stress() {
    local minutes=${1:-10} seed=${2:-1} steps=${3:-} log=$lab/stress.log bad result
    prepare debug
    machine=("${parallel[@]}") memory=3072 dom0="dom0_mem=768M,max:768M dom0_max_vcpus=2"
    # Of processor time, of which three processors may take three seconds a second.
    seconds_max=$((minutes * 180 + 1200))
    printf 'minutes=%s\nseed=%s\nsteps="%s"\n' "$minutes" "$seed" "$steps" >"$lab/settings"
    boot debug stress "$rtds" "$parts/dom0/stress.sh" "$lab/settings" "$punctual"
    bad='Assertion|BUG at|Panic on CPU|FATAL|punctual: (the pool|nowhere)|WARNING: at|STRESS-ERROR'
    ! grep -aE "$bad" "$log" || { echo "xen stress: something broke: see $log" >&2; exit 1; }
    result=$(grep -a '^STRESS ' "$log" | tr -d '\r') || {
        echo "xen stress: it did not end: see $log" >&2
        exit 1
    }
    echo "${result#STRESS }"
    python3 "$parts/stress.py" "$log"
}

soft() {
    prepare release
    machine=("${parallel[@]}") memory=2048
    boot release soft "$rtds" "$parts/dom0/soft.sh" "$punctual"
    python3 "$parts/soft.py" "$lab/soft.log"
}

policies() {
    prepare release
    seconds_max=900
    boot release policies "$rtds" "$parts/dom0/policies.sh" "$punctual"
    python3 "$parts/policies.py" "$lab/policies.log"
}

# The guests' files are those of burn.c, with another program.
traffic() {
    kernel/build.sh target/lab/linux xen >&2 || exit $?
    vmlinux=$PWD/target/lab/linux/xen/vmlinux
    mkdir -p "$scratch/guest/bin"
    cc -O1 -static -o "$scratch/net" "$parts/net.c"
    cp "$scratch/net" "$scratch/guest/bin/"
    cp "$parts/guest-net.sh" "$scratch/guest/init"
    chmod +x "$scratch/guest/init"
    (cd "$scratch/guest" && find . | cpio --create --format=newc --quiet) | cat "$lab/guest.cpio" - \
        >"$scratch/guest.cpio"
    cp "$vmlinux" "$scratch/kernel"
}

rtca() {
    local scheduler options
    [ $# -gt 0 ] || set -- deferrable own-credit
    prepare_machine poll
    traffic
    several 2
    memory=2048 seconds_max=3600 dom0="dom0_mem=640M,max:640M dom0_max_vcpus=1 dom0_vcpus_pin"
    for scheduler; do
        options="sched=punctual sched_punctual=$scheduler"
        [ "$scheduler" = "${scheduler#own-}" ] || options=$own=${scheduler#own-}
        cat >"$scratch/settings" <<END
scheduler=${scheduler#own-}
seconds=${RTCA_SECONDS:-2}
levels="${RTCA_LEVELS:-0 1 2 3}"
batches="${RTCA_BATCHES:-0 1 64 238}"
bytes=${RTCA_BYTES:-1400}
END
        boot poll "rtca-$scheduler" "$options" "$parts/dom0/rtca.sh" \
            "$scratch"/{settings,net,kernel,guest.cpio}
        python3 "$parts/rtca.py" "$scheduler" "$lab/rtca-$scheduler.log" || status=1
    done
}

rtds="sched=punctual sched_punctual=rtds"
# Three processors that execute at the same time.
parallel=(-accel "tcg,thread=multi" -smp 3)
case ${1:-} in
    reproduce) [ $# -gt 1 ] || usage ;;&
    demo | shares | run | compare | reproduce | replay | cost | overhead) "$@" ;;
    fail | stress | soft | policies | rtca) "$@" ;;
    *) usage ;;
esac
exit $status
