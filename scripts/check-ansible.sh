#!/usr/bin/env bash
# Runs the Ansible role (packaging/ansible) against a configuration in a directory of its own: check mode
# changes nothing, a first run writes and reloads, a second one changes nothing, and a configuration that is
# not valid is refused before anything changes.
#
# exit: 0 all of that holds, 1 something does not, 77 skipped: Ansible could not be installed.
set -euo pipefail
cd "$(dirname "$0")/.."
target="$(mkdir -p "${CARGO_TARGET_DIR:-target}" && cd "${CARGO_TARGET_DIR:-target}" && pwd)"
venv="$target/check-ansible"
needed=packaging/ansible/requirements.txt
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

skip() {
    echo "check-ansible: skipped: $1" >&2
    exit 77
}

fail() {
    cat "$work/log"
    echo "check-ansible: $1" >&2
    exit 1
}

if ! cmp -s $needed "$venv/installed.txt"; then
    rm -rf "$venv"
    python3 -m venv "$venv" >&2 || skip "python3 with venv is needed (Debian: apt install python3-venv)"
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r $needed >&2 ||
        skip "pip could not install $needed"
    cp $needed "$venv/installed.txt"
fi
# With the examples, the features are those of the tests: nothing that they built is built again.
cargo build --quiet --locked --workspace --all-features --bins --examples
export PATH="$target/debug:$PATH" ANSIBLE_NOCOLOR=1
export ANSIBLE_LOCAL_TEMP="$work/tmp" ANSIBLE_REMOTE_TEMP="$work/tmp"

mkdir -p "$work/etc/host.d"
cp packaging/host.toml "$work/etc/"
cat >"$work/vars.yml" <<EOF
ansible_become: false
ansible_python_interpreter: $venv/bin/python
punctual_directory: $work/etc
punctual_reload: [touch, $work/reloaded]
punctual_mode: enforce
punctual_pools:
  rt: { processors: [0], policy: deferrable, deferrable: { quantum: exact } }
punctual_classes:
  relay: { match: [{ libvirt: "relay-*" }, { metadata: relay }], budget: 400us, period: 1ms, priority: 1 }
  hmi: { match: [{ name: 'the "hmi"' }], pool: rt, best_effort: true }
EOF

# play WORD...: runs the role; how many of its tasks changed something is in $changed.
play() {
    "$venv/bin/ansible-playbook" -i localhost, -c local -e "@$work/vars.yml" "$@" packaging/ansible/site.yml \
        >"$work/log" 2>&1 || return 1
    changed=$(sed -n 's/.*changed=\([0-9]*\).*/\1/p' "$work/log")
}

file="$work/etc/host.d/50-ansible.toml"
play --check --diff || fail "check mode fails"
grep -q '^+\[class."relay"\]' "$work/log" || fail "check mode does not show what would change"
{ [ ! -e "$file" ] && [ ! -e "$work/reloaded" ]; } || fail "check mode changes something"
play || fail "the role fails"
{ [ "$changed" = 1 ] && [ -e "$work/reloaded" ]; } || fail "$changed changes, or no reload"
punctual serve --check --config "$work/etc" >"$work/log" || fail "the configuration is not valid"
grep -q 'class hmi in pool rt' "$work/log" || fail "a class is missing"
rm "$work/reloaded"
play || fail "the role fails the second time"
{ [ "$changed" = 0 ] && [ ! -e "$work/reloaded" ]; } || fail "a second run changes something"
cp "$file" "$work/before"
! play -e '{"punctual_classes": {"relay": {"match": [{"libvirt": "x"}], "bugdet": "1ms"}}}' ||
    fail "an invalid class is accepted"
grep -q 'has no key .bugdet' "$work/log" || fail "the message of an invalid class is missing"
{ cmp -s "$file" "$work/before" && [ ! -e "$work/reloaded" ]; } || fail "an invalid class changes something"
echo "check mode, a first and a second run, and an invalid class: as they should be"
