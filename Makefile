PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
MINUTES ?= 10
SEED ?= $(shell date +%s)
HALF = $(shell awk 'BEGIN { print $(MINUTES) / 2 }')

TWO_WORKERS = OMP_NUM_THREADS=1 $(BIN)/pytest -n 2  # more threads would wait for each other

RESOLVE = uv pip compile --universal --generate-hashes --no-annotate --no-header --python-version 3.11
IN_MAIN_LOCK = $(shell sed -nE 's/^([A-Za-z0-9._-]+)==.*/--no-emit-package \1/p' requirements.txt)
# What no test uses: an uploader, counters of operations and of GPUs.
LEFT_OUT = $(IN_MAIN_LOCK) \
	$(addprefix --no-emit-package ,opencv-python ultralytics-platform httpcore \
		httpx ultralytics-thop nvidia-ml-py)
YOLO := build/ultralytics
YOLO_STAMP := $(YOLO)/.installed
WITH_YOLO = PYTHONPATH=$(CURDIR)/$(YOLO) YOLO_OFFLINE=true YOLO_CONFIG_DIR=$(CURDIR)/$(YOLO)

# What no test of the adapters uses: access to remote files, command lines, a copy of Lightning.
UNUSED_BY_ADAPTERS = $(addprefix --no-emit-package ,aiohappyeyeballs aiohttp aiosignal \
	annotated-doc annotated-types frozenlist hf-xet httpx2-jsfetch multidict propcache pydantic \
	pydantic-core pytorch-lightning shellingham typer typing-inspection yarl)
ADAPTERS := build/adapters
ADAPTERS_STAMP := $(ADAPTERS)/.installed
WITH_ADAPTERS = PYTHONPATH=$(CURDIR)/$(ADAPTERS) HF_HUB_OFFLINE=1 HF_HOME=$(CURDIR)/$(ADAPTERS)

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow test-ultralytics test-adapters fuzz flips lint format mutants docs tutorials bench-data bench-ledger bench-audit bench-mender bench-evaluation bench-report bench-refinement bench-memory bench-sync bench-plain tiny-weights lock lock-ultralytics lock-adapters clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

setup: $(STAMP)  ## make .venv from the hash-pinned lock

$(STAMP): requirements.txt pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: $(STAMP)  ## draw a dataset, spoil it, train on it and mend it (runs/demo; five minutes)
	rm -rf runs/demo
	$(BIN)/boxmend demo --out runs/demo

test: $(STAMP)  ## run the tests
	$(TWO_WORKERS) -m "not slow"

test-slow: $(STAMP)  ## run the tests that take longer
	$(TWO_WORKERS) -m slow

$(YOLO_STAMP): requirements-ultralytics.txt $(STAMP)
	rm -rf $(YOLO)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
		--target $(YOLO) -r requirements-ultralytics.txt
	@touch $@

test-ultralytics: $(YOLO_STAMP)  ## run the tests with Ultralytics, installed into build/ultralytics
	$(WITH_YOLO) $(TWO_WORKERS) tests/integrations
	$(WITH_YOLO) $(TWO_WORKERS) tests/tools/test_notebooks.py -k mend-yolo

$(ADAPTERS_STAMP): requirements-adapters.txt $(STAMP)
	rm -rf $(ADAPTERS)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
		--target $(ADAPTERS) -r requirements-adapters.txt
	@touch $@

test-adapters: $(ADAPTERS_STAMP)  ## run the tests with Lightning and Transformers, installed into build/adapters
	$(WITH_ADAPTERS) $(BIN)/python -W ignore -c "import lightning, transformers"  # else tests skip
	$(WITH_ADAPTERS) $(TWO_WORKERS) tests/integrations -k "lightning or transformers"

fuzz: $(STAMP)  ## mutate inputs of all commands, then kill commands (MINUTES=10 in all)
	$(BIN)/python fuzz/mutate_inputs.py --minutes $(HALF) --seed $(SEED)
	$(BIN)/python fuzz/kill_commands.py --minutes $(HALF) --seed $(SEED)

flips: $(STAMP)  ## flip bits of every kind of file that carries a digest (500 each)
	$(BIN)/python fuzz/flip_bits.py --flips 500 --seed $(SEED)

lint: $(STAMP)  ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)  ## put the code into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

mutants: $(STAMP)  ## run the tests against known errors in the source (ONLY=auditing for some)
	$(BIN)/python tools/mutants.py --only "$(ONLY)"

docs: $(STAMP)  ## build the pages into site/; a dead link stops it
	$(BIN)/pip install --quiet --disable-pip-version-check zensical
	$(BIN)/python tools/site_pages.py build/docs
	$(BIN)/zensical build --strict

tutorials: $(YOLO_STAMP)  ## execute the notebooks of the tutorials and store their outputs
	$(WITH_YOLO) $(BIN)/python tools/run_notebooks.py docs/tutorials/*.ipynb

bench-data: $(STAMP)  ## reading, writing, noise and check against pycocotools and json
	$(BIN)/python benchmarks/bench_data.py

bench-ledger: $(STAMP)  ## what the ledger of 860,000 annotations and 12 epochs weighs and costs
	$(BIN)/python benchmarks/bench_ledger.py

bench-report: $(STAMP)  ## the report of 20,000 annotations: how long it takes to make and to filter
	$(BIN)/python benchmarks/bench_report.py

bench-audit: $(STAMP)  ## an audit of 118,000 images with 4 million detections: time and memory
	$(BIN)/python benchmarks/bench_audit.py

bench-mender: $(STAMP)  ## an update of a Mender with 2 million detections: time and memory
	$(BIN)/python benchmarks/bench_mender.py

bench-evaluation: $(STAMP)  ## scoring of 5,000 images with 100 detections each against pycocotools
	$(BIN)/python benchmarks/bench_evaluation.py

bench-refinement: $(STAMP)  ## refining a batch on the CPU against the literal Algorithm 1
	$(BIN)/python benchmarks/bench_refinement.py

bench-memory: $(STAMP)  ## host memory that training on a COCO-sized dataset keeps
	$(BIN)/python benchmarks/bench_memory.py

bench-sync: $(STAMP)  ## what it costs to wait until an output is on the disk
	$(BIN)/python benchmarks/bench_sync.py

bench-plain: $(STAMP)  ## AP50 of torchvision's plain recipe (DATA=VOC:trainval VAL=VOC:test WEIGHTS=FILE)
	$(BIN)/python benchmarks/plain_training.py $(DATA) --val $(VAL) --weights $(or $(WEIGHTS),none)

tiny-weights: $(STAMP)  ## pre-train the weights of `tiny` that the package ships (ten minutes)
	$(BIN)/python tools/pretrain_tiny.py

lock:  ## resolve the dependencies again (needs uv)
	$(RESOLVE) --extra train --group dev pyproject.toml -o requirements.txt

lock-ultralytics:  ## resolve the dependencies of the tests with Ultralytics again (needs uv)
	$(RESOLVE) --extra ultralytics --group headless -c requirements.txt $(LEFT_OUT) \
		pyproject.toml -o requirements-ultralytics.txt

lock-adapters:  ## resolve the dependencies of the tests with Lightning and Transformers again (needs uv)
	$(RESOLVE) --extra lightning --extra transformers -c requirements.txt $(IN_MAIN_LOCK) \
		$(UNUSED_BY_ADAPTERS) pyproject.toml -o requirements-adapters.txt

clean:  ## remove what was made here
	rm -rf .venv site dist build runs .pytest_cache .mypy_cache .ruff_cache .hypothesis
