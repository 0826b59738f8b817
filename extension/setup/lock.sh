#!/usr/bin/env bash
# lock.sh UV [ARGUMENT...]: write lock/*.txt, the versions and sums of all Python packages that python.sh installs, for
# all Pythons and processors. Versions stay as they are unless an ARGUMENT (--upgrade) says otherwise. Builds of torch
# without CUDA come from TORCH_INDEX, the address of PyTorch's index for CPUs or a directory; without it, their sums stay.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

uv=$1
shift
index=${TORCH_INDEX:-}
lock=$root/extension/setup/lock
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$root"

# compile OUTPUT ARGUMENT...
compile() {
    local output=$1
    shift
    "$uv" pip compile --quiet --no-config --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
        --output-file "$output" "$@"
}

# One set of versions for all, so that the files agree; uv keeps those that it finds in its output.
all=$work/all.txt
cat "$lock"/*.txt >"$all"
compile "$all" "$@" --extra server --extra documents --extra learning --extra reference --extra train --extra engine --extra engine-test --extra client --extra dev --extra mutate pyproject.toml
awk '/^[^ ]/ { sub(/ \\$/, ""); print }' "$all" >"$work/constraints"

# What torch needs beside itself where it is built for GPUs, and only then.
mapfile -t gpu < <(sed -nE 's/^((nvidia|cuda|triton)[^=]*)==.*/\1/p' "$all")
left_out=(--no-emit-package torch --no-emit-package llama-cpp-python "${gpu[@]/#/--no-emit-package=}")

# group NAME ARGUMENT...
group() {
    local name=$1
    shift
    rm -f "$lock/$name.txt"
    compile "$lock/$name.txt" --constraints "$work/constraints" "${left_out[@]}" "$@"
}
group server --extra server pyproject.toml
group documents --extra documents pyproject.toml
group learning --extra learning pyproject.toml
group reference --extra reference pyproject.toml
group train --extra train pyproject.toml
group engine --extra engine pyproject.toml
group engine-test --extra engine-test pyproject.toml
group dev --extra client --extra dev pyproject.toml
# Its reports need what is published as a source alone.
group mutate --no-emit-package yattag --extra mutate pyproject.toml
# Programs of others in a venv of their own: they need other versions of what the service uses.
rm -f "$lock/clients.txt"
compile "$lock/clients.txt" --prerelease disallow tests/clients/requirements.in
# Their dependencies, whole frameworks, are not needed to read their weights.
group models --no-deps --extra models pyproject.toml
printf '%s\n' hatchling editables 'scikit-build-core[pyproject]' >"$work/build.in"
group build "$work/build.in"
# Of it the build takes htmx's files alone.
echo 'django-htmx>=1.29' >"$work/htmx.in"
group htmx --no-deps "$work/htmx.in"

# entry NAME: a package with its sums, out of all.txt
entry() { awk -v name="$1" '/^[^ ]/ { found = index($0, name "==") == 1 } found' "$all"; }
entry llama-cpp-python >"$lock/llama.txt"
for name in "${gpu[@]}"; do entry "$name"; done >"$lock/torch-gpu.txt"

torch=$(entry torch | sed -nE '1s/ .*//p')
case $index in
    *://*) from=(--default-index "$index") ;;
    *) from=(--no-index --find-links "$index") ;;
esac
if ! "$uv" pip compile --quiet --no-config --no-deps --generate-hashes --no-header --python-version 3.11 "${from[@]}" \
    --output-file "$work/cpu" - <<<"$torch+cpu"; then
    say "${index:-TORCH_INDEX, which is not set,} has no $torch+cpu: sums of its builds stay"
    ! grep -q "^$torch " "$lock/torch.txt" || cp "$lock/torch.txt" "$work/cpu"
fi
{
    echo "$torch \\"
    { entry torch && cat "$work/cpu"; } | grep -oE -- '--hash=[a-z0-9:]+' | sort -u | sed 's/^/    /; $!s/$/ \\/'
} >"$work/torch"
mv "$work/torch" "$lock/torch.txt"
