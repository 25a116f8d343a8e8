# shellcheck shell=sh
# In domain 0: on which processor is a guest that rests and wakes, with and without a soft affinity? Lines of
# SOFT: the policy, the affinity (`all`: none), samples on processor 1, samples on processor 2. Domain 0 stays
# on processor 0, on which the guest is never asked to be.
burner one rest_us=300 || return
xl vcpu-pin 0 all 0 all
sample() {
    on_1=0 on_2=0 tries=0
    while [ $tries -lt 30 ]; do
        tries=$((tries + 1))
        case $(xl vcpu-list one | awk 'NR == 2 { print $4 }') in
            1) on_1=$((on_1 + 1)) ;;
            2) on_2=$((on_2 + 1)) ;;
        esac
        sleep 0.1
    done
    echo "SOFT $1 $2 $on_1 $on_2"
}
for policy in rtds credit deferrable; do
    ./punctual xen pool Pool-0 --policy $policy || return
    for soft in all 1 2; do
        xl vcpu-pin one 0 1-2 $soft
        sleep 1
        sample $policy $soft
    done
done
