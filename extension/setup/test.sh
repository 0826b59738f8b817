#!/usr/bin/env bash
# test.sh N PYTEST [ARGUMENT...]: run pytest in N processes, each with a cluster of its own that is gone afterwards.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

processes=$1
shift

# In memory where there is room: every test has its own database, and making its 350 files takes ten times as long
# on a disk.
folder=$MINDFUL_HOME
if [ -w /dev/shm ] && [ "$(df --output=avail -B1M /dev/shm | tail -n 1)" -ge 4096 ]; then folder=/dev/shm; fi
state=$(mktemp -d "$folder/mindful-test.XXXXXXXX")
chmod 755 "$state"

cluster() {
    MINDFUL_DURABLE=off MINDFUL_STATE=$state/$1 MINDFUL_PORT='' "$root/extension/setup/cluster.sh" "$2"
}
finish() {
    local n
    for ((n = 1; n <= processes; n++)); do cluster "$n" down || true; done
    rm -rf "$state"
}
trap finish EXIT
trap "exit 1" HUP INT TERM

dsns=()
for ((n = 1; n <= processes; n++)); do
    mkdir "$state/$n"
    cluster "$n" up &
    starting[n]=$!
done
for ((n = 1; n <= processes; n++)); do
    wait "${starting[n]}"
    dsns+=("$(cluster "$n" dsn)")
done
export MINDFUL_TEST_DSN="${dsns[*]}"
[ "$processes" = 1 ] || set -- "$@" --numprocesses "$processes" --dist worksteal
"$@"
