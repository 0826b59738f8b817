#!/usr/bin/env bash
# packages.sh [PACKAGE...]: installs what is missing of PostgreSQL with PL/Python, pg_cron and pgvector, Python's venv,
# a compiler, and the packages that are named.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

pgvector_min=0.8
# Debian releases without that pgvector, and the next release, whose source package is built instead.
declare -A next_release=([bookworm]=trixie)

apt_get() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qy -o DPkg::Lock::Timeout=300 "$@"
}

refresh() { logged apt-update "reading the distribution's package lists" apt_get update; }

missing() {
    local package
    for package; do
        dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || echo "$package"
    done
}

has_pgvector() {
    local version
    version=$(sed -n "s/^default_version = '\(.*\)'/\1/p" "/usr/share/postgresql/$1/extension/vector.control" 2>/dev/null)
    [ -n "$version" ] && dpkg --compare-versions "$version" ge "$pgvector_min"
}

apt_has_pgvector() {
    local version
    version=$(apt-cache policy "postgresql-$1-pgvector" | sed -n 's/.*Candidate: //p')
    [ -n "$version" ] && [ "$version" != '(none)' ] && dpkg --compare-versions "$version" ge "$pgvector_min"
}

# Debian's own default cluster and services are neither needed nor wanted where packages came only for this project.
# The demo reads the manual, and slim images leave all documentation out.
install_packages() {
    local conf=/etc/postgresql-common/createcluster.d/mindful.conf policy=/usr/sbin/policy-rc.d status=0
    as_root mkdir -p "${conf%/*}"
    echo 'create_main_cluster = false' | as_root tee "$conf" >/dev/null
    if [ -e "$policy" ]; then policy=''; else
        # Of no effect once this process has ended, however that was.
        printf '#!/bin/sh\n[ ! -d /proc/%s ] || exit 101\n' "$$" | as_root tee "$policy" >/dev/null
        as_root chmod 755 "$policy"
    fi
    (logged apt-install "installing $*" apt_get install --no-install-recommends \
        -o 'DPkg::Options::=--path-include=/usr/share/doc/postgresql-doc-*' "$@") || status=$?
    as_root rm -f "$conf" ${policy:+"$policy"}
    return "$status"
}

# In directories of its own, so that the machine's apt never learns of the other release; apt checks the
# release's signature and the package's sums as always.
build_pgvector() {
    local major=$1 here release keyring=/usr/share/keyrings/debian-archive-keyring.gpg work mirror
    local -a apt make
    here=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
    release=${next_release[${here:-unknown}]:-}
    [ -n "$release" ] || die "no package of pgvector >= $pgvector_min for PostgreSQL $major here: install it and run again"
    # shellcheck disable=SC2016 # apt's placeholders, not the shell's
    mirror=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Identifier: Packages' |
        awk -v release="$here" '$2 == release && $3 == "main" { print $1; exit }')
    [ -n "$mirror" ] || die "apt's sources name no mirror of $here"

    work=$(mktemp -d)
    chmod 755 "$work" # apt downloads as user _apt
    mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/source"
    echo "deb-src [signed-by=$keyring] $mirror $release main" >"$work/sources.list"
    apt=(apt-get -qy -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=-
        -o Dir::State::lists="$work/lists" -o Dir::Cache="$work/cache")
    logged pgvector-source "reading the source package list of Debian $release for pgvector" "${apt[@]}" update
    (cd "$work/source" && logged pgvector-source "downloading pgvector's source" "${apt[@]}" source --download-only pgvector)
    logged pgvector-source "unpacking pgvector" dpkg-source -x "$work"/source/*.dsc "$work/build"
    # Without LLVM's bitcode, which would need clang; for any CPU where the result travels in an image.
    make=(make -C "$work/build" "PG_CONFIG=/usr/lib/postgresql/$major/bin/pg_config" with_llvm=no)
    [ -z "${MINDFUL_PORTABLE:-}" ] || make+=(OPTFLAGS=)
    logged pgvector-build "compiling pgvector" "${make[@]}" "-j$(nproc)"
    logged pgvector-install "installing pgvector" as_root "${make[@]}" install
    rm -rf "$work"
}

main() {
    local major pgvector='' build_pgvector='' wanted absent
    major=$(pg_major) || {
        refresh
        major=$(pg_major) || die "apt knows no package named postgresql"
    }
    wanted=("postgresql-$major" "postgresql-plpython3-$major" "postgresql-$major-cron" "postgresql-doc-$major"
        python3-venv build-essential cmake ninja-build "$@")
    mapfile -t absent < <(missing "${wanted[@]}")
    has_pgvector "$major" && pgvector=1
    if [ "${#absent[@]}" = 0 ] && [ -n "$pgvector" ]; then return; fi

    refresh
    if [ -z "$pgvector" ]; then
        if apt_has_pgvector "$major"; then
            absent+=("postgresql-$major-pgvector")
        else
            mapfile -t -O "${#absent[@]}" absent < <(missing "postgresql-server-dev-$major")
            build_pgvector=1
        fi
    fi
    [ "${#absent[@]}" = 0 ] || install_packages "${absent[@]}"
    [ -z "$build_pgvector" ] || build_pgvector "$major"
}

main "$@"
