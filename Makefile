# Needs make, a POSIX shell and Python 3.10 to 3.13; everything else goes into .venv, with every version pinned.
#   PYTHON=/path/to/python    the Python to make .venv with (else the first below that will do)
#   REQUIREMENTS=cpu          a set of requirements/ whatever the hardware (else chosen by the hardware)
#   PYTEST_ARGS="-m cpu"      passed on to pytest
#   CONTENTION=               refuse measurements that other processes disturbed, as a gate on a quiet machine must
PYTHON ?= $(shell for p in python3.12 python3.11 python3.10 python3.13 python3; do \
	"$$p" requirements/bootstrap.py --probe >/dev/null 2>&1 && { echo "$$p"; exit; }; done; command -v python3)
REQUIREMENTS ?= auto
PYTEST_ARGS ?=
CONTENTION ?= --allow-contention
VENV_PYTHON := .venv/bin/python
NO_PYTHON = no Python 3.10 to 3.13 was found: install one (Debian, Ubuntu: apt-get install python3 python3-venv), \
	or name it: make PYTHON=/path/to/python3.12 perf

BOOTSTRAP = @python="$(PYTHON)"; if [ -z "$$python" ]; then echo "make: error: $(NO_PYTHON)" >&2; exit 2; fi; \
	"$$python" requirements/bootstrap.py --requirements $(REQUIREMENTS)

.PHONY: help perf test check bench env env-dev clean
.NOTPARALLEL:

help:
	@echo "make perf    train, measure and judge; PYTEST_ARGS=\"-m cpu\" and the like are passed on"
	@echo "make test    all tests, real training among them"
	@echo "make check   lint, types and unit tests, in under 3 minutes"
	@echo "make bench   how fast the suite itself is"
	@echo "make clean   delete .venv and caches; results in runs/ and baselines/ stay"

perf: env
	$(VENV_PYTHON) -m pytest perf_tests $(CONTENTION) $(PYTEST_ARGS)

test: env-dev
	$(VENV_PYTHON) -m pytest tests $(PYTEST_ARGS)

check: env-dev
	$(VENV_PYTHON) -m ruff check .
	$(VENV_PYTHON) -m ruff format --check .
	$(VENV_PYTHON) -m mypy
	$(VENV_PYTHON) -m pytest tests -m "not training and not slow" $(PYTEST_ARGS)

bench: env-dev
	$(VENV_PYTHON) -m benchmarks.suite_overhead

env:
	$(BOOTSTRAP)

env-dev:
	$(BOOTSTRAP) --with dev

clean:
	rm -rf .venv .cache .benchmarks .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
