# shellcheck shell=bash
# What the scripts share. Source it; it does nothing by itself.

# The oldest Rust that builds maitred; keep it equal to rust-version in Cargo.toml.
readonly RUST_MINIMUM=1.88

say() { printf '%s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# as_root COMMAND…: runs it as root, through sudo if need be.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        die "Installing packages needs root, and there is no sudo. As root, run: $*"
    fi
}

# missing_packages NAME…: prints those that are not installed, one a line.
missing_packages() {
    local name
    for name in "$@"; do
        case "$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null)" in
            installed) ;;
            *) printf '%s\n' "$name" ;;
        esac
    done
}

# refresh_package_lists: apt-get update, at most once per script.
refresh_package_lists() {
    [ -z "${package_lists_are_fresh:-}" ] || return 0
    say "Fetching the lists of packages…"
    as_root apt-get update -qq || die "apt-get update failed; is there a network?"
    package_lists_are_fresh=1
}

# install_packages NAME…: installs what is missing, says so, and lets no daemon be started by it.
install_packages() {
    local missing
    mapfile -t missing < <(missing_packages "$@")
    [ "${#missing[@]}" -gt 0 ] || return 0
    refresh_package_lists
    say "Installing: ${missing[*]}"
    forbid_service_starts
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq -o Dpkg::Use-Pty=0 --no-install-recommends "${missing[@]}" >&2 ||
        die "apt-get could not install: ${missing[*]}"
    allow_service_starts
    disable_new_services "${missing[@]}"
}

# application_packages: what the applications of tests/fixtures are made of.
application_packages() {
    printf '%s\n' php-symfony-framework-bundle php-symfony-runtime php-twig \
        php-illuminate-{routing,view,database,events,http} php-laravel-framework \
        php-guzzlehttp-guzzle php-vlucas-phpdotenv php-slim-psr7 php-nikic-fast-route \
        php-nyholm-psr7
    # Slim 3, which newer releases have no more, or cannot install; its test is skipped there.
    if apt-get install --simulate -qq php-slim >/dev/null 2>&1; then printf '%s\n' php-slim; fi
}

# Debian's packages start their services unless this file, which belongs to the administrator, says
# no (invoke-rc.d(8)). One that is there already is left as it is.
readonly POLICY=/usr/sbin/policy-rc.d

forbid_service_starts() {
    [ ! -e "$POLICY" ] || return 0
    trap allow_service_starts EXIT
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$POLICY" >/dev/null
    as_root chmod 755 "$POLICY"
    policy_is_ours=1
}

allow_service_starts() {
    [ -n "${policy_is_ours:-}" ] || return 0
    as_root rm -f "$POLICY"
    policy_is_ours=
}

# disable_new_services PACKAGE…: what was installed for tests shall not start at the next boot.
disable_new_services() {
    [ -d /run/systemd/system ] || return 0
    local package unit
    for package in "$@"; do
        case "$package" in
            nginx | apache2 | caddy) unit=$package ;;
            varnish) as_root systemctl disable --quiet varnishncsa || true; unit=$package ;;
            php*-fpm) unit=$package ;;
            mariadb-server) unit=mariadb ;;
            *) continue ;;
        esac
        as_root systemctl disable --quiet "$unit" || say "The service $unit could not be disabled."
    done
}

# php_version: the version whose embed library is installed, or else the distribution's default.
php_version() {
    local version
    version=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' 'libphp[0-9]*-embed' 2>/dev/null |
        sed -n 's/^installed libphp\(.*\)-embed$/\1/p' | sort -V | tail -n 1)
    if [ -z "$version" ]; then
        refresh_package_lists
        version=$(apt-cache depends libphp-embed 2>/dev/null |
            sed -n 's/.*Depends: libphp\([0-9.]*\)-embed$/\1/p')
    fi
    [ -n "$version" ] ||
        die "No package libphp-embed is known to apt. On Ubuntu, enable the component universe."
    printf '%s\n' "$version"
}

# version_at_least VERSION MINIMUM
version_at_least() {
    [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

# use_cargo: exports what makes `cargo` one that is new enough, or returns 1 if there is none.
use_cargo() {
    cargo_is_new_enough && return 0
    export PATH="$HOME/.cargo/bin:$PATH"
    cargo_is_new_enough && return 0
    export RUSTUP_TOOLCHAIN=stable
    cargo_is_new_enough
}

cargo_is_new_enough() {
    local version
    version=$(cargo --version 2>/dev/null | cut -d ' ' -f 2)
    [ -n "$version" ] && version_at_least "$version" "$RUST_MINIMUM"
}
