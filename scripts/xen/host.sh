# shellcheck shell=sh
# In domain 0: runs host.toml in guests under each policy of the file `policies`, and sends the results, one
# object of JSON a line.
chmod +x punctual
./punctual xen pool Pool-0 --policy deferrable --option quantum=1ms && ./punctual xen show
./punctual xen set Domain-0 --priority 0 && ./punctual xen pool Pool-0 --policy rtds
while read -r policy; do
    ./punctual xen run host.toml --policy "$policy" --label "xen-$policy" --json > "result-$policy" ||
        continue
    tr '\n' ' ' < "result-$policy" >> results
    echo >> results
done < policies
./punctual xen show
xl list
echo HOST-END
# Its end of the connection stays open: it is not waited for.
send results &
sleep 10
