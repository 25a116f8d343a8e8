#!/usr/bin/env bash
# Five VMs, the most urgent one misbehaves: simulated under every policy, then real ones on this machine,
# under enforcement and under plain Linux.
#
# usage: scripts/demo.sh   (make demo)
# The live part needs root; without QEMU it runs plain processes instead of VMs. Changes are put back.
set -euo pipefail
cd "$(dirname "$0")/.."

# Cargo says itself how far it is.
cargo build --profile demo --locked --workspace --bin punctual
punctual=${CARGO_TARGET_DIR:-target}/demo/punctual
host=examples/misbehaving.toml

echo "== simulated: five VMs, the most urgent one is stuck in a loop"
"$punctual" sim "$host" --policy all

if [ "$(id -u)" != 0 ]; then
    echo "The live part is left out: it needs root (sudo make demo)."
    exit 0
fi
form=vm
scripts/set-up.sh qemu-system-x86_64=qemu-system-x86
if ! command -v qemu-system-x86_64 >/dev/null; then
    echo "qemu-system-x86_64 is missing: processes run instead of VMs."
    form=process
fi
echo
echo "== on this machine ($form): budgets enforced, then the same under plain Linux"
# The replays show the machine's part, where it is shared: the same jobs, simulated with the time as stolen as
# it was.
exec "$punctual" run "$host" --as "$form" --progress --replay \
    --policy deferrable,periodic,sporadic,linux-cfs,linux-fifo
