#!/bin/sh
# Asks the tools themselves whether they take what `punctual export` writes: libvirt (its schema, and its
# parser behind the test driver), systemd, QEMU with taskset and chrt, a shell. What libvirt prints of a
# domain that it has taken is imported again and must describe the same vCPUs.
#
# usage: scripts/check-export.sh
# exit: 0 taken, 1 refused, 77 skipped: a tool is missing (it says which).
set -eu
cd "$(dirname "$0")/.."
target="${CARGO_TARGET_DIR:-target}"

for tool in xmllint:libxml2-utils virsh:libvirt-clients systemd-analyze:systemd shellcheck:shellcheck \
    qemu-system-x86_64:qemu-system-x86 chrt:util-linux taskset:util-linux; do
    if ! command -v "${tool%:*}" >/dev/null; then
        echo "check-export: skipped: ${tool%:*} is needed (Debian: apt install ${tool#*:})" >&2
        exit 77
    fi
done

# With the examples, the features are those of the tests: nothing that they built is built again.
cargo build --quiet --locked --workspace --all-features --bins --examples
punctual="$(cd "$target" && pwd)/debug/punctual"
work="$(mktemp -d)"
trap 'stop; rm -rf "$work"' EXIT

# Ends the machines that were started below, by the ids that QEMU wrote.
stop() {
    for file in "$work"/run/*.pid; do
        if [ -s "$file" ]; then kill "$(cat "$file")" 2>/dev/null || true; fi
    done
}

fail() {
    echo "check-export: $1" >&2
    exit 1
}

# A fragment as a whole domain of libvirt's test driver.
whole() {
    sed -e "s|<domain type='kvm'>|<domain type='test'>|" \
        -e "s|</name>|</name><memory unit='MiB'>64</memory>|" \
        -e 's|</cputune>|</cputune><os><type>hvm</type></os>|' "$1"
}

schema=/usr/share/libvirt/schemas/domain.rng
for host in examples/*.toml; do
    if ! grep -q '^\[domain\.' "$host"; then
        echo "check-export: $host has no domains to export"
        continue
    fi
    for keep in budget priority; do
        out="$work/$(basename "$host" .toml)-$keep"
        for to in xl xen libvirt virsh systemd qemu; do
            "$punctual" export "$host" --to "$to" --keep "$keep" --output "$out/$to" >/dev/null 2>&1
        done
        for xml in "$out"/libvirt/*.xml; do
            whole "$xml" >"$work/whole.xml"
            # The schema has no test driver; for it the domain is KVM's.
            sed "s|type='test'|type='kvm'|" "$work/whole.xml" >"$work/kvm.xml"
            xmllint --noout --relaxng "$schema" "$work/kvm.xml" 2>"$work/said" ||
                fail "$xml: $(cat "$work/said")"
            name="$(basename "$xml" .xml)"
            printf 'define %s\ndumpxml %s\n' "$work/whole.xml" "$name" |
                virsh --quiet -c test:///default >"$work/dump" 2>&1 || fail "$xml: $(cat "$work/dump")"
            sed -n '/<domain /,/<\/domain>/p' "$work/dump" >"$work/dump.xml"
            "$punctual" import --from libvirt "$xml" 2>/dev/null | grep -v '^#\|^name = ' >"$work/ours.toml"
            "$punctual" import --from libvirt "$work/dump.xml" 2>/dev/null |
                grep -v '^#\|^name = ' >"$work/theirs.toml"
            cmp -s "$work/ours.toml" "$work/theirs.toml" ||
                fail "$xml: libvirt understands it otherwise: $(diff "$work/ours.toml" "$work/theirs.toml")"
        done
        for drop_in in "$out"/systemd/*.d; do
            unit="$(basename "$drop_in" .d)"
            printf '[Unit]\nDescription=check\n[Service]\nExecStart=/bin/true\n' >"$out/systemd/$unit"
            # The directory first, then the distribution's, which has the units that every service needs.
            SYSTEMD_UNIT_PATH="$out/systemd:" systemd-analyze verify --man=no "$unit" >"$work/said" 2>&1 ||
                fail "$drop_in: $(cat "$work/said")"
            if grep -F "$unit" "$work/said" >&2; then fail "$drop_in: systemd complains"; fi
        done
        shellcheck --severity=style "$out"/xl/apply.sh "$out"/xen/apply.sh "$out"/virsh/virsh.sh \
            "$out"/qemu/*.sh ||
            fail "$out: shellcheck complains"
    done
done
echo "check-export: libvirt, systemd and the shell take all examples"

# One machine that stands still (-S): its threads get the class, priority and processors of the export.
cat >"$work/one.toml" <<'TOML'
[machine]
processors = 2
[pool.rt]
policy = "fixed-priority"
[domain.still]
vcpus = 2
priority = 1
vcpu.0 = { affinity = [1] }
vcpu.1 = { affinity = [0], priority = 2 }
TOML
"$punctual" export "$work/one.toml" --to qemu --output "$work/one" >/dev/null
if ! chrt --fifo 1 true 2>/dev/null; then
    echo "check-export: the running machine is left out: this user has no real-time priorities" >&2
    exit 0
fi
PUNCTUAL_RUN="$work/run" sh "$work/one/still.sh" -S -nodefaults -m 16 -accel tcg,thread=multi \
    >"$work/said" 2>&1 ||
    fail "still.sh: $(cat "$work/said")"
seen=""
for task in /proc/"$(cat "$work/run/still.pid")"/task/*; do
    case $(cat "$task/comm") in
        "CPU "*) seen="$seen $(cut -c5 "$task/comm"):$(chrt -p "${task##*/}" | sed -n 's/.*priority: //p'):$(
            taskset -p -c "${task##*/}" | sed 's/.*: //')" ;;
    esac
done
[ "$seen" = " 0:40:1 1:39:0" ] || fail "QEMU's threads are at$seen, not at 0:40:1 1:39:0"
echo "check-export: QEMU's vCPU threads have the priorities and processors of the export"
