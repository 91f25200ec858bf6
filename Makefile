# Every target sets up what it needs by itself: Python 3.11+ and make are enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DOCS := .venv-docs
DOCS_READY := $(DOCS)/.ready
STUDIO := .venv-studio
STUDIO_READY := $(STUDIO)/.ready
LOWEST := .venv-lowest
LOWEST_READY := $(LOWEST)/.ready
PLATFORMS := aarch64-linux-gnu.2.17 aarch64-macos.11.0-none x86_64-windows-gnu
export NO_MKDOCS_2_WARNING := 1

.PHONY: demo test check test-slow test-processors test-lowest test-gpu gpu-report mutants findings evidence axl docs docs-serve docs-check studio-test release-check clean

demo: $(READY)  ## train on the digits and show everything on one page
	$(BIN)/axial demo

test: $(READY)  ## the whole test suite, about five minutes of one core, within its budget of CPU time
	$(BIN)/python tools/budget.py

check: $(READY)  ## style, types, the direction of imports, and the weight of the source
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/weight.py
	$(BIN)/python -m pytest tests/project/test_architecture.py tests/project/test_prose.py

test-slow: $(READY)  ## what takes longer than the test run allows
	$(BIN)/python -m pytest -m slow

test-processors: $(READY)  ## kernels, layers, decoding, archives as on other x86 processors; PROCESSORS=AVX2: as on one
	$(BIN)/python tests/processors.py $(PROCESSORS)

test-lowest: $(LOWEST_READY)  ## the test suite with the oldest releases that pyproject.toml allows
	$(LOWEST)/bin/python -m pytest

test-gpu: $(READY)  ## what needs a CUDA device
	CUBLAS_WORKSPACE_CONFIG=:4096:8 $(BIN)/python -m pytest -m gpu

gpu-report: $(READY)  ## what a CUDA device shows, as one page and one JSON file; ARGS=--dry-run: what compares values, on the CPU
	$(BIN)/python benchmarks/gpu_report.py $(ARGS)

mutants: $(READY)  ## small faults planted in a copy, each of which tests must find; ARGS='--only training --jobs 2'
	$(BIN)/python tools/mutants.py $(ARGS)

evidence:  ## the numbers of README, and which of them are older than what they measure; before a release
	$(PYTHON) tools/evidence.py

findings:  ## what real software does and nobody would guess, in about 20 minutes; ONLY='torch-*': some of it
	@status=0; for script in findings/$(or $(ONLY),*).sh; do \
	  echo "$$script" && bash "$$script" || status=1; \
	done; exit $$status

axl:  ## the decoder of archives in one C file, build/axl.c; MODELS="photos32 digits": with these models in it
	mkdir -p build && $(PYTHON) tools/axl/join.py build/axl.c $(MODELS)

release-check: $(READY)  ## build what is published into dist/, check that nothing lacks, try it in an environment of its own
	rm -rf dist build && mkdir build
	$(BIN)/python -m pip install --quiet --progress-bar off -c constraints.txt -e '.[release]'
	$(BIN)/python -m build --outdir dist
	for target in $(PLATFORMS); do AXIAL_TARGET=$$target $(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist . || exit 1; done
	$(BIN)/python -m twine check --strict dist/*
	tar -tzf dist/*.tar.gz | sed 's|^[^/]*/||' | sort > build/packed
	git ls-files | grep -v '^[.]' | sort | comm -23 - build/packed > build/missing
	test ! -s build/missing || { cat build/missing; echo 'is missing in the sdist: see .gitignore'; exit 1; }
	$(MAKE) axl
	cc -std=c99 -O2 -ffp-contract=off -Wall -Wextra -Werror -pedantic -o build/axl build/axl.c -lm
	$(BIN)/python -m pytest tests/compression/test_c_decoder.py
	$(BIN)/python -m pytest -m slow -rs tests/compression/test_c_decoder.py
	$(PYTHON) -m venv build/fresh
	build/fresh/bin/python -m pip install --quiet --progress-bar off -c constraints.txt --find-links dist --only-binary axial-transformers axial-transformers
	cd build/fresh && bin/axial demo --steps 40 && test -s demo/index.html
	cd build/fresh && bin/axial sample fashion_mnist --count 4 && test -s samples.png
	cd build/fresh && bin/python -c 'import axial_transformers as a; assert "site-packages" in a.__file__, a.__file__'
	cd build/fresh && bin/python -c 'import importlib.metadata as m; print(m.metadata("axial-transformers"))' > ../description
	! grep -nP '\]\((?!https?:|#)' build/description

docs: $(DOCS_READY)  ## the docs site, build/site/index.html; warnings and dead links fail
	$(DOCS)/bin/mkdocs build

docs-serve: $(DOCS_READY)  ## the docs site on 127.0.0.1:8000, built again when a page changes
	$(DOCS)/bin/mkdocs serve

docs-check: docs  ## every page of the site in a headless chromium
	$(DOCS)/bin/python -m pip install --quiet --progress-bar off -c constraints.txt -e '.[browser]'
	$(DOCS)/bin/python tools/check.py

studio-test: $(STUDIO_READY)  ## Studio in a headless chromium
	@command -v chromium || command -v chromium-browser || command -v google-chrome || { echo 'no browser is here: apt-get install chromium'; exit 1; }
	$(STUDIO)/bin/python -m pytest -m slow -rs tests/studio/test_studio_in_browser.py

# Gradio needs an older Pillow than all the rest is tested with
$(STUDIO_READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(STUDIO)
	grep -v '^pillow==' constraints.txt > $(STUDIO)/constraints.txt
	$(STUDIO)/bin/python -m pip install --quiet --progress-bar off -c $(STUDIO)/constraints.txt -e '.[studio,browser]' pytest hypothesis
	touch $@

# What tests alone need has no bounds: it is of constraints.txt
$(LOWEST_READY): pyproject.toml constraints.txt hatch_build.py $(wildcard src/axial_transformers/engine/*.[ch])
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet --progress-bar off uv
	grep -E '^(beartype|hatchling|hypothesis|import-linter|matplotlib|pytest|tensorboard)==' constraints.txt > $(LOWEST)/tools.txt
	$(LOWEST)/bin/uv pip install --quiet --system-certs --python $(LOWEST)/bin/python --resolution lowest-direct -r $(LOWEST)/tools.txt -e '.[datasets,hub,scientific,tables,tensorflow,video]'
	touch $@

$(DOCS_READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --progress-bar off -c constraints.txt -e '.[docs]'
	touch $@

$(READY): pyproject.toml constraints.txt hatch_build.py $(wildcard src/axial_transformers/engine/*.[ch])
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --progress-bar off -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) $(DOCS) $(STUDIO) $(LOWEST) build .pytest_cache .mypy_cache .ruff_cache
