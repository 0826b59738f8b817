#!/usr/bin/env bash
# install.sh build     sql/NN_*.sql -> extension/mindful--X.Y.Z.sql (prints its path)
# install.sh install   build, then copy what changed into the server's extension directory
# install.sh freeze    build, then keep a copy in extension/released/ for the upgrade tests
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

cd "$root/extension"
version=$(sed -n "s/^default_version = '\(.*\)'/\1/p" mindful.control)
[ -n "$version" ] || die "extension/mindful.control states no default_version"
script=mindful--$version.sql

build() {
    local -a slices
    mapfile -t slices < <(cd "$root" && printf '%s\n' sql/[0-9]*.sql | LC_ALL=C sort)
    (cd "$root" && sed "s/@VERSION@/$version/g" "${slices[@]}") >"$script.part"
    if cmp -s "$script.part" "$script"; then rm "$script.part"; else mv "$script.part" "$script"; fi
    echo "extension/$script"
}

install_files() {
    local target file
    local -a changed=()
    build >/dev/null
    target=$("$(pg_bin)/pg_config" --sharedir)/extension
    # Steps (mindful--A--B.sql) and the current version lie here, the older versions in released/.
    for file in mindful.control mindful--*.sql released/mindful--*.sql; do
        [ -e "$file" ] && [ "$file" != "released/$script" ] || continue
        cmp -s "$file" "$target/${file##*/}" || changed+=("$file")
    done
    [ "${#changed[@]}" -gt 0 ] || return 0
    say "installing mindful $version into $target"
    as_root install -m 644 "${changed[@]}" "$target/"
}

freeze() {
    local frozen=released/$script
    build >/dev/null
    if [ -e "$frozen" ]; then
        cmp -s "$script" "$frozen" || die "$version is frozen with other contents: raise default_version first"
        return
    fi
    cp "$script" "$frozen"
    (cd released && sha256sum mindful--*.sql >SHA256SUMS)
    say "frozen: extension/$frozen"
}

case ${1:-} in
    build | freeze) "$1" ;;
    install) install_files ;;
    *) die "usage: install.sh build|install|freeze" ;;
esac
