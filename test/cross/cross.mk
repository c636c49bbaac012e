# cross.mk - other processors: `make cross` builds for each of ARCH with Debian's cross compilers and
# plays test/cross/run.sh under qemu-user.
ARCH ?= arm64 riscv64 s390x
cross: $(BUILD)/potluck ## build for other processors and run their tests under qemu (ARCH=arm64, riscv64 or s390x)
	@for arch in $(ARCH); do env -u MAKEFLAGS -u MAKELEVEL ARCH=$$arch BUILD=$(BUILD) sh test/cross/run.sh || failed=1; done; [ -z "$$failed" ]
.PHONY: cross
