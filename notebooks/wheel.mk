# wheel.mk - the Python module with the program and the library in it, as pip installs it. Below the module's installed/ is what
# `make install` puts into a prefix, so both find their backends and data there. `ARCH=arm64 sh test/cross/make.sh wheel` makes the one for
# aarch64.

WHEEL           = $(BUILD)/wheel
WHEEL_PREFIX    = $(WHEEL)/source/potluck/installed
WHEEL_DATA      = $(wildcard data/demo/*.parquet data/demo/*.jsonl data/demo/*.txt) $(addprefix data/demo/,codec.safetensors t5_2k.model NOTICE)
STRIPPED        = install -D -s --strip-program=$(STRIP)

# As in the static program, without OpenBLAS and its 30 MB: cmd/static/blas.c stands in.
$(WHEEL)/blas.o: cmd/static/blas.c
	@mkdir -p $(@D)
	$(CC) $(ALLFLAGS) -O3 -c -o $@ $<
$(WHEEL)/libpl_fast.so: $(WHEEL)/blas.o $(call obj,$(FAST_C)) $(call obj,$(filter $(FAST_NEEDS),$(REF_C))) runtime/backend.map
	@mkdir -p $(@D)
	$(FAST_CC) -shared -fopenmp -Wl,--version-script=runtime/backend.map $(WHOLE) $(LDFLAGS) -o $@ $(filter %.o,$^) -lm

.PHONY: wheel
wheel: $(BUILD)/potluck $(BUILD)/libpotluck.so $(WHEEL)/libpl_fast.so ## a wheel for pip, with program, library and Python module: build/wheel
	rm -rf $(WHEEL)/source $(WHEEL)/*.whl
	install -D -m 644 -t $(WHEEL)/source/potluck notebooks/potluck/*.py notebooks/potluck/py.typed
	install -m 644 notebooks/pyproject.toml notebooks/setup.py LICENSE $(WHEEL)/source
	$(STRIPPED) -t $(WHEEL_PREFIX)/bin $(BUILD)/potluck
	$(STRIPPED) -m 644 $(BUILD)/libpotluck.so $(WHEEL_PREFIX)/lib/libpotluck.so
	$(STRIPPED) -m 644 -t $(WHEEL_PREFIX)/lib/potluck $(WHEEL)/libpl_fast.so
	install -D -m 644 -t $(WHEEL_PREFIX)/share/potluck/demo $(WHEEL_DATA)
	PYTHON=$(PYTHON) sh notebooks/wheel.sh $(WHEEL)
