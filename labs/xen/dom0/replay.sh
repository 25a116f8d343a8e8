# shellcheck shell=sh
# In domain 0: what the scheduler is told and answers under each policy in turn, with a guest that never rests
# and two that rest; the trace is sent. Its records begin with the policies.
burner one || return
burner two rest_us=300 || return
burner three rest_us=900 || return
xentrace -D -S 512 -e 0x22000 /trace &
sleep 1
for policy in rtds deferrable periodic polling sporadic sedf credit; do
    ./punctual xen pool Pool-0 --policy $policy || return
    ./punctual xen set Domain-0 --budget 3ms --period 10ms --priority 9 || return
    ./punctual xen set one --budget 300us --period 1ms --priority 1 --extratime false || return
    ./punctual xen set two --budget 200us --period 700us --priority 2 || return
    ./punctual xen set three --budget 200us --period 2ms --priority 3 || return
    sleep 20
    ./punctual xen show
done
kill %1
wait
ls -l /trace
send /trace
