# shellcheck shell=sh
# In domain 0: the policy fails on purpose. Lines of FAIL say what two guests ran in 10 s before, after, and
# with a new policy, in ms.
burner one || return
burner two || return
budgets() {
    ./punctual xen set Domain-0 --budget 2ms --period 10ms || return
    ./punctual xen set one --budget 4ms --period 10ms --extratime false || return
    ./punctual xen set two --budget 2ms --period 10ms --extratime false || return
}
measure() {
    sleep 1
    start=$(now) one=$(ran one) two=$(ran two)
    sleep 10
    echo "FAIL $1 $(($(now) - start)) $(($(ran one) - one)) $(($(ran two) - two))"
}
budgets
measure before
./punctual xen pool Pool-0 --break
sleep 1
./punctual xen pool Pool-0
measure parked
./punctual xen pool Pool-0 --policy nothing
./punctual xen pool Pool-0 --policy deferrable
budgets
measure after
