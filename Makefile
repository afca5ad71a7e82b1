# The commands people type; CMake does the building, tools/ the set-up.
CUDA ?= 1
NCCL ?= 1
BUILD ?= build
export BUILD
CMAKE := .deps/bin/cmake
TEST_PYTHON := .deps-test/bin/python
TRAIN_ARGS ?=

# LibTorch-free rooms first: they fail fastest.
UNIT_TESTS := plain_tests data_tests checkpoint_tests model_tests train_tests task_tests bench_tests
RANK_TESTS := comm_tests parallel_tests
PYTESTS := tests/errors tests/docs tests/parity tests/e2e tests/faults

.PHONY: all setup setup-test configure build tests train test check bench docs format lint test-gpu clean

all: build

setup:
	@tools/setup.sh

setup-test:
	@tools/setup-test.sh

configure: setup
	@$(CMAKE) -S . -B $(BUILD) -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/.deps/bin/ninja \
	  -DLOCKSTEP_CUDA=$(CUDA) -DLOCKSTEP_NCCL=$(NCCL) --log-level=WARNING >/dev/null

build: configure
	@$(CMAKE) --build $(BUILD) --target programs

tests: configure
	@$(CMAKE) --build $(BUILD) --target programs tests

# All GPUs, or two CPU ranks where there is none. TRAIN_ARGS="--max-steps 20" adds to the command.
train: build
	@$(BUILD)/bin/lockstep train -f models/nano.yaml $(TRAIN_ARGS)

# Everything, on CPU ranks; CUDA and NCCL sources are compiled too.
test: setup-test tests
	@$(TEST_PYTHON) tools/run_tests.py --build $(BUILD) --programs $(UNIT_TESTS) $(RANK_TESTS) --pytest $(PYTESTS)

# What to run before every commit: format, lint, include directions, generated docs, unit tests.
check: setup-test tests
	@tools/format.sh --check
	@python3 tools/check_includes.py
	@tools/lint.sh --changed
	@python3 tools/make_docs.py --check --lockstep $(BUILD)/bin/lockstep
	@$(TEST_PYTHON) tools/run_tests.py --build $(BUILD) --programs $(UNIT_TESTS) --pytest tests/errors tests/docs

# On a machine with a GPU: kernels against references, NCCL ranks against one rank.
test-gpu: tests
	@python3 tests/gpu/run.py --build $(BUILD)

bench: setup-test tests
	@$(TEST_PYTHON) bench/run.py

# docs/configuration.md and docs/errors.md are made from the table of options and the table of mistakes.
docs: build
	@python3 tools/make_docs.py --lockstep $(BUILD)/bin/lockstep

format: setup-test
	@tools/format.sh

lint: setup-test configure
	@tools/lint.sh

clean:
	rm -rf $(BUILD)
