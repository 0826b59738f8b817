#!/usr/bin/env bash
# router.sh build|install: write the extensions mindful_router and mindful_partition from the private cluster's
# mindful into MINDFUL_HOME/router, and copy them to the server's extension directory.
# router.sh image: the same in an image, with PL/Proxy, PgBouncer and the command mindful.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

target=$MINDFUL_HOME/router
version=$(sed -n "s/^default_version = '\(.*\)'/\1/p" "$root/extension/mindful.control")

# The functions' signatures and comments come from the installed script, so that and the sources decide.
key() {
    cat "$root/extension/mindful--$version.sql" "$root"/extension/router/*.{sql,control} "$root"/extension/setup/router*.py | hash12
}

build() {
    "$root/extension/setup/install.sh" install
    [ "$(cat "$target/.key" 2>/dev/null)" != "$(key)" ] || return 0
    mkdir -p "$target"
    rm -f "$target"/mindful_* "$target/.key"
    say "writing the router's extensions into $target"
    python=$MINDFUL_HOME/dev/bin/python
    [ -x "$python" ] || python=$MINDFUL_HOME/venv/bin/python
    "$python" "$root/extension/setup/router.py" "$1" "$root/extension/router" "$target"
    key >"$target/.key"
}

install_files() {
    local directory file
    local -a changed=()
    directory=$("$(pg_bin)/pg_config" --sharedir)/extension
    for file in "$target"/mindful_*; do
        cmp -s "$file" "$directory/${file##*/}" || changed+=("$file")
    done
    [ "${#changed[@]}" -gt 0 ] || return 0
    say "installing mindful_router and mindful_partition $version into $directory"
    as_root install -m 644 "${changed[@]}" "$directory/"
}

image() {
    local setup=$root/extension/setup
    "$setup/packages.sh" pgbouncer "postgresql-$(pg_major)-plproxy"
    MINDFUL_EXTRAS="${MINDFUL_EXTRAS-documents learning} engine" "$setup/python.sh" server
    # A cluster for the time: the image's own is made when a container starts.
    MINDFUL_STATE=$(mktemp -d)
    chmod 755 "$MINDFUL_STATE"
    export MINDFUL_STATE MINDFUL_LISTEN=127.0.0.1 MINDFUL_PORT=''
    "$setup/cluster.sh" up
    build "$("$setup/cluster.sh" dsn)"
    install_files
    "$setup/cluster.sh" down
    rm -rf "$MINDFUL_STATE"
}

[ "${1:-}" != image ] || { image && exit; }
dsn=${MINDFUL_TEST_DSN:-}
dsn=${dsn%% *}
[ -n "$dsn" ] || dsn=$("$root/extension/setup/cluster.sh" dsn)
case ${1:-} in
    build) build "$dsn" ;;
    install) build "$dsn" && install_files ;;
    *) die "usage: router.sh build|install|image" ;;
esac
