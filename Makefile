# The one list of tasks. Each target makes what it needs: Python >= 3.11, make and a network are enough;
# e2e, bench, storm and control-plane also need Go >= 1.26 (they build a Kubernetes control plane from Go modules).
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What is installed: enough to run, and the rest for tests and checks.
RUNS := $(VENV)/.runs
READY := $(VENV)/.ready
BROWSES := $(VENV)/.browses
# What one start has compiled, the next reads, also where a container's image says that nothing is to be kept.
unexport PYTHONDONTWRITEBYTECODE
# INSTALLER=pip does without uv.
INSTALLER ?= uv
KUBERNETES ?= 1.37
# Two workers more than there are cores: some tests wait, for processes that they started or for each other.
WAITING_TOO = $(shell expr 2 + `getconf _NPROCESSORS_ONLN`)
ARGS ?=
PYTHONS ?= $(wildcard $(HOME)/.pyenv/versions/3.1[1-9].*/bin/python)
# Those about sharing run with gates, and once more in the default install, where the scheduler reads through Muster.
SHARING = $(patsubst %,tests/e2e/test_%.py,estimates flavors history moving preemption price queue_rules queues quota reclaim reservation sharing_tree)
E2E = MUSTER_E2E_KUBERNETES=$(KUBERNETES) $(BIN)/pytest -o addopts="--strict-markers --strict-config -ra"
ADDRESSES = $(if $(REGISTRY),--registry "$(REGISTRY)") $(if $(URL),--url "$(URL)")
LOCK := $(BIN)/uv pip compile --quiet --universal --generate-hashes --python-version 3.13 --no-annotate \
    --custom-compile-command "make hashes"

help:  ## list the tasks
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(RUNS): pyproject.toml constraints.txt
	@$(PYTHON) -m tools.environment --installer $(INSTALLER)
	@$(BIN)/python -c "import extender.host.host, extender.sim.embedded"  # compiled once, for both processes of make run
	@touch $@

$(READY): $(RUNS)
	@$(PYTHON) -m tools.environment --installer $(INSTALLER) --extra dev
	@touch $@

$(BROWSES): $(READY)
	@$(PYTHON) -m tools.environment --installer $(INSTALLER) --extra browser
	@$(if $(CHROMIUM),,command -v chromium || command -v chromium-browser || command -v google-chrome || { apt-get update -qq && \
	    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium fonts-inter >/dev/null; } || \
	    { echo "make browser: no Chromium here, and none to install: name one in CHROMIUM="; exit 1; })
	@touch $@

run: $(RUNS)  ## the main job: show a cluster with queues and gangs (ARGS="..." passes arguments on)
	@$(BIN)/muster run $(ARGS)

test: $(READY)  ## the fast tests, on all cores: no cluster, no network (WORKERS=0 for one process)
	$(BIN)/pytest -n $(or $(WORKERS),$(WAITING_TOO)) --dist worksteal $(ARGS)

# A folder for each, so that they stay.
pythons:  ## the fast tests on other releases of Python (PYTHONS="/usr/bin/python3.13 ..."; those of pyenv unless named)
	@for python in $(PYTHONS); do folder=build/$$($$python -c 'import platform; print("python-" + platform.python_version())'); \
	    echo "== $$folder"; $$python -m tools.environment --extra dev --installer $(INSTALLER) --folder $$folder && \
	    $$folder/bin/python -m pytest -n $(or $(WORKERS),$(WAITING_TOO)) --dist worksteal $(ARGS) || exit 1; done

lint: $(READY)  ## ruff, mypy (strict) and the import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

control-plane: $(READY)  ## build etcd, kube-apiserver, kube-scheduler, kube-controller-manager, kubectl (needs Go)
	@$(BIN)/python -m tests.e2e.build --kubernetes $(KUBERNETES)

e2e: $(READY)  ## the tests on real control planes, one for each of 4 WORKERS (needs Go; KUBERNETES=1.36 for another release)
	@$(if $(filter tests/%,$(ARGS)),,$(BIN)/python -m tests.e2e.build --kubernetes $(KUBERNETES) --tools >/dev/null)
	$(E2E) $(if $(filter tests/%,$(ARGS)),,tests/e2e -m "not nightly and not alone") -n $(or $(WORKERS),4) --dist worksteal $(ARGS)
	$(if $(filter tests/%,$(ARGS)),,MUSTER_E2E_VIEW=1 $(E2E) $(SHARING) -m "not nightly and not alone" -n $(or $(WORKERS),4) --dist worksteal $(ARGS))
	$(if $(filter tests/%,$(ARGS)),,$(E2E) tests/e2e -m alone $(ARGS))
	$(if $(filter tests/%,$(ARGS)),,$(MAKE) browser ARGS=)

browser: $(BROWSES)  ## the dashboard in a headless Chromium; where there is none, root on Debian gets one (CHROMIUM=PATH; PICTURES=1 renews those of docs/)
	$(if $(PICTURES),MUSTER_PICTURES=1) $(BIN)/pytest -o addopts="--strict-markers --strict-config -ra" \
	    $(if $(filter tests/%,$(ARGS)),,tests/browser) -n $(or $(WORKERS),2) --dist worksteal $(ARGS)

bench: $(READY)  ## ratios against the stock scheduler on a real control plane (needs Go)
	$(BIN)/python -m tests.bench $(ARGS)

storm: $(READY)  ## random gangs and faults on a real control plane (SECONDS=600 SEED=7; needs Go)
	@$(BIN)/python -m tests.storm --kubernetes $(KUBERNETES) --seconds $(or $(SECONDS),60) \
	    --seed $(or $(SEED),1) $(ARGS)

soak: $(READY)  ## a storm of an hour in which the scheduler reads through Muster (SECONDS=3600 SEED=1), or CAMPAIGN=tests/storm/campaigns/ten-thousand.toml (needs Go)
	@$(BIN)/python -m tests.storm --kubernetes $(KUBERNETES) $(if $(CAMPAIGN),--campaign $(CAMPAIGN),--view) --seed $(or $(SEED),1) \
	    --seconds $(if $(findstring command,$(origin SECONDS)),$(SECONDS),3600) $(ARGS)

nightly: $(READY)  ## twenty times the examples of properties, all of e2e with the proxy, the e2e tests' own tools, a storm with gates, the embedded server beside a real one, and make soak (needs Go)
	MUSTER_EXAMPLES=20 $(MAKE) test ARGS="--timeout 0"
	MUSTER_E2E_VIEW=1 $(E2E) tests/e2e -m "not nightly and not alone" -n $(or $(WORKERS),3) --dist worksteal $(ARGS)
	$(E2E) tests/e2e -m nightly -n $(or $(WORKERS),3) --dist worksteal $(ARGS)
	$(E2E) tests/sim/scenarios -n $(or $(WORKERS),2) --dist worksteal $(ARGS)
	$(MAKE) soak ARGS=

fuzz: $(READY)  ## malformed requests to all ports of a running Muster (REQUESTS=10000 SECONDS=600 SEED=1)
	$(BIN)/python -m tests.fuzz $(if $(REQUESTS),--requests $(REQUESTS)) $(if $(findstring command,$(origin SECONDS)),--seconds $(SECONDS)) $(if $(SEED),--seed $(SEED))

hostile: $(READY)  ## what a tenant writes to harm others, on a real control plane, twice what e2e does (TIMES=2; needs Go)
	MUSTER_HOSTILE=$(or $(TIMES),2) $(E2E) tests/e2e/test_hostile.py -s $(ARGS)

coverage: $(READY)  ## how much of domain, ports, verbs and view their tests reach; fails below the floors of tools/coverage.py
	MUSTER_EXAMPLES=0.7 $(BIN)/pytest -n $(or $(WORKERS),auto) --dist worksteal --cov --cov-report=json \
	    tests/domain tests/ports tests/verbs tests/proxy $(ARGS)
	@$(BIN)/python -m tools.coverage coverage.json

shape: $(READY)  ## figures of the shape of the code, next to their goals, which a test holds (ARGS=--arrows lists the arrows of the domain)
	@$(BIN)/python -m tools.shape $(ARGS)

words: $(READY)  ## figures of the language of code and pages, next to their goals (ARGS="--list identifiers" lists places)
	@$(BIN)/python -m tools.words $(ARGS)

conformance: $(READY)  ## cases known from other schedulers, as data (CASES=PATH for those of another file or folder)
	@$(BIN)/python -m tests.conformance $(if $(CASES),"$(CASES)")

chart: $(READY)  ## make the Helm chart's templates from manifests/
	$(BIN)/python -m tools.chart

hashes: $(READY)  ## pin what the image installs, by version and hash: image/*.txt (after a change of constraints.txt)
	$(LOCK) --constraint constraints.txt --output-file image/requirements.txt pyproject.toml
	echo 'setuptools>=77' | $(LOCK) --output-file image/build-requirements.txt -

image:  ## build the container image with docker, podman or buildah (IMAGE=NAME:TAG, BUILDER=podman, BASE=..., PUSH=1, PLATFORMS=linux/amd64,linux/arm64, RELEASE=1)
	@$(PYTHON) -m tools.image $(if $(BUILDER),--builder "$(BUILDER)") $(if $(BASE),--base "$(BASE)") \
	    $(if $(or $(TAG),$(IMAGE)),--tag "$(or $(TAG),$(IMAGE))") $(if $(PUSH),--push) \
	    $(if $(PLATFORMS),--platforms "$(PLATFORMS)") $(if $(RELEASE),--release)

release: $(if $(URL),$(READY))  ## make what a release has into dist/: installs, chart; with URL=https://... also krew plugin, wheel (IMAGE=registry.example/kube-muster:0.1.0; needs kubectl)
	@$(if $(URL),$(BIN)/python,$(PYTHON)) -m tools.release --image "$(IMAGE)" $(if $(URL),--url "$(URL)") $(if $(KUBECTL),--kubectl "$(KUBECTL)")

publish: $(READY)  ## publish the tag at HEAD: image for amd64 and arm64, dist/, chart; then check-release (BASE=NAME@sha256:... BUILDER=podman REGISTRY=... URL=...; needs kubectl, helm)
	@$(BIN)/python -m tools.publish --base "$(BASE)" $(if $(BUILDER),--builder "$(BUILDER)") $(ADDRESSES) \
	    $(if $(KUBECTL),--kubectl "$(KUBECTL)") $(if $(HELM),--helm "$(HELM)")

check-release: $(READY)  ## check names, versions and digests of dist/ and the registry; PUBLISHED=1 those at the URL too (REGISTRY=... URL=..., unless pyproject.toml has them)
	@$(BIN)/python -m tools.check_release $(ADDRESSES) $(if $(PUBLISHED),--published)

wheel: $(READY)  ## build the Python package into dist/, which pipx and uvx install
	@$(BIN)/uv build --quiet --wheel --out-dir dist

clean:  ## remove what the other tasks made in this tree
	rm -rf $(VENV) build dist *.egg-info .coverage* coverage.json .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

.PHONY: help run test pythons lint control-plane e2e browser bench storm soak nightly fuzz hostile conformance coverage shape words chart hashes image release publish check-release wheel clean
