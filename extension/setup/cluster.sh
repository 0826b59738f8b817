#!/usr/bin/env bash
# The private cluster: cluster.sh up|engine|down|foreground|psql [ARGUMENT...]|dsn|status|destroy
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# A container keeps what must outlive it in a volume, and what the image holds beside it.
state=${MINDFUL_STATE:-$MINDFUL_HOME}
data=$state/data
password=$state/password
server_log=$state/log/server
database=mindful
listen=${MINDFUL_LISTEN:-127.0.0.1}
certificate=${MINDFUL_TLS_CERTIFICATE:-$state/tls/server.crt}
key=${MINDFUL_TLS_KEY:-$state/tls/server.key}
client=client
client_password=$state/client-password

# pg_ctl refuses root.
server_user=$(id -un)
if is_root; then
    server_user=$(stat -c %U "$data" 2>/dev/null || true)
    case $server_user in '' | root) server_user=postgres ;; esac
fi
if [ -e "$data" ] && ! is_root && [ ! -O "$data" ]; then
    die "$data belongs to $(stat -c %U "$data"): run as that user, or as root"
fi

# Becomes the command: only ever called in a shell of its own.
exec_as_server() {
    cd /
    if ! is_root; then exec "$@"; fi
    exec setpriv --reuid="$server_user" --regid="$(id -gn "$server_user")" --init-groups -- "$@"
}
as_server() { (exec_as_server "$@"); }

# Only the server's user, and root, get in.
private_dir() {
    if is_root; then install -d -m 0700 -o "$server_user" "$1"; else install -d -m 0700 "$1"; fi
}

# The kernel takes 107 bytes of path for a socket: a deep home has its socket elsewhere.
choose_socket_dir() {
    local dir=$MINDFUL_HOME/run
    if [ "$(printf %s "$dir/.s.PGSQL.65535" | wc -c)" -le 107 ]; then
        private_dir "$dir"
    else
        dir=$(socket_dir)
        [ -n "$dir" ] && [ "$(stat -c %U "$dir" 2>/dev/null)" = "$server_user" ] || dir=$(as_server mktemp -d /tmp/mindful.XXXXXXXX)
    fi
    echo "$dir" >"$state/socket"
}
socket_dir() { cat "$state/socket" 2>/dev/null || true; }

port() { cat "$state/port" 2>/dev/null || true; }

# PL/Python finds its packages through PATH, and nothing else of the caller's environment may reach it.
server_environment() {
    environment=(env -i PATH="$MINDFUL_HOME/venv/bin:$(pg_bin):/usr/bin:/bin" LANG=C.UTF-8 PYTHONNOUSERSITE=1
        OMP_WAIT_POLICY=passive OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 HF_HUB_OFFLINE=1)
}

urlencode() {
    local LC_ALL=C text=$1 i c
    for ((i = 0; i < ${#text}; i++)); do
        c=${text:i:1}
        case $c in
            [A-Za-z0-9/._~-]) printf %s "$c" ;;
            *) printf '%%%02X' "'$c" ;;
        esac
    done
}

dsn() {
    [ -e "$state/port" ] || die "there is no cluster yet: run make up"
    printf 'postgresql:///%s?host=%s&port=%s&user=postgres\n' "$database" "$(urlencode "$(socket_dir)")" "$(port)"
}

sql() { "$(pg_bin)/psql" -X -q -v ON_ERROR_STOP=1 "$@" "$(dsn)"; }

# A live process of that number is not enough: after a crash or a reboot it may be another's.
# Asked as the server's user: in a container root may not see where another user's process is.
running() {
    local pid
    pid=$(head -n 1 "$data/postmaster.pid" 2>/dev/null) && [ "$(as_server readlink "/proc/$pid/cwd")" = "$data" ]
}

listens_beyond_loopback() {
    case $listen in 127.0.0.1 | ::1 | localhost | '') return 1 ;; esac
}

# new_password FILE
new_password() {
    (umask 077 && head -c 24 /dev/urandom | base64 | tr '+/' '-_' >"$1")
    ! is_root || chown "$server_user" "$1"
}

# Other machines connect by TLS alone, and never as the superuser, who has the socket.
remote_access() {
    local hba=$data/pg_hba.conf mark='# mindful: connections of other machines'
    if [ -z "${MINDFUL_TLS_CERTIFICATE:-}" ] && [ ! -e "$certificate" ]; then
        private_dir "${certificate%/*}"
        logged openssl "making a self-signed certificate" as_server openssl req -new -x509 -days 3650 -nodes \
            -newkey rsa:3072 -subj /CN=mindful -keyout "$key" -out "$certificate"
        as_server chmod 0600 "$key"
    fi
    # shellcheck disable=SC2016 # variables of the shell within
    grep -qxF "$mark" "$hba" || {
        echo "$mark"
        echo 'hostnossl all all all reject'
        echo 'host all postgres all reject'
        echo 'hostssl all all all scram-sha-256'
        grep -vxF 'host all all all scram-sha-256' "$hba" # what older versions wrote
    } | as_server sh -c 'cat >"$1.new" && mv "$1.new" "$1"' sh "$hba"
}

# An ordinary role for clients of other machines.
client_role() {
    [ -e "$client_password" ] || new_password "$client_password"
    sql -v name="$client" -v password="$(cat "$client_password")" <<'END'
select format('create role %I login', :'name') where to_regrole(:'name') is null \gexec
set log_min_error_statement = panic;
set client_min_messages = warning;
select format('alter role %I password %L', :'name', :'password') \gexec
select format('grant mindful_user to %I', :'name') \gexec
END
}

port_taken() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

choose_port() {
    local number=${MINDFUL_PORT:-}
    if [ -z "$number" ]; then
        number=$(port)
        while [ -z "$number" ] || port_taken "$number"; do number=$(shuf -n 1 -i 20000-32000); done
    fi
    echo "$number" >"$state/port"
}

create() {
    local new=$data.new
    rm -rf "$new"
    private_dir "$new"
    new_password "$password"
    # Whoever may enter the socket's directory is trusted; TCP asks for the password.
    logged initdb "making the database cluster $data" \
        as_server "${environment[@]}" initdb -D "$new" -U postgres \
        --pwfile="$password" --auth-local=trust --auth-host=scram-sha-256 --encoding=UTF8 --locale=C.UTF-8 --data-checksums
    echo "include_if_exists 'mindful.conf'" | as_server tee -a "$new/postgresql.conf" >/dev/null
    # Before pg_cron is loaded, which would complain every second of a missing database.
    logged createdb "making the database $database" as_server "${environment[@]}" \
        sh -c "echo 'create database $database;' | postgres --single -D \"\$1\" postgres" sh "$new"
    mv "$new" "$data"
}

quoted() { printf "'%s'" "${1//\'/\'\'}"; }

configuration() {
    local dir
    dir=$(socket_dir)
    cat <<END
# Written by extension/setup/cluster.sh at every start: put settings of your own into postgresql.conf.
listen_addresses = $(quoted "$listen")
port = $(port)
max_connections = 300
unix_socket_directories = $(quoted "\"$dir\"")
logging_collector = on
log_directory = $(quoted "$server_log")
log_filename = 'postgresql-%a.log'
log_rotation_age = 1d
log_truncate_on_rotation = on
END
    # Nothing that tests write has to outlive the machine; some of them replicate.
    [ "${MINDFUL_DURABLE:-on}" = on ] ||
        printf '%s\n' 'fsync = off' 'synchronous_commit = off' 'full_page_writes = off' 'wal_level = logical'
    if listens_beyond_loopback; then
        cat <<END
ssl = on
ssl_cert_file = $(quoted "$certificate")
ssl_key_file = $(quoted "$key")
END
    fi
    if [ -e "$("$(pg_bin)/pg_config" --pkglibdir)/pg_cron.so" ]; then
        cat <<END
shared_preload_libraries = 'pg_cron'
cron.database_name = '$database'
cron.host = $(quoted "$dir")
END
    fi
}

start() {
    local attempt pid again=''
    private_dir "$server_log"
    for attempt in 1 2 3; do
        choose_port
        configuration | as_server tee "$data/mindful.conf" >/dev/null
        # A dead server's lock file may name a number that a stranger has now.
        pid=$(head -n 1 "$data/postmaster.pid" 2>/dev/null || true)
        if [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null && ! running; then as_server rm "$data/postmaster.pid"; fi
        say "starting PostgreSQL $(cat "$data/PG_VERSION") on port $(port)$again"
        if as_server "${environment[@]}" pg_ctl -D "$data" -w -t 300 -l "$server_log/start.log" start \
            >"$log_dir/start.log" 2>&1 </dev/null; then
            return
        fi
        again=' again'
        sleep "$attempt" # a killed server's backends may still be leaving
    done
    tail -n 20 "$log_dir/start.log" "$server_log"/*.log >&2
    die "the server did not start; its logs: $server_log"
}

# The defaults' model files in a process for all connections, until the cluster stops.
engine() {
    local log=$log_dir/engine.log pid attempt
    server_environment
    engine_stop
    say "starting the engine"
    : >"$log"
    # Not as_server: its subshell would have the number that is kept, and engine_stop looks for a mindful.
    exec_as_server "${environment[@]}" setsid mindful --dsn "$(dsn)" engine --directory "$(socket_dir)/engine" \
        --llama-server "$MINDFUL_HOME/venv/bin/llama-server" >"$log" 2>&1 </dev/null &
    pid=$!
    echo "$pid" >"$state/engine.pid"
    for ((attempt = 0; attempt < 600; attempt++)); do
        if [ "$(grep -c 'served to all connections' "$log")" -ge 2 ]; then return; fi
        [ -e "/proc/$pid" ] || break
        sleep 0.2
    done
    tail -n 20 "$log" >&2
    die "the engine does not serve: $log"
}

# A live process of that number is not enough: it may be another's.
engine_stop() {
    local pid
    pid=$(cat "$state/engine.pid" 2>/dev/null) || return 0
    rm -f "$state/engine.pid"
    tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -qF " engine --directory $(socket_dir)/engine" || return 0
    say "stopping the engine"
    kill "$pid" 2>/dev/null || true
    timeout 20 tail --pid="$pid" -f /dev/null || true
}

stop() {
    engine_stop
    running || return 0
    say "stopping PostgreSQL"
    as_server "$(pg_bin)/pg_ctl" -D "$data" -w -t 60 -m fast stop >"$log_dir/stop.log" 2>&1 ||
        as_server "$(pg_bin)/pg_ctl" -D "$data" -w -m immediate stop >>"$log_dir/stop.log" 2>&1 ||
        die "the server does not stop: $log_dir/stop.log"
}

extensions() {
    sql -v database="$database" <<'END'
set client_min_messages = warning;
alter database :"database" set search_path = "$user", public, mindful;
create extension if not exists mindful cascade;
select 'alter extension mindful update' from pg_available_extensions
  where name = 'mindful' and installed_version <> default_version \gexec
select 'create extension if not exists pg_cron' from pg_available_extensions
  where name = 'pg_cron' and current_setting('shared_preload_libraries') ~ 'pg_cron' \gexec
\o /dev/null
select 'select mindful.worker_schedule()' from pg_extension where extname = 'pg_cron' \gexec
END
}

# register NAME KIND FILE OPTIONS: what an administrator has registered under that name stays.
register() {
    local file=$MINDFUL_HOME/models/$3
    if [ ! -e "$file" ]; then
        say "no $file yet: model $1 is not registered (make models)"
        return
    fi
    sql -v name="$1" -v kind="$2" -v source="$file" -v options="$4" <<'END'
select not exists (select from mindful.model where name = :'name') as absent \gset
\if :absent
\o /dev/null
select mindful.model_register(name => :'name', kind => :'kind', provider => 'llama_cpp', source => :'source', options => :'options');
\endif
END
}

up() {
    server_environment
    [ -e "$data/PG_VERSION" ] || create
    [ "$(cat "$data/PG_VERSION")" = "$(pg_major)" ] ||
        die "$data is of PostgreSQL $(cat "$data/PG_VERSION") and this is $(pg_major): set PG_MAJOR, or make clean"
    choose_socket_dir
    ! listens_beyond_loopback || remote_access
    if running && ! configuration | as_server cmp -s - "$data/mindful.conf"; then stop; fi
    running || start
    extensions
    ! listens_beyond_loopback || client_role
    register smollm2-135m-instruct generator smollm2-135m-instruct-q8_0.gguf '{"acknowledge": true, "dry_multiplier": 0.8}'
    register all-minilm-l6-v2 embedder all-minilm-l6-v2-f16.gguf '{"context_length": 256}'
}

# For containers: set up, then become the server.
foreground() {
    up
    stop
    configuration | as_server tee "$data/mindful.conf" >/dev/null
    exec_as_server "${environment[@]}" postgres -D "$data" -c logging_collector=off
}

# In a container: the server that sets up is stopped again before the one for clients starts.
setting_up() { tr '\0' ' ' </proc/1/cmdline | grep -qF 'cluster.sh foreground'; }

status() {
    if running && ! setting_up; then
        say "PostgreSQL $(cat "$data/PG_VERSION") runs on port $(port), data in $data"
        dsn
    else
        say "not running"
        return 3
    fi
}

# By name, and no other file: MINDFUL_HOME may be a directory that holds more.
destroy() {
    local name
    stop
    ! [ -e "$state/socket" ] || rm -rf "$(socket_dir)"
    for name in data data.new port socket engine.pid password client-password tls log; do rm -rf "${state:?}/$name"; done
    for name in run venv dev models packages log; do rm -rf "${MINDFUL_HOME:?}/$name"; done
    rmdir --ignore-fail-on-non-empty "$MINDFUL_HOME"
    [ ! -L "$home_path" ] || [ -e "$home_path" ] || rm "$home_path"
}

case ${1:-} in
    up | engine | foreground | dsn | status | destroy) "$1" ;;
    down) stop ;;
    psql)
        shift
        if setting_up; then
            while setting_up || ! "$(pg_bin)/pg_isready" -q -d "$(dsn)"; do sleep 0.2; done
        fi
        exec "$(pg_bin)/psql" "$(dsn)" "$@"
        ;;
    *) die "usage: cluster.sh up|engine|down|foreground|psql [ARGUMENT...]|dsn|status|destroy" ;;
esac
