#!/usr/bin/env bash
# debootstrap.sh [SUITE]: a newcomer's first hour with the last commit, on a bare Debian in a scratch directory.
# Needs root, debootstrap and 20 GB under MINDFUL_ROOTS. Names in MINDFUL_BIND (files and directories of this
# machine, say of a package index) are found there too; pip's and proxies' environment variables are handed on.
set -euo pipefail

suite=${1:-trixie}
# Of namespaces of their own, mounts and processes go when this script does.
[ "${2:-}" = unshared ] || exec unshare --mount --pid --fork --kill-child "$0" "$suite" unshared

cd "$(dirname "$0")/../.."
roots=${MINDFUL_ROOTS:-/var/tmp/mindful-roots}
base=$roots/$suite.base
root=$roots/$suite

if [ ! -e "$base" ]; then
    here=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
    # shellcheck disable=SC2016 # apt's placeholders, not the shell's
    mirror=$(apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(REPO_URI)' 'Identifier: Packages' |
        sed -n "s/^$here main //p" | head -n 1)
    rm -rf --one-file-system "$base.part"
    mkdir -p "$roots"
    debootstrap --variant=minbase --include=ca-certificates,git,make,sudo "$suite" "$base.part" "$mirror"
    chroot "$base.part" useradd --create-home --shell /bin/bash newcomer
    echo 'newcomer ALL=(ALL) NOPASSWD: ALL' >"$base.part/etc/sudoers.d/newcomer"
    mv "$base.part" "$base"
fi
rm -rf --one-file-system "$root"
cp -a "$base" "$root"

cp /etc/resolv.conf /etc/hosts "$root/etc/"
mount -t proc proc "$root/proc"
for dir in /dev /sys; do mount --rbind "$dir" "$root$dir"; done
for path in ${MINDFUL_BIND:-}; do
    if [ -d "$path" ]; then mkdir -p "$root$path"; else install -D /dev/null "$root$path"; fi
    mount --bind --read-only "$path" "$root$path"
done

git bundle create --quiet "$root/srv/mindful.bundle" HEAD
mapfile -t settings < <(env | grep -E '^(PIP_.*|(https?|no)_proxy)=' || true)
# shellcheck disable=SC2016 # variables of the shell within
chroot --userspec=newcomer:newcomer "$root" \
    env -i HOME=/home/newcomer PATH=/usr/local/bin:/usr/bin:/bin "${settings[@]}" bash -euo pipefail -c '
        cd
        git clone --quiet --config advice.detachedHead=false /srv/mindful.bundle mindful
        cd mindful
        for target in demo demo lint test clean; do
            echo "--- make $target"
            time make "$target"
        done
        test -z "$(git status --porcelain)"
    '
