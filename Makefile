PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test wheels lint bench format clean

$(VENV)/installed: requirements-dev.txt pyproject.toml hatch_build.py $(wildcard zephon/native/*.px?)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --upgrade pip
	$(BIN)/pip install -q -r requirements-dev.txt
	$(BIN)/pip install -q --no-deps -e .
	touch $@

demo: $(VENV)/installed
	$(BIN)/python examples/demo/demo.py

test: lint
	$(BIN)/python -m pytest -n 2 --dist loadgroup -q

lint: $(VENV)/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/installed
	$(BIN)/python benchmarks/run.py

clean:
	rm -rf $(VENV) build dist zephon/native/*.so demo-data demo-out pictures-data pictures-out bench-data

wheels: $(VENV)/installed
	ZEPHON_WHEELS=1 $(BIN)/python -m pytest -q tests/e2e/test_nemo_wheels.py tests/e2e/test_megatron_launch_wheel.py
