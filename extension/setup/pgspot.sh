#!/usr/bin/env bash
# pgspot.sh PGSPOT: look for unsafe search paths in the built script, read as CREATE EXTENSION runs it.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# pgspot knows neither an extension's schema, which exists before the script and takes only its objects, nor
# `begin atomic`, whose names are bound at creation, in that schema's search path: both are spelled out.
{
    echo 'create schema mindful; create schema _mindful; set search_path = pg_catalog, mindful, pg_temp;'
    # shellcheck disable=SC2016 # SQL's dollars
    sed '/^begin atomic$/,/^end;$/{
        s/^begin atomic$/set search_path = pg_catalog, mindful, pg_temp as $atomic$/
        s/^end;$/$atomic$;/
    }' "$root/$("$root/extension/setup/install.sh" build)"
} | "$1" --ignore-lang plpython3u
