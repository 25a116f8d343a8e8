.PHONY: help demo test check package site chaos xen

help:
	@echo "make demo   five virtual machines, one misbehaves: simulated, then real ones (as root), side by side"
	@echo "make check  format, lints and unit tests, in minutes"
	@echo "make test   everything that must hold"
	@echo "make package  a .deb, an .rpm and a static tarball in target/packages (docs/install.md)"
	@echo "make site   the manual as a site with search, in target/site/html"
	@echo "make chaos  an operator's day on this machine (as root); options in DAY, such as DAY='--minutes 20 --as vm'"
	@echo "make xen    the demo in guests of a real Xen, in QEMU (as root on Debian 12)"
	@echo "make xen-replay, and so on: a lab and its mode, of those that labs/lab lists"

need-rust = scripts/set-up.sh cc=build-essential; command -v cc >/dev/null || exit 1; \
	command -v cargo >/dev/null || { echo "Rust is missing; install it with: curl --proto =https --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y && . ~/.cargo/env"; exit 1; }
# All features: the scheduler for the kernel (crates/punctual-scx) and its loader.
need-scx = scripts/set-up.sh clang=clang /usr/include/libelf.h=libelf-dev /usr/include/zlib.h=zlib1g-dev
need-qemu = scripts/set-up.sh python3=python3 qemu-system-x86_64=qemu-system-x86 cpio=cpio busybox=busybox-static

demo:
	@$(need-rust)
	@scripts/demo.sh

check:
	@$(need-rust)
	@$(need-scx)
	@scripts/check.sh

test:
	@$(need-rust)
	@$(need-scx)
	@scripts/set-up.sh c++=build-essential python3=python3-venv npm=npm chromium=chromium \
		qemu-system-x86_64=qemu-system-x86
	@scripts/test.sh

package:
	@$(need-rust)
	@packaging/build.sh

site:
	@$(need-rust)
	@$(need-scx)
	@scripts/set-up.sh python3=python3-venv
	@scripts/site.sh

chaos:
	@$(need-rust)
	@cargo build --release -p punctual && cargo run --release -p punctual --example chaos -- $(DAY)

xen: xen-demo xen-shares

debian-% host-stack-% kernel-% live-% sockets-% switch-% xen-%:
	@$(need-rust)
	@$(need-qemu)
	@labs/lab $(patsubst %-$*,%,$@) $*
