# shellcheck shell=sh
# In domain 0: policies change under two guests, of which one never rests and the other sleeps and wakes.
# Lines of POLICIES: the round, the policy, for how long it is looked at, and what each guest ran, in ms.
burner one || return
burner two rest_us=300 || return
set_all() {
    ./punctual xen set Domain-0 --budget 2ms --period 10ms &&
        ./punctual xen set one --budget 4ms --period 10ms --extratime false &&
        ./punctual xen set two --budget 2ms --period 10ms --extratime false
}
for round in 1 2 3 4; do
    for policy in deferrable rtds polling credit periodic sedf sporadic; do
        ./punctual xen pool Pool-0 --policy $policy > /dev/null || return
        set_all > /dev/null || return
        sleep 0.3
        start=$(now) one=$(ran one) two=$(ran two)
        sleep 2
        echo "POLICIES $round $policy $(($(now) - start)) $(($(ran one) - one)) $(($(ran two) - two))"
    done
done
