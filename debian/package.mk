# package.mk - manual pages, installation, releases, Debian packages.

.PHONY: man doc install uninstall dist deb

# Manual pages, from what the program says with --help and what paper/man adds by hand.
man: $(BUILD)/man/potluck.1 ## manual pages
$(BUILD)/man/potluck.1: $(BUILD)/potluck CHANGELOG.md $(wildcard paper/man/*)
	@sh paper/man/pages.sh $(BUILD)/potluck CHANGELOG.md $(BUILD)/man

doc: ## the API reference as HTML, made from the headers by Doxygen: build/doc/html/index.html
	@$(call install_missing,$(DOC_PACKAGES))
	@mkdir -p $(BUILD)/doc
	@BUILD=$(BUILD) doxygen paper/api/Doxyfile
	@echo "$(BUILD)/doc/html/index.html"

SHARE = $(DESTDIR)$(PREFIX)/share
COMPLETE_BASH = $(SHARE)/bash-completion/completions/potluck
COMPLETE_ZSH  = $(SHARE)/zsh/vendor-completions/_potluck
install: all man $(BUILD)/install/libpotluck.a ## into PREFIX (default /usr/local): program, backends, library, headers, manual, completion
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib/potluck $(DESTDIR)$(LIBDIR)/pkgconfig \
	  $(DESTDIR)$(PREFIX)/include/potluck/ref/model $(DESTDIR)$(PREFIX)/include/potluck/runtime \
	  $(SHARE)/potluck/demo $(SHARE)/man/man1
	install $(BUILD)/potluck $(DESTDIR)$(PREFIX)/bin/
	install -m 644 $(filter-out %/libpl_cuda_on_cpu.so %/libpl_opencl.so,$(wildcard $(BUILD)/libpl_*.so)) $(DESTDIR)$(PREFIX)/lib/potluck/
	install -m 644 $(BUILD)/install/libpotluck.a $(DESTDIR)$(LIBDIR)/
	install -m 644 $(BUILD)/libpotluck.so $(DESTDIR)$(LIBDIR)/libpotluck.so.0
	ln -sf libpotluck.so.0 $(DESTDIR)$(LIBDIR)/libpotluck.so
	install -m 644 data/demo/*.parquet data/demo/codec.safetensors data/demo/t5_2k.model data/demo/holdout.txt data/demo/live.txt data/demo/curve*.jsonl \
	  data/demo/NOTICE $(SHARE)/potluck/demo/
	install -m 644 $(BUILD)/man/potluck*.1 $(SHARE)/man/man1/
	sed 's,/usr/bin/potluck,$(PREFIX)/bin/potluck,' cmd/peer/service/potluck-peer.service >$(SHARE)/potluck/potluck-peer.service
	install -D -m 644 cmd/completion/potluck.bash $(COMPLETE_BASH)
	install -D -m 644 cmd/completion/potluck.zsh $(COMPLETE_ZSH)
	install -m 644 ref/*.h $(DESTDIR)$(PREFIX)/include/potluck/ref/
	install -m 644 $(filter-out %_internal.h,$(wildcard ref/model/*.h)) $(DESTDIR)$(PREFIX)/include/potluck/ref/model/
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/include/potluck/ref/outer ref/outer/*.h
	install -m 644 $(filter-out %_internal.h,$(wildcard runtime/*.h)) $(DESTDIR)$(PREFIX)/include/potluck/runtime/
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/include/potluck/net/hivemind net/hivemind/*.h
	for h in $(filter-out data/demo/% %_internal.h,$(wildcard data/*/*.h)); do install -D -m 644 $$h $(DESTDIR)$(PREFIX)/include/potluck/$$h; done
	printf 'prefix=%s\nlibdir=%s\n\nName: potluck\nDescription: training transformers together\nVersion: %s\nCflags: -I$${prefix}/include/potluck\nLibs: -L$${libdir} -lpotluck\nLibs.private: %s\n' \
	  '$(PREFIX)' '$(LIBDIR)' '$(VERSION)' '$(LIBS)' > $(DESTDIR)$(LIBDIR)/pkgconfig/potluck.pc

uninstall: ## remove what install put there
	rm -rf $(addprefix $(DESTDIR)$(PREFIX)/,bin/potluck lib/potluck include/potluck share/potluck)
	rm -f $(DESTDIR)$(LIBDIR)/libpotluck.* $(DESTDIR)$(LIBDIR)/pkgconfig/potluck.pc $(SHARE)/man/man1/potluck.1 \
	  $(SHARE)/man/man1/potluck-*.1 $(COMPLETE_BASH) $(COMPLETE_ZSH)

# The sources as one file. Its bytes are the same on every machine, from a clone or from an unpacked
# file: names are sorted, and every file has the release's date.
RELEASE_DAY = $(shell sed -n 's/^\#\# .*(\([0-9-]*\))$$/\1/p' CHANGELOG.md | head -n 1)
DIST = potluck-$(VERSION)
dist: ## build/potluck-VERSION.tar.gz, reproducible
	@mkdir -p $(BUILD)
	@{ if [ -e .git ]; then git ls-files -z; else \
	  find . -path ./build -prune -o -path ./out -prune -o -type f -print0 | sed -z 's,^\./,,'; fi; } | LC_ALL=C sort -z | tar --null --no-recursion -T - --transform='flags=r;s,^,$(DIST)/,' \
	  --format=ustar --mtime='$(RELEASE_DAY) UTC' --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX -cf - \
	  | gzip -n -9 > $(BUILD)/$(DIST).tar.gz
	@echo "$(BUILD)/$(DIST).tar.gz"

# Debian's package, built from that file in build/deb. Its changelog is ours; its copyright file is
# our licence and the notices of what the demo's data were made from.
deb: dist ## Debian packages in build/deb, looked through by lintian
	@$(call install_missing,$(DEB_PACKAGES))
	rm -rf $(BUILD)/deb && mkdir -p $(BUILD)/deb
	tar -xzf $(BUILD)/$(DIST).tar.gz -C $(BUILD)/deb
	sh debian/changelog.sh CHANGELOG.md > $(BUILD)/deb/$(DIST)/debian/changelog
	sh debian/copyright.sh LICENSE data/demo/NOTICE > $(BUILD)/deb/$(DIST)/debian/copyright
	cd $(BUILD)/deb/$(DIST) && env -u MAKEFLAGS -u MAKELEVEL -u BUILD dpkg-buildpackage -b -us -uc
	lintian --fail-on error,warning $(BUILD)/deb/*.changes
	@ls $(BUILD)/deb/*.deb
