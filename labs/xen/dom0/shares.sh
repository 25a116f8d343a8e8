# shellcheck shell=sh
# In domain 0: what two guests that never rest ran, in lines of SHARES LABEL MS ONE TWO, in ms.
burner one || return
burner two || return

# measure LABEL: what both guests run in 20 s
measure() {
    sleep 1
    start=$(now) one=$(ran one) two=$(ran two)
    sleep 20
    echo "SHARES $1 $(($(now) - start)) $(($(ran one) - one)) $(($(ran two) - two))"
}

budgets() {
    xl sched-rtds -d one -v all -p "$1" -b "$2" -e 0 && xl sched-rtds -d two -v all -p "$3" -b "$4" -e 0
}

# Enough for the tools, and little to idle away under the periodic server.
xl sched-rtds -d Domain-0 -v all -p 10000 -b 500 -e 1
budgets 10000 4000 10000 3000 && measure first
budgets 20000 2000 10000 8000 && measure second
xl debug-keys r
sleep 1
echo SHARES-END
