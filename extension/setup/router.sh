#!/usr/bin/env bash
# router.sh [build|install]: write the extensions mindful_router and mindful_partition from the private cluster's
# mindful into MINDFUL_HOME/router, and copy them to the server's extension directory.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

target=$MINDFUL_HOME/router
version=$(sed -n "s/^default_version = '\(.*\)'/\1/p" "$root/extension/mindful.control")

# The functions' signatures and comments come from the installed script, so that and the sources decide.
key() {
    cat "$root/extension/mindful--$version.sql" "$root"/extension/router/* "$root/extension/setup/router.py" | hash12
}

build() {
    "$root/extension/setup/install.sh" install
    [ "$(cat "$target/.key" 2>/dev/null)" != "$(key)" ] || return 0
    mkdir -p "$target"
    rm -f "$target"/mindful_* "$target/.key"
    say "writing the router's extensions into $target"
    "$MINDFUL_HOME/dev/bin/python" "$root/extension/setup/router.py" "$1" "$root/extension/router" "$target"
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

dsn=${MINDFUL_TEST_DSN:-}
dsn=${dsn%% *}
[ -n "$dsn" ] || dsn=$("$root/extension/setup/cluster.sh" dsn)
case ${1:-} in
    build) build "$dsn" ;;
    install) build "$dsn" && install_files ;;
    *) die "usage: router.sh build|install" ;;
esac
