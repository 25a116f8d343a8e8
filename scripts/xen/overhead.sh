# shellcheck shell=sh disable=SC2086
# In domain 0: host.toml runs for 10 s with the options of the file `line`, in a Xen that counts (count.py),
# whose counters are printed when the tasks begin and before they end.
chmod +x punctual
read -r words < line
./punctual xen run host.toml $words --seed 1 --duration 12s --json < /dev/null > result 2> said &
until grep -q '^running' said; do
    sleep 0.1
    kill -0 $! 2> /dev/null || { cat said; return; }
done
# Tasks begin 2 s after the order to run.
sleep 3
echo COST-BEGIN
xl debug-keys r
sleep 10
echo COST-END
xl debug-keys r
wait
sleep 2
