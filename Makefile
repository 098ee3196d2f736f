# Two commands are enough: `make serve` runs Ringway, `make test` tests it.

VENV ?= .venv
RINGWAY = $(VENV)/bin/ringway
STAMP = $(VENV)/.ringway-setup
DEV_STAMP = $(VENV)/.ringway-setup-dev

.PHONY: serve test check lint types architecture demo bench bench-peers clean

serve: $(STAMP)
	exec $(RINGWAY) up --exit-with-parent $(ARGS)

test: $(DEV_STAMP)
	$(VENV)/bin/python -m pytest $(ARGS)

check: lint types architecture

lint: $(DEV_STAMP)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: $(DEV_STAMP)
	$(VENV)/bin/mypy

architecture: $(DEV_STAMP)
	$(VENV)/bin/lint-imports

demo: $(STAMP)
	exec $(RINGWAY) demo $(ARGS)

bench: $(DEV_STAMP)
	@test -n "$(NAME)" || { echo "usage: make bench NAME=retrieval"; exit 2; }
	$(VENV)/bin/python -m tests.bench.$(NAME) $(ARGS)

bench-peers:
	deploy/setup-peers .venv-peers

$(STAMP): requirements.lock requirements-models.lock pyproject.toml deploy/setup
	deploy/setup $(VENV)

$(DEV_STAMP): requirements.lock requirements-dev.lock requirements-sdks.lock requirements-models.lock pyproject.toml deploy/setup
	deploy/setup $(VENV) dev

clean:
	rm -rf $(VENV) $(VENV)-sdks .venv-peers
