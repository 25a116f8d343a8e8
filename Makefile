.PHONY: help demo test

help:
	@echo "make demo   five virtual machines, one misbehaves: simulated, then real ones (as root), side by side"
	@echo "make test   everything that must hold"

need-rust = command -v cc >/dev/null || { echo "A C compiler (Rust's linker) is missing; install it with: apt install build-essential"; exit 1; }; \
	command -v cargo >/dev/null || { echo "Rust is missing; install it with: curl --proto =https --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y && . ~/.cargo/env"; exit 1; }

demo:
	@$(need-rust)
	@scripts/demo.sh

test:
	@$(need-rust)
	@scripts/test.sh
