# shellcheck shell=bash
# Systems of other releases of Debian and Ubuntu in folders. Source it after lib.sh; needs root and
# debootstrap.
#
# A release comes from where this system's packages come from. That holds releases of this system's own
# distribution; for one of the other, MIRROR says where it is.

# Ubuntu's keys, as its package has them: Debian 12 has no such package.
readonly UBUNTU_KEYS=pool/main/u/ubuntu-keyring/ubuntu-keyring_2023.11.28.1_all.deb
readonly UBUNTU_KEYS_SHA256=36de43b15853ccae0028e9a767613770c704833f82586f28eb262f0311adb8a8

# mirror_of DISTRIBUTION: where its releases are: MIRROR, or where this system's own packages come from.
mirror_of() {
    local found=${MIRROR:-}
    # shellcheck source=/dev/null
    . /etc/os-release
    if [ -z "$found" ] && [ "${ID:-}" = "$1" ]; then
        found=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' \
            'Created-By: Packages' | sed -n "s/ ${VERSION_CODENAME:-none} main\$//p" | head -n 1)
    fi
    [ -n "$found" ] ||
        die "This system's packages do not come from a mirror of $1. Set MIRROR to the URL of one."
    printf '%s\n' "${found%/}"
}

# make_chroot SUITE FOLDER PACKAGE,…: a minimal system with these packages, unless it is there.
make_chroot() {
    local suite=$1 root=$2 include=$3
    [ ! -e "$root/made" ] || return 0
    install_packages debootstrap
    rm -rf "$root"
    mkdir -p "$root"
    case $suite in
        jammy | noble) make_ubuntu "$suite" "$root" "$include" ;;
        *) make_debian "$suite" "$root" "$include" ;;
    esac
    touch "$root/made"
}

# pockets SUITE: the sources of a release with its updates, as this system has them for its own.
pockets() {
    # shellcheck source=/dev/null
    . /etc/os-release
    apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
        sed -n "s/^\([^ ]*\) $VERSION_CODENAME\(-[a-z]*\)\? \([a-z]*\)\$/deb \1 $1\2 \3/p"
}

make_debian() {
    local suite=$1 root=$2 include=$3 mirror base=$1
    # experimental is no release of its own: its packages go on top of sid's.
    [ "$suite" != experimental ] || base=sid
    mirror=$(mirror_of debian)
    debootstrap --variant=minbase --include="$include" "$base" "$root" "$mirror" >&2
    [ "$base" = sid ] || pockets "$suite" >"$root/etc/apt/sources.list"
    # A mirror may be behind.
    echo 'Acquire::Check-Valid-Until "false";' >"$root/etc/apt/apt.conf.d/behind"
    if [ "$suite" != "$base" ]; then
        sed "s/ $base / $suite /" "$root/etc/apt/sources.list" \
            >"$root/etc/apt/sources.list.d/$suite.list"
    fi
}

# PHP's embed library is in universe, and who runs Ubuntu has the updates of a release, too.
make_ubuntu() {
    local suite=$1 root=$2 include=$3 mirror pocket keys=$2.keyring
    mirror=$(mirror_of ubuntu)
    install_packages curl
    mkdir -p "$keys"
    curl -fsSL -o "$keys/package.deb" "$mirror/$UBUNTU_KEYS" ||
        die "Ubuntu's keys could not be fetched from $mirror; is there a network?"
    echo "$UBUNTU_KEYS_SHA256 $keys/package.deb" | sha256sum --check --quiet ||
        die "$mirror/$UBUNTU_KEYS is not what it was when it was pinned."
    dpkg-deb -x "$keys/package.deb" "$keys"
    # The script is that of all releases of Ubuntu; a debootstrap that is older than one lacks its name.
    debootstrap --variant=minbase --include="$include" \
        --keyring="$keys/usr/share/keyrings/ubuntu-archive-keyring.gpg" \
        --components=main,universe "$suite" "$root" "$mirror" gutsy >&2
    for pocket in "$suite" "$suite-updates" "$suite-security"; do
        echo "deb $mirror $pocket main universe"
    done >"$root/etc/apt/sources.list"
}
