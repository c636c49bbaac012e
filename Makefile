# potluck - `make help` lists the targets. One file, not recursive; objects under build/.

CC       ?= cc
CXX      ?= c++
AR       ?= ar
NVCC     ?= nvcc
PREFIX   ?= /usr/local
BACKEND  ?= auto
OPT      ?= -O2
WARN      = -Wall -Wextra -Wpedantic -Wshadow -Wmissing-prototypes -Wstrict-prototypes
# No -ffast-math and no silent contraction: a fused multiply-add is written where it is meant.
CFLAGS   ?= -g
ALLFLAGS  = -std=c11 -D_GNU_SOURCE $(OPT) $(WARN) -ffp-contract=off -fPIC -MMD -MP $(SANITIZE) $(CFLAGS)
BUILD    ?= build
VERSION  := $(shell sed -n 's/^\#define PL_VERSION "\(.*\)"/\1/p' ref/base.h)

# Debian's packages: what the program needs, and what tests and demo data need on top.
PACKAGES = build-essential pkg-config libopenblas-dev libjansson-dev libbrotli-dev libssl-dev \
	zlib1g-dev libzstd-dev libsnappy-dev libpng-dev libjpeg62-turbo-dev libwebp-dev libutf8proc-dev \
	libprotobuf-c-dev protobuf-c-compiler libmsgpack-dev libzip-dev libcurl4-openssl-dev \
	libmicrohttpd-dev libsqlite3-dev libuv1-dev
TEST_PACKAGES = $(PACKAGES) libcmocka-dev clang libclang-rt-14-dev
DATA_PACKAGES = $(PACKAGES) libfreetype-dev libharfbuzz-dev fonts-noto-color-emoji unicode-data

LIBS_PKG  = jansson libbrotlienc libbrotlidec libcrypto zlib libzstd libpng libjpeg libwebp libutf8proc
PKG_FLAGS := $(shell pkg-config --cflags $(LIBS_PKG) 2>/dev/null)
PKG_LIBS  := $(shell pkg-config --libs $(LIBS_PKG) 2>/dev/null) -lsnappy
LIBS      = $(PKG_LIBS) -ldl -lpthread -lm

REF_C  := $(wildcard ref/*.c ref/model/*.c)
DATA_C := $(wildcard data/*.c)
NET_C  := $(wildcard net/*.c net/*/*.c)
CMD_C  := $(wildcard cmd/*.c)
CONFORM_C := $(wildcard test/conform/*.c test/peer/*.c)
FAST_C := $(wildcard fast/*.c)
UNIT_C := $(wildcard test/unit/*.c)

obj = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
LIB_O = $(call obj,$(REF_C) $(DATA_C) $(NET_C))
PROGRAM_O = $(call obj,$(CMD_C) $(CONFORM_C))

.PHONY: all ref fast help clean
all: $(BUILD)/potluck fast $(BUILD)/libpotluck.so ## the program, the fast backend, the library

$(BUILD)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(ALLFLAGS) $(PKG_FLAGS) -c -o $@ $<

$(BUILD)/libpotluck.a: $(LIB_O)
	@rm -f $@
	$(AR) rcs $@ $^

$(BUILD)/libpotluck.so: $(LIB_O)
	$(CC) -shared -Wl,-soname,libpotluck.so.0 $(SANITIZE) -o $@ $^ $(LIBS)

$(BUILD)/potluck: $(PROGRAM_O) $(BUILD)/libpotluck.a
	$(CC) $(SANITIZE) -o $@ $^ $(LIBS)

$(BUILD)/libref.a: $(call obj,$(REF_C))
	@rm -f $@
	$(AR) rcs $@ $^

ref: $(BUILD)/libref.a ## only the reference: a C compiler is all it needs

# The fast backend carries its own OpenMP and OpenBLAS, so the program needs neither to start.
$(BUILD)/obj/fast/%.o: ALLFLAGS += -fopenmp
ifneq ($(FAST_C),)
fast: $(BUILD)/libpl_fast.so ## the OpenMP and OpenBLAS backend
else
fast:
endif
$(BUILD)/libpl_fast.so: $(call obj,$(FAST_C)) $(call obj,ref/base.c ref/mask.c)
	$(CC) -shared -fopenmp $(SANITIZE) -o $@ $^ -lopenblas -lm

clean: ## remove everything that was built
	rm -rf $(BUILD)

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{ printf "  %-14s %s\n", $$1, $$2 }' Makefile

-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)
