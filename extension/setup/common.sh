# shellcheck shell=bash
# Sourced by every script here: where things are, who runs what, how progress is shown.
set -euo pipefail
umask 022 # user postgres reads what root builds

root=$(cd -P "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

say() { printf 'mindful: %s\n' "$*" >&2; }
die() {
    say "error: $*"
    exit 1
}

is_root() { [ "$(id -u)" = 0 ]; }
as_root() { if is_root; then "$@"; else sudo "$@"; fi; }

hash12() { sha256sum | cut -c1-12; }

# Root's clones often lie where no other user may go (its home, a mktemp directory), but the server runs
# as postgres: everything it needs then moves to a public place and the usual path becomes a link to it.
resolve_home() {
    local home=$home_path target
    if [ ! -e "$home" ]; then
        mkdir -p "$(dirname "$home")"
        if is_root && ! setpriv --reuid=65534 --regid=65534 --clear-groups test -x "$(dirname "$home")"; then
            target=/var/lib/mindful/$(printf %s "$home" | hash12)
            say "user postgres cannot reach $(dirname "$home"): $home is a link to $target"
            mkdir -p "$target"
            ln -sfn "$target" "$home"
        else
            mkdir "$home"
        fi
    fi
    (cd -P "$home" && pwd) || die "$home is not a directory that $(id -un) may enter"
}

home_path=${MINDFUL_HOME:-$root/.mindful}
MINDFUL_HOME=$(resolve_home)
export MINDFUL_HOME
log_dir=$MINDFUL_HOME/log
[ -w "$MINDFUL_HOME" ] || die "$MINDFUL_HOME belongs to $(stat -c %U "$MINDFUL_HOME"): run as that user, or as root"
mkdir -p "$log_dir"

# The newest server that has PL/Python, else the one that the distribution would install.
pg_major() {
    local major=${PG_MAJOR:-}
    [ -n "$major" ] || major=$(compgen -G '/usr/lib/postgresql/*/lib/plpython3.so' | cut -d/ -f5 | sort -n | tail -n 1 || true)
    [ -n "$major" ] || major=$(apt-cache policy postgresql | sed -n 's/.*Candidate: \([0-9]*\).*/\1/p')
    [ -n "$major" ] || return 1
    echo "$major"
}

pg_bin() {
    local major
    major=$(pg_major) && [ -x "/usr/lib/postgresql/$major/bin/pg_ctl" ] ||
        die "PostgreSQL with PL/Python is not installed: run extension/setup/packages.sh"
    echo "/usr/lib/postgresql/$major/bin"
}

# What the log of a long step says about its progress: ninja's counter, where there is one.
_tick() {
    local what=$1 log=$2 started=$SECONDS next=30 seconds count
    while sleep 1 && kill -0 $$ 2>/dev/null; do
        seconds=$((SECONDS - started))
        count=$(tail -c 20000 "$log" | grep -oE '^ *\[[0-9]+/[0-9]+\]' | tail -n 1 | tr -d ' []' || true)
        if [ -t 2 ]; then
            printf '\r\033[Kmindful: %s ... %s%ss' "$what" "${count:+$count, }" "$seconds" >&2
        elif [ "$seconds" -ge "$next" ]; then
            say "$what ... ${count:+$count, }${seconds}s"
            next=$((seconds + 30))
        fi
    done
}

# logged NAME WHAT COMMAND...: the command's output goes to a log, a ticking line shows that it lives.
logged() {
    local log=$log_dir/$1.log what=$2 status=0 ticker
    shift 2
    say "$what"
    : >"$log"
    _tick "$what" "$log" &
    ticker=$!
    "$@" >"$log" 2>&1 </dev/null || status=$?
    kill "$ticker" 2>/dev/null || true
    wait "$ticker" 2>/dev/null || true
    [ ! -t 2 ] || printf '\r\033[K' >&2
    [ "$status" = 0 ] && return
    tail -n 30 "$log" >&2
    die "$what failed; all of its output: $log"
}
