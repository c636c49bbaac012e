# setup.mk - Debian's packages: which ones each goal needs, and the goals that install them.

# For the program; for its tests on top; for drawing the demo's data anew.
PACKAGES = build-essential pkg-config libopenblas-dev libjansson-dev libbrotli-dev libssl-dev \
	zlib1g-dev libzstd-dev libsnappy-dev libpng-dev libjpeg62-turbo-dev libwebp-dev libutf8proc-dev \
	libprotobuf-c-dev protobuf-c-compiler libuv1-dev libmicrohttpd-dev libsqlite3-dev libzip-dev libyaml-dev libcurl4-openssl-dev \
	libminiupnpc-dev libnatpmp-dev
TEST_PACKAGES = $(PACKAGES) libcmocka-dev clang clang-format libclang-rt-14-dev ocl-icd-opencl-dev pocl-opencl-icd \
	python3-cryptography iproute2 nftables miniupnpd-nftables
PAGE_PACKAGES = chromium chromium-driver python3-selenium nodejs
MANUAL_PACKAGES = mandoc zsh
INTEROP_PACKAGES = python3 python3-venv python3-torch
FILES_PACKAGES = $(INTEROP_PACKAGES) python3-pil python3-pandas python3-requests python3-tqdm python3-filelock \
	python3-regex python3-xxhash python3-dill python3-multiprocess python3-packaging python3-yaml python3-aiohttp
DEB_PACKAGES = $(PACKAGES) dpkg-dev debhelper lintian
NOTEBOOK_PACKAGES = python3 python3-nbclient python3-nbformat python3-ipykernel python3-matplotlib python3-numpy
DOC_PACKAGES = doxygen
WHEEL_PACKAGES = python3 python3-venv python3-pip python3-setuptools python3-wheel
BOOK_PACKAGES = pandoc clang lld wasi-libc libclang-rt-dev-wasm32
DATA_PACKAGES = $(PACKAGES) libfreetype-dev libharfbuzz-dev fonts-noto-color-emoji unicode-data

PC_LIBS    = sqlite3 libuv libprotobuf-c jansson libbrotlienc libbrotlidec libssl libcrypto zlib libzstd libpng libjpeg libwebp libutf8proc libzip yaml-0.1 miniupnpc
PC_LOADED  = libmicrohttpd libcurl # headers alone: net/http/libraries.c loads them when they are needed
NO_PC      = cblas.h natpmp.h snappy-c.h # headers of libraries whose .pc file is missing, or differs between releases

# Without its packages the program cannot be built: one line says what to type. Some goals need none
# of them, or install them.
NEEDS_NOTHING = ref deps demo demo-pictures demo-data demo-codec test test-bare test-deps interop-deps data-deps dist deb doc clean help book book-pages
ifneq ($(filter-out $(NEEDS_NOTHING),$(or $(MAKECMDGOALS),all)),)
LACKING := $(shell command -v pkg-config >/dev/null || echo pkg-config; command -v protoc-c >/dev/null || echo protoc-c; \
	for p in $(PC_LIBS) $(PC_LOADED); do pkg-config --exists $$p 2>/dev/null || echo $$p; done; \
	for h in $(NO_PC); do $(CC) -E -x c -include $$h /dev/null >/dev/null 2>&1 || echo $$h; done)
ifneq ($(LACKING),)
$(error potluck cannot be built without $(firstword $(LACKING))$(if $(word 2,$(LACKING)), and $(words $(wordlist 2,99,$(LACKING))) more); to install it type: make deps)
endif
endif

.PHONY: deps test-deps interop-deps data-deps
install_missing = sh debian/missing.sh $(1)
deps:
	@$(call install_missing,$(PACKAGES))
INTEROP_LIMIT ?= 360
test-deps: # what can't be had beyond the first line is skipped
	@$(call install_missing,$(TEST_PACKAGES))
	@$(call install_missing,-t $(INTEROP_LIMIT) $(NOTEBOOK_PACKAGES)) || true
	@$(call install_missing,-t $(INTEROP_LIMIT) $(MANUAL_PACKAGES)) || true
	@$(call install_missing,-t $(INTEROP_LIMIT) $(BOOK_PACKAGES) $(WHEEL_PACKAGES)) || true
	@$(MAKE) --no-print-directory -s interop-deps
interop-deps:
	@$(call install_missing,-t $(INTEROP_LIMIT) $(PAGE_PACKAGES)) || true
	@BUILD=$(BUILD) sh test/interop/environment.sh hivemind install $(INTEROP_PACKAGES) || true
	@BUILD=$(BUILD) sh test/interop/environment.sh files install $(FILES_PACKAGES) || true
data-deps:
	@$(call install_missing,$(DATA_PACKAGES))
