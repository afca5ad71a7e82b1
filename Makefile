# The commands people type; CMake does the building, tools/ the set-up.
CUDA ?= 1
NCCL ?= 1
BUILD ?= build
export BUILD
CMAKE := .deps/bin/cmake
TEST_PYTHON := .deps-test/bin/python
TRAIN_ARGS ?=

.PHONY: all setup setup-test configure build tests train install wheel dist test check bench docs format lint test-gpu test-layouts fuzz fresh clean

all: build

setup:
	@tools/setup.sh

setup-test:
	@tools/setup-test.sh

configure: setup
	@$(CMAKE) -S . -B "$(BUILD)" -G Ninja -DCMAKE_MAKE_PROGRAM="$(CURDIR)/.deps/bin/ninja" \
	  -DLOCKSTEP_CUDA=$(CUDA) -DLOCKSTEP_NCCL=$(NCCL) --log-level=WARNING >/dev/null

build: configure
	@$(CMAKE) --build "$(BUILD)" --target programs

tests: configure
	@$(CMAKE) --build "$(BUILD)" --target programs tests

# All GPUs, or two CPU ranks where there is none. TRAIN_ARGS="--max-steps 20" adds to the command.
train: build
	@"$(BUILD)/bin/lockstep" train -f models/nano.yaml $(TRAIN_ARGS)

# Programs, plug-in, run files, headers and the library for C++: `make install PREFIX=/opt/lockstep`.
PREFIX ?= /usr/local
install: build
	@umask 022 && $(CMAKE) --install "$(BUILD)" --prefix "$(PREFIX)" --strip >/dev/null
	@echo "installed in $(PREFIX): bin/lockstep, and LibTorch is looked for as \`lockstep --version --verbose\` says"

# dist/lockstep-VERSION-py3-none-PLATFORM.whl, which pip installs beside torch; dist/lockstep-VERSION-linux-x86_64.tar.gz, for any LibTorch.
wheel: build
	@python3 tools/package.py wheel --build "$(BUILD)"

dist: build
	@python3 tools/package.py dist --build "$(BUILD)"

# Everything that needs no GPU: checks, every test program, every pytest file. CUDA and NCCL sources are compiled too.
PYTESTS := $(filter-out tests/gpu,$(patsubst %/,%,$(sort $(dir $(wildcard tests/*/test_*.py)))))
test: setup-test tests
	@$(TEST_PYTHON) tools/run_tests.py --build "$(BUILD)" --checks --pytest $(PYTESTS)

# What to run before every commit: lint, format, include directions, sizes, generated docs, test programs.
check: setup-test tests
	@tools/lint.sh --changed
	@$(TEST_PYTHON) tools/run_tests.py --build "$(BUILD)" --checks --pytest tests/errors tests/docs tests/tools

# On a machine with a GPU: kernels against references, NCCL ranks against one rank.
test-gpu: tests
	@python3 tests/gpu/run.py --build "$(BUILD)"

# A million inputs for each reader, from a seed of its own: FUZZ_SEED=7 make fuzz. `make test` tries 10,000.
FUZZ_RUNS ?= 1000000
FUZZ_SEED ?= $(shell date +%s)
fuzz: configure
	@$(CMAKE) --build "$(BUILD)" --target fuzz_tests
	@LOCKSTEP_FUZZ_RUNS=$(FUZZ_RUNS) LOCKSTEP_FUZZ_SEED=$(FUZZ_SEED) "$(BUILD)/bin/fuzz_tests"

# Thousands of layouts beside one rank; `make test` takes those in which all pairs of settings meet. LAYOUT_ROWS=N: so many rows more, drawn
# from LAYOUT_SEED.
LAYOUT_ROWS ?= 1000
LAYOUT_SEED ?= 1
test-layouts: configure
	@$(CMAKE) --build "$(BUILD)" --target layout_tests
	@LOCKSTEP_LAYOUT_ROWS=$(LAYOUT_ROWS) LOCKSTEP_LAYOUT_SEED=$(LAYOUT_SEED) "$(BUILD)/bin/layout_tests"

bench: setup-test tests
	@$(TEST_PYTHON) bench/run.py

# docs/configuration.md, docs/errors.md and docs/layouts.md are made from the tables of options, of mistakes and of layouts.
docs: build
	@python3 tools/make_docs.py --lockstep "$(BUILD)/bin/lockstep"

format: setup-test
	@tools/format.sh

lint: setup-test configure
	@tools/lint.sh

# A bare Debian 12 and 13 by debootstrap (as root): the README's two commands, 20 steps of training, and the wheel in an empty environment.
fresh:
	@tools/fresh/debian.sh

clean:
	rm -rf "$(BUILD)"
