# The commands of a developer. Everything is installed into $(VENV), in versions locked by requirements/ci.txt.
PYTHON  ?= python3
VENV    ?= .venv
WORKERS ?= 2

BIN   := $(VENV)/bin
STAMP := $(VENV)/.deeploy-installed
C     := $(wildcard kernels/*/*.[ch] kernels/hal/host/*.[ch] targets/*/runtime/*.[ch] targets/*/runtime/*/*.[ch]) $(wildcard kernels/semihosting/*/*.[ch] examples/targets/*/*/runtime/*/*.[ch])

MODEL  ?= examples/digits/digits.onnx
TARGET ?= siracusa
COUNT  ?= 100
SEED   ?= 1

.PHONY: figures slowest help demo story test test-full test-sample fuzz mutants prove defects replay replay-full lint format docs bench summaries calibrate clean

help: ## this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r name text; do printf '%-12s %s\n' "$$name" "$$text"; done

demo: $(STAMP) ## the main job: a quantised network becomes C, which runs
	@$(BIN)/python examples/digits/demo.py

story: $(STAMP) ## a network from its floats to firmware, step by step
	@$(BIN)/python examples/story/demo.py

# Many tests start the command: what Python compiled of it is kept.
test test-full test-sample: export PYTHONDONTWRITEBYTECODE =

# A worker runs files that follow each other, so that what a file needs is made once.
test: $(STAMP) ## all fast tests
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow and not gvsoc"

slowest: $(STAMP) ## the hundred slowest of the fast tests
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow and not gvsoc" --durations=100

test-full: $(STAMP) ## all tests
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --hypothesis-profile=default --draw all

# Some of what `make test` leaves out: at most MOST tests, drawn by DRAW, that begin within LIMIT minutes (tests/samples.py).
MOST  ?= 120
DRAW  ?= 0
LIMIT ?= 5
test-sample: $(STAMP) ## some of the slow tests, drawn by DRAW
	@$(BIN)/python -m pytest -n $(WORKERS) -m "slow and not gvsoc" --most $(MOST) --draw $(DRAW) --minutes $(LIMIT)

# Random graphs, contradictory nodes and damaged files (tests/random/README.md): SEEDS=FIRST:END, MINUTES at most for each. What was done before is not done again.
SEEDS   ?= 0:1000
MINUTES ?= 60
fuzz: $(STAMP) ## random graphs and damaged files
	@$(BIN)/python -m tests.random.fuzz graphs --seeds $(SEEDS) --minutes $(MINUTES)
	@$(BIN)/python -m tests.random.fuzz memories --seeds $(SEEDS) --minutes $(MINUTES)
	@$(BIN)/python -m tests.random.fuzz nodes --seeds $(SEEDS) --minutes $(MINUTES)
	@$(BIN)/python -m tests.random.fuzz files --seeds $(SEEDS) --minutes $(MINUTES)

# Mutants of the C of MODEL for TARGET, and why those that nothing notices are equivalent (tests/README.md). CERTIFICATE=1: by the certificate first.
mutants: $(STAMP) ## mutants of emitted C that nothing notices
	@$(BIN)/python -m tests.hal.mutants $(MODEL) --target $(TARGET) --count $(COUNT) --seed $(SEED) --jobs $(WORKERS) $(if $(CERTIFICATE),--by both)

# Whether Frama-C's Eva finds undefined behaviour in the C of NETWORKS (docs/trust.md); without them, of a small one that a test makes.
NETWORKS ?=
prove: $(STAMP) ## that emitted C has no undefined behaviour, by Frama-C
	@$(if $(NETWORKS),$(BIN)/python -m tests.certify.prove $(NETWORKS),$(BIN)/python -m pytest -q -rs tests/certify/test_prove.py)

# Defects that are seeded into the sources, and whether the tests of `make test` find them (tests/README.md).
defects: $(STAMP) ## defects seeded into the sources
	@$(BIN)/python -m tests.defects

# What BASE and the working tree compile a corpus to, compared byte for byte (CONTRIBUTING.md). REPLAY='--show CASE' shows a difference in full.
BASE   ?= HEAD
REPLAY ?=
replay: $(STAMP) ## what BASE and the working tree compile a corpus to, compared
	@$(BIN)/python -m tests.replay $(BASE) $(REPLAY)

replay-full: $(STAMP) ## the same of the whole corpus
	@$(BIN)/python -m tests.replay $(BASE) --cases 0 $(REPLAY)

# Writes tests/figures.json anew, which a test compares; what rose needs a reason: make figures WHY="what is gained for it".
figures: $(STAMP) ## cycles and bytes of some networks, for the table that commits are compared with
	@$(BIN)/python -m tests.figures $(if $(WHY),--why "$(WHY)")

lint: $(STAMP) ## ruff, mypy, clang-format
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/clang-format --dry-run --Werror $(C)

format: $(STAMP) ## mends what lint can mend
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .
	@$(BIN)/clang-format -i $(C)

# The pages as a site in build/site, links checked; what it needs is installed once, then no network is used.
docs: $(STAMP) $(VENV)/.docs-installed ## the pages as a site, links checked
	@rm -rf build/pages build/site
	@PYTHON=$(BIN)/python .ci/pages build/pages
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "written to build/site/index.html"

$(VENV)/.docs-installed: requirements/docs.txt $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements/docs.txt
	@touch $@

# A measurement by its name and options: make bench NAME='gvsoc/predict --cores 1'. It prints machine and versions, and writes build/bench/NAME.json.
NAME ?=
bench: $(STAMP) ## a figure of the documentation, measured by its NAME; without one: all names
	@$(BIN)/python -m benchmarks $(NAME)

# Writes the layer lists of the segmentation study anew; needs the extra `keras`, and a quarter of an hour.
summaries: $(STAMP) ## layer lists of the segmentation study
	@$(BIN)/python -m benchmarks summaries

# Measures Siracusa's machine and kernels anew on GVSoC, which takes minutes, and writes targets/siracusa/timing.toml.
calibrate: $(STAMP) ## Siracusa's timing, measured anew on GVSoC
	@$(BIN)/python -m benchmarks gvsoc/calibrate

# The environment stays: `rm -r .venv` makes the next command install it anew.
clean: ## removes what was built
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -r {} +

$(STAMP): requirements/ci.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed: say which with PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
	  || { echo "Python's venv module is incomplete: sudo apt install python3-venv" >&2; exit 1; }
	@echo "installing into $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements/ci.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@
