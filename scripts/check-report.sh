#!/bin/sh
# Opens reports and the page of `punctual status --web` in a real browser, and reads the exported files with
# other people's programs.
#
# usage: scripts/check-report.sh [SCREENSHOTS]
#   SCREENSHOTS is a directory for pictures of the page, wide and narrow, light and dark, and printed
#   (those in docs/images have been made smaller by: pngquant 96).
# exit: 0 everything is good, 1 something is not, 77 skipped: something it needs is missing, which it says.
#
# Chromium opens the page: no error may appear, the keyboard must work, axe-core must find no violation of
# WCAG 2.2 AA, and a timeline of a million items must stay usable (times are printed, not judged). pyarrow and
# HdrHistogram's Python port must read from the exported files what the results say.
set -eu
cd "$(dirname "$0")/.."
parts=scripts/check-report
target=${CARGO_TARGET_DIR:-target}/check-report
mkdir -p "$target"
target=$(cd "$target" && pwd)

skip() {
    echo "check-report: skipped: $1" >&2
    exit 77
}

chromium="$(command -v chromium || command -v chromium-browser || true)"
[ -n "$chromium" ] || skip "a browser is needed (Debian: apt install chromium)"
command -v npm >/dev/null || skip "Node.js with npm is needed (Debian: apt install nodejs npm)"
if ! cmp -s "$parts/package-lock.json" "$target/package-lock.json"; then
    cp "$parts/package.json" "$parts/package-lock.json" "$target/"
    (cd "$target" && npm ci --silent --no-audit --no-fund --ignore-scripts >&2) ||
        { rm -f "$target/package-lock.json"; skip "npm could not install $parts/package-lock.json"; }
fi
venv="$target/venv"
if ! cmp -s "$parts/requirements.txt" "$venv/installed.txt"; then
    rm -rf "$venv"
    python3 -m venv "$venv" >&2 || skip "python3 with venv is needed (Debian: apt install python3-venv)"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --require-hashes \
        -r "$parts/requirements.txt" >&2 ||
        skip "pip could not install $parts/requirements.txt"
    cp "$parts/requirements.txt" "$venv/installed.txt"
fi

# With the examples, the features are those of the tests: nothing that they built is built again.
cargo build --quiet --locked --workspace --all-features --bins --examples
punctual="${CARGO_TARGET_DIR:-target}/debug/punctual"
pages="$target/pages"
rm -rf "$pages"
mkdir -p "$pages"

echo "check-report: writing reports"
"$punctual" sim examples/five-vms.toml --json --trace "$pages/five.pftrace" >"$pages/five.json"
"$punctual" check examples/five-vms.toml --json >"$pages/check.json" || [ $? = 1 ]
"$punctual" report "$pages/five.json" --trace "$pages/five.pftrace" --check "$pages/check.json" \
    -o "$pages/five.html"
# The same by one command, a host that misses deadlines, and several results.
"$punctual" sim examples/five-vms.toml --policy sedf --blame --report "$pages/late.html" \
    --set 'domain.*.generate.load=95%' --set name='five VMs, even share, load 95 %' >/dev/null
"$punctual" sim examples/five-vms.toml --policy deferrable,periodic,credit --json \
    --report "$pages/policies.html" \
    >"$pages/policies.json"
sed 's/"source": "simulation"/"source": "live"/' "$pages/five.json" >"$pages/live.json"
"$punctual" report "$pages/five.json" "$pages/live.json" -o "$pages/paired.html"
"$punctual" sim examples/network.toml --json --report "$pages/network.html" >"$pages/netback.json"
"$punctual" sim examples/network.toml --set network.lan.discipline=rtca --json >"$pages/rtca.json"
"$punctual" compare "$pages/netback.json" "$pages/rtca.json" --report "$pages/disciplines.html" >/dev/null
"$punctual" sim examples/misbehaving.toml --policy deferrable,credit,fixed-priority --blame \
    --report "$pages/misbehaving.html" >/dev/null
"$punctual" sim examples/smp-guest.toml --report "$pages/smp.html" >/dev/null
"$punctual" sim examples/containers.toml --report "$pages/nested.html" >/dev/null
# A certificate with every section; what this machine measures does not matter.
limits="$(mktemp)"
printf '[host.wakeup]\nmax_us = 1\np99_us = 60_000_000\n[guest.vm1.noise]\nmax_us = 5\n' >"$limits"
"$punctual" certify --for 500ms --processors 0 --priority 0 --limits "$limits" \
    --report "$pages/certificate.html" >/dev/null || [ $? = 1 ]
rm "$limits"
"$punctual" sim examples/five-vms.toml --duration 300s --timeline-items 1000000 \
    --report "$pages/million.html" >/dev/null

echo "check-report: opening them in $("$chromium" --version 2>/dev/null)"
NODE_PATH="$target/node_modules" node "$parts/browser.js" "$chromium" "$pages" "${1:-}"

echo "check-report: opening the page of a service"
NODE_PATH="$target/node_modules" "$parts/web.sh" "$punctual" "$chromium" "${1:-}"

echo "check-report: reading exported files"
"$punctual" report "$pages/policies.json" "$pages/netback.json" --csv "$pages/csv" \
    --parquet "$pages/results.parquet" \
    --hgrm "$pages/hgrm" --hlog "$pages/results.hlog"
for kind in csv parquet; do
    "$punctual" sim examples/five-vms.toml --policy rtds,edf --runs 2 --jobs "$pages/jobs.$kind" >/dev/null
done
"$venv/bin/python" "$parts/files.py" "$pages"
