# Two commands matter: `make demo` and `make test`. Both set up what they need.
PYTHON ?=
VENV ?= .venv
ARGS ?=
run := $(VENV)/bin/python
core = @.ci/env $(VENV) core "$(PYTHON)"
dev = @.ci/env $(VENV) dev "$(PYTHON)"

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint bench docs clean

help:  ## list the verbs
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile
	@echo
	@echo "  PYTHON=python3.12 chooses the interpreter, ARGS=... is handed to pytest, the demo or the benchmarks."

setup:  ## make .venv with everything that work on Treadle needs
	$(dev)

demo:  ## kill an agent in the middle of its work and see it finish
	$(core)
	@$(run) examples/crash_and_resume.py $(ARGS)

test: lint  ## lint, types and all tests; TREADLE_ALL_PYTHONS=1: on the oldest and the newest Python found too
	$(run) -m pytest -n 2 $(ARGS)
ifeq ($(TREADLE_ALL_PYTHONS),1)
	@minor='import sys; print("%d.%d" % sys.version_info[:2])'; done=$$($(run) -c "$$minor"); \
	for python in $$(.ci/pythons ends); do \
	    version=$$($$python -c "$$minor"); [ "$$version" != "$$done" ] || continue; \
	    echo "== Python $$version" && .ci/env .venv-$$version dev $$python || exit 1; \
	    .venv-$$version/bin/python -m pytest -n 2 $(ARGS) || exit 1; \
	done
endif

lint:  ## style and types; FIX=1 repairs what can be repaired
	$(dev)
	$(run) -m ruff format $(if $(FIX),,--check) .
	$(run) -m ruff check $(if $(FIX),--fix) .
	$(run) -m pyright --pythonpath $(run)

bench:  ## speed, memory and disk against a hand-written loop
	$(core)
	@$(run) benchmarks/run.py $(ARGS)

docs:  ## run every code block of the documentation
	$(dev)
	$(run) -m pytest tests/test_docs.py $(ARGS)

clean:  ## remove the environments and what tools left behind
	rm -rf .venv .venv-* .pytest_cache .ruff_cache .hypothesis .coverage .coverage.* htmlcov dist
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
