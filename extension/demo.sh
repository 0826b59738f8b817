#!/usr/bin/env bash
# The main job on real text: every SQL statement is shown with its result. Run by `make demo`.
set -euo pipefail
shopt -s extglob
cd "$(dirname "$0")"

MANUAL=$(compgen -G '/usr/share/doc/postgresql-doc-*/html/routine-vacuuming.html' | tail -n 1) || {
    echo 'demo: the package postgresql-doc is not unpacked; a slim image leaves /usr/share/doc out' >&2
    exit 1
}
export MANUAL

psql --no-psqlrc --quiet --set=ON_ERROR_STOP=1 "$MINDFUL_DSN" --file=demo.sql
cat <<EOF

That was the main job. To go on, as superuser or as one of the demo's users:

    psql "$MINDFUL_DSN"
    psql "${MINDFUL_DSN/user=*([^&])/user=demo_ana}"

    SELECT llm_chat('What is my dog called?');
EOF
