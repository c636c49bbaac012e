# static.mk - one file that runs on any Linux of its processor: all libraries are linked in, the fast
# backend, too. `ARCH=arm64 sh test/cross/make.sh static` makes the one for aarch64.
STATIC_O = $(call obj,$(wildcard cmd/static/*.c))
# libzip has no static library; libuv's has a name of its own; snappy is C++.
STATIC_LIBS = $(patsubst -luv,-l:libuv_a.a,$(filter-out -lrt,$(shell pkg-config --static --libs $(filter-out libzip,$(PC_LIBS)) 2>/dev/null))) \
	-lnatpmp -lsnappy -lstdc++ -lgomp -ldl -lpthread -lm
static: $(BUILD)/static/potluck ## the program as one file for any Linux: build/static/potluck
$(BUILD)/static/potluck: $(PROGRAM_O) $(STATIC_O) $(call obj,$(FAST_C)) $(BUILD)/libpotluck.a
	@mkdir -p $(@D)
	$(CC) -static -s $(LDFLAGS) -o $@ $^ $(STATIC_LDFLAGS) $(STATIC_LIBS)
static-libs:
	@echo $(STATIC_LIBS)
.PHONY: static static-libs
