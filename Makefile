# potluck - `make help` lists the targets. One file, not recursive; everything built lies in build/.

CC       ?= cc
AR       ?= ar
NVCC     ?= nvcc
CLANG    ?= clang
PREFIX   ?= /usr/local
LIBDIR   ?= $(PREFIX)/lib
BACKEND  ?= auto
BUILD    ?= build
JOBS     ?= $(shell nproc)
OPT      ?= -O2
CFLAGS   ?= -g1 # lines for profiles and backtraces; -g takes an eighth longer to compile
WARN      = -Wall -Wextra -Wpedantic -Wshadow -Wmissing-prototypes -Wstrict-prototypes
# No -ffast-math, no -march=native, and no silent contraction: a fused multiply-add is written
# where it is meant, and faster instructions are chosen at run time.
ALLFLAGS  = -std=c11 -D_GNU_SOURCE $(OPT) $(WARN) -ffp-contract=off -fPIC -MMD -MP $(SANITIZE) $(CFLAGS)
VERSION  := $(shell sed -n 's/^\#define PL_VERSION "\(.*\)"/\1/p' ref/base.h)

# Debian's packages: for the program; for its tests on top; for drawing the demo's data anew.
PACKAGES = build-essential pkg-config libopenblas-dev libjansson-dev libbrotli-dev libssl-dev \
	zlib1g-dev libzstd-dev libsnappy-dev libpng-dev libjpeg62-turbo-dev libwebp-dev libutf8proc-dev \
	libprotobuf-c-dev protobuf-c-compiler libuv1-dev libmicrohttpd-dev libsqlite3-dev libzip-dev libyaml-dev libcurl4-openssl-dev
TEST_PACKAGES = $(PACKAGES) libcmocka-dev clang libclang-rt-14-dev ocl-icd-opencl-dev pocl-opencl-icd \
	python3-cryptography
PAGE_PACKAGES = chromium chromium-driver python3-selenium nodejs
MANUAL_PACKAGES = mandoc zsh
INTEROP_PACKAGES = python3 python3-venv python3-torch
FILES_PACKAGES = $(INTEROP_PACKAGES) python3-pil python3-pandas python3-requests python3-tqdm python3-filelock \
	python3-regex python3-xxhash python3-dill python3-multiprocess python3-packaging python3-yaml python3-aiohttp
DEB_PACKAGES = $(PACKAGES) dpkg-dev debhelper lintian
NOTEBOOK_PACKAGES = python3 python3-nbclient python3-nbformat python3-ipykernel python3-matplotlib python3-numpy
DATA_PACKAGES = $(PACKAGES) libfreetype-dev libharfbuzz-dev fonts-noto-color-emoji unicode-data

PC_LIBS    = sqlite3 libuv libprotobuf-c jansson libbrotlienc libbrotlidec libssl libcrypto zlib libzstd libpng libjpeg libwebp libutf8proc libzip yaml-0.1
PC_LOADED  = libmicrohttpd libcurl # headers alone: net/http/libraries.c loads them when they are needed
PKG_FLAGS := $(shell pkg-config --cflags $(PC_LIBS) $(PC_LOADED) 2>/dev/null) -I$(BUILD)/gen -iquote .
LIBS      := $(shell pkg-config --libs $(PC_LIBS) 2>/dev/null) -lsnappy -ldl -lpthread -lm

REF_C     := $(wildcard ref/*.c ref/model/*.c)
RUNTIME_C := $(wildcard runtime/*.c)
DATA_C    := $(filter-out data/demo/%,$(wildcard data/*/*.c))
NET_C     := $(wildcard net/*.c net/*/*.c)
CMD_C     := $(wildcard cmd/*.c)
CONFORM_C := $(wildcard test/conform/*.c test/peer/*.c)
FAST_C    := $(wildcard fast/*.c)
CUDA_C    := $(wildcard cuda/*.cu)
EMU_C     := $(wildcard test/cuda_on_cpu/*.cpp)
UNIT_C    := $(wildcard test/unit/*.c)
FUZZ_C    := $(wildcard test/fuzz/*.c)
# Messages: net/x/y.proto becomes build/gen/net/x/y.pb-c.{c,h}, included as "net/x/y.pb-c.h".
PROTO     := $(wildcard net/*/*.proto)
GEN_H     := $(patsubst %.proto,$(BUILD)/gen/%.pb-c.h,$(PROTO))
GEN_C     := $(GEN_H:.h=.c) $(BUILD)/gen/net/http/www.c
# The page's files become an array in the program.
WWW       := $(wildcard net/http/www/*.html net/http/www/*.css net/http/www/*.js)

obj       = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
LIB_O     = $(call obj,$(REF_C) $(RUNTIME_C) $(DATA_C) $(NET_C)) $(GEN_C:.c=.o)
PROGRAM_O = $(call obj,$(CMD_C) $(CONFORM_C))

.DEFAULT_GOAL := all
.PHONY: all ref fast notebooks demo demo-pictures demo-data demo-codec test unit conform fuzz interop simulate soak sanitize sanitize-threads sanitized bench install uninstall deps \
	test-deps interop-deps data-deps clean help cuda cuda-left-out opencl opencl-left-out cuda-on-cpu skeletons man dist deb bench-page bench-cuda

all: $(BUILD)/potluck fast $(if $(SANITIZE),,cuda) $(BUILD)/libpotluck.so ## the program, the backends, the library

$(BUILD)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(ALLFLAGS) $(PKG_FLAGS) -c -o $@ $<

$(BUILD)/gen/%.pb-c.c $(BUILD)/gen/%.pb-c.h: %.proto
	@mkdir -p $(@D)
	protoc-c --c_out=$(BUILD)/gen $<
$(BUILD)/gen/net/http/www.c: net/http/www/embed.sh $(WWW)
	@mkdir -p $(@D)
	sh net/http/www/embed.sh $(WWW) > $@.new && mv $@.new $@
$(GEN_C:.c=.o): | $(GEN_H)
$(BUILD)/gen/%.o: $(BUILD)/gen/%.c
	$(CC) $(filter-out -W%,$(ALLFLAGS)) $(PKG_FLAGS) -c -o $@ $<
$(call obj,$(NET_C) $(CMD_C) $(CONFORM_C) $(UNIT_C) test/interop/peer.c test/interop/trainer.c): | $(GEN_H)

$(BUILD)/libpotluck.a: $(LIB_O)
	@rm -f $@
	$(AR) rcs $@ $^

$(BUILD)/libpotluck.so: $(LIB_O)
	$(CC) -shared -Wl,-soname,libpotluck.so.0 $(SANITIZE) $(LDFLAGS) -o $@ $^ $(LIBS)

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
$(BUILD)/obj/fast/%.o: ALLFLAGS += -fopenmp -O3 -fno-math-errno -fno-trapping-math
# What it asks the reference itself for: tables, ends of rows, forms nobody made faster.
FAST_NEEDS = $(addprefix ref/,adam.c base.c compress.c dtype.c lamb.c mask.c quant.c rotary.c)
fast: $(BUILD)/libpl_fast.so ## the OpenMP and OpenBLAS backend
$(BUILD)/libpl_fast.so: $(call obj,$(FAST_C)) $(call obj,$(filter $(FAST_NEEDS),$(REF_C)))
	$(CC) -shared -fopenmp $(SANITIZE) $(LDFLAGS) -o $@ $^ -lopenblas -lm

# The CUDA backend. CUDA_ARCH says for which devices: "ptx" (the default) is one intermediate form that
# every device from the oldest on translates when it is first loaded; "all" is machine code for each that
# this nvcc knows of 7.0 to 12.0 (12.8 and 12.9 know them all), and the newest's intermediate form for
# later ones, which takes minutes; or numbers, as in CUDA_ARCH="80 90".
CUDA_ARCH ?= ptx
CUDA_ALL   = 70 75 80 86 89 90 100 120
CUDA_ALSO  = 110 # a board's, of a generation between: no other's machine code runs on it
NVCC_PATH := $(shell command -v $(NVCC) 2>/dev/null)
ifneq ($(NVCC_PATH),)
CUDA_HOME := $(patsubst %/bin/nvcc,%,$(realpath $(NVCC_PATH)))
CUDA_KNOWN := $(filter $(CUDA_ALL) $(CUDA_ALSO),$(patsubst compute_%,%,$(shell $(NVCC) --list-gpu-arch 2>/dev/null)))
CUDA_WANT  = $(filter-out ptx,$(if $(filter all,$(CUDA_ARCH)),$(CUDA_KNOWN),$(CUDA_ARCH)))
CUDA_LACKS = $(if $(filter all,$(CUDA_ARCH)),$(filter-out $(CUDA_KNOWN),$(CUDA_ALL)))
CUDA_PTX   = $(if $(CUDA_WANT),$(lastword $(CUDA_WANT)),$(firstword $(CUDA_KNOWN)))
endif
CUDAFLAGS = -std=c++17 -O3 -fmad=false -Werror all-warnings -Wno-deprecated-gpu-targets -Xcompiler -Wall,-Wextra,-fPIC,-fvisibility=hidden \
	$(foreach a,$(CUDA_WANT),-gencode arch=compute_$(a),code=sm_$(a)) \
	-gencode arch=compute_$(CUDA_PTX),code=compute_$(CUDA_PTX) -MMD -MP
# What it asks the reference for: chunks of quantiles, code books, element types, status names.
CUDA_NEEDS = $(addprefix ref/,base.c compress.c dtype.c quant.c)
cuda: $(if $(CUDA_KNOWN),$(BUILD)/libpl_cuda.so,cuda-left-out) ## the CUDA backend (CUDA_ARCH=all: machine code for every device)
cuda-left-out:
	@echo "CUDA left out: $(if $(NVCC_PATH),$(NVCC) lists no device of sm_70 or later with --list-gpu-arch,no $(or $(NVCC),nvcc) on the PATH)"
# Objects know what they were compiled for: other flags compile them anew.
$(BUILD)/obj/cuda/flags: always
	@mkdir -p $(@D)
	@echo '$(NVCC) $(CUDAFLAGS)' | cmp -s - $@ || echo '$(NVCC) $(CUDAFLAGS)' > $@
.PHONY: always
$(BUILD)/obj/cuda/%.o: cuda/%.cu $(BUILD)/obj/cuda/flags
	@mkdir -p $(@D)
	$(NVCC) $(CUDAFLAGS) -MF $(@:.o=.d) -c -o $@ $<
# The oldest's intermediate form knows no products on matrix units in bfloat16: what needs them gets sm_80's beside it.
CUDA_ALSO_PTX = $(if $(CUDA_WANT),,$(filter-out $(CUDA_PTX),$(filter 80,$(CUDA_KNOWN))))
$(patsubst %.cu,$(BUILD)/obj/%.o,$(wildcard cuda/*_bf16*.cu) cuda/feedforward16.cu): private CUDAFLAGS += \
	$(foreach a,$(CUDA_ALSO_PTX),-gencode arch=compute_$(a),code=compute_$(a))
$(BUILD)/libpl_cuda.so: $(patsubst %.cu,$(BUILD)/obj/%.o,$(CUDA_C)) $(call obj,$(CUDA_NEEDS))
	$(if $(CUDA_LACKS),@echo "CUDA without machine code for $(CUDA_LACKS:%=sm_%): this nvcc does not know it (12.8 and 12.9 know all)")
	$(NVCC) -shared -o $@ $^ -L$(CUDA_HOME)/lib64 -Xlinker -rpath,$(CUDA_HOME)/lib64 -lcublas

# The same kernels for the CPU, blocks and threads emulated: tests what they compute, not how fast.
EMUFLAGS = -x c++ -std=c++17 -O2 -ffp-contract=off -fno-exceptions -fno-rtti -fPIC -fvisibility=hidden -Wall \
	-Wextra -Wno-unused-function -Itest/cuda_on_cpu -MMD -MP $(SANITIZE) $(CFLAGS)
cuda-on-cpu: $(BUILD)/libpl_cuda_on_cpu.so $(BUILD)/cuda_on_cpu_check ## the CUDA kernels on an emulated device, for tests
$(BUILD)/obj/cuda_on_cpu/%.cu.o: cuda/%.cu
	@mkdir -p $(@D)
	$(CXX) $(EMUFLAGS) -c -o $@ $<
$(BUILD)/obj/cuda_on_cpu/%.cpp.o: test/cuda_on_cpu/%.cpp
	@mkdir -p $(@D)
	$(CXX) $(EMUFLAGS) -c -o $@ $<
EMU_O = $(patsubst cuda/%,$(BUILD)/obj/cuda_on_cpu/%.o,$(CUDA_C)) \
	$(patsubst test/cuda_on_cpu/%,$(BUILD)/obj/cuda_on_cpu/%.o,$(EMU_C))
$(BUILD)/libpl_cuda_on_cpu.so: $(EMU_O) $(call obj,$(CUDA_NEEDS))
	$(CXX) -shared $(SANITIZE) -o $@ $^ -lm
$(BUILD)/cuda_on_cpu_check: $(addprefix $(BUILD)/obj/cuda_on_cpu/,check/check.cpp.o emulator.cpp.o matrix.cpp.o streams.cpp.o)
	$(CXX) $(SANITIZE) -o $@ $^

# The third backend, which proves the port kit: OpenCL, built where its headers are.
OPENCL_C   = $(wildcard test/opencl/*.c)
OPENCL_CL  = $(patsubst %,test/opencl/%.cl,common vector linear layers attention loss images optimizers)
OPENCL     = $(shell pkg-config --exists OpenCL 2>/dev/null && echo $(BUILD)/libpl_opencl.so)
opencl: $(if $(OPENCL),$(OPENCL),opencl-left-out) ## a backend from the port kit, on any OpenCL 2.0 device
opencl-left-out:
	@echo "OpenCL left out: no headers (Debian: ocl-icd-opencl-dev)"
$(BUILD)/gen/opencl_kernels.inc: $(OPENCL_CL)
	@mkdir -p $(@D)
	sed -e 's/[\\"]/\\&/g' -e 's/.*/"&\\n",/' $(OPENCL_CL) > $@.new && mv $@.new $@
$(BUILD)/obj/test/opencl/device.o: | $(BUILD)/gen/opencl_kernels.inc
$(BUILD)/libpl_opencl.so: $(call obj,$(OPENCL_C) ref/base.c ref/quant.c)
	$(CC) -shared $(SANITIZE) -o $@ $^ $$(pkg-config --libs OpenCL) -lm

# Where a stranger's backend begins: compiled as its text says, and it passes before a line is written.
skeletons: $(BUILD)/skeleton_host.so $(BUILD)/skeleton_device.so
$(BUILD)/skeleton_%.so: test/skeleton/%.c
	$(CC) -std=c11 -O2 $(WARN) -Wno-missing-prototypes -fPIC -shared $(SANITIZE) -I. -o $@ $<

# --- the demo --------------------------------------------------------------------------------

# Compiling for a device takes minutes: here only where there is one.
demo: deps ## install what is missing, build, train together on real pairs, draw pictures (ALONE=1: one peer, all pairs; QUICK=1: two minutes)
	@$(MAKE) --no-print-directory -s -j$(JOBS) $(BUILD)/potluck fast $(if $(wildcard /dev/nvidia0),cuda)
	$(BUILD)/potluck demo $(if $(QUICK),--quick) $(if $(ALONE),--alone)

# --- tests -----------------------------------------------------------------------------------

test: test-deps ## install what tests need, build, run every test
	@$(MAKE) --no-print-directory -s -j$(JOBS) all unit-programs cuda-on-cpu skeletons opencl $(BUILD)/interop/peer $(BUILD)/interop/trainer $(BUILD)/links
	@BUILD=$(BUILD) CLANG=$(CLANG) sh test/run.sh

# What learns among others, without the program's commands.
TOGETHER_O = $(call obj,cmd/averaging.c cmd/swarm.c cmd/together.c cmd/together_delay.c)
unit-programs: $(patsubst test/unit/%.c,$(BUILD)/test/%,$(UNIT_C))
$(BUILD)/test/%: $(BUILD)/obj/test/unit/%.o $(BUILD)/libpotluck.a
	@mkdir -p $(@D)
	$(CC) $(SANITIZE) -o $@ $(filter %.o,$^) $(BUILD)/libpotluck.a -lcmocka $(LDWRAP) $(LIBS)
$(BUILD)/test/memory: LDWRAP = $(foreach f,malloc calloc realloc aligned_alloc strdup,-Wl,--wrap=$(f))

# Other people's programs beside ours, real hivemind peers first of all: `make test` does it too. They come from
# Debian and PyPI, into the user's cache (test/interop/environment.sh says where else); what can't be had, or takes
# longer than INTEROP_LIMIT seconds, is skipped with the reason.
interop: all interop-deps $(BUILD)/interop/peer $(BUILD)/interop/trainer ## our peers among real hivemind peers, our files, our page (installs others' first)
	@BUILD=$(BUILD) sh test/interop/run.sh
$(BUILD)/interop/trainer: $(TOGETHER_O)
$(BUILD)/interop/%: $(BUILD)/obj/test/interop/%.o $(BUILD)/libpotluck.a
	@mkdir -p $(@D)
	$(CC) $(SANITIZE) -o $@ $(filter %.o,$^) $(BUILD)/libpotluck.a $(LIBS)

# A swarm under churn: SOAK_S seconds (1800), SOAK_PEERS (16), SOAK_SEED; then hosts in network namespaces.
soak: all $(BUILD)/interop/trainer $(BUILD)/links ## peers that come, freeze and are killed for half an hour (SOAK_S=..., SOAK_PEERS=...)
	python3 test/soak/soak.py $(BUILD)/potluck
	python3 test/soak/namespaces.py $(BUILD)/potluck
	python3 test/soak/routers.py $(BUILD)/potluck

# Links between network namespaces: libc is all that it takes.
$(BUILD)/links: $(BUILD)/obj/test/soak/links.o
	$(CC) $(SANITIZE) -o $@ $^

# Swarms larger than any machine, on a virtual clock: paper/scaling.md.
SIM_O = $(call obj,$(filter-out %/main.c,$(wildcard test/simulator/*.c)))
simulate: $(BUILD)/simulate ## time, failures and traffic of 30 to 10,000 peers, by the real matchmaking (paper/scaling.md)
	@mkdir -p $(BUILD)/figures
	$(BUILD)/simulate $(BUILD)/figures
$(BUILD)/simulate: $(call obj,test/simulator/main.c) $(SIM_O) $(BUILD)/libpotluck.a
	$(CC) $(SANITIZE) -o $@ $^ $(LIBS)
$(BUILD)/test/simulator: $(SIM_O)
$(BUILD)/test/together: $(TOGETHER_O)
$(BUILD)/test/demo_view: $(call obj,cmd/demo_view.c cmd/progress.c)

conform: all ## golden values and pair tests against BACKEND=ref|fast|auto|./mine.so
	$(BUILD)/potluck conform --golden test/golden --backend $(BACKEND)
	$(BUILD)/potluck conform --backend $(BACKEND)

# Fuzzers are built from the same sources by clang, with the library inside the instrumentation.
FUZZ_FLAGS = -std=c11 -D_GNU_SOURCE -O1 -g -ffp-contract=off -fsanitize=fuzzer,address,undefined \
	-fno-sanitize-recover=undefined -w $(PKG_FLAGS)
fuzz: $(patsubst test/fuzz/%.c,$(BUILD)/fuzz/%,$(FUZZ_C)) ## libFuzzer targets, one a parser
FUZZ_O = $(patsubst %.c,$(BUILD)/fuzz/obj/%.o,$(REF_C) $(DATA_C) $(NET_C)) \
	$(patsubst $(BUILD)/gen/%.c,$(BUILD)/fuzz/gen/%.o,$(GEN_C))
FUZZ_CC = $(CLANG) $(subst fuzzer$(,),fuzzer-no-link$(,),$(FUZZ_FLAGS)) -MMD -MP -c -o
$(BUILD)/fuzz/obj/%.o: %.c | $(GEN_H)
	@mkdir -p $(@D)
	$(FUZZ_CC) $@ $<
$(BUILD)/fuzz/gen/%.o: $(BUILD)/gen/%.c
	@mkdir -p $(@D)
	$(FUZZ_CC) $@ $<
$(BUILD)/fuzz/libpotluck.a: $(FUZZ_O)
	@rm -f $@
	$(AR) rcs $@ $^
$(BUILD)/fuzz/%: test/fuzz/%.c $(BUILD)/fuzz/libpotluck.a
	$(CLANG) $(FUZZ_FLAGS) -o $@ $< $(BUILD)/fuzz/libpotluck.a $(LIBS)
, := ,

SANITIZED = all $(BUILD)/interop/peer $(BUILD)/interop/trainer $(BUILD)/links
sanitize: ## units, goldens, pairs, the emulated device, programs, swarms, interop under AddressSanitizer and UndefinedBehaviorSanitizer
	$(MAKE) BUILD=$(BUILD)/asan OPT=-O1 SANITIZE="-fsanitize=address,undefined -fno-sanitize-recover=undefined" sanitized unit-programs cuda-on-cpu skeletons
	BUILD=$(BUILD)/asan sh test/sanitize.sh units goldens device programs swarms interop

# What has a network, or threads of its own. OpenMP's are left out: its library is not instrumented.
THREADED = abuse attacks averager averager_hidden averager_slow collaboration dashboard devices devices_bf16 dht_join dht_node host host_strangers host_turns http_server http_source rpc_stream stream together upload upload_parts
sanitize-threads: ## what has a network or threads, swarms and interop under ThreadSanitizer
	$(MAKE) BUILD=$(BUILD)/tsan OPT=-O1 SANITIZE=-fsanitize=thread sanitized $(patsubst %,$(BUILD)/tsan/test/%,$(THREADED))
	BUILD=$(BUILD)/tsan sh test/sanitize.sh units swarms interop
sanitized: $(SANITIZED)

PYTHON ?= python3
# STORE=1 keeps what they print and draw; otherwise it is only seen whether they run.
notebooks: all ## execute the notebooks (installs Jupyter's kernel, numpy, matplotlib; STORE=1: keep what they draw)
	@$(call install_missing,$(NOTEBOOK_PACKAGES))
	@BUILD=$(BUILD) sh notebooks/run.sh $(if $(STORE),--store)

bench: all ## time components, training steps, drawing, a DHT, averaging, beside ref and, if found, Python (QUICK=1)
	$(BUILD)/potluck bench --peer test/bench/peer.py --python $(PYTHON) $(if $(QUICK),--quick)
	python=$$(BUILD=$(BUILD) sh test/interop/environment.sh hivemind) || python=$(PYTHON); $$python test/bench/dht.py $(BUILD)/potluck
	@if python=$$(BUILD=$(BUILD) sh test/interop/environment.sh hivemind); then \
		$$python test/interop/hivemind_bench.py $(BUILD)/potluck $(if $(QUICK),12500000); \
	else echo "averaging beside hivemind left out: $$python"; fi

# On a machine with a GPU: everything that is claimed of one, in one run, as JSON and as a table for paper/.
bench-cuda: all ## time the CUDA backend against its device's own peaks (build/bench-cuda.md; no GPU: says so)
	python=$$(BUILD=$(BUILD) sh test/interop/environment.sh hivemind) || python=$(PYTHON); PYTHON=$$python sh test/bench/cuda.sh $(BUILD)

bench-page: all $(BUILD)/bench/page ## the page of 10,000 peers after a month; 1,000 watchers beside a training (wrk, Chromium)
	sh test/bench/page.sh $(BUILD)
$(BUILD)/bench/%: $(BUILD)/obj/test/bench/%.o $(BUILD)/libpotluck.a
	@mkdir -p $(@D)
	$(CC) $(SANITIZE) -o $@ $(filter %.o,$^) $(BUILD)/libpotluck.a $(LIBS)

# --- the demo's data -------------------------------------------------------------------------

# Debian's emoji and their names, drawn into build/demo/images with build/demo/captions.tsv; then, by
# the codec that is in data/demo, encoded into the shards there.
EMOJI_TEST ?= /usr/share/unicode/emoji/emoji-test.txt
EMOJI_FONT ?= /usr/share/fonts/truetype/noto/NotoColorEmoji.ttf
demo-pictures: data-deps
	@$(MAKE) --no-print-directory $(BUILD)/draw_emoji
	@mkdir -p $(BUILD)/demo
	$(BUILD)/draw_emoji $(EMOJI_TEST) $(EMOJI_FONT) $(BUILD)/demo
demo-data: demo-pictures ## draw the demo's pictures and encode them anew (needs FreeType and HarfBuzz)
	@$(MAKE) --no-print-directory all
	cp $(BUILD)/demo/holdout.txt data/demo/holdout.txt
	rm -f data/demo/emoji-*.parquet
	$(BUILD)/potluck prepare --data $(BUILD)/demo/captions.tsv --codec data/demo/codec.safetensors \
	  --out data/demo --stem emoji --rows 1000 --batch 64
$(BUILD)/draw_emoji: data/demo/draw_emoji.c data/demo/hold_out.c data/demo/hold_out.h $(BUILD)/libpotluck.a
	$(CC) $(filter-out -MMD -MP,$(ALLFLAGS)) -o $@ $(filter %.c,$^) $$(pkg-config --cflags freetype2 harfbuzz) $(BUILD)/libpotluck.a \
	  $$(pkg-config --libs freetype2 harfbuzz) $(LIBS)

# The demo's codec, 64 x 64 pixels to 8 x 8 codes of 256. On another kind of CPU sums are taken in
# another order, so the bytes differ from the shipped file's, its quality does not. A new codec
# needs new shards: make demo-data.
CODEC_STEPS ?= 7000
demo-codec: all demo-pictures ## train the demo's picture codec anew (half an hour on one core)
	$(BUILD)/potluck vqgan train --data $(BUILD)/demo/images --config demo --steps $(CODEC_STEPS) \
	  --batch 4 --lr 0.0025 --seed 1 --out $(BUILD)/demo/codec.safetensors --sheet $(BUILD)/demo/codec.png
	@echo "to ship it: cp $(BUILD)/demo/codec.safetensors data/demo/"

# --- set-up, installation --------------------------------------------------------------------

install_missing = sh debian/missing.sh $(1)
deps:
	@$(call install_missing,$(PACKAGES))
INTEROP_LIMIT ?= 360
test-deps: # what can't be had beyond the first line is skipped
	@$(call install_missing,$(TEST_PACKAGES))
	@$(call install_missing,-t $(INTEROP_LIMIT) $(NOTEBOOK_PACKAGES)) || true
	@$(call install_missing,-t $(INTEROP_LIMIT) $(MANUAL_PACKAGES)) || true
	@$(MAKE) --no-print-directory -s interop-deps
interop-deps:
	@$(call install_missing,-t $(INTEROP_LIMIT) $(PAGE_PACKAGES)) || true
	@BUILD=$(BUILD) sh test/interop/environment.sh hivemind install $(INTEROP_PACKAGES) || true
	@BUILD=$(BUILD) sh test/interop/environment.sh files install $(FILES_PACKAGES) || true
data-deps:
	@$(call install_missing,$(DATA_PACKAGES))

# Manual pages, from what the program says with --help and what paper/man adds by hand.
man: $(BUILD)/man/potluck.1 ## manual pages
$(BUILD)/man/potluck.1: $(BUILD)/potluck CHANGELOG.md $(wildcard paper/man/*)
	@sh paper/man/pages.sh $(BUILD)/potluck CHANGELOG.md $(BUILD)/man

SHARE = $(DESTDIR)$(PREFIX)/share
COMPLETE_BASH = $(SHARE)/bash-completion/completions/potluck
COMPLETE_ZSH  = $(SHARE)/zsh/vendor-completions/_potluck
install: all man ## into PREFIX (default /usr/local): program, backends, library, headers, manual, completion
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib/potluck $(DESTDIR)$(LIBDIR)/pkgconfig \
	  $(DESTDIR)$(PREFIX)/include/potluck/ref/model $(DESTDIR)$(PREFIX)/include/potluck/runtime \
	  $(SHARE)/potluck/demo $(SHARE)/man/man1
	install $(BUILD)/potluck $(DESTDIR)$(PREFIX)/bin/
	install -m 644 $(filter-out %/libpl_cuda_on_cpu.so %/libpl_opencl.so,$(wildcard $(BUILD)/libpl_*.so)) $(DESTDIR)$(PREFIX)/lib/potluck/
	install -m 644 $(BUILD)/libpotluck.a $(DESTDIR)$(LIBDIR)/
	install -m 644 $(BUILD)/libpotluck.so $(DESTDIR)$(LIBDIR)/libpotluck.so.0
	ln -sf libpotluck.so.0 $(DESTDIR)$(LIBDIR)/libpotluck.so
	install -m 644 data/demo/*.parquet data/demo/codec.safetensors data/demo/t5_2k.model data/demo/holdout.txt data/demo/live.txt data/demo/curve*.jsonl \
	  data/demo/NOTICE $(SHARE)/potluck/demo/
	install -m 644 $(BUILD)/man/potluck*.1 $(SHARE)/man/man1/
	install -D -m 644 cmd/potluck.bash $(COMPLETE_BASH)
	install -D -m 644 cmd/potluck.zsh $(COMPLETE_ZSH)
	install -m 644 ref/*.h $(DESTDIR)$(PREFIX)/include/potluck/ref/
	install -m 644 ref/model/*.h $(DESTDIR)$(PREFIX)/include/potluck/ref/model/
	install -m 644 runtime/*.h $(DESTDIR)$(PREFIX)/include/potluck/runtime/
	for h in $(filter-out data/demo/%,$(wildcard data/*/*.h)); do install -D -m 644 $$h $(DESTDIR)$(PREFIX)/include/potluck/$$h; done
	printf 'prefix=%s\nlibdir=%s\n\nName: potluck\nDescription: training transformers together\nVersion: %s\nRequires.private: %s\nCflags: -I$${prefix}/include/potluck\nLibs: -L$${libdir} -lpotluck\nLibs.private: -lsnappy -ldl -lpthread -lm\n' \
	  '$(PREFIX)' '$(LIBDIR)' '$(VERSION)' '$(PC_LIBS)' > $(DESTDIR)$(LIBDIR)/pkgconfig/potluck.pc

uninstall: ## remove what install put there
	rm -rf $(addprefix $(DESTDIR)$(PREFIX)/,bin/potluck lib/potluck include/potluck share/potluck)
	rm -f $(DESTDIR)$(LIBDIR)/libpotluck.* $(DESTDIR)$(LIBDIR)/pkgconfig/potluck.pc $(SHARE)/man/man1/potluck.1 \
	  $(SHARE)/man/man1/potluck-*.1 $(COMPLETE_BASH) $(COMPLETE_ZSH)

# The sources as one file, the same bytes whoever makes it, from a clone or from such a file unpacked:
# names sorted, and the release's day on everything.
RELEASE_DAY = $(shell sed -n 's/^\#\# .*(\([0-9-]*\))$$/\1/p' CHANGELOG.md | head -n 1)
DIST = potluck-$(VERSION)
dist: ## build/potluck-VERSION.tar.gz, reproducible
	@mkdir -p $(BUILD)
	@{ if [ -e .git ]; then git ls-files -z; else \
	  find . -path ./build -prune -o -path ./out -prune -o -type f -print0 | sed -z 's,^\./,,'; fi; } | LC_ALL=C sort -z | tar --null --no-recursion -T - --transform='flags=r;s,^,$(DIST)/,' \
	  --format=ustar --mtime='$(RELEASE_DAY) UTC' --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX -cf - \
	  | gzip -n -9 > $(BUILD)/$(DIST).tar.gz
	@echo "$(BUILD)/$(DIST).tar.gz"

# Debian's package, built from that file in build/deb. Its changelog is ours; its copyright file is our
# licence and the notices of what the demo's data were made from.
deb: dist ## Debian packages in build/deb, looked through by lintian
	@$(call install_missing,$(DEB_PACKAGES))
	rm -rf $(BUILD)/deb && mkdir -p $(BUILD)/deb
	tar -xzf $(BUILD)/$(DIST).tar.gz -C $(BUILD)/deb
	sh debian/changelog.sh CHANGELOG.md > $(BUILD)/deb/$(DIST)/debian/changelog
	sh debian/copyright.sh LICENSE data/demo/NOTICE > $(BUILD)/deb/$(DIST)/debian/copyright
	cd $(BUILD)/deb/$(DIST) && env -u MAKEFLAGS -u MAKELEVEL -u BUILD dpkg-buildpackage -b -us -uc
	lintian --fail-on error,warning $(BUILD)/deb/*.changes
	@ls $(BUILD)/deb/*.deb

clean: ## remove everything that was built
	rm -rf $(BUILD)

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{ printf "  make %-12s %s\n", $$1, $$2 }' Makefile

-include $(shell find $(BUILD)/obj $(BUILD)/fuzz -name '*.d' 2>/dev/null)
