# shellcheck shell=sh disable=SC2086
# In domain 0: `punctual reproduce` with the words of the file `line`; what it prints is sent.
chmod +x punctual
read -r words < line
./punctual reproduce $words --xen < /dev/null > out || return
send out &
sleep 10
