# Palisade Router. Everything happens in ignored folders of this checkout: .venv/, .run/, node_modules/.
#
#   make run      a secured router on 127.0.0.1, ready to be talked to     make run PORT=5771
#   make network  three interior routers and two edges on 127.0.0.1        make network PORT=6771
#   make test     every suite, from nothing                                make test SUITES="unit spark"
#   make console the web console, which `make run` and `make network` build too where npm is
#   make pictures  of every page of the console, in .run/pictures
#   make attack   an hour of all attacks at once                           make attack SECONDS=60
#   make chaos    five minutes of a network whose links and routers die    make chaos SECONDS=60
#   make check    ruff, mypy strict over source and tests, the architecture test

PYTHON ?= python3
PORT ?=
# Empty: the newest versions that pyproject.toml admits.
CONSTRAINTS ?= deploy/constraints.txt
SUITES ?=

BIN := .venv/bin
# Kerberos is built from source, and only where its headers are.
KERBEROS := $(if $(shell command -v krb5-config),$(shell echo ,kerberos))
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore

.PHONY: run network console pictures test unit check attack chaos bench clean

run: .venv/.installed router/web/console/dist/.built
	@$(BIN)/python deploy/quickstart.py $(if $(PORT),--port $(PORT))

network: .venv/.installed router/web/console/dist/.built
	@$(BIN)/python deploy/network.py $(if $(PORT),--port $(PORT))

console: router/web/console/dist/.built

pictures: .venv/.dev router/web/console/dist/.built
	@$(BIN)/python tests/daemon/console_pictures.py .run/pictures

test: .venv/.dev router/web/console/dist/.built tests/interop/node_modules/.installed
	@$(BIN)/python tests/run_suites.py $(SUITES)

unit: .venv/.dev
	@$(BIN)/python tests/run_suites.py unit

check: .venv/.dev router/web/console/node_modules/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --no-incremental deploy/quickstart.py deploy/network.py deploy/preflight.py
	MYPYPATH=deploy $(BIN)/mypy --no-incremental deploy/completion/generate.py
	MYPYPATH=deploy $(BIN)/mypy --no-incremental deploy/man/generate.py
	$(BIN)/mypy --config-file tests/mypy.ini
	@git ls-files 'tests/*conftest.py' | xargs -n 1 $(BIN)/mypy --config-file tests/mypy.ini --no-error-summary
	$(BIN)/python -m pytest -q tests/test_architecture.py
	@if command -v npm >/dev/null; then npm run --prefix $(CONSOLE) --silent check && npm test --prefix $(CONSOLE) --silent; \
	else echo "npm is missing (apt-get install nodejs npm): the console is not checked"; fi

attack: .venv/.dev
	@PYTHONPATH=.:tests/attacks:tests/daemon:tests/interop:tests/fuzz $(BIN)/python tests/attacks/siege.py \
		--seconds $(or $(SECONDS),3600) --seed $(or $(SEED),1)

chaos: .venv/.dev
	@PYTHONPATH=.:tests/interop $(BIN)/python tests/interop/network_chaos.py \
		--seconds $(or $(SECONDS),300) --seed $(or $(SEED),1)

bench: .venv/.dev
	$(BIN)/python -m benchmarks

clean:
	rm -rf .venv .run .cache build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -rf router/amqp/engine/_steps*.so router/amqp/guard/_frames*.so router/amqp/layout/_walk*.so spark-warehouse metastore_db derby.log tests/interop/node_modules router/web/console/node_modules router/web/console/dist
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +

# Stamps: each is newer than what it was made from, so that a second run starts at once.

.venv/.created: deploy/preflight.py
	@$(PYTHON) deploy/preflight.py
	@echo "Creating .venv with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv --clear .venv
	@$(BIN)/python -m pip install -q --upgrade 'pip>=25.1'
	@touch $@

.venv/.installed: .venv/.created pyproject.toml setup.py $(CONSTRAINTS) $(wildcard router/amqp/*/*.c router/amqp/*/*_build.py) router/amqp/hardening.py
	@echo "Installing (the first time this builds python-qpid-proton and fetches pyspark: one to three minutes)"
	@PYTHONWARNINGS=ignore $(BIN)/python -m pip install -q $(addprefix -c ,$(CONSTRAINTS)) -e '.[fast,spark,editors$(KERBEROS)]'
	@touch $@

.venv/.dev: .venv/.installed
	@$(BIN)/python -m pip install -q $(addprefix -c ,$(CONSTRAINTS)) --group dev
	@touch $@

# rhea, for the tests against a client from npm. Without npm those tests are skipped, or fail where
# PALISADE_REQUIRE_ALL is set; see tests/conftest.py.
tests/interop/node_modules/.installed: tests/interop/package.json tests/interop/package-lock.json
	@if command -v npm >/dev/null; then npm ci --prefix tests/interop --silent --no-audit --no-fund && touch $@; \
	else echo "npm is missing (apt-get install nodejs npm): the tests against rhea will not run"; fi

CONSOLE := router/web/console
CONSOLE_SOURCES := $(wildcard $(CONSOLE)/*.json $(CONSOLE)/*.ts $(CONSOLE)/*.html $(CONSOLE)/public/* $(CONSOLE)/src/* $(CONSOLE)/src/*/*)

$(CONSOLE)/node_modules/.installed: $(CONSOLE)/package.json $(CONSOLE)/package-lock.json
	@if command -v npm >/dev/null; then npm ci --prefix $(CONSOLE) --silent --no-audit --no-fund && touch $@; fi

# The console. Without npm the rest of the router works.
$(CONSOLE)/dist/.built: $(CONSOLE)/node_modules/.installed $(CONSOLE_SOURCES) schemas/management.json
	@if command -v npm >/dev/null; then npm run --prefix $(CONSOLE) --silent build -- --logLevel warn && touch $@; \
	else echo "npm is missing (apt-get install nodejs npm): the router runs without its web console"; fi
