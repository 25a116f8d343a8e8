.PHONY: help demo test xen xen-replay xen-cost xen-fail xen-stress xen-soft xen-policies

help:
	@echo "make demo   five virtual machines, one misbehaves: simulated, then real ones (as root), side by side"
	@echo "make test   everything that must hold"
	@echo "make xen    the demo in guests of a real Xen, in QEMU (as root on Debian 12)"

need-rust = scripts/set-up.sh cc=build-essential; command -v cc >/dev/null || exit 1; \
	command -v cargo >/dev/null || { echo "Rust is missing; install it with: curl --proto =https --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y && . ~/.cargo/env"; exit 1; }

demo:
	@$(need-rust)
	@scripts/demo.sh

test:
	@$(need-rust)
	@scripts/set-up.sh c++=build-essential python3=python3-venv npm=npm chromium=chromium \
		qemu-system-x86_64=qemu-system-x86
	@scripts/test.sh

xen:
	@$(need-rust)
	@scripts/set-up.sh cc=build-essential python3=python3 qemu-system-x86_64=qemu-system-x86 cpio=cpio \
		busybox=busybox-static
	@labs/xen/demo.sh

# Recorded decisions made again, what decisions cost, a debug build under random changes, soft affinity, policies
# that change.
xen-replay xen-cost xen-fail xen-stress xen-soft xen-policies:
	@$(need-rust)
	@scripts/set-up.sh cc=build-essential python3=python3 qemu-system-x86_64=qemu-system-x86 cpio=cpio \
		busybox=busybox-static
	@labs/$(subst -,/,$@).sh
