# Two commands are enough: `make serve` runs Ringway, `make test` tests it.

VENV ?= .venv
RINGWAY = $(VENV)/bin/ringway
STAMP = $(VENV)/.ringway-setup

.PHONY: serve test check lint types architecture demo bench bench-peers clean

serve: $(STAMP)
	exec $(RINGWAY) up --exit-with-parent $(ARGS)

test: $(STAMP)
	$(VENV)/bin/python -m pytest $(ARGS)

check: lint types architecture

lint: $(STAMP)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: $(STAMP)
	$(VENV)/bin/mypy

architecture: $(STAMP)
	$(VENV)/bin/lint-imports

demo: $(STAMP)
	exec $(RINGWAY) demo $(ARGS)

bench: $(STAMP)
	@test -n "$(NAME)" || { echo "usage: make bench NAME=retrieval"; exit 2; }
	$(VENV)/bin/python -m tests.bench.$(NAME) $(ARGS)

bench-peers:
	deploy/setup-peers .venv-peers

$(STAMP): requirements.lock requirements-models.lock pyproject.toml deploy/setup
	deploy/setup $(VENV)

clean:
	rm -rf $(VENV) .venv-peers
