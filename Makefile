# Needs only python3 (3.11 or newer) and make.
.PHONY: setup demo test fuzz gpu proofs full lint wheel faults trust verify-costs twins bench bench-overhead bench-search bench-scale bench-dashboard bench-verbs bench-costs bench-steps bench-models bench-packing bench-circulant bench-row-0 bench-across bench-elsewhere bench-chains bench-tuning bench-pairing bench-prior bench-sources bench-peers agreement docs reference tutorials gallery lock clean
.DEFAULT_GOAL := setup

# Tests start hundreds of processes. Each would compile all modules again where this is set, as in many containers.
export PYTHONDONTWRITEBYTECODE :=

BIN := .venv/bin
READY := .venv/ready

setup: $(READY)

$(READY): requirements.lock requirements-uv.lock pyproject.toml
	@python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "python3 is older than 3.11; put a newer one first on the PATH" >&2; exit 2; }
	@test -x $(BIN)/python || python3 -m venv .venv
	@echo "Installing the pinned requirements into .venv (torch with CUDA libraries: about 6 GB) ..." >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-uv.lock
	@# Compiled once here: where PYTHONDONTWRITEBYTECODE is set, every process of a user would compile torch and timm again.
	@$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --require-hashes -r requirements.lock
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	@touch $(READY)
	@echo "Ready. Next: source .venv/bin/activate, then ablate init" >&2

demo: $(READY)
	@$(BIN)/ablate run search_spaces/quickstart.yaml

# Two processes of one thread each, one for each core.
test: $(READY)
	@OMP_NUM_THREADS=1 SLOWEST=build/slowest-test.txt $(BIN)/python -m pytest -q -n 2 --dist worksteal -m "not ray and not browser and not proof and not gpu"

# Tests in a real browser; tests with a real Ray, which have the machine to themselves; short versions of `make faults`,
# `make trust` and `make bench-search`; and `make verify-costs`. `.ci/run` leaves out what a change cannot affect.
proofs: $(READY)
	@FULL=1 $(BIN)/python .ci/proofs.py

# Everything that `.ci/run` has. The commit is noted, and `.ci/run` compares later ones with it.
full:
	@test -z "$$(git status --porcelain)" || { echo "commit first: make full notes the commit that has passed" >&2; exit 2; }
	@FULL=1 bash .ci/run
	@git rev-parse HEAD >.ci/passed
	@echo "Commit .ci/passed."

# What must hold on a GPU. It needs little beyond torch and timm: `tests/conftest.py`, which imports everything, is not read.
PYTHON ?= $(BIN)/python
gpu:
	@$(PYTHON) -m pytest -q -m gpu --confcutdir=tests/gpu tests/gpu

# New random examples for each property; `make test` always takes the same ones.
fuzz: $(READY)
	@OMP_NUM_THREADS=1 HYPOTHESIS_PROFILE=fuzz $(BIN)/python -m pytest -q -n 2 -m "hypothesis and not proof and not gpu"

lint: $(READY)
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@MYPYPATH=dashboards $(BIN)/mypy dashboards/*.py dashboards/views/*.py dashboards/screens/*.py
	@$(BIN)/lint-imports

# Builds wheel and sdist of the last commit, and does the main job with them in an empty environment and an empty folder.
wheel: $(READY)
	@.ci/wheel

# Disturbs real runs and says where each kill landed: make faults SEED=0 COUNT=300; REPORT=docs/reliability.md writes the report,
# EXECUTOR=local runs without Ray.
SEED ?= 0
COUNT ?= 300
faults: $(READY)
	@$(BIN)/python -m tests.faults.harness --seed $(SEED) --count $(COUNT) $(if $(STORE),--store $(STORE)) $(if $(EXECUTOR),--executor $(EXECUTOR)) $(if $(REPORT),--report $(REPORT))

# Holds the statistics against made-up studies with a known truth; WRITE=1 writes docs/trust.md.
trust: $(READY)
	@OMP_NUM_THREADS=1 $(BIN)/python benchmarks/trust.py $(if $(WRITE),--write) $(if $(REPEATS),--count $(REPEATS)) $(if $(USERS),--users $(USERS))

# Counts every printed parameter and FLOP of the five papers again (nine minutes of one core), two papers at once.
PAPERS := augvit patchdiv iffn mabvit antioversmoothing
verify-costs: $(READY)
	@printf '%s\n' $(PAPERS) | OMP_NUM_THREADS=1 xargs -P 2 -n 1 $(BIN)/ablate verify-costs

# Trains the small twins of the papers' tables, most of them on CIFAR-10: make twins GPUS=1 EPOCHS=60, or make twins BATCHES=2 to try them.
twins: $(READY)
	@$(BIN)/python benchmarks/twins.py $(if $(GPUS),--gpus $(GPUS)) $(if $(EPOCHS),--epochs $(EPOCHS)) $(if $(BATCHES),--batches $(BATCHES)) $(TWINS)

bench: bench-overhead bench-search bench-scale bench-dashboard bench-verbs bench-costs bench-steps bench-circulant

# What strategies and schedulers are worth on a made-up space; WRITE=1 writes docs/results/search.md (about 20 minutes).
bench-search: $(READY)
	@$(BIN)/python benchmarks/search.py $(if $(WRITE),--write) $(if $(REPEATS),--repeats $(REPEATS))

# How long verbs take that read or plan; docs/performance.md has the figures.
bench-verbs: $(READY)
	@$(BIN)/python benchmarks/verbs.py $(if $(ROUNDS),--rounds $(ROUNDS))

# How long it takes to count a new architecture, compared with a trace of all its modules.
bench-costs: $(READY)
	@$(BIN)/python benchmarks/costs.py $(if $(ROUNDS),--rounds $(ROUNDS))

# Training steps against a loop by hand, and what factors cost in time: make bench-steps DEVICE=cuda on a GPU.
bench-steps: $(READY)
	@$(BIN)/python benchmarks/steps.py $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(DEVICE),--device $(DEVICE)) $(if $(WIDTH),--width $(WIDTH))

# Whole backbones at 224 x 224 on a GPU: make bench-models DEVICE=cuda; benchmarks/models.py says how to try it without one.
bench-models: $(READY)
	@$(BIN)/python benchmarks/models.py $(if $(DEVICE),--device $(DEVICE)) $(if $(BATCH),--batch $(BATCH)) $(if $(STEPS),--steps $(STEPS)) $(if $(SIZE),--size $(SIZE)) $(if $(PRECISION),--precision $(PRECISION)) $(if $(ROUNDS),--rounds $(ROUNDS)) $(MODELS)

# Several small trials at once on one device: make bench-packing DEVICE=cuda; benchmarks/packing.py says how to try it without a GPU.
bench-packing: $(READY)
	@$(BIN)/python benchmarks/packing.py $(if $(DEVICE),--device $(DEVICE)) $(if $(IMAGES),--images $(IMAGES)) $(if $(EPOCHS),--epochs $(EPOCHS)) $(if $(PACKS),--packs $(PACKS)) $(if $(PRECISION),--precision $(PRECISION))

# Ways to compute circulant projections: make bench-circulant DEVICE=cuda on a GPU.
bench-circulant: $(READY)
	@$(BIN)/python benchmarks/circulant.py $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(DEVICE),--device $(DEVICE))

# What seeds of row 0 are worth (about 3 minutes).
bench-row-0: $(READY)
	@$(BIN)/python benchmarks/row_0.py

# What effects along sizes, and predictions, are worth.
bench-across: $(READY)
	@$(BIN)/python benchmarks/across.py

# What rows at their own best settings show (about 6 minutes).
bench-tuning: $(READY)
	@$(BIN)/python benchmarks/tuning.py

# How often a verdict on runs without common seeds is false, and what it finds.
bench-elsewhere: $(READY)
	@$(BIN)/python benchmarks/elsewhere.py

# What the decisions of chains are worth, beside an oracle and other rules (about two minutes).
bench-chains: $(READY)
	@OMP_NUM_THREADS=1 $(BIN)/python benchmarks/chains.py

# What pairing by seed gains and costs.
bench-pairing: $(READY)
	@$(BIN)/python benchmarks/pairing.py

# What the noise of earlier studies would add to a comparison.
bench-prior: $(READY)
	@$(BIN)/python benchmarks/prior.py

# The noise of a training by its source; STORE keeps the trainings (about 15 minutes).
bench-sources: $(READY)
	@$(BIN)/python benchmarks/sources.py $(or $(STORE),runs/sources.db)

# Verdicts with few seeds against those of twenty, on stored trainings; TRAIN=STORE trains them again (about 8 minutes), WRITE=1 writes docs/results/agreement.md.
agreement: $(READY)
	@$(BIN)/python benchmarks/agreement.py $(if $(TRAIN),--train $(TRAIN)) $(if $(WRITE),--write) $(if $(COUNT),--count $(COUNT))

# The same short trials through other tools, each in an environment of its own: make bench-peers SEEDS=36 for 72 trials.
bench-peers: $(READY)
	@$(BIN)/python benchmarks/peers/run.py $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SEEDS),--seeds $(SEEDS))

# 100,000 planned trials on the simulated executor.
bench-scale: $(READY)
	@$(BIN)/python benchmarks/scale.py $(if $(TRIALS),--trials $(TRIALS)) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(STOP),--stop-after $(STOP))

# The dashboard on 100,000 trials of ten epochs, in a real browser (needs chromium).
bench-dashboard: $(READY)
	@$(BIN)/python benchmarks/dashboard.py

# 24 short trials through Ray and through the local executor, against the same training in two bare processes: make bench-overhead SEEDS=36 for 72 trials.
bench-overhead: $(READY)
	@$(BIN)/python benchmarks/overhead.py $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SEEDS),--seeds $(SEEDS))

# The documentation as a site, which needs no network: docs/_build/index.html.
docs: $(READY)
	@$(BIN)/python -m sphinx -q -W --keep-going docs docs/_build
	@echo "docs/_build/index.html"

# Pages of docs that are written by programs: the reference, and the outputs of the commands in tutorials (about 5 minutes).
reference: $(READY)
	@$(BIN)/python docs/make_reference.py

tutorials: $(READY)
	@$(BIN)/python docs/make_tutorials.py
	@$(BIN)/python -m docs.make_recording

# Runs the studies that train on a workstation and writes docs/gallery (five minutes); STORE=FILE keeps their trials.
gallery: $(READY)
	@$(BIN)/python -m docs.make_gallery $(STORE)

lock:
	@$(BIN)/uv pip compile pyproject.toml --extra dev --extra agents --extra dashboard --extra dense --extra energy --extra huggingface --extra postgresql --extra sdp --extra mlflow --extra wandb --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header -o requirements.lock

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
