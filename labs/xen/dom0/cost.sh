# shellcheck shell=sh
# In domain 0: what the scheduler of a Xen that counts (count.py) takes with two guests that never rest and
# two that rest for 1 ms after every 100 us: its counters before and after 20 s. Periods differ: Xen's RTDS
# counts those of all units from the same instant.
period=10000
xl sched-rtds -d Domain-0 -v all -p $period -b 500 -e 1
for name in one two three four; do
    case $name in
        three | four) burner $name rest_us=1000 || return ;;
        *) burner $name || return ;;
    esac
    period=$((period + 700))
    xl sched-rtds -d $name -v all -p $period -b 2000 -e 0
done
sleep 1
echo COST-BEGIN
xl debug-keys r
sleep 20
echo COST-END
xl debug-keys r
sleep 2
