# The commands people type; CMake does the building, tools/ the set-up.
CUDA ?= 1
NCCL ?= 1
BUILD ?= build
CMAKE := .deps/bin/cmake
RUN_ARGS ?=

.PHONY: docs all train test check build bench format lint setup test-gpu clean

all: build

setup:
	@tools/setup.sh

$(BUILD)/build.ninja: CMakeLists.txt | setup
	@$(CMAKE) -S . -B $(BUILD) -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/.deps/bin/ninja \
	  -DLOCKSTEP_CUDA=$(CUDA) -DLOCKSTEP_NCCL=$(NCCL) --log-level=WARNING

build: setup
	@$(CMAKE) -S . -B $(BUILD) -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/.deps/bin/ninja \
	  -DLOCKSTEP_CUDA=$(CUDA) -DLOCKSTEP_NCCL=$(NCCL) --log-level=WARNING >/dev/null
	@$(CMAKE) --build $(BUILD) --target programs

train: build
	@$(BUILD)/bin/lockstep train -f models/nano.yaml $(RUN_ARGS)

# docs/configuration.md and docs/errors.md are made from the table of options and the table of mistakes.
docs: build
	@python3 tools/make_docs.py --lockstep $(BUILD)/bin/lockstep

clean:
	rm -rf $(BUILD)
