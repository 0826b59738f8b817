\echo Use "CREATE EXTENSION mindful_router CASCADE" to load this file. \quit

create schema _mindful;
comment on schema _mindful is 'Internal functions of the extension mindful_router. They may change with any version; use the functions of the schema mindful.';

-- include sql/core/role.sql

create function _mindful.raise(sqlstate text, message text, hint text) returns boolean
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    raise exception using errcode = sqlstate, message = 'mindful: ' || left(message, 1000), hint = left(hint, 1000);
end
$$;
comment on function _mindful.raise(text, text, text) is
'Raises an error with a SQLSTATE, a message and a hint from within an expression.';

create table partition_map (
    only_one boolean primary key default true check (only_one),
    id uuid not null,
    version bigint not null,
    partitions integer not null check (partitions > 0 and partitions & (partitions - 1) = 0)
);
comment on table partition_map is 'The map of partitions: its id, its version, and how many partitions tenants are hashed to. One row.';
comment on column partition_map.id is 'Chosen at random when the map is made. Routers of the same partitions have the same id.';
comment on column partition_map.version is 'Rises by 1 with each change of the map.';
comment on column partition_map.partitions is 'A power of two.';

create table partition (
    number integer primary key check (number >= 0),
    version bigint not null,
    host text not null,
    port integer not null check (port between 1 and 65535),
    dbname text not null,
    options text not null
);
comment on table partition is 'Where each partition is. Several numbers may have the same database.';
comment on column partition.version is 'Version of the map at which this row changed. The partition refuses calls with another version.';
comment on column partition.host is 'Name or address, or a directory with a socket.';
comment on column partition.options is 'Further parameters of libpq, such as time-outs.';

create table partition_pin (
    tenant text primary key,
    number integer not null references partition
);
comment on table partition_pin is
'Tenants that are on a chosen partition. The hash of their names decides for all others. A role reads the row of its own tenant.';
alter table partition_pin enable row level security, force row level security;

create table _mindful.key_place (
    hash bytea primary key,
    tenant text not null
);
comment on table _mindful.key_place is 'Tenants of the keys that key_create made or key_use found, by the keys'' SHA-256.';

select pg_catalog.pg_extension_config_dump('mindful.partition_map', '');
select pg_catalog.pg_extension_config_dump('mindful.partition', '');
select pg_catalog.pg_extension_config_dump('mindful.partition_pin', '');
select pg_catalog.pg_extension_config_dump('_mindful.key_place', '');

create table _mindful.change (nothing boolean);
comment on table _mindful.change is 'Locked while the map is changed. It has no rows.';

create foreign data wrapper mindful_partition validator plproxy_fdw_validator;

create type _mindful.route as (
    number integer,
    map text,
    tenant text
);
comment on type _mindful.route is 'The partition of a call, the version of its place in the map, and the tenant of the call.';

create function _mindful.tenant() returns text
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    named text := nullif(current_setting('mindful.tenant', true), '');
begin
    if not pg_has_role(current_user, 'mindful_application', 'usage') then
        return current_user;
    elsif named is null then
        return (select r.rolname from pg_roles r where r.rolname = current_user and r.rolsuper);
    elsif named <> current_user and (named like 'pg\_%' or to_regrole(quote_ident(named)) is not null)
        and not (select r.rolsuper from pg_roles r where r.rolname = current_user)
    then
        perform _mindful.raise('42501', format('mindful.tenant is %L, the name of another role', named),
            'Give tenants names that no role has, such as customer-7.');
    end if;
    return named;
end
$$;
comment on function _mindful.tenant() is
'Returns the tenant of the current role as a partition does. The partition checks it again.';

create policy own on partition_pin for select using (tenant = (select _mindful.tenant()));

create function _mindful.pin_find(tenant text) returns integer
language sql stable parallel safe security definer
begin atomic
    select p.number from mindful.partition_pin p where p.tenant = pin_find.tenant;
end;
comment on function _mindful.pin_find(text) is
'Returns the partition that any tenant is pinned to, NULL if it is not pinned. For administrators and applications.';

-- PL/pgSQL keeps the plans of these two. SQL functions, planned anew, took most of a call's time on the router.
create function _mindful.partition_of(tenant text) returns integer
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
set plan_cache_mode = force_generic_plan
as $$
declare
    pinned integer;
begin
    if tenant is not distinct from _mindful.tenant() then
        pinned := (select p.number from mindful.partition_pin p where p.tenant = partition_of.tenant);
    elsif has_function_privilege('_mindful.pin_find(text)', 'execute') then
        pinned := _mindful.pin_find(tenant);
    else
        perform _mindful.raise('42501', format('role %s cannot find the partition of the tenant %L', current_user, tenant),
            'Members of mindful_admin and mindful_application find the partitions of other tenants.');
    end if;
    return (
        select coalesce(pinned, (hashtextextended(partition_of.tenant collate "C", 0) & (m.partitions - 1))::integer)
        from mindful.partition_map m
    );
end
$$;
comment on function _mindful.partition_of(text) is
'Returns the number of a tenant''s partition: the pinned one, else the low bits of the hash of its name. Error 42501: another tenant than the role''s own, for roles other than administrators and applications.';

create function _mindful.route_to(number integer, tenant text default _mindful.tenant()) returns _mindful.route
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
set plan_cache_mode = force_generic_plan
as $$
begin
    return (
        select row(p.number, m.id || '/' || m.partitions || '/' || p.version || '/@VERSION@'
            || case when current_setting('transaction_read_only') = 'on' then '/read only' else '' end, tenant)::_mindful.route
        from mindful.partition p, mindful.partition_map m
        where p.number = route_to.number
    );
end
$$;
comment on function _mindful.route_to(integer, text) is 'Returns the route of a call of the current role to a partition of a number.';

-- Volatile: a call that is routed again must see the new map, so each query needs a snapshot of its own.
create function _mindful.route(owner text default null) returns _mindful.route
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    tenant text := _mindful.tenant();
    -- A call for no tenant may run on any partition.
    chosen integer := coalesce(_mindful.partition_of(coalesce(owner, tenant)),
        (select floor(random() * m.partitions)::integer from mindful.partition_map m));
begin
    if chosen is null then
        perform _mindful.raise('55000', 'the router has no map of partitions', 'Run mindful partition init.');
    end if;
    return _mindful.route_to(chosen, tenant);
end
$$;
comment on function _mindful.route(text) is
'Returns the route of a call of the current role, to the partition of its tenant or of another one. Error 55000: the router has no map.';

create function _mindful.route_error(state text, message text, detail text, hint text, used _mindful.route) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    -- Messages of PL/Proxy: of a partition's error, and of its own.
    remote text := substring(message from '^[^ ]+\(\d+\): \[[^]]*\] REMOTE [A-Z]+: (.*)$');
    own text := substring(message from '^PL/Proxy function [^ ]+: (?:\[[^]]*\] )?(.*)$');
    place text := (select format('partition %s (%s, database %s)', p.number, p.host, p.dbname)
        from mindful.partition p where p.number = used.number);
begin
    -- The partition was moved while the call waited, and refused it before it did anything.
    if state = '40001' and remote ~ '^mindful: (partition \d+ is not in the database|the router has version)'
        and not exists (select from mindful.partition p where (_mindful.route_to(p.number)).map = used.map and p.number = used.number)
    then
        return;
    end if;
    if remote is not null then
        message := remote;
        detail := nullif(regexp_replace(detail, '^Remote detail: ', ''), '');
        hint := nullif(regexp_replace(hint, '^Remote hint: ', ''), '');
    elsif own is not null then
        message := regexp_replace(rtrim(own, E'\n'), '\s*\n\s*', ' ', 'g');
    end if;
    if own ~ '(authentication failed|no password supplied|role ".*" does not exist|no pg_hba.conf entry|permission denied for database)' then
        state := '28000';
        message := format('mindful: %s refused the role %s: %s', place, current_user, message);
        hint := format('Run mindful partition role %s, which writes its password to the partitions and the router.', current_user);
    elsif state in ('57P01', '57P02', '57P03', '57P05') or state like '08%'
        or own ~ '(PQconnect|PQsend|PQconsume|PQflush|conn|server|timeout|socket|SSL|EOF)'
    then
        state := '08006';
        message := format('mindful: %s is unreachable: %s', place, message);
        hint := 'Calls of tenants on other partitions go on. Run mindful partition check.';
    elsif state = '42704' and message ~ 'user mapping' then
        state := '28000';
        message := format('mindful: the role %s has no user mapping in the router', current_user);
        hint := format('Run mindful partition role %s.', current_user);
    end if;
    if coalesce(detail, '') = '' and coalesce(hint, '') = '' then
        raise exception using errcode = state, message = message;
    elsif coalesce(detail, '') = '' then
        raise exception using errcode = state, message = message, hint = hint;
    end if;
    raise exception using errcode = state, message = message, detail = detail, hint = coalesce(hint, '');
end
$$;
comment on function _mindful.route_error(text, text, text, text, _mindful.route) is
'Returns if the map has changed since the call was routed, which is then routed again. Otherwise raises the error of the call: a partition''s own error as the partition raised it, else 08006 (unreachable) or 28000 (role refused or without a user mapping).';

create function tenant_set(tenant text) returns text
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform set_config('mindful.tenant', coalesce(tenant, ''), true);
    if nullif(tenant, '') is distinct from _mindful.tenant() then
        perform _mindful.raise('42501', format('role %s cannot act for the tenant %L', current_user, tenant),
            format('A superuser can GRANT mindful_application TO %I.', current_user));
    end if;
    return tenant;
end
$$;

create function partition_find(tenant text default null)
returns table (number integer, host text, port integer, dbname text, map text, caller text)
language sql stable parallel safe security invoker
begin atomic
    select p.number, p.host, p.port, p.dbname, (_mindful.route_to(p.number)).map, _mindful.tenant()
    from mindful.partition p
    where p.number = _mindful.partition_of(coalesce(partition_find.tenant, _mindful.tenant()));
end;
comment on function partition_find(text) is
'Returns the number and the address of a tenant''s partition, by default of the caller''s. Connect to it for streams (a routed stream returns all pieces at its end), memory_attach and tool_register. Begin there with mindful_route.enter(number, map, caller), which a move waits for. caller: the tenant of the role. Example: select host, port, dbname from partition_find();';

create function _mindful.conninfo_value(value text) returns text
language sql immutable parallel safe security invoker
begin atomic
    select '''' || pg_catalog.regexp_replace(value, '([''\\])', '\\\1', 'g') || '''';
end;
comment on function _mindful.conninfo_value(text) is 'Quotes a value of a connection string.';

create function _mindful.server_write() returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    map mindful.partition_map := (select m from mindful.partition_map m);
    present text[];
    made boolean;
    options text;
begin
    select s.srvoptions, true into present, made from pg_foreign_server s where s.srvname = 'mindful';
    with wanted as (
        select 'p' || p.number as name, concat_ws(' ', 'host=' || _mindful.conninfo_value(p.host), 'port=' || p.port,
            'dbname=' || _mindful.conninfo_value(p.dbname), p.options) as value
        from mindful.partition p
        union all
        -- A composite type has another number in each database, so values travel as texts.
        select 'disable_binary', '1'
    ), had as (
        select split_part(o, '=', 1) as name, substr(o, strpos(o, '=') + 1) as value from unnest(present) o
    )
    select string_agg(case when w.name is null then format('drop %I', h.name)
        else concat(case when h.name is not null then 'set ' when made then 'add ' end, format('%I %L', w.name, w.value)) end, ', ')
    into options
    from wanted w full join had h using (name)
    where w.value is distinct from h.value;
    if made then
        execute format('alter server mindful version %L', map.version) || case when options is null then '' else format(' options (%s)', options) end;
        return;
    end if;
    execute format('create server mindful type %L version %L foreign data wrapper mindful_partition options (%s)', map.id, map.version, options);
    grant usage on foreign server mindful to mindful_user, mindful_reader, mindful_admin;
end
$$;
comment on function _mindful.server_write() is 'Writes the map to the foreign server that PL/Proxy reads. For superusers.';

create function _mindful.map_write(places jsonb, partitions integer default null) returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    risen bigint;
begin
    update mindful.partition_map m set version = m.version + 1, partitions = coalesce(map_write.partitions, m.partitions)
    returning m.version into risen;
    insert into mindful.partition as p
    select n.number, risen, n.host, n.port, n.dbname, n.options
    from jsonb_to_recordset(places) n (number integer, host text, port integer, dbname text, options text)
    on conflict on constraint partition_pkey do update
    set version = risen, host = excluded.host, port = excluded.port, dbname = excluded.dbname, options = excluded.options;
    perform _mindful.server_write();
    return risen;
end
$$;
comment on function _mindful.map_write(jsonb, integer) is
'Writes places of partitions, objects with number, host, port, dbname and options, and their number into the map. Returns the new version of the map. For superusers.';

create function _mindful.role_map(role text, password text) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    execute format('drop user mapping if exists for %I server mindful', role);
    execute format('create user mapping for %I server mindful options (user %L%s)', role, role,
        case when password is null then '' else format(', password %L', password) end);
end
$$;
comment on function _mindful.role_map(text, text) is 'Writes the user mapping of a role, whose name is the same on the partitions. For superusers.';

create function _mindful.direct_hint() returns text
language sql stable parallel safe security invoker
begin atomic
    select pg_catalog.format('Connect to the partition: host %s, port %s, database %s.', f.host, f.port, f.dbname) from mindful.partition_find() f;
end;
comment on function _mindful.direct_hint() is 'Returns a hint with the address of the caller''s partition.';

create function _mindful.key_keep(tenant text, key text) returns text
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    insert into _mindful.key_place values (sha256(convert_to(key, 'UTF8')), tenant) on conflict do nothing;
    return key;
end
$$;
comment on function _mindful.key_keep(text, text) is 'Keeps the tenant of a key that the caller has, and returns the key.';

create function _mindful.key_find(key text) returns text
language sql stable parallel safe security definer
begin atomic
    select p.tenant from _mindful.key_place p where p.hash = pg_catalog.sha256(pg_catalog.convert_to(key, 'UTF8'));
end;
comment on function _mindful.key_find(text) is 'Returns the tenant of a key, NULL if the router does not know it.';

create function key_use(key text)
returns table (tenant text, id uuid, scopes text[], wait_s integer)
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
set client_min_messages = warning
as $$
declare
    route _mindful.route;
    owner text := _mindful.key_find($1);
    place integer;
    used record;
    failed text;
    failed_route _mindful.route;
    error text[];
    route_detail text;
    route_hint text;
begin
    -- A key that was made on a partition directly is looked for on all of them, once.
    for place in
        select min(p.number) from mindful.partition p group by p.host, p.port, p.dbname
        having owner is null or bool_or(p.number = _mindful.partition_of(owner)) order by 1
    loop
        begin
            route := case when owner is null then _mindful.route_to(place) else _mindful.route(owner) end;
            select k.* into used from _mindful.key_use(route.number, route.map, route.tenant, $1) k;
            perform _mindful.key_keep(used.tenant, $1);
            tenant := used.tenant; id := used.id; scopes := used.scopes; wait_s := used.wait_s;
            return next;
            return;
        exception when others then
            get stacked diagnostics route_detail = pg_exception_detail, route_hint = pg_exception_hint;
            -- The partition that does not answer may hold the key.
            if failed is null or sqlstate <> '28000' or sqlerrm !~ 'the key is unknown' then
                failed := sqlstate;
                error := array[sqlerrm, route_detail, route_hint];
                failed_route := route;
            end if;
        end;
    end loop;
    perform _mindful.route_error(failed, error[1], error[2], error[3], failed_route);
    perform _mindful.raise('40001', 'the map of partitions changed', 'Call again.');
end
$$;
