# Thin wrappers over the CMake presets. `make help` lists them.
#   JOBS=1                                   one compiler at a time (one may need 2.3 GB)
#   CMAKE_ARGS=-DTANREN_LIBTORCH=/path/torch an installed libtorch
#   SECONDS=600                              how long `make fuzz` runs for each reader
JOBS ?= $(shell nproc)
CMAKE_ARGS ?=
SECONDS ?= 60

.DEFAULT_GOAL := help
.PHONY: help setup run report test interop soak bench asan tsan fuzz tidy format format-check mutants api gpu-bundle clean
.DELETE_ON_ERROR:

help: ## This list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

setup: ## Install the system packages that are missing
	@scripts/setup

# Configured once per preset; ninja reconfigures when a CMake file changes. If CI is set, as in
# continuous integration, build/release uses the preset ci, in which warnings are errors.
build/%/build.ninja: CMakePresets.json | setup
	cmake --preset $(if $(CI),$(subst release,ci,$*),$*) $(CMAKE_ARGS)
	@touch $@

run: build/release/build.ninja ## Build, and train examples/digits
	cmake --build build/release --parallel $(JOBS) --target tanren_cli
	@scripts/run-digits

report: build/release/build.ninja ## Build, and show where time and memory of a small BERT's step go
	cmake --build build/release --parallel $(JOBS) --target tanren_cli
	build/release/tanren anatomy examples/anatomy/ci.toml --quiet --out build/report
	@echo build/report/report.html

test: build/release/build.ninja ## Build everything and run all tests but gpu
	cmake --build build/release --parallel $(JOBS)
	cd build/release && ctest --output-on-failure -LE gpu -j2

interop: build/release/build.ninja ## Round trips with the real Python packages (fetched from PyPI)
	cmake --build build/release --parallel $(JOBS) --target tanren_cli token_ids digits_to_pairs
	tests/interop/run build/release

soak: build/release/build.ninja ## Kill ranks, runs and predictions, and fail allocations, many more times than `make test`
	cmake --build build/release --parallel $(JOBS) --target launched_test stop_test sweep_test \
	  predict_test recovery_test parallel_test zero_test device_test
	scripts/soak build/release

bench: build/release/build.ninja ## Build and run the benchmarks
	cmake --build build/release --parallel $(JOBS) --target benchmarks
	scripts/bench build/release

asan: build/asan/build.ninja ## All tests but gpu under Address- and UndefinedBehaviorSanitizer
	cmake --build build/asan --parallel $(JOBS)
	cd build/asan && ctest --output-on-failure -LE gpu -j2

tsan: build/tsan/build.ninja ## The tests of our own threads under ThreadSanitizer
	cmake --build build/tsan --parallel $(JOBS) --target tsan
	scripts/tsan build/tsan

fuzz: ## Readers of files against libFuzzer (clang), SECONDS=60 each
	@scripts/setup --fuzz
	@$(MAKE) --no-print-directory build/fuzz/build.ninja
	cmake --build build/fuzz --parallel $(JOBS) --target fuzz
	scripts/fuzz --seconds $(SECONDS) --jobs $(JOBS)

tidy: build/tidy/build.ninja ## clang-tidy over our files, warnings are errors
	scripts/lint tidy --jobs $(JOBS)

format: ## clang-format our files in place
	scripts/lint format

format-check: ## List the files that clang-format would change
	scripts/lint format-check

mutants: build/release/build.ninja ## Break the code on purpose: a named test must fail each time
	scripts/mutants --jobs $(JOBS)

api: ## API reference in build/api (needs doxygen); any warning is an error
	@scripts/api

gpu-bundle: build/release/build.ninja ## Pack what a GPU machine without registries needs
	cmake --build build/release --parallel $(JOBS)
	scripts/gpu-bundle

clean: ## Remove build/ (not runs/)
	rm -rf build
