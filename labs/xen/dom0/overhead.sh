# shellcheck shell=sh disable=SC2086
# In domain 0: host.toml runs with the options of the file `line`, in a Xen that counts (count.py). Its
# counters are printed twice while the tasks run, about 10 s apart.
chmod +x punctual
read -r words < line
./punctual xen run host.toml $words --seed 1 --duration 16s --json < /dev/null > result 2> said &
until grep -q '^running' said; do
    sleep 0.1
    kill -0 $! 2> /dev/null || { cat said; return; }
done
# Tasks begin 2 to 2.6 s after the order to run: when the periods of all servers begin.
sleep 3
echo COST-BEGIN
xl debug-keys r
sleep 10
# The machine ends then: what guests report is not needed.
echo COST-END
xl debug-keys r
