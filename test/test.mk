# test.mk - the tests: units, fuzzers, interop, sanitizers, simulations, benchmarks, the port kit.

.PHONY: test unit-programs interop service-test test-bare mutate soak fault-injection coverage coverage-programs simulate \
	simulate-faults conform fuzz fuzz-coverage corpus-programs sanitize sanitize-threads sanitized skeletons opencl opencl-left-out \
	notebooks laboratory bench bench-compare bench-cuda gpu-report bench-page

test: test-deps ## install what tests need, build, run every test
	@$(MAKE) --no-print-directory -s -j$(JOBS) all unit-programs cuda-on-cpu skeletons opencl $(BUILD)/install/libpotluck.a $(BUILD)/interop/peer $(BUILD)/interop/trainer $(BUILD)/links $(FAULTS)
	@BUILD=$(BUILD) CLANG=$(CLANG) sh test/run.sh

# A unit test's program is called like its file, whatever folder it mirrors.
unit-programs: $(patsubst %.c,$(BUILD)/test/%,$(notdir $(UNIT_C))) $(if $(SANITIZE),,$(BUILD)/simulate_faults)
$(foreach f,$(UNIT_C),$(eval $(BUILD)/test/$(basename $(notdir $f)): $(f:%.c=$(BUILD)/obj/%.o)))
$(BUILD)/test/%: $(BUILD)/libpotluck.a
	@mkdir -p $(@D)
	$(CC) $(SANITIZE) -o $@ $(filter %.o,$^) $(BUILD)/libpotluck.a -lcmocka $(LDWRAP) $(LIBS)
$(BUILD)/test/attacks: LDWRAP = -Wl,--wrap=averager_verify_send
$(patsubst %,$(BUILD)/test/%,memory memory_libp2p memory_hivemind memory_ref): LDWRAP = $(foreach f,malloc calloc realloc aligned_alloc strdup,-Wl,--wrap=$(f))

# Tests with other programs, real hivemind peers first of all: `make test` does it too. They come
# from Debian and PyPI, into the user's cache (test/interop/environment.sh says where else); what
# can't be had, or takes longer than INTEROP_LIMIT seconds, is skipped with the reason.
interop: all interop-deps $(BUILD)/interop/peer $(BUILD)/interop/trainer ## our peers among real hivemind peers, our files, our page (installs others' first)
	@BUILD=$(BUILD) sh test/interop/run.sh
$(BUILD)/interop/peer: $(BUILD)/obj/test/interop/peer_served.o
$(BUILD)/interop/%: $(BUILD)/obj/test/interop/%.o $(BUILD)/libpotluck.a
	@mkdir -p $(@D)
	$(CC) $(SANITIZE) -o $@ $(filter %.o,$^) $(BUILD)/libpotluck.a $(LIBS)

service-test: all ## the bootstrap peer's systemd unit and container file
	@POTLUCK=$(BUILD)/potluck sh test/program/service.sh

# BARE=DIR: where the chroot is, which is made once; BARE_COMMAND: something shorter, such as 'make deps all'.
BARE         ?= $(BUILD)/bare
BARE_COMMAND ?= make test
test-bare: ## the same on a Debian with nothing but git, make and ca-certificates (root; debootstrap; BARE_COMMAND=...)
	@sh test/bare.sh $(BARE) '$(BARE_COMMAND)'

# Would a test notice a wrong line? FOLDER=ref, runtime, fast, cuda, data or net; N changes of it (40); SEED; MINUTES of a folder;
# LIST=FILE for changes of one's own; STORE=1 writes rates and survivors into test/mutate/rates.json and the table of
# paper/results.md, and continues the stored sample of the same seed.
mutate: all cuda-on-cpu ## change one line at a time and play the tests of its folder (FOLDER=, N=, SEED=, LIST=, STORE=1)
	@BUILD=$(BUILD) CC="$(CC)" CXX="$(CXX)" $(PYTHON) test/mutate/mutate.py $(addprefix --folder ,$(FOLDER)) $(addprefix --n ,$(N)) \
		$(addprefix --seed ,$(SEED)) $(addprefix --minutes ,$(MINUTES)) $(addprefix --list ,$(LIST)) $(if $(STORE),--store)
	$(if $(STORE),$(PYTHON) test/mutate/mutate.py --table)

# A swarm under churn: SOAK_S seconds (1800), SOAK_PEERS (16), SOAK_SEED; then hosts in network
# namespaces.
soak: all $(BUILD)/interop/trainer $(BUILD)/links ## peers that come, freeze and are killed for half an hour (SOAK_S=..., SOAK_PEERS=...)
	python3 test/soak/soak.py $(BUILD)/potluck
	python3 test/soak/namespaces.py $(BUILD)/potluck
	python3 test/soak/routers.py $(BUILD)/potluck

# Links between network namespaces: libc is all that it takes.
$(BUILD)/links: $(BUILD)/obj/test/soak/links.o
	$(CC) $(SANITIZE) -o $@ $^

# Libraries that are preloaded into a program: calls that fail; a journal of what it does to its files.
FAULTS = $(BUILD)/faults/inject.so $(BUILD)/faults/journal.so $(BUILD)/faults/store
fault-injection: all $(FAULTS) ## every allocation and file operation of the main commands fails once (hours; FAULT_EACH=1: each place in the code; FAULT_RUNS=N: a sample; FAULT_ONLY=NAME)
	python3 test/faults/inject.py $(BUILD)/potluck $(BUILD)/faults/inject.so $(if $(FAULT_RUNS),--runs $(FAULT_RUNS)) $(if $(FAULT_EACH),--each $(FAULT_EACH)) \
		$(if $(FAULT_ONLY),--only $(FAULT_ONLY))
$(BUILD)/faults/%.so: test/faults/%.c
	@mkdir -p $(@D)
	$(CC) -std=c11 -D_GNU_SOURCE -O2 -g1 -Wall -Wextra -fPIC -ftls-model=initial-exec -shared -o $@ $< -ldl

$(BUILD)/faults/store: $(call obj,test/faults/store.c) $(BUILD)/libpotluck.a
	@mkdir -p $(@D)
	$(CC) $(SANITIZE) $(LDFLAGS) -o $@ $^ $(LIBS)

# Lines and branches of ref/, data/ and net/ that the suites run, as a table in paper/results.md. The backends are built
# as always, by gcc, which they are written for.
COVERAGE = CC="$(if $(findstring ccache,$(CC)),ccache )$(CLANG)" OPT=-O2 CFLAGS="-g1 -w" LDFLAGS=-Wno-unused-command-line-argument \
	SANITIZE="-fprofile-instr-generate -fcoverage-mapping -mllvm -runtime-counter-relocation"
coverage: all cuda-on-cpu ## lines and branches that the suites run, into paper/results.md (SUITES=PATTERN: only those)
	$(MAKE) BUILD=$(BUILD)/coverage $(COVERAGE) coverage-programs
	cp $(BUILD)/libpl_*.so $(BUILD)/coverage
	BUILD=$(BUILD)/coverage sh test/line_coverage.sh '$(SUITES)'
coverage-programs: $(BUILD)/potluck $(BUILD)/libpotluck.so $(BUILD)/interop/peer $(BUILD)/interop/trainer $(BUILD)/links $(FAULTS) \
	$(patsubst %.c,$(BUILD)/test/%,$(notdir $(filter-out test/unit/fast/%,$(UNIT_C))))

# Swarms larger than any machine, on a virtual clock: paper/scaling.md.
SIM_O = $(call obj,$(filter-out %/main.c,$(wildcard test/simulator/*.c)))
simulate: $(BUILD)/simulate ## time, failures and traffic of 30 to 10,000 peers, by the real matchmaking (paper/scaling.md)
	@mkdir -p $(BUILD)/figures
	$(BUILD)/simulate $(BUILD)/figures
$(BUILD)/simulate: $(call obj,test/simulator/main.c) $(SIM_O) $(BUILD)/libpotluck.a
	$(CC) $(SANITIZE) -o $@ $^ $(LIBS)
$(BUILD)/test/simulator: $(SIM_O)

# Whole swarms in one process, one from each seed, under faults: test/simulation/README.md. The calls of the code under
# test that would leave the process go to the simulation, as does all of libuv.
SEEDS ?= 100
FIRST ?= 1
simulate-faults: $(BUILD)/simulate_faults ## swarms on a virtual clock, network and disk, under faults (SEEDS=100 FIRST=1; VERBOSE=1: each event)
	$(BUILD)/simulate_faults --first $(FIRST) --seeds $(SEEDS) $(if $(VERBOSE),--verbose)
SIMULATION_O    = $(call obj,$(wildcard test/simulation/*.c))
SIMULATION_WRAP = pthread_create pthread_join pthread_mutex_init pthread_mutex_destroy pthread_mutex_lock \
	pthread_mutex_unlock pthread_cond_init pthread_cond_destroy pthread_cond_wait pthread_cond_timedwait \
	pthread_cond_signal pthread_cond_broadcast clock_gettime nanosleep getpid pthread_sigmask malloc calloc realloc free \
	aligned_alloc strdup strndup open close read pread write fsync fstat stat access rename unlink mkdir mmap \
	scandir rsa_key_make rsa_key_sign rsa_public_parse rsa_public_is_canonical rsa_public_verify \
	identity_sign public_key_verify noise_seal noise_unseal pl_backend_open bans_add progress_write dht_node_store allreduce_message pl_reducer_reply pl_wire_encode \
	averager_begin averager_share training_state_write state_source_next training_average training_begin_average \
	training_end_average timer_start authority_ask claims_round broadcast_send broadcast_send_pair
$(BUILD)/simulate_faults: $(SIMULATION_O) $(BUILD)/libpotluck.a
	$(CC) $(SANITIZE) -o $@ $^ $(foreach f,$(SIMULATION_WRAP),-Wl,--wrap=$(f)) $(filter-out -luv,$(LIBS))

conform: all ## golden values and pair tests against BACKEND=ref|fast|auto|./mine.so
	$(BUILD)/potluck conform --golden test/golden --backend $(BACKEND)
	$(BUILD)/potluck conform --backend $(BACKEND)

# Fuzzers are built from the same sources by clang, with the library inside the instrumentation.
FUZZ_FLAGS = -std=c11 -D_GNU_SOURCE -O1 -g -ffp-contract=off -fsanitize=fuzzer,address,undefined \
	-fno-sanitize-recover=undefined -w $(PKG_FLAGS)
fuzz: $(patsubst test/fuzz/%.c,$(BUILD)/fuzz/%,$(FUZZ_C)) ## libFuzzer targets, one a parser
FUZZ_O = $(patsubst %.c,$(BUILD)/fuzz/obj/%.o,$(REF_C) $(RUNTIME_C) $(DATA_C) $(NET_C)) \
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

# How much of the files that a fuzzer reaches its corpus runs.
fuzz-coverage: all ## lines and branches that each fuzzer's corpus runs, of the files that it reaches
	$(MAKE) BUILD=$(BUILD)/coverage $(COVERAGE) corpus-programs
	BUILD=$(BUILD)/coverage sh test/fuzz/corpus_coverage.sh
corpus-programs: $(patsubst test/fuzz/%.c,$(BUILD)/corpus/%,$(FUZZ_C))
$(BUILD)/corpus/%: $(BUILD)/obj/test/fuzz/%.o $(BUILD)/libpotluck.a
	@mkdir -p $(@D)
	$(CC) -fsanitize=fuzzer $(SANITIZE) $(LDFLAGS) -o $@ $^ $(LIBS)

SANITIZED = all $(BUILD)/interop/peer $(BUILD)/interop/trainer $(BUILD)/links
sanitize: ## units, goldens, pairs, the emulated device, programs, swarms, interop under AddressSanitizer and UndefinedBehaviorSanitizer
	$(MAKE) BUILD=$(BUILD)/asan OPT=-O1 SANITIZE="-fsanitize=address,undefined -fno-sanitize-recover=undefined" sanitized unit-programs cuda-on-cpu skeletons
	BUILD=$(BUILD)/asan sh test/sanitize.sh units goldens device programs swarms interop

# What has a network, or threads of its own. OpenMP's are left out: its library is not instrumented.
THREADED = abuse attacks averager averager_declarations averager_nat averager_slow averager_state training training_records training_step dashboard devices devices_bf16 dht_join dht_join_clock dht_node dht_relays host host_flood host_routing host_strangers membership http_server http_source rpc_stream rpc_stream_ends batch_stream pairs_shards optimizer_delay optimizer_tensors upload upload_parts
sanitize-threads: ## what has a network or threads, swarms and interop under ThreadSanitizer
	$(MAKE) BUILD=$(BUILD)/tsan OPT=-O1 SANITIZE=-fsanitize=thread sanitized $(patsubst %,$(BUILD)/tsan/test/%,$(THREADED))
	BUILD=$(BUILD)/tsan sh test/sanitize.sh units swarms interop
sanitized: $(SANITIZED)

# Where a stranger's backend begins: compiled as its text says, and it passes before a line is
# written.
skeletons: $(BUILD)/skeleton_host.so $(BUILD)/skeleton_device.so
$(BUILD)/skeleton_%.so: test/skeleton/%.c
	$(CC) -std=c11 -O2 $(WARN) -Wno-missing-prototypes -fPIC -shared $(SANITIZE) -I. -o $@ $<

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
$(BUILD)/libpl_opencl.so: $(call obj,$(OPENCL_C) ref/base.c ref/quant.c) runtime/backend.map
	$(CC) -shared -Wl,--version-script=runtime/backend.map $(WHOLE) $(SANITIZE) -o $@ $(filter %.o,$^) $$(pkg-config --libs OpenCL) -lm

PYTHON ?= python3
# STORE=1 keeps what they print and draw; otherwise it is only seen whether they run.
notebooks: all ## execute the notebooks (installs Jupyter's kernel, numpy, matplotlib; STORE=1: keep what they draw)
	@$(call install_missing,$(NOTEBOOK_PACKAGES))
	@BUILD=$(BUILD) sh notebooks/run.sh $(if $(STORE),--store)

# Goes on where it was interrupted. Measuring real processes takes root, ip and tc; without them the stored times stay.
LABORATORY ?= out/laboratory
laboratory: all ## compare all ways of training together: paper/laboratory.md and its figures (a quarter of an hour on a quiet core)
	$(PYTHON) paper/laboratory.py run $(BUILD)/potluck --out $(LABORATORY)
	[ "$$(id -u)" != 0 ] || $(PYTHON) paper/laboratory_links.py $(BUILD)/potluck || true
	$(PYTHON) paper/laboratory.py write $(BUILD)/potluck --out $(LABORATORY)

bench: all ## time components, training steps, drawing, a DHT, averaging; compared with ref and, if found, Python (QUICK=1)
	$(BUILD)/potluck bench --peer test/bench/peer.py --python $(PYTHON) $(if $(QUICK),--quick)
	python=$$(BUILD=$(BUILD) sh test/interop/environment.sh hivemind) || python=$(PYTHON); $$python test/bench/dht.py $(BUILD)/potluck
	@if python=$$(BUILD=$(BUILD) sh test/interop/environment.sh hivemind); then \
		$$python test/interop/hivemind_bench.py $(BUILD)/potluck $(if $(QUICK),12500000); \
	else echo "averaging with hivemind left out: $$python"; fi

BASE ?= HEAD~1
bench-compare: all ## what the changes since BASE (a commit; default HEAD~1) did to speed, both timed in turn (QUICK=1)
	@python3 test/bench/compare.py $(BASE) --build $(BUILD) $(if $(QUICK),--quick)

# On a machine with a GPU: everything that is claimed of one, in one run, as JSON and as a table for
# paper/.
bench-cuda: all ## time the CUDA backend against its device's own peaks (build/bench-cuda.md; no GPU: says so)
	python=$$(BUILD=$(BUILD) sh test/interop/environment.sh hivemind) || python=$(PYTHON); PYTHON=$$python sh test/bench/cuda.sh $(BUILD)

gpu-report: ## on a machine with a GPU: conformance, benchmarks, a training, in nine minutes, as one folder (build/gpu-report)
	python=$$(BUILD=$(BUILD) sh test/interop/environment.sh hivemind) || python=$(PYTHON); PYTHON=$$python sh test/bench/gpu_report.sh $(BUILD)

bench-page: all $(BUILD)/bench/page ## the page of 10,000 peers after a month; 1,000 watchers during a training (wrk, Chromium)
	sh test/bench/page.sh $(BUILD)
$(BUILD)/bench/%: $(BUILD)/obj/test/bench/%.o $(BUILD)/libpotluck.a
	@mkdir -p $(@D)
	$(CC) $(SANITIZE) -o $@ $(filter %.o,$^) $(BUILD)/libpotluck.a $(LIBS)
