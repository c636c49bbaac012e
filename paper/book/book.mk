# book.mk - the book: paper/book and paper/ as static HTML that opens without a server or a network.
# pandoc makes the pages. Debian's clang, lld and wasi-libc compile ref/ for the figures.

BOOK          = $(BUILD)/book
BOOK_NOTES    = $(BUILD)/book.notes
BOOK_CHAPTERS = $(sort $(wildcard paper/book/[0-9]*.md))
BOOK_PAPERS   = $(filter-out paper/README.md,$(wildcard paper/*.md paper/spec/*.md))
BOOK_PARTS    = paper/book/filter.lua paper/book/template.html paper/book/book.mk
BOOK_STATIC   = $(patsubst paper/book/%,$(BOOK)/%,$(wildcard paper/book/*.css paper/book/figures/*.js)) \
	$(patsubst paper/%,$(BOOK)/%,$(wildcard paper/figures/*.png paper/figures/*.svg))
# paper/book/01-masks.md becomes 01-masks.html, paper/swarm.md paper-swarm.html, and
# paper/spec/numerics.md paper-spec-numerics.html.
BOOK_HTML     = $(patsubst paper/book/%.md,$(BOOK)/%.html,$(BOOK_CHAPTERS)) \
	$(patsubst %.md,$(BOOK)/%.html,$(subst /,-,$(BOOK_PAPERS)))

.PHONY: book book-pages
book: ## the book, with figures to play with: build/book/index.html (installs pandoc, lld, wasi-libc)
	@$(call install_missing,$(BOOK_PACKAGES) $(DOC_PACKAGES))
	@$(MAKE) --no-print-directory -s book-pages
	@echo "$(BOOK)/index.html"
book-pages: $(BOOK_NOTES)/sources.stamp $(BOOK)/index.html $(addprefix $(BOOK)/figures/,ref.js model.js trace.js) $(BOOK_STATIC)

# The API reference, as `make doc` makes it, where doxygen is there. Its index of names (api.tag) says where each one is.
$(BOOK_NOTES)/api.stamp: paper/api/Doxyfile $(wildcard ref/*.h ref/*/*.h)
	@mkdir -p $(BOOK) $(BOOK_NOTES)
	@if command -v doxygen >/dev/null; then { cat paper/api/Doxyfile; echo "OUTPUT_DIRECTORY = $(BOOK)"; echo "HTML_OUTPUT = api"; \
	  echo "GENERATE_TAGFILE = $(BOOK_NOTES)/api.tag"; echo "SEARCHENGINE = NO"; } | doxygen -; fi
	@touch $@
$(BOOK_HTML): | $(BOOK_NOTES)/api.stamp

# A page is made again if the filter has changed, or any file that it quotes or links to: each pandoc writes their names into
# PAGE.d, and those of the linked ones into PAGE.sources.
BOOK_PANDOC = pandoc --lua-filter paper/book/filter.lua --template paper/book/template.html --mathml --standalone --wrap=none \
	--metadata out=$(BOOK) --metadata notes=$(BOOK_NOTES) --metadata source=$< --metadata chapters='$(BOOK_CHAPTERS)' --metadata papers='$(BOOK_PAPERS)' --output $@ $<
$(BOOK)/%.html: paper/book/%.md $(BOOK_PARTS) paper/glossary.md
	@mkdir -p $(BOOK)/figures $(BOOK_NOTES)
	$(BOOK_PANDOC) --from markdown+gfm_auto_identifiers
$(BOOK)/index.html: paper/book/README.md $(BOOK_PARTS) $(BOOK_CHAPTERS)
	@mkdir -p $(BOOK)/figures $(BOOK_NOTES)
	$(BOOK_PANDOC) --from gfm
$(foreach p,$(BOOK_PAPERS),$(eval $(BOOK)/$(subst /,-,$(p:.md=.html)): $(p) $(BOOK_PARTS); @mkdir -p $(BOOK)/figures $(BOOK_NOTES) && $$(BOOK_PANDOC) --from gfm+tex_math_dollars))
-include $(wildcard $(BOOK_NOTES)/*.d)

# The figures' WebAssembly: ref/, and runtime/ without its shared libraries and threads; what no figure calls is not linked. It
# is a text in a script, since a page from file:// may not fetch. wasi-libc declares madvise for those who say so.
WASM_C       = $(REF_C) $(filter-out runtime/backend_open.c runtime/replicas.c,$(wildcard runtime/*.c)) paper/book/figures/figures.c
WASM_O       = $(patsubst %.c,$(BUILD)/wasm/%.o,$(WASM_C))
WASM_EXPORTS = pl_alloc pl_free pl_balance_fractions pl_codebook pl_code_run pl_rotary_angles pl_rotary_channels pl_rotary_tables \
	ref_rotary ref_quantize ref_dequantize ref_median
$(BUILD)/wasm/%.o: %.c
	@mkdir -p $(@D)
	$(CLANG) --target=wasm32-wasi -std=c11 -D_GNU_SOURCE -D_WASI_EMULATED_MMAN -O2 $(WARN) -ffp-contract=off \
	  -ffunction-sections -MMD -MP -iquote . -c -o $@ $<
$(BUILD)/wasm/ref.wasm: $(WASM_O) paper/book/book.mk
	$(CLANG) --target=wasm32-wasi -mexec-model=reactor -Wl,--gc-sections,--strip-all,-z,stack-size=262144 \
	  $(addprefix -Wl$(comma)--export=,$(WASM_EXPORTS)) -o $@ $(WASM_O) -lm
$(BOOK)/figures/ref.js: $(BUILD)/wasm/ref.wasm
	@mkdir -p $(BOOK)/figures
	{ printf '"use strict";\nconst REF_WASM = "'; base64 -w 0 $<; echo '";'; } > $@.new && mv $@.new $@
comma = ,
# What two real trainers sent to each other, for the figure of matchmaking.
$(BOOK)/figures/trace.js: test/golden/protocol/training_trace.json
	@mkdir -p $(BOOK)/figures
	{ printf '"use strict";\nconst TRACE = '; cat $<; echo ';'; } > $@.new && mv $@.new $@

# The model that a page draws with: the newest checkpoint of `make demo`, or of another training's folder.
BOOK_MODEL ?= $(firstword $(wildcard out/demo out/demo-alone out/demo-quick))
BOOK_CHECKPOINTS = $(wildcard $(BOOK_MODEL)/checkpoint-*.safetensors)
$(BOOK)/figures/model.js: paper/book/model.py paper/book/book.mk $(BOOK_CHECKPOINTS)
	@mkdir -p $(BOOK)/figures
	$(if $(BOOK_CHECKPOINTS),$(PYTHON) $< $(BOOK_MODEL) data/demo/codec.safetensors data/demo/t5_2k.model,echo 'const MODEL = null;') > $@.new
	@mv $@.new $@
-include $(WASM_O:.o=.d)

# Every file of the source that some page links to, as a page with numbered lines.
$(BOOK_NOTES)/sources.stamp: $(BOOK_HTML) $(BOOK)/index.html paper/book/sources.sh
	sh paper/book/sources.sh $(BOOK) $(BOOK_NOTES)
	@touch $@

$(BOOK)/%: paper/book/%
	@mkdir -p $(BOOK)/figures $(BOOK_NOTES)
	cp $< $@
$(BOOK)/figures/%: paper/figures/%
	@mkdir -p $(BOOK)/figures $(BOOK_NOTES)
	cp $< $@
