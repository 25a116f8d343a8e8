#!/usr/bin/env bash
# Commands and live tests under Debian's newest kernels, in QEMU, above this machine's files.
#
# usage: labs/lab kernel run [--kernel cloud|rt|FILE] COMMAND [ARGUMENT...]
#        labs/lab kernel tests [cloud|rt]
# example: labs/lab kernel run --kernel rt target/debug/punctual doctor
#   run      one command; its status is the lab's, 124 when time was up
#   tests    the live tests of crates/punctual, under both kernels or one of them; takes minutes
#
# cloud (the default) has real KVM, nested in the translated processor; rt has PREEMPT_RT and no KVM. Both
# have cgroup version 2 alone. FILE is a kernel with virtiofs and overlayfs built in, such as kernel/build.sh
# builds. The machine sees this machine's files read-only; what the command writes is
# lost with it. QEMU translates the processor, and an instruction takes about 20 times as long, so times say
# nothing about a real machine.
# environment: SUITE (Debian suite of the kernel: forky), PROCESSORS (2), MEMORY_MIB (2048), TIMEOUT_S (600;
#   900 for each program of tests), MODULES (further ones to load), DEVICES (further arguments of QEMU),
#   ACCELERATOR (tcg,thread=multi), APPEND (further parameters of the kernel)
# shellcheck source=labs/lib.sh
. "$(dirname "$0")/../lib.sh"
lab=$PWD/target/lab
# shellcheck source=labs/debian.sh
. labs/debian.sh

# Downloads a kernel, into $files, and copies its modules for the machine.
stock_files() {
    need apt-get dpkg xz modinfo
    if [ ! -d "$files" ]; then
        echo "kernel: fetching Debian $suite's kernel ($flavour) ..." >&2
        fetch_kernel "$suite" "$files" "$flavour" busybox-static linux-base ||
            skip "the kernel of Debian $suite cannot be fetched here"
    fi
    kernel=$files
    image=$(find "$files" -name 'vmlinuz*' -type f | sed -n 1p)
    find "$files" -path '*bin/busybox' -type f -exec cp {} "$guest/bin/busybox" \;
    # shellcheck disable=SC2086  # One word for each module.
    modules virtio_pci virtiofs overlay ${MODULES:-}
    [ "$flavour" != cloud ] || modules kvm_amd vhost_net tun bridge
}

# Fills $guest with what boots the kernel and runs COMMAND.
prepare() {
    guest=$scratch/root
    mkdir -p "$guest"/{bin,proc,sys,dev,modules,lower,upper,root}
    : >"$guest/modules/order"
    if [ -n "$image" ]; then
        need busybox
        cp "$(command -v busybox)" "$guest/bin/busybox"
    else
        stock_files
    fi
    {
        # What tests are told by the environment holds there too.
        export -p | grep -E '^declare -x (PUNCTUAL|RUST)_' || true
        echo 'export PUNCTUAL_TRANSLATED=1'
        printf '%q ' "$@"
    } >"$guest/command"
    sed -e "s|@PATH@|$PATH|" -e "s|@PWD@|$PWD|" labs/kernel/init >"$guest/init"
    chmod +x "$guest/init"
    pack "$guest" >"$scratch/initrd"
}

# Boots the machine, which runs the command; 124 when time was up.
boot_once() {
    local memory=${MEMORY_MIB:-2048}M boot devices
    read -ra devices <<<"${DEVICES:-}"
    "$virtiofsd" --socket-path="$scratch/files" -o source=/,sandbox=chroot,cache=always,xattr \
        >"$console.files" 2>&1 &
    wait_for_process $! "$console.files" test -S "$scratch/files"
    # The machine takes interrupts of its files on processor 0, as one line and not as messages, which the
    # kernel would spread: processes that end would wait for the processor on which live tests spin.
    boot="console=ttyS0 panic=-1 quiet tsc=reliable irqaffinity=0 ${APPEND:-}"
    timeout "${TIMEOUT_S:-600}" qemu-system-x86_64 \
        -machine q35,memory-backend=memory -accel "${ACCELERATOR:-tcg,thread=multi}" \
        -object "memory-backend-memfd,id=memory,size=$memory,share=on" -m "$memory" \
        -cpu EPYC-Rome,+svm,+npt -smp "${PROCESSORS:-2}" \
        -pidfile "$lab/pid-$flavour" \
        -nodefaults -no-user-config -no-reboot -display none -serial stdio -monitor none \
        -kernel "$image" -initrd "$scratch/initrd" \
        -append "$boot" -chardev "socket,id=files,path=$scratch/files" \
        -device vhost-user-fs-pci,chardev=files,tag=files,vectors=0 "${devices[@]}" \
        </dev/null 2>"$console.qemu" | sed -u 's/\r$//' | tee "$console" |
        sed -u '/^lab-/d; /SeaBIOS\|Booting from\|reboot: Power down/d' || return "${PIPESTATUS[0]}"
}

# run FLAVOUR|FILE COMMAND...
run() {
    local flavour=$1 image='' files console kernel guest attempt code status
    if [ -f "$1" ]; then
        image=$1 flavour=$(basename "$(dirname "$1")")
    fi
    files=$lab/$suite-$flavour console=$lab/console-$flavour
    shift
    prepare "$@"
    # A kernel that patches its own code while it boots sometimes dies of it on translated processors (an int3
    # in a static key). Nothing of the command has run then.
    for attempt in 1 2 3; do
        code=0
        boot_once || code=$?
        [ "$code" != 124 ] || { echo "kernel: time is up after ${TIMEOUT_S:-600} s" >&2; exit 124; }
        ! grep -q '^lab-begins$' "$console" || break
        echo "kernel: the machine ended while it booted (attempt $attempt of 3)" >&2
        cp "$console" "$console.$attempt"
        rm -f "$scratch/files"
    done
    status=$(sed -n 's/^lab-status \([0-9]*\)$/\1/p' "$console" | tail -1)
    [ -n "$status" ] || {
        echo "kernel: the machine ended before the command did; see $console and $console.qemu" >&2
        exit 1
    }
    exit "$status"
}

# tests FLAVOUR...
tests() {
    local tests=(live live_faults live_limits live_kvm) programs left_out skip flavour program code failed=0
    echo "building the tests ..."
    mapfile -t programs < <(cargo test --locked -p punctual "${tests[@]/#/--test=}" --no-run 2>&1 |
        tee /dev/stderr | sed -n 's/^ *Executable .*(\(.*\))$/\1/p')
    [ ${#programs[@]} = ${#tests[@]} ] || {
        echo "expected programs of ${tests[*]}: ${programs[*]}" >&2
        exit 1
    }
    local short="it judges shares of slices of 1 ms, and a look takes longer here"
    local image="it needs an image of VMs that this machine cannot fetch or that takes minutes to boot here"
    left_out=(
        "credit_with_short_slices_shares_the_processor: $short"
        "a_vm_that_is_killed_is_named_and_the_others_are_measured: $image"
        "vms_that_do_not_boot_are_named_and_the_others_are_measured: $image"
        "where_no_guest_boots_the_run_ends_with_the_first_ones_name_and_nothing_is_left: $image")
    printf 'left out: %s\n' "${left_out[@]}"
    skip=("${left_out[@]%%:*}")
    for flavour; do
        for program in "${programs[@]}"; do
            echo "== $flavour: $(basename "$program")"
            code=0
            # With --nocapture, skipped tests print that they are skipped.
            TIMEOUT_S=${TIMEOUT_S:-900} labs/lab kernel run --kernel "$flavour" "$program" --test-threads=1 \
                --nocapture "${skip[@]/#/--skip=}" || code=$?
            [ "$code" != 77 ] || exit 77
            [ "$code" = 0 ] || { failed=1 && echo "== $flavour: $(basename "$program") failed ($code)"; }
        done
    done
    exit $failed
}

suite=${SUITE:-forky}
virtiofsd=$(command -v /usr/libexec/virtiofsd /usr/lib/qemu/virtiofsd | sed -n 1p) ||
    skip "virtiofsd is missing (Debian 12: qemu-system-common): it gives another kernel these files"
need qemu-system-x86_64 cpio
mkdir -p "$lab"
flavour=cloud
case ${1:-} in
    tests)
        shift
        [ $# -gt 0 ] || set -- cloud rt
        tests "$@"
        ;;
    run)
        shift
        if [ "${1:-}" = --kernel ]; then
            flavour=${2:-}
            shift 2
        fi
        case $flavour:$# in
            *:0) usage ;;
            cloud:* | rt:*) run "$flavour" "$@" ;;
            *) if [ -f "$flavour" ]; then run "$flavour" "$@"; else usage; fi ;;
        esac
        ;;
    *) usage ;;
esac
