#!/usr/bin/env bash
# install.sh build     sql/order.txt -> extension/mindful--X.Y.Z.sql (prints its path), and the step to it
# install.sh install   build, then copy what changed into the server's extension directory
# install.sh freeze    build, then keep copies in extension/released/, the step in place of its source
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

cd "$root/extension"
version=$(sed -n "s/^default_version = '\(.*\)'/\1/p" mindful.control)
[ -n "$version" ] || die "extension/mindful.control states no default_version"
script=mindful--$version.sql

# A script as the server reads it: "-- include PATH" stands for that file, "-- include PATH NAME" for what makes and
# describes the functions or views of that name there, in place of older ones. Lines within a function are indented.
# "-- comments" stands for every COMMENT in sql/, so a step needs no line for a COMMENT that changed. "-- settings" stands for
# every insert into setting_definition, which a step repeats over the rows that are there.
expand() {
    awk -v version="$version" '
        function show(line) { gsub(/@VERSION@/, version, line); print line }
        function fail(what) { print FILENAME ": " what >"/dev/stderr"; exit 1 }
        function include(path, name,    start, line, got, end, made) {
            start = "^(create|create or replace|comment on) (function|procedure|view) " name "[ (]"
            while ((got = (getline line <path)) > 0) {
                if (name != "" && line ~ start) {
                    end = line ~ /^comment / ? "(^|[^\047])\047;$" : line ~ / view / ? ";$" : "^[^ ].*;$"
                    made += sub(/^create (or replace )?/, "create or replace ", line)
                }
                if (name == "" || end) show(line)
                if (end && line ~ end) end = ""
            }
            close(path)
            if (got < 0) fail("cannot read " path)
            if (name != "" && !made) fail("no " name " in " path)
        }
        function comments(path,    line, inside) {
            while ((getline line <path) > 0) {
                if (line ~ /^comment on /) inside = 1
                if (inside) show(line)
                if (line ~ /(^|[^\047])\047;$/) inside = 0
            }
            close(path)
        }
        function settings(path,    line, inside) {
            while ((getline line <path) > 0) {
                if (line ~ /^insert into setting_definition /) inside = 1
                if (!inside) continue
                if (sub(/;$/, "", line)) {
                    inside = 0
                    line = line "\non conflict (tenant, key) do update set type = excluded.type, low = excluded.low, high = excluded.high," \
                        "\n    scopes = excluded.scopes, initial = excluded.initial, description = excluded.description," \
                        "\n    choices = excluded.choices, prompt = excluded.prompt;"
                }
                show(line)
            }
            close(path)
        }
        /^-- include / { include($3, $4); next }
        /^-- (comments|settings)$/ {
            while ((getline slice <"sql/order.txt") > 0) {
                if ($2 == "comments") comments("sql/" slice)
                else settings("sql/" slice)
            }
            close("sql/order.txt")
            next
        }
        { show($0) }' "$@"
}

put() {
    if cmp -s "$1.part" "$1"; then rm "$1.part"; else mv "$1.part" "$1"; fi
}

build() {
    local -a slices
    local step
    mapfile -t slices < <(sed 's|^|sql/|' "$root/sql/order.txt")
    (cd "$root" && expand "${slices[@]}") >"$script.part"
    put "$script"
    for step in steps/*--"$version".sql; do
        [ -e "$step" ] || continue
        (cd "$root" && expand "extension/$step") >"${step##*/}.part"
        put "${step##*/}"
    done
    echo "extension/$script"
}

install_files() {
    local target file
    local -a changed=()
    build >/dev/null
    target=$("$(pg_bin)/pg_config" --sharedir)/extension
    # The current version and the step to it lie here, the older ones in released/.
    for file in mindful.control mindful--*"$version".sql released/mindful--*.sql; do
        [ -e "$file" ] && [ "$file" != "released/$script" ] || continue
        cmp -s "$file" "$target/${file##*/}" || changed+=("$file")
    done
    [ "${#changed[@]}" -gt 0 ] || return 0
    say "installing mindful $version into $target"
    as_root install -m 644 "${changed[@]}" "$target/"
}

freeze() {
    local frozen=released/$script
    local step
    build >/dev/null
    if [ -e "$frozen" ]; then
        cmp -s "$script" "$frozen" || die "$version is frozen with other contents: raise default_version first"
        return
    fi
    cp "$script" "$frozen"
    for step in steps/*--"$version".sql; do
        [ -e "$step" ] || continue
        mv "${step##*/}" released/
        rm "$step"
    done
    (cd released && sha256sum mindful--*.sql >SHA256SUMS)
    say "frozen: extension/$frozen"
}

case ${1:-} in
    build | freeze) "$1" ;;
    install) install_files ;;
    *) die "usage: install.sh build|install|freeze" ;;
esac
