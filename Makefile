# `make` alone lists what there is. Everything is installed into .venv, with the versions of constraints.txt.

PYTHON  ?= python3
VENV    := .venv
BIN     := $(VENV)/bin
# Learning on small networks is quickest on one thread per process, and a test's last bits depend on the thread count.
THREADS := OMP_NUM_THREADS=1 TF_CPP_MIN_LOG_LEVEL=3
TESTS   ?= tests
# One more than two cores: tests of Ray, of workers and of time limits wait for other processes.
JOBS    ?= 3
OLDEST  ?= python3.11
# Packages are not compiled at the installation: most of their modules are never imported.
# Instead, the first process that imports a module keeps its compiled form, even where the shell's variable forbids it.
export PYTHONDONTWRITEBYTECODE :=
PIP     := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
EXTRAS  := dev,docs,tensorflow
# Packages of the extras whose files take the longest to unpack: pip installs one at a time, so two of it run.
LARGE   := tensorflow torch ray pyarrow opencv-python-headless llvmlite scipy imageio-ffmpeg pandas statsmodels

CORE    := $(VENV)/.installed-core
ALL     := $(VENV)/.installed-all
LEARN   := $(VENV)/.installed-learn
MUJOCO  := $(VENV)/.installed-mujoco
LOGGERS := $(VENV)/.installed-loggers
BROWSER := $(VENV)/.installed-browser
# The packages of `make third-party` lie in an environment that sees those of .venv.
THIRD   := .venv-third-party
PURELIB := import sysconfig; print(sysconfig.get_path("purelib"))

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install demo test compiled-tests check-and-docs check format bytecode pytest docs check-long bench peers learn learn-mujoco learn-table claims crash-test abort-test cluster-test nodes-test config-test fault-test loggers-test completion-test dist dist-test test-oldest test-newest gpu-test play-test tutorials gallery docs-test corruption-test forgery-test third-party long-run clean

help: ## list the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 18

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "marltrain needs Python 3.11 or later; name one: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(CORE): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[mpe]'  # the originals of native games, which draw
	@touch $@

$(ALL): pyproject.toml constraints.txt Makefile | $(BIN)/python
	$(PIP) 'pip>=26'  # those of older Pythons read the pages of an index in twice the time
	printf '%s\n' $(LARGE) | xargs -n 1 -P 2 $(PIP) --no-deps
	$(PIP) -e '.[$(EXTRAS)]'
	@touch $(CORE) $@

$(LEARN): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[learn,mpe]'
	@touch $(CORE) $@

$(MUJOCO): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[learn,mpe,mujoco]'
	@touch $(CORE) $(LEARN) $@

$(LOGGERS): $(ALL)
	$(PIP) -e '.[$(EXTRAS),wandb,mlflow]'
	@touch $@

$(BROWSER): $(ALL)
	$(PIP) -e '.[$(EXTRAS),docs-test]'
	@touch $@

install: $(ALL) ## install marltrain and the packages that its tests need

demo: $(CORE) ## train three agents on marltrain/simple_spread_v3 and plot the results
	$(THREADS) $(BIN)/python examples/spread.py

# The tests leave a core free while they wait for other processes: the checks and the documentation use it.
test: $(ALL) ## all checks: format, lint, types, documentation, tests
	$(MAKE) --jobs 2 compiled-tests check-and-docs

compiled-tests: bytecode
	$(MAKE) pytest

check-and-docs: check
	$(MAKE) docs

check: $(ALL) ## format, lint, types, and the files of the public repository
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/[!c]*.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.citation-file-format CITATION.cff
	$(BIN)/zizmor --quiet --offline .github

format: $(ALL) ## format the code and apply the automatic fixes of the linter
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

# Both workers of the tests would compile what they import at the same time. Errors are those of the tests, and told there.
bytecode: $(ALL)
	-$(THREADS) $(BIN)/python -m pytest --collect-only -qq $(TESTS) > /dev/null

pytest: $(ALL) ## run the tests; make pytest TESTS=tests/envs JOBS=1
	$(THREADS) $(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(TESTS)

docs: $(ALL) ## build the documentation in docs/_build/html
	$(THREADS) $(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html

docs-test: $(BROWSER) docs ## check the built pages in headless Chromium: links, widths from 390 to 1560 pixels, tables, code, search
	$(BIN)/python -m tests.house.browser

tutorials: $(ALL) ## run the tutorials at full length, print their results and draw their pictures (minutes)
	$(THREADS) $(BIN)/python -m tests.house.pages docs/tutorials/*.md

gallery: $(ALL) ## train the games of the gallery and film them (minutes)
	$(THREADS) $(BIN)/python examples/gallery.py

check-long: $(ALL) ## the long checks (hours): native games, parity, wrong settings, damaged files, crashes, faults, long runs
	MARLTRAIN_TESTS=long FORGING_ROUNDS=100 $(THREADS) $(BIN)/python -m pytest -n $(JOBS) --dist worksteal --timeout 3600 tests
	$(MAKE) config-test corruption-test forgery-test crash-test abort-test fault-test long-run

bench: $(ALL) ## measure speed, compared with other variants and other libraries
	$(THREADS) $(BIN)/python benchmarks/python_envs.py
	$(THREADS) $(BIN)/python benchmarks/stacking.py
	$(THREADS) $(BIN)/python benchmarks/backends.py
	$(THREADS) $(BIN)/python benchmarks/continuous.py
	$(THREADS) $(BIN)/python benchmarks/native.py
	$(THREADS) $(BIN)/python benchmarks/native.py --compile
	$(THREADS) $(BIN)/python benchmarks/speed_tables.py --write

peers: ## install the other libraries for make bench, each in a separate environment
	$(PYTHON) benchmarks/peers/install.py

learn: $(LEARN) ## train what is missing of the learning table (days); continues after an interrupt
	$(THREADS) $(BIN)/python -m benchmarks.learn

learn-mujoco: $(MUJOCO) ## the same for the tasks of MuJoCo
	$(THREADS) $(BIN)/python -m benchmarks.learn --group learn-mujoco

learn-table: $(LEARN) ## write the learning table and its pictures from the committed results
	$(THREADS) $(BIN)/python -m benchmarks.learn table

claims: $(CORE) ## measure what the results page claims about learning, beside the learning table
	$(THREADS) $(BIN)/python benchmarks/claims.py

crash-test: $(ALL) ## kill -9 a hundred runs at random moments, resume them, compare the results
	$(THREADS) $(BIN)/python -m tests.whole.crashing 100

config-test: $(ALL) ## try 5,000 wrong configurations: each is refused with an error that names it, or works
	$(THREADS) $(BIN)/python -m tests.whole.attempts 5000

corruption-test: $(ALL) ## damage every file of checkpoints and saved agents in hundreds of places
	$(THREADS) $(BIN)/python -m tests.whole.corrupting 200

forgery-test: $(ALL) ## alter and resume 5,000 checkpoints: each is refused, or its run continues
	$(THREADS) $(BIN)/python -m tests.whole.forging 5000

abort-test: $(ALL) ## abort 500 trainings by signals under load: runs that follow in the same process end as before
	$(THREADS) $(BIN)/python -m tests.whole.aborted 500

third-party: $(ALL) ## train environments of other packages (MAgent2, ...), and play native games beside JaxMARL, installed into an environment beside .venv
	$(BIN)/python -m venv $(THIRD)
	$(BIN)/python -c '$(PURELIB)' > "$$($(THIRD)/bin/python -c '$(PURELIB)')/beside.pth"
	$(THIRD)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r tests/whole/third_party.txt
	MARLTRAIN_TESTS=long $(THREADS) MUJOCO_GL=egl $(THIRD)/bin/python -m pytest -n $(JOBS) --timeout 3600 tests/whole/test_third_party.py tests/envs/test_jaxmarl.py

long-run: $(ALL) ## run 50 million env steps: memory, files and processes must not grow
	$(THREADS) $(BIN)/python -m tests.whole.enduring 50_000_000

fault-test: $(ALL) ## train on cart-poles whose environments crash and hang
	$(THREADS) $(BIN)/python -m tests.whole.crashing_cartpole

loggers-test: $(LOGGERS) ## log runs with wandb (offline) and mlflow (SQLite), and read them back
	$(THREADS) $(BIN)/python -m pytest -n 0 tests/tools/loggers/services.py

cluster-test: $(ALL) ## the long tests of Ray actors: all numbers of actors, lost and hanging actors, resumed runs
	MARLTRAIN_TESTS=long MARLTRAIN_KILLS=30 $(THREADS) $(BIN)/python -m pytest -n 0 --timeout 600 tests/processes/test_ray_actors.py tests/envs/workers/test_ray_vector.py tests/trainer/cluster tests/whole/test_random_kills.py

nodes-test: $(ALL) ## train over two Ray nodes in network namespaces, cut one off and freeze it (needs root)
	$(THREADS) $(BIN)/python -m tests.trainer.cluster.nodes

gpu-test: $(ALL) ## on a machine with a GPU: every algorithm beside the CPU, saved, loaded and resumed
	MARLTRAIN_GPU=cuda $(THREADS) $(BIN)/python -m pytest -n 0 tests/gpu

dist: $(ALL) ## build the wheel and the sdist in dist/
	$(BIN)/python -m tests.house.packaging.archives

dist-test: $(ALL) ## install the wheel and the sdist into empty environments, train, film, load, run the short tier
	$(BIN)/python -m tests.house.packaging.trying

test-oldest: $(ALL) ## run the short tier with the lower bounds of pyproject.toml (downloads gigabytes of CUDA)
	$(BIN)/python -m tests.house.packaging.bounds oldest --python $(OLDEST)

test-newest: $(ALL) ## run the short tier with the newest versions; make test-newest PYTHON=python3.13
	$(BIN)/python -m tests.house.packaging.bounds newest --python $(PYTHON)

completion-test: $(ALL) ## complete commands, options and files in zsh, by typed keys
	@command -v zsh > /dev/null || apt-get install -y -q zsh > /dev/null 2>&1 \
	  || { echo "completion-test needs zsh, which cannot be installed here: apt-get install zsh" >&2; exit 1; }
	$(THREADS) $(BIN)/python -m pytest -n 0 tests/cli/completing_in_zsh.py

play-test: $(ALL) ## play tic-tac-toe in a window of an X server without a screen, by pressed keys
	@for tool in Xvfb xdotool; do command -v $$tool > /dev/null || apt-get install -y -q xvfb xdotool > /dev/null 2>&1 \
	  || { echo "play-test needs $$tool, which cannot be installed here: apt-get install xvfb xdotool" >&2; exit 1; }; done
	$(THREADS) $(BIN)/python -m pytest -n 0 tests/trainer/playing/playing_in_a_window.py

clean: ## remove build files, caches, .venv, .venv-peers and .venv-third-party; runs/ is kept
	rm -rf $(VENV) .venv-peers $(THIRD) docs/_build build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
