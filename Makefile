# potluck - `make help` lists the targets. Everything built lies in build/. Not recursive: this file
# builds the program and the library; debian/setup.mk names the packages that it needs and installs
# them; cuda/cuda.mk, test/test.mk, data/demo/demo.mk, debian/package.mk, paper/book/book.mk and
# notebooks/wheel.mk hold the rules of their folders.

CC       ?= cc
FAST_CC  ?= $(CC) # of fast/: riscv64 takes clang 18 or later for its vectors
AR       ?= ar
OBJCOPY  ?= objcopy
STRIP    ?= strip
NVCC     ?= nvcc
CLANG    ?= clang
PREFIX   ?= /usr/local
LIBDIR   ?= $(PREFIX)/lib
BACKEND  ?= auto
BUILD    ?= build
JOBS     ?= $(shell nproc)
OPT      ?= -O2
CFLAGS   ?= -g1 # lines for profiles and backtraces; -g takes an eighth longer to compile
# Callbacks and backends' operations have the parameters of their contract, whether they need them or not.
WARN      = -Wall -Wextra -Wno-unused-parameter -Wpedantic -Wshadow -Wmissing-prototypes -Wstrict-prototypes
# No -ffast-math, no -march=native, and no silent contraction: a fused multiply-add is written
# where it is meant, and faster instructions are chosen at run time.
ALLFLAGS  = -std=c11 -D_GNU_SOURCE $(OPT) $(WARN) -ffp-contract=off -fPIC -MMD -MP $(SANITIZE) $(CFLAGS)
# In strict C11, gcc computes float in double on s390x, which other processors' bits are not.
MACHINE  := $(shell $(CC) -dumpmachine)
ALLFLAGS += $(if $(findstring s390,$(MACHINE)),-fexcess-precision=fast)
VERSION  := $(shell sed -n 's/^\#define PL_VERSION "\(.*\)"/\1/p' ref/base.h)

.DEFAULT_GOAL := all
include debian/setup.mk
PKG_FLAGS := $(shell pkg-config --cflags $(PC_LIBS) $(PC_LOADED) 2>/dev/null) -I$(BUILD)/gen -iquote .
LIBS      := $(shell pkg-config --libs $(PC_LIBS) 2>/dev/null) -lnatpmp -lsnappy -ldl -lpthread -lm

REF_C     := $(wildcard ref/*.c ref/model/*.c ref/outer/*.c)
RUNTIME_C := $(wildcard runtime/*.c runtime/lab/*.c)
DATA_C    := $(filter-out data/demo/%,$(wildcard data/*/*.c))
NET_C     := $(wildcard net/*.c net/*/*.c net/*/*/*.c)
CMD_C     := $(filter-out cmd/static/%,$(wildcard cmd/*.c cmd/*/*.c))
CONFORM_C := $(wildcard test/conform/*/*.c test/conform/*/*/*.c test/peer/*.c)
FAST_C    := $(wildcard fast/*.c)
CUDA_C    := $(wildcard cuda/*.cu)
EMU_C     := $(wildcard test/cuda_on_cpu/*.cpp)
UNIT_C    := $(wildcard test/unit/*/*.c test/unit/*/*/*.c)
FUZZ_C    := $(wildcard test/fuzz/*.c)
# Messages: net/x/y.proto becomes build/gen/net/x/y.pb-c.{c,h}, included as "net/x/y.pb-c.h".
PROTO     := $(wildcard net/*/*.proto net/*/*/*.proto)
GEN_H     := $(patsubst %.proto,$(BUILD)/gen/%.pb-c.h,$(PROTO))
GEN_C     := $(GEN_H:.h=.c) $(BUILD)/gen/net/http/www.c
# The page's files become an array in the program.
WWW       := $(wildcard net/http/www/*.html net/http/www/*.css net/http/www/*.js)

obj       = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
LIB_O     = $(call obj,$(REF_C) $(RUNTIME_C) $(DATA_C) $(NET_C)) $(GEN_C:.c=.o)
PROGRAM_O = $(call obj,$(CMD_C) $(CONFORM_C))

.PHONY: all ref fast clean help

all: $(BUILD)/potluck fast $(if $(SANITIZE),,cuda) $(BUILD)/libpotluck.so ## the program, the backends, the library

$(BUILD)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(if $(filter fast/%,$<),$(FAST_CC),$(CC)) $(ALLFLAGS) $(PKG_FLAGS) -c -o $@ $<

$(BUILD)/gen/%.pb-c.c $(BUILD)/gen/%.pb-c.h: %.proto
	@mkdir -p $(@D)
	protoc-c --c_out=$(BUILD)/gen $<
$(BUILD)/gen/net/http/www.c: net/http/www/embed.sh $(WWW)
	@mkdir -p $(@D)
	sh net/http/www/embed.sh $(WWW) > $@.new && mv $@.new $@
$(GEN_C:.c=.o): | $(GEN_H)
$(BUILD)/gen/%.o: $(BUILD)/gen/%.c
	$(CC) $(filter-out -W%,$(ALLFLAGS)) $(PKG_FLAGS) -c -o $@ $<
$(call obj,$(NET_C) $(CMD_C) $(CONFORM_C) $(UNIT_C) $(wildcard test/interop/*.c)): | $(GEN_H)

$(BUILD)/libpotluck.a: $(LIB_O)
	@rm -f $@
	$(AR) rcs $@ $^

# What users see of the library are names with its prefixes: runtime/exports.map for the shared one,
# and the same for the static one, whose objects become one object with all other names local.
$(BUILD)/libpotluck.so: $(LIB_O) runtime/exports.map
	$(CC) -shared -Wl,-soname,libpotluck.so.0 -Wl,--version-script=runtime/exports.map $(SANITIZE) $(LDFLAGS) -o $@ $(LIB_O) $(LIBS)
$(BUILD)/install/libpotluck.a: $(LIB_O)
	@mkdir -p $(@D)
	@rm -f $@
	$(LD) -r -o $(@:.a=.o) $^
	$(OBJCOPY) --wildcard --keep-global-symbol='pl_*' --keep-global-symbol='ref_*' $(@:.a=.o)
	$(AR) rcs $@ $(@:.a=.o)

$(BUILD)/potluck: $(PROGRAM_O) $(BUILD)/libpotluck.a
	$(CC) $(SANITIZE) $(LDFLAGS) -o $@ $^ $(LIBS)

# Loops are turned into vectors where that leaves every bit as it was: without -ffast-math, no sum's
# order changes. The whole VQGAN through the reference takes a third of the time.
$(BUILD)/obj/ref/%.o $(BUILD)/obj/runtime/%.o: ALLFLAGS += $(if $(SANITIZE),,-O3)

$(BUILD)/libref.a: $(call obj,$(REF_C))
	@rm -f $@
	$(AR) rcs $@ $^

ref: $(BUILD)/libref.a ## only the reference: a C compiler is all it needs

# The fast backend brings its own OpenMP and OpenBLAS: the program starts without either.
# The two flags promise that nobody reads errno or floating-point exceptions; values stay the same.
# Without vector registers -O3 only unrolls: gcc 12 takes minutes for s390x then.
$(BUILD)/obj/fast/%.o: ALLFLAGS += -fopenmp $(if $(filter x86_64% aarch64% riscv64%,$(MACHINE)),-O3,-O2) -fno-math-errno -fno-trapping-math
# What it asks the reference itself for: tables, ends of rows, forms nobody made faster.
FAST_NEEDS = $(addprefix ref/,adam.c base.c compress.c dgc.c dtype.c lamb.c mask.c moments.c quant.c rotary.c small.c outer/chunks.c)
# A backend that lacks a function fails to link, and not on the day somebody opens it.
WHOLE = $(if $(SANITIZE),,-Wl,-z,defs)
fast: $(BUILD)/libpl_fast.so ## the OpenMP and OpenBLAS backend
$(BUILD)/libpl_fast.so: $(call obj,$(FAST_C)) $(call obj,$(filter $(FAST_NEEDS),$(REF_C))) runtime/backend.map
	$(FAST_CC) -shared -fopenmp -Wl,--version-script=runtime/backend.map $(WHOLE) $(SANITIZE) $(LDFLAGS) -o $@ $(filter %.o,$^) -lopenblas -lm

clean: ## remove everything that was built
	rm -rf $(BUILD)

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{ printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

include cuda/cuda.mk cmd/static/static.mk test/test.mk test/cross/cross.mk data/demo/demo.mk debian/package.mk paper/book/book.mk notebooks/wheel.mk
-include $(shell find $(BUILD)/obj $(BUILD)/fuzz -name '*.d' 2>/dev/null)
