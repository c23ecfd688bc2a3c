# Every target installs what it needs: a clone and python3 are enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Each process compiles what it imports anew if it may not keep the result; a test run has many processes.
export PYTHONDONTWRITEBYTECODE :=

# torch is installed first and alone: with an open version range, pip would install several GB of GPU packages. PyTorch's
# CPU index is tried once, then the index that pip is configured for.
TORCH := torch==2.13.0
TORCH_INDEX := https://download.pytorch.org/whl/cpu
EXTRAS := dev,formats

.PHONY: install demo test test-slow lint format docs corpora bench bench-train bench-quality bench-reward bench-decode bench-inside bench-serve bench-classify bench-digits bench-chat bench-lm bench-masked bench-retrieve bench-tag bench-caption bench-frames bench-lectures bench-embed demo-run clean

install: $(READY)

$(READY): pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -c "import torch" 2>/dev/null \
	  || $(BIN)/pip install --quiet --disable-pip-version-check --no-deps --retries 0 --timeout 20 --extra-index-url $(TORCH_INDEX) $(TORCH) 2>/dev/null \
	  || $(BIN)/pip install --quiet --disable-pip-version-check --no-deps $(TORCH)
	@$(BIN)/pip install --quiet --disable-pip-version-check uv 2>/dev/null || true
	@if test -x $(BIN)/uv; then $(BIN)/uv pip install --quiet --python $(BIN)/python -e ".[$(EXTRAS)]"; \
	  else $(BIN)/pip install --quiet --disable-pip-version-check -e ".[$(EXTRAS)]"; fi
	@touch $(READY)

demo: install
	@$(BIN)/regard demo

# All tests together take about five minutes. A test that takes five minutes is ended and named, with the stacks of its threads.
test: install
	@$(BIN)/pytest -n 2 --dist loadfile -m "not slow" -o faulthandler_timeout=300 -o faulthandler_exit_on_timeout=true

# These include the examples with Ray.
test-slow: install
	@if test -x $(BIN)/uv; then $(BIN)/uv pip install --quiet --python $(BIN)/python -e ".[$(EXTRAS),ray]"; \
	  else $(BIN)/pip install --quiet --disable-pip-version-check -e ".[$(EXTRAS),ray]"; fi
	@$(BIN)/pytest -m slow

lint: install
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy

format: install
	@$(BIN)/ruff format
	@$(BIN)/ruff check --fix

bench: install
	@$(BIN)/python benchmarks/data.py
	@$(BIN)/python benchmarks/layers.py
	@$(BIN)/python benchmarks/step.py

# Installs the other programs in their own environment; about ten minutes.
bench-train: install
	@$(BIN)/python benchmarks/train.py

# Trains six models one after the other; about two and a half hours.
bench-quality: install
	@$(BIN)/python benchmarks/quality.py

# Fine-tunes a run on Multi30k with a reward, three seeds: make bench-reward RUN=runs/en-de
bench-reward: install
	@$(BIN)/python benchmarks/reward.py $(RUN)

# Trains a model the first time, then decodes with every engine; about half an hour.
bench-decode: install
	@$(BIN)/python benchmarks/decode.py

# Uses the demo's run; a few minutes.
bench-inside: demo-run
	@$(BIN)/python benchmarks/inside.py

# Puts load on a server with the demo's run; a few minutes.
bench-serve: demo-run
	@$(BIN)/python benchmarks/serve.py

# Trains three chat models, ten minutes each; about forty minutes.
bench-chat: install
	@$(BIN)/python benchmarks/chat.py

# Captions of emoji, compared with the nearest training picture; about 25 minutes. --all adds five languages: two hours.
bench-caption: install
	@$(BIN)/python benchmarks/caption.py

# Two language models compared with 5-gram models; about 25 minutes.
bench-lm: install
	@$(BIN)/python benchmarks/language_model.py

# On IMDB with 1,000 labels: classifiers from scratch, and from a masked language model; about ten minutes.
bench-masked: install
	@$(BIN)/python benchmarks/masked.py

# On IMDB, compared with a linear model; about an hour.
bench-classify: install
	@$(BIN)/python benchmarks/classify.py

# Handwritten digits, compared with a linear model and an SVM; a few minutes.
bench-digits: install
	@$(BIN)/python benchmarks/digits.py

# A knowledge base of questions of bank customers; a few minutes.
bench-retrieve: install
	@$(BIN)/python benchmarks/retrieve.py

# Chunks and parts of speech; about half an hour.
bench-tag: install
	@$(BIN)/python benchmarks/tag.py

# Installs aeon and scikit-learn in an environment of their own; labels of frames; about ten minutes.
bench-frames: install
	@$(BIN)/python benchmarks/frames.py

# Installs Keras in an environment of its own; trains four models, ten minutes each; about an hour.
bench-lectures: install
	@$(BIN)/python benchmarks/lectures.py

# Installs gensim in an environment of its own; trains word vectors with both, and translators that start from them.
bench-embed: install
	@$(BIN)/python benchmarks/embed.py

demo-run: install
	@test -d runs/demo || $(BIN)/regard demo

corpora: install
	@$(BIN)/python -m tools.phrasebook
	@$(BIN)/python -m tools.smalltalk
	@$(BIN)/python -m tools.shapes

docs: install
	@$(BIN)/regard settings --markdown > docs/settings.md

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis benchmarks/out build dist
