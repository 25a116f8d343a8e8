# shellcheck shell=sh disable=SC2086
# In domain 0: each line of the file `runs` is a label and what `punctual xen run` gets. The results are on
# the console, one object of JSON a line: a network card is slow where two processors take turns.
chmod +x punctual
# A parameter of domain 0 and a policy are set and put back.
if ./punctual xen pool Pool-0 --policy deferrable --option quantum=1ms > pool.log 2>&1; then
    ./punctual xen show
    ./punctual xen set Domain-0 --priority 0 && ./punctual xen pool Pool-0 --policy rtds
fi
while read -r label line; do
    # Nothing here reads what is to be run.
    ./punctual xen run $line --label "$label" --json < /dev/null > "result-$label"
    [ ! -s "result-$label" ] || echo "HOST-RESULT $(tr -d '\n' < "result-$label")"
done < runs
./punctual xen show
xl list
xl cpupool-list
echo HOST-END
