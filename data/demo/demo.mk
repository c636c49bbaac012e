# demo.mk - the demo, and the data and codec that it ships with.

.PHONY: demo page-picture demo-pictures demo-data demo-codec

# Compiling for a device takes minutes: here only where there is one.
demo: deps ## install what is missing, build, train together on real pairs, draw pictures (ALONE=1: one peer; QUICK=1: two minutes; ALGORITHM=gradients: as the paper)
	@$(MAKE) --no-print-directory -s -j$(JOBS) $(BUILD)/potluck fast $(if $(wildcard /dev/nvidia0),cuda)
	$(BUILD)/potluck demo $(if $(QUICK),--quick) $(if $(ALONE),--alone) $(if $(ALGORITHM),--algorithm $(ALGORITHM))

# RUN: the folder of a finished demo, whose page is drawn.
RUN ?= out/demo
page-picture: ## paper/figures/page.png from the page of a finished demo, by Chromium (RUN=out/demo)
	sh debian/missing.sh $(PAGE_PACKAGES) python3-pil
	/usr/bin/python3 paper/page_picture.py $(RUN)

# Debian's emoji and their names, drawn into build/demo/images with build/demo/captions.tsv; then,
# by the codec that is in data/demo, encoded into the shards there.
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
