# maitred's verbs; `make help` lists them.

.DEFAULT_GOAL := help
export PREFIX SYSCONFDIR LOCALSTATEDIR UNITDIR DESTDIR BUILT KEY ADDRESS
.PHONY: help build php install uninstall packages repository image run test torture fuzz sanitize conformance bench \
	experiments applications lint clean

help: ## list the verbs
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-11s  %s\n", $$1, $$2 }' Makefile

build: ## build target/release/maitred and target/release/maitred-php
	@scripts/setup
	@scripts/cargo build --release --workspace

php: ## build target/release/maitred-phpX.Y, for pools with another PHP (PHP=X.Y)
	@scripts/build-php "$(PHP)"

install: ## install what `make build` has built (PREFIX=/usr/local SYSCONFDIR=/etc DESTDIR=)
	@exec scripts/install

uninstall: ## remove it again; configuration, logs and state stay
	@exec scripts/install --remove

packages: ## build Debian packages for this release into target/packages (BUILT=target/release for programs that are built)
	@scripts/setup
	@exec scripts/packages

repository: ## write a signed apt repository of them into target/repository (KEY=FINGERPRINT ADDRESS=URL)
	@exec scripts/repository

image: ## build an image of them for each PHP into target/images (PHPS="8.2 8.3" BASE=IMAGE)
	@exec scripts/image

run: build ## serve the example on 127.0.0.1:8080 (ARGS="--listen 127.0.0.1:9000")
	@exec scripts/run $(ARGS)

test: ## run every test, beside the real nginx, php-fpm, Apache and WordPress
	@exec scripts/test $(ARGS)

torture: build ## inject faults into a server under load (MINUTES=10 SEED=1 ARGS="--only kill-front")
	@scripts/setup-test
	@scripts/cargo build --workspace
	@MAITRED_BIN=target/debug/maitred exec target/debug/maitred-torture --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED)) $(ARGS)

fuzz: ## fuzz the parsers of what others write (SECONDS_EACH=60 ONLY="http1_head cookies")
	@exec scripts/fuzz "$(or $(SECONDS_EACH),60)" $(ONLY)

sanitize: ## run tests with the sanitizers of the C compiler (ONLY="worker_mode")
	@exec scripts/sanitize $(ONLY)

conformance: build ## run php-src's tests of php-fpm (ARGS="status-basic" for one, "--baseline" for php-fpm's own)
	@exec scripts/conformance $(ARGS)

php-matrix: ## test each PHP from 8.1 to 8.5 in a system that has it, as root (ONLY="8.4 8.5")
	@exec scripts/try-matrix $(ONLY)

bench: ## measure against nginx, php-fpm and Apache (ARGS="--quick")
	@scripts/setup-bench
	@scripts/cargo build --release --workspace
	@exec python3 bench/run.py $(ARGS)

experiments: ## rerun the tuning articles' experiments (ONLY=B3 ARGS="--rounds 1 --seconds 5")
	@scripts/setup-test
	@scripts/cargo build --release --workspace
	@exec python3 experiments/run.py $(if $(ONLY),--only $(ONLY)) $(ARGS)

applications: ## compare packaged applications with nginx + php-fpm and Apache (ONLY=dokuwiki ARGS=--page)
	@scripts/setup-test
	@scripts/cargo build --release --workspace
	@exec scripts/applications $(if $(ONLY),--only $(ONLY)) $(ARGS)

lint: ## check formatting and warnings
	@scripts/setup
	@scripts/cargo fmt --all --check
	@scripts/cargo clippy --workspace --all-targets -- -D warnings

clean: ## remove what was built
	@scripts/cargo clean
