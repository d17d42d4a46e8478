# Needs make, a POSIX shell and Python 3.11 to 3.13; everything else goes into .venv, with every version pinned.
#   PYTHON=/path/to/python    the Python to make .venv with (else the first below that will do)
#   REQUIREMENTS=cpu          a set of requirements/ whatever the hardware (else chosen by the hardware)
#   PYTEST_ARGS="-m cpu"      passed on to pytest
#   WORKERS=2                 how many processes run tests side by side (else one for each core, at most 4)
#   CONTENTION=               refuse measurements that other processes disturbed, as a gate on a quiet machine must
PYTHON ?= $(shell for p in python3.12 python3.11 python3.13 python3; do \
	"$$p" requirements/bootstrap.py --probe >/dev/null 2>&1 && { echo "$$p"; exit; }; done; command -v python3)
REQUIREMENTS ?= auto
PYTEST_ARGS ?=
WORKERS ?= $(shell wanted=$$(nproc); echo $$((wanted < 4 ? wanted : 4)))
FUZZ_ARGS ?=
GPU_PROOF_ARGS ?=
CONTENTION ?= --allow-contention
VENV_PYTHON := .venv/bin/python
# All but those that others include.
PINNED = $(filter-out mxnet-common pytorch-cuda tensorflow-common,$(basename $(notdir $(wildcard requirements/*.in))))
# Where the machine has no libgomp, an environment has its own (requirements/libgomp.txt). What trains is given it; so
# are tests, which load Paddle themselves.
TESTS = if [ -e .venv/lib/perfgate-cuda/libgomp.so.1 ]; then \
	export LD_LIBRARY_PATH="$(CURDIR)/.venv/lib/perfgate-cuda$${LD_LIBRARY_PATH:+:$$LD_LIBRARY_PATH}"; fi; \
	$(VENV_PYTHON) -m pytest
# A test that hangs is ended, with all stacks and its name: by a thread, and where that gets no turn by faulthandler.
NEVER_HANGS = -o faulthandler_timeout=1200 -o faulthandler_exit_on_timeout=true --timeout-method thread --timeout
# Quick tests run side by side, slow ones twice as many, since most of them wait for a server or for Slurm; untimed
# training runs two at a time, as that takes gigabytes, and a measured one alone: it takes the whole machine. Each
# worker begins with a part of the files (worksteal), so that servers and other programs that a module's tests share are
# started once, and takes tests of others when it has done its own.
# What was skipped is listed with its reason.
SHOWN = -rs $(PYTEST_ARGS)
SIDE_BY_SIDE = --dist worksteal $(NEVER_HANGS) 300 $(SHOWN)
QUICK = $(TESTS) tests -m "not training and not slow" -n $(WORKERS) $(SIDE_BY_SIDE)
SLOW = $(TESTS) $(call MARKED,slow) -m "slow and not training" -n $(shell echo $$((2 * $(WORKERS)))) $(SIDE_BY_SIDE)
# The files that name a mark, and the folders whose conftest.py does: all others would be imported to be left out.
MARKED = $$(grep -rlE --include='test_*.py' --include=conftest.py 'mark\.($(1))' tests | sed 's:/conftest\.py$$::')
TRAINING = $(call MARKED,training|untimed)
# With arguments of the caller's own, one of the four may have no test left.
OR_NONE = $(if $(PYTEST_ARGS),|| [ $$? -eq 5 ])
NO_PYTHON = no Python 3.11 to 3.13 was found: install one (Debian 12, Ubuntu 24.04: apt-get install python3 python3-venv), \
	or name it: make PYTHON=/path/to/python3.12 perf

BOOTSTRAP = @python="$(PYTHON)"; if [ -z "$$python" ]; then echo "make: error: $(NO_PYTHON)" >&2; exit 2; fi; \
	"$$python" requirements/bootstrap.py $(AGAIN)
# Parts that could not be had are tried again where an environment is asked for by name.
AGAIN = $(if $(filter env%,$(MAKECMDGOALS)),--again)

# The tests start hundreds of processes of the suite: what Python compiled and pytest rewrote is kept between them, even
# where the caller's shell has Python keep nothing. What measures is left as its caller has it.
check test: export PYTHONDONTWRITEBYTECODE :=

.PHONY: help perf fuzz test test-paddle26 check lint bench gpu-proof doctor site
.PHONY: env env-dev env-test env-beside env-paddle26 env-pytorch env-tensorflow env-mxnet env-fuzz env-site pins clean
.NOTPARALLEL:

help:
	@echo "make perf    train, measure and judge; PYTEST_ARGS=\"-m cpu\" and the like are passed on"
	@echo "             (GNU make ends with 2 whatever failed, so the last line names pytest's exit code;"
	@echo "             a script that needs the code: make env && .venv/bin/python -m pytest perf_tests, or .venv/bin/perfgate gate)"
	@echo "make test    all tests, real training among them"
	@echo "make test-paddle26  train with Paddle 2.6.2 too, in .venv-paddle26 (a download of 1.3 GB, no GPU needed)"
	@echo "make check   lint, types and the quick tests"
	@echo "make lint    the first two of these; \"make test\" runs the quick tests as well"
	@echo "make bench   measure the suite itself: its speed, its training loop against a bare one, its verdicts, its search for the first bad build, what watching costs, every fault; 40 minutes on idle cores"
	@echo "make gpu-proof  show the suite at work on this machine's GPU, Paddle's probes first (perfgate prove-gpu); on a CPU where there is none"
	@echo "make doctor  what this machine is, and what would spoil a measurement here"
	@echo "make env-pytorch  install PyTorch in .venv-pytorch, for its cases (a download of 0.8 to 4.7 GB: requirements/pytorch-*.txt)"
	@echo "make env-tensorflow  install TensorFlow in .venv-tensorflow, for its cases (a download of 0.7 to 4 GB: requirements/tensorflow-*.txt)"
	@echo "make env-mxnet  install MXNet, which is retired, in .venv-mxnet, for its cases (a download of 0.6 to 1.1 GB; Python 3.11)"
	@echo "make fuzz    each reader of files under Hypothesis, then a minute of atheris, in .venv-fuzz (a download of 36 MB)"
	@echo "make site    the pages as a site, with a sample night and a sample of the published history, in .cache/site"
	@echo "make pins    write the digests of all pinned packages after a change of requirements/*.in"
	@echo "make clean   delete .venv, .venv-paddle26, .venv-pytorch, .venv-tensorflow, .venv-mxnet, .venv-fuzz, .venv-site and caches; results in runs/ and baselines/ stay"

# make ends with 2 whatever failed: the last line says pytest's own code.
perf: env
	@echo "$(VENV_PYTHON) -m pytest perf_tests $(CONTENTION)" '$(subst ','\'',$(PYTEST_ARGS))'
	@$(VENV_PYTHON) -m pytest perf_tests $(CONTENTION) $(PYTEST_ARGS); code=$$?; \
		echo "make perf: pytest's exit code is $$code"; exit $$code

test: env-test
	$(QUICK) $(OR_NONE)
	$(SLOW) $(OR_NONE)
	$(TESTS) $(TRAINING) -m untimed -n 2 --dist worksteal $(NEVER_HANGS) 900 $(SHOWN) $(OR_NONE)
	$(TESTS) $(TRAINING) -m "training and not untimed" $(NEVER_HANGS) 900 $(SHOWN) $(OR_NONE)

# The environment first: its Pythons are fewer, and it says so before anything is downloaded.
test-paddle26: env-paddle26 env-dev
	$(TESTS) tests/helpers/trainers/paddle/test_lines.py \
		--paddle-interpreter .venv-paddle26/bin/python $(PYTEST_ARGS)

lint: env-dev
	$(VENV_PYTHON) -m ruff check .
	$(VENV_PYTHON) -m ruff format --check .
	$(VENV_PYTHON) -m mypy

check: lint
	$(QUICK)

bench: env-test
	$(VENV_PYTHON) -m benchmarks.suite_overhead
	$(VENV_PYTHON) -m benchmarks.history_scale
	$(VENV_PYTHON) -m benchmarks.page
	$(VENV_PYTHON) -m benchmarks.verdicts --quick
	$(VENV_PYTHON) -m benchmarks.bisect --quick
	$(VENV_PYTHON) -m benchmarks.trainer_speed
	$(VENV_PYTHON) -m benchmarks.trainer_speed --framework pytorch
	$(VENV_PYTHON) -m benchmarks.trainer_speed --framework tensorflow
	@if $(MAKE) --no-print-directory env-mxnet; then $(VENV_PYTHON) -m benchmarks.trainer_speed --framework mxnet; \
	else echo "bench: MXNet's trainer is left out, for the reason above"; fi
	$(VENV_PYTHON) -m benchmarks.watching
	$(VENV_PYTHON) -m tests.faults

# Not env: for the newest GPUs there is no Paddle. Then .venv has the one for CPUs, Paddle's steps are not run and say so.
gpu-proof: env-beside env-pytorch
	.venv/bin/perfgate prove-gpu $(GPU_PROOF_ARGS)

site: env-dev env-site
	$(VENV_PYTHON) -m docs.pictures.make --sample docs/sample
	NO_MKDOCS_2_WARNING=1 .venv-site/bin/python -m mkdocs build --quiet

fuzz: env-dev env-fuzz
	$(VENV_PYTHON) -m pytest tests/fuzz --hypothesis-profile fuzz-long -n auto $(NEVER_HANGS) 1800 $(PYTEST_ARGS)
	$(VENV_PYTHON) -m tests.fuzz --seconds 60 $(FUZZ_ARGS)

doctor: env
	.venv/bin/perfgate doctor

env:
	$(BOOTSTRAP) --requirements $(REQUIREMENTS)

env-dev:
	$(BOOTSTRAP) --requirements $(REQUIREMENTS) --with dev

env-test: env-dev env-pytorch env-tensorflow

env-beside:
	$(BOOTSTRAP) --requirements $(if $(filter auto,$(REQUIREMENTS)),beside,$(REQUIREMENTS))

env-paddle26:
	$(BOOTSTRAP) --requirements gpu-cuda11 --venv .venv-paddle26

env-pytorch:
	$(BOOTSTRAP) --requirements pytorch

env-tensorflow:
	$(BOOTSTRAP) --requirements tensorflow

# Its wheels are for Python 3.11 alone.
env-mxnet:
	@python="$$(python3.11 --version >/dev/null 2>&1 && echo python3.11)"; \
		"$${python:-$(PYTHON)}" requirements/bootstrap.py $(AGAIN) --requirements mxnet

env-fuzz:
	$(BOOTSTRAP) --requirements fuzz

# Writes requirements/*.txt from the *.in beside them: the SHA-256 of every file of each pin, from the package index that
# uv is configured with. uv takes "===" for "==", with which another build of torch would do.
env-site:
	$(BOOTSTRAP) --requirements site

pins: env
	for name in $(PINNED); do $(VENV_PYTHON:python=uv) pip compile requirements/$$name.in --quiet --no-deps --universal \
		--python-version 3.11 --generate-hashes --no-header --no-annotate --output-file requirements/$$name.txt || exit; done
	sed -i 's/^torch==\([^=]\)/torch===\1/' requirements/pytorch-gpu*.txt

clean:
	rm -rf .venv .venv-paddle26 .venv-pytorch .venv-tensorflow .venv-mxnet .venv-fuzz .venv-site .cache .benchmarks .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
