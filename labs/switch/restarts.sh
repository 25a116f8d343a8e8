# The switch and three guests, stopped and started in random order while the guests send to each other.
# shellcheck shell=bash disable=SC2154
#
# restarts COUNT SEED   the same seed, the same order; fails if anything hangs or comes twice or out of order

# How long frames may take to flow again, guests being booted in between, and how long an end may take.
limit_s=${RESTART_LIMIT_S:-120}
guests=(a b c)
declare -A process life
lives=0

start() {
    case $1 in
        switch)
            "$punctual" switch labs/switch/host.toml --sockets "$scratch" --check --json \
                >>"$scratch/counted" 2>>"$scratch/told" &
            ;;
        *)
            lives=$((lives + 1))
            life[$1]=$lives
            # Letters are numbers from 1.
            guest "$1" "$(($(printf %d "'$1") - 96))" "flows life=$lives"
            ;;
    esac
    process[$1]=$!
}

# end NAME KILL|INT|TERM
end() {
    local one=${process[$1]} status=0
    # QEMU runs below `timeout`, which passes on all signals but this.
    if [ "$1" != switch ] && [ "$2" = KILL ]; then pkill -KILL -P "$one"; else kill -s "$2" "$one"; fi
    timeout "$limit_s" tail -s 0.1 --pid="$one" -f /dev/null || { echo "$1 does not end"; return 1; }
    # The shell would say which of its processes were killed.
    wait "$one" 2>/dev/null || status=$?
    # Exit code 3 says that an invariant of the switch broke.
    if [ "$1" = switch ] && [ "$2" = INT ] && [ "$status" != 0 ]; then
        echo "the switch ends with exit code $status"
        return 1
    fi
    [ "$1" = switch ] || mv "$scratch/$1" "$scratch/$1-${life[$1]}"
}

# How many frames of the present life of the guest $2 the guest $1 has got.
got() {
    tr -d '\r' <"$scratch/$1" | awk -v from="$2" -v life="${life[$2]}" \
        '/^LAB flow/ && $3 == from && $4 == life && NF == 7 { count = $7 } END { print count + 0 }'
}

# Waits until each guest has got more frames of each other.
frames_flow() {
    local from to end=$((SECONDS + limit_s))
    declare -A before
    for to in "${guests[@]}"; do
        for from in "${guests[@]}"; do before[$from$to]=$(got "$to" "$from"); done
    done
    for to in "${guests[@]}"; do
        for from in "${guests[@]}"; do
            [ "$from" != "$to" ] || continue
            until [ "$(got "$to" "$from")" -gt "${before[$from$to]}" ]; do
                [ "$SECONDS" -lt "$end" ] || { echo "no frame of $from comes to $to"; return 1; }
                sleep 0.2
            done
        done
    done
}

restarts() {
    local number which how names=(switch "${guests[@]}")
    for which in "${names[@]}"; do start "$which"; done
    frames_flow || return 1
    RANDOM=$2
    for ((number = 1; number <= $1; number++)); do
        which=${names[RANDOM % 4]}
        how=KILL
        [ $((RANDOM % 2)) = 0 ] || { [ "$which" = switch ] && how=INT || how=TERM; }
        echo "$number: $which, $how" >&2
        end "$which" "$how" || return 1
        sleep "0.$((RANDOM % 10))"
        start "$which"
        # Every other time before all is well again.
        if [ $((RANDOM % 2)) = 0 ]; then
            sleep "$((RANDOM % 2)).$((RANDOM % 10))"
        else
            frames_flow || return 1
        fi
    done
    frames_flow || return 1
    end switch INT || return 1
    for which in "${guests[@]}"; do end "$which" TERM || return 1; done
    python3 labs/switch/restarts.py "$scratch"
}
