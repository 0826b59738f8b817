\echo Use "ALTER EXTENSION mindful UPDATE TO '0.2.0'" to load this file. \quit

alter table model rename column licence to license;

-- internal functions have a schema of their own
create schema _mindful;
comment on schema _mindful is 'Internal functions of the extension mindful. They may change with any version; use the functions of the schema mindful.';
alter function _tenant() set schema _mindful;
alter function _mindful._tenant() rename to tenant;
alter function _reads_all() set schema _mindful;
alter function _mindful._reads_all() rename to reads_all;
alter function _raise(text, text, text) set schema _mindful;
alter function _mindful._raise(text, text, text) rename to raise;
alter function _text_argument(text, text) set schema _mindful;
alter function _mindful._text_argument(text, text) rename to text_argument;
alter function _integer_argument(text, integer, integer, integer) set schema _mindful;
alter function _mindful._integer_argument(text, integer, integer, integer) rename to integer_argument;
alter function _model_find(text, text) set schema _mindful;
alter function _mindful._model_find(text, text) rename to model_find;
alter function _embedding_table(text) set schema _mindful;
alter function _mindful._embedding_table(text) rename to embedding_table;
alter function _terms(text) set schema _mindful;
alter function _mindful._terms(text) rename to terms;
alter function _vector(text) set schema _mindful;
alter function _mindful._vector(text) rename to vector;
alter function _embedding_table_create(text, integer) set schema _mindful;
alter function _mindful._embedding_table_create(text, integer) rename to embedding_table_create;
alter function _memory_embed() set schema _mindful;
alter function _mindful._memory_embed() rename to memory_embed;
alter function _memory_index() set schema _mindful;
alter function _mindful._memory_index() rename to memory_index;
alter function _length(text) set schema _mindful;
alter function _mindful._length(text) rename to length;
alter function _memory_count_add(text, bigint, numeric) set schema _mindful;
alter function _mindful._memory_count_add(text, bigint, numeric) rename to memory_count_add;
alter function _memory_kind(text) set schema _mindful;
alter function _mindful._memory_kind(text) rename to memory_kind;
alter function _metadata(jsonb) set schema _mindful;
alter function _mindful._metadata(jsonb) rename to metadata;
alter function _array_elements(text, jsonb, text[]) set schema _mindful;
alter function _mindful._array_elements(text, jsonb, text[]) rename to array_elements;
alter function _memory_total() set schema _mindful;
alter function _mindful._memory_total() rename to memory_total;
alter function _relation_name(oid) set schema _mindful;
alter function _mindful._relation_name(oid) rename to relation_name;
alter function _attachment_write(text, text[], text[]) set schema _mindful;
alter function _mindful._attachment_write(text, text[], text[]) rename to attachment_write;
alter function _attachment_delete(text, text[]) set schema _mindful;
alter function _mindful._attachment_delete(text, text[]) rename to attachment_delete;
alter function _session_lock(uuid) set schema _mindful;
alter function _mindful._session_lock(uuid) rename to session_lock;
alter function _message_role(text, bigint) set schema _mindful;
alter function _mindful._message_role(text, bigint) rename to message_role;
alter function _session_turns(uuid, integer) set schema _mindful;
alter function _mindful._session_turns(uuid, integer) rename to session_turns;
alter function _review_subject(bigint) set schema _mindful;
alter function _mindful._review_subject(bigint) rename to review_subject;

-- tenant
create or replace function _mindful.tenant_refuse(message text, hint text) returns void
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    if not (select r.rolsuper from pg_roles r where r.rolname = current_user) then
        perform _mindful.raise('42501', message, hint);
    end if;
end
$$;
comment on function _mindful.tenant_refuse(text, text) is
'Raises 42501 with a message and a hint, unless the current role is a superuser. Background workers run as superuser and act for every tenant.';
create or replace function _mindful.tenant() returns text
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    named text := nullif(current_setting('mindful.tenant', true), '');
begin
    if not pg_has_role(current_user, 'mindful_application', 'usage') then
        named := current_user;
    elsif named is null then
        -- A superuser counts as a member of every role.
        return (select r.rolname from pg_roles r where r.rolname = current_user and r.rolsuper);
    -- PostgreSQL reserves names that begin with pg_ for its own roles.
    elsif named <> current_user and (named like 'pg\_%' or to_regrole(quote_ident(named)) is not null) then
        perform _mindful.tenant_refuse(format('mindful.tenant is %L, the name of another role', named),
            'Give tenants names that no role has, such as customer-7.');
    end if;
    -- Every policy calls this function, so rare work is done inside the branches only.
    if exists (select from mindful.tenant_claim c where c.tenant = named and c.by_role <> (named = current_user)) then
        perform _mindful.tenant_refuse(
            format(case when named = current_user then 'the name of the role %s is the name of a tenant of an application'
                else 'the tenant %s was a role' end, named),
            'Rename the role or the tenant.');
    end if;
    return named;
end
$$;
comment on function _mindful.tenant() is
'Returns the tenant whose rows the current role reads and writes. For members of mindful_application it is the setting mindful.tenant; if that is empty it is NULL, and no rows are visible. For other roles it is the role''s name. A superuser may set any tenant. Error 42501: the tenant has the name of another role, or the name is claimed for the other kind of tenant (see tenant_claim).';
create or replace function _mindful.reads_all() returns boolean
language sql stable parallel safe security invoker
begin atomic
    select pg_catalog.pg_has_role(current_user, 'mindful_reader', 'usage');
end;
comment on function _mindful.reads_all() is
'Returns whether the current role sees all tenants'' figures in the views for reports. It does not make rows of tables visible.';
create table tenant_claim (
    tenant text primary key,
    by_role boolean not null
);
alter table tenant_claim enable row level security, force row level security;
create policy own on tenant_claim
    using (tenant = current_user::text or tenant = pg_catalog.current_setting('mindful.tenant', true)
        and pg_catalog.pg_has_role(current_user, 'mindful_application', 'usage'))
    with check (tenant = (select _mindful.tenant()) and by_role = (tenant = current_user::text));
select pg_catalog.pg_extension_config_dump('mindful.tenant_claim', '');
comment on table tenant_claim is
'Names of tenants that have written, with their kind: role or application. A role created or renamed later cannot read the rows of an application''s tenant of the same name, and an application cannot read those of a former role.';
comment on column tenant_claim.by_role is 'true: the tenant is a role. false: an application sets its name.';
create or replace function _mindful.tenant_required() returns text
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    tenant text := _mindful.tenant();
begin
    if tenant is null then
        perform _mindful.raise('55000', 'no tenant is set',
            'Set it in the transaction: BEGIN; SELECT tenant_set(''customer-7''); ...');
    end if;
    return tenant;
end
$$;
comment on function _mindful.tenant_required() is
'Returns the tenant. Error 55000: the role is a member of mindful_application and has set no tenant.';
create or replace function _mindful.tenant_claim() returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
set lock_timeout = '1ms'
as $$
begin
    insert into mindful.tenant_claim (tenant, by_role)
    select t.name, t.name = current_user from _mindful.tenant_required() t (name)
    on conflict do nothing;
exception when lock_not_available or serialization_failure then
    null;  -- Another transaction claims the same name. Writers must not wait for each other.
end
$$;
comment on function _mindful.tenant_claim() is 'Stores the tenant''s name and kind in tenant_claim.';
create or replace function _mindful.tenant_claimed() returns text
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    writer text := _mindful.tenant_required();
begin
    if not exists (select from mindful.tenant_claim c where c.tenant = writer) then
        perform _mindful.tenant_claim();
    end if;
    return writer;
end
$$;
comment on function _mindful.tenant_claimed() is
'Returns the tenant of new rows, for policies, and claims its name at its first row. Error 55000: no tenant is set.';
create or replace function tenant_set(tenant text) returns text
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
comment on function tenant_set(text) is
'Sets the tenant until the transaction ends and returns it, for members of mindful_application. NULL removes it. It works as SET LOCAL mindful.tenant, so it is safe behind a connection pooler. Error 42501: the role is not a member of mindful_application, or the tenant has the name of another role. Example: begin; select tenant_set(''customer-7''); select llm_chat(''Hello''); commit;';
create or replace function _mindful.is_restore() returns boolean
language sql stable parallel safe security invoker
begin atomic
    select pg_catalog.current_setting('row_security') <> 'on'
        and not exists (
            select from pg_catalog.pg_roles r where r.rolname in (session_user, current_user) and not (r.rolsuper or r.rolbypassrls)
        );
end;
comment on function _mindful.is_restore() is
'Returns whether rows are being restored from a dump; triggers then keep them unchanged. A restore has row_security off, and both the session''s role and the current role bypass policies. row_security alone is not enough: any role can turn it off within a statement whose policies are applied already, and in functions and foreign keys that run with the owner''s rights.';
create or replace function _mindful.read_only_hint() returns text
language sql stable parallel safe security invoker
begin atomic
    select case
        when pg_catalog.pg_is_in_recovery() then 'This server is a standby: connect to the primary.'
        when pg_catalog.current_setting('transaction_read_only') = 'on'
            then 'Start a read-write transaction. default_transaction_read_only may be set for the role, the database or the connection.'
    end;
end;
comment on function _mindful.read_only_hint() is 'Returns a hint for a transaction that may not write, NULL if it may write.';
create or replace function _mindful.deprecated(old_name text, new_name text) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    raise notice '%() is deprecated', old_name using hint = format('Call %s() instead. Version 0.4.0 removes the old name.', new_name);
end
$$;
comment on function _mindful.deprecated(text, text) is
'Raises a notice that a function is deprecated, with the name of the new function.';
create or replace function _mindful.raise(sqlstate text, message text, hint text) returns boolean
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    raise exception using errcode = sqlstate, message = 'mindful: ' || left(message, 1000), hint = left(hint, 1000);
end
$$;
comment on function _mindful.raise(text, text, text) is
'Raises an error with a SQLSTATE, a message and a hint from within an expression. Message and hint are cut at 1000 characters.';
create or replace function _mindful.short_argument(name text, value text) returns text
language sql stable parallel safe security invoker
begin atomic
    select case
        when pg_catalog.octet_length(value) > 1024
            then _mindful.raise('54000', pg_catalog.format('%s has %s bytes, more than 1024', name, pg_catalog.octet_length(value)),
                'Pass a shorter text.')::text
        else value
    end;
end;
comment on function _mindful.short_argument(text, text) is
'Returns a name or title of at most 1024 bytes. Error 54000: it is longer.';
create or replace function _mindful.json_argument(name text, value jsonb) returns jsonb
language sql stable parallel safe security invoker
begin atomic
    select case
        when pg_catalog.pg_column_size(value) > 262144
            then _mindful.raise('54000', pg_catalog.format('%s has %s bytes, more than 262144', name, pg_catalog.pg_column_size(value)),
                'Split it into several calls.')::text::jsonb
        else value
    end;
end;
comment on function _mindful.json_argument(text, jsonb) is 'Returns JSON of at most 262144 bytes. Error 54000: it is larger.';
create or replace function _mindful.text_argument(name text, value text) returns text
language sql stable parallel safe security invoker
begin atomic
    select case
        when value is null
            then _mindful.raise('22004', name || ' is null', 'Pass a text.')::text
        when pg_catalog.octet_length(value) > 262144
            then _mindful.raise('54000', pg_catalog.format('%s has %s bytes, more than 262144', name, pg_catalog.octet_length(value)),
                'Split it into passages. Recall works better on short texts.')::text
        when pg_catalog.btrim(value, E' \t\n\r') = ''
            then _mindful.raise('22023', name || ' is empty', 'Pass a text with at least one visible character.')::text
        else value
    end;
end;
comment on function _mindful.text_argument(text, text) is
'Returns a text that can be stored as a memory. Errors: 22004 (NULL), 22023 (empty), 54000 (more than 262144 bytes).';
create or replace function _mindful.writable() returns boolean
language sql stable parallel safe security invoker
begin atomic
    select case when h.hint is null then _mindful.tenant_required() is not null
        else _mindful.raise('25006', 'the transaction is read-only', h.hint) end
    from (select _mindful.read_only_hint() as hint) h;
end;
comment on function _mindful.writable() is
'Returns true if the transaction may write. Writing functions call it first. Errors: 25006 (read-only transaction or standby), 55000 (no tenant is set).';
insert into tenant_claim (tenant, by_role)
select t.tenant, exists (select from pg_catalog.pg_roles r where r.rolname operator(pg_catalog.=) t.tenant)
from (select tenant from memory union select tenant from session union select tenant from generation) t;
do $do$
declare
    changed record;
begin
    for changed in
        select p.polname, p.polrelid::regclass as relation,
            pg_catalog.regexp_replace(pg_catalog.pg_get_expr(p.polwithcheck, p.polrelid), '\mtenant\(\)', 'tenant_claimed()', 'g') as expression
        from pg_catalog.pg_policy p
        join pg_catalog.pg_class c on c.oid operator(pg_catalog.=) p.polrelid
        where c.relnamespace operator(pg_catalog.=) 'mindful'::regnamespace and c.relname operator(pg_catalog.<>) 'tenant_claim'
            and pg_catalog.pg_get_expr(p.polwithcheck, p.polrelid) operator(pg_catalog.~) '\mtenant\(\)'
    loop
        execute pg_catalog.format('alter policy %I on %s with check (%s)', changed.polname, changed.relation, changed.expression);
    end loop;
end
$do$;

-- Numbers and times near the limits of their types. PostgreSQL raises an error when a product underflows, and its
-- timestamps have years that clients cannot read.

create function _mindful.power(base double precision, exponent double precision) returns double precision
language sql immutable parallel safe security invoker
begin atomic
    select pg_catalog.power(base, least(exponent, case when base > 0 and base < 1 then -70 / pg_catalog.ln(base) end));
end;
comment on function _mindful.power(double precision, double precision) is
'Returns base ^ exponent. For a base below 1 the result is at least exp(-70), about 4e-31, because power() raises 22003 on underflow.';

create function _mindful.half_lives(since timestamptz, until timestamptz, half_life_days double precision) returns double precision
language sql stable parallel safe security invoker
begin atomic
    select greatest(0, pg_catalog.date_part('epoch', until) - pg_catalog.date_part('epoch', since)) / 86400 / half_life_days;
end;
comment on function _mindful.half_lives(timestamptz, timestamptz, double precision) is
'Returns the number of half-lives from since to until, 0 if until is earlier. until may be infinite.';

create function _mindful.time_is_readable(moment timestamptz) returns boolean
language sql immutable parallel safe security invoker
begin atomic
    select moment >= '0001-01-02 00:00:00+00' and moment < '9999-12-31 00:00:00+00';
end;
comment on function _mindful.time_is_readable(timestamptz) is
'Returns whether a time is in the years 1 to 9999 in every time zone. Python and ISO 8601 cannot write other years.';

create function _mindful.range_argument(name text, moment timestamptz) returns timestamptz
language sql stable parallel safe security invoker
begin atomic
    select case
        when pg_catalog.isfinite(moment) and not _mindful.time_is_readable(moment)
            then _mindful.raise('22008', pg_catalog.format('%s is %s', name, moment),
                'Pass a time between 0001-01-02 and 9999-12-30, or infinity.')::text::timestamptz
        else moment
    end;
end;
comment on function _mindful.range_argument(text, timestamptz) is
'Returns the time if it is in the years 1 to 9999, infinite or NULL. Error 22008: any other time.';

create function _mindful.real(value double precision) returns real
language sql immutable parallel safe security invoker
begin atomic
    select case when pg_catalog.abs(value) < 1e-30 then 0 else value end::real;
end;
comment on function _mindful.real(double precision) is
'Converts a number to real. Numbers with an absolute value below 1e-30 become 0, because the cast raises 22003 for them.';

create function _mindful.time_text(moment timestamptz) returns text
language sql stable parallel safe security invoker
begin atomic
    select pg_catalog.to_json(
        least(greatest(moment, '0001-01-02 00:00:00+00'), '9999-12-30 00:00:00+00')) #>> '{}'
    where moment is not null;
end;
comment on function _mindful.time_text(timestamptz) is
'Returns a time in ISO 8601; NULL gives NULL. A time outside the years 1 to 9999 is moved to the nearest of these years.';
create table setting_definition (
    key text primary key,
    type text not null check (type in ('integer', 'number', 'boolean', 'text')),
    low double precision,
    high double precision,
    scopes text[] not null check (scopes <@ array['global', 'user', 'session']),
    initial jsonb not null,
    description text not null,
    choices text[],
    prompt text
);
comment on table setting_definition is 'The settings that exist: type, range, scopes and initial value.';
comment on column setting_definition.high is 'Largest number, or for texts the largest number of characters.';
comment on column setting_definition.choices is 'The allowed texts; NULL: any text.';
comment on column setting_definition.prompt is
'Sentence that tells the model the value (%s). The assistant may change only settings with such a sentence, when a message asks for it.';
alter table setting_definition enable row level security, force row level security;
create policy read on setting_definition for select using (true);

insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('model_slots', 'integer', 0, 1024, '{global}', '0',
        'Largest number of connections that run a model at once. 0: one per processor core.'),
    ('model_slot_wait_ms', 'integer', 1, 3600000, '{global,user}', '60000',
        'Time in milliseconds that a call waits for a slot before it fails with 55P03.'),
    ('generation_log', 'boolean', null, null, '{global,user}', 'true',
        'Whether calls of generators are recorded in the table generation.');

create table setting (
    tenant text not null default _mindful.tenant(),
    id bigint generated always as identity,
    scope text not null check (scope in ('global', 'user', 'session')),
    session_id uuid,
    key text not null references setting_definition,
    value jsonb not null,
    reason text,
    changed_by text not null default current_user,
    changed_at timestamptz not null default clock_timestamp(),
    confirmed_rows bigint,
    primary key (tenant, id),
    check ((scope = 'session') = (session_id is not null)),
    check ((scope = 'global') = (tenant = ''))
);
create index on setting (tenant, key, scope, session_id, id) where key is not null;
comment on table setting is
'All changes of settings. The newest row of a scope is in force; a value of null removes the scope''s setting.';
comment on column setting.tenant is 'Tenant whose setting it is; empty for scope global.';
comment on column setting.confirmed_rows is
'Number of rows that an administrator agreed to delete by a global retention setting.';
alter table setting enable row level security, force row level security;
create policy own on setting using (tenant = (select _mindful.tenant())) with check (tenant = (select _mindful.tenant_claimed()));
create policy read_global on setting for select using (tenant = '');
create policy write_global on setting for insert to mindful_admin with check (tenant = '');
select pg_catalog.pg_extension_config_dump('mindful.setting', '');
select pg_catalog.pg_extension_config_dump('mindful.setting_id_seq', '');

create function setting_get(key text, session_id uuid default null) returns jsonb
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    -- The session keeps this plan: it is read many times in a chat turn.
    return coalesce(
        (
            select s.value
            from (
                select distinct on (c.scope) c.scope, c.value
                from mindful.setting c
                where c.key = setting_get.key
                    and c.tenant = any (array['', (select _mindful.tenant())])
                    and (c.scope <> 'session' or c.session_id = setting_get.session_id)
                order by c.scope, c.id desc
            ) s
            where s.value <> 'null'
            order by array_position(array['session', 'user', 'global'], s.scope)
            limit 1
        ),
        (select d.initial from mindful.setting_definition d where d.key = setting_get.key)
    );
end
$$;
comment on function setting_get(text, uuid) is
'Returns the value of a setting that is in force, NULL if the setting does not exist. The session''s value comes first, then the caller''s own, then the global one, then the initial one. Example: select setting_get(''chat_memories'');';

create function _mindful.settings(session_id uuid) returns jsonb
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_sort = off
as $$
begin
    return (
        select jsonb_object_agg(d.key, coalesce(nullif(of_session.value, 'null'), nullif(of_user.value, 'null'),
            nullif(of_all.value, 'null'), d.initial))
        from mindful.setting_definition d
        left join lateral (
            select s.value from mindful.setting s
            where s.tenant = (select _mindful.tenant()) and s.key = d.key and s.scope = 'session'
                and s.session_id = settings.session_id
            order by s.id desc limit 1
        ) of_session on true
        left join lateral (
            select s.value from mindful.setting s
            where s.tenant = (select _mindful.tenant()) and s.key = d.key and s.scope = 'user' and s.session_id is null
            order by s.id desc limit 1
        ) of_user on true
        left join lateral (
            select s.value from mindful.setting s
            where s.tenant = '' and s.key = d.key and s.scope = 'global' and s.session_id is null
            order by s.id desc limit 1
        ) of_all on true
    );
end
$$;
comment on function _mindful.settings(uuid) is
'Returns all settings in force as an object of keys and values, as setting_get returns each.';

create function _mindful.setting_check(key text, value jsonb, scope text) returns jsonb
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    defined mindful.setting_definition;
    found_type text := jsonb_typeof(value);
begin
    select d.* into defined from mindful.setting_definition d where d.key = setting_check.key;
    if not found then
        perform _mindful.raise('42704', format('there is no setting %s', coalesce(quote_literal(key), 'null')),
            'Settings are listed in mindful.setting_definition.');
    elsif scope is null or scope <> all (defined.scopes) then
        perform _mindful.raise('22023', format('setting %s has no scope %s', key, coalesce(quote_literal(scope), 'null')),
            format('Its scopes are %s.', array_to_string(defined.scopes, ', ')));
    elsif value is null or found_type = 'null' then
        return 'null';
    elsif found_type <> (case defined.type when 'integer' then 'number' when 'text' then 'string' else defined.type end)
        or defined.type = 'integer' and (value #>> '{}')::numeric % 1 <> 0
    then
        perform _mindful.raise('22023', format('setting %s is %s', key, value), format('It must be of type %s.', defined.type));
    elsif found_type = 'number' and not (value #>> '{}')::numeric between defined.low::numeric and defined.high::numeric then
        perform _mindful.raise('22023', format('setting %s is %s', key, value),
            format('It must be between %s and %s.', defined.low, defined.high));
    elsif found_type = 'number' and abs((value #>> '{}')::numeric) < 1e-9 and (value #>> '{}')::numeric <> 0 then
        perform _mindful.raise('22023', format('setting %s is %s', key, value), 'Its absolute value must be 0 or at least 1e-9.');
    elsif value #>> '{}' <> all (defined.choices) then
        perform _mindful.raise('22023', format('setting %s is %s', key, value),
            format('It must be one of %s.', array_to_string(defined.choices, ', ')));
    elsif found_type = 'string' and length(value #>> '{}') > defined.high then
        perform _mindful.raise('22023', format('setting %s has %s characters', key, length(value #>> '{}')),
            format('It must have at most %s characters.', defined.high));
    end if;
    return value;
end
$$;
comment on function _mindful.setting_check(text, jsonb, text) is
'Returns the value if the setting can have it in the scope. Errors: 42704 (no such setting), 22023 (wrong scope, type or range).';

create function _mindful.setting_insert() returns trigger
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    new.value := _mindful.setting_check(new.key, new.value, new.scope);
    if new.scope = 'global' and new.key ~ '^retention_' then
        perform _mindful.retention_check(new.key, new.value, new.confirmed_rows);
    end if;
    new.changed_at := clock_timestamp();
    new.changed_by := coalesce(substring(new.changed_by from '^(?:assistant|confidence_tune) for '), '') || current_user;
    return new;
end
$$;
comment on function _mindful.setting_insert() is
'Checks type, range and scope of every inserted setting, and sets who changed it and when. A trigger does this because users may insert into the table, and workers read the settings of all tenants.';
-- A restore keeps changed_at and changed_by.
create trigger checked before insert on setting for each row
    when (pg_catalog.current_setting('row_security') = 'on' or not _mindful.is_restore()) execute function _mindful.setting_insert();

create function setting_set(
    key text,
    value jsonb,
    scope text default 'user',
    session_id uuid default null,
    reason text default null,
    confirmed_rows bigint default null
) returns jsonb
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform _mindful.writable();
    if (scope = 'session') <> (session_id is not null) then
        perform _mindful.raise('22023', format('scope is %s, session_id %s', scope, coalesce(session_id::text, 'null')),
            'Pass session_id if scope is session, and only then.');
    elsif scope = 'session' and not exists (
        select from mindful.session s where s.tenant = (select _mindful.tenant()) and s.session_id = setting_set.session_id
    ) then
        perform _mindful.raise('42704', format('there is no session %s', session_id),
            'Call session_start(), or select an id from mindful.session.');
    end if;
    insert into mindful.setting (tenant, scope, session_id, key, value, reason, confirmed_rows)
    values (case scope when 'global' then '' else _mindful.tenant_required() end, scope, session_id, key, value, reason, confirmed_rows);
    return mindful.setting_get(key, session_id);
end
$$;
comment on function setting_set(text, jsonb, text, uuid, text, bigint) is
'Changes a setting and returns the value that is in force afterwards. scope is global (all tenants, for administrators), user (the caller''s tenant) or session (with session_id). A JSON null removes the scope''s setting. The table setting keeps every change with its author, time and reason. A global retention setting deletes rows of all tenants. It fails with 55000 and their number unless confirmed_rows is at least that number. Errors: 42704 (no such setting or session), 22023 (wrong type, range or scope), 42501 (scope global without mindful_admin), 55000 (not confirmed). Example: select setting_set(''chat_memories'', ''5'');';

create view active_setting with (security_invoker = true) as
select d.key, mindful.setting_get(d.key) as value, d.initial, d.type, d.low, d.high, d.scopes, d.description, d.choices
from mindful.setting_definition d;
comment on view active_setting is 'The settings that are in force for the caller outside of sessions.';

-- A role with DELETE, TRUNCATE or UPDATE on a whole table can lock it in ACCESS EXCLUSIVE mode and so block all tenants.
-- Therefore no role has these privileges. UPDATE is granted by column. A row inserted here requests a deletion, and the
-- policy of this table checks the tenant. A trigger carries the request out and removes the row in the same statement.
create unlogged table deletion (
    tenant text not null default _mindful.tenant(),
    id bigint generated always as identity,
    relation text not null check (relation in ('session', 'memory', 'memory_link', 'memory_evidence', 'attachment',
        'embedding_job', 'embedding_job_failed', 'tool', 'kv_state')),
    keys jsonb not null check (jsonb_typeof(keys) = 'array'),
    primary key (tenant, id)
);
comment on table deletion is
'Requests to delete rows of the tenant. A trigger carries out each request when it is inserted, and deletes it. keys holds the rows'' primary keys without the tenant.';
alter table deletion enable row level security, force row level security;
-- Tools belong to the role that registered them, not to the tenant.
create policy own on deletion using (tenant = (select _mindful.tenant())) with check (
    tenant = (select _mindful.tenant_claimed()) and (relation <> 'tool' or not exists (
        select from jsonb_array_elements(keys) k where k ->> 'registered_by' is distinct from current_user::text
    ))
);
create policy offer on deletion for insert to mindful_admin with check (tenant = '' and relation = 'tool');

create function _mindful.deletion_run() returns trigger
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
set mindful.tenant = '' -- else the owner, who may set any tenant, would act for the user's value
set enable_hashjoin = off
set enable_mergejoin = off
set enable_seqscan = off
as $$
declare
    relation regclass := format('mindful.%I', new.relation);
    columns text;
    condition text;
begin
    select string_agg(format('%I %s', a.attname, format_type(a.atttypid, a.atttypmod)), ', '),
        string_agg(format('t.%1$I = k.%1$I', a.attname), ' and ')
    into columns, condition
    from pg_index i join pg_attribute a on a.attrelid = i.indrelid and a.attnum = any (i.indkey)
    where i.indrelid = relation and i.indisprimary and a.attname <> 'tenant';
    execute format('delete from %s t using (select * from jsonb_to_recordset($2) k (%s) offset 0) k where t.tenant = $1 and %s',
        relation, columns, condition) using new.tenant, new.keys;
    delete from mindful.deletion d where d.tenant = new.tenant and d.id = new.id;
    return null;
end
$$;
comment on function _mindful.deletion_run() is
'Deletes the rows that a new row of deletion names. It runs with the owner''s rights. The policy of deletion has checked the tenant, and a constraint of it has checked the table.';
create trigger deletion_run after insert on deletion for each row execute function _mindful.deletion_run();

create function _mindful.delete(relation text, keys jsonb, tenant text default _mindful.tenant()) returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    if keys is null or keys = '[]' then
        return 0;
    end if;
    insert into mindful.deletion (tenant, relation, keys) values (tenant, relation, keys);
    return jsonb_array_length(keys);
end
$$;
comment on function _mindful.delete(text, jsonb, text) is
'Deletes rows of a tenant by their primary keys and returns the number of keys. keys is an array of objects; NULL deletes no row. The caller selects the rows first. Errors: 42501 (another tenant''s rows), 23514 (a table that this function does not delete from).';

create function _mindful.memory_delete(ids bigint[], tenant text default _mindful.tenant()) returns bigint
language sql volatile parallel unsafe security invoker
begin atomic
    select _mindful.delete('memory', pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object('id', i)), tenant)
    from pg_catalog.unnest(ids) i;
end;
comment on function _mindful.memory_delete(bigint[], text) is
'Deletes memories of a tenant by id and returns their number. Errors as _mindful.delete.';

create function _mindful.update_grant(relation regclass) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    execute format('grant update (%s) on %s to mindful_user', string_agg(quote_ident(a.attname), ', '), relation)
    from pg_attribute a
    where a.attrelid = relation and a.attnum > 0 and not a.attisdropped and a.attgenerated = '' and a.attname <> 'tenant';
end
$$;
comment on function _mindful.update_grant(regclass) is
'Grants UPDATE on each column of a table except tenant to mindful_user. A grant by column does not allow LOCK TABLE. For the extension''s owner.';
-- Advisory locks are unsuitable: any role may take any key, and pg_locks shows the keys. Here a lock is an uncommitted
-- insertion of a row: a second insertion of its key waits until the first transaction ends, and row-level security keeps
-- tenants apart. A trigger deletes the row at once, so no key is visible and a transaction may take the lock again.
create unlogged table tenant_lock (
    tenant text not null default _mindful.tenant(),
    task text not null check (octet_length(task) <= 200),
    primary key (tenant, task)
);
comment on table tenant_lock is
'Locks of a tenant, held until the end of the transaction that inserts the row. The table looks empty to every reader.';
alter table tenant_lock enable row level security, force row level security;
create policy own on tenant_lock using (tenant = (select _mindful.tenant())) with check (tenant = (select _mindful.tenant_claimed()));

create function _mindful.lock_run() returns trigger
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    delete from mindful.tenant_lock l where l.tenant = new.tenant and l.task = new.task;
    return null;
end
$$;
comment on function _mindful.lock_run() is
'Deletes a lock''s row. It runs with the owner''s rights, because no role may delete from a table.';
create trigger lock_run after insert on tenant_lock for each row execute function _mindful.lock_run();

create function _mindful.lock(task text) returns void
language sql volatile parallel unsafe security invoker
begin atomic
    insert into mindful.tenant_lock (task) values (task);
end;
comment on function _mindful.lock(text) is
'Takes the tenant''s lock for a task until the transaction ends, and waits while another transaction holds it.';

create function _mindful.lock_try(task text) returns boolean
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
set lock_timeout = '20ms'
as $$
begin
    perform _mindful.lock(task);
    return true;
exception when lock_not_available then
    return false;
end
$$;
comment on function _mindful.lock_try(text) is
'Takes a lock as _mindful.lock does, and returns false if another transaction holds it for more than 20 ms.';

-- model
alter table model add column base text references model, add constraint model_base check (base is null or kind = 'generator');
create index model_base on model (base) where base is not null;
comment on column model.base is 'The generator that an adapter changes; NULL for models that are not adapters.';

drop function _mindful.model_find(text, text);
drop policy use on model;
-- Weights can reproduce their training texts. Therefore an adapter serves only the tenants whose texts it was trained on,
-- unless all of them consent to more.

alter table model
    add column trained_on integer not null default 0,
    add column withdrawn_at timestamptz,
    add constraint model_trained_on check (trained_on >= 0 and (trained_on = 0 or base is not null)),
    add constraint model_withdrawn check (withdrawn_at is null or trained_on > 0);
comment on column model.granted_to is
'Roles whose members see and use the model. An adapter with trained_on above 0 serves them only while each of its tenants consents.';
comment on column model.trained_on is
'Number of tenants whose texts the adapter was trained on (see model_tenant). 0: no tenant''s texts, registered for granted_to.';
comment on column model.withdrawn_at is
'Time when a training text of the adapter was deleted. A withdrawn adapter serves no tenant.';

insert into setting_definition (key, type, low, high, scopes, initial, description, choices) values
    ('default_generator', 'text', null, 40, '{user}', '""',
        'Default generator of the tenant, set by model_default_set. If it is empty or the tenant may not use it, the global default applies.', null),
    ('training_share', 'boolean', null, null, '{user}', 'false',
        'Whether an administrator may share adapters trained on the user''s texts with other tenants. See also training_consent.', null),
    ('adapter_on_forget', 'text', null, null, '{global,user}', '"withdraw"',
        'Action for adapters trained on a text that is deleted: withdraw (they serve no tenant any more) or keep.', '{withdraw,keep}');

create table model_tenant (
    tenant text not null,
    model text not null references model on delete cascade,
    training_id bigint not null,
    primary key (tenant, model)
);
create index on model_tenant (model);
comment on table model_tenant is 'Tenants whose texts an adapter was trained on, with the id of their training.';
alter table model_tenant enable row level security, force row level security;
create policy own on model_tenant for select using (tenant = (select _mindful.tenant()));
create policy administer on model_tenant to mindful_admin using (true) with check (true);
select pg_catalog.pg_extension_config_dump('mindful.model_tenant', '');

-- No foreign keys: rows must outlive the adapter and the training.
create table trained_weights (
    tenant text not null,
    training_id bigint not null,
    sha256 text not null,
    withdrawn_at timestamptz,
    primary key (tenant, training_id, sha256)
);
create index on trained_weights (sha256);
comment on table trained_weights is
'SHA-256 of every adapter file registered as trained on a tenant''s texts. Rows stay after the adapter is deleted, so that its file is recognized.';
comment on column trained_weights.withdrawn_at is
'Time when a text of the training was deleted. The file is then refused under any name.';
alter table trained_weights enable row level security, force row level security;
create policy own on trained_weights for select using (tenant = (select _mindful.tenant()));
create policy administer on trained_weights for select to mindful_admin using (true);
select pg_catalog.pg_extension_config_dump('mindful.trained_weights', '');

create function _mindful.setting_of(tenant text, key text) returns jsonb
language sql stable parallel safe security invoker
begin atomic
    select coalesce(
        (
            select s.value
            from (
                select distinct on (c.scope) c.scope, c.value
                from mindful.setting c
                where c.key = setting_of.key and c.tenant = any (array['', setting_of.tenant]) and c.scope <> 'session'
                order by c.scope, c.id desc
            ) s
            where s.value <> 'null'
            order by s.scope desc
            limit 1
        ),
        (select d.initial from mindful.setting_definition d where d.key = setting_of.key)
    );
end;
comment on function _mindful.setting_of(text, text) is
'Returns a tenant''s value of a setting outside sessions, as far as the caller may read that tenant''s settings.';

create function _mindful.model_consents(model text) returns table (tenant text, consents boolean)
language sql stable parallel safe security definer
begin atomic
    select t.tenant, 'true' = all (array[_mindful.setting_of(t.tenant, 'training_consent'), _mindful.setting_of(t.tenant, 'training_share')])
    from mindful.model_tenant t
    where t.model = model_consents.model
    order by t.tenant;
end;
comment on function _mindful.model_consents(text) is
'Returns the tenants whose texts an adapter was trained on, and whether each consents to training and sharing. It runs with the owner''s rights, because administrators cannot read tenants'' settings. For administrators.';

create function _mindful.model_consented(model text) returns boolean
language sql stable parallel safe security definer
begin atomic
    select coalesce(pg_catalog.bool_and(c.consents), false) from _mindful.model_consents(model) c;
end;
comment on function _mindful.model_consented(text) is
'Returns whether every tenant whose texts an adapter was trained on consents to sharing it. It runs with the owner''s rights and names no tenant.';

create function _mindful.tenant_roles(tenant text) returns setof oid
language sql stable parallel safe security invoker rows 1
begin atomic
    select a.oid from pg_catalog.pg_roles a
    where case
        when pg_catalog.to_regrole(pg_catalog.quote_ident(tenant_roles.tenant)) is not null then a.rolname = tenant_roles.tenant
        else not a.rolsuper and pg_catalog.pg_has_role(a.oid, 'mindful_application', 'usage')
    end;
end;
comment on function _mindful.tenant_roles(text) is
'Returns the roles that act for a tenant: the role of its name, else all members of mindful_application.';

create function _mindful.is_member(roles text[]) returns boolean
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    -- A superuser, who is a member of every role, acts for a tenant here: the tenant's rights count.
    if (select c.rolsuper from pg_roles c where c.rolname = current_user) and _mindful.tenant() <> current_user then
        return exists (
            select from _mindful.tenant_roles(_mindful.tenant()) t (role), unnest(roles) r (name)
            where pg_has_role(t.role, to_regrole(quote_ident(r.name))::oid, 'usage')
        );
    end if;
    return exists (
        select from unnest(roles) r (name) where pg_has_role(to_regrole(quote_ident(r.name))::oid, 'usage')
    );
end
$$;
comment on function _mindful.is_member(text[]) is
'Returns whether the current role is a member of one of these roles. If a superuser acts for another tenant, the roles of the tenant are checked instead.';

create function _mindful.model_serves(name text, granted_to text[], trained_on integer, withdrawn_at timestamptz) returns boolean
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    is_trainer boolean;
begin
    if trained_on = 0 then
        return _mindful.is_member(granted_to || '{mindful_admin}'::text[]);
    end if;
    is_trainer := exists (
        select from mindful.model_tenant t where t.tenant = (select _mindful.tenant()) and t.model = model_serves.name
    );
    return is_trainer and trained_on = 1
        or (is_trainer or withdrawn_at is null and _mindful.is_member(granted_to)) and _mindful.model_consented(name);
end
$$;
comment on function _mindful.model_serves(text, text[], integer, timestamptz) is
'Returns whether the current tenant may use a model. One of three must hold. The model holds no tenant''s texts and is granted to the role. It was trained on this tenant''s texts, and all other tenants in it consent. It is shared with the role, not withdrawn, and all tenants in it consent.';

create policy use on model for select using (_mindful.model_serves(name, granted_to, trained_on, withdrawn_at));

create function _mindful.model_check() returns trigger
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    if new.trained_on = 0 and exists (select from mindful.trained_weights w where w.sha256 = new.sha256) then
        perform _mindful.raise('42710', format('the file of "%s" is an adapter trained on tenants'' texts', new.name),
            'Use mindful.adapter_share to let an adapter serve other tenants.');
    end if;
    return new;
end
$$;
comment on function _mindful.model_check() is
'Refuses the file of a trained adapter, present or deleted, if it is registered without trained_on. It would serve tenants without consent.';
create trigger checked before insert on model for each row
    when (pg_catalog.current_setting('row_security') = 'on' or not _mindful.is_restore()) execute function _mindful.model_check();

create function _mindful.default_base(kind text) returns text
language plpgsql stable parallel safe security definer
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    return (select m.base from mindful.model m where m.kind = default_base.kind and m.is_default);
end
$$;
comment on function _mindful.default_base(text) is
'Returns the base of the adapter that is the global default. The base serves tenants that may not use the adapter. It runs with the owner''s rights, because these tenants cannot see the adapter.';

create function _mindful.model_find(wanted_kind text, wanted text)
returns table (name text, kind text, provider text, source text, sha256 text, options jsonb, adapter text)
language plpgsql stable parallel safe security invoker rows 1
set search_path = pg_catalog, mindful, pg_temp
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    own_default text := case when wanted is null and wanted_kind = 'generator' then mindful.setting_get('default_generator') #>> '{}' end;
    global_base text := case when wanted is null then _mindful.default_base(wanted_kind) end;
begin
    return query
    select m.name, m.kind, m.provider, coalesce(b.source, m.source), m.sha256, coalesce(b.options, '{}') || m.options,
        case when b.name is not null then m.source end
    from mindful.model m
    left join mindful.model b on b.name = m.base
    where m.kind = wanted_kind
        and (m.base is null or b.name is not null)
        and m.withdrawn_at is null
        -- Administrators see all models, but use only models that serve them.
        and _mindful.model_serves(m.name, m.granted_to, m.trained_on, m.withdrawn_at)
        and case when wanted is not null then m.name = wanted else m.is_default or m.name = own_default or m.name = global_base end
    order by m.name = own_default desc nulls last, m.is_default desc
    limit 1;
end
$$;
comment on function _mindful.model_find(text, text) is
'Returns the named model, or the default one of its kind, if it serves the caller. The default is the tenant''s own, else the global one, else the base of that one. An adapter is returned with the base''s source and the options of both; the caller must be allowed to use the base too.';

create function _mindful.default_generator_set(name text) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    if exists (select from mindful.model m where m.name = default_generator_set.name and m.withdrawn_at is not null) then
        perform _mindful.raise('55000', format('adapter "%s" was withdrawn because a text of its training was deleted', name),
            'Train a new adapter or use its base.');
    elsif not exists (select from _mindful.model_find('generator', name)) then
        perform _mindful.raise('22023', format('model "%s" is not a generator that you may use', name),
            'Pass a generator. The table mindful.model lists the models that you may use.');
    end if;
    perform mindful.setting_set('default_generator', to_jsonb(name));
end
$$;
comment on function _mindful.default_generator_set(text) is
'Makes a generator the tenant''s own default. Errors: 22023 (not a generator that the tenant may use), 55000 (withdrawn).';

create function adapter_register(
    name text,
    base text,
    source text,
    scale real default 1,
    options jsonb default '{}',
    granted_to text[] default null,
    trained_on jsonb default null
) returns text
language plpython3u volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.models.registry import adapter_register
return adapter_register(name, base, source, scale, options, granted_to, trained_on)
$python$;
comment on function adapter_register(text, text, text, real, jsonb, text[], jsonb) is
'Registers a LoRA adapter (a GGUF file) of a llama_cpp generator as a generator, and returns its name. For administrators (mindful_admin). source is an absolute path on the server. The file is loaded once with its base to check it. Its hash is stored, and a file that changes later is refused. scale is the strength of the adapter, from -10 to 10: 1 is as trained, 0 is off. options may have system_prompt, layout and prompt_lookup; others come from the base. Pass either granted_to or trained_on. granted_to names the roles that may use an adapter without tenants'' texts. trained_on maps tenants to their trainings ({"ana": 3}) for an adapter that mindful made. It serves these tenants only, and with several tenants each of them must consent (settings training_consent and training_share). A tenant must be allowed to use the base too. Errors: 22004, 22023 (bad argument, unsuitable base), 23503 (no such training), 42704 (no such base), 42710 (name taken, or file of a trained adapter), 55000 (a text of the training was deleted), 58P01 (no readable GGUF file), XX001 (file damaged, or made for another base). Example: select adapter_register(''gemma-ana'', ''gemma'', ''/srv/models/ana.gguf'', trained_on => ''{"ana": 3}'');';

create function _mindful.adapter_consents_check(adapter text) returns text[]
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    chosen mindful.model;
    tenants text[];
    refusing text[];
begin
    select m.* into chosen from mindful.model m where m.name = adapter and m.trained_on > 0;
    if not found then
        perform _mindful.raise('42704', format('there is no trained adapter %s', coalesce(quote_literal(adapter), 'null')),
            'The table mindful.model_tenant lists the adapters trained on tenants'' texts.');
    elsif chosen.withdrawn_at is not null then
        perform _mindful.raise('55000', format('adapter "%s" was withdrawn because a text of its training was deleted', adapter),
            'Train a new adapter or use its base.');
    end if;
    select array_agg(c.tenant), coalesce(array_agg(c.tenant) filter (where not c.consents), '{}') into tenants, refusing
    from _mindful.model_consents(adapter) c;
    if cardinality(refusing) > 0 or tenants is null then
        raise exception using errcode = '55000',
            message = format('mindful: adapter "%s" is trained on texts of tenants that do not consent to sharing it', adapter),
            detail = format('Tenants of the training: %s. Tenants that do not consent: %s.',
                coalesce(array_to_string(tenants, ', '), 'unknown tenants'), array_to_string(refusing, ', ')),
            hint = 'Each of these tenants must set training_consent and training_share to true with setting_set.';
    end if;
    return tenants;
end
$$;
comment on function _mindful.adapter_consents_check(text) is
'Returns the tenants whose texts a trained adapter holds. Errors: 42704 (no such adapter), 55000 (withdrawn, or tenants do not consent; the detail names them).';

create function adapter_share(adapter text, granted_to text[]) returns text[]
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    tenants text[];
    unknown text;
begin
    perform _mindful.writable();
    if granted_to is null then
        perform _mindful.raise('22004', 'granted_to is null', 'Pass roles, such as ''{mindful_user}'' for all users, or ''{}'' to stop sharing.');
    end if;
    select r.name into unknown from unnest(granted_to) r (name) where to_regrole(quote_ident(r.name)) is null;
    if found then
        perform _mindful.raise('42704', format('there is no role %s', coalesce(quote_literal(unknown), 'null')), 'Pass names of existing roles.');
    elsif granted_to <> '{}' then
        tenants := _mindful.adapter_consents_check(adapter);
    else
        tenants := array(select t.tenant from mindful.model_tenant t where t.model = adapter order by t.tenant);
    end if;
    update mindful.model m set granted_to = adapter_share.granted_to where m.name = adapter and m.trained_on > 0;
    if not found then
        perform _mindful.raise('42704', format('there is no trained adapter %s', coalesce(quote_literal(adapter), 'null')),
            'The table mindful.model_tenant lists the adapters trained on tenants'' texts.');
    end if;
    return tenants;
end
$$;
comment on function adapter_share(text, text[]) is
'Shares an adapter trained on tenants'' texts with the members of roles, and returns these tenants. For administrators (mindful_admin). Each of the tenants must consent (settings training_consent and training_share). If a tenant revokes its consent or deletes a text of the training, the adapter stops serving others. An empty array stops sharing. Errors: 22004, 42704 (no such adapter or role), 55000 (withdrawn, or a tenant does not consent; the detail names all tenants and those without consent). Example: select adapter_share(''team-style'', ''{mindful_user}'');';
drop function model_default_set(text);
create or replace function model_default_set(name text, force boolean default false, scope text default 'global') returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    chosen mindful.model;
    found_memories bigint;
    found_missing bigint;
begin
    perform _mindful.writable();
    if scope is null or scope not in ('global', 'user') then
        perform _mindful.raise('22023', format('scope is %s', coalesce(quote_literal(scope), 'null')),
            'Use global for the default of all tenants or user for your own.');
    elsif scope = 'global' and not pg_has_role(current_user, 'mindful_admin', 'usage') then
        perform _mindful.raise('42501', 'role ' || current_user || ' cannot set the default of all tenants',
            'Use scope => ''user'' to set your own default generator. Only members of mindful_admin may use scope global.');
    end if;
    select * into chosen from mindful.model m where m.name = model_default_set.name;
    if not found then
        raise exception using errcode = '42704', message = format('mindful: there is no model "%s"', name),
            hint = 'The table mindful.model lists the models that you may use.';
    elsif scope = 'user' then
        perform _mindful.default_generator_set(name);
        return;
    end if;
    if chosen.trained_on > 0 then
        perform _mindful.adapter_consents_check(name);
        if chosen.granted_to = '{}' then
            perform _mindful.raise('55000', format('adapter "%s" serves only the tenants whose texts it was trained on', name),
                format('Use mindful.adapter_share(%L, ''{mindful_user}'') first.', name));
        end if;
    end if;
    if chosen.kind = 'embedder' and not chosen.is_default and force is not true then
        select memories, missing into found_memories, found_missing from _mindful.embedding_missing(name);
        -- Up to 1% may be missing: memories that were stored while the embedder was filled. They are enqueued below.
        if found_missing * 100 > found_memories then
            perform _mindful.raise('55000',
                format('%s of %s memories have no embedding by %s yet', found_missing, found_memories, name),
                format('Call embedding_enqueue(%L), run a worker, and check embedding_status; or pass force => true.', name));
        end if;
    end if;
    update mindful.model m set is_default = false where m.kind = chosen.kind and m.is_default;
    update mindful.model m set is_default = true where m.name = chosen.name;
    if chosen.kind = 'embedder' then
        perform mindful.embedding_enqueue(name);
    end if;
end
$$;
comment on function model_default_set(text, boolean, text) is
'Makes a model the default of its kind. scope global applies to all tenants that may use the model (administrators only). scope user sets the caller''s own default generator, which takes precedence. Tenants that may not use the global default get its base. An adapter trained on tenants'' texts can be the global default after adapter_share. An embedder must have embedded 99% of all memories: call embedding_enqueue(name) and run a worker, while the old embedder stays in use. The remaining memories are then enqueued. With force the embedder becomes the default at once, and recall finds only memories that it has embedded. Errors: 22023 (wrong scope, not a generator), 42501 (scope global without mindful_admin), 42704 (no such model), 55000 (memories not embedded yet; missing consent of a tenant; adapter withdrawn). Example: select model_default_set(''gemma'', scope => ''user'');';
create or replace function _mindful.embedding_table(model text) returns text
language sql immutable parallel safe security invoker
begin atomic
    select 'memory_embedding_' || pg_catalog.translate(model, '.-', '__');
end;
comment on function _mindful.embedding_table(text) is 'Returns the name of the table that holds an embedder''s vectors.';
comment on table model is 'Registered models (generators, embedders, rerankers) and the roles that may use them.';
comment on column model.sha256 is 'SHA-256 of the file, or of the folder''s weights, at registration.';
comment on column model.dims is 'Number of dimensions of an embedder''s vectors.';
comment on column model.source is
'Absolute path of a GGUF file or a sentence-transformers folder on the server. For the provider openai, the address of the server that runs the model.';
comment on column model.options is
'Options of the provider: context_length (tokens) and threads (default 1). A generator also has the following. system_prompt: the default system prompt. layout: a text with {memories} and {message} that places recalled memories in the message. template: a Jinja chat template instead of the file''s. stop: an array of texts that end every answer. prompt_lookup (0 to 32, default 0): number of tokens that are guessed at once at temperature 0 if the answer repeats earlier text; answers stay the same, and copying gets faster (15 is a good value).';

create function slot_status() returns table (slot integer, pid integer)
language plpython3u volatile parallel restricted security invoker
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.core.slot import slot_status
return slot_status()
$python$;
comment on function slot_status() is
'Returns the processes of this server that hold a slot for running a model, then those that wait. slot is NULL for waiting processes, which come in the order of the queue. pid is the one of pg_stat_activity. A batch may hold several slots. The setting model_slots is the number of slots.';
create table api_key (
    tenant text not null default _mindful.tenant(),
    id uuid not null default pg_catalog.gen_random_uuid(),
    name text not null,
    hash bytea not null unique check (pg_catalog.octet_length(hash) = 32),
    scopes text[] not null check (scopes <@ array['chat', 'embed', 'memory']),
    requests_per_minute integer check (requests_per_minute > 0),
    expires_at timestamptz,
    revoked_at timestamptz,
    last_used_at timestamptz,
    created_by text not null default current_user,
    created_at timestamptz not null default now(),
    primary key (tenant, id)
);
comment on table api_key is 'Keys of the service: a request that shows a key acts for the key''s tenant. The key itself is not stored.';
comment on column api_key.hash is 'SHA-256 of the key, which has 256 random bits, so that no slow hash is needed.';
comment on column api_key.scopes is 'What the key may do: chat (answers that keep nothing), embed (embeddings and reranking), memory (answers that recall and store).';
comment on column api_key.requests_per_minute is 'How many requests the key may make in a minute; NULL: no limit.';
comment on column api_key.last_used_at is 'When the key was last used, to the minute.';
alter table api_key enable row level security, force row level security;
create policy own on api_key using (tenant = (select _mindful.tenant()))
    with check (tenant = (select _mindful.tenant_claimed()));
create policy administer on api_key to mindful_admin using (true) with check (true);
-- A key that is revoked stays revoked.
create policy revoke on api_key as restrictive for update using (revoked_at is null) with check (revoked_at is not null);
select pg_catalog.pg_extension_config_dump('mindful.api_key', '');

-- A cache: UNLOGGED, so counting a request waits for no disk.
create unlogged table api_key_use (
    tenant text not null,
    id uuid not null,
    minute timestamptz not null,
    requests integer not null,
    primary key (tenant, id),
    foreign key (tenant, id) references api_key on delete cascade
) with (fillfactor = 50);
comment on table api_key_use is 'How many requests each key made in its last minute.';
alter table api_key_use enable row level security, force row level security;
create policy own on api_key_use using (tenant = (select _mindful.tenant()))
    with check (tenant = (select _mindful.tenant_claimed()));

create function _mindful.key_hash(key text) returns bytea
language sql immutable parallel safe security invoker
begin atomic
    select pg_catalog.sha256(pg_catalog.convert_to(key, 'UTF8'));
end;
comment on function _mindful.key_hash(text) is 'Returns the SHA-256 of a key.';

create function _mindful.key_tenant(tenant text) returns text
language plpgsql stable parallel restricted security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_variable
begin
    tenant := coalesce(tenant, _mindful.tenant_required());
    if tenant <> _mindful.tenant() and not pg_has_role(current_user, 'mindful_admin', 'usage') then
        perform _mindful.raise('42501', format('role %s cannot make keys of the tenant %L', current_user, tenant),
            'A member of mindful_admin makes keys of all tenants.');
    elsif tenant = '' or octet_length(tenant) > 1024 or tenant like 'pg\_%' or to_regrole(quote_ident(tenant)) is not null then
        perform _mindful.raise('22023', format('tenant is %L, which is empty, too long or the name of a role', tenant),
            'Use a name that no role has, such as customer-7.');
    end if;
    return tenant;
end
$$;
comment on function _mindful.key_tenant(text) is
'Returns the tenant that a new key acts for (NULL: the caller''s own); 42501 where the caller may not make its keys, 22023 where it is a role.';

create function key_create(
    name text,
    tenant text default null,
    scopes text[] default '{chat,embed,memory}',
    requests_per_minute integer default 600,
    expires_at timestamptz default null
) returns text
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_variable
declare
    secret text := 'mk-' || encode(sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8')), 'hex');
begin
    perform _mindful.writable();
    if scopes is null or not scopes <@ array['chat', 'embed', 'memory'] or array_position(scopes, null) is not null then
        perform _mindful.raise('22023', case when scopes is null then 'scopes is null' else 'scopes holds what is not a scope' end,
            'Scopes are chat, embed and memory.');
    end if;
    if requests_per_minute is not null then
        perform _mindful.integer_argument('requests_per_minute', requests_per_minute, 1, 1000000);
    end if;
    expires_at := _mindful.range_argument('expires_at', expires_at);
    insert into mindful.api_key (tenant, name, hash, scopes, requests_per_minute, expires_at)
    values (_mindful.key_tenant(tenant), _mindful.short_argument('name', _mindful.text_argument('name', name)),
        _mindful.key_hash(secret), scopes, requests_per_minute, expires_at);
    return secret;
end
$$;
comment on function key_create(text, text, text[], integer, timestamptz) is
'Makes a key of the service for a tenant (NULL: the caller''s own) and returns it. It cannot be shown again. A member of mindful_admin may name any tenant that is not a role. Scopes: chat (answers that keep nothing), embed (embeddings, reranking), memory (answers that recall and store). requests_per_minute NULL: no limit. Example: select key_create(''notebook'', ''customer-7''). Errors: 22004, 22008 (expires_at outside the years 1 to 9999), 22023 (bad argument), 42501 (another tenant), 54000 (name over 1024 bytes).';

create function key_list()
returns table (
    id uuid,
    tenant text,
    name text,
    scopes text[],
    requests_per_minute integer,
    expires_at timestamptz,
    revoked_at timestamptz,
    last_used_at timestamptz,
    created_by text,
    created_at timestamptz
)
language sql stable parallel safe security invoker
begin atomic
    select k.id, k.tenant, k.name, k.scopes, k.requests_per_minute, k.expires_at, k.revoked_at, k.last_used_at,
        k.created_by, k.created_at
    from mindful.api_key k
    order by k.created_at, k.id;
end;
comment on function key_list() is 'Lists the keys of the caller''s tenant; for a member of mindful_admin those of all tenants.';

create function key_revoke(id uuid) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform _mindful.writable();
    update mindful.api_key k set revoked_at = now() where k.id = key_revoke.id and k.revoked_at is null;
    if not found and not exists (select from mindful.api_key k where k.id = key_revoke.id) then
        perform _mindful.raise('42704', format('there is no key %s', coalesce(id::text, 'null')), 'key_list() lists your keys.');
    end if;
end
$$;
comment on function key_revoke(uuid) is 'Ends a key of the caller''s tenant, or for a member of mindful_admin of any tenant: the next request that shows it is refused. Error 42704: no such key of the caller''s.';

create function key_use(key text)
returns table (tenant text, id uuid, scopes text[], wait_s integer)
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
set mindful.tenant = ''
as $$
#variable_conflict use_column
declare
    shown mindful.api_key;
    used integer;
begin
    select k.* into shown from mindful.api_key k
    where k.hash = _mindful.key_hash(key) and k.revoked_at is null and (k.expires_at is null or k.expires_at > now());
    if shown.id is null then
        perform _mindful.raise('28000', 'the key is unknown, expired or revoked', 'Make one with key_create().');
    end if;
    if not pg_is_in_recovery() and current_setting('transaction_read_only') = 'off' then
        insert into mindful.api_key_use as u (tenant, id, minute, requests)
        values (shown.tenant, shown.id, date_trunc('minute', clock_timestamp()), 1)
        on conflict (tenant, id) do update
        set requests = case when u.minute = excluded.minute then u.requests + 1 else 1 end, minute = excluded.minute
        returning u.requests into used;
        if shown.last_used_at is null or shown.last_used_at < now() - interval '1 minute' then
            update mindful.api_key k set last_used_at = now()
            where k.tenant = shown.tenant and k.id = shown.id
                and exists (select from mindful.api_key l where l.tenant = k.tenant and l.id = k.id for no key update skip locked);
        end if;
    end if;
    return query
    select shown.tenant, shown.id, shown.scopes,
        case when used > shown.requests_per_minute
            then 60 - extract(second from clock_timestamp())::integer else 0 end;
end
$$;
comment on function key_use(text) is
'Returns the tenant and the scopes of a key, and how many seconds to wait where its requests of this minute are spent (else 0); counts the request. For members of mindful_application. It runs with the owner''s rights, as the tenant is not known before. Error 28000: the key is unknown, expired or revoked.';

-- llm
alter table generation add column slot_wait_ms real not null default 0;
comment on table generation is 'One row per call of a generator: cost, sampling and confidence. It holds no text.';
comment on column generation.parent_id is 'The generation that this one reviews or retries.';
comment on column generation.memory_ids is 'Memories in the prompt.';
comment on column generation.cached_tokens is
'Number of prompt tokens that were in the connection''s cache and were not evaluated again.';
comment on column generation.confidence is 'exp(mean log-probability of the tokens). It ranks answers; it is not calibrated.';
comment on column generation.signals is
'Aggregates of the tokens'' log-probabilities (nats), entropies (nats) and margins; see llm_generate_detail.';
comment on column generation.token_logprobs is
'Log-probability (nats) of each sampled token at temperature 1, the end token included.';
comment on type generation_detail is 'Result of llm_generate_detail: an answer with its cost and confidence.';
comment on column generation.slot_wait_ms is
'Time in milliseconds that the call waited for slots (setting model_slots), before and during generation.';

drop function
    llm_generate(text, text, integer, real, integer, text, text[], boolean),
    llm_generate_detail(text, text, integer, real, integer, text, text[], boolean),
    llm_stream(text, text, integer, real, integer, text, text[], boolean);
create or replace function llm_generate(
    prompt text,
    model text default null,
    max_tokens integer default 256,
    temperature real default 0,
    seed integer default null,
    system_prompt text default null,
    stop text[] default '{}',
    truncate boolean default false,
    json_schema jsonb default null,
    grammar text default null
) returns text
language plpython3u volatile parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.generate.llm import llm_generate
return llm_generate(prompt, model, max_tokens, temperature, seed, system_prompt, stop, truncate, json_schema, grammar)
$python$;
comment on function llm_generate(text, text, integer, real, integer, text, text[], boolean, jsonb, text) is
'Generates an answer to a prompt with a generator (NULL: the default one). A NULL prompt gives NULL. max_tokens (at least 1) is the largest number of generated tokens. temperature is between 0 and 10; 0 always takes the most likely token. seed (at least 0) makes the call repeatable on the same machine; the whole prompt is then evaluated again. Generation ends at any text of stop (at most 64, of at most 256 characters), which is not returned. If truncate is true, a prompt longer than the model''s context is cut at its end, else it is error 54000. With json_schema (see llm_extract) the answer is JSON that fits the schema. The model does not see the schema, so the prompt must describe the data. grammar is in GBNF, the notation of llama.cpp, with a rule root. Errors: 22000 (the answer does not fit json_schema), 22004, 22023 (bad argument, schema or grammar), 42704 (no such model), 54000 (prompt, schema or grammar too large, or answer with json_schema incomplete after max_tokens), 55P03 (no free slot), 57014 (cancelled). Example: select llm_generate(''Answer yes or no: is Rome in Italy?'', grammar => ''root ::= "yes" | "no"'');';
create or replace function llm_generate_detail(
    prompt text,
    model text default null,
    max_tokens integer default 256,
    temperature real default 0,
    seed integer default null,
    system_prompt text default null,
    stop text[] default '{}',
    truncate boolean default false,
    json_schema jsonb default null,
    grammar text default null
) returns generation_detail
language plpython3u volatile parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.generate.llm import llm_generate_detail
return llm_generate_detail(prompt, model, max_tokens, temperature, seed, system_prompt, stop, truncate, json_schema, grammar)
$python$;
comment on function llm_generate_detail(text, text, integer, real, integer, text, text[], boolean, jsonb, text) is
'Generates an answer as llm_generate does, and returns it with its cost and confidence. confidence is exp(mean log-probability of the tokens), in (0, 1]; it is not calibrated. signals has logprob_sum, logprob_mean, logprob_min and logprob_first (nats), entropy_mean and entropy_max (nats), margin_min (difference of the two highest probabilities of a token) and tokens. finish_reason is stop or length. A NULL prompt gives NULLs. Errors as llm_generate. Example: select text, confidence from llm_generate_detail(''Who wrote Hamlet?'');';
create or replace function llm_generate_stream(
    prompt text,
    model text default null,
    max_tokens integer default 256,
    temperature real default 0,
    seed integer default null,
    system_prompt text default null,
    stop text[] default '{}',
    truncate boolean default false,
    json_schema jsonb default null,
    grammar text default null
) returns setof text
language plpython3u volatile parallel unsafe security invoker cost 100000 rows 100
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.generate.llm import llm_generate_stream
return llm_generate_stream(prompt, model, max_tokens, temperature, seed, system_prompt, stop, truncate, json_schema, grammar)
$python$;
comment on function llm_generate_stream(text, text, integer, real, integer, text, text[], boolean, jsonb, text) is
'Generates an answer as llm_generate does, and returns it as one row per piece of text. A piece holds whole characters. Call it in the select list and read it through a cursor (psql: \set FETCH_COUNT 1), and each row arrives when it is generated. If the answer does not fit json_schema, the error comes at its end. A NULL prompt gives no rows. Errors as llm_generate. Example: select llm_generate_stream(''Tell me a story.'');';
create or replace function llm_stream(
    prompt text,
    model text default null,
    max_tokens integer default 256,
    temperature real default 0,
    seed integer default null,
    system_prompt text default null,
    stop text[] default '{}',
    truncate boolean default false,
    json_schema jsonb default null,
    grammar text default null
) returns setof text
language sql volatile parallel unsafe security invoker cost 100000 rows 100
begin atomic
    select _mindful.deprecated('llm_stream', 'llm_generate_stream');
    select mindful.llm_generate_stream(prompt, model, max_tokens, temperature, seed, system_prompt, stop, truncate, json_schema, grammar);
end;
comment on function llm_stream(text, text, integer, real, integer, text, text[], boolean, jsonb, text) is
'Deprecated name of llm_generate_stream, kept until version 0.4.0.';

insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('model_keep', 'boolean', null, null, '{global,user}', 'true',
        'Whether a connection keeps its loaded models when a transaction ends. false: it frees their memory and loads them again at the next use.');

create function llm_rerank(query text, contents text[], model text default null, limit_ms integer default null) returns real[]
language plpython3u stable parallel restricted security invoker cost 1000000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.generate.rerank import llm_rerank
return llm_rerank(query, contents, model, limit_ms)
$python$;
comment on function llm_rerank(text, text[], text, integer) is
'Scores how well each text answers a query with a reranker (NULL: the default one), which reads query and text together. Scores are in the order of the texts, on the model''s own scale; higher is better. A NULL text gives NULL. Texts that are not scored within limit_ms milliseconds (at least 1; NULL: no limit) give NULL. A NULL query or array gives NULL. Errors: 22023 (empty query or text, limit_ms below 1), 42704 (no such model), 54000 (query or text over 262144 bytes), 55000 (no default reranker). Example: select llm_rerank(''capital of France'', ''{Paris is the capital.,Rome is old.}'');';
create function llm_extract(
    content text,
    json_schema jsonb,
    instruction text default null,
    model text default null,
    max_tokens integer default 512
) returns jsonb
language plpython3u volatile parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.generate.structure import llm_extract
return llm_extract(content, json_schema, instruction, model, max_tokens)
$python$;
comment on function llm_extract(text, jsonb, text, text, integer) is
'Extracts JSON that fits a JSON schema (draft 2020-12) from a text with a generator (NULL: the default one). A grammar restricts every token to the schema, and the result is validated. NULL content gives NULL. instruction tells the model what to extract. max_tokens (at least 1) is the largest number of generated tokens. The result has only members that the schema names. pattern, patternProperties, $id and references outside the schema are not supported. Some keywords, such as uniqueItems, multipleOf and not, are checked at the end only. Errors: 22000 (the answer does not fit), 22004 (no schema), 22023 (bad or unsatisfiable schema, empty text), 42704 (no such model), 54000 (answer incomplete after max_tokens, or text longer than the context), 55P03 (no free slot), 57014 (cancelled). Example: select llm_extract(''Ana is 31.'', ''{"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}, "required": ["name", "age"]}'');';

create function llm_extract_many(
    contents text[],
    json_schema jsonb,
    instruction text default null,
    model text default null,
    max_tokens integer default 512
) returns jsonb[]
language plpython3u volatile parallel unsafe security invoker cost 1000000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.generate.structure import llm_extract_many
return llm_extract_many(contents, json_schema, instruction, model, max_tokens)
$python$;
comment on function llm_extract_many(text[], jsonb, text, text, integer) is
'Extracts JSON from many texts as llm_extract does, in shared batches, and returns it in the order of the texts. The instruction and the schema are evaluated once. A NULL element gives NULL, a NULL array gives NULL. If one text fails, the call fails, and the message has the position of the text. Errors as llm_extract.';
create type label_detail as (label text, probability real, probabilities jsonb);
comment on type label_detail is 'The most probable label of a text, its probability, and the probabilities of all labels.';

create function llm_classify(
    content text,
    labels text[],
    instruction text default null,
    model text default null,
    subtract_prior boolean default true
) returns text
language plpython3u stable parallel restricted security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.generate.label import llm_classify
return llm_classify(content, labels, instruction, model, subtract_prior)
$python$;
comment on function llm_classify(text, text[], text, text, boolean) is
'Chooses the label that fits a text best with a generator (NULL: the default one), without generating tokens. NULL content gives NULL. instruction describes the task, such as "What is the sentiment of the text?". The model reads a form with the instruction, the labels and the text. Each run of white space in the text becomes one space. The score of a label is the mean log-probability (nats) of its tokens as the continuation of the form. A softmax over the labels gives probabilities. With subtract_prior the score of each label for an empty text is subtracted, so that labels the model prefers in general have no advantage (contextual calibration, Zhao et al. 2021). llm_classify_many is faster for many rows. Errors: 22004 (labels NULL), 22023 (no labels, more than 255, a repeated label, empty text), 42704 (no such model), 54000 (text longer than the context), 55P03 (no free slot), 57014 (cancelled). Example: select llm_classify(''Superb!'', ''{praise,complaint}'');';

create function llm_classify_many(
    contents text[],
    labels text[],
    instruction text default null,
    model text default null,
    subtract_prior boolean default true
) returns label_detail[]
language plpython3u stable parallel restricted security invoker cost 1000000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.generate.label import llm_classify_many
return llm_classify_many(contents, labels, instruction, model, subtract_prior)
$python$;
comment on function llm_classify_many(text[], text[], text, text, boolean) is
'Classifies many texts as llm_classify does, in shared batches, and returns an array in the order of the texts. An element has the label, its probability, and the probabilities of all labels, which add up to 1. A NULL element gives NULL, a NULL array gives NULL. Errors as llm_classify. Example: select d.label, d.probability from unnest(llm_classify_many(''{Superb!,Awful.}'', ''{praise,complaint}'')) d;';

create function llm_if(content text, condition text, model text default null) returns boolean
language plpython3u stable parallel restricted security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.generate.label import llm_if
return llm_if(content, condition, model)
$python$;
comment on function llm_if(text, text, text) is
'Returns whether a statement is true of a text, by a generator (NULL: the default one). The labels true and false are scored as by llm_classify with subtract_prior. A NULL text or condition gives NULL. Errors: 22023 (empty text or condition), 42704 (no such model), 54000 (text longer than the context), 55P03 (no free slot), 57014 (cancelled). Example: select llm_if(''Superb!'', ''The writer is pleased.'');';

create function llm_if_many(contents text[], condition text, model text default null) returns boolean[]
language plpython3u stable parallel restricted security invoker cost 1000000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.generate.label import llm_if_many
return llm_if_many(contents, condition, model)
$python$;
comment on function llm_if_many(text[], text, text) is
'Returns for many texts whether a statement is true of them, as llm_if does, in shared batches and in their order. A NULL element gives NULL, a NULL array or condition gives NULL. Errors as llm_if.';
create function llm_generate_many(
    prompts text[],
    model text default null,
    max_tokens integer default 256,
    temperature real default 0,
    seed integer default null,
    system_prompt text default null,
    stop text[] default '{}',
    truncate boolean default false,
    json_schema jsonb default null,
    grammar text default null
) returns text[]
language plpython3u volatile parallel unsafe security invoker cost 1000000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.generate.batch import llm_generate_many
return llm_generate_many(prompts, model, max_tokens, temperature, seed, system_prompt, stop, truncate, json_schema, grammar)
$python$;
comment on function llm_generate_many(text[], text, integer, real, integer, text, text[], boolean, jsonb, text) is
'Answers many prompts as llm_generate does, in shared batches, and returns the answers in the order of the prompts. It generates more tokens per second than single calls; a common beginning of the prompts is evaluated once. A NULL element gives NULL, a NULL array gives NULL. The n-th prompt uses the seed plus n - 1. If two tokens are almost equally likely, an answer can differ from that of a single call, because sums are rounded in another order. The call returns when the last answer is complete. Errors as llm_generate; the message has the position of the prompt. Example: select llm_generate_many(''{Name a color.,Name a fruit.}'', max_tokens => 8);';
create function _mindful.summary_text(state text[]) returns text
language plpython3u volatile parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.generate.summary import summary_text
return summary_text(state)
$python$;
comment on function _mindful.summary_text(text[]) is 'Summarizes texts with the default generator.';

create function _mindful.summary(state text[]) returns text
language sql volatile parallel unsafe security invoker
begin atomic
    select case
        when pg_catalog.sum(pg_catalog.octet_length(s.content)) > 1048576
            then _mindful.raise('54000', pg_catalog.format('the texts have %s bytes, more than 1048576',
                pg_catalog.sum(pg_catalog.octet_length(s.content))), 'Summarize groups of texts, then the summaries.')::text
        else _mindful.summary_text(pg_catalog.array_agg(s.content order by s.number) filter (where s.content is not null))
    end
    from pg_catalog.unnest(state) with ordinality s (content, number);
end;
comment on function _mindful.summary(text[]) is
'Summarizes the texts that llm_summarize collected, without NULLs. Error 54000: they have more than 1048576 bytes.';

create aggregate llm_summarize(content text) (
    sfunc = pg_catalog.array_append,
    stype = text[],
    initcond = '{}',
    finalfunc = _mindful.summary,
    parallel = unsafe
);
comment on aggregate llm_summarize(text) is
'Aggregates texts into a summary by the default generator, in the order of ORDER BY within the call. Texts that do not fit the context together are summarized in parts, then the summaries are summarized. NULLs and empty texts are ignored; without texts the result is NULL. Errors: 54000 (more than 1 MiB in total), 55000 (no default generator), 55P03 (no free slot), 57014 (cancelled). Example: select llm_summarize(content order by id) from memory where created_at > now() - interval ''7 days'';';

-- memory
-- A question that was asked before resembles the same question more than its answer does. A chat therefore recalls what was
-- stated, and leaves out messages that only ask.

create function _mindful.sentence_asks(sentence text) returns boolean
language plpgsql immutable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    plain text := regexp_replace(lower(sentence), '[’`´]', '''', 'g');
    -- What opens a sentence and says nothing.
    body text := regexp_replace(plain,
        '^\W*((ok|okay|so|well|and|but|or|hey|hi|hello|please|sorry|thanks|now|then|also|just|again|actually|quick question|um+|uh+|hm+|oh|by the way|btw|remember|excuse me)\W+)*', '');
    is_marked boolean := sentence ~ '[?？؟]\W*$';
    -- "Remind me that ...", "Note: ..."
    quotes boolean;
begin
    if body = '' or plain ~ '^\W*(ok|okay|hi|hello|hey|thanks?|thank you|thx|cheers|great|cool|nice|good|perfect|bye|goodbye|yes|no|yeah|nope|sure|please|wow|lol|ha(ha)*|hm+|got it|i see|never mind|good (morning|afternoon|evening|night)|see you)(\W+\w+){0,2}\W*$' then
        return true;
    end if;
    -- A clause before the question that has a subject and something to say of it: "I moved to Graz, so where ...?"
    if is_marked and (
        body !~ '[,;:–—-]'
        or body ~ '^(who|whom|whose|what|which|when|where|why|how|if|is|are|am|was|were|do|does|did|can|could|would|should|will|may|might|tell|remind|give|show|help|let|for|in|on|at|about|of|with|to|from|any)\M'
        or body !~ '^((since|because|as|now that|given that|given|after|before|when|while|although|my|our|his|her|their)\W+)*(i|we|he|she|it|they|there|this|that|''s|\w+)(''\w+)?\W+(\w+''?\w*\W+){2,}[^,;:–—-]*[,;:–—-]+\s'
    ) then
        return true;
    end if;
    quotes := body ~ '\mthat(\W+\w+){3}|:\W*\w+\W+\w+';
    if body ~ ('\m(forgot|forget|forgotten|forgetting|wonder|wondering|curious|no idea|not sure|unsure|no clue|do you know|do you remember|'
            || '((do|did|does|ca|could|would|wo)(n''t| not)|cannot|can ?not|never|unable to|trying to|try to|want to|need to|like to|love to|have to|help me) '
            || '(quite |really |ever )?(know|remember|recall|find|find out|hear|see|check|tell|think of|look up|ask))\M'
            || '.{0,60}\m(who|whom|whose|what|which|when|where|why|how|if|whether|name of|number of|date of|about)\M')
    then
        return is_marked or not quotes;
    end if;
    return not is_marked and not quotes and (
        body ~ '^(is|are|am|was|were|do|does|did|can|could|would|should|shall|isn''t|aren''t|wasn''t|weren''t|don''t|doesn''t|didn''t|can''t|couldn''t|won''t|wouldn''t|shouldn''t|haven''t|hasn''t|any (idea|chance|clue|thoughts))\M'
        or body ~ '^(will|may|might|have|has|had)\W+(i|we|you|he|she|it|they|the|my|our|your|his|her|their|there|this|that|any)\M'
        or body ~ '^(tell|remind|give|show|help|explain|list|name(?!'')|find|describe|summari[sz]e|write|refresh|guess|check|search|translate|repeat|say|suggest|recommend|compare|look up|let me know|let me hear)\M'
        or body ~ '^(who|whom|whose|what|which|when|where|why|how)(''?s|''?re|''?d|''?ll)?\M'
            and body !~ '^(who|whom|whose|what|which|when|where|why|how)\W+(i|we|you|he|she|it|they|the|a|an|my|our|his|her|their|this|that|ever)\M'
    );
end
$$;
comment on function _mindful.sentence_asks(text) is
'Returns whether a sentence asks, requests or greets, and states nothing. It knows question marks of many scripts, and English forms without one.';

create function _mindful.asks(content text) returns boolean
language sql immutable parallel safe security invoker
begin atomic
    select case when pg_catalog.length(content) <= 1000 then (
        select pg_catalog.bool_and(_mindful.sentence_asks(s.sentence))
        from pg_catalog.regexp_split_to_table(content, '(?<=[.!?…。！？])\s+|\n+') s (sentence)
    ) else false end;
end;
comment on function _mindful.asks(text) is
'Returns whether a text only asks: none of its sentences states anything. A text of more than 1000 characters is taken to state something.';
alter table memory
    add column importance real not null default 0.5 check (importance between 0 and 1),
    add column confidence real check (confidence between 0 and 1),
    add column level text not null default 'data' check (level in ('data', 'information', 'knowledge', 'wisdom')),
    add column valid_from timestamptz,
    add column valid_to timestamptz,
    add column superseded_by bigint,
    add column valid_to_given timestamptz,
    add column stated boolean not null default false,
    add column asks boolean not null generated always as (kind = 'message' and role = 'user' and _mindful.asks(content)) stored,
    add constraint memory_validity check (valid_from <= valid_to),
    add constraint memory_superseded_by foreign key (tenant, superseded_by) references memory (tenant, id)
        on delete set null (superseded_by);
insert into setting_definition (key, type, low, high, scopes, initial, description, choices)
select 'recall_language', 'text', null::double precision, null::double precision, '{global,user}'::text[], '"english"'::jsonb,
    'Text-search configuration of PostgreSQL for the words of new memories and of queries. After a change, memory_index_rebuild() reads older memories by it.',
    array(
        select c.cfgname::text from pg_catalog.pg_ts_config c
        where c.cfgnamespace operator(pg_catalog.=) 'pg_catalog'::pg_catalog.regnamespace order by 1
    );
create or replace function _mindful.recall_language() returns text
language sql stable parallel safe security invoker
begin atomic
    select mindful.setting_get('recall_language') #>> '{}';
end;
comment on function _mindful.recall_language() is 'Returns the setting recall_language in force.';
alter table memory add column language text not null default 'english';
alter table memory alter column language set default _mindful.recall_language();
comment on column memory.language is 'Text-search configuration by which memory_term holds the words of content.';
alter table memory drop constraint memory_tenant_session_id_turn_key, drop constraint memory_tenant_source_source_key_key;
create unique index memory_turn on memory (tenant, session_id, turn) where session_id is not null;
create unique index memory_source on memory (tenant, source, source_key) where source is not null;
create index memory_superseded_by on memory (tenant, superseded_by) where superseded_by is not null;
comment on column memory.importance is 'From 0 to 1. The default is 0.5.';
comment on column memory.confidence is 'Probability that the memory is true; NULL if unknown.';
comment on column memory.valid_from is 'Start of validity; NULL is no limit.';
comment on column memory.valid_to is 'End of validity, exclusive; NULL is no limit.';
comment on column memory.superseded_by is 'The next version of this memory; NULL if it is the latest.';
comment on column memory.valid_to_given is 'What valid_to was before the memory was superseded; forgetting what took its place puts it back.';
comment on column memory.asks is 'Whether this is a message of a user that asks and states nothing. Recall for a chat leaves it out.';
comment on column memory.stated is 'Whether a memory with evidence was remembered without any as well, so that it outlives the evidence.';
create index memory_valid_from on memory (tenant, valid_from) where valid_from is not null;
create index memory_valid_to on memory (tenant, valid_to) where valid_to is not null;
create index memory_term_sample on memory_term (tenant, lexeme) where hashint8(id) & 31 = 0;
alter table memory drop constraint memory_role_check;
alter table memory add constraint memory_role_check check (role in ('system', 'user', 'assistant', 'tool', 'clarification'));
comment on column memory.role is 'Whose words a message holds; clarification: the assistant asked back.';
comment on column memory.source_key is 'Which part of the source this is: a chunk''s hash, a row''s primary key.';

drop trigger embed_inserted on memory;
drop trigger embed_updated on memory;
drop trigger index_updated on memory;
drop trigger index_inserted on memory;
drop trigger index_deleted on memory;
create trigger index_inserted after insert on memory referencing new table as new_rows
    for each statement when (pg_catalog.current_setting('row_security') = 'on' or not _mindful.is_restore()) execute function _mindful.memory_index();
create trigger index_updated after update on memory referencing old table as old_rows new table as new_rows
    for each statement when (pg_catalog.current_setting('row_security') = 'on' or not _mindful.is_restore()) execute function _mindful.memory_index();
create trigger index_deleted after delete on memory referencing old table as old_rows
    for each statement when (pg_catalog.current_setting('row_security') = 'on' or not _mindful.is_restore()) execute function _mindful.memory_index();

create or replace function _mindful.metadata(metadata jsonb) returns jsonb
language sql stable parallel safe security invoker
begin atomic
    select case
        when metadata is null then '{}'::jsonb
        when pg_catalog.pg_column_size(metadata) > 262144
            then _mindful.raise('54000', pg_catalog.format('metadata has %s bytes, more than 262144', pg_catalog.pg_column_size(metadata)),
                'Store long texts as memories of their own.')::text::jsonb
        when pg_catalog.jsonb_typeof(metadata) = 'object' then metadata
        else _mindful.raise('22023', 'metadata is not a JSON object', 'Pass an object, such as {"topic": "travel"}.')::text::jsonb
    end;
end;
comment on function _mindful.metadata(jsonb) is
'Returns metadata if it is a JSON object ({} for NULL), or raises 22023 or 54000.';
create or replace function _mindful.memory_changed(tenant text, id bigint, content text) returns table (content text)
language sql stable parallel safe security invoker rows 1
begin atomic
    select m.content from mindful.memory m
    where m.tenant = memory_changed.tenant and m.id = memory_changed.id and m.content <> memory_changed.content
    offset 0;
end;
comment on function _mindful.memory_changed(text, bigint, text) is 'A memory''s content, if it was another.';
alter table memory_count add column bytes bigint not null default 0;
comment on column memory_count.bytes is 'Bytes of the memories'' content and metadata.';
drop function _mindful.memory_count_add(text, bigint, numeric);
create or replace function _mindful.memory_count_add(tenant text, memories bigint, lexemes numeric, bytes numeric) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    -- Under a snapshot that is older than another's change of the row, even a free row cannot be updated.
    if current_setting('transaction_isolation') = 'read committed' then
        update mindful.memory_count c
        set memories = c.memories + memory_count_add.memories, lexemes = c.lexemes + memory_count_add.lexemes,
            bytes = c.bytes + memory_count_add.bytes
        where c.tenant = memory_count_add.tenant and c.shard = (
            select f.shard from mindful.memory_count f
            where f.tenant = memory_count_add.tenant
            order by f.shard limit 1 for update skip locked
        );
        if found then
            return;
        end if;
    end if;
    insert into mindful.memory_count (tenant, memories, lexemes, bytes)
    values (memory_count_add.tenant, memory_count_add.memories, memory_count_add.lexemes, memory_count_add.bytes);
end
$$;
comment on function _mindful.memory_count_add(text, bigint, numeric, numeric) is 'Adds to a tenant''s counts, without waiting for other writers.';
create or replace function _mindful.memory_bytes(content text, metadata jsonb) returns bigint
language sql immutable parallel safe security invoker
begin atomic
    select pg_catalog.octet_length(content) + pg_catalog.octet_length(metadata::text)::bigint;
end;
comment on function _mindful.memory_bytes(text, jsonb) is 'What a memory counts towards the setting quota_mb.';
create or replace function _mindful.memory_reindexed(tenant text, id bigint, content text, language text)
returns table (content text, language text)
language sql stable parallel safe security invoker rows 1
begin atomic
    select m.content, m.language from mindful.memory m
    where m.tenant = memory_reindexed.tenant and m.id = memory_reindexed.id
        and (m.content <> memory_reindexed.content or m.language <> memory_reindexed.language)
    offset 0;
end;
comment on function _mindful.memory_reindexed(text, bigint, text, text) is
'Returns the content and language of a memory if one of them differs from the arguments.';
create or replace function _mindful.memory_index() returns trigger
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
set mindful.tenant = ''
set enable_hashjoin = off
set enable_mergejoin = off
set enable_seqscan = off
as $$
declare
    added record;
begin
    -- Each posting is looked up by its whole key, and each row by its own: a plan that is kept from a small statement else
    -- compares all rows of a large one with one another, or reads all postings of the tenant for each.
    if tg_op = 'DELETE' then
        delete from mindful.memory_term t
        using (select o.tenant, d.lexeme, o.id from old_rows o, _mindful.terms(o.content, o.language) d offset 0) gone
        where t.tenant = gone.tenant and t.lexeme = gone.lexeme and t.id = gone.id;
        perform _mindful.memory_count_add(o.tenant, -count(*), -sum(_mindful.length(o.content, o.language)),
            -sum(_mindful.memory_bytes(o.content, o.metadata)))
        from old_rows o group by o.tenant;
    elsif tg_op = 'INSERT' then
        -- Each text is parsed once.
        for added in
            with term as materialized (
                select n.tenant, n.id, d.lexeme, d.frequency, d.length from new_rows n, _mindful.terms(n.content, n.language) d
            ),
            stored as (
                insert into mindful.memory_term (tenant, lexeme, id, frequency, length)
                select t.tenant, t.lexeme, t.id, t.frequency, t.length from term t
            ),
            counted as (
                select t.tenant, sum(t.frequency) as lexemes from term t group by t.tenant
            )
            select n.tenant, count(*) as memories, coalesce(max(c.lexemes), 0) as lexemes,
                sum(_mindful.memory_bytes(n.content, n.metadata)) as bytes
            from new_rows n left join counted c on c.tenant = n.tenant
            group by n.tenant
        loop
            perform _mindful.memory_count_add(added.tenant, added.memories, added.lexemes, added.bytes);
        end loop;
    else
        delete from mindful.memory_term t
        using (
            select o.tenant, d.lexeme, o.id
            from old_rows o, _mindful.memory_reindexed(o.tenant, o.id, o.content, o.language), _mindful.terms(o.content, o.language) d
            offset 0
        ) gone
        where t.tenant = gone.tenant and t.lexeme = gone.lexeme and t.id = gone.id;
        insert into mindful.memory_term (tenant, lexeme, id, frequency, length)
        select o.tenant, d.lexeme, o.id, d.frequency, d.length
        from old_rows o, _mindful.memory_reindexed(o.tenant, o.id, o.content, o.language) n,
            _mindful.terms(n.content, n.language) d;
        perform _mindful.memory_count_add(o.tenant, 0,
            sum(_mindful.length(n.content, n.language) - _mindful.length(o.content, o.language)), 0)
        from old_rows o, _mindful.memory_reindexed(o.tenant, o.id, o.content, o.language) n
        group by o.tenant;
        perform _mindful.memory_count_add(c.tenant, 0, 0, c.bytes)
        from (
            select r.tenant, sum(r.bytes) as bytes
            from (
                select n.tenant, _mindful.memory_bytes(n.content, n.metadata) as bytes from new_rows n
                union all
                select o.tenant, -_mindful.memory_bytes(o.content, o.metadata) from old_rows o
            ) r
            group by r.tenant
        ) c
        where c.bytes <> 0;
    end if;
    return null;
end
$$;
comment on function _mindful.memory_index() is 'Keeps memory_term and memory_count true to the statement''s rows, with the owner''s rights: no role writes these tables otherwise.';
update memory_count c set bytes = m.bytes
from (select tenant, sum(_mindful.memory_bytes(content, metadata)) as bytes from memory group by tenant) m
where c.tenant = m.tenant and c.shard = (select min(f.shard) from memory_count f where f.tenant = c.tenant);
create or replace function _mindful.embedding_table_create(model text, dims integer) returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
set client_min_messages = warning
as $$
declare
    relation text := _mindful.embedding_table(model);
    vector_schema text := (select extnamespace::regnamespace from pg_extension where extname = 'vector');
begin
    if not exists (
        select from mindful.model m
        where m.name = embedding_table_create.model and m.kind = 'embedder' and m.dims = embedding_table_create.dims
    ) then
        perform _mindful.raise('42704', format('there is no embedder %L of %s dimensions', model, dims),
            'Register it with mindful.model_register(name, ''embedder'', provider, source).');
    end if;
    -- A dropped extension leaves its embedding tables, which are no members of it, without what tied them to memory.
    if exists (select from pg_constraint c
        where c.conrelid = to_regclass(format('mindful.%I', relation)) and c.confrelid = 'mindful.memory'::regclass)
    then
        perform _mindful.raise('42710', format('there is a table %s already', relation), 'It holds another model''s vectors.');
    end if;
    execute format('drop table if exists mindful.%I', relation);
    execute format('create table mindful.%I (
        tenant text not null default _mindful.tenant(),
        id bigint not null,
        embedding %s.vector(%s) not null,
        content_hash text not null,
        primary key (tenant, id))', relation, vector_schema, dims);
    execute format('alter table mindful.%I add foreign key (tenant, id) references mindful.memory on delete cascade', relation);
    execute format('alter table mindful.%I enable row level security, force row level security', relation);
    execute format('create policy own on mindful.%I using (tenant = (select _mindful.tenant()))
        with check (tenant = (select _mindful.tenant_claimed()))', relation);
    execute format('grant select, insert on mindful.%I to mindful_user', relation);
    perform _mindful.update_grant(format('mindful.%I', relation));
    execute format('comment on table mindful.%I is %L', relation, 'Embeddings of memories by the model ' || model || '.');
    perform _mindful.statistics_remove();
end
$$;
comment on function _mindful.embedding_table_create(text, integer) is
'Makes the table for a registered embedder''s vectors (42704 for others), owned by the extension''s owner whoever registers the model, or that role could lift its row-level security.';
create or replace function _mindful.embedder_inserted() returns trigger
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform _mindful.embedding_table_create(new.name, new.dims);
    return null;
end
$$;
comment on function _mindful.embedder_inserted() is 'Makes the table for the vectors of an embedder, however it is registered.';
create trigger embedder_inserted after insert on model for each row
    when (new.kind = 'embedder' and (pg_catalog.current_setting('row_security') = 'on' or not _mindful.is_restore()))
    execute function _mindful.embedder_inserted();
create or replace function memory_index_create(tenant text, model text default null) returns text
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    chosen text := (
        select m.name from mindful.model m
        where m.kind = 'embedder' and (m.name = memory_index_create.model or memory_index_create.model is null and m.is_default)
    );
    index_name text := 'embedding_' || left(md5(format('%s %s', chosen, tenant)), 16);
begin
    perform _mindful.writable();
    if tenant is null then
        perform _mindful.raise('22004', 'tenant is null', 'Name the tenant whose memories are to be indexed.');
    elsif chosen is null then
        perform _mindful.raise('42704', format('there is no embedder %s', coalesce(quote_literal(model), 'by default')),
            'Embedders are listed in mindful.model.');
    end if;
    execute format('create index %I on mindful.%I using hnsw (embedding %s.vector_cosine_ops) where tenant = %L',
        index_name, _mindful.embedding_table(chosen),
        (select extnamespace::regnamespace from pg_extension where extname = 'vector'), tenant);
    return index_name;
end
$$;
comment on function memory_index_create(text, text) is
'Creates an HNSW index on the embeddings of one tenant by an embedder (NULL: the default), and returns its name.
Without an index, recall compares the query with all embeddings of the tenant: exact, about 1.5 ms per 1000. An index pays from some ten thousand memories. Each tenant needs its own index: a common one would leak, through the planner, what other tenants store. For administrators.
Errors: 22004, 42704 (no such embedder), 42P07 (the index exists).';

alter function _mindful.array_elements(text, jsonb, text[]) rows 10;

drop function memory_insert(text, text, jsonb, text, text);
drop function memory_insert_many(jsonb);

drop function memory_recall(text, integer, text[]);
drop function _memory_lexical(text, integer, text[]);
drop function _memory_nearest(text, integer, text[]);
drop function _mindful.length(text);
drop function _mindful.terms(text);
create or replace function _mindful.language(name text) returns regconfig
language sql stable strict parallel safe security invoker
begin atomic
    select ('pg_catalog.' || pg_catalog.quote_ident(name))::regconfig;
end;
comment on function _mindful.language(text) is 'Returns one of the text-search configurations of PostgreSQL by its name.';
create or replace function _mindful.terms(content text, language text default _mindful.recall_language())
returns table (lexeme text, frequency integer, length integer)
language sql stable parallel safe security invoker
begin atomic
    select t.lexeme, pg_catalog.cardinality(t.positions),
        (pg_catalog.sum(pg_catalog.cardinality(t.positions)) over ())::integer
    from pg_catalog.unnest(pg_catalog.to_tsvector(_mindful.language(language), content)) t;
end;
comment on function _mindful.terms(text, text) is 'Returns the lexemes of a text by a text-search configuration, the frequency of each, and their number in all.';
create or replace function _mindful.length(content text, language text default _mindful.recall_language()) returns bigint
language sql stable parallel safe security invoker
begin atomic
    select coalesce(pg_catalog.max(t.length), 0)::bigint from _mindful.terms(content, language) t;
end;
comment on function _mindful.length(text, text) is 'Returns the number of lexemes in a text by a text-search configuration.';
create unlogged table index_rebuild (
    tenant text not null default _mindful.tenant(),
    primary key (tenant)
);
comment on table index_rebuild is 'Requests to rebuild the words of a tenant''s memories. A trigger carries a request out and deletes it.';
alter table index_rebuild enable row level security, force row level security;
create policy own on index_rebuild using (tenant = (select _mindful.tenant())) with check (tenant = (select _mindful.tenant_claimed()));
create or replace function _mindful.index_rebuild(tenant text) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    outer_tenant text := coalesce(current_setting('mindful.tenant', true), '');
    tenant_language text;
begin
    perform set_config('mindful.tenant', tenant, true);
    tenant_language := _mindful.recall_language();
    perform set_config('mindful.tenant', outer_tenant, true);
    update mindful.memory m set language = tenant_language
    where m.tenant = index_rebuild.tenant and m.language <> tenant_language;
    delete from mindful.memory_term t where t.tenant = index_rebuild.tenant;
    -- The locks end deletions by others first: a memory that is gone gets no words.
    insert into mindful.memory_term (tenant, lexeme, id, frequency, length)
    select m.tenant, d.lexeme, m.id, d.frequency, d.length
    from (select * from mindful.memory m where m.tenant = index_rebuild.tenant for key share) m,
        _mindful.terms(m.content, m.language) d
    on conflict do nothing;
    -- Other writers skip locked rows of memory_count, and add rows of their own.
    perform from mindful.memory_count c where c.tenant = index_rebuild.tenant for update;
    with gone as (
        delete from mindful.memory_count c where c.tenant = index_rebuild.tenant
    )
    insert into mindful.memory_count (tenant, memories, lexemes, bytes)
    select m.tenant, count(*), sum(_mindful.length(m.content, m.language)), sum(_mindful.memory_bytes(m.content, m.metadata))
    from mindful.memory m
    where m.tenant = index_rebuild.tenant
    group by m.tenant;
end
$$;
comment on function _mindful.index_rebuild(text) is
'Writes memory_term and memory_count of a tenant again, by its setting recall_language. Only the extension''s owner has the rights.';
create or replace function _mindful.index_rebuild_requested() returns trigger
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
set mindful.tenant = ''
as $$
begin
    perform _mindful.index_rebuild(new.tenant);
    delete from mindful.index_rebuild r where r.tenant = new.tenant;
    return null;
end
$$;
comment on function _mindful.index_rebuild_requested() is 'Carries out a row of index_rebuild. Its policy has checked the tenant.';
create trigger index_rebuild_requested after insert on index_rebuild
    for each row execute function _mindful.index_rebuild_requested();

create or replace function _mindful.memory_argument(name text, id bigint) returns bigint
language sql stable parallel safe security invoker
begin atomic
    select case
        when id is null then _mindful.raise('22004', name || ' is null', 'Pass the id of a memory.')::text::bigint
        when exists (select from mindful.memory m where m.tenant = (select _mindful.tenant()) and m.id = memory_argument.id)
            then id
        else _mindful.raise('42704', pg_catalog.format('there is no memory %s (%s)', id, name),
            'The memories of your tenant are in mindful.memory; memory_list() returns them.')::text::bigint
    end;
end;
comment on function _mindful.memory_argument(text, bigint) is 'Returns the id of one of the tenant''s memories, or raises 22004 or 42704.';
create or replace function _mindful.share_argument(name text, value jsonb) returns real
language sql stable parallel safe security invoker
begin atomic
    select case
        when pg_catalog.jsonb_typeof(value) = 'null' then null
        when pg_catalog.jsonb_typeof(value) <> 'number' or not value::numeric between 0 and 1
            then _mindful.raise('22023', pg_catalog.format('%s is %s', name, value), 'Pass a number from 0 to 1.')::text::real
        else _mindful.real(value::numeric(40, 39))
    end;
end;
comment on function _mindful.share_argument(text, jsonb) is 'Returns a number from 0 to 1, NULL for none, or raises 22023.';
create or replace function _mindful.level_argument(name text, level text) returns text
language sql stable parallel safe security invoker
begin atomic
    select case
        when level is null or level = any (array['data', 'information', 'knowledge', 'wisdom']) then level
        else _mindful.raise('22023', pg_catalog.format('%s is %L', name, level),
            'Pass data, information, knowledge or wisdom.')::text
    end;
end;
comment on function _mindful.level_argument(text, text) is 'Returns a level, NULL for none, or raises 22023.';
create or replace function _mindful.time_argument(name text, value text) returns timestamptz
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    moment timestamptz;
begin
    begin
        moment := value::timestamptz;
    exception when invalid_datetime_format or datetime_field_overflow then
        perform _mindful.raise('22023', format('%s is %L', name, value), 'Pass a time such as 2026-01-31 12:00+00.');
    end;
    return _mindful.range_argument(name, moment);
end
$$;
comment on function _mindful.time_argument(text, text) is 'Returns a time, NULL for none, or raises 22008 (outside the years 1 to 9999) or 22023 (not a time).';
create or replace function _mindful.moment_argument(name text, value text) returns timestamptz
language sql stable parallel safe security invoker
begin atomic
    select case
        when not pg_catalog.isfinite(m.moment)
            then _mindful.raise('22023', pg_catalog.format('%s is %s', name, value), 'Pass a finite time.')::text::timestamptz
        else m.moment
    end
    from (select _mindful.time_argument(name, value) as moment) m;
end;
comment on function _mindful.moment_argument(text, text) is 'Returns a finite time, NULL for none, or raises 22008 or 22023.';
create or replace function _mindful.valid_to_argument(name text, valid_from timestamptz, valid_to timestamptz) returns timestamptz
language sql stable parallel safe security invoker
begin atomic
    select case
        when valid_from >= valid_to then _mindful.raise('22023',
            pg_catalog.format('%s is %s, not after valid_from, %s', name, valid_to, valid_from),
            'Pass a valid_to after valid_from.')::text::timestamptz
        else valid_to
    end;
end;
comment on function _mindful.valid_to_argument(text, timestamptz, timestamptz) is 'Returns the end of a validity, or raises 22023 if it is not after the beginning.';
-- OFFSET 0 within LATERAL, below, makes of a join a look-up in an index for each candidate. Estimates, which are of all
-- tenants, made of it a hash join over all of a tenant's memories.

create type recall_filter as (kinds text[], metadata jsonb, session_id uuid, as_of timestamptz, statements boolean);
comment on type recall_filter is 'Which memories may be recalled: NULL is any kind, metadata, session or time of validity; statements leaves out questions and the model''s own words.';

create function _mindful.kinds_argument(kinds text[]) returns text[]
language sql stable parallel safe security invoker
begin atomic
    select case
        when kinds <@ array['message', 'fact', 'summary', 'document', 'reflection'] is false
            then array[_mindful.raise('22023', 'kinds is ' || kinds::text,
                'Kinds are message, fact, summary, document and reflection.')::text]
        else kinds
    end;
end;
comment on function _mindful.kinds_argument(text[]) is 'Returns kinds of memories, NULL for any, or raises 22023.';

create function _mindful.recall_admits(filter recall_filter, m memory) returns boolean
language sql immutable parallel safe security invoker
begin atomic
    select (filter.kinds is null or m.kind = any (filter.kinds))
        and (filter.metadata is null or m.metadata @> filter.metadata)
        and (filter.session_id is null or m.session_id = filter.session_id)
        and (filter.statements is not true or not m.asks and coalesce(m.role not in ('assistant', 'clarification'), true))
        and coalesce(m.valid_from <= filter.as_of, true)
        and coalesce(m.valid_to > filter.as_of, true);
end;
comment on function _mindful.recall_admits(recall_filter, memory) is
'Whether a memory passes a filter; valid is from valid_from until before valid_to.';

create function _mindful.recall_hidden(as_of timestamptz) returns integer
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
begin
    return (
        select count(*) from (
            (select from mindful.memory m where m.tenant = (select _mindful.tenant()) and m.valid_to <= as_of limit 101)
            union all
            (select from mindful.memory m where m.tenant = (select _mindful.tenant()) and m.valid_from > as_of limit 101)
        ) h
    );
end
$$;
comment on function _mindful.recall_hidden(timestamptz) is 'How many memories are not valid at a time, counted up to about a hundred.';

create function _mindful.recall_dense(embedding vector, embedder text, candidates integer, filter recall_filter)
returns table (id bigint, similarity double precision)
language plpgsql stable parallel restricted security invoker rows 70
set search_path = pg_catalog, mindful, pg_temp
set hnsw.iterative_scan = 'relaxed_order'
set enable_seqscan = off
set hnsw.ef_search = 100
set hnsw.max_scan_tuples = 200000
set jit = off
as $$
declare
    vector_schema text := (select extnamespace::regnamespace from pg_extension where extname = 'vector');
begin
    if embedding is null then  -- full text alone, then
        return;
    end if;
    -- The tenant as a constant: an index of its own is found by it. Memory is read only where it decides.
    return query execute format('
        select e.id, 1 - (e.embedding operator(%1$s.<=>) $1)
        from mindful.%2$I e %4$s
        where e.tenant = %3$L
        order by e.embedding operator(%1$s.<=>) $1
        limit $2', vector_schema, _mindful.embedding_table(embedder), _mindful.tenant(),
        case when not filter is null then
            'join mindful.memory m on m.tenant = e.tenant and m.id = e.id and _mindful.recall_admits($3, m)'
        end)
    using embedding, candidates, filter;
end
$$;
comment on function _mindful.recall_dense(vector, text, integer, recall_filter) is
'The memories whose embeddings are nearest to the query''s, by cosine similarity: exactly, or by the tenant''s HNSW index where it has one, which gives them nearly in order.';

create function _mindful.recall_terms(query text)
returns table (lexeme text, holders bigint, idf double precision, mean_length double precision)
language plpgsql stable parallel safe security invoker rows 10
set search_path = pg_catalog, mindful, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
begin
    return query
    select q.lexeme, holder.n, ln(1 + (total.memories - holder.n + 0.5::double precision) / (holder.n + 0.5::double precision)),
        total.mean_length
    from _mindful.terms(query) q
    cross join _mindful.memory_total() total
    cross join lateral (
        select 32 * count(*) as n from mindful.memory_term t
        where t.tenant = (select _mindful.tenant()) and t.lexeme = q.lexeme and hashint8(t.id) & 31 = 0
    ) sampled
    cross join lateral (
        select count(*) as n from mindful.memory_term t
        where sampled.n < 1000 and t.tenant = (select _mindful.tenant()) and t.lexeme = q.lexeme
    ) counted
    cross join lateral (select least(greatest(counted.n, sampled.n), total.memories::bigint) as n) holder
    where holder.n > 0
    order by holder.n, q.lexeme
    limit 100;
end
$$;
comment on function _mindful.recall_terms(text) is
'The lexemes of a query that the tenant''s memories hold, at most 100, the rarest first: in how many, counted up to about a thousand and estimated from one posting in 32 beyond; the inverse document frequency (that of Lucene); and the mean length of the tenant''s memories.';

create function _mindful.recall_lexical(query text, candidates integer, filter recall_filter)
returns table (id bigint, term bigint, idf double precision, frequency double precision)
language plpgsql stable parallel safe security invoker rows 200
set search_path = pg_catalog, mindful, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
begin
    return query
    with term as materialized (
        select row_number() over rarest as term, t.lexeme, t.idf, t.mean_length,
            sum(t.holders) over rarest <= 1000 or row_number() over rarest = 1 as leads
        from _mindful.recall_terms(query) t
        window rarest as (order by t.holders, t.lexeme)
    ),
    posting as materialized (
        select p.id, t.term, t.idf, p.frequency / (0.6::double precision + 0.4 * p.length / t.mean_length) as frequency
        from term t
        cross join lateral (
            select h.id, h.frequency, h.length
            from mindful.memory_term h
            left join lateral (
                select true as admitted from mindful.memory m
                where not filter is null and m.tenant = (select _mindful.tenant()) and m.id = h.id
                    and _mindful.recall_admits(filter, m)
                offset 0
            ) f on true
            where h.tenant = (select _mindful.tenant()) and h.lexeme = t.lexeme and (filter is null or f.admitted)
            order by h.id desc
            limit 20000
        ) p
        where t.leads
    ),
    best as materialized (
        select p.id
        from posting p
        group by p.id
        order by sum(p.idf * p.frequency / (p.frequency + 1.2)) desc, p.id desc
        limit candidates
    )
    select p.id, p.term, p.idf, p.frequency
    from best b join posting p on p.id = b.id
    union all
    select p.id, t.term, t.idf, p.frequency / (0.6::double precision + 0.4 * p.length / t.mean_length)
    from best b
    cross join term t
    cross join lateral (
        select h.id, h.frequency, h.length from mindful.memory_term h
        where h.tenant = (select _mindful.tenant()) and h.lexeme = t.lexeme and h.id = b.id
        offset 0
    ) p
    where not t.leads;
end
$$;
comment on function _mindful.recall_lexical(text, integer, recall_filter) is
'The postings of the memories that best match a query by Okapi BM25, k1 = 1.2 and b = 0.4 (Robertson and Zaragoza 2009), with frequencies divided by 1 - b + b x length / mean length. Candidates come from the rarest lexemes, as many as have 1000 postings in all and at least one (MaxScore, Turtle and Flood 1995, without its guarantee), and from the newest 20000 of a lexeme''s; the common ones are looked up for the candidates. A lexeme counts at most 255 times in a text, as in tsvector.';
insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('recall_weight_bm25', 'number', 0, 1, '{global,user}', '0',
        'Weight of a memory''s own words in memory_recall.'),
    ('recall_weight_bm25_context', 'number', 0, 1, '{global,user}', '0.65',
        'Weight of a memory''s words together with those of the two turns before and after it.'),
    ('recall_weight_similarity', 'number', 0, 1, '{global,user}', '0.35',
        'Weight of a memory''s own meaning.'),
    ('recall_weight_similarity_context', 'number', 0, 1, '{global,user}', '0.3',
        'Weight of the meaning of the two turns before and after a memory.'),
    ('recall_neighbor_share', 'number', 0, 1, '{global,user}', '0.5',
        'How much the turn before or after a memory counts beside it, and each further one beside the one nearer.'),
    ('recall_boost_recency', 'number', 0, 0.1, '{global,user}', '0.04',
        'By which share the score of a memory made just now is raised.'),
    ('recall_boost_importance', 'number', 0, 0.1, '{global,user}', '0.04',
        'By which share the score of a memory of importance 1 is raised, and of importance 0 lowered.'),
    ('recall_boost_access', 'number', 0, 0.1, '{global,user}', '0.02',
        'Towards which share the score of a memory is raised that is used again and again.'),
    ('recall_half_life_days', 'number', 0.01, 36500, '{global,user}', '30',
        'After how many days the boost by recency is half as large.'),
    ('recall_rerank_ms', 'integer', 1, 600000, '{global,user}', '2000',
        'How long a reranker may take in memory_recall, in milliseconds, before the order without it stands.');

create type recall_score as (
    memory memory,
    score double precision,
    similarity double precision,
    bm25 double precision,
    bm25_context double precision,
    similarity_context double precision,
    recency double precision,
    access double precision,
    rerank real
);
comment on type recall_score is 'How well a memory matches a query; see recalled_memory.';

create function _mindful.recall_options() returns jsonb
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    return (
        with newest as (
            select distinct on (s.key, s.scope) s.key, s.scope, nullif(s.value, 'null') as value
            from mindful.setting s
            where s.tenant = any (array['', (select _mindful.tenant())]) and s.key >= 'recall_' and s.key < 'recall`'
                and s.scope <> 'session'
            order by s.key, s.scope, s.id desc
        )
        select jsonb_object_agg(d.key, coalesce(
            (select n.value from newest n where n.key = d.key and n.scope = 'user'),
            (select n.value from newest n where n.key = d.key and n.scope = 'global'), d.initial))
        from mindful.setting_definition d
        where d.key >= 'recall_' and d.key < 'recall`'
    );
end
$$;
comment on function _mindful.recall_options() is 'The settings recall_... in force, as setting_get gives them, by one plan that the session keeps.';

create function _mindful.recall_scores(
    query text,
    embedding vector,
    embedder text,
    candidates integer,
    pool integer,
    filter recall_filter,
    narrow boolean,
    options jsonb
) returns setof recall_score
language plpgsql stable parallel restricted security invoker rows 20
set search_path = pg_catalog, mindful, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
    weight_bm25 double precision := options ->> 'recall_weight_bm25';
    weight_bm25_context double precision := options ->> 'recall_weight_bm25_context';
    weight_similarity double precision := options ->> 'recall_weight_similarity';
    weight_similarity_context double precision := options ->> 'recall_weight_similarity_context';
    neighbor_share double precision := options ->> 'recall_neighbor_share';
    early recall_filter := case when narrow then filter end;
begin
    return query
    with dense as materialized (
        select d.id, d.similarity,
            1 - (max(d.similarity) over () - d.similarity)
                / greatest(max(d.similarity) over () - min(d.similarity) over (), 0.1) as share
        from _mindful.recall_dense(embedding, embedder, candidates, early) d
    ),
    posting as materialized (
        select l.* from _mindful.recall_lexical(query, candidates, early) l
    ),
    -- A place is a turn of a session, or outside of sessions a memory by itself.
    near as materialized (
        select c.id, m.session_id, coalesce(m.turn, m.id) + s.step as place, s.step <> 0 as beside,
            _mindful.power(neighbor_share, abs(s.step)) as share
        from (select d.id from dense d union select l.id from posting l) c
        cross join lateral (
            select m.id, m.session_id, m.turn from mindful.memory m
            where m.tenant = (select _mindful.tenant()) and m.id = c.id
                and (filter.statements is not true or not m.asks and coalesce(m.role not in ('assistant', 'clarification'), true))
            offset 0
        ) m
        join (values (0), (-1), (1), (-2), (2)) s (step) on s.step = 0 or m.turn is not null
    ),
    term as (
        select n.session_id, n.place, p.idf, sum(case when n.beside then 0 else p.frequency end) as own,
            sum(n.share * p.frequency) as context
        from posting p join near n using (id)
        group by n.session_id, n.place, p.term, p.idf
    ),
    part as (
        select t.session_id, t.place, t.idf * 2.2 * t.own / (t.own + 1.2) as bm25,
            t.idf * 2.2 * t.context / (t.context + 1.2) as bm25_context,
            null::double precision as similarity, 0::double precision as share, 0::double precision as share_context
        from term t
        union all
        select n.session_id, n.place, 0, 0, case when not n.beside then d.similarity end,
            case when n.beside then 0 else d.share end, case when n.beside then n.share * d.share else 0 end
        from dense d join near n using (id)
    ),
    total as (
        select p.session_id, p.place, sum(p.bm25) as bm25, sum(p.bm25_context) as bm25_context,
            max(p.similarity) as similarity, sum(p.share) as share, sum(p.share_context) as share_context
        from part p
        group by p.session_id, p.place
    ),
    best as materialized (
        select t.*,
            weight_bm25 * coalesce(t.bm25 / nullif(max(t.bm25) over (), 0), 0)
            + weight_bm25_context * coalesce(t.bm25_context / nullif(max(t.bm25_context) over (), 0), 0)
            + weight_similarity * t.share
            + weight_similarity_context * t.share_context as score
        from total t
        order by score desc
        limit pool
    )
    select f.memory, b.score, b.similarity, nullif(b.bm25, 0), nullif(b.bm25_context, 0), b.share_context,
        null::double precision, null::double precision, null::real
    from best b
    cross join lateral (
        select m as memory from mindful.memory m
        where m.tenant = (select _mindful.tenant()) and b.session_id is null and m.id = b.place
            and _mindful.recall_admits(filter, m)
        union all
        select m from mindful.memory m
        where m.tenant = (select _mindful.tenant()) and m.session_id = b.session_id and m.turn = b.place
            and _mindful.recall_admits(filter, m)
    ) f;
end
$$;
comment on function _mindful.recall_scores(text, vector, text, integer, integer, recall_filter, boolean, jsonb) is
'The memories with the best weighted sums of what the arms found, boosts not counted. bm25_context is BM25 of a turn and the two before and after it as fields of one text (BM25F), whose words count by recall_neighbor_share to the power of their distance. Similarities are scaled to [0, 1] over the candidates, or to less where they are all within 0.1; similarity_context is the sum of those of the turns before and after, weighted likewise. Candidates alone are seen, so a neighbor that no arm found adds nothing. The arms find only what passes the filter if narrow, else what they found is filtered.';

create function _mindful.recall_ranked(
    query text,
    embedding vector,
    embedder text,
    k integer,
    filter recall_filter,
    options jsonb
) returns setof recall_score
language plpgsql stable parallel restricted security invoker rows 10
set search_path = pg_catalog, mindful, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    half_life_days double precision := options ->> 'recall_half_life_days';
    recency_boost double precision := options ->> 'recall_boost_recency';
    importance_boost double precision := options ->> 'recall_boost_importance';
    access_boost double precision := options ->> 'recall_boost_access';
    narrow boolean := filter.kinds is not null or filter.metadata is not null or filter.session_id is not null;
    hidden integer := 0;
    ranked mindful.recall_score[];
begin
    if not narrow then
        hidden := _mindful.recall_hidden(filter.as_of);
        narrow := hidden > 100;
        hidden := case when narrow then 0 else hidden end;
    end if;
    loop
        ranked := array(
            with found as (
                select s.*,
                    _mindful.power(0.5, _mindful.half_lives((s.memory).created_at, filter.as_of, half_life_days)) as age_share,
                    coalesce(a.access_count / (a.access_count + 5.0::double precision), 0) as access_share
                from _mindful.recall_scores(query, embedding, embedder, 40 + k + hidden, 10 + k + hidden, filter, narrow, options) s
                left join lateral (
                    select a.access_count from mindful.memory_access a
                    where a.tenant = (select _mindful.tenant()) and a.id = (s.memory).id
                    offset 0
                ) a on true
            ),
            boosted as (
                select f.*, f.score * (1 + greatest(-0.1, least(0.1, recency_boost * f.age_share
                    + importance_boost * (2 * (f.memory).importance - 1) + access_boost * f.access_share))) as raised
                from found f
            ),
            single as (
                select distinct on ((b.memory).content_hash) b.* from boosted b
                order by (b.memory).content_hash, coalesce((b.memory).role in ('assistant', 'clarification'), false), b.raised desc,
                    (b.memory).id desc
            )
            select row(s.memory, s.raised, s.similarity, s.bm25, s.bm25_context, s.similarity_context, s.age_share, s.access_share,
                null)::mindful.recall_score
            from single s
            order by s.raised desc, (s.memory).id desc
            limit k
        );
        -- The arms look for statements first among all memories, which their indexes hold, then among statements alone.
        exit when narrow or filter.statements is not true or cardinality(ranked) >= least(k, 10)
            or (select t.memories from _mindful.memory_total() t) <= 40 + k + hidden;
        narrow := true;
        hidden := 0;
    end loop;
    return query select r.* from unnest(ranked) r;
end
$$;
comment on function _mindful.recall_ranked(text, vector, text, integer, recall_filter, jsonb) is
'The k best memories by score, boosts counted in, each text once, best first. A few that are not valid are made up for by as many candidates more; where they are many, the arms ask memory.';

create type recalled_memory as (
    id bigint,
    content text,
    kind text,
    score double precision,
    similarity double precision,
    bm25 double precision,
    metadata jsonb,
    session_id uuid,
    turn integer,
    role text,
    source text,
    created_at timestamptz,
    bm25_context double precision,
    similarity_context double precision,
    recency double precision,
    importance double precision,
    access double precision,
    rerank real
);
comment on type recalled_memory is 'A memory that matches a query, with every component of its score.';
comment on column recalled_memory.score is 'The weighted sum of the arms, each scaled to at most 1, raised or lowered by at most a tenth; the weights and boosts are settings.';
comment on column recalled_memory.similarity is 'Cosine similarity of the embeddings; NULL where it was not among the nearest.';
comment on column recalled_memory.bm25 is 'Okapi BM25 of the memory''s own words; NULL where none of the query''s was found in it.';
comment on column recalled_memory.bm25_context is 'BM25 of the words of a turn and of the two before and after it, which count less the farther they are; NULL where none of the query''s was found in them.';
comment on column recalled_memory.similarity_context is 'The scaled similarities of the two turns before and after, added; they count less the farther they are.';
comment on column recalled_memory.recency is 'From 1, just made, halved every recall_half_life_days.';
comment on column recalled_memory.access is 'n / (n + 5) of a memory that was used n times.';
comment on column recalled_memory.rerank is 'The reranker''s score; NULL where it did not run, or not in time.';

create function _mindful.recall_reranked(query text, ranked recall_score[], options jsonb) returns recall_score[]
language plpgsql stable parallel restricted security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    scores real[] := mindful.llm_rerank(
        query,
        array(select (r.memory).content from unnest(ranked[:50]) with ordinality r order by r.ordinality),
        limit_ms => (options ->> 'recall_rerank_ms')::integer
    );
begin
    if array_position(scores, null) is not null then  -- Scores of some cannot be compared with those of others.
        return ranked;
    end if;
    return array(
        select row(r.memory, r.score, r.similarity, r.bm25, r.bm25_context, r.similarity_context, r.recency, r.access,
            scores[r.ordinality])::mindful.recall_score
        from unnest(ranked) with ordinality r
        order by scores[r.ordinality] desc nulls last, r.ordinality
    );
end
$$;
comment on function _mindful.recall_reranked(text, recall_score[], jsonb) is
'The first 50 in the order of the default reranker, which has recall_rerank_ms for it; unchanged if that is not enough.';

create function _mindful.recall_nearness(embedder text, ids bigint[]) returns real[]
language plpgsql stable parallel restricted security invoker
set search_path = pg_catalog, mindful, pg_temp
set jit = off
as $$
declare
    vector_schema text := (select extnamespace::regnamespace from pg_extension where extname = 'vector');
    nearness real[];
begin
    if embedder is null then
        return array_fill(0::real, array[cardinality(ids) ^ 2]::integer[]);
    end if;
    execute format('
        with own as materialized (
            select i.place, e.embedding
            from unnest($1) with ordinality i (id, place)
            left join lateral (
                select e.embedding from mindful.%2$I e where e.tenant = (select _mindful.tenant()) and e.id = i.id offset 0
            ) e on true
        )
        select array_agg(coalesce((1 - (a.embedding operator(%1$s.<=>) b.embedding))::real, 0) order by a.place, b.place)
        from own a cross join own b', vector_schema, _mindful.embedding_table(embedder))
    into nearness using ids;
    return nearness;
end
$$;
comment on function _mindful.recall_nearness(text, bigint[]) is
'The cosine similarities of n memories with one another, n x n in the order of the ids; 0 where there is no embedding.';

create function _mindful.recall_diverse(ranked recall_score[], embedder text, diversity real, k integer) returns recall_score[]
language plpgsql stable parallel restricted security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    places integer := cardinality(ranked);
    nearness real[] := _mindful.recall_nearness(embedder, array(select (r.memory).id from unnest(ranked) with ordinality r order by r.ordinality));
    relevance double precision[];
    likeness double precision[] := array_fill(0::double precision, array[places]);
    chosen integer[] := '{}';
    best integer;
begin
    select array_agg(coalesce((v.value - v.low) / nullif(v.high - v.low, 0), 1) order by v.place) into relevance
    from (
        select r.ordinality as place, coalesce(r.rerank, r.score) as value,
            min(coalesce(r.rerank, r.score)) over () as low, max(coalesce(r.rerank, r.score)) over () as high
        from unnest(ranked) with ordinality r
    ) v;
    while cardinality(chosen) < least(k, places) loop
        best := (
            select place from generate_series(1, places) place
            where place <> all (chosen)
            order by (1 - diversity) * relevance[place] - diversity * likeness[place] desc, place
            limit 1
        );
        chosen := chosen || best;
        likeness := array(
            select greatest(likeness[place], nearness[(best - 1) * places + place])
            from generate_series(1, places) place order by place
        );
    end loop;
    return array(select ranked[c.place] from unnest(chosen) with ordinality c (place) order by c.ordinality);
end
$$;
comment on function _mindful.recall_diverse(recall_score[], text, real, integer) is
'The k that maximal marginal relevance chooses (Carbonell and Goldstein 1998), in its order: each time that with the largest (1 - diversity) x relevance - diversity x similarity to the nearest one chosen.';

create function _mindful.memory_recall(
    query text,
    embedding vector,
    embedder text,
    k integer,
    filter recall_filter,
    max_tokens integer default null,
    diversity real default 0,
    rerank boolean default false
) returns setof recalled_memory
language plpgsql stable parallel restricted security invoker rows 10
set search_path = pg_catalog, mindful, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    options jsonb := _mindful.recall_options();
    pool integer := greatest(k, case when rerank or diversity > 0 then 50 end);
    ranked mindful.recall_score[] := array(
        select r from _mindful.recall_ranked(query, embedding, embedder, pool, filter, options) r
    );
begin
    if rerank then
        ranked := _mindful.recall_reranked(query, ranked, options);
    end if;
    if diversity > 0 then
        ranked := _mindful.recall_diverse(ranked, embedder, diversity, k);
    end if;
    return query
    select (s.memory).id, (s.memory).content, (s.memory).kind, s.score, s.similarity, s.bm25, (s.memory).metadata,
        (s.memory).session_id, (s.memory).turn, (s.memory).role, (s.memory).source, (s.memory).created_at, s.bm25_context,
        s.similarity_context, s.recency, (s.memory).importance::double precision, s.access, s.rerank
    from (
        select r.*, sum(ceil(char_length((r.memory).content) / 4.0)) over (order by r.ordinality) as tokens
        from unnest(ranked[:k]) with ordinality r
    ) s
    where max_tokens is null or s.tokens <= max_tokens
    order by s.ordinality;
end
$$;
comment on function _mindful.memory_recall(text, vector, text, integer, recall_filter, integer, real, boolean) is
'memory_recall for a query that is embedded already (NULL: full text alone).';

create function memory_recall(
    query text,
    k integer default 5,
    kinds text[] default null,
    metadata jsonb default null,
    session_id uuid default null,
    as_of timestamptz default now(),
    max_tokens integer default null,
    diversity real default 0,
    rerank boolean default false,
    statements boolean default false
) returns setof recalled_memory
language plpgsql stable parallel restricted security invoker rows 5
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    asked text := _mindful.text_argument('query', query);
    wanted integer := _mindful.integer_argument('k', k, 1, 1000);
    budget integer := case when max_tokens is not null then _mindful.integer_argument('max_tokens', max_tokens, 1, 2147483647) end;
    filter mindful.recall_filter := row(
        _mindful.kinds_argument(kinds), case when metadata is not null then _mindful.metadata(metadata) end, session_id,
        coalesce(_mindful.range_argument('as_of', as_of), now()), nullif(statements, false)
    );
    embedder text := (select f.name from _mindful.model_find('embedder', null) f);
begin
    if diversity is null or not diversity between 0 and 1 then
        perform _mindful.raise(case when diversity is null then '22004' else '22023' end,
            format('diversity is %s', coalesce(diversity::text, 'null')), 'It must be between 0 and 1.');
    end if;
    return query
    select r.* from _mindful.memory_recall(asked, case when embedder is not null then mindful.llm_embed(asked, embedder) end,
        embedder, wanted, filter, budget, diversity, coalesce(rerank, false)) r;
end
$$;
comment on function memory_recall(text, integer, text[], jsonb, uuid, timestamptz, integer, real, boolean, boolean) is
'The k memories that best match a query in meaning and in words, those of the turns beside them counted in, best first. kinds, metadata (an object that theirs contains) and session_id say which are asked for; valid at as_of, from valid_from until before valid_to, they are all. Memories with the same text come once. With rerank the default reranker orders the best 50 again, if it can within the setting recall_rerank_ms. diversity, from 0 to 1, passes over what is like something that came before. statements leaves out messages that only ask and the model''s own replies. max_tokens ends the list before it has more, a token taken for four characters: counting them would load the generator. No other model but the embedder runs; works in read-only transactions. Errors: 22004 (NULL), 22008 (as_of is finite and outside the years 1 to 9999), 22023 (empty query, k outside 1 to 1000, max_tokens below 1, diversity outside 0 to 1, a kind that there is not, metadata that are no object), 55000 (rerank without a default reranker).';
create type memory_detail as (
    id bigint,
    content text,
    kind text,
    metadata jsonb,
    session_id uuid,
    turn integer,
    role text,
    source text,
    source_key text,
    importance real,
    confidence real,
    level text,
    valid_from timestamptz,
    valid_to timestamptz,
    superseded_by bigint,
    created_at timestamptz
);
comment on type memory_detail is 'A memory as memory_get and memory_list return it.';

create function _mindful.memory_detail(m memory) returns memory_detail
language sql immutable parallel safe security invoker
begin atomic
    select row(m.id, m.content, m.kind, m.metadata, m.session_id, m.turn, m.role, m.source, m.source_key, m.importance,
        m.confidence, m.level, m.valid_from, m.valid_to, m.superseded_by, m.created_at)::mindful.memory_detail;
end;
comment on function _mindful.memory_detail(memory) is 'Returns a row of memory without internal columns.';

create function memory_get(id bigint) returns memory_detail
language sql stable parallel safe security invoker
begin atomic
    select _mindful.memory_detail(m)
    from mindful.memory m
    where m.tenant = (select _mindful.tenant()) and m.id = (select _mindful.memory_argument('id', memory_get.id));
end;
comment on function memory_get(bigint) is
'Returns a memory by its id.
Example: SELECT content, valid_to FROM memory_get(17);
Errors: 22004, 42704 (the tenant has no such memory).';

create function memory_list(
    kinds text[] default null,
    metadata jsonb default null,
    session_id uuid default null,
    as_of timestamptz default now(),
    before_id bigint default null,
    max_count integer default 100
) returns setof memory_detail
language plpgsql stable parallel safe security invoker rows 100
set search_path = pg_catalog, mindful, pg_temp
set plan_cache_mode = force_generic_plan
set enable_sort = off  -- The primary key gives the order. Without statistics, the planner would sort all memories of the tenant.
as $$
declare
    filter mindful.recall_filter := row(
        _mindful.kinds_argument(kinds), case when metadata is not null then _mindful.metadata(metadata) end, session_id,
        _mindful.range_argument('as_of', as_of), false
    );
begin
    perform _mindful.integer_argument('max_count', max_count, 1, 1000);
    return query
    select (_mindful.memory_detail(m)).*
    from mindful.memory m
    where m.tenant = (select _mindful.tenant()) and m.id < coalesce(before_id, 9223372036854775807)
        and _mindful.recall_admits(filter, m)
    order by m.tenant desc, m.id desc
    limit max_count;
end
$$;
comment on function memory_list(text[], jsonb, uuid, timestamptz, bigint, integer) is
'Returns memories by id, newest first, at most max_count (1 to 1000).
kinds, metadata (an object that theirs contains) and session_id filter as in memory_recall; NULL means any. as_of: only memories valid at this time; NULL returns all versions. before_id: only smaller ids. Pass the last id of a page to get the next page.
Example: SELECT id, content FROM memory_list(kinds => ''{fact}'', before_id => 1200, max_count => 20);
Errors: 22004, 22008 (as_of is finite and outside the years 1 to 9999), 22023.';
create function _mindful.memory_tenants() returns setof text
language sql stable parallel safe security invoker
begin atomic
    with recursive found as (
        (select m.tenant from mindful.memory m order by m.tenant limit 1)
        union all
        select (select m.tenant from mindful.memory m where m.tenant > f.tenant order by m.tenant limit 1)
        from found f
        where f.tenant is not null
    )
    select f.tenant from found f where f.tenant is not null;
end;
comment on function _mindful.memory_tenants() is
'Returns the tenants of the memories that the caller can read, by a loose index scan.';

create function _mindful.embedder(model text) returns text
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    found_name text := (select f.name from _mindful.model_find('embedder', model) f);
begin
    if found_name is null and model is null then
        perform _mindful.raise('55000', 'there is no default embedder',
            'Register one with mindful.model_register(name, ''embedder'', provider, source).');
    elsif found_name is null then
        perform _mindful.raise('42704', format('there is no embedder %L', model),
            'The models that you may use are listed in mindful.model.');
    end if;
    return found_name;
end
$$;
comment on function _mindful.embedder(text) is 'The name of an embedder, the default one for NULL, or raises 55000 or 42704.';

create function _mindful.embedding_enqueue(model text) returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
set lock_timeout = '1s'
as $$
declare
    embedder text := _mindful.embedder(model);
    swept_tenant text;
    enqueued bigint;
    total bigint := 0;
begin
    for swept_tenant in select t from _mindful.memory_tenants() t loop
        begin
            perform _mindful.delete('embedding_job_failed', jsonb_agg(to_jsonb(f)), swept_tenant)
            from (
                select f.id, f.model, f.content_hash
                from mindful.embedding_job_failed f
                join mindful.memory m on m.tenant = f.tenant and m.id = f.id and m.content_hash <> f.content_hash
                where f.tenant = swept_tenant
                for update of f
            ) f;
            execute format('
                insert into mindful.embedding_job (tenant, id, model, content_hash)
                select m.tenant, m.id, $1, m.content_hash
                from mindful.memory m
                where m.tenant = $2
                    and not exists (select from mindful.%I e
                        where e.tenant = $2 and e.id = m.id and e.content_hash = m.content_hash)
                    and not exists (select from mindful.embedding_job_failed f
                        where f.tenant = $2 and f.id = m.id and f.model = $1 and f.content_hash = m.content_hash)
                on conflict do nothing', _mindful.embedding_table(embedder)) using embedder, swept_tenant;
            get diagnostics enqueued = row_count;
            total := total + enqueued;
        exception when lock_not_available then
            -- A tenant that has locked its own rows must not stop the search for other tenants.
            continue;
        end;
    end loop;
    if total > 0 then
        notify mindful_job;
    end if;
    return total;
end
$$;
comment on function _mindful.embedding_enqueue(text) is 'embedding_enqueue for the memories that the caller reaches.';

create function _mindful.embedding_sweep_all(model text) returns bigint
language sql volatile parallel unsafe security definer
set mindful.tenant = ''
begin atomic
    select _mindful.embedding_enqueue(model);
end;
comment on function _mindful.embedding_sweep_all(text) is 'embedding_enqueue for the memories of all tenants.';

create function embedding_enqueue(model text default null) returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform _mindful.writable();
    if pg_has_role(current_user, 'mindful_admin', 'usage') then
        return _mindful.embedding_sweep_all(model);
    end if;
    return _mindful.embedding_enqueue(model);
end
$$;
comment on function embedding_enqueue(text) is
'Queues memories whose text has no embedding by an embedder (NULL: the default), and returns the number of new jobs.
A user''s call works for the own tenant, an administrator''s call for all tenants. It finds memories that were restored, replicated, written with row_security off or before the embedder was registered. Call it to fill a new embedder while the old one is in use. Failed jobs stay: see embedding_retry. Errors: 42704 (no such embedder), 55000 (no default embedder).';

create function _mindful.embedding_missing(model text) returns table (memories bigint, missing bigint)
language plpgsql stable parallel safe security definer
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    return query execute format('
        select count(*), count(*) - count(e.id)
        from mindful.memory m
        left join mindful.%I e on e.tenant = m.tenant and e.id = m.id and e.content_hash = m.content_hash',
        _mindful.embedding_table(model));
end
$$;
comment on function _mindful.embedding_missing(text) is 'How many memories all tenants have, and how many of them an embedder has not embedded as they are.';

create type embedding_count as (
    tenant text,
    model text,
    embedded bigint,
    missing bigint,
    stale bigint,
    queued bigint,
    failed bigint,
    oldest_wait interval
);
comment on type embedding_count is
'A row of embedding_status.';

create function _mindful.embedding_count() returns setof embedding_count
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    embedder text;
begin
    for embedder in select m.name from mindful.model m where m.kind = 'embedder' order by m.name loop
        return query execute format('
            with counted as (
                select m.tenant, count(*) filter (where e.content_hash = m.content_hash) as embedded,
                    count(*) filter (where e.id is null) as missing,
                    count(*) filter (where e.content_hash <> m.content_hash) as stale
                from mindful.memory m
                left join mindful.%I e on e.tenant = m.tenant and e.id = m.id
                group by m.tenant
            ),
            waiting as (
                select j.tenant, count(*) as queued, min(j.enqueued_at) as since
                from mindful.embedding_job j where j.model = $1 group by j.tenant
            ),
            dead as (
                select f.tenant, count(*) as failed
                from mindful.embedding_job_failed f where f.model = $1 group by f.tenant
            )
            select c.tenant, $1, c.embedded, c.missing, c.stale, coalesce(w.queued, 0), coalesce(d.failed, 0),
                clock_timestamp() - w.since
            from counted c left join waiting w on w.tenant = c.tenant left join dead d on d.tenant = c.tenant',
            _mindful.embedding_table(embedder)) using embedder;
    end loop;
end
$$;
comment on function _mindful.embedding_count() is 'The rows of embedding_status for the memories that the caller reaches.';

create function _mindful.embedding_count_all() returns setof embedding_count
language sql stable parallel safe security definer
begin atomic
    select * from _mindful.embedding_count();
end;
comment on function _mindful.embedding_count_all() is 'The rows of embedding_status for the memories of all tenants.';

create function _mindful.embedding_status() returns setof embedding_count
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    if _mindful.reads_all() then
        return query select * from _mindful.embedding_count_all();
    else
        return query select * from _mindful.embedding_count();
    end if;
end
$$;
comment on function _mindful.embedding_status() is 'The rows of embedding_status.';

create view embedding_status with (security_invoker = true) as
select s.tenant, s.model, s.embedded, s.missing, s.stale, s.queued, s.failed, s.oldest_wait
from _mindful.embedding_status() s;
comment on view embedding_status is
'Progress of each embedder by tenant: embedded (present text), missing, stale (earlier text), queued, failed, oldest_wait. It has the rows of the own tenant, for mindful_reader those of all. It counts all rows at each query.';

create function embedding_compare(query text, models text[] default null, k integer default 5)
returns table (model text, rank bigint, id bigint, similarity double precision, content text)
language plpgsql stable parallel restricted security invoker rows 10
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_column
declare
    vector_schema text := (select extnamespace::regnamespace from pg_extension where extname = 'vector');
    embedder text;
begin
    perform _mindful.text_argument('query', query), _mindful.integer_argument('k', k, 1, 1000);
    for embedder in
        select _mindful.embedder(n)
        from unnest(coalesce(models, array(select m.name from mindful.model m where m.kind = 'embedder' order by m.name))) n
    loop
        return query execute format('
            select $1, row_number() over (order by n.distance), n.id, 1 - n.distance, m.content
            from (
                select e.id, e.embedding operator(%1$s.<=>) $2::%1$s.vector as distance
                from mindful.%2$I e
                where e.tenant = %3$L
                order by e.embedding operator(%1$s.<=>) $2::%1$s.vector
                limit $3
            ) n
            join mindful.memory m on m.tenant = %3$L and m.id = n.id
            order by 2', vector_schema, _mindful.embedding_table(embedder), _mindful.tenant())
        using embedder, mindful.llm_embed(query, embedder)::text, k;
    end loop;
end
$$;
comment on function embedding_compare(text, text[], integer) is
'Returns the k memories nearest to a query by each of several embedders (NULL: all that the caller may use).
similarity is the cosine similarity; values of different embedders are not comparable.
Example: SELECT model, array_agg(content ORDER BY rank) FROM embedding_compare(''Where is the key?'') GROUP BY model;
Errors: 22004, 22023, 42704 (no such embedder).';
create or replace function _mindful.index_rebuild_own() returns bigint
language sql volatile parallel unsafe security invoker
begin atomic
    insert into mindful.index_rebuild default values;
    select coalesce(pg_catalog.sum(c.memories), 0)::bigint from mindful.memory_count c where c.tenant = (select _mindful.tenant());
end;
comment on function _mindful.index_rebuild_own() is 'memory_index_rebuild for the tenant of the caller.';
create or replace function _mindful.index_rebuild_all() returns bigint
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
set mindful.tenant = ''
set lock_timeout = '1s'
as $$
declare
    next_tenant text;
begin
    for next_tenant in select t from _mindful.memory_tenants() t union select distinct c.tenant from mindful.memory_count c loop
        begin
            perform _mindful.index_rebuild(next_tenant);
        exception when others then  -- A cancel is not among them. A tenant that locks its own rows must not stop the others.
            raise warning 'mindful: the index of tenant % was not rebuilt: %', next_tenant, sqlerrm;
        end;
    end loop;
    return (select coalesce(sum(c.memories), 0) from mindful.memory_count c);
end
$$;
comment on function _mindful.index_rebuild_all() is 'memory_index_rebuild for all tenants. It takes no argument and returns a count, so it may run with the owner''s rights.';
create or replace function memory_index_rebuild() returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform _mindful.writable();
    if pg_has_role(current_user, 'mindful_admin', 'usage') then
        return _mindful.index_rebuild_all();
    end if;
    return _mindful.index_rebuild_own();
end
$$;
comment on function memory_index_rebuild() is
'Writes the full-text index of memories again, by the setting recall_language, and returns the number of memories.
A user''s call works for the own tenant, an administrator''s call for all tenants, each by its own setting; if one tenant fails, or has locked its rows for a second, the call raises a warning and goes on with the next. Call it after a change of recall_language, and after rows were written with row_security off, which leaves the index incomplete. It reads all texts: time grows with their length.
Example: SELECT setting_set(''recall_language'', ''"german"''); SELECT memory_index_rebuild();';
insert into setting_definition (key, type, low, high, scopes, initial, description, choices) values
    ('memory_duplicates', 'text', null, null, '{global,user}', '"keep"',
        'What becomes of a fact that is remembered already: keep stores it again, join_exact counts it if the text is the same, join_near also if it means nearly the same.',
        '{keep,join_exact,join_near}'),
    ('memory_duplicate_similarity', 'number', 0.5, 1, '{global,user}', '0.95',
        'From which cosine similarity of their embeddings on join_near takes two facts for the same.', null);

create index memory_fact on memory (tenant, content_hash) where kind = 'fact' and source is null;

-- One row a text, because its lock is what keeps two writers from remembering the same at once. An advisory lock
-- could be taken by anybody who guesses the text.
create table memory_duplicate (
    tenant text not null default _mindful.tenant(),
    content_hash text not null,
    id bigint,
    repeats bigint not null default 0 check (repeats >= 0),
    last_at timestamptz not null default now(),
    primary key (tenant, content_hash),
    foreign key (tenant, id) references memory (tenant, id) on delete cascade
);
create index on memory_duplicate (tenant, id) where id is not null;
comment on table memory_duplicate is
'Number of repetitions of facts that were joined with an existing memory (setting memory_duplicates).';
comment on column memory_duplicate.content_hash is 'That of the fact; empty in the row that writers with join_near lock.';
alter table memory_duplicate enable row level security, force row level security;
create policy own on memory_duplicate using (tenant = (select _mindful.tenant())) with check (tenant = (select _mindful.tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.memory_duplicate', '');

create function _mindful.memory_joinable(fact memory) returns boolean
language sql stable parallel safe security invoker
begin atomic
    select fact.kind = 'fact' and fact.source is null and fact.source_key is null and fact.superseded_by is null
        and fact.valid_from is null and fact.valid_to is null;
end;
comment on function _mindful.memory_joinable(memory) is
'Whether a memory can be one with another: a fact that no source keeps, and that is true for ever as far as is known.';

create function _mindful.memory_near(fact memory, later bigint[]) returns bigint
language plpgsql stable parallel restricted security invoker
set search_path = pg_catalog, mindful, pg_temp
set hnsw.iterative_scan = 'strict_order'
as $$
declare
    embedder text := (select f.name from _mindful.model_find('embedder', null) f);
    vector_schema text := (select extnamespace::regnamespace from pg_extension where extname = 'vector');
    least_similarity double precision := mindful.setting_get('memory_duplicate_similarity') #>> '{}';
    found_embedding text;
    found_id bigint;
begin
    if embedder is null then
        return null;
    end if;
    execute format('select e.embedding::text from mindful.%I e where e.tenant = $1 and e.id = $2 and e.content_hash = $3',
        _mindful.embedding_table(embedder)) using fact.tenant, fact.id, fact.content_hash into found_embedding;
    if found_embedding is null then
        return null;
    end if;
    -- The tenant as a constant: an index of its own is found by it.
    execute format('
        select n.id
        from (
            select m.id, e.embedding operator(%1$s.<=>) $1::%1$s.vector as distance
            from mindful.%2$I e
            join mindful.memory m on m.tenant = e.tenant and m.id = e.id and m.content_hash = e.content_hash
            where e.tenant = %3$L and e.id <> all ($2) and m.metadata @> $3 and _mindful.memory_joinable(m)
            order by e.embedding operator(%1$s.<=>) $1::%1$s.vector
            limit 1
        ) n
        where n.distance <= 1 - $4', vector_schema, _mindful.embedding_table(embedder), fact.tenant)
    using found_embedding, later, fact.metadata, least_similarity into found_id;
    return found_id;
end
$$;
comment on function _mindful.memory_near(memory, bigint[]) is
'The fact nearest to a given one by the default embedder that the setting memory_duplicate_similarity takes for the same; it holds the metadata of the given one, and is none of those of the array.';

create function _mindful.memory_same(fact memory, later bigint[]) returns bigint
language sql stable parallel safe security invoker
begin atomic
    select pg_catalog.min(m.id)
    from mindful.memory m
    where m.tenant = (select _mindful.tenant()) and m.kind = 'fact' and m.source is null
        and m.content_hash = fact.content_hash and m.content = fact.content
        and m.id <> all (later) and m.metadata @> fact.metadata and _mindful.memory_joinable(m);
end;
comment on function _mindful.memory_same(memory, bigint[]) is
'The oldest fact with the text of a given one; it holds the metadata of the given one, and is none of those of the array.';

create function _mindful.memory_repeat(id bigint) returns void
language sql volatile parallel unsafe security invoker
begin atomic
    insert into mindful.memory_duplicate as d (content_hash, id, repeats)
    select m.content_hash, m.id, 1
    from mindful.memory m
    where m.tenant = (select _mindful.tenant()) and m.id = memory_repeat.id
    on conflict (tenant, content_hash) do update
        set id = excluded.id, repeats = d.repeats + 1, last_at = pg_catalog.clock_timestamp();
end;
comment on function _mindful.memory_repeat(bigint) is 'Counts that a fact was remembered once more.';

create function _mindful.memory_join_lock(ids bigint[], near boolean) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    if near then
        insert into mindful.memory_duplicate (content_hash) values ('')
        on conflict (tenant, content_hash) do update set last_at = clock_timestamp();
    end if;
    -- In one order, lest two writers wait for each other.
    insert into mindful.memory_duplicate (content_hash, id)
    select m.content_hash, min(m.id)
    from mindful.memory m
    where m.tenant = _mindful.tenant() and m.id = any (ids) and _mindful.memory_joinable(m)
    group by m.content_hash
    order by m.content_hash
    on conflict (tenant, content_hash) do update set last_at = clock_timestamp();
end
$$;
comment on function _mindful.memory_join_lock(bigint[], boolean) is
'Keeps others from joining facts with the same texts, or with near any, until the transaction ends: what they have written is to be seen first.';

create function _mindful.memory_join(ids bigint[], near boolean) returns setof bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    fact mindful.memory;
    older bigint;
    later bigint[];
    stays bigint[] := ids;
    position integer;
begin
    perform _mindful.memory_join_lock(ids, near);
    for position in 1 .. cardinality(ids) loop
        select m.* into fact from mindful.memory m where m.tenant = _mindful.tenant() and m.id = ids[position];
        later := ids[position:];
        older := null;
        if _mindful.memory_joinable(fact) then
            older := _mindful.memory_same(fact, later);
            if older is null and near then
                older := _mindful.memory_near(fact, later);
            end if;
        end if;
        if older is not null then
            -- What one of them was not drawn from is not all that the memory rests on.
            update mindful.memory m set stated = true
            where m.tenant = fact.tenant and m.id = older and not m.stated
                and (select count(distinct v.id) from mindful.memory_evidence v
                    where v.tenant = fact.tenant and v.id in (fact.id, older)) < 2;
            insert into mindful.memory_evidence (id, source_id, quote)
            select older, v.source_id, v.quote
            from mindful.memory_evidence v
            where v.tenant = fact.tenant and v.id = fact.id and v.source_id <> older
            on conflict do nothing;
            perform _mindful.memory_repeat(older);
            perform _mindful.memory_delete(array[fact.id]);
            stays[position] := older;
        end if;
    end loop;
    return query select unnest(stays);
end
$$;
comment on function _mindful.memory_join(bigint[], boolean) is
'Joins facts that have just been written with those that were there, which are counted and get their evidence, and returns the ids that stay, one for each.';

create function _mindful.memory_supersede(ids bigint[]) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    fact mindful.memory;
    older bigint;
begin
    perform _mindful.memory_join_lock(ids, true);
    for fact in
        select m.* from mindful.memory m
        where m.tenant = _mindful.tenant() and m.id = any (ids) and _mindful.memory_joinable(m)
        order by m.id
    loop
        older := _mindful.memory_near(fact, array(select i from unnest(ids) i where i >= fact.id));
        if older is not null then
            update mindful.memory m set superseded_by = older, valid_to = clock_timestamp()
            where m.tenant = fact.tenant and m.id = fact.id;
            perform _mindful.memory_repeat(older);
        end if;
    end loop;
end
$$;
comment on function _mindful.memory_supersede(bigint[]) is
'Joins facts that a worker has embedded with those nearly the same: as their ids are known by now, they stay, superseded.';

create function _mindful.source_key_check(memories jsonb, own bigint[] default '{}') returns void
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    repeated record;
begin
    -- Nothing is caught in place of this: a subtransaction for each insert slows every snapshot after 64 of them.
    select k.source, k.source_key, min(m.id) as id into repeated
    from jsonb_array_elements(memories) e (element)
    cross join lateral (select e.element ->> 'source' as source, e.element ->> 'source_key' as source_key) k
    left join mindful.memory m on m.tenant = (select _mindful.tenant()) and m.source = k.source and m.source_key = k.source_key
        and m.id <> all (own)
    where k.source is not null and k.source_key is not null
    group by k.source, k.source_key
    having count(*) > 1 or count(m.id) > 0
    limit 1;
    if repeated.id is not null then
        perform _mindful.raise('23505', format('memory %s has source %L and source_key %L', repeated.id, repeated.source, repeated.source_key),
            format('Use memory_update(%s, ...) to replace its text, or pass another source_key.', repeated.id));
    elsif found then
        perform _mindful.raise('23505', format('two elements have source %L and source_key %L', repeated.source, repeated.source_key),
            'Pass each source_key of a source once.');
    end if;
end
$$;
comment on function _mindful.source_key_check(jsonb, bigint[]) is
'Raises 23505 if a memory other than some, or two of the elements, have the same source and source_key.';
-- A table of its own: counting a use must not rewrite the row of memory.
create table memory_access (
    tenant text not null default _mindful.tenant(),
    id bigint not null,
    access_count bigint not null default 1 check (access_count > 0),
    last_accessed_at timestamptz not null default now(),
    primary key (tenant, id),
    foreign key (tenant, id) references memory on delete cascade
);
comment on table memory_access is
'How often a memory was shown to a model or marked as used, and when last.';

alter table memory_access enable row level security, force row level security;
create policy own on memory_access using (tenant = (select _mindful.tenant())) with check (tenant = (select _mindful.tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.memory_access', '');
create function memory_access_record(ids bigint[]) returns bigint
language sql volatile parallel unsafe security invoker
begin atomic
    select _mindful.writable();
    with used as materialized (
        select distinct i.id from pg_catalog.unnest(ids) i (id)
        -- Under an older snapshot, a count by another transaction is a serialization error.
        where pg_catalog.current_setting('transaction_isolation') = 'read committed'
    ),
    -- Rows that another transaction has locked are skipped.
    counted as materialized (
        select c.id
        from used u
        cross join lateral (
            select a.id from mindful.memory_access a
            where a.tenant = (select _mindful.tenant()) and a.id = u.id
            for update skip locked
        ) c
    ),
    again as (
        update mindful.memory_access a set access_count = a.access_count + 1, last_accessed_at = pg_catalog.now()
        from counted c
        where a.tenant = (select _mindful.tenant()) and a.id = c.id
        returning 1
    ),
    -- If there is no row yet, the lock on the memory keeps two transactions from inserting it.
    uncounted as materialized (
        select n.id
        from used u
        cross join lateral (
            select m.id from mindful.memory m
            where m.tenant = (select _mindful.tenant()) and m.id = u.id and not exists (
                select from mindful.memory_access a where a.tenant = m.tenant and a.id = m.id
            )
            for no key update of m skip locked
        ) n
    ),
    first as (
        insert into mindful.memory_access (id) select n.id from uncounted n
        on conflict do nothing
        returning 1
    )
    select (select pg_catalog.count(*) from again) + (select pg_catalog.count(*) from first);
end;
comment on function memory_access_record(bigint[]) is
'Counts one use of each of these memories, and returns the number of memories counted.
It never waits. It skips memories that another open transaction is counting, memories of other tenants, and all of them if the isolation level is above read committed.';
create table memory_evidence (
    tenant text not null default _mindful.tenant(),
    id bigint not null,
    source_id bigint not null,
    quote text not null check (quote <> '' and octet_length(quote) <= 2000),
    created_at timestamptz not null default now(),
    primary key (tenant, id, source_id, quote),
    foreign key (tenant, id) references memory (tenant, id) on delete cascade,
    foreign key (tenant, source_id) references memory (tenant, id) on delete cascade,
    check (id <> source_id)
);
create index on memory_evidence (tenant, source_id) where source_id is not null;
comment on table memory_evidence is
'Evidence of memories: the memories that they were drawn from, with a quote. A quote is deleted when its source no longer contains it.';
alter table memory_evidence enable row level security, force row level security;
create policy own on memory_evidence using (tenant = (select _mindful.tenant())) with check (tenant = (select _mindful.tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.memory_evidence', '');

create function _mindful.evidence_outdated() returns trigger
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
set mindful.tenant = ''
set enable_hashjoin = off
set enable_mergejoin = off
set enable_seqscan = off
as $$
begin
    -- What a lost quote changes ends up here again.
    if exists (select from old_rows o, _mindful.memory_changed(o.tenant, o.id, o.content)) then
        delete from mindful.memory_evidence e
        using (
            select o.tenant, o.id, _mindful.squeeze(n.content) as content
            from old_rows o, _mindful.memory_changed(o.tenant, o.id, o.content) n
            offset 0
        ) source
        where e.tenant = source.tenant and e.source_id = source.id
            and strpos(source.content, _mindful.squeeze(e.quote)) = 0;
    end if;
    return null;
end
$$;
comment on function _mindful.evidence_outdated() is
'Deletes quotes that their sources no longer contain, after rows of attached tables or parts of documents have changed.';
create trigger evidence_outdated after update on memory referencing old table as old_rows
    for each statement when (pg_catalog.current_setting('row_security') = 'on' or not _mindful.is_restore()) execute function _mindful.evidence_outdated();

create function _mindful.squeeze(content text) returns text
language sql immutable strict parallel safe security invoker
begin atomic
    select pg_catalog.btrim(pg_catalog.regexp_replace(content, '\s+', ' ', 'g'));
end;
comment on function _mindful.squeeze(text) is 'A text with every run of white space as one blank.';

create function _mindful.quote_argument(name text, source_id bigint, quote text) returns text
language sql stable parallel safe security invoker
begin atomic
    select case
        when a.id is null then null  -- which it never is: unasked for, an empty table's rows would not be looked up
        when pg_catalog.octet_length(a.quote) > 2000
            then _mindful.raise('54000', pg_catalog.format('%s has %s bytes, more than 2000', name, pg_catalog.octet_length(a.quote)),
                'Quote a shorter part of the source.')::text
        when pg_catalog.strpos(
            (select _mindful.squeeze(m.content) from mindful.memory m where m.tenant = (select _mindful.tenant()) and m.id = a.id),
            a.quote) > 0 then a.quote
        else _mindful.raise('22023', pg_catalog.format('memory %2$s does not contain %1$s', name, source_id),
            'Copy the quote from the content of the source. Only white space may differ.')::text
    end
    from (
        select _mindful.squeeze(_mindful.text_argument(name, quote_argument.quote)) as quote,
            _mindful.memory_argument('source_id of ' || name, source_id) as id
    ) a;
end;
comment on function _mindful.quote_argument(text, bigint, text) is
'Returns a quote that stands in the source''s text, with runs of white space as one blank, or raises 22004, 22023, 42704 (no such source of the tenant''s) or 54000.';

create function _mindful.evidence(name text, evidence jsonb) returns table (source_id bigint, quote text)
language sql stable parallel safe security invoker rows 3
begin atomic
    select s.source_id,
        _mindful.quote_argument(pg_catalog.format('quote %s of %s', e.number, name), s.source_id, e.element ->> 'quote')
    from _mindful.array_elements(name, coalesce(nullif(evidence, 'null'), '[]'), '{source_id,quote}') e,
        lateral (
            select case
                when e.element ->> 'source_id' ~ '^[0-9]{1,18}$' then (e.element ->> 'source_id')::bigint
                else _mindful.raise('22023', pg_catalog.format('source_id of quote %s of %s is %s', e.number, name,
                    coalesce(e.element ->> 'source_id', 'null')), 'Give the id of a memory.')::text::bigint
            end as source_id
        ) s;
end;
comment on function _mindful.evidence(text, jsonb) is
'The source ids and quotes of an array of {source_id, quote}; raises 22004, 22023 or 42704, naming the quote.';

create function memory_evidence_insert(id bigint, source_id bigint, quote text) returns boolean
language sql volatile parallel unsafe security invoker
begin atomic
    select _mindful.writable();
    with proved as (
        insert into mindful.memory_evidence (id, source_id, quote)
        select _mindful.memory_argument('id', id),
            case
                when id = source_id
                    then _mindful.raise('22023', pg_catalog.format('memory %s cannot be evidence of itself', id),
                        'Pass the id of the memory that it was drawn from as source_id.')::text::bigint
                else source_id
            end,
            _mindful.quote_argument('quote', source_id, quote)
        on conflict do nothing
        returning 1
    )
    select exists (select from proved);
end;
comment on function memory_evidence_insert(bigint, bigint, text) is
'Adds evidence to a memory: a quote from the text of another memory, the source. Returns false if it exists already.
Runs of white space in the quote count as one blank.
Example: SELECT memory_evidence_insert(17, 5, ''I moved to Oslo'');
Errors: 22004, 22023 (the source does not contain the quote, or is the memory itself), 42704 (the tenant has no such memory), 54000 (more than 2000 bytes).';
create function memory_insert_many(memories jsonb) returns setof bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    duplicates text := mindful.setting_get('memory_duplicates') #>> '{}';
    ids bigint[];
begin
    perform _mindful.writable();
    if jsonb_typeof(memories) = 'array' and memories @? '$[*].source_key' then
        perform _mindful.source_key_check(memories);
    end if;
    ids := array(select _mindful.memory_insert_many(memories));
    if cardinality(ids) < jsonb_array_length(memories) then
        -- Another transaction has just committed one of them, which a new statement sees.
        perform _mindful.source_key_check(memories, ids);
        perform _mindful.raise('40001', 'another transaction inserted and deleted a source_key meanwhile', 'Run the transaction again.');
    end if;
    if duplicates = 'keep' then
        return query select unnest(ids);
    else
        return query select _mindful.memory_join(ids, duplicates = 'join_near');
    end if;
end
$$;
comment on function memory_insert_many(jsonb) is
'Stores memories, a JSON array of objects with the fields of memory_insert, and returns their ids in order.
All are stored or none: an error names the element. Embeddings are computed in batches. The setting memory_duplicates decides about a fact that exists already: keep stores it again. join_exact counts the repetition in memory_duplicate, adds its evidence to the existing memory and returns the id of that memory; the text must be equal, and the existing fact must be in force, without source or validity, and contain the metadata. join_near also joins facts of nearly the same meaning; a worker joins those that it embeds later.
Example: SELECT memory_insert_many(''[{"content": "Ana likes tea."}, {"content": "Bob is 7.", "importance": 0.9}]'');
Errors: as memory_insert.';

create function _mindful.memory_insert_many(memories jsonb) returns setof bigint
language sql volatile parallel unsafe security invoker
begin atomic
    with element as materialized (
        select e.element, e.number, 'of element ' || e.number as place,
            _mindful.time_argument('valid_from of element ' || e.number, e.element ->> 'valid_from') as valid_from,
            _mindful.time_argument('valid_to of element ' || e.number, e.element ->> 'valid_to') as valid_to
        from _mindful.array_elements('memories', memories,
            '{content,kind,metadata,source,source_key,importance,confidence,level,valid_from,valid_to,evidence}') e
    ),
    inserted as (
        insert into mindful.memory (kind, content, metadata, source, source_key, importance, confidence, level,
            valid_from, valid_to)
        select _mindful.memory_kind(coalesce(e.element ->> 'kind', 'fact')),
            _mindful.text_argument('content ' || e.place, e.element ->> 'content'),
            _mindful.metadata(e.element -> 'metadata'),
            _mindful.short_argument('source ' || e.place, e.element ->> 'source'),
            _mindful.short_argument('source_key ' || e.place, e.element ->> 'source_key'),
            coalesce(_mindful.share_argument('importance ' || e.place, e.element -> 'importance'), 0.5),
            _mindful.share_argument('confidence ' || e.place, e.element -> 'confidence'),
            coalesce(_mindful.level_argument('level ' || e.place, e.element ->> 'level'), 'data'),
            e.valid_from,
            _mindful.valid_to_argument('valid_to ' || e.place, e.valid_from, e.valid_to)
        from element e
        order by e.number
        on conflict (tenant, source, source_key) where source is not null do nothing
        returning id
    ),
    -- Ids rise in the order of the elements.
    numbered as (
        select i.id, pg_catalog.row_number() over (order by i.id) as number from inserted i
    ),
    proved as (
        insert into mindful.memory_evidence (id, source_id, quote)
        select distinct n.id, v.source_id, v.quote
        from numbered n
        join element e on e.number = n.number,
            _mindful.evidence('evidence ' || e.place, e.element -> 'evidence') v
    )
    select n.id from numbered n order by n.id;
end;
comment on function _mindful.memory_insert_many(jsonb) is
'Stores memories without joining duplicates. It skips a source and source_key that another transaction has just inserted.';

create function memory_insert(
    content text,
    kind text default 'fact',
    metadata jsonb default '{}',
    source text default null,
    source_key text default null,
    importance real default null,
    confidence real default null,
    level text default null,
    valid_from timestamptz default null,
    valid_to timestamptz default null,
    evidence jsonb default '[]'
) returns bigint
language sql volatile parallel unsafe security invoker
begin atomic
    select _mindful.writable();
    select mindful.memory_insert_many(pg_catalog.jsonb_build_array(pg_catalog.jsonb_build_object(
        'content', _mindful.text_argument('content', content), 'kind', _mindful.memory_kind(kind),
        'metadata', _mindful.metadata(metadata), 'source', _mindful.short_argument('source', source),
        'source_key', _mindful.short_argument('source_key', source_key), 'importance', importance, 'confidence', confidence,
        'level', _mindful.short_argument('level', level), 'valid_from', valid_from, 'valid_to', valid_to,
        'evidence', _mindful.json_argument('evidence', evidence))));
end;
comment on function memory_insert(text, text, jsonb, text, text, real, real, text, timestamptz, timestamptz, jsonb) is
'Stores a text as a memory and returns its id.
kind: fact, document, summary or reflection; message_insert stores messages. importance (NULL: 0.5) and confidence: 0 to 1. level: data (NULL), information, knowledge or wisdom. The memory is valid from valid_from until before valid_to; NULL is no limit. evidence: an array of {"source_id", "quote"}, see memory_evidence_insert. The text is indexed in the same transaction, and embedded if there is a default embedder and the setting embedding_mode is sync.
Example: SELECT memory_insert(''Ana moved to Oslo.'', valid_from => ''2026-05-01'');
Errors: 22004, 22008 (a time outside the years 1 to 9999), 22023 (empty text, unknown kind or level, number out of range, a quote that its source does not contain), 23505 (a memory has this source and source_key), 42704 (the tenant has no such source_id), 54000 (more than 262144 bytes).';
create function _mindful.memory_updatable(id bigint) returns memory
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    found_memory mindful.memory;
begin
    select m.* into found_memory
    from mindful.memory m
    where m.tenant = (select _mindful.tenant()) and m.id = _mindful.memory_argument('id', memory_updatable.id)
    for no key update;
    if not found then  -- deleted while this waited for its lock
        perform _mindful.memory_argument('id', id);
    elsif found_memory.kind = 'message' then
        perform _mindful.raise('42809', format('memory %s is a message, which is never rewritten', id),
            'What was said stays as it was said; insert a fact that has it as evidence.');
    elsif found_memory.superseded_by is not null then
        perform _mindful.raise('55000', format('memory %s was superseded by memory %s', id, found_memory.superseded_by),
            format('Update memory %s, or the last one of memory_history(%s).', found_memory.superseded_by, id));
    elsif exists (
        select from mindful.attachment a
        where a.tenant = (select _mindful.tenant()) and a.source = found_memory.source
    ) then
        perform _mindful.raise('55000', format('memory %s is a row of %s', id, found_memory.source),
            'Change the row: its memory follows.');
    end if;
    return found_memory;
end
$$;
comment on function _mindful.memory_updatable(bigint) is 'Locks and returns a memory that can be superseded, or raises 22004, 42704, 42809 or 55000.';

create function memory_update(
    id bigint,
    content text,
    metadata jsonb default null,
    importance real default null,
    confidence real default null,
    level text default null,
    valid_from timestamptz default null,
    valid_to timestamptz default null,
    evidence jsonb default '[]'
) returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_column
declare
    is_writable constant boolean := _mindful.writable();
    old mindful.memory := _mindful.memory_updatable(memory_update.id);
    since timestamptz := coalesce(_mindful.range_argument('valid_from', memory_update.valid_from), now());
    until timestamptz := coalesce(_mindful.range_argument('valid_to', memory_update.valid_to), case when old.valid_to > since then old.valid_to end);
    new_id bigint;
begin
    -- A key stands for what is true of its source now: the new version takes it over.
    if old.source_key is not null then
        update mindful.memory m set source_key = null where m.tenant = old.tenant and m.id = old.id;
    end if;
    insert into mindful.memory (kind, content, metadata, session_id, source, source_key, importance, confidence, level,
        valid_from, valid_to)
    values (
        old.kind,
        _mindful.text_argument('content', memory_update.content),
        case when memory_update.metadata is null then old.metadata else _mindful.metadata(memory_update.metadata) end,
        old.session_id, old.source, old.source_key,
        coalesce(_mindful.share_argument('importance', to_jsonb(memory_update.importance)), old.importance),
        _mindful.share_argument('confidence', to_jsonb(memory_update.confidence)),
        coalesce(_mindful.level_argument('level', memory_update.level), old.level),
        since,
        _mindful.valid_to_argument('valid_to', since, until)
    )
    returning id into new_id;
    with recursive earlier as (
        select old.id as id
        union
        select m.id from earlier e join mindful.memory m on m.tenant = old.tenant and m.superseded_by = e.id
    )
    update mindful.memory m
    set superseded_by = coalesce(m.superseded_by, new_id), valid_to = greatest(m.valid_from, least(m.valid_to, since)),
        valid_to_given = case when m.id = old.id then m.valid_to else m.valid_to_given end
    from earlier e
    where m.tenant = old.tenant and m.id = e.id and (m.id = old.id or coalesce(m.valid_to > since, true));
    insert into mindful.memory_evidence (id, source_id, quote)
    select distinct new_id, v.source_id, v.quote from _mindful.evidence('evidence', memory_update.evidence) v;
    insert into mindful.memory_link (source_id, target_id, relation, weight)
    select new_id, l.target_id, l.relation, l.weight from mindful.memory_link l
    where l.tenant = old.tenant and l.source_id = old.id
    union all
    select l.source_id, new_id, l.relation, l.weight from mindful.memory_link l
    where l.tenant = old.tenant and l.target_id = old.id;
    return new_id;
end
$$;
comment on function memory_update(bigint, text, jsonb, real, real, text, timestamptz, timestamptz, jsonb) is
'Replaces a memory by a new version, and returns the id of the new version.
The old version stays. It is valid until before valid_from (NULL: now) and points at the new one by superseded_by. Older versions end at the same time at the latest. The new version takes over kind, session, source, source_key and links. Arguments that are NULL keep metadata, importance, level and a valid_to in the future. confidence and evidence are not taken over. valid_from ''-infinity'' means that the old version was never valid. If two updates of a memory run at the same time, the second fails with 55000.
Example: SELECT memory_update(17, ''Ana moved to Bergen.'');
Errors: 22004, 22023, 42704 (the tenant has no such memory), 42809 (a message), 54000, 55000 (superseded already, or a row of an attached table).';

create type memory_version as (
    id bigint,
    content text,
    importance real,
    confidence real,
    level text,
    valid_from timestamptz,
    valid_to timestamptz,
    superseded_by bigint,
    created_at timestamptz
);
comment on type memory_version is
'A version of a memory and the time of its validity.';

create function memory_history(id bigint) returns setof memory_version
language sql stable parallel safe security invoker
begin atomic
    with recursive version as (
        select _mindful.memory_argument('id', memory_history.id) as id
        union
        select n.id
        from version v
        cross join lateral (
            select m.superseded_by as id
            from mindful.memory m
            where m.tenant = (select _mindful.tenant()) and m.id = v.id and m.superseded_by is not null
            union all
            select m.id
            from mindful.memory m
            where m.tenant = (select _mindful.tenant()) and m.superseded_by = v.id
        ) n
    )
    select m.id, m.content, m.importance, m.confidence, m.level, m.valid_from, m.valid_to, m.superseded_by, m.created_at
    from version v
    join mindful.memory m on m.tenant = (select _mindful.tenant()) and m.id = v.id
    order by m.id;
end;
comment on function memory_history(bigint) is
'Returns all versions of a memory, oldest first, by the id of any version.
The last version has superseded_by NULL. Errors: 22004, 42704 (the tenant has no such memory).';
create table memory_link (
    tenant text not null default _mindful.tenant(),
    source_id bigint not null,
    target_id bigint not null,
    relation text not null check (relation ~ '^[a-z][a-z0-9_]{0,62}$'),
    weight real not null default 1 check (weight between 0 and 1),
    created_at timestamptz not null default now(),
    primary key (tenant, source_id, target_id, relation),
    foreign key (tenant, source_id) references memory (tenant, id) on delete cascade,
    foreign key (tenant, target_id) references memory (tenant, id) on delete cascade,
    check (source_id <> target_id)
);
-- The strongest links first, as memory_neighbors follows them.
create index on memory_link (tenant, source_id, weight desc) where source_id is not null;
create index on memory_link (tenant, target_id, weight desc) where target_id is not null;
comment on table memory_link is
'Directed links between memories, with a relation and a weight.';

alter table memory_link enable row level security, force row level security;
create policy own on memory_link using (tenant = (select _mindful.tenant())) with check (tenant = (select _mindful.tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.memory_link', '');

create function memory_link_insert(source_id bigint, target_id bigint, relation text, weight real default 1) returns boolean
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_column
declare
    is_new boolean;
begin
    perform _mindful.writable();
    if memory_link_insert.source_id = memory_link_insert.target_id then
        perform _mindful.raise('22023', format('memory %s is linked to itself', memory_link_insert.source_id),
            'Pass two different ids.');
    elsif memory_link_insert.relation is null or memory_link_insert.relation !~ '^[a-z][a-z0-9_]{0,62}$' then
        perform _mindful.raise('22023', format('relation is %s', coalesce(quote_literal(memory_link_insert.relation), 'null')),
            'Pass 1 to 63 characters a-z, 0-9 and _, such as works_for.');
    end if;
    insert into mindful.memory_link as l (source_id, target_id, relation, weight)
    values (
        _mindful.memory_argument('source_id', memory_link_insert.source_id),
        _mindful.memory_argument('target_id', memory_link_insert.target_id),
        memory_link_insert.relation,
        coalesce(_mindful.share_argument('weight', to_jsonb(memory_link_insert.weight)), 1)
    )
    on conflict (tenant, source_id, target_id, relation) do update set weight = excluded.weight
    returning l.xmax = 0 into is_new;
    return is_new;
end
$$;
comment on function memory_link_insert(bigint, bigint, text, real) is
'Links a source memory to a target memory by a relation. Returns true if the link is new, false if only its weight was set.
weight: 0 to 1 (NULL: 1).
Example: SELECT memory_link_insert(3, 8, ''works_for'', 0.9);
Errors: 22004, 22023 (relation, weight, or a link to itself), 42704 (the tenant has no such memory).';

create function memory_link_delete(source_id bigint, target_id bigint, relation text default null) returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform _mindful.writable();
    source_id := _mindful.memory_argument('source_id', source_id);
    target_id := _mindful.memory_argument('target_id', target_id);
    return (
        select _mindful.delete('memory_link', jsonb_agg(to_jsonb(l)))
        from (
            select l.source_id, l.target_id, l.relation
            from mindful.memory_link l
            where l.tenant = (select _mindful.tenant())
                and l.source_id = memory_link_delete.source_id and l.target_id = memory_link_delete.target_id
                and (memory_link_delete.relation is null or l.relation = memory_link_delete.relation)
            for update
        ) l
    );
end
$$;
comment on function memory_link_delete(bigint, bigint, text) is
'Deletes the link with a relation (NULL: all links) from one memory to another, and returns their number.
Errors: 22004, 42704 (the tenant has no such memory).';

create type memory_neighbor as (
    id bigint,
    content text,
    kind text,
    relation text,
    weight real,
    depth integer,
    path bigint[]
);
comment on type memory_neighbor is
'A memory and the path of links to it.';

create function _mindful.direction_argument(direction text) returns text
language sql stable parallel safe security invoker
begin atomic
    select case
        when direction = any (array['both', 'out', 'in']) then direction
        else _mindful.raise('22023', pg_catalog.format('direction is %s', coalesce(pg_catalog.quote_literal(direction), 'null')),
            'Pass out (from source to target), in or both.')::text
    end;
end;
comment on function _mindful.direction_argument(text) is 'Returns a direction, or raises 22023.';

create function _mindful.memory_is_true(id bigint, as_of timestamptz) returns boolean
language sql stable parallel safe security invoker
begin atomic
    select exists (
        select from mindful.memory m
        where m.tenant = (select _mindful.tenant()) and m.id = memory_is_true.id
            and (as_of is null
                or (m.valid_from is null or m.valid_from <= as_of) and (m.valid_to is null or m.valid_to > as_of))
    );
end;
comment on function _mindful.memory_is_true(bigint, timestamptz) is
'Returns whether the tenant has a memory that is valid at a time (NULL: at any time).';

create function memory_neighbors(
    id bigint,
    depth integer default 1,
    relations text[] default null,
    direction text default 'both',
    k integer default 50,
    fanout integer default 20,
    as_of timestamptz default now()
) returns setof memory_neighbor
language sql stable parallel safe security invoker rows 50
begin atomic
    with recursive argument as (
        select _mindful.memory_argument('id', id) as id,
            _mindful.integer_argument('depth', depth, 1, 5) as depth,
            _mindful.direction_argument(direction) as direction,
            _mindful.integer_argument('k', k, 1, 1000) as k,
            _mindful.integer_argument('fanout', fanout, 1, 1000) as fanout,
            _mindful.range_argument('as_of', as_of) as as_of
    ),
    step as (
        select a.id, null::text as relation, 1::double precision as weight, 0 as depth, array[a.id] as path
        from argument a
        union all
        select n.id, n.relation, s.weight * n.weight, s.depth + 1, s.path || n.id
        from step s
        cross join argument a
        cross join lateral (
            (
                select o.target_id as id, o.relation, o.weight
                from mindful.memory_link o
                where o.tenant = (select _mindful.tenant()) and o.source_id = s.id and a.direction <> 'in'
                    and (relations is null or o.relation = any (relations))
                    and o.target_id <> all (s.path)
                    and _mindful.memory_is_true(o.target_id, a.as_of)
                order by o.weight desc
                limit a.fanout
            )
            union all
            (
                select i.source_id, i.relation, i.weight
                from mindful.memory_link i
                where i.tenant = (select _mindful.tenant()) and i.target_id = s.id and a.direction <> 'out'
                    and (relations is null or i.relation = any (relations))
                    and i.source_id <> all (s.path)
                    and _mindful.memory_is_true(i.source_id, a.as_of)
                order by i.weight desc
                limit a.fanout
            )
            order by weight desc
            limit a.fanout
        ) n
        where s.depth < a.depth
    ),
    -- Rows come level by level, so the limit cuts the farthest.
    walked as (
        select s.id, s.relation, s.weight, s.depth, s.path from step s limit 10000
    ),
    best as (
        select distinct on (w.id) w.id, w.relation, w.weight, w.depth, w.path
        from walked w
        where w.depth > 0
        order by w.id, w.depth, w.weight desc, w.path
    )
    select m.id, m.content, m.kind, b.relation, _mindful.real(b.weight), b.depth, b.path
    from best b
    join mindful.memory m on m.tenant = (select _mindful.tenant()) and m.id = b.id
    order by b.depth, b.weight desc, m.id
    limit (select a.k from argument a);
end;
comment on function memory_neighbors(bigint, integer, text[], text, integer, integer, timestamptz) is
'Returns the k nearest memories that links lead to from a memory, at most depth (1 to 5) links away, nearest first.
Each memory comes once, by its shortest path; of equal paths, by the strongest. weight is the product of the weights on the path. fanout: links that are followed from each memory, strongest first. relations: only these (NULL: all). direction: out (source to target), in or both. as_of: only through memories valid at this time (NULL: any time). At most 10,000 paths are followed.
Example: SELECT content, relation, path FROM memory_neighbors(3, depth => 2, relations => ''{works_for}'');
Errors: 22004, 22008 (as_of is outside the years 1 to 9999), 22023, 42704 (the tenant has no such memory).';

-- attachment
comment on table attachment is
'Tables of applications whose rows are memories.';
alter table attachment drop constraint attachment_mode_check;
alter table attachment add constraint attachment_mode_check check (mode in ('sync', 'async'));
comment on column attachment.mode is 'Whether rows are embedded within the statement that writes them (sync) or later, by a worker (async).';
create or replace function _mindful.attachment_delete(source text, keys text[]) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
set enable_hashjoin = off
set enable_mergejoin = off
as $$
begin
    if keys is null then
        perform _mindful.memory_delete(array(
            select m.id from mindful.memory m
            where m.tenant = (select _mindful.tenant()) and m.source = attachment_delete.source
        ));
    elsif keys <> '{}' then
        perform _mindful.memory_delete(array(
            select gone.id
            from unnest(keys) k (key)
            cross join lateral (
                select s.id from mindful.memory s
                where s.tenant = (select _mindful.tenant()) and s.source = attachment_delete.source and s.source_key = k.key
                offset 0
            ) gone
        ));
    end if;
end
$$;
comment on function _mindful.attachment_delete(text, text[]) is 'Forgets the memories of deleted rows, or of all (NULL).';
create or replace function _mindful.attachment_write(source text, keys text[], contents text[]) returns void
language sql volatile parallel unsafe security invoker
begin atomic
    select _mindful.attachment_delete(attachment_write.source, array(
        select w.key
        from rows from (pg_catalog.unnest(keys), pg_catalog.unnest(contents)) w (key, content)
        where pg_catalog.btrim(coalesce(w.content, ''), E' \t\n\r') = ''
    ));
    insert into mindful.memory as m (kind, content, source, source_key)
    select 'document', w.content, attachment_write.source, w.key
    from rows from (pg_catalog.unnest(keys), pg_catalog.unnest(contents)) w (key, content)
    where pg_catalog.btrim(coalesce(w.content, ''), E' \t\n\r') <> ''
    on conflict (tenant, source, source_key) where source is not null do update set content = excluded.content
        where m.content <> excluded.content;
end;
comment on function _mindful.attachment_write(text, text[], text[]) is
'Makes memories of rows, by primary key: new texts are added, changed ones replaced, rows without a text forgotten.';
create or replace function memory_attach(relation regclass, content text, mode text default 'sync') returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
set timezone = 'UTC'
set datestyle = 'ISO'
set intervalstyle = 'postgres'
set extra_float_digits = 1
set bytea_output = 'hex'
set client_min_messages = warning
as $$
declare
    target pg_class := (select c from pg_class c where c.oid = relation);
    schema_name name := (select n.nspname from pg_namespace n where n.oid = target.relnamespace);
    full_name text := _mindful.relation_name(relation);
    function_name text := format('remember_%s', md5(full_name));
    dropped mindful.attachment;
    key text;
    body text;
    event text;
    keys text[];
    contents text[];
    outer_mode text := coalesce(current_setting('mindful.embedding_mode', true), '');
    remembered bigint;
begin
    perform _mindful.writable();
    perform _mindful.text_argument('content', content);
    -- Tables that were dropped while they were attached.
    for dropped in
        select a.* from mindful.attachment a
        where a.tenant = _mindful.tenant() and not exists (select from pg_class c where c.oid = a.relation)
    loop
        full_name := dropped.source;
        perform _mindful.delete('attachment', jsonb_build_array(jsonb_build_object('relation', dropped.relation::oid::text)));
        perform _mindful.attachment_delete(full_name, null);
        execute format('drop function if exists %I.%I()', (parse_ident(full_name))[1], 'remember_' || md5(full_name));
    end loop;
    full_name := _mindful.relation_name(relation);
    if relation is null then
        perform _mindful.raise('22004', 'relation is null', 'Name a table.');
    elsif target.relkind <> 'r' then
        perform _mindful.raise('42809', format('%s is not an ordinary table', full_name),
            'Attach the tables or partitions that hold its rows.');
    elsif schema_name in ('mindful', '_mindful', 'pg_catalog', 'pg_toast', 'information_schema') then
        perform _mindful.raise('42809', format('%s belongs to %s', full_name,
            case when schema_name in ('mindful', '_mindful') then 'mindful' else 'the server' end), 'Attach a table of an application.');
    elsif target.relowner <> current_user::regrole then
        perform _mindful.raise('42501', format('%s is owned by %s', full_name, target.relowner::regrole),
            'Only its owner can attach a table: SET ROLE to the owner first.');
    elsif mode is null or mode not in ('sync', 'async') then
        perform _mindful.raise('22023', format('mode is %s', coalesce(quote_literal(mode), 'null')),
            'Modes are sync and async.');
    elsif exists (
        select from mindful.attachment a
        where a.tenant = _mindful.tenant() and (a.relation = memory_attach.relation or a.source = full_name)
    ) then
        perform _mindful.raise('42710', format('%s is attached already', full_name),
            format('Detach it first: SELECT memory_detach(%L).', full_name));
    end if;
    select case count(*)
        when 1 then min(format('r.%I::text', a.attname))
        else format('array[%s]::text', string_agg(format('r.%I::text', a.attname), ', ' order by k.position))
    end into key
    from pg_index i
    cross join unnest(i.indkey) with ordinality k (attribute, position)
    join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attribute
    where i.indrelid = relation and i.indisprimary;
    if key is null or key = 'array[]::text' then
        perform _mindful.raise('42P16', format('%s has no primary key', full_name),
            'Add one: a memory follows its row by it.');
    end if;

    -- The function runs as the table's owner, whoever changes its rows, so all its memories have one tenant; and the
    -- owner answers for the expression. Nothing of the table's schema is on its path, where others may create.
    body := format($body$
        #variable_conflict use_column
        declare
            keys text[];
            contents text[];
            outer_tenant text := coalesce(current_setting('mindful.tenant', true), '');
            outer_mode text := coalesce(current_setting('mindful.embedding_mode', true), '');
        begin
            if (select c.relowner <> current_user::regrole from pg_class c where c.oid = tg_relid) then
                raise exception using errcode = '55000', message = 'mindful: the table has another owner than when it was attached',
                    hint = 'Have its former owner detach it, or drop its triggers named remember_*.';
            end if;
            -- Whoever writes may have set another tenant, which would be believed if the owner is an application.
            perform set_config('mindful.tenant', %1$L, true), set_config('mindful.embedding_mode', %5$L, true);
            if tg_op = 'TRUNCATE' then
                perform _mindful.attachment_delete(%2$L, null);
            elsif tg_op = 'DELETE' then
                perform _mindful.attachment_delete(%2$L, array(select %3$s from old_rows r));
            elsif tg_op = 'UPDATE' then
                perform _mindful.attachment_delete(%2$L,
                    array(select %3$s from old_rows r except select %3$s from new_rows r));
            end if;
            if tg_op in ('INSERT', 'UPDATE') then
                for keys, contents in
                    select array_agg(key), array_agg(content)
                    from (select %3$s as key, (%4$s)::text as content, row_number() over () as n from new_rows r) s
                    group by n / 1000
                loop
                    perform _mindful.attachment_write(%2$L, keys, contents);
                end loop;
            end if;
            perform set_config('mindful.tenant', outer_tenant, true),
                set_config('mindful.embedding_mode', outer_mode, true);
            return null;
        end
        $body$, _mindful.tenant_required(), full_name, key, content, mode);
    -- Time zone and formats: a row's key must read the same in every session. Plans would show writers what they may not read.
    execute format($create$
        create function %I.%I() returns trigger
        language plpgsql security definer
        set search_path = pg_catalog, mindful, pg_temp
        set timezone = 'UTC'
        set datestyle = 'ISO'
        set intervalstyle = 'postgres'
        set extra_float_digits = 1
        set bytea_output = 'hex'
        set row_security = on
        set debug_print_parse = off
        set debug_print_rewritten = off
        set debug_print_plan = off
        as %L
        $create$, schema_name, function_name, body);
    execute format('revoke execute on function %I.%I() from public', schema_name, function_name);
    foreach event in array array[
        'remember_inserted after insert on %1$s referencing new table as new_rows',
        'remember_updated after update on %1$s referencing old table as old_rows new table as new_rows',
        'remember_deleted after delete on %1$s referencing old table as old_rows',
        'remember_truncated after truncate on %1$s'
    ] loop
        -- A restored row comes with its memory: pg_dump's scripts turn row_security off. Nobody but the owner, and
        -- who has the owner's rights, keeps the triggers still in this way.
        execute format('create trigger ' || event || $call$ for each statement
            when (pg_catalog.current_setting('row_security') = 'on' or not pg_catalog.pg_has_role(%4$L, 'usage'))
            execute function %2$I.%3$I()$call$, full_name, schema_name, function_name, current_user);
        execute format('alter trigger %s on %s depends on extension mindful', split_part(event, ' ', 1), full_name);
    end loop;
    execute format('alter function %I.%I() depends on extension mindful', schema_name, function_name);
    insert into mindful.attachment (relation, source, content, mode) values (relation, full_name, content, mode);
    perform set_config('mindful.embedding_mode', mode, true);
    for keys, contents in execute format('
        select array_agg(key), array_agg(content)
        from (select %s as key, (%s)::text as content, row_number() over () as n from %s r) s
        group by n / 1000', key, content, full_name)
    loop
        perform _mindful.attachment_write(full_name, keys, contents);
    end loop;
    perform set_config('mindful.embedding_mode', outer_mode, true);
    select count(*) into remembered from mindful.memory m
    where m.tenant = _mindful.tenant() and m.source = full_name;
    return remembered;
end
$$;
comment on function memory_attach(regclass, text, text) is
'Remembers the rows of a table, those it has and those to come: content is an SQL expression over its columns, such as ''subject || body''. Inserts and updates are embedded in one batch a statement, in the same transaction, or with mode async later by a worker (see embedding_run), so that writers wait for no model; deleted rows, and rows whose expression is NULL or empty, are forgotten. The memories belong to the role that attaches the table, its owner. Returns the number of rows remembered at once. With mode sync writers wait while the rows that are there are embedded. Sessions'' settings do not touch the expression: it is evaluated with time zone UTC and ISO dates, and names functions and operators outside pg_catalog with their schema. A column it names cannot be renamed while the table is attached without breaking the table''s writes. Errors: 42P01 (no such table), 42501 (not its owner), 42P16 (no primary key), 42710 (attached already), 42703 (no such column), 22004, 22023, 42809.';
create or replace function memory_detach(relation regclass) returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    remember regprocedure := (
        select t.tgfoid from pg_trigger t where t.tgrelid = relation and t.tgname = 'remember_inserted'
    );
    event text;
    attached_as text;
begin
    perform _mindful.writable();
    select a.source into attached_as from mindful.attachment a
    where a.tenant = _mindful.tenant() and a.relation = memory_detach.relation
    for update;
    if not found then
        perform _mindful.raise('42704', format('%s is not attached', coalesce(relation::text, 'null')),
            'The tables that you attached are listed in mindful.attachment.');
    end if;
    perform _mindful.delete('attachment', jsonb_build_array(jsonb_build_object('relation', relation::oid::text)));
    foreach event in array array['inserted', 'updated', 'deleted', 'truncated'] loop
        execute format('drop trigger remember_%s on %s', event, relation);
    end loop;
    execute format('drop function %s', remember);
    return _mindful.memory_delete(array(
        select m.id from mindful.memory m where m.tenant = _mindful.tenant() and m.source = attached_as for update
    ));
end
$$;
comment on function memory_detach(regclass) is
'Detaches a table: removes its triggers, deletes its memories and returns their number. Error 42704: it is not attached.';

insert into setting_definition (key, type, low, high, scopes, initial, description, choices) values
    ('embedding_mode', 'text', null, null, '{global,user}', '"sync"',
        'When memories are embedded: sync is within the statement that writes them, async later, by a worker.', '{sync,async}'),
    ('embedding_attempts', 'integer', 1, 100, '{global}', '5',
        'How often an embedding is tried before its job becomes a dead letter.', null),
    ('embedding_retry_s', 'integer', 0, 3600, '{global}', '10',
        'How many seconds after its first failure a job is tried again; twice as many after each further one, up to 3600.', null);

-- The text's hash is part of the key: a changed text makes a job of its own, and its writer never waits for a worker
-- that has the old one.
create table embedding_job (
    tenant text not null default _mindful.tenant(),
    id bigint not null,
    model text not null references model on delete cascade,
    content_hash text not null,
    attempts integer not null default 0 check (attempts >= 0),
    run_after timestamptz not null default now(),
    enqueued_at timestamptz not null default now(),
    last_error text,
    primary key (tenant, id, model, content_hash),
    foreign key (tenant, id) references memory on delete cascade
);
create index on embedding_job (tenant, run_after) where run_after is not null;
comment on table embedding_job is
'Memories that wait for an embedding. A worker locks the rows of its jobs; the locks end with its transaction.';
comment on column embedding_job.content_hash is 'The text that is to be embedded; a job whose memory has another one by now is dropped.';
comment on column embedding_job.attempts is
'Number of failed attempts. A cancelled worker does not count.';

create table embedding_job_failed (
    tenant text not null default _mindful.tenant(),
    id bigint not null,
    model text not null references model on delete cascade,
    content_hash text not null,
    attempts integer not null,
    error text not null,
    enqueued_at timestamptz not null,
    failed_at timestamptz not null default now(),
    primary key (tenant, id, model, content_hash),
    foreign key (tenant, id) references memory on delete cascade
);
comment on table embedding_job_failed is 'Dead letters: jobs that failed as often as the setting embedding_attempts allows. embedding_retry() puts them back.';

-- A role that may not use a model cannot queue jobs for it.
alter table embedding_job enable row level security, force row level security;
create policy own on embedding_job using (tenant = (select _mindful.tenant()))
    with check (tenant = (select _mindful.tenant_claimed()) and model in (select m.name from mindful.model m where m.kind = 'embedder'));
select pg_catalog.pg_extension_config_dump('mindful.embedding_job', '');
alter table embedding_job_failed enable row level security, force row level security;
create policy own on embedding_job_failed using (tenant = (select _mindful.tenant()))
    with check (tenant = (select _mindful.tenant_claimed()) and model in (select m.name from mindful.model m where m.kind = 'embedder'));
select pg_catalog.pg_extension_config_dump('mindful.embedding_job_failed', '');

create function _mindful.embedding_mode() returns text
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    return coalesce(
        nullif(current_setting('mindful.embedding_mode', true), ''),
        mindful.setting_get('embedding_mode') #>> '{}'
    );
end
$$;
comment on function _mindful.embedding_mode() is
'When what is written now is to be embedded: as the attached table that it comes from says, else the setting embedding_mode.';

create function _mindful.memory_enqueue() returns trigger
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    embedder text := (select f.name from _mindful.model_find('embedder', null) f);
    enqueued bigint;
begin
    if embedder is null then
        return null;
    elsif tg_level = 'ROW' then
        insert into mindful.embedding_job (tenant, id, model, content_hash)
        values (new.tenant, new.id, embedder, new.content_hash)
        on conflict do nothing;
    else
        execute format('
            insert into mindful.embedding_job (tenant, id, model, content_hash)
            select n.tenant, n.id, $1, n.content_hash
            from new_rows n
            where not exists (
                select from mindful.%I e
                where e.tenant = n.tenant and e.id = n.id and e.content_hash = n.content_hash
            )
            on conflict do nothing', _mindful.embedding_table(embedder)) using embedder;
    end if;
    get diagnostics enqueued = row_count;
    if enqueued > 0 then
        notify mindful_job;
    end if;
    return null;
end
$$;
comment on function _mindful.memory_enqueue() is
'Enqueues the new and changed rows of a statement, and tells the workers that listen on the channel mindful_job.';

-- pg_dump's scripts turn row_security off: restored rows come with their embeddings.
create trigger embed_inserted after insert on memory referencing new table as new_rows for each statement
    when ((pg_catalog.current_setting('row_security') = 'on' or not _mindful.is_restore()) and _mindful.embedding_mode() <> 'async')
    execute function _mindful.memory_embed();
create trigger embed_updated after update on memory referencing new table as new_rows for each statement
    when ((pg_catalog.current_setting('row_security') = 'on' or not _mindful.is_restore()) and _mindful.embedding_mode() <> 'async')
    execute function _mindful.memory_embed();
create trigger enqueue_inserted after insert on memory referencing new table as new_rows for each statement
    when ((pg_catalog.current_setting('row_security') = 'on' or not _mindful.is_restore()) and _mindful.embedding_mode() = 'async')
    execute function _mindful.memory_enqueue();
create trigger enqueue_updated after update on memory referencing new table as new_rows for each statement
    when ((pg_catalog.current_setting('row_security') = 'on' or not _mindful.is_restore()) and _mindful.embedding_mode() = 'async')
    execute function _mindful.memory_enqueue();
-- By row, because a subscription's worker fires no other triggers.
create trigger enqueue_replicated after insert or update of content on memory for each row
    when (pg_catalog.current_setting('row_security') = 'on' or not _mindful.is_restore())
    execute function _mindful.memory_enqueue();
alter table memory disable trigger enqueue_replicated;

create function embedding_replica_set(enabled boolean default true) returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform _mindful.writable();
    if enabled is null then
        perform _mindful.raise('22004', 'enabled is null', 'Give true or false.');
    elsif enabled then
        alter table mindful.memory enable replica trigger enqueue_replicated;
    else
        alter table mindful.memory disable trigger enqueue_replicated;
    end if;
end
$$;
comment on function embedding_replica_set(boolean) is
'Sets whether memories written by logical replication, or with session_replication_role = replica, are queued at once.
embedding_enqueue finds them in any case. Subscription workers never run a model. It is off initially, and after a restore. For administrators. Error 22004: NULL.';

create function _mindful.job_take(max_jobs integer)
returns table (tenant text, id bigint, model text, content_hash text, content text)
language sql volatile parallel unsafe security invoker
begin atomic
    -- A loose index scan finds the tenants. They share a batch, so no tenant waits behind a million jobs of another.
    with recursive queued as (
        (select j.tenant from mindful.embedding_job j order by j.tenant limit 1)
        union all
        select (select j.tenant from mindful.embedding_job j where j.tenant > q.tenant order by j.tenant limit 1)
        from queued q
        where q.tenant is not null
    ),
    due as materialized (
        select q.tenant, greatest(1, max_jobs / pg_catalog.count(*) over ()) as share
        from queued q
        where exists (
            select from mindful.embedding_job j
            where j.tenant = q.tenant and j.run_after <= (select pg_catalog.clock_timestamp())
        )
        order by pg_catalog.random()
        limit max_jobs
    )
    select j.tenant, j.id, j.model, j.content_hash, j.content
    from due d
    cross join lateral (
        select j.tenant, j.id, j.model, j.content_hash, case when m.content_hash = j.content_hash then m.content end as content
        from mindful.embedding_job j
        join mindful.memory m on m.tenant = j.tenant and m.id = j.id
        where j.tenant = d.tenant and j.run_after <= (select pg_catalog.clock_timestamp())
        order by j.run_after
        limit d.share
        -- The memory too, though its text may change: who deletes it waits for the job's end, not across it.
        for update of j skip locked
        for key share of m skip locked
    ) j;
end;
comment on function _mindful.job_take(integer) is
'Locks jobs that are due until the transaction ends, of all tenants that the caller reaches in equal shares, and returns them with their texts; NULL is that of a memory which has another text by now.';

create function _mindful.job_store(
    model text,
    tenant text,
    ids bigint[],
    hashes text[],
    embeddings text[],
    out stored integer,
    out error text
)
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
set lock_timeout = '100ms'
as $$
declare
    outer_tenant text := coalesce(current_setting('mindful.tenant', true), '');
begin
    -- Memories that another transaction is changing are skipped: waiting could end in a deadlock.
    execute format('
        with current as (
            select m.tenant, m.id, _mindful.vector(k.embedding) as embedding, m.content_hash
            from rows from (unnest($2), unnest($3), unnest($4)) k (id, content_hash, embedding)
            join mindful.memory m on m.tenant = $1 and m.id = k.id and m.content_hash = k.content_hash
            for share of m skip locked
        )
        insert into mindful.%I (tenant, id, embedding, content_hash)
        select tenant, id, embedding, content_hash from current
        on conflict (tenant, id) do update set embedding = excluded.embedding, content_hash = excluded.content_hash',
        _mindful.embedding_table(model)) using tenant, ids, hashes, embeddings;
    get diagnostics stored = row_count;
    perform set_config('mindful.tenant', tenant, true);  -- whose settings hold
    if mindful.setting_get('memory_duplicates') = '"join_near"'
        and model = (select f.name from _mindful.model_find('embedder', null) f)
    then
        perform _mindful.memory_supersede(ids);
    end if;
    perform set_config('mindful.tenant', outer_tenant, true);
exception when others then  -- which a cancel is not
    error := sqlerrm;
end
$$;
comment on function _mindful.job_store(text, text, bigint[], text[], text[]) is
'Stores embeddings of memories of one tenant, as far as they still have the texts of these hashes. Returns how many, or the error for which none is stored.';

create function _mindful.job_settle(model text, tenants text[], ids bigint[], hashes text[]) returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    settled bigint;
begin
    execute format('
        select coalesce(sum(d.deleted), 0)
        from (
            select _mindful.delete(''embedding_job'', jsonb_agg(to_jsonb(j) - ''tenant''), j.tenant) as deleted
            from (
                select j.tenant, j.id, j.model, j.content_hash
                from rows from (unnest($2), unnest($3), unnest($4)) k (tenant, id, content_hash)
                join mindful.embedding_job j on j.tenant = k.tenant and j.id = k.id and j.model = $1
                    and j.content_hash = k.content_hash
                where exists (select from mindful.%I e
                        where e.tenant = k.tenant and e.id = k.id and e.content_hash = k.content_hash)
                    or not exists (select from mindful.memory m
                        where m.tenant = k.tenant and m.id = k.id and m.content_hash = k.content_hash)
                for update of j
            ) j
            group by j.tenant
        ) d', _mindful.embedding_table(model)) using model, tenants, ids, hashes into settled;
    update mindful.embedding_job j set run_after = clock_timestamp() + interval '1 second'
    from rows from (unnest(tenants), unnest(ids), unnest(hashes)) k (tenant, id, content_hash)
    where j.tenant = k.tenant and j.id = k.id and j.model = job_settle.model and j.content_hash = k.content_hash;
    return settled;
end
$$;
comment on function _mindful.job_settle(text, text[], bigint[], text[]) is
'Removes jobs that are done, or whose text is gone, and returns how many; the memories of the others are being changed, and are looked at a second later.';

create function _mindful.job_fail(model text, tenant text, ids bigint[], hashes text[], error text) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
set lock_timeout = '100ms'
as $$
#variable_conflict use_column
declare
    most integer := mindful.setting_get('embedding_attempts') #>> '{}';
    retry_s integer := mindful.setting_get('embedding_retry_s') #>> '{}';
    died bigint;
begin
    update mindful.embedding_job j
    set attempts = j.attempts + 1, last_error = left(error, 1000),
        run_after = clock_timestamp() + make_interval(secs => least(retry_s * 2.0 ^ least(j.attempts, 30), 3600))
    from rows from (unnest(ids), unnest(hashes)) k (id, content_hash)
    where j.tenant = job_fail.tenant and j.id = k.id and j.model = job_fail.model and j.content_hash = k.content_hash;
    with dead as (
        insert into mindful.embedding_job_failed (tenant, id, model, content_hash, attempts, error, enqueued_at)
        select j.tenant, j.id, j.model, j.content_hash, j.attempts, j.last_error, j.enqueued_at
        from rows from (unnest(ids), unnest(hashes)) k (id, content_hash)
        join mindful.embedding_job j on j.tenant = job_fail.tenant and j.id = k.id and j.model = job_fail.model
            and j.content_hash = k.content_hash and j.attempts >= most
        on conflict (tenant, id, model, content_hash) do update
            set attempts = excluded.attempts, error = excluded.error, failed_at = excluded.failed_at
        returning id, model, content_hash
    )
    select _mindful.delete('embedding_job', jsonb_agg(to_jsonb(d)), job_fail.tenant) into died from dead d;
exception when lock_not_available then
    -- A tenant that has locked its own failed jobs delays its own jobs only.
    update mindful.embedding_job j set run_after = clock_timestamp() + interval '1 hour', last_error = left(error, 1000)
    from rows from (unnest(ids), unnest(hashes)) k (id, content_hash)
    where j.tenant = job_fail.tenant and j.id = k.id and j.model = job_fail.model and j.content_hash = k.content_hash;
end
$$;
comment on function _mindful.job_fail(text, text, bigint[], text[], text) is
'Counts an attempt of jobs of one tenant: they are tried again later and later, and at last become dead letters.';

create type embedding_outcome as (
    embedded integer,
    dropped integer,
    failed integer
);
comment on type embedding_outcome is
'Work of a worker: embeddings stored, jobs dropped, attempts that failed.';

create function _mindful.job_run_own(max_jobs integer, max_seconds real) returns embedding_outcome
language plpython3u volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.memory.queue import job_run_own
return job_run_own(max_jobs, max_seconds)
$python$;
comment on function _mindful.job_run_own(integer, real) is 'embedding_run for the caller''s own jobs.';

create function _mindful.job_run_all(max_jobs integer, max_seconds real) returns embedding_outcome
language plpython3u volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
set mindful.tenant = ''
as $python$
from mindful.memory.queue import job_run_all
return job_run_all(max_jobs, max_seconds)
$python$;
comment on function _mindful.job_run_all(integer, real) is
'embedding_run for the jobs of all tenants. It runs as the extension''s owner, above row-level security, but tells nothing of what it reads.';

create function embedding_run(max_jobs integer default 1000, max_seconds real default 60) returns embedding_outcome
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform _mindful.writable();
    perform _mindful.integer_argument('max_jobs', max_jobs, 1, 1000000);
    if max_seconds is null then
        perform _mindful.raise('22004', 'max_seconds is null', 'Give a number of seconds.');
    elsif not max_seconds between 0 and 86400 then
        perform _mindful.raise('22023', format('max_seconds is %s', max_seconds), 'It must be between 0 and 86400.');
    elsif pg_has_role(current_user, 'mindful_admin', 'usage') then
        return _mindful.job_run_all(max_jobs, max_seconds);
    end if;
    return _mindful.job_run_own(max_jobs, max_seconds);
end
$$;
comment on function embedding_run(integer, real) is
'Computes embeddings of waiting memories, at most max_jobs or until max_seconds have passed, and returns the counts.
A user''s call works for the own tenant, an administrator''s call for all tenants in equal shares. embedded: stored. dropped: the text has an embedding already, or has changed. failed: attempts that failed. All work is in the caller''s transaction; worker_run commits after each batch. Any number of workers may run. A job that fails is tried again after embedding_retry_s seconds, then after twice that time, and so on. After embedding_attempts attempts it moves to embedding_job_failed.
Errors: 22004, 22023.';

create procedure worker_run(max_seconds real default 60, idle boolean default false)
language plpython3u security invoker
as $python$
from mindful.memory.queue import worker_run
return worker_run(max_seconds, idle)
$python$;
comment on procedure worker_run(real, boolean) is
'Calls embedding_run batch by batch, each in its own transaction, until no job is due or max_seconds have passed.
With idle true, it waits for new jobs until max_seconds have passed. Call it outside of a transaction. Errors: 22004, 22023, 55000 (within a transaction).';

create function _mindful.embedding_retry(model text) returns bigint
language sql volatile parallel unsafe security invoker
begin atomic
    with back as materialized (
        select f.tenant, f.id, f.model, f.content_hash from mindful.embedding_job_failed f
        where embedding_retry.model is null or f.model = embedding_retry.model
        for update skip locked
    ),
    enqueued as (
        insert into mindful.embedding_job (tenant, id, model, content_hash)
        select b.tenant, b.id, b.model, b.content_hash from back b
        on conflict do nothing
    )
    select coalesce(pg_catalog.sum(d.deleted), 0)::bigint
    from (
        select _mindful.delete('embedding_job_failed', pg_catalog.jsonb_agg(pg_catalog.to_jsonb(b) - 'tenant'), b.tenant) as deleted
        from back b group by b.tenant
    ) d;
end;
comment on function _mindful.embedding_retry(text) is 'Puts the dead letters that the caller reaches back into the queue.';

create function _mindful.job_retry_all(model text) returns bigint
language sql volatile parallel unsafe security definer
set mindful.tenant = ''
begin atomic
    select _mindful.embedding_retry(model);
end;
comment on function _mindful.job_retry_all(text) is 'Puts the dead letters of all tenants back into the queue.';

create function embedding_retry(model text default null) returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform _mindful.writable();
    if model is not null then
        perform _mindful.embedder(model);
    end if;
    if pg_has_role(current_user, 'mindful_admin', 'usage') then
        return _mindful.job_retry_all(model);
    end if;
    return _mindful.embedding_retry(model);
end
$$;
comment on function embedding_retry(text) is
'Moves jobs from embedding_job_failed back into the queue, without attempts, and returns their number.
model: only jobs of this embedder (NULL: all). A user''s call works for the own tenant, an administrator''s call for all tenants. Error 42704: no such embedder.';

create function _mindful.cron_schedule(job text, schedule text, command text) returns boolean
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    if not exists (select from pg_extension e where e.extname = 'pg_cron') then
        perform _mindful.raise('55000', 'the extension pg_cron is not installed in this database',
            'Install it, or run the worker: mindful worker.');
    end if;
    if exists (select from cron.job j where j.jobname = job and j.username = current_user) then
        perform cron.unschedule(job);
    end if;
    if schedule is not null then
        perform cron.schedule(job, schedule, command);
    end if;
    return schedule is not null;
end
$$;
comment on function _mindful.cron_schedule(text, text, text) is
'Has pg_cron run a command at a schedule (crontab''s five fields; NULL: no longer), as the calling role, and returns whether it does now. Errors: 55000 (no pg_cron), 42501 (no right to the schema cron).';

create function worker_schedule(schedule text default '* * * * *') returns boolean
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform _mindful.writable();
    -- Never idle: while a job runs, pg_cron's launcher answers no barrier, and every DROP DATABASE waits for it.
    perform _mindful.cron_schedule('mindful_worker', schedule, 'call mindful.worker_run(max_seconds => 55)');
    perform _mindful.cron_schedule('mindful_sweep', case when schedule is not null then '17 * * * *' end,
        'select mindful.embedding_enqueue()');
    return _mindful.cron_schedule('mindful_retention', case when schedule is not null then '47 4 * * *' end,
        'select mindful.retention_run()');
end
$$;
comment on function worker_schedule(text) is
'Has pg_cron run workers as the calling role, and returns whether they are scheduled now.
schedule: five fields of crontab; NULL ends it. Each run of the worker ends after 55 seconds at the latest. embedding_enqueue runs every hour, retention_run every day. If an administrator calls it, they work for all tenants. Errors: 55000 (no pg_cron), 42501 (no privilege on the schema cron).';
create type document_change as (
    chunks integer,
    inserted integer,
    replaced integer,
    kept integer,
    deleted integer
);
comment on type document_change is
'What became of a document''s chunks: how many it has now, and how many of them are new, have another text under their key, or are as they were; and how many of its last version are gone.';

create function _mindful.document_source(source text) returns text
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform _mindful.text_argument('source', source);
    if octet_length(source) > 1024 then
        perform _mindful.raise('54000', format('source has %s bytes, more than 1024', octet_length(source)),
            'Name the document by a file''s path, a URL or a title.');
    elsif exists (select from mindful.attachment a where a.tenant = _mindful.tenant() and a.source = document_source.source)
        or exists (
            select from mindful.memory m
            where m.tenant = _mindful.tenant() and m.source = document_source.source
                and not (m.kind = 'document' and m.metadata ? 'chunk')
        )
    then
        perform _mindful.raise('42710', format('source %L is already used by memories that are not documents', source),
            'Give the document another source: an attached table, or memory_insert, has taken this one.');
    end if;
    return source;
end
$$;
comment on function _mindful.document_source(text) is 'Returns a source that a document can have, or raises 22004, 22023, 42710 or 54000.';

create function _mindful.document_write(
    source text,
    title text,
    metadata jsonb,
    keys text[],
    contents text[],
    places text[]
) returns document_change
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_column
declare
    found record;
    deleted integer;
    shared jsonb := _mindful.metadata(document_write.metadata) || jsonb_strip_nulls(jsonb_build_object('title', title));
begin
    perform _mindful.document_source(document_write.source);
    -- Two versions of a document that come at the same time come one after the other.
    perform _mindful.lock('document ' || md5(document_write.source));
    select count(*) as chunks, count(*) filter (where m.id is null) as inserted,
        count(*) filter (where m.content <> n.content) as replaced, count(*) filter (where m.content = n.content) as kept
    into found
    from rows from (unnest(keys), unnest(contents)) n (key, content)
    left join mindful.memory m on m.tenant = (select _mindful.tenant()) and m.source = document_write.source
        and m.source_key = n.key;
    insert into mindful.memory as m (kind, content, metadata, source, source_key)
    select 'document', n.content, shared || n.place::jsonb, document_write.source, n.key
    from rows from (unnest(keys), unnest(contents), unnest(places)) with ordinality n (key, content, place, number)
    order by n.number
    on conflict (tenant, source, source_key) where source is not null do update set content = excluded.content, metadata = excluded.metadata
        where m.content <> excluded.content or m.metadata <> excluded.metadata;
    deleted := _mindful.memory_delete(array(
        select m.id from mindful.memory m
        where m.tenant = (select _mindful.tenant()) and m.source = document_write.source
            and not exists (select from unnest(keys) k (key) where k.key = m.source_key)
    ));
    return (found.chunks, found.inserted, found.replaced, found.kept, deleted)::mindful.document_change;
end
$$;
comment on function _mindful.document_write(text, text, jsonb, text[], text[], text[]) is
'Makes a document''s chunks those that are given: new ones are added, those whose text or place is another updated, the others deleted. Places are JSON objects that say where a chunk stands.';

create function document_insert(
    content text,
    source text,
    title text default null,
    format text default 'auto',
    metadata jsonb default '{}',
    max_tokens integer default null,
    overlap integer default null
) returns document_change
language plpython3u volatile parallel unsafe security invoker cost 10000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.memory.document import document_insert
return document_insert(content, source, title, format, metadata, max_tokens, overlap)
$python$;
comment on function document_insert(text, text, text, text, jsonb, integer, integer) is
'Remembers a document in chunks, memories of kind document, and says how many there are and what changed. When the same source comes again, chunks with the same text stay the same memories, with their embeddings; new ones are added and those that are gone deleted, all in one transaction. Formats: prose (pages, paragraphs, sentences), markdown (sections), code (definitions), auto (by the ending of source, as is the language of code). A chunk has at most max_tokens tokens of the default embedder (NULL: as many as it reads, at most 240) and shares at most overlap with the one before (NULL: a tenth). Metadata of a chunk: what is given here, title, heading (the path of its section or definition, or its page), chunk (its number), chunks (of how many), start and end (characters of the document from 0). Errors: 22004, 22023 (bad argument), 42710 (source of other memories), 54000 (content over 16 MB, source over 1024 bytes).';

create function document_insert_parts(source text, parts jsonb, title text default null, metadata jsonb default '{}')
returns document_change
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    keys text[];
    contents text[];
    places text[];
    repeated text;
begin
    perform _mindful.writable(), _mindful.short_argument('source', source), _mindful.short_argument('title', title);
    select array_agg(p.key order by p.number), array_agg(p.content order by p.number),
        array_agg((p.metadata || jsonb_build_object('chunk', p.number, 'chunks', p.parts))::text order by p.number)
    into keys, contents, places
    from (
        select e.number, count(*) over () as parts,
            _mindful.part_key(e.element ->> 'key', e.number) as key,
            _mindful.text_argument(format('content of element %s', e.number), e.element ->> 'content') as content,
            _mindful.metadata(e.element -> 'metadata')
                || jsonb_strip_nulls(jsonb_build_object('heading', e.element ->> 'heading')) as metadata
        from _mindful.array_elements('parts', parts, '{key,content,heading,metadata}') e
    ) p;
    if keys is null then
        perform _mindful.raise('22023', 'parts is empty', 'Give at least one; document_delete forgets a document.');
    end if;
    select k.key into repeated from unnest(keys) k (key) group by k.key having count(*) > 1 limit 1;
    if found then
        perform _mindful.raise('22023', format('parts have the key %L more than once', repeated), 'Give each part a key of its own.');
    end if;
    return _mindful.document_write(source, title, metadata, keys, contents, places);
end
$$;
comment on function document_insert_parts(text, jsonb, text, jsonb) is
'Stores a document in parts that the caller made, such as the operations of an API, and returns what document_insert does.
parts: an array of objects with key and content, optionally heading and metadata. If the source exists, its parts are matched by key: changed texts are replaced, missing parts are deleted. The embedding of a part covers only as much text as the default embedder reads.
Example: SELECT * FROM document_insert_parts(''api'', ''[{"key": "GET /users", "content": "Lists users."}]'');
Errors: 22004, 22023 (invalid element or repeated key), 42710 (memories that are not documents have this source), 54000 (text over 262144 bytes, key or source over 1024).';

create function _mindful.part_key(key text, number bigint) returns text
language sql stable parallel safe security invoker
begin atomic
    select case
        when pg_catalog.octet_length(key) > 1024
            then _mindful.raise('54000', pg_catalog.format('key of element %s has %s bytes, more than 1024', number,
                pg_catalog.octet_length(key)), 'Give it a shorter one.')::text
        else _mindful.text_argument(pg_catalog.format('key of element %s', number), key)
    end;
end;
comment on function _mindful.part_key(text, bigint) is 'Returns a key that a part of a document can have, or raises 22004, 22023 or 54000.';

create function document_delete(source text) returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    chunks bigint[] := array(
        select m.id from mindful.memory m
        where m.tenant = (select _mindful.tenant()) and m.source = document_delete.source and m.kind = 'document'
            and m.metadata ? 'chunk'
    );
begin
    perform _mindful.writable();
    if chunks = '{}' then
        perform _mindful.raise('42704', format('there is no document %s', coalesce(quote_literal(source), 'null')),
            'Your documents are listed in mindful.document.');
    end if;
    perform _mindful.forget(_mindful.forget_reach(chunks), '{}', 'document', false);
    return cardinality(chunks);
end
$$;
comment on function document_delete(text) is
'Deletes a document with the memories drawn from it alone, and returns the number of its chunks.
It writes a receipt, but does not search for mentions; memory_forget(filter => ''{"source": "..."}'') does. Error 42704: the tenant has no such document.';

create view document with (security_invoker = true) as
select m.tenant, m.source, min(m.metadata ->> 'title') as title, count(*) as chunks,
    sum(octet_length(m.content)) as bytes, min(m.created_at) as created_at, max(m.created_at) as updated_at,
    min(m.metadata ->> 'fingerprint') as fingerprint
from mindful.memory m
where m.kind = 'document' and m.metadata ? 'chunk'
group by m.tenant, m.source;
comment on view document is
'The caller''s documents. Bytes count what chunks share twice; updated_at is when its newest chunk came; fingerprint is what metadata named so at the last insert, by which a reader of files knows which have changed.';

create function document_list(source text default null)
returns table (source text, title text, chunks bigint, bytes bigint, created_at timestamptz, updated_at timestamptz, fingerprint text)
language sql stable parallel safe security invoker
begin atomic
    select d.source, d.title, d.chunks, d.bytes, d.created_at, d.updated_at, d.fingerprint
    from mindful.document d
    where d.tenant = (select _mindful.tenant()) and (document_list.source is null or d.source = document_list.source)
    order by d.source;
end;
comment on function document_list(text) is
'Returns the tenant''s documents by source (NULL: all), as in the view document.';
-- A row refers to a memory by a foreign key with ON DELETE CASCADE or SET NULL. So forgetting reaches it without further code:
-- counts and checks come from the catalog.

create table forget_receipt (
    tenant text not null default _mindful.tenant(),
    id bigint generated always as identity,
    scope text not null check (scope in ('ids', 'session', 'filter', 'everything', 'document', 'prune', 'retention')),
    forgotten_by text not null default current_user,
    forgotten_at timestamptz not null default now(),
    memory_ids bigint[] not null,
    salt text not null default gen_random_uuid()::text,
    hashes text[] not null,
    counts jsonb not null,
    mentions jsonb not null,
    settings jsonb,
    adapters jsonb not null default '[]',
    primary key (tenant, id)
);
comment on table forget_receipt is
'Receipts of deletions: when, by whom, ids, counts and hashes, without content.';
comment on column forget_receipt.hashes is
'Hashes of the deleted texts by forget_hash with the salt; empty after pruning.';
comment on column forget_receipt.counts is
'The counts that memory_forget returned.';
comment on column forget_receipt.adapters is 'Adapters that were trained on forgotten texts: name, action (withdrawn: it serves no tenant any more; kept, by the setting adapter_on_forget) and the file on the server, which an administrator has to delete.';
comment on column forget_receipt.mentions is 'Rows that repeat forgotten words and were kept: relation, column, key, and the hash of the text.';
comment on column forget_receipt.settings is 'Of scope retention: the settings that asked for it, each with key, value, scope (global: for all tenants) and changed_by.';
alter table forget_receipt enable row level security, force row level security;
create policy own on forget_receipt using (tenant = (select _mindful.tenant())) with check (tenant = (select _mindful.tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.forget_receipt', '');
select pg_catalog.pg_extension_config_dump('mindful.forget_receipt_id_seq', '');

create index memory_content_hash on memory (tenant, content_hash) where content_hash is not null;
create index generation_memory_ids on generation using gin (memory_ids);
create index generation_parent on generation (tenant, parent_id) where parent_id is not null;

create function _mindful.generation_forget() returns trigger
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    update mindful.generation g
    set memory_ids = array(
            select s.id from unnest(g.memory_ids) with ordinality s (id, position)
            where s.id <> all (o.ids) order by s.position
        ),
        prompt_sha256 = ''
    from (select tenant, array_agg(id) as ids from old_rows group by tenant) o
    where g.tenant = o.tenant and g.memory_ids && o.ids;
    return null;
end
$$;
comment on function _mindful.generation_forget() is
'Takes deleted memories out of the record of what generators were shown, and the prompt''s hash with them, which could confirm a guess. With the owner''s rights, as users do not change records.';
create trigger generation_deleted after delete on memory referencing old table as old_rows
    for each statement when (pg_catalog.current_setting('row_security') = 'on' or not _mindful.is_restore()) execute function _mindful.generation_forget();

create function _mindful.memory_ids(metadata jsonb) returns table (id text, value jsonb, number bigint)
language sql immutable parallel safe security invoker rows 3
begin atomic
    select s.value #>> '{}', s.value, s.number
    from pg_catalog.jsonb_array_elements(case pg_catalog.jsonb_typeof(metadata -> 'memory_ids')
        when 'array' then metadata -> 'memory_ids' else '[]' end) with ordinality s (value, number);
end;
comment on function _mindful.memory_ids(jsonb) is 'The memories that a reply was shown, as its metadata say.';

create function _mindful.forget_paths() returns table (relation text, action text, condition text, depth integer, column_name text)
language sql stable parallel safe security invoker
begin atomic
    with recursive reached as (
        select b.relation, b.action, b.condition collate "C" as condition, array[b.relation] as path, null::name as column_name
        from (values
            ('mindful.memory'::pg_catalog.regclass, 'deleted', 't.id = any ($2)'),
            ('mindful.session'::pg_catalog.regclass, 'deleted', 't.session_id = any ($3)'),
            ('mindful.generation'::pg_catalog.regclass, 'changed', 't.memory_ids && $2'),
            -- Triggers delete these rows: a record is older than its reply, and a sample has several memories.
            ('mindful.generation'::pg_catalog.regclass, 'deleted', '$4 and t.id in (select t.generation_id from mindful.decision t where t.tenant = $1 and (t.message_id = any ($2) or t.replaced_by_id = any ($2)))'),
            (pg_catalog.to_regclass('mindful.training_sample'), 'deleted', 't.id in (select t.sample_id from mindful.training_sample_memory t where t.tenant = $1 and t.memory_id = any ($2))')
        ) b (relation, action, condition)
        union all
        select f.conrelid::pg_catalog.regclass, case f.confdeltype when 'n' then 'changed' else 'deleted' end,
            pg_catalog.format('t.%I in (select t.%I from %s t where t.tenant = $1 and %s)',
                c.attname, p.attname, r.relation::pg_catalog.text, r.condition),
            r.path || f.conrelid::pg_catalog.regclass, c.attname
        from reached r
        join pg_catalog.pg_constraint f on f.confrelid = r.relation and f.contype = 'f' and f.confdeltype = any ('{c,n}'::"char"[])
        -- Keys are (tenant, what is referred to).
        join pg_catalog.pg_attribute c on c.attrelid = f.conrelid and c.attnum = f.conkey[2]
        join pg_catalog.pg_attribute p on p.attrelid = f.confrelid and p.attnum = f.confkey[2]
        where r.action = 'deleted' and (f.conrelid::pg_catalog.regclass <> all (r.path) or f.confdeltype = 'n')
    )
    select c.relname, r.action, r.condition, pg_catalog.cardinality(r.path), r.column_name
    from reached r
    join pg_catalog.pg_class c on c.oid = r.relation;
end;
comment on function _mindful.forget_paths() is
'Which rows are deleted or changed with memories ($2, of the tenant $1) and sessions ($3), and with answers that are forgotten, not pruned ($4), as conditions on a row t; and, where a foreign key leads there, over how many tables and by which column.';

create function _mindful.forget_replicated() returns trigger
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    ids bigint[] := '{}';
    sessions uuid[] := '{}';
    reached record;
begin
    if tg_table_name = 'memory' then
        ids := array[old.id];
        delete from mindful.memory_term t
        using _mindful.terms(old.content, old.language) d
        where t.tenant = old.tenant and t.lexeme = d.lexeme and t.id = old.id;
    else
        sessions := array[old.session_id];
    end if;
    for reached in
        select format(case p.action when 'deleted' then 'delete from mindful.%1$I t where t.tenant = $1 and %2$s'
            else 'update mindful.%1$I t set %3$I = null where t.tenant = $1 and %2$s' end,
            p.relation, p.condition, p.column_name) as statement
        from _mindful.forget_paths() p
        where (p.depth > 1 or p.relation = 'training_sample')
            and p.condition like case tg_table_name when 'memory' then '%$2%' else '%$3%' end
        order by p.depth desc, p.action
    loop
        execute reached.statement using old.tenant, ids, sessions, true;
    end loop;
    return old;
end
$$;
comment on function _mindful.forget_replicated() is
'Deletes on a subscriber what foreign keys would delete with a memory or session: a subscription''s worker fires neither them nor triggers by statement, and vectors, queue and posting rows that were computed there would stay.';
create trigger forget_replicated before delete on memory for each row execute function _mindful.forget_replicated();
create trigger forget_replicated before delete on session for each row execute function _mindful.forget_replicated();
alter table memory enable replica trigger forget_replicated;
alter table session enable replica trigger forget_replicated;

create type forget_count as (receipt_id bigint, relation text, action text, rows bigint);
comment on type forget_count is
'Number of rows of a table by action: deleted, changed, kept, mention, withdrawn.';

create function _mindful.forget_counts(ids bigint[], sessions uuid[], wished boolean) returns setof forget_count
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    reached record;
    counted bigint;
begin
    for reached in
        with path as (
            select p.relation, p.action, string_agg(p.condition, ' or ') as condition
            from _mindful.forget_paths() p
            where (cardinality(sessions) > 0 or p.condition not like '%$3%')
                and (p.relation, p.action) <> ('memory', 'changed')  -- _forget_delete counts these.
            group by p.relation, p.action
        )
        select c.relation, c.action, c.condition, coalesce(d.condition, 'false') as deleted,
            c.relation in ('memory', 'session') as is_root
        from path c
        left join path d on c.action = 'changed' and d.relation = c.relation and d.action = 'deleted'
    loop
        execute format('select count(*) from mindful.%I t where t.tenant = $1 and (%s) and (%s) is not true',
            reached.relation, reached.condition, reached.deleted)
        into counted using _mindful.tenant(), ids, sessions, wished;
        if counted > 0 or reached.is_root then
            return query select null::bigint, reached.relation, reached.action, counted;
        end if;
    end loop;
    return query
    select null::bigint, 'memory_term', 'deleted', count(*)
    from mindful.memory m, _mindful.terms(m.content, m.language)
    where m.tenant = (select _mindful.tenant()) and m.id = any (ids)
    union all
    select null::bigint, m.source, 'kept', count(*)
    from mindful.memory m
    join mindful.attachment a on a.tenant = m.tenant and a.source = m.source
    where m.tenant = (select _mindful.tenant()) and m.id = any (ids)
    group by m.source;
end
$$;
comment on function _mindful.forget_counts(bigint[], uuid[], boolean) is
'Returns the rows by table that deleting these memories and sessions deletes or changes, and the attached tables that still have their rows.';

create function _mindful.forget_recaps(ids bigint[]) returns setof bigint
language sql stable parallel safe security invoker
begin atomic
    select s.id
    from mindful.memory m
    join mindful.memory s on s.tenant = m.tenant and s.session_id = m.session_id and s.kind = 'summary' and s.turn is null
        and pg_catalog.to_jsonb(m.turn) between s.metadata -> 'from_turn' and s.metadata -> 'to_turn'
    where m.tenant = (select _mindful.tenant()) and m.id = any (ids) and m.turn > 0;
end;
comment on function _mindful.forget_recaps(bigint[]) is
'Returns the summaries of sessions that cover one of these messages.';

create function _mindful.forget_reach(ids bigint[], versions boolean default false, copies boolean default false) returns bigint[]
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    frontier bigint[] := ids;
begin
    while cardinality(frontier) > 0 loop
        -- The lock keeps others from adding evidence from them.
        perform from mindful.memory m
        where m.tenant = (select _mindful.tenant()) and m.id = any (frontier)
        order by m.id for update;
        frontier := array(
            select n.id
            from (
                select v.id
                from (
                    select m.superseded_by as id from mindful.memory m
                    where m.tenant = (select _mindful.tenant()) and m.id = any (frontier) and m.superseded_by is not null
                    union
                    select m.id from mindful.memory m
                    where m.tenant = (select _mindful.tenant()) and m.superseded_by = any (frontier)
                ) v
                where versions and not exists (
                    select from mindful.memory_evidence e where e.tenant = (select _mindful.tenant()) and e.id = v.id
                )
                union
                select d.id
                from mindful.memory m
                join mindful.memory d on d.tenant = (select _mindful.tenant()) and d.content_hash = m.content_hash
                    and d.kind <> 'message'
                where copies and m.tenant = (select _mindful.tenant()) and m.id = any (frontier)
                union
                select _mindful.forget_recaps(frontier)
                union
                select o.id
                from (
                    select distinct e.id from mindful.memory_evidence e
                    where e.tenant = (select _mindful.tenant()) and e.source_id = any (frontier)
                ) e
                join mindful.memory d on d.tenant = (select _mindful.tenant()) and d.id = e.id and _mindful.memory_is_drawn(d)
                join mindful.memory_evidence o on o.tenant = (select _mindful.tenant()) and o.id = e.id
                left join unnest(ids) g (id) on g.id = o.source_id
                group by o.id
                having bool_and(g.id is not null and not d.stated) or bool_or(d.kind = 'summary')
            ) n
            where not exists (select from unnest(ids) g (id) where g.id = n.id)
        );
        ids := ids || frontier;
    end loop;
    return ids;
end
$$;
comment on function _mindful.forget_reach(bigint[], boolean, boolean) is
'Memories, and those that go with them: the summaries that cover them, and what was drawn from nothing else; with versions, their other versions that have no evidence of their own; with copies, their exact duplicates (messages excepted). All of them are locked.';

create function _mindful.memory_is_drawn(m memory) returns boolean
language sql stable parallel safe security invoker
begin atomic
    select m.kind <> 'message' and not (m.kind = 'document' and m.metadata ? 'chunk') and not exists (
        select from mindful.attachment a where a.tenant = (select _mindful.tenant()) and a.source = m.source
    );
end;
comment on function _mindful.memory_is_drawn(memory) is
'Returns whether a memory depends on its evidence: it is not a message, a part of a document or a row of an attached table.';

create function _mindful.forget_heirs(ids bigint[], wished boolean) returns setof bigint
language sql volatile parallel unsafe security invoker
begin atomic
    with recursive gone as materialized (
        select i as id from pg_catalog.unnest(ids) i
    ),
    heir as (
        select m.id, m.superseded_by as heir from mindful.memory m
        where m.tenant = (select _mindful.tenant()) and m.superseded_by = any (ids)
            and not exists (select from gone g where g.id = m.id)
        union
        select h.id, m.superseded_by
        from heir h
        join gone g on g.id = h.heir
        join mindful.memory m on m.tenant = (select _mindful.tenant()) and m.id = h.heir
    )
    update mindful.memory m
    set superseded_by = h.heir,
        valid_to = case when h.heir is null and wished then m.valid_to_given else m.valid_to end,
        valid_to_given = case when h.heir is not null then m.valid_to_given end
    from heir h
    where m.tenant = (select _mindful.tenant()) and m.id = h.id and not exists (select from gone g where g.id = h.heir)
    returning m.id;
end;
comment on function _mindful.forget_heirs(bigint[], boolean) is
'Corrects memories that deleted memories had superseded: they point at the next later version that stays. If none stays and wished is true, they are valid again as before. Returns their ids.';

create function _mindful.forget_replies(ids bigint[]) returns table (id bigint, session_id uuid)
language sql volatile parallel unsafe security invoker
begin atomic
    with gone as materialized (
        select i::text as id from pg_catalog.unnest(ids) i
    ),
    reply as materialized (
        select m.id, m.metadata from mindful.memory m
        where m.tenant = (select _mindful.tenant()) and m.role = any (array['assistant', 'clarification'])
    ),
    showed as (
        select r.id, coalesce(pg_catalog.jsonb_agg(s.value order by s.number) filter (where g.id is null), '[]') as memory_ids
        from reply r
        cross join _mindful.memory_ids(r.metadata) s
        left join gone g on g.id = s.id
        group by r.id
        having pg_catalog.count(g.id) > 0
    ),
    answered as (
        select r.id from reply r join gone g on g.id = r.metadata ->> 'reply_to'
    ),
    told as (
        select id, pg_catalog.jsonb_build_object('memory_ids', w.memory_ids) as memory_ids, a.id is not null as is_answer
        from showed w full join answered a using (id)
    )
    update mindful.memory m
    set metadata = (case when t.is_answer then m.metadata - 'reply_to' else m.metadata end)
        || case when t.memory_ids -> 'memory_ids' = 'null' then '{}' else t.memory_ids end
    from told t
    where m.tenant = (select _mindful.tenant()) and m.id = t.id
    returning m.id, m.session_id;
end;
comment on function _mindful.forget_replies(bigint[]) is
'Removes deleted memories from the metadata of replies, where memory_ids and reply_to name them, and returns those replies.';

create function _mindful.forget_delete(ids bigint[], sessions uuid[], wished boolean) returns setof forget_count
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    showed uuid[] := array(
        select distinct m.session_id from mindful.memory m
        where m.tenant = (select _mindful.tenant()) and m.id = any (ids) and m.session_id is not null
    );
    believed jsonb := (
        select jsonb_object_agg(m.id, m.confidence)
        from mindful.memory_evidence e
        join mindful.memory m on m.tenant = (select _mindful.tenant()) and m.id = e.id
        where e.tenant = (select _mindful.tenant()) and e.source_id = any (ids)
    );
    counted bigint;
    changed bigint[];
    replies uuid[];
begin
    update mindful.session s set title = null
    where s.tenant = (select _mindful.tenant()) and s.session_id = any (showed) and s.session_id <> all (sessions)
        and exists (
            select from mindful.memory m
            where m.tenant = (select _mindful.tenant()) and m.id = any (ids) and m.session_id = s.session_id
                and starts_with(m.content, s.title)
        );
    get diagnostics counted = row_count;
    return query select null::bigint, 'session', 'changed', counted;
    changed := array(select _mindful.forget_heirs(ids, wished));
    for n in 1 .. cardinality(ids) by 10000 loop
        perform _mindful.memory_delete(ids[n:n + 9999]);
    end loop;
    perform _mindful.delete('session', jsonb_agg(jsonb_build_object('session_id', s))) from unnest(sessions) s;
    select changed || array_agg(r.id), array_agg(distinct r.session_id) into changed, replies from _mindful.forget_replies(ids) r;
    return query
    select null::bigint, 'memory', 'changed', count(*)
    from (
        select unnest(changed)
        union
        select m.id from jsonb_each(believed) b
        join mindful.memory m on m.tenant = (select _mindful.tenant()) and m.id = b.key::bigint
        where m.confidence is distinct from (b.value #>> '{}')::real
    ) c;
    return query
    select null::bigint, 'kv_state', 'deleted', _mindful.delete('kv_state', jsonb_agg(to_jsonb(k)))
    from (
        select k.thread_id, k.model, k.first from mindful.kv_state k
        where k.tenant = (select _mindful.tenant()) and (k.list_id is not null or k.session_id = any (showed || replies))
    ) k;
end
$$;
comment on function _mindful.forget_delete(bigint[], uuid[], boolean) is
'Deletes memories and sessions, takes them out of the records of replies that were shown them and out of titles, and drops the kept states of conversations that showed them, and those of lists of messages, as nothing records what they hold. Returns what the catalog does not tell.';

create function _mindful.forget(ids bigint[], sessions uuid[], scope text, dry_run boolean) returns setof forget_count
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_column
declare
    wished boolean := scope not in ('prune', 'retention');
    is_searched boolean := wished and scope <> 'document';
    salt text := gen_random_uuid();
    language text := _mindful.recall_language();
    hashes text[] := '{}';
    runs text[] := '{}';
    copies text[] := '{}';
    mentions jsonb := '[]';
    adapters jsonb;
    counts jsonb;
    receipt_id bigint;
begin
    if not wished then
        ids := ids || array(select _mindful.forget_recaps(ids) except select unnest(ids));
    end if;
    if is_searched then
        select coalesce(array_agg(distinct _mindful.forget_hash(salt, m.content)), '{}'),
            coalesce(array_agg(distinct m.content_hash), '{}')
        into hashes, copies
        from mindful.memory m where m.tenant = (select _mindful.tenant()) and m.id = any (forget.ids);
        runs := array(
            select distinct r.run
            from mindful.memory m, _mindful.runs(m.content, language) r
            where m.tenant = (select _mindful.tenant()) and m.id = any (forget.ids) and r.is_longest
        );
    end if;
    perform set_config('mindful.pruning', case when wished then '' else 'on' end, true);
    counts := (select coalesce(jsonb_agg(to_jsonb(c) - 'receipt_id'), '[]') from _mindful.forget_counts(ids, sessions, wished) c)
        || (select coalesce(jsonb_agg(to_jsonb(c) - 'receipt_id'), '[]') from _mindful.forget_delete(ids, sessions, wished) c where c.rows > 0);
    perform set_config('mindful.pruning', '', true);
    adapters := _mindful.forget_adapters(ids);
    counts := counts || (
        select coalesce(jsonb_agg(to_jsonb(c)), '[]')
        from (
            select 'model' as relation, a ->> 'action' as action, count(*) as rows from jsonb_array_elements(adapters) a group by 2
        ) c
    );
    if is_searched then
        mentions := _mindful.forget_mentions(runs, copies, salt, language);
        counts := counts || (
            select coalesce(jsonb_agg(to_jsonb(c)), '[]')
            from (
                select m ->> 'relation' as relation, 'mention' as action, count(*) as rows
                from jsonb_array_elements(mentions) m group by 1
            ) c
        );
    end if;
    counts := (
        select jsonb_agg(to_jsonb(c))
        from (
            select c.relation, c.action, sum(c.rows) as rows
            from jsonb_to_recordset(counts) c (relation text, action text, rows bigint)
            group by c.relation, c.action
        ) c
    );
    if dry_run then
        raise exception using errcode = 'MF001', message = 'mindful: a dry run ends here', detail = counts::text;
    end if;
    insert into mindful.forget_receipt (scope, memory_ids, salt, hashes, counts, mentions, adapters)
    values (scope, forget.ids, salt, hashes, counts, mentions, adapters)
    returning id into receipt_id;
    return query select receipt_id, c.relation, c.action, c.rows
        from jsonb_to_recordset(counts) c (relation text, action text, rows bigint);
exception when sqlstate 'MF001' then
    get stacked diagnostics counts = pg_exception_detail;
    return query select null::bigint, c.relation, c.action, c.rows
        from jsonb_to_recordset(counts) c (relation text, action text, rows bigint);
end
$$;
comment on function _mindful.forget(bigint[], uuid[], text, boolean) is
'Deletes memories and sessions with all rows that refer to them, and writes a receipt. A dry run executes the deletion and rolls it back, so the counts are exact.';

create function _mindful.forget_filter(filter jsonb) returns bigint[]
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    since timestamptz := _mindful.time_argument('since of filter', filter ->> 'since');
    before timestamptz := _mindful.time_argument('before of filter', filter ->> 'before');
    -- Within the query the planner would evaluate the error of a generic plan, whose arguments it does not know.
    contained jsonb := _mindful.metadata(filter -> 'metadata');
begin
    perform from _mindful.array_elements('filter', jsonb_build_array(filter),
        '{kind,role,source,content,metadata,since,before}');
    if filter = '{}' or filter -> 'metadata' = '{}' then
        perform _mindful.raise('22023', 'filter or its metadata are empty', 'Use everything => true to forget all.');
    elsif filter ? 'content' then
        perform _mindful.text_argument('content of filter', filter ->> 'content');
    end if;
    if filter ? 'kind' then
        perform _mindful.kinds_argument(array[filter ->> 'kind']);
    end if;
    if filter ? 'role' then
        perform _mindful.message_role('role of filter', filter ->> 'role');
    end if;
    return array(
        select m.id from mindful.memory m
        where m.tenant = (select _mindful.tenant())
            and (filter -> 'kind' is null or m.kind = filter ->> 'kind')
            and (filter -> 'role' is null or m.role = filter ->> 'role')
            and (filter -> 'source' is null or m.source = filter ->> 'source')
            and (filter -> 'content' is null or strpos(lower(m.content), lower(filter ->> 'content')) > 0)
            and (filter -> 'metadata' is null or m.metadata @> contained)
            and (filter -> 'since' is null or m.created_at >= since)
            and (filter -> 'before' is null or m.created_at < before)
    );
end
$$;
comment on function _mindful.forget_filter(jsonb) is
'Returns the ids of the tenants memories that pass a filter of memory_forget.';

create function memory_forget(
    ids bigint[] default null,
    session_id uuid default null,
    filter jsonb default null,
    everything boolean default false,
    dry_run boolean default false,
    copies boolean default false
) returns setof forget_count
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_column
declare
    chosen bigint[];
    sessions uuid[] := '{}';
    scope text;
begin
    perform _mindful.writable();
    if num_nonnulls(memory_forget.ids, memory_forget.session_id, memory_forget.filter, nullif(everything, false)) <> 1 then
        perform _mindful.raise('22023', 'nothing, or more than one thing, is named to be forgotten',
            'Give ids, a session_id, a filter, or everything => true.');
    elsif memory_forget.ids is not null then
        scope := 'ids';
        chosen := array(select distinct _mindful.memory_argument('ids', i) from unnest(memory_forget.ids) i);
    elsif memory_forget.session_id is not null then
        scope := 'session';
        sessions := array[_mindful.session_lock(memory_forget.session_id)];
        chosen := array(
            select m.id from mindful.memory m
            where m.tenant = (select _mindful.tenant()) and m.session_id = memory_forget.session_id
        );
    elsif memory_forget.filter is not null then
        scope := 'filter';
        chosen := _mindful.forget_filter(memory_forget.filter);
    else
        scope := 'everything';
        sessions := array(select s.session_id from mindful.session s where s.tenant = (select _mindful.tenant()));
        chosen := array(select m.id from mindful.memory m where m.tenant = (select _mindful.tenant()));
    end if;
    return query select * from _mindful.forget(
        _mindful.forget_reach(chosen, scope = 'ids', coalesce(copies, false)), sessions, scope, coalesce(dry_run, false));
end
$$;
comment on function memory_forget(bigint[], uuid, jsonb, boolean, boolean, boolean) is
'Deletes memories and all rows that refer to them, and returns the number of rows by table and action.
Pass exactly one of: ids (their other versions without evidence of their own go too), session_id (the session and all its messages), filter, everything => true. filter is an object of kind, role, source, content (part of the text), metadata (contained), since and before (created_at); all conditions must hold.
Deleted too: summaries that cover them, memories drawn from them alone, embeddings, links, evidence, jobs, reviews, decisions and records of answers. A memory with other evidence, or stored without evidence as well, stays without their evidence. An exact duplicate stays; with copies => true it is deleted, messages excepted. A memory that they had superseded is valid again. Their ids are removed from the replies that were shown them, titles taken from them are cleared, and stored states of their conversations are deleted.
Actions: deleted; changed; kept (an attached table still has the row); mention (a row that repeats their words and stays, see memory_forget_check); withdrawn (an adapter trained on them; the receipt names its file, which an administrator must delete; see the setting adapter_on_forget). forget_receipt keeps the counts. With dry_run true, the deletion is executed and rolled back, so the counts are exact.
Backups, the write-ahead log, pages before VACUUM and the memory of running connections are not reached. All or nothing is deleted.
Example: SELECT * FROM memory_forget(filter => ''{"content": "safe", "kind": "fact"}'', dry_run => true);
Errors: 22004, 22008 (a time outside the years 1 to 9999), 22023 (no or several choices, or an invalid filter), 42704 (the tenant has no such memory or session).';
-- Traces of deleted memories.

create function _mindful.forget_hash(salt text, content text) returns text
language sql immutable parallel safe security invoker
begin atomic
    select pg_catalog.encode(
        pg_catalog.sha256(pg_catalog.convert_to(salt || pg_catalog.lower(_mindful.squeeze(content)), 'UTF8')), 'hex');
end;
comment on function _mindful.forget_hash(text, text) is 'SHA-256 of a salt and a text, whose case and white space do not matter.';

create function _mindful.runs(content text, language text) returns table (run text, is_longest boolean)
language sql stable parallel safe security invoker rows 50
begin atomic
    with word as (
        select t.lexeme, pg_catalog.row_number() over (order by p.position, t.lexeme) as n, pg_catalog.count(*) over () as words
        from pg_catalog.unnest(pg_catalog.to_tsvector(_mindful.language(language), content)) t,
            pg_catalog.unnest(t.positions) p (position)
    ),
    start as (
        select w.n, w.words,
            pg_catalog.string_agg(w.lexeme, ' ') over (order by w.n rows between current row and 1 following) as two,
            pg_catalog.string_agg(w.lexeme, ' ') over (order by w.n rows between current row and 2 following) as three,
            pg_catalog.string_agg(w.lexeme, ' ') over (order by w.n rows between current row and 3 following) as four
        from word w
    )
    select distinct r.run, r.length = least(s.words, 4)
    from start s, lateral (values (2, s.two), (3, s.three), (4, s.four)) r (length, run)
    where s.n + r.length - 1 <= s.words;
end;
comment on function _mindful.runs(text, text) is
'Two, three and four lexemes of a text that follow one another; is_longest are those of four, or of as many as there are. A text that holds a longest run of another repeats its words.';

create function _mindful.tenant_columns() returns table (relation oid, name text, column_name text, type oid, number smallint, key text)
language sql stable parallel safe security invoker
begin atomic
    select c.oid, c.relname, a.attname, a.atttypid, a.attnum,
        (
            select pg_catalog.format('pg_catalog.jsonb_build_object(%s)', pg_catalog.string_agg(
                pg_catalog.format('%L, t.%I', k.attname, k.attname), ', ' order by k.attnum))
            from pg_catalog.pg_index i
            join pg_catalog.pg_attribute k on k.attrelid = c.oid and k.attname <> 'tenant'
            where i.indrelid = c.oid and i.indisprimary
                and k.attnum = any ((i.indkey::smallint[])[0:i.indnkeyatts - 1])
        )
    from pg_catalog.pg_class c
    join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and a.attname <> 'tenant'
    where c.relnamespace = 'mindful'::pg_catalog.regnamespace and c.relkind = 'r'
        and c.relname <> all (array['forget_receipt', 'api_key', 'api_key_use'])  -- these hold nothing of a memory
        and exists (
            select from pg_catalog.pg_attribute t where t.attrelid = c.oid and t.attname = 'tenant' and not t.attisdropped
        );
end;
comment on function _mindful.tenant_columns() is
'The columns of all tables that hold tenants'' rows, and the expression that gives the key of a row t.';

create function _mindful.text_columns() returns table (relation text, column_name text, key text)
language sql stable parallel safe security invoker
begin atomic
    select c.name, c.column_name, c.key
    from _mindful.tenant_columns() c
    where c.type = any (array['text', 'text[]', 'jsonb']::pg_catalog.regtype[])
        and c.name <> 'memory_term' and c.column_name <> 'content_hash';
end;
comment on function _mindful.text_columns() is
'Returns the columns that can contain text of memories.';

create function _mindful.reference_columns() returns table (relation text, column_name text, key text, condition text)
language sql stable parallel safe security invoker
begin atomic
    select c.name, c.column_name, c.key,
        case c.type
            when 'bigint[]'::pg_catalog.regtype then pg_catalog.format('t.%I && $2', c.column_name)
            when 'jsonb'::pg_catalog.regtype then
                't.metadata ->> ''reply_to'' = any ($3) or exists (select from _mindful.memory_ids(t.metadata) s where s.id = any ($3))'
            else pg_catalog.format('t.%I = any ($2)', c.column_name)
        end
    from _mindful.tenant_columns() c
    where c.name = 'memory' and c.column_name in ('id', 'metadata')
        or c.name = 'memory_term' and c.column_name = 'id'
        or c.type = 'bigint[]'::pg_catalog.regtype and c.column_name like '%memory\_ids'
        or exists (
            select from pg_catalog.pg_constraint f
            where f.conrelid = c.relation and f.contype = 'f' and f.confrelid = 'mindful.memory'::pg_catalog.regclass
                and c.number = any (f.conkey)
        );
end;
comment on function _mindful.reference_columns() is
'The columns that name memories, and the condition that a row t names one of some ids, as bigint[] ($2) and as text[] ($3).';

create type forget_finding as (relation text, column_name text, key jsonb, finding text);
comment on type forget_finding is
'A row with a trace of a deleted memory.';

create function _mindful.memory_holding(runs text[]) returns bigint[]
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
set enable_hashjoin = off
set enable_mergejoin = off
as $$
begin
    return array(
        with word as materialized (
            select distinct r.run, w.lexeme from unnest(runs) r (run), string_to_table(r.run, ' ') w (lexeme)
        ),
        holder as materialized (
            select jsonb_object_agg(w.lexeme, t.holders) as holders
            from (select distinct lexeme from word) w
            cross join lateral (
                select count(*) as holders
                from (
                    select from mindful.memory_term t
                    where t.tenant = (select _mindful.tenant()) and t.lexeme = w.lexeme limit 1000
                ) t
            ) t
        ),
        run as materialized (
            select array_agg(w.lexeme order by w.holders, w.lexeme) as lexemes
            from (select w.run, w.lexeme, ((select h.holders from holder h) -> w.lexeme)::integer as holders from word w) w
            group by w.run
            having min(w.holders) > 0
        )
        select distinct p.id
        from run r
        cross join lateral (
            select t.id from mindful.memory_term t
            where t.tenant = (select _mindful.tenant()) and t.lexeme = r.lexemes[1]
            offset 0
        ) p
        where not exists (
            select from unnest(r.lexemes[2:]) l (lexeme)
            where not exists (
                select from mindful.memory_term t
                where t.tenant = (select _mindful.tenant()) and t.lexeme = l.lexeme and t.id = p.id
            )
        )
    );
end
$$;
comment on function _mindful.memory_holding(text[]) is
'The memories that hold all lexemes of one of the runs, wherever they stand: by look-ups in memory_term, the rarest lexeme first.';

create function _mindful.forget_mentions(runs text[], copies text[], salt text, language text) returns jsonb
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    place record;
    candidates bigint[];
    words text[];
    mentions jsonb;
    found_rows jsonb;
begin
    select coalesce(jsonb_agg(jsonb_build_object('relation', 'memory', 'column', 'content', 'key', jsonb_build_object('id', m.id),
        'hash', _mindful.forget_hash(salt, m.content))), '[]')
    into mentions
    from mindful.memory m
    where m.tenant = (select _mindful.tenant()) and m.content_hash = any (copies);
    if cardinality(runs) = 0 then
        return mentions;
    end if;
    -- memory_term has the lexemes of the present language only.
    candidates := _mindful.memory_holding(runs) || array(
        select m.id from mindful.memory m where m.tenant = (select _mindful.tenant()) and m.language <> forget_mentions.language
    );
    words := array(select distinct w.lexeme from unnest(runs) r (run), string_to_table(r.run, ' ') w (lexeme));
    for place in select c.relation, c.column_name, c.key from _mindful.text_columns() c loop
        execute format($query$
            select coalesce(jsonb_agg(jsonb_build_object('relation', %1$L, 'column', %2$L, 'key', %3$s,
                'hash', _mindful.forget_hash($3, t.%2$I::text))), '[]')
            from mindful.%1$I t
            where t.tenant = $1 and %4$s t.%2$I::text ~ '[^[:alnum:]]'  -- two words at least, and one of those
                and exists (select from unnest(to_tsvector($7, t.%2$I::text)) l where l.lexeme = any ($5))
                and exists (select from _mindful.runs(t.%2$I::text, $8) r where r.run = any ($2))
            $query$, place.relation, place.column_name, place.key,
            case when (place.relation, place.column_name) = ('memory', 'content') then 't.id = any ($4) and t.content_hash <> all ($6) and ' else '' end)
        into found_rows using _mindful.tenant(), runs, salt, candidates, words, copies, _mindful.language(language), language;
        mentions := mentions || found_rows;
    end loop;
    return mentions;
end
$$;
comment on function _mindful.forget_mentions(text[], text[], text, text) is
'The memories whose text has one of some hashes, and the rows, in any table, whose words hold one of the runs, with a salted hash of the text.';

create function memory_forget_check(receipt_id bigint default null, ids bigint[] default null) returns setof forget_finding
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    receipt mindful.forget_receipt;
    place record;
    mention jsonb;
begin
    if num_nonnulls(receipt_id, ids) <> 1 then
        perform _mindful.raise('22023', 'memory_forget_check needs exactly one of receipt_id and ids', 'Pass one of them.');
    elsif ids is null then
        select r.* into receipt from mindful.forget_receipt r
        where r.tenant = (select _mindful.tenant()) and r.id = receipt_id;
        if not found then
            perform _mindful.raise('42704', format('there is no receipt %s', receipt_id), 'The receipts of your tenant are in mindful.forget_receipt.');
        end if;
        ids := receipt.memory_ids;
    end if;
    for place in select c.relation, c.column_name, c.key, c.condition from _mindful.reference_columns() c loop
        return query execute format($query$
            select %1$L, %2$L, %3$s, 'reference' from mindful.%1$I t where t.tenant = $1 and (%4$s)
            $query$, place.relation, place.column_name, place.key, place.condition)
        using _mindful.tenant(), ids, ids::text[];
    end loop;
    for place in select c.relation, c.column_name, c.key from _mindful.text_columns() c where receipt.hashes <> '{}' loop
        return query execute format($query$
            select %1$L, %2$L, %3$s, 'copy' from mindful.%1$I t
            where t.tenant = $1 and _mindful.forget_hash($2, t.%2$I::text) = any ($3)
            $query$, place.relation, place.column_name, place.key)
        using _mindful.tenant(), receipt.salt, receipt.hashes;
    end loop;
    for place in
        select c.relation, c.column_name, c.key, jsonb_agg(m) as mentions
        from jsonb_array_elements(receipt.mentions) m
        join _mindful.text_columns() c on c.relation = m ->> 'relation' and c.column_name = m ->> 'column'
        group by c.relation, c.column_name, c.key
    loop
        return query execute format($query$
            select %1$L, %2$L, %3$s, 'mention'
            from mindful.%1$I t
            join jsonb_array_elements($2) m on m -> 'key' = %3$s
            where t.tenant = $1 and m ->> 'hash' = _mindful.forget_hash($3, t.%2$I::text)
            $query$, place.relation, place.column_name, place.key)
        using _mindful.tenant(), place.mentions, receipt.salt;
    end loop;
end
$$;
comment on function memory_forget_check(bigint, bigint[]) is
'Searches all tables for traces of deleted memories, by a receipt or by ids. No row means that nothing is left.
finding: reference (a row names one of the ids). By receipt also: copy (the same text, ignoring case and white space) and mention (a row that shared two to four consecutive words when the memory was deleted, and has not changed since). Copies and mentions came from elsewhere: the caller decides about them.
Example: SELECT * FROM memory_forget_check(receipt_id => 3);
Errors: 22023 (both or neither argument), 42704 (the tenant has no such receipt).';
-- Retention. A user forgets on purpose, and derived memories go too. Pruning is housekeeping: it deletes only what its
-- conditions name, so facts outlive the messages that they were drawn from.

insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('retention_message_days', 'integer', 0, 36500, '{global,user}', '0',
        'After how many days retention_run forgets messages, and sessions without any; 0 is never.'),
    ('retention_fact_days', 'integer', 0, 36500, '{global,user}', '0',
        'After how many days retention_run forgets facts; 0 is never.'),
    ('retention_summary_days', 'integer', 0, 36500, '{global,user}', '0',
        'After how many days retention_run forgets summaries; 0 is never.'),
    ('retention_document_days', 'integer', 0, 36500, '{global,user}', '0',
        'After how many days retention_run forgets documents; 0 is never.'),
    ('retention_reflection_days', 'integer', 0, 36500, '{global,user}', '0',
        'After how many days retention_run forgets reflections; 0 is never.'),
    ('retention_memories', 'integer', 0, 1000000000, '{global,user}', '0',
        'How many memories, messages not counted, retention_run keeps of a tenant, the most valuable; 0 is all.'),
    ('retention_audit_days', 'integer', 0, 36500, '{global}', '0',
        'After how many days an administrator''s retention_run deletes generations, reviews, receipts and replaced settings; 0 is never.'),
    ('retention_half_life_days', 'number', 0.01, 36500, '{global,user}', '30',
        'After how many idle days a memory of level data is worth half; 4 times as many for information, 16 for knowledge, 64 for wisdom.');

create function _mindful.memory_value(
    importance real, level text, created_at timestamptz, last_accessed_at timestamptz, half_life_days double precision
) returns double precision
language sql stable parallel safe security invoker
begin atomic
    select importance * _mindful.power(0.5, _mindful.half_lives(greatest(created_at, last_accessed_at), pg_catalog.now(),
        half_life_days * _mindful.power(4,
            pg_catalog.array_position(array['data', 'information', 'knowledge', 'wisdom'], level) - 1)));
end;
comment on function _mindful.memory_value(real, text, timestamptz, timestamptz, double precision) is
'Returns the value of a memory now: importance x 0.5 ^ (idle time / half-life of its level). Idle time begins when it was created or last shown (exponential forgetting, Ebbinghaus 1885).';

create function _mindful.memory_kept(kinds text[]) returns setof memory
language sql stable parallel safe security invoker
begin atomic
    select m.* from mindful.memory m
    where m.tenant = (select _mindful.tenant()) and m.kind = any (kinds)
        and not exists (
            select from mindful.attachment a where a.tenant = (select _mindful.tenant()) and a.source = m.source
        );
end;
comment on function _mindful.memory_kept(text[]) is
'Returns the tenant''s memories of some kinds, without those of attached tables.';

create type prune_detail as (
    id bigint, kind text, value double precision, created_at timestamptz, last_accessed_at timestamptz, reason text
);
comment on type prune_detail is
'A memory that memory_prune deletes, and the reason.';

create function memory_prune(
    older_than interval default null,
    unused_for interval default null,
    invalid_for interval default null,
    max_importance real default null,
    max_value real default null,
    max_count integer default null,
    kinds text[] default '{fact,summary,document,reflection}',
    dry_run boolean default false
) returns setof prune_detail
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_column
declare
    half_life double precision := mindful.setting_get('retention_half_life_days') #>> '{}';
    policy text := concat_ws(', ',
        'older than ' || older_than, 'unused for ' || unused_for, 'invalid for ' || invalid_for,
        'importance at most ' || max_importance, 'value at most ' || max_value,
        case when max_count is not null then format('not among the %s most valuable', max_count) end);
    unfit prune_detail[];
begin
    if dry_run is not true then
        perform _mindful.writable();
    end if;
    if policy = '' then
        perform _mindful.raise('22023', 'memory_prune has no condition',
            'Pass at least one of older_than, unused_for, invalid_for, max_importance, max_value and max_count.');
    elsif least(older_than, unused_for, invalid_for) < interval '0' or greatest(older_than, unused_for, invalid_for) > interval '1000 years'
        or max_count < 0 or 'NaN' in (max_importance, max_value)
    then
        perform _mindful.raise('22023', 'an argument of memory_prune is negative, longer than 1000 years, or NaN',
            'Pass numbers of at least 0, and intervals between 0 and 1000 years.');
    elsif _mindful.kinds_argument(kinds) is null then
        perform _mindful.raise('22023', 'kinds is null', 'Pass kinds out of fact, document, summary, reflection and message.');
    end if;
    unfit := array(
        select (r.id, r.kind, r.value, r.created_at, r.last_accessed_at, policy)::mindful.prune_detail
        from (
            select m.id, m.kind, m.importance, m.created_at, m.valid_to, a.last_accessed_at, v.value,
                row_number() over (order by v.value desc, m.created_at desc, m.id desc) as rank
            from _mindful.memory_kept(kinds) m
            left join mindful.memory_access a on a.tenant = (select _mindful.tenant()) and a.id = m.id
            cross join lateral _mindful.memory_value(m.importance, m.level, m.created_at, a.last_accessed_at, half_life) v (value)
        ) r
        where (older_than is null or r.created_at < now() - older_than)
            and (unused_for is null or greatest(r.created_at, r.last_accessed_at) < now() - unused_for)
            and (invalid_for is null or r.valid_to < now() - invalid_for)
            and (max_importance is null or r.importance <= max_importance)
            and (max_value is null or r.value <= max_value)
            and (max_count is null or r.rank > max_count)
        order by r.value, r.id
    );
    if dry_run is not true then
        perform _mindful.forget(array(select u.id from unnest(unfit) u), '{}', 'prune', false);
    end if;
    return query select * from unnest(unfit);
end
$$;
comment on function memory_prune(interval, interval, interval, real, real, integer, text[], boolean) is
'Deletes the memories that meet all given conditions, and returns them with the reason, least valuable first.
older_than: age. unused_for: time since it was created or last shown. invalid_for: time since valid_to. max_importance: importance at most this. max_value: importance x 0.5 ^ (idle time / half-life) at most this; the setting retention_half_life_days gives the half-life. max_count: keeps this many of the most valuable memories of these kinds.
kinds: which kinds to consider; messages only if listed. With dry_run true, it only returns what it would delete. Facts stay when the messages that support them are deleted, without that evidence. Rows of attached tables stay. forget_receipt keeps a receipt.
Example: SELECT * FROM memory_prune(older_than => ''90 days'', max_importance => 0.3, dry_run => true);
Error 22023: no condition, or a value outside its range.';

create function _mindful.retention_settings() returns jsonb
language sql stable parallel safe security invoker
begin atomic
    select pg_catalog.jsonb_agg(
        pg_catalog.jsonb_build_object('key', f.key, 'value', f.value, 'scope', f.scope, 'changed_by', f.changed_by) order by f.key)
    from (
        select distinct on (n.key) n.key, n.value, n.scope, n.changed_by
        from (
            select distinct on (s.key, s.scope) s.key, s.value, s.scope, s.changed_by
            from mindful.setting s
            where s.tenant = any (array['', (select _mindful.tenant())]) and s.scope <> 'session' and s.key ~ '^retention_'
            order by s.key, s.scope, s.id desc
        ) n
        where n.value <> 'null'
        order by n.key, n.scope desc
    ) f
    where f.value <> '0' and f.key <> 'retention_audit_days';
end;
comment on function _mindful.retention_settings() is
'Returns the retention settings in force for the tenant, with the role that set them.';

create function _mindful.receipt_settings() returns trigger
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    new.settings := _mindful.retention_settings();
    return new;
end
$$;
comment on function _mindful.receipt_settings() is
'Adds the retention settings in force to a receipt.';
create trigger settings before insert on forget_receipt for each row
    when (new.scope = 'retention' and (pg_catalog.current_setting('row_security') = 'on' or not _mindful.is_restore())) execute function _mindful.receipt_settings();

create function _mindful.retention_count(key text, value jsonb, out tenants bigint, out rows bigint)
language plpgsql stable parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
set mindful.tenant = ''
as $$
declare
    bound integer := value #>> '{}';
    due timestamptz := now() - make_interval(days => bound);
begin
    if key = 'retention_audit_days' then
        select count(distinct r.tenant), count(*) into tenants, rows
        from (
            select g.tenant from mindful.generation g where g.created_at < due
            union all
            select v.tenant from mindful.review v where v.created_at < due
            union all
            select f.tenant from mindful.forget_receipt f where f.forgotten_at < due
        ) r;
        return;
    end if;
    select count(*) filter (where c.rows > 0), coalesce(sum(c.rows), 0) into tenants, rows
    from (
        select m.tenant,
            case key
                when 'retention_memories' then greatest(count(*) filter (where m.kind <> 'message') - bound, 0)
                else count(*) filter (where key = format('retention_%s_days', m.kind) and m.created_at < due)
            end as rows
        from mindful.memory m
        where not exists (select from mindful.attachment a where a.tenant = m.tenant and a.source = m.source)
            and coalesce((
                select s.value from mindful.setting s
                where s.tenant = m.tenant and s.scope = 'user' and s.key = retention_count.key order by s.id desc limit 1
            ), 'null') = 'null'
        group by m.tenant
    ) c;
end
$$;
comment on function _mindful.retention_count(text, jsonb) is
'Returns the number of rows and tenants from which a global retention setting would delete now: memories, or for retention_audit_days generations, reviews and receipts. Tenants with a setting of their own do not count. It runs with the owner''s rights; for administrators.';

create function _mindful.retention_check(key text, value jsonb, confirmed_rows bigint) returns void
language plpgsql stable parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    found record;
begin
    if value in ('null', '0') or not pg_has_role(current_user, 'mindful_admin', 'usage') then
        return;  -- The setting keeps all rows, or the policy refuses it.
    end if;
    select * into found from _mindful.retention_count(key, value);
    if confirmed_rows is null or confirmed_rows < found.rows then
        perform _mindful.raise('55000',
            format('setting %s to %s for all removes %s rows of %s tenants', key, value, found.rows, found.tenants),
            format('To confirm, pass confirmed_rows => %s.', found.rows));
    end if;
end
$$;
comment on function _mindful.retention_check(text, jsonb, bigint) is
'Raises 55000 if a global retention setting would delete more rows than confirmed_rows. The message has the numbers of rows and tenants.';

create function _mindful.retention_run_own() returns setof forget_count
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    message_days integer := mindful.setting_get('retention_message_days') #>> '{}';
    most integer := mindful.setting_get('retention_memories') #>> '{}';
    old_ids bigint[];
    empty_sessions uuid[] := '{}';
begin
    old_ids := array(
        select m.id
        from unnest('{message,fact,summary,document,reflection}'::text[]) k (kind)
        cross join lateral (select (mindful.setting_get(format('retention_%s_days', k.kind)) #>> '{}')::integer) s (days)
        cross join lateral _mindful.memory_kept(array[k.kind]) m
        where s.days > 0 and m.created_at < now() - make_interval(days => s.days)
    );
    if most > 0 then
        old_ids := array(select unnest(old_ids) union select p.id from mindful.memory_prune(max_count => most, dry_run => true) p);
    end if;
    if message_days > 0 then
        empty_sessions := array(
            select s.session_id from mindful.session s
            where s.tenant = (select _mindful.tenant()) and s.created_at < now() - make_interval(days => message_days)
                and not exists (
                    select from mindful.memory m
                    where m.tenant = (select _mindful.tenant()) and m.session_id = s.session_id
                        and m.turn > 0 and m.created_at >= now() - make_interval(days => message_days)
                )
        );
    end if;
    if cardinality(old_ids) + cardinality(empty_sessions) > 0 then
        -- Memories that are not due stay without the session; its summaries go with it.
        update mindful.memory m set session_id = null
        where m.tenant = (select _mindful.tenant()) and m.session_id = any (empty_sessions) and m.kind <> 'summary'
            and not exists (select from unnest(old_ids) o (id) where o.id = m.id);
        old_ids := array(
            select unnest(old_ids)
            union
            select m.id from mindful.memory m
            where m.tenant = (select _mindful.tenant()) and m.session_id = any (empty_sessions)
        );
        return query select * from _mindful.forget(old_ids, empty_sessions, 'retention', false);
    end if;
end
$$;
comment on function _mindful.retention_run_own() is 'Runs retention for the tenant of the caller.';

create function _mindful.retention_run_all() returns setof forget_count
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
set mindful.tenant = ''
set lock_timeout = '1s'
as $$
declare
    due timestamptz := now() - make_interval(days => nullif((mindful.setting_get('retention_audit_days') #>> '{}')::integer, 0));
    due_tenant text;
    forgotten mindful.forget_count[] := '{}';
    deleted bigint;
begin
    for due_tenant in select t from _mindful.memory_tenants() t loop
        begin
            perform set_config('mindful.tenant', due_tenant, true);
            forgotten := forgotten || array(select r from _mindful.retention_run_own() r);
        exception when others then  -- A cancel is not among them. One tenant's error must not stop the others.
            raise warning 'mindful: retention of tenant % failed: %', due_tenant, sqlerrm;
        end;
    end loop;
    perform set_config('lock_timeout', '0', true);
    delete from mindful.review r where r.created_at < due;
    get diagnostics deleted = row_count;
    forgotten := forgotten || (null, 'review', 'deleted', deleted)::mindful.forget_count;
    delete from mindful.generation g where g.created_at < due;
    get diagnostics deleted = row_count;
    forgotten := forgotten || (null, 'generation', 'deleted', deleted)::mindful.forget_count;
    delete from mindful.forget_receipt r where r.forgotten_at < due;
    get diagnostics deleted = row_count;
    forgotten := forgotten || (null, 'forget_receipt', 'deleted', deleted)::mindful.forget_count;
    delete from mindful.setting s
    where s.changed_at < due and exists (
        select from mindful.setting n
        where n.tenant = s.tenant and n.key = s.key and n.scope = s.scope and n.id > s.id
            and n.session_id is not distinct from s.session_id
    );
    get diagnostics deleted = row_count;
    forgotten := forgotten || (null, 'setting', 'deleted', deleted)::mindful.forget_count;
    return query
    select null::bigint, f.relation, f.action, sum(f.rows)::bigint
    from unnest(forgotten) f
    group by f.relation, f.action
    having sum(f.rows) > 0;
end
$$;
comment on function _mindful.retention_run_all() is
'Runs retention for each tenant by its own settings, then deletes records older than retention_audit_days. It runs with the owner''s rights: it takes no argument and follows the settings only. If one tenant fails, its changes are rolled back and a warning is raised.';

create function retention_run() returns setof forget_count
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform _mindful.writable();
    if pg_has_role(current_user, 'mindful_admin', 'usage') then
        return query select * from _mindful.retention_run_all();
    else
        return query select * from _mindful.retention_run_own();
    end if;
end
$$;
comment on function retention_run() is
'Deletes what the settings retention_* no longer keep, and returns the number of rows by table and action.
A user''s call works for the own tenant. An administrator''s call works for all tenants, by the settings of each; it also deletes records older than the setting retention_audit_days, and returns the sums without receipt_id. If one tenant fails there, the call raises a warning and goes on with the next. Rows of attached tables stay. Workers and worker_schedule call it every day.';
create function _mindful.memory_embeddings(id bigint) returns jsonb
language plpgsql stable parallel restricted security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    model text;
    found text;
    embeddings jsonb := '{}';
begin
    for model in select m.name from mindful.model m where m.kind = 'embedder' order by m.name loop
        execute format('select e.embedding::text from mindful.%I e where e.tenant = $1 and e.id = $2
            and e.content_hash = (select m.content_hash from mindful.memory m where m.tenant = $1 and m.id = $2)',
            _mindful.embedding_table(model))
        into found using _mindful.tenant(), id;
        if found is not null then
            embeddings := embeddings || jsonb_build_object(model, found::jsonb);
        end if;
    end loop;
    return embeddings;
end
$$;
comment on function _mindful.memory_embeddings(bigint) is
'Returns the embeddings of a memorys present text by model.';

create function memory_export(
    kinds text[] default null,
    session_id uuid default null,
    source text default null,
    embeddings boolean default false
) returns setof jsonb
language sql stable parallel unsafe security invoker rows 1000
begin atomic
    with chosen as not materialized (
        select m.id
        from mindful.memory m
        where m.tenant = (select _mindful.tenant())
            and (kinds is null or m.kind = any (kinds))
            and (memory_export.session_id is null or m.session_id = memory_export.session_id)
            and (memory_export.source is null or m.source = memory_export.source)
    )
    select pg_catalog.jsonb_build_object('type', 'export', 'models', case when memory_export.embeddings then (
        select pg_catalog.jsonb_object_agg(m.name, m.sha256) from mindful.model m where m.kind = 'embedder') end)
    where kinds is null or _mindful.kinds_argument(kinds) is not null
    union all
    select pg_catalog.to_jsonb(s) - 'tenant' || '{"type": "session"}'
    from mindful.session s
    where s.tenant = (select _mindful.tenant())
        and (kinds is null and memory_export.session_id is null and memory_export.source is null
            or exists (select from mindful.memory m join chosen c on c.id = m.id
                where m.tenant = s.tenant and m.session_id = s.session_id))
    union all
    (
        select pg_catalog.to_jsonb(m) - '{tenant,content_hash,language}'::text[] || '{"type": "memory"}' || case
            when memory_export.embeddings then pg_catalog.jsonb_build_object('embeddings', _mindful.memory_embeddings(m.id))
            else '{}'::jsonb
        end
        from mindful.memory m join chosen c on c.id = m.id
        where m.tenant = (select _mindful.tenant())
        order by m.id
    )
    union all
    select pg_catalog.to_jsonb(l) - 'tenant' || '{"type": "link"}'
    from mindful.memory_link l join chosen s on s.id = l.source_id join chosen t on t.id = l.target_id
    where l.tenant = (select _mindful.tenant())
    union all
    select pg_catalog.to_jsonb(e) - 'tenant' || '{"type": "evidence"}'
    from mindful.memory_evidence e join chosen c on c.id = e.id join chosen s on s.id = e.source_id
    where e.tenant = (select _mindful.tenant())
    union all
    select pg_catalog.to_jsonb(a) - 'tenant' || '{"type": "access"}'
    from mindful.memory_access a join chosen c on c.id = a.id
    where a.tenant = (select _mindful.tenant());
end;
comment on function memory_export(text[], uuid, text, boolean) is
'Returns the tenant''s memories and the rows that refer to them as JSON objects, which memory_import reads.
The first object has type export. Sessions, memories, links, evidence and accesses follow, with all columns. Filters: kinds, session_id, source. Links and evidence come if both memories pass the filters. With embeddings true, memories include the embeddings of their present text. Use a cursor or COPY to read many rows.
Example: COPY (SELECT memory_export(kinds => ''{fact}'')) TO STDOUT;
Error 22023: an unknown kind.';

create function _mindful.import_problem(type text, line jsonb) returns text
language sql stable parallel safe security invoker
begin atomic
    select case
        when pg_catalog.jsonb_typeof(line) is distinct from 'object' then 'is not a JSON object'
        when type is null or type <> all (array['export', 'session', 'memory', 'link', 'evidence', 'access'])
            then 'has an unknown type'
        when type = 'session' and line ->> 'session_id' is null then 'has no session_id'
        when type = any (array['memory', 'evidence', 'access']) and line ->> 'id' is null then 'has no id'
        when type = 'memory' and coalesce(pg_catalog.btrim(line ->> 'content', E' \t\n\r'), '') = '' then 'has no content'
        when type = 'memory' and pg_catalog.octet_length(line ->> 'content') > 262144 then 'has a content of more than 262144 bytes'
        when type = 'link' and (line ->> 'source_id' is null or line ->> 'target_id' is null) then 'has no source_id or target_id'
        when type = 'evidence' and (line ->> 'source_id' is null or line ->> 'quote' is null) then 'has no source_id or quote'
    end;
end;
comment on function _mindful.import_problem(text, jsonb) is
'Returns what is wrong with the shape of a line; NULL if nothing.';

create function _mindful.import_fail(number bigint, problem text) returns void
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform _mindful.raise('22023', format('line %s %s', number, problem),
        'Nothing was imported. Pass lines as memory_export returns them.');
end
$$;
comment on function _mindful.import_fail(bigint, text) is 'Raises the error of a line that cannot be imported.';

create function _mindful.import_defaults(relation regclass) returns jsonb
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    defaults jsonb;
begin
    execute (
        select format('select jsonb_build_object(%s)',
            string_agg(format('%L, %s', a.attname, pg_get_expr(d.adbin, d.adrelid)), ', '))
        from pg_attribute a
        join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
        where a.attrelid = relation and a.attgenerated = '' and a.attidentity = ''
    ) into defaults;
    return defaults;
end
$$;
comment on function _mindful.import_defaults(regclass) is
'Returns the defaults of the columns of a table.';

create function _mindful.import_rule(relation regclass) returns text
language sql stable parallel safe security invoker
begin atomic
    select pg_catalog.format('select %L || c.name from jsonb_populate_record(null::%s, $1) r, lateral (values %s) c (name, holds)
        where not c.holds limit 1', 'breaks the rule ', relation,
        pg_catalog.string_agg(pg_catalog.format('(%L, %s)', c.conname, pg_catalog.pg_get_expr(c.conbin, c.conrelid)), ', '))
    from pg_catalog.pg_constraint c
    where c.conrelid = relation and c.contype = 'c';
end;
comment on function _mindful.import_rule(regclass) is
'A query that reads a JSON object, $1, as a row of a table, and gives the first CHECK constraint that it breaks.';

create function _mindful.import_check(lines text, document jsonb) returns void
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    tables jsonb := '{"session": "session", "memory": "memory", "link": "memory_link", "evidence": "memory_evidence", "access": "memory_access"}';
    defaults jsonb;
    rules jsonb;
    number bigint;
    line jsonb;
    problem text;
begin
    select jsonb_object_agg(t.key, _mindful.import_defaults(('mindful.' || t.value)::regclass)),
        jsonb_object_agg(t.key, _mindful.import_rule(('mindful.' || t.value)::regclass))
    into defaults, rules
    from jsonb_each_text(tables) t;
    begin
        for number, line in execute lines using document loop
            problem := _mindful.import_problem(line ->> 'type', line);
            if problem is null and rules ? (line ->> 'type') then
                execute rules ->> (line ->> 'type') into problem using defaults -> (line ->> 'type') || line;
            end if;
            exit when problem is not null;
        end loop;
    exception
        when data_exception then
            problem := 'cannot be read: ' || sqlerrm;
    end;
    if problem is not null then
        perform _mindful.import_fail(number, problem);
    end if;
end
$$;
comment on function _mindful.import_check(text, jsonb) is
'Raises 22023 with the number of the first line that is not a valid row of its table. lines is a query of number and line, which may read document as $1.';

create function _mindful.import_refer(lines text, document jsonb, ids bigint[]) returns void
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    number bigint;
    problem text;
begin
    execute format($query$
        with line as (%s)
        select l.number, 'repeats the id of another memory of the file'
        from (
            select l.number, row_number() over (partition by l.line ->> 'id' order by l.number) as occurrence
            from line l where l.line ->> 'type' = 'memory'
        ) l
        where l.occurrence > 1
        union all
        select l.number, format('refers to memory %%s, which is not in the file', r.id)
        from line l, lateral (values ('id'), ('source_id'), ('target_id')) k (key),
            lateral (select (l.line ->> k.key)::bigint) r (id)
        where l.line ->> 'type' in ('link', 'evidence', 'access') and r.id is not null
            and not exists (select from unnest($2) i (id) where i.id = r.id)
        union all
        select l.number, format('refers to session %%s, which is neither in the file nor in the database', l.line ->> 'session_id')
        from line l
        where l.line ->> 'type' = 'memory' and l.line ->> 'session_id' is not null
            and not exists (select from mindful.session s
                where s.tenant = (select _mindful.tenant()) and s.session_id = (l.line ->> 'session_id')::uuid)
        union all
        select l.number, format('has an embedding by %%2$s that is not an array of %%1$s numbers', m.dims, m.name)
        from line l
        join line x on x.line ->> 'type' = 'export'
        join mindful.model m on m.kind = 'embedder' and x.line -> 'models' ->> m.name = m.sha256
        where l.line ->> 'type' = 'memory' and l.line -> 'embeddings' ? m.name and case
            when jsonb_typeof(l.line -> 'embeddings' -> m.name) <> 'array' then true
            else jsonb_array_length(l.line -> 'embeddings' -> m.name) <> m.dims
                or jsonb_path_exists(l.line -> 'embeddings' -> m.name, '$[*] ? (@.type() <> "number")')
        end
        limit 1$query$, lines)
    into number, problem using document, ids;
    if number is not null then
        perform _mindful.import_fail(number, problem);
    end if;
end
$$;
comment on function _mindful.import_refer(text, jsonb, bigint[]) is
'Raises 22023 with the number of a line that refers to a memory or session outside the file and the database, or whose embedding has the wrong number of dimensions. ids are the ids of the memories in the file.';

create type memory_origin as (
    number bigint,
    old_id bigint,
    known_id bigint,
    differs boolean
);
comment on type memory_origin is
'A memory of a file: number of its line, its id in the file, the id of the tenant''s memory that matches it, and whether their texts differ.';

create function _mindful.import_match(lines text, document jsonb) returns setof memory_origin
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    return query execute format($query$
        with given as (
            select l.number, (l.line ->> 'id')::bigint as id, md5(l.line ->> 'content') as hash, r.kind, r.created_at,
                r.session_id, r.turn, r.source, r.source_key,
                row_number() over (partition by r.kind, r.created_at, md5(l.line ->> 'content') order by l.number) as occurrence
            from (%s) l, jsonb_populate_record(null::mindful.memory, $2 || l.line) r
            where l.line ->> 'type' = 'memory'
        ),
        known as (
            select m.id, m.content_hash, m.kind, m.created_at,
                row_number() over (partition by m.kind, m.created_at, m.content_hash order by m.id) as occurrence
            from mindful.memory m
            where m.tenant = (select _mindful.tenant()) and m.turn is null and (m.source is null or m.source_key is null)
        )
        select g.number, g.id, coalesce(t.id, s.id, k.id), coalesce(t.content_hash <> g.hash, s.content_hash <> g.hash, false)
        from given g
        left join mindful.memory t on t.tenant = (select _mindful.tenant()) and t.session_id = g.session_id and t.turn = g.turn
        left join mindful.memory s on s.tenant = (select _mindful.tenant()) and s.source = g.source and s.source_key = g.source_key
        left join known k on g.turn is null and (g.source is null or g.source_key is null)
            and k.kind = g.kind and k.created_at = g.created_at and k.content_hash = g.hash and k.occurrence = g.occurrence
        order by g.number$query$, lines)
    using document, _mindful.import_defaults('mindful.memory');
end
$$;
comment on function _mindful.import_match(text, jsonb) is
'Pairs the memories of a file with those of the tenant. Messages match by session and turn, parts of a source by source and source_key. Others match by kind, created_at and text, the n-th of the file with the n-th of the database.';

create function _mindful.import_memories(lines text, document jsonb, old_ids bigint[], new_ids bigint[], known boolean[]) returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    columns text[] := (
        select array_agg(quote_ident(a.attname) order by a.attnum) from pg_attribute a
        where a.attrelid = 'mindful.memory'::regclass and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
    );
    model text;
    embedded text := '';
    inserted bigint;
begin
    -- One statement inserts memories and embeddings. So the trigger that embeds new memories skips these.
    for model in execute format('select m.name from mindful.model m, (%s) l
        where m.kind = ''embedder'' and l.line ->> ''type'' = ''export'' and l.line -> ''models'' ->> m.name = m.sha256', lines) using document
    loop
        embedded := embedded || format($query$,
            %I as (
                insert into mindful.%I (tenant, id, embedding, content_hash)
                select _mindful.tenant(), n.id, _mindful.vector(n.line -> 'embeddings' ->> %L), md5(n.line ->> 'content')
                from new n where n.line -> 'embeddings' ? %L
            )$query$, 'by ' || model, _mindful.embedding_table(model), model, model);
    end loop;
    execute format($query$
        with new as materialized (
            select i.id, l.line, $5 || (l.line - 'language') || jsonb_build_object('tenant', _mindful.tenant(), 'id', i.id, 'superseded_by', s.id) as row
            from (%s) l
            join unnest($2, $3, $4) i (old_id, id, known) on l.line ->> 'type' = 'memory' and i.old_id = (l.line ->> 'id')::bigint
            left join unnest($2, $3) s (old_id, id) on s.old_id = (l.line ->> 'superseded_by')::bigint
            where not i.known
        )%s, inserted as (
            insert into mindful.memory (%s) overriding system value
            select r.%s from new n, jsonb_populate_record(null::mindful.memory, n.row) r order by n.id
            returning 1
        )
        select count(*) from inserted$query$,
        lines, embedded, array_to_string(columns, ', '), array_to_string(columns, ', r.'))
    into inserted using document, old_ids, new_ids, known, _mindful.import_defaults('mindful.memory');
    return inserted;
end
$$;
comment on function _mindful.import_memories(text, jsonb, bigint[], bigint[], boolean[]) is
'Inserts the memories of a file that the tenant does not have, under new ids, and returns their number. Embeddings are inserted if the model of that name has the same sha256 here.';

create function _mindful.import_rows(
    relation regclass,
    type text,
    keys text[],
    lines text,
    document jsonb,
    old_ids bigint[] default '{}',
    new_ids bigint[] default '{}'
) returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    inserted bigint;
begin
    execute (
        select format($query$
            insert into %s
            select r.*
            from (%s) l %s,
                jsonb_populate_record(null::%s, $4 || l.line || jsonb_build_object('tenant', _mindful.tenant()%s)) r
            where l.line ->> 'type' = %L
            on conflict do nothing$query$,
            relation, lines,
            string_agg(format('join unnest($2, $3) %I (old_id, id) on %I.old_id = (l.line ->> %L)::bigint', k.key, k.key, k.key), ' '),
            relation, string_agg(format(', %L, %I.id', k.key, k.key), ''), type)
        from unnest(keys) k (key)
    ) using document, old_ids, new_ids, _mindful.import_defaults(relation);
    get diagnostics inserted = row_count;
    return inserted;
end
$$;
comment on function _mindful.import_rows(regclass, text, text[], text, jsonb, bigint[], bigint[]) is
'Inserts the lines of a type into its table and returns the number of new rows. The columns that keys names get new ids for old ones.';

create type import_change as (
    sessions bigint,
    memories bigint,
    kept bigint,
    links bigint,
    evidence bigint,
    accesses bigint
);
comment on type import_change is 'Number of rows that an import added, by type. kept is the number of memories that existed already.';

create function _mindful.import(lines text, document jsonb) returns import_change
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    number bigint;
    old_ids bigint[];
    new_ids bigint[];
    known boolean[];
    sessions bigint;
    memories bigint;
begin
    perform _mindful.import_check(lines, document);
    sessions := _mindful.import_rows('mindful.session', 'session', '{}', lines, document);
    select min(m.number) filter (where m.differs), array_agg(m.old_id), array_agg(m.known_id), array_agg(m.known_id is not null)
    into number, old_ids, new_ids, known
    from _mindful.import_match(lines, document) m;
    if number is not null then
        perform _mindful.import_fail(number, 'differs from the memory that has its session_id and turn, or its source and source_key');
    end if;
    perform _mindful.import_refer(lines, document, old_ids);
    select array_agg(coalesce(i.id, nextval('mindful.memory_id_seq')) order by i.n) into new_ids
    from unnest(new_ids) with ordinality i (id, n);
    memories := _mindful.import_memories(lines, document, old_ids, new_ids, known);
    return (
        sessions, memories, coalesce(cardinality(old_ids), 0) - memories,
        _mindful.import_rows('mindful.memory_link', 'link', '{source_id,target_id}', lines, document, old_ids, new_ids),
        _mindful.import_rows('mindful.memory_evidence', 'evidence', '{id,source_id}', lines, document, old_ids, new_ids),
        _mindful.import_rows('mindful.memory_access', 'access', '{id}', lines, document, old_ids, new_ids)
    )::mindful.import_change;
end
$$;
comment on function _mindful.import(text, jsonb) is
'Imports the lines of a query of number and line, which may read document as $1. See memory_import.';

create function memory_import(lines jsonb) returns import_change
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform _mindful.writable();
    if lines is null then
        perform _mindful.raise('22004', 'lines is null', 'Pass a JSON array of the objects that memory_export returns.');
    elsif jsonb_typeof(lines) <> 'array' then
        perform _mindful.raise('22023', format('lines is a JSON %s, not an array', jsonb_typeof(lines)),
            'Pass a JSON array of the objects that memory_export returns.');
    end if;
    return _mindful.import('select e.number, e.line from jsonb_array_elements($1) with ordinality e (line, number)', lines);
end
$$;
comment on function memory_import(jsonb) is
'Imports a JSON array of the objects that memory_export returns, and returns the number of new rows by type.
Memories get new ids, and references follow them. Times, validity and all other columns stay. Rows that exist already are kept, so a second import adds nothing. If the model of that name has the same file here, embeddings are taken from the objects; otherwise they are computed. All or nothing is imported. The command "mindful import" reads files of any size.
Example: SELECT * FROM memory_import((SELECT jsonb_agg(line) FROM memory_export() line));
Errors: 22004, 22023 (with the number of the first invalid element).';

create function _mindful.memory_import(lines regclass) returns mindful.import_change
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    line_column name;
begin
    perform _mindful.writable();
    if lines is null then
        perform _mindful.raise('22004', 'lines is null', 'Pass a table that has one column, of type jsonb.');
    end if;
    select min(a.attname::text) into line_column
    from pg_attribute a join pg_class c on c.oid = a.attrelid
    where a.attrelid = lines and a.attnum > 0 and not a.attisdropped and c.relkind = 'r'
    having count(*) = 1 and bool_and(a.atttypid = 'jsonb'::regtype);
    if line_column is null then
        perform _mindful.raise('42809', format('%s is not a table with one column of type jsonb', lines),
            'Create one with CREATE TEMP TABLE t (line jsonb), and COPY the lines into it.');
    end if;
    return _mindful.import(
        format('select row_number() over (order by t.ctid) as number, t.%I as line from %s t', line_column, lines), null);
end
$$;
comment on function _mindful.memory_import(regclass) is
'memory_import of the rows of a table with one column of type jsonb. The command "mindful import" copies its file there. Errors: 22004, 22023, 42809 (not such a table).';

-- chat
alter type chat_detail add attribute probability real, add attribute reason text, add attribute decision_id bigint;
create or replace function _mindful.turn_insert(session_id uuid, title text, messages jsonb, memory_ids bigint[]) returns setof bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    if title is not null then
        insert into mindful.session (session_id, title) values (turn_insert.session_id, turn_insert.title);
    end if;
    return query select mindful.message_insert_many(session_id, messages);
    perform _mindful.memory_shown(memory_ids);
end
$$;
comment on function _mindful.turn_insert(uuid, text, jsonb, bigint[]) is
'Stores the messages of a chat turn and returns their ids in order, starts the session if a title is given, and counts the memories that were shown.';
create or replace function llm_chat(
    message text,
    session_id uuid default null,
    model text default null,
    max_tokens integer default 256,
    temperature real default null,
    seed integer default null,
    memories integer default null
) returns text
language plpython3u volatile parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.chat.chat import llm_chat
return llm_chat(message, session_id, model, max_tokens, temperature, seed, memories)
$python$;
comment on function llm_chat(text, uuid, text, integer, real, integer, integer) is
'Answers a message with the conversation so far and with recalled memories (at most `memories` of them) in view, and stores both turns. Memories and temperature NULL: as the settings chat_memories and chat_temperature say. session_id NULL starts a new conversation, which still remembers all others of the caller. message NULL answers the session''s last message, which a client has inserted and committed before. Errors: 22004 (both NULL), 22023, 42704 (no such session of yours, no such model), 54000 (message longer than the context), 57014 (cancelled).';
create or replace function llm_chat_detail(
    message text,
    session_id uuid default null,
    model text default null,
    max_tokens integer default 256,
    temperature real default null,
    seed integer default null,
    memories integer default null
) returns chat_detail
language plpython3u volatile parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.chat.chat import llm_chat_detail
return llm_chat_detail(message, session_id, model, max_tokens, temperature, seed, memories)
$python$;
comment on function llm_chat_detail(text, uuid, text, integer, real, integer, integer) is
'As llm_chat, with where the reply is stored (message_id), the memories it was shown, its cost, its confidence as in llm_generate_detail, and what was decided about it: probability is that of being right (see the table decision), the action answer where it reaches the threshold (retrieve, retry or escalate where another attempt does, see the settings of these names), else flag, clarify or abstain; the threshold is NULL until calibrate() has certified one; the reason says why.';
create or replace function llm_chat_stream(
    message text,
    session_id uuid default null,
    model text default null,
    max_tokens integer default 256,
    temperature real default null,
    seed integer default null,
    memories integer default null
) returns setof text
language plpython3u volatile parallel unsafe security invoker cost 100000 rows 100
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.chat.chat import llm_chat_stream
return llm_chat_stream(message, session_id, model, max_tokens, temperature, seed, memories)
$python$;
comment on function llm_chat_stream(text, uuid, text, integer, real, integer, integer) is
'As llm_chat, one row per piece of text as it is made (see llm_generate_stream). Both turns are stored when the last row has been read.';
create or replace function session_start(title text default null, system_prompt text default null, metadata jsonb default '{}')
returns uuid
language sql volatile parallel unsafe security invoker
begin atomic
    select _mindful.writable();
    insert into mindful.session (title, system_prompt, metadata)
    values (
        _mindful.short_argument('title', title),
        case
            when pg_catalog.octet_length(system_prompt) > 262144 then _mindful.text_argument('system_prompt', system_prompt)
            else system_prompt
        end,
        _mindful.metadata(metadata)
    )
    returning session_id;
end;
comment on function session_start(text, text, jsonb) is
'Starts a session and returns its id.
system_prompt begins every prompt of this session. Errors: 22023 (metadata is not an object), 54000 (title over 1024 bytes, system_prompt or metadata over 262144).';
create or replace function _mindful.message_role(name text, role text) returns text
language sql stable parallel safe security invoker
begin atomic
    select case
        when role = any (array['system', 'user', 'assistant', 'tool', 'clarification']) then role
        else _mindful.raise('22023',
            pg_catalog.format('%s is %s', name, coalesce(pg_catalog.quote_literal(role), 'null')),
            'Pass system, user, assistant, tool or clarification.')::text
    end;
end;
comment on function _mindful.message_role(text, text) is
'Returns a role of a message, or raises 22023.';
create or replace function message_insert_many(session_id uuid, messages jsonb) returns setof bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_column
begin
    perform _mindful.writable();
    perform _mindful.session_lock(message_insert_many.session_id);
    return query
    insert into mindful.memory (kind, session_id, turn, role, content, metadata, created_at)
    select 'message', message_insert_many.session_id,
        (select coalesce(max(m.turn), 0) from mindful.memory m
            where m.tenant = (select _mindful.tenant()) and m.session_id = message_insert_many.session_id) + e.number,
        _mindful.message_role(format('role of element %s', e.number), e.element ->> 'role'),
        _mindful.text_argument(format('content of element %s', e.number), e.element ->> 'content'),
        _mindful.metadata(e.element -> 'metadata'),
        coalesce(_mindful.moment_argument(format('created_at of element %s', e.number), e.element ->> 'created_at'), now())
    from _mindful.array_elements('messages', messages, '{role,content,metadata,created_at}') e
    order by e.number
    returning id;
end
$$;
comment on function message_insert_many(uuid, jsonb) is
'Appends messages to a session in order, and returns their ids.
messages: an array of objects with role and content, optionally metadata and created_at. Roles: system, user, assistant, tool, clarification. All are stored or none: an error names the element. Embeddings are computed in batches.
Example: SELECT message_insert_many(session_start(), ''[{"role": "user", "content": "Hello"}]'');
Errors: 22004, 22023, 42704 (the tenant has no such session), 54000.';
create or replace function message_insert(
    session_id uuid,
    role text,
    content text,
    metadata jsonb default '{}',
    created_at timestamptz default now()
) returns bigint
language sql volatile parallel unsafe security invoker
begin atomic
    select _mindful.writable();
    select mindful.message_insert_many(session_id, pg_catalog.jsonb_build_array(pg_catalog.jsonb_build_object(
        'role', _mindful.message_role('role', role), 'content', _mindful.text_argument('content', content), 'metadata', _mindful.metadata(metadata), 'created_at', created_at)));
end;
comment on function message_insert(uuid, text, text, jsonb, timestamptz) is
'Appends a message to a session and returns its id. Roles and errors are those of message_insert_many.
Example: SELECT message_insert(''6e0a...'', ''user'', ''Where is the key?'');';
create type session_detail as (
    session_id uuid,
    title text,
    system_prompt text,
    metadata jsonb,
    created_at timestamptz,
    messages bigint,
    last_message_at timestamptz
);
comment on type session_detail is 'A session as session_get and session_list return it.';
create or replace function _mindful.session_details(sessions session[]) returns setof session_detail
language sql stable parallel safe security invoker
begin atomic
    select s.session_id, s.title, s.system_prompt, s.metadata, s.created_at, t.messages, t.last_message_at
    from pg_catalog.unnest(sessions) with ordinality s (tenant, session_id, title, system_prompt, metadata, created_at, place)
    cross join lateral (
        select pg_catalog.count(*) as messages, pg_catalog.max(m.created_at) as last_message_at
        from mindful.memory m
        where m.tenant = (select _mindful.tenant()) and m.session_id = s.session_id and m.turn > 0
    ) t
    order by s.place;
end;
comment on function _mindful.session_details(session[]) is 'Returns sessions with the number and the last time of their messages.';
create or replace function session_get(session_id uuid) returns session_detail
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    sessions mindful.session[] := array(
        select s from mindful.session s
        where s.tenant = (select _mindful.tenant()) and s.session_id = session_get.session_id
    );
    detail mindful.session_detail;
begin
    if sessions = '{}' then
        perform _mindful.raise('42704', format('there is no session %s', coalesce(session_id::text, 'null')),
            'Use session_list() to see your sessions.');
    end if;
    select d.* into detail from _mindful.session_details(sessions) d;
    return detail;
end
$$;
comment on function session_get(uuid) is
'Returns a session: title, system prompt, metadata, the number of its messages and the time of the last one.
Error 42704: the tenant has no such session.';
create or replace function session_list(before_session_id uuid default null, max_count integer default 100) returns setof session_detail
language plpgsql stable parallel safe security invoker rows 100
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    last_of_page mindful.session_detail;
begin
    perform _mindful.integer_argument('max_count', max_count, 1, 1000);
    if before_session_id is not null then
        last_of_page := mindful.session_get(before_session_id);
    end if;
    return query
    select d.* from _mindful.session_details(array(
        select s from mindful.session s
        where s.tenant = (select _mindful.tenant())
            and (before_session_id is null
                or (s.created_at, s.session_id) < (last_of_page.created_at, last_of_page.session_id))
        order by s.created_at desc, s.session_id desc
        limit max_count
    )) d;
end
$$;
comment on function session_list(uuid, integer) is
'Returns sessions, newest first by the time they were started, at most max_count (1 to 1000).
before_session_id: only sessions older than this one. Pass the last session_id of a page to get the next page.
Example: SELECT session_id, title, messages FROM session_list(max_count => 20);
Errors: 22004, 22023, 42704 (the tenant has no session before_session_id).';
create or replace function session_delete(session_id uuid, dry_run boolean default false) returns setof forget_count
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform _mindful.writable();
    if session_id is null then
        perform _mindful.raise('22004', 'session_id is null', 'Pass the id of a session; session_list() returns them.');
    end if;
    return query select * from mindful.memory_forget(session_id => session_delete.session_id, dry_run => session_delete.dry_run);
end
$$;
comment on function session_delete(uuid, boolean) is
'Deletes a session with its messages and all that was drawn from them alone, and returns the counts of memory_forget.
It is memory_forget(session_id => ...). With dry_run true, it only counts. Memories that other sessions or calls support stay.
Errors: 22004, 42704 (the tenant has no such session).';
drop function _mindful.message_role(text, bigint);
create or replace function _mindful.session_turns(session_id uuid, turns integer)
returns table (id bigint, turn integer, role text, content text)
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
set plan_cache_mode = force_generic_plan
set enable_sort = off
as $$
begin
    return query
    select m.id, m.turn, m.role, m.content
    from mindful.memory m
    where m.tenant = (select _mindful.tenant()) and m.session_id = session_turns.session_id and m.turn > 0
    order by m.turn desc
    limit turns;
end
$$;
comment on function _mindful.session_turns(uuid, integer) is
'Returns the last messages of a session, newest first. Sorting is off: without statistics, the planner would sort all memories of the tenant.';

drop function session_context(uuid, text, text, integer, integer);
insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('quota_memories', 'integer', 0, 1000000000, '{global}', '0', 'How many memories a tenant may have; 0 is any number.'),
    ('quota_mb', 'integer', 0, 1000000000, '{global}', '0',
        'How many megabytes of content and metadata a tenant''s memories may have; 0 is any number.'),
    ('quota_jobs', 'integer', 0, 1000000000, '{global}', '0', 'How many embeddings of a tenant may wait in embedding_job; 0 is any number.');

create function _mindful.quota_memory() returns trigger
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    most bigint := mindful.setting_get('quota_memories') #>> '{}';
    most_mb bigint := mindful.setting_get('quota_mb') #>> '{}';
    found record;
begin
    -- The server's own work is for all tenants.
    if most = 0 and most_mb = 0 or not row_security_active(tg_relid) then
        return null;
    end if;
    select sum(c.memories) as memories, sum(c.bytes) / 1048576 as mb into found
    from mindful.memory_count c
    where c.tenant = (select _mindful.tenant());
    if tg_op = 'INSERT' and most > 0 and found.memories > most then
        perform _mindful.raise('53400', format('%s memories are more than quota_memories, %s', found.memories, most),
            'Forget some with memory_forget or memory_prune, or have an administrator raise the setting quota_memories.');
    elsif most_mb > 0 and found.mb > most_mb then
        if tg_op = 'UPDATE' then  -- What makes memories smaller is not refused.
            if (select sum(_mindful.memory_bytes(n.content, n.metadata)) from new_rows n)
                <= (select sum(_mindful.memory_bytes(o.content, o.metadata)) from old_rows o)
            then
                return null;
            end if;
        end if;
        perform _mindful.raise('53400', format('memories of %s MB are more than quota_mb, %s', round(found.mb, 3), most_mb),
            'Forget some with memory_forget or memory_prune, or have an administrator raise the setting quota_mb.');
    end if;
    return null;
end
$$;
comment on function _mindful.quota_memory() is 'Raises 53400 where a tenant''s memories exceed the settings quota_memories or quota_mb.';
-- After index_inserted and index_updated, which count: triggers fire by name.
create trigger quota_inserted after insert on memory
    for each statement when (pg_catalog.current_setting('row_security') = 'on' or not _mindful.is_restore()) execute function _mindful.quota_memory();
create trigger quota_updated after update on memory referencing old table as old_rows new table as new_rows
    for each statement when (pg_catalog.current_setting('row_security') = 'on' or not _mindful.is_restore()) execute function _mindful.quota_memory();

create function _mindful.quota_job() returns trigger
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
set enable_seqscan = off
as $$
declare
    most bigint := mindful.setting_get('quota_jobs') #>> '{}';
begin
    if most > 0 and row_security_active(tg_relid) and (
        select count(*) from (select from mindful.embedding_job j where j.tenant = (select _mindful.tenant()) limit most + 1) j
    ) > most then
        perform _mindful.raise('53400', format('more than %s embeddings wait, which is quota_jobs', most),
            'Wait until a worker has run, or have an administrator raise the setting quota_jobs.');
    end if;
    return null;
end
$$;
comment on function _mindful.quota_job() is 'Raises 53400 where more of a tenant''s jobs wait than the setting quota_jobs allows.';
create trigger quota_inserted after insert on embedding_job
    for each statement when (pg_catalog.current_setting('row_security') = 'on' or not _mindful.is_restore()) execute function _mindful.quota_job();
insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('core_memory_tokens', 'integer', 0, 1000000, '{global,user,session}', '256',
        'How many tokens of core memories, those whose metadata say {"core": true}, are shown with every message.'),
    ('chat_memories', 'integer', 0, 50, '{global,user,session}', '3',
        'How many recalled memories are shown with a message at most, where a call does not say it.'),
    ('chat_temperature', 'number', 0, 10, '{global,user,session}', '0',
        'The temperature of chats'' answers, where a call does not say it; 0 always takes the likeliest token.');

create index memory_core on memory (tenant, id) where metadata -> 'core' = 'true';

create function _mindful.core_memory() returns table (id bigint, content text)
language sql stable parallel safe security invoker rows 5
begin atomic
    select m.id, m.content
    from mindful.memory m
    where m.tenant = (select _mindful.tenant()) and m.metadata -> 'core' = 'true'
        and (m.valid_from is null or m.valid_from <= pg_catalog.now())
        and (m.valid_to is null or m.valid_to > pg_catalog.now())
    order by m.importance desc, m.id
    limit 50;
end;
comment on function _mindful.core_memory() is 'What is shown with every message: memories whose metadata say {"core": true} and that are valid now, the most important first.';

create function _mindful.session_read(session_id uuid, turns integer, model text, message text default null) returns json
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_sort = off
as $$
begin
    if message is not null then
        perform _mindful.text_argument('message', message);
    end if;
    return json_build_object(
        'settings', _mindful.settings(session_id),
        'prompts', (
            select json_object_agg(d.key, json_build_object('text', d.prompt, 'quoted', d.choices is null) order by d.key)
            from mindful.setting_definition d where d.prompt is not null
        ),
        'session', (
            select json_build_object('system_prompt', s.system_prompt) from mindful.session s
            where s.tenant = (select _mindful.tenant()) and s.session_id = session_read.session_id
        ),
        'turns', (select json_agg(t) from _mindful.session_turns(session_id, turns) t),
        'shown_from', (
            select case
                when jsonb_typeof(m.metadata -> 'shown_from') = 'number'
                    and (m.metadata -> 'shown_from')::numeric between 1 and 2147483647
                    then (m.metadata -> 'shown_from')::integer
            end
            from mindful.memory m
            where m.tenant = (select _mindful.tenant()) and m.session_id = session_read.session_id
                and m.turn > 0 and m.role = 'assistant' and m.metadata ->> 'model' = session_read.model
            order by m.turn desc
            limit 1
        ),
        'core', (select json_agg(c) from _mindful.core_memory() c),
        'labelled', exists (select from mindful.outcome o where o.tenant = (select _mindful.tenant()))
    );
end
$$;
comment on function _mindful.session_read(uuid, integer, text, text) is
'Returns what a chat reads before it recalls: the settings in force, the sentences that settings add to the system prompt, the session, its last turns (newest first), the first turn that the model was shown for its last reply there, the core memories, and whether answers have labels. Errors as text_argument for the message.';

create function _mindful.memory_shown(ids bigint[]) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    with free as (
        select a.id from mindful.memory_access a
        where a.tenant = (select _mindful.tenant()) and a.id = any (ids)
        for update skip locked
    )
    update mindful.memory_access a
    set access_count = a.access_count + 1, last_accessed_at = now()
    from free f
    where a.tenant = (select _mindful.tenant()) and a.id = f.id;
    insert into mindful.memory_access (id)
    select m.id from mindful.memory m
    where m.tenant = (select _mindful.tenant()) and m.id = any (ids)
        and not exists (select from mindful.memory_access a where a.tenant = (select _mindful.tenant()) and a.id = m.id)
    order by m.id
    on conflict do nothing;
end
$$;
comment on function _mindful.memory_shown(bigint[]) is 'Counts that memories were shown; a row that another transaction is counting in is left to it.';

create function session_context(
    session_id uuid,
    query text default null,
    model text default null,
    max_tokens integer default 256,
    memories integer default null
) returns table (
    part text, role text, content text, tokens integer, memory_id bigint, score double precision, reason text
)
language plpython3u volatile parallel unsafe security invoker cost 10000 rows 10
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.conversation.context import session_context
return session_context(session_id, query, model, max_tokens, memories)
$python$;
comment on function session_context(uuid, text, text, integer, integer) is
'What the model would be shown for a message in a session, part by part in its order, with its tokens (those that the chat template adds included, at most) and the reason: the system prompt with the core memories and the summaries of turns that left the window, the recalled memories (they stand in the message), the newest turns that fit the context beside max_tokens of answer, the message. Memories NULL: as many as the setting chat_memories says. Without a query, the session''s last message if the user wrote it. Errors: 22004, 22023, 42704, 55000 (no message waits), 54000 (the message alone is too long).';
insert into setting_definition (key, type, scopes, initial, description, choices) values
    ('session_summary', 'text', '{global,user,session}', '"extract"',
        'How turns that leave the window are summarized: extract (their telling sentences, after the reply), model (by the generator, when session_summarize is called), or off.',
        '{extract,model,off}');

create function _mindful.recap_source(session_id uuid) returns text
language sql immutable parallel safe security invoker
begin atomic
    select 'session ' || session_id::text;
end;
comment on function _mindful.recap_source(uuid) is
'Returns the source of a session''s summaries. Their source_key names the turns.';

create function _mindful.recap_turns(session_id uuid, first integer, last integer)
returns table (id bigint, turn integer, role text, content text, content_hash text)
language sql stable parallel safe security invoker
begin atomic
    select m.id, m.turn, m.role, m.content, m.content_hash
    from mindful.memory m
    where m.tenant = (select _mindful.tenant()) and m.session_id = recap_turns.session_id
        and m.turn between first and last and m.role <> 'system'
    order by m.turn;
end;
comment on function _mindful.recap_turns(uuid, integer, integer) is
'Returns the messages that a summary covers.';

create function _mindful.recap_missing(session_id uuid, segment integer, most integer)
returns table (first integer, last integer)
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
begin
    -- OFFSET 0 looks each summary up by its key.
    return query
    select s.first, s.first + segment - 1
    from (
        select pg_catalog.max(m.turn) as turns from mindful.memory m
        where m.tenant = (select _mindful.tenant()) and m.session_id = recap_missing.session_id
    ) session
    cross join lateral generate_series((session.turns / segment - 1) * segment + 1, 1, -segment) s (first)
    left join lateral (
        select true as found from mindful.memory m
        where m.tenant = (select _mindful.tenant()) and m.source = _mindful.recap_source(recap_missing.session_id)
            and m.source_key = format('turns %s to %s', s.first, s.first + segment - 1)
        offset 0
    ) summary on true
    where summary.found is null
        and exists (select from _mindful.recap_turns(recap_missing.session_id, s.first, s.first + segment - 1))
    order by s.first desc
    limit most;
end
$$;
comment on function _mindful.recap_missing(uuid, integer, integer) is
'Returns the full segments of a session that have no summary, newest first.';

create function _mindful.recap_write(
    session_id uuid,
    first integer,
    last integer,
    content text,
    method text,
    ids bigint[],
    hashes text[],
    quotes text[]
) returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_column
declare
    summary bigint;
begin
    -- Whoever changes or forgets a turn from here on waits, and then finds the summary and deletes it.
    perform from mindful.memory m
    where m.tenant = (select _mindful.tenant()) and m.session_id = recap_write.session_id
        and m.turn between first and last
    order by m.turn for share;
    if hashes is distinct from (
        select array_agg(t.content_hash order by t.turn) from _mindful.recap_turns(session_id, first, last) t
    ) then
        return null;
    end if;
    insert into mindful.memory (kind, content, session_id, source, source_key, metadata)
    values ('summary', recap_write.content, recap_write.session_id, _mindful.recap_source(recap_write.session_id),
        format('turns %s to %s', first, last),
        jsonb_build_object('from_turn', first, 'to_turn', last, 'method', method))
    on conflict (tenant, source, source_key) where source is not null do nothing
    returning id into summary;
    insert into mindful.memory_evidence (id, source_id, quote)
    select summary, e.source_id, e.quote
    from rows from (unnest(ids), unnest(quotes)) e (source_id, quote)
    where summary is not null
    on conflict do nothing;
    return summary;
end
$$;
comment on function _mindful.recap_write(uuid, integer, integer, text, text, bigint[], text[], text[]) is
'Stores a summary of turns with a quote of each, and returns its id. NULL: the turns have changed since they were read, or another transaction has stored one.';

create function _mindful.recap_delete(tenant text, session_id uuid, turns integer[]) returns void
language sql volatile parallel unsafe security invoker
begin atomic
    delete from mindful.memory m
    where m.tenant = recap_delete.tenant and m.session_id = recap_delete.session_id
        and m.turn is null and m.kind = 'summary'
        and exists (
            select from pg_catalog.unnest(turns) t (turn)
            where pg_catalog.to_jsonb(t.turn) between m.metadata -> 'from_turn' and m.metadata -> 'to_turn'
        );
end;
comment on function _mindful.recap_delete(text, uuid, integer[]) is
'Deletes the summaries of a session that cover these turns.';

create function _mindful.recap_forget() returns trigger
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
set mindful.tenant = ''
as $$
begin
    if tg_op = 'DELETE' then
        perform _mindful.recap_delete(o.tenant, o.session_id, array_agg(o.turn))
        from old_rows o where o.turn > 0 group by o.tenant, o.session_id;
    else
        perform _mindful.recap_delete(o.tenant, o.session_id, array_agg(o.turn))
        from old_rows o, _mindful.memory_changed(o.tenant, o.id, o.content)
        where o.turn > 0 group by o.tenant, o.session_id;
    end if;
    return null;
end
$$;
comment on function _mindful.recap_forget() is
'Deletes summaries of turns that were changed or deleted. The next call or reply makes them again.';
create trigger recap_updated after update on memory referencing old table as old_rows
    for each statement execute function _mindful.recap_forget();
create trigger recap_deleted after delete on memory referencing old table as old_rows
    for each statement execute function _mindful.recap_forget();

create function _mindful.recap_shown(session_id uuid, turn integer)
returns table (id bigint, content text, first text, last text)
language sql stable parallel safe security invoker rows 10
begin atomic
    select m.id, m.content, m.metadata ->> 'from_turn', m.metadata ->> 'to_turn'
    from mindful.memory m
    where m.tenant = (select _mindful.tenant()) and m.session_id = recap_shown.session_id
        and m.turn is null and m.kind = 'summary' and m.metadata -> 'from_turn' < pg_catalog.to_jsonb(recap_shown.turn)
    order by m.metadata -> 'from_turn' desc
    limit 10;
end;
comment on function _mindful.recap_shown(uuid, integer) is
'Returns the summaries of a session that cover turns before a turn, newest first.';

create function session_summarize(session_id uuid, method text default null) returns integer
language plpython3u volatile parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.conversation.recap import session_summarize
return session_summarize(session_id, method)
$python$;
comment on function session_summarize(uuid, text) is
'Summarizes turns of a session that have no summary yet, ten turns each, and returns the number of new summaries.
A summary is a memory of kind summary with its turns as evidence. If one of its turns is changed or deleted, it is deleted, and the next call or reply makes it again. method (NULL: the setting session_summary): extract selects the most informative sentences, in 100 tokens. model lets the default generator write it; if the result has names or numbers that the turns do not have, sentences are selected instead. off makes none.
Errors: 22004, 22023 (unknown method), 42704 (the tenant has no such session), 55000 (no default generator), 57014 (cancelled).';
insert into setting_definition (key, type, high, scopes, initial, description, choices, prompt) values
    ('assistant_tone', 'text', null, '{global,user,session}', 'null', 'The tone of answers.',
        '{formal,informal,friendly,neutral}', 'Answer in a %s tone.'),
    ('answer_length', 'text', null, '{global,user,session}', 'null', 'How long answers are.',
        '{short,long}', 'Give %s answers.'),
    ('answer_language', 'text', null, '{global,user,session}', 'null', 'The language of answers.',
        '{Arabic,Chinese,Czech,Danish,Dutch,English,Finnish,French,German,Greek,Hebrew,Hindi,Hungarian,Indonesian,Italian,Japanese,Korean,Norwegian,Persian,Polish,Portuguese,Romanian,Russian,Spanish,Swedish,Thai,Turkish,Ukrainian,Vietnamese}',
        'Answer in %s.'),
    ('user_name', 'text', 60, '{user,session}', 'null', 'What the user wants to be called.', null, 'The user is called %s.');
insert into setting_definition (key, type, scopes, initial, description) values
    ('assistant_changes', 'boolean', '{global,user,session}', 'true',
        'Whether the assistant may change, when a message asks for it, the settings that have a prompt.');

alter table setting add column message_id bigint,
    add foreign key (tenant, message_id) references memory on delete cascade,
    add foreign key (tenant, session_id) references session on delete cascade;
create index on setting (tenant, message_id) where message_id is not null;
create index on setting (tenant, session_id) where session_id is not null;
comment on column setting.message_id is 'The message that asked for it: a change is forgotten with it.';

create function _mindful.assistant_change(key text, value jsonb, scope text, session_id uuid, reason text, message_id bigint) returns void
language sql volatile parallel unsafe security invoker
begin atomic
    insert into mindful.setting (scope, session_id, key, value, reason, message_id, changed_by)
    select assistant_change.scope, case when assistant_change.scope = 'session' then assistant_change.session_id end,
        d.key, assistant_change.value, assistant_change.reason, assistant_change.message_id, 'assistant for ' || current_user
    from mindful.setting_definition d
    where d.key = assistant_change.key and d.prompt is not null
        and assistant_change.scope = any (array['user', 'session']);
end;
comment on function _mindful.assistant_change(text, jsonb, text, uuid, text, bigint) is
'Changes a setting as a message of the user''s has asked the assistant to, for the reason of these words; nothing but settings that have a prompt.';

create function setting_undo(change_id bigint) returns jsonb
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    undone mindful.setting;
    newer bigint;
begin
    perform _mindful.writable();
    select s.* into undone from mindful.setting s
    where s.tenant = any (array['', (select _mindful.tenant())]) and s.id = change_id;
    if not found then
        perform _mindful.raise('42704', format('there is no change %s of a setting', coalesce(change_id::text, 'null')),
            'Changes are listed in mindful.setting.');
    end if;
    select max(s.id) into newer from mindful.setting s
    where s.tenant = undone.tenant and s.key = undone.key and s.scope = undone.scope
        and s.session_id is not distinct from undone.session_id;
    if newer > undone.id then
        perform _mindful.raise('55000', format('setting %s was changed again by change %s', undone.key, newer),
            format('Undo that first, or set it with setting_set(%L, ...).', undone.key));
    end if;
    return mindful.setting_set(
        undone.key,
        coalesce(
            (
                select s.value from mindful.setting s
                where s.tenant = undone.tenant and s.key = undone.key and s.scope = undone.scope
                    and s.session_id is not distinct from undone.session_id and s.id < undone.id
                order by s.id desc limit 1
            ),
            'null'
        ),
        undone.scope, undone.session_id, format('undo of change %s', undone.id)
    );
end
$$;
comment on function setting_undo(bigint) is
'Restores the value that a setting had in its scope before the change with this id, and returns the value now in force.
The undo is a change too and can be undone. Errors: 42704 (the tenant has no such change), 55000 (a later change exists), 42501 (scope global needs mindful_admin).';
create index memory_reply on memory (tenant, content_hash) where role in ('assistant', 'clarification');
create or replace function session_continue(messages jsonb) returns uuid
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    said jsonb := '[]';
    prompt text;
    found_id uuid;
    started_id uuid;
begin
    perform _mindful.writable();
    perform _mindful.json_argument('messages', messages);
    select string_agg(e.element ->> 'content', E'\n\n' order by e.number) filter (where e.element ->> 'role' in ('system', 'developer')),
        coalesce(jsonb_agg(jsonb_build_object('role', e.element ->> 'role', 'content', btrim(e.element ->> 'content', E' \t\n\r'))
            order by e.number) filter (where e.element ->> 'role' not in ('system', 'developer')), '[]')
    into prompt, said
    from _mindful.array_elements('messages', messages, '{role,content,name,tool_calls,tool_call_id,refusal}') e;
    select c.session_id into found_id
    from (
        -- The newest sessions that hold the last reply.
        select m.session_id, max(m.id) as id
        from mindful.memory m
        join mindful.session s on s.tenant = m.tenant and s.session_id = m.session_id
        where m.tenant = (select _mindful.tenant()) and m.kind = 'message' and m.turn > 0
            and s.system_prompt is not distinct from prompt
            and m.content_hash = md5(said -> -1 ->> 'content') and m.role in ('assistant', 'clarification')
        group by m.session_id
        order by max(m.id) desc
        limit 100
    ) c
    where (
        select jsonb_agg(jsonb_build_object(
            'role', case m.role when 'clarification' then 'assistant' else m.role end, 'content', m.content) order by m.turn)
        from mindful.memory m
        where m.tenant = (select _mindful.tenant()) and m.session_id = c.session_id and m.turn > 0
            and m.role in ('user', 'assistant', 'clarification')
    ) = said
    order by c.id desc
    limit 1;
    if found_id is not null then
        return found_id;
    end if;
    started_id := mindful.session_start(system_prompt => prompt);
    if said <> '[]' then
        perform mindful.message_insert_many(started_id, said);
    end if;
    return started_id;
end
$$;
comment on function session_continue(jsonb) is
'Returns the newest session that consists of these messages, or starts one with them. For clients that resend the whole conversation: pass all messages but the last, then call llm_chat with the last one. messages is an array of objects with role and content; those of role system are the session''s system prompt. Errors: 22004, 22023 (bad element), 54000 (over 262144 bytes).';
insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('state_tenant_mb', 'integer', 0, 1048576, '{global}', '256', 'How many megabytes of kept states a tenant may have.'),
    ('state_total_mb', 'integer', 0, 1048576, '{global}', '1024',
        'How many megabytes of kept states all tenants may have together; those that have most lose theirs first.');

-- A cache: it is UNLOGGED, so a crash empties it, standbys do not have it, and dumps leave it out. Parts are added, never
-- rewritten: dead rows are few, but large.
create unlogged table kv_state (
    tenant text not null default _mindful.tenant(),
    session_id uuid,
    list_id uuid,
    thread_id uuid not null generated always as (coalesce(session_id, list_id)) stored,
    model text not null,
    first integer not null check (first >= 0),
    fingerprint text not null,
    tokens integer[] not null,
    state bytea not null,
    mac bytea not null,
    used_at timestamptz not null default clock_timestamp(),
    primary key (tenant, thread_id, model, first),
    foreign key (tenant, session_id) references session on delete cascade
) with (
    autovacuum_vacuum_scale_factor = 0.1,
    toast.autovacuum_vacuum_scale_factor = 0.1,
    toast.autovacuum_vacuum_cost_delay = 0
);
-- pglz does not compress half-precision floats.
alter table kv_state alter column state set storage external;
create index kv_state_session on kv_state (tenant, session_id) where session_id is not null;

comment on table kv_state is 'What generators computed of conversations, part by part, so that any connection goes on without evaluating them again. A cache: deleting rows costs time, never an answer.';
comment on column kv_state.session_id is 'The session whose state this is; NULL for a conversation that its client resends as a whole (llm_complete).';
comment on column kv_state.list_id is 'A random id of a conversation that its client resends as a whole; NULL for a session.';
comment on column kv_state.thread_id is 'The one of session_id and list_id that is not NULL.';
comment on column kv_state.first is 'Position in the prompt of the part''s first token, from 0.';
comment on column kv_state.fingerprint is
'Hash of all that the state depends on beside the tokens: the model file, the context settings and the version of llama.cpp.';
comment on column kv_state.tokens is 'The tokens of this part, which a prompt must have at this position.';
comment on column kv_state.state is 'Keys and values of the tokens, as llama.cpp writes and reads them.';
comment on column kv_state.mac is
'HMAC-SHA256 of the row by a key that only the server''s processes have. llama.cpp trusts the bytes that it loads, so a state without a valid HMAC is not loaded.';
comment on column kv_state.used_at is
'When the session last added this part. Eviction begins with the session whose newest part is oldest.';

alter table kv_state enable row level security, force row level security;
create policy own on kv_state using (tenant = (select _mindful.tenant())) with check (tenant = (select _mindful.tenant_claimed()));

create function _mindful.kv_state_limits(out enabled boolean, out tenant_bytes bigint, out total_bytes bigint)
language sql stable parallel safe security invoker
begin atomic
    select true, 1048576 * (mindful.setting_get('state_tenant_mb') #>> '{}')::bigint,
        1048576 * (mindful.setting_get('state_total_mb') #>> '{}')::bigint;
end;
comment on function _mindful.kv_state_limits() is
'Returns whether states are stored, and their largest size in bytes per tenant and in all.';

create function _mindful.kv_state_parts(thread_id uuid, model text, fingerprint text)
returns table (first integer, tokens integer[])
language plpgsql stable parallel restricted security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_column
begin
    -- On a standby, planning a query on an unlogged table is an error.
    if not pg_is_in_recovery() and (select l.enabled from _mindful.kv_state_limits() l) then
        return query
        select k.first, k.tokens
        from mindful.kv_state k
        where k.tenant = (select _mindful.tenant()) and k.thread_id = kv_state_parts.thread_id
            and k.model = kv_state_parts.model and k.fingerprint = kv_state_parts.fingerprint
        order by k.first;
    end if;
end
$$;
comment on function _mindful.kv_state_parts(uuid, text, text) is
'Returns the tokens of the stored state of a session, part by part; nothing on a standby.';

create function _mindful.kv_state_thread(tokens integer[], model text, fingerprint text)
returns table (thread_id uuid, is_whole boolean)
language plpgsql stable parallel restricted security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_column
begin
    if not pg_is_in_recovery() and (select l.enabled from _mindful.kv_state_limits() l) then
        return query
        select c.thread_id, c.matched = c.kept
        from (
            select p.thread_id, max(p.last) as kept, max(p.used_at) as used_at,
                coalesce(max(p.last) filter (where p.is_like), 0) as matched
            from (
                select k.thread_id, k.first + cardinality(k.tokens) as last, k.used_at,
                    bool_and(k.tokens = kv_state_thread.tokens[k.first + 1:k.first + cardinality(k.tokens)])
                        over (partition by k.thread_id order by k.first) as is_like
                from mindful.kv_state k
                where k.tenant = (select _mindful.tenant()) and k.list_id is not null
                    and k.model = kv_state_thread.model and k.fingerprint = kv_state_thread.fingerprint
            ) p
            group by p.thread_id
        ) c
        where c.matched > 0
        order by c.matched desc, c.matched = c.kept desc, c.used_at desc
        limit 1;
    end if;
end
$$;
comment on function _mindful.kv_state_thread(integer[], text, text) is
'Returns the resent conversation with the longest kept beginning of these tokens, and whether nothing else is kept of it.';

create function _mindful.kv_state_read(thread_id uuid, model text, first integer)
returns table (tenant text, state bytea, mac bytea)
language plpgsql stable parallel restricted security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_column
begin
    return query
    select k.tenant, k.state, k.mac
    from mindful.kv_state k
    where k.tenant = (select _mindful.tenant()) and k.thread_id = kv_state_read.thread_id
        and k.model = kv_state_read.model and k.first = kv_state_read.first;
end
$$;
comment on function _mindful.kv_state_read(uuid, text, integer) is
'Returns the state of one part of a session, with its tenant.';

create function _mindful.kv_state_write(
    session_id uuid,
    list_id uuid,
    model text,
    first integer,
    fingerprint text,
    tokens integer[],
    state bytea,
    mac bytea
) returns boolean
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_column
begin
    perform _mindful.delete('kv_state', jsonb_agg(to_jsonb(k)))
    from (
        select k.thread_id, k.model, k.first from mindful.kv_state k
        where k.tenant = (select _mindful.tenant()) and k.thread_id = coalesce(kv_state_write.session_id, kv_state_write.list_id)
            and k.model = kv_state_write.model
            and (k.first >= kv_state_write.first or k.fingerprint <> kv_state_write.fingerprint)
    ) k;
    insert into mindful.kv_state (session_id, list_id, model, first, fingerprint, tokens, state, mac)
    values (kv_state_write.session_id, kv_state_write.list_id, kv_state_write.model, kv_state_write.first,
        kv_state_write.fingerprint, kv_state_write.tokens, kv_state_write.state, kv_state_write.mac);
    return true;
exception
    -- A full disk or a lock timeout must not lose the reply. `others` excludes cancels.
    when others then
        raise warning using message = format('mindful: the state of conversation %s is not kept: %s',
            coalesce(kv_state_write.session_id, kv_state_write.list_id), sqlerrm),
            hint = 'The conversation goes on, more slowly on its next connection.';
        return false;
end
$$;
comment on function _mindful.kv_state_write(uuid, uuid, text, integer, text, integer[], bytea, bytea) is
'Keeps the state of one part of a conversation in place of all from its position on, and tells whether it did; a failure is a warning.';

create function _mindful.kv_state_evict() returns bigint
language sql volatile parallel unsafe security definer
begin atomic
    with conversation as (
        select k.tenant, k.thread_id, k.model, pg_catalog.max(k.used_at) as used_at,
            -- A row without a state costs, too.
            pg_catalog.sum(pg_catalog.octet_length(k.state) + pg_catalog.pg_column_size(k.tokens) + 500) as bytes
        from mindful.kv_state k
        group by k.tenant, k.thread_id, k.model
    ),
    running as (
        select c.*,
            pg_catalog.sum(c.bytes) over (partition by c.tenant order by c.used_at desc, c.thread_id, c.model) as tenant_bytes
        from conversation c
    ),
    -- A tenant with few bytes loses nothing to a tenant with many.
    filled as (
        select r.*, pg_catalog.sum(r.bytes) over (order by r.tenant_bytes, r.tenant, r.thread_id, r.model) as total_bytes
        from running r
    ),
    -- Rows that another transaction has locked are skipped.
    evicted as (
        select k.tenant, k.thread_id, k.model, k.first
        from filled r
        cross join _mindful.kv_state_limits() l
        join mindful.kv_state k on k.tenant = r.tenant and k.thread_id = r.thread_id and k.model = r.model
        where r.tenant_bytes > l.tenant_bytes or r.total_bytes > l.total_bytes
        for update of k skip locked
    ),
    deleted as (
        delete from mindful.kv_state k
        using evicted e
        where k.tenant = e.tenant and k.thread_id = e.thread_id and k.model = e.model and k.first = e.first
        returning 1
    )
    select pg_catalog.count(*) from deleted;
end;
comment on function _mindful.kv_state_evict() is
'Deletes states above the limits, and returns the number of parts. Above the limit of a tenant, its least recently used sessions lose theirs; above the limit of all, the tenants with most. It runs with the owner''s rights, because the limit of all concerns every tenant.';

create function _mindful.kv_state_inserted() returns trigger
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
set mindful.tenant = ''
as $$
begin
    perform _mindful.kv_state_evict();
    return null;
end
$$;
comment on function _mindful.kv_state_inserted() is
'Enforces the limits of states after each insert.';
create trigger kv_state_inserted after insert on kv_state for each statement execute function _mindful.kv_state_inserted();
create type completion as (
    choice integer,
    text text,
    tool_calls jsonb,
    finish_reason text,
    logprobs jsonb,
    model text,
    prompt_tokens integer,
    cached_tokens integer,
    completion_tokens integer,
    confidence real,
    signals jsonb,
    first_token_ms real,
    total_ms real
);
comment on type completion is 'One answer to a list of messages, what it cost, and how sure the model was.';

create type completion_piece as (
    choice integer,
    text text,
    token text,
    bytes bytea,
    logprob real,
    alternatives jsonb,
    tool_call jsonb,
    finish_reason text,
    usage jsonb
);
comment on type completion_piece is 'A part of an answer to a list of messages; the last row of a choice has finish_reason and usage.';

create function llm_complete(
    messages jsonb,
    model text default null,
    max_tokens integer default 256,
    temperature double precision default 0,
    top_p double precision default 0.95,
    top_k integer default 40,
    min_p double precision default 0.05,
    presence_penalty double precision default 0,
    frequency_penalty double precision default 0,
    repeat_penalty double precision default 1,
    logit_bias jsonb default null,
    stop text[] default '{}',
    seed integer default null,
    n integer default 1,
    json_schema jsonb default null,
    grammar text default null,
    tools jsonb default null,
    tool_choice text default 'auto',
    top_logprobs integer default null
) returns setof completion
language plpython3u volatile parallel unsafe security invoker cost 100000 rows 1
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.conversation.completion import llm_complete
return llm_complete(messages, model, max_tokens, temperature, top_p, top_k, min_p, presence_penalty, frequency_penalty, repeat_penalty, logit_bias, stop, seed, n, json_schema, grammar, tools, tool_choice, top_logprobs)
$python$;
comment on function llm_complete(jsonb, text, integer, double precision, double precision, integer, double precision, double precision, double precision, double precision, jsonb, text[], integer, integer, jsonb, text, jsonb, text, integer) is
'Answers a list of messages, one row per choice (n, 1 to 32); it reads and writes no memory. messages is an array of objects with role (system, developer, user, assistant, tool) and content, a text or an array of parts of type text, and for calls tool_calls and tool_call_id; or a JSON string, which is continued without the chat template. If the last message is the assistant''s, the answer continues it. NULL gives no rows. max_tokens -1 is as many as fit. top_k 0, top_p 1 and min_p 0 keep all tokens; penalties concern the tokens of the answer. logit_bias maps token ids to numbers from -100 to 100. A seed makes a call repeatable on the same machine; choice i uses seed + i. json_schema and grammar as llm_generate, but an answer cut by max_tokens is returned with finish_reason length. tools is an array of {"type": "function", "function": {name, description, parameters}}; tool_choice is none, auto, required or a function''s name; the arguments of a call fit the parameters. The caller runs the function. With top_logprobs (0 to 20) logprobs holds each token with its log-probability (nats, temperature 1) and the likeliest in its place. finish_reason is stop, length or tool_calls. The state of a conversation is kept (state_tenant_mb), so messages that are sent again cost no evaluation. Errors: 22004, 22023 (bad argument), 42704 (no such model), 54000 (longer than the context), 57014 (cancelled).';

create function llm_complete_stream(
    messages jsonb,
    model text default null,
    max_tokens integer default 256,
    temperature double precision default 0,
    top_p double precision default 0.95,
    top_k integer default 40,
    min_p double precision default 0.05,
    presence_penalty double precision default 0,
    frequency_penalty double precision default 0,
    repeat_penalty double precision default 1,
    logit_bias jsonb default null,
    stop text[] default '{}',
    seed integer default null,
    n integer default 1,
    json_schema jsonb default null,
    grammar text default null,
    tools jsonb default null,
    tool_choice text default 'auto',
    top_logprobs integer default null
) returns setof completion_piece
language plpython3u volatile parallel unsafe security invoker cost 100000 rows 100
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.conversation.completion import llm_complete_stream
return llm_complete_stream(messages, model, max_tokens, temperature, top_p, top_k, min_p, presence_penalty, frequency_penalty, repeat_penalty, logit_bias, stop, seed, n, json_schema, grammar, tools, tool_choice, top_logprobs)
$python$;
comment on function llm_complete_stream(jsonb, text, integer, double precision, double precision, integer, double precision, double precision, double precision, double precision, jsonb, text[], integer, integer, jsonb, text, jsonb, text, integer) is
'As llm_complete, one row per piece of text as it is made, choice after choice. With top_logprobs there is one row per token; bytes are the token''s own, as a token may be part of a character. A call''s first row has its id and name, the following ones more of its arguments. The last row of a choice has finish_reason, and in usage the other columns of completion. Read it through a cursor, in the select list: select llm_complete_stream(...).';
insert into setting_definition (key, type, low, high, scopes, initial, description, choices) values
    ('chat_tools', 'text', null, null, '{user,session}', '"off"',
        'Which registered functions a chat may call: none (off), those that only read (read), all (write).', '{off,read,write}'),
    ('tool_calls', 'integer', 1, 8, '{global,user,session}', '1', 'How many functions are called for a message at most.', null),
    ('tool_timeout_ms', 'integer', 10, 600000, '{global,user,session}', '5000', 'How long one call may take.', null),
    ('tool_result_tokens', 'integer', 16, 100000, '{global,user,session}', '256',
        'How much of a function''s result is shown and kept.', null),
    ('tool_threshold', 'number', -1, 1, '{global,user,session}', '0.3',
        'Cosine similarity of a message and a function''s description from which on it is called.', null);

create table tool (
    tenant text not null default _mindful.tenant(),
    registered_by text not null default current_user,
    name text not null check (name ~ '^[a-z][a-z0-9_]{0,62}$'),
    function text not null,
    description text not null check (btrim(description) <> '' and length(description) <= 1000),
    json_schema jsonb not null check (jsonb_typeof(json_schema) = 'object'),
    read_only boolean not null default true,
    definition text not null,
    accepted boolean not null default false,
    created_at timestamptz not null default now(),
    primary key (tenant, registered_by, name)
);
create unique index tool_offer on tool (tenant, name) where tenant = '';
comment on table tool is 'Functions that a chat may call for the role that registered them, where the setting tools allows it, and those that administrators offer to all.';
comment on column tool.tenant is
'The tenant of the tool; empty for an offer to all.';
comment on column tool.registered_by is 'The role that registered it: chats of no other role call it.';
comment on column tool.function is 'The function''s name and argument types; a text, so that upgrades and restores do not depend on it.';
comment on column tool.read_only is
'Whether it is called in a read-only transaction that is rolled back.';
comment on column tool.definition is 'Hash of the function''s definition and owner when it was registered: a function that was replaced is not called.';
comment on column tool.accepted is 'Whether it is an offer that the role accepted; it is called as long as the offer stands unchanged.';
alter table tool enable row level security, force row level security;
create policy own on tool using (tenant = (select _mindful.tenant()) and registered_by = current_user::text)
    with check (tenant = (select _mindful.tenant_claimed()) and registered_by = current_user::text);
create policy read_offer on tool for select using (tenant = '');
create policy write_offer on tool to mindful_admin using (tenant = '') with check (tenant = '' and registered_by = current_user::text);
select pg_catalog.pg_extension_config_dump('mindful.tool', '');

create function _mindful.tool_function(function text)
returns table (
    relation text, arguments jsonb, returns_set boolean, executable boolean, trusted boolean, kind text, definition text
)
language sql stable parallel safe security invoker rows 1
begin atomic
    select pg_catalog.format('%I.%I', n.nspname, p.proname),
        (
            select coalesce(pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object(
                'name', a.name, 'type', pg_catalog.format_type(a.type, null), 'pseudo', t.typtype = 'p',
                'required', a.position <= p.pronargs - p.pronargdefaults
            ) order by a.position), '[]')
            from (
                select p.proargnames[u.at] as name, u.type,
                    pg_catalog.row_number() over (order by u.at) as position
                from pg_catalog.unnest(coalesce(p.proallargtypes, p.proargtypes::oid[])) with ordinality u (type, at)
                where coalesce(p.proargmodes[u.at], 'i') in ('i', 'b', 'v')
            ) a
            join pg_catalog.pg_type t on t.oid = a.type
        ),
        p.proretset,
        pg_catalog.has_function_privilege(p.oid, 'execute')
            and pg_catalog.has_schema_privilege(n.oid, 'usage'),
        p.proowner = me.oid or owner.rolsuper or p.proowner = (
            select d.datdba from pg_catalog.pg_database d where d.datname = pg_catalog.current_database()
        ),
        case when p.prokind <> 'f' then 'is no ordinary function'
            when p.provariadic <> 0 then 'is VARIADIC'
            when p.prorettype = any ('{trigger,event_trigger,internal}'::regtype[]) then 'is called by the server alone'
            when p.prosecdef then 'runs with its owner''s rights'
            when n.nspname like 'pg\_%' or n.nspname = any (array['information_schema', 'mindful', '_mindful'])
                then 'belongs to the server or to mindful'
            when exists (
                select from pg_catalog.pg_depend d
                where d.classid = 'pg_proc'::regclass and d.objid = p.oid and d.deptype = 'e'
            ) then 'belongs to an extension'
            when not l.lanpltrusted then 'is written in a language that is not trusted'
        end,
        case when p.prokind in ('f', 'p') then pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(
            owner.rolname || ' ' || pg_catalog.pg_get_functiondef(p.oid), 'UTF8'
        )), 'hex') end
    from pg_catalog.pg_proc p
    join pg_catalog.pg_namespace n on n.oid = p.pronamespace
    join pg_catalog.pg_language l on l.oid = p.prolang
    join pg_catalog.pg_roles owner on owner.oid = p.proowner
    join pg_catalog.pg_roles me on me.rolname = current_user
    where p.oid = pg_catalog.to_regprocedure(function);
end;
comment on function _mindful.tool_function(text) is
'A function as the caller may use it as a tool: executable with the caller''s rights, trusted if it belongs to the caller, a superuser or the database''s owner. kind says why it can be no tool at all; NULL: it can. definition is a hash of its definition and owner.';

create function _mindful.tool_role() returns text
language sql stable parallel safe security invoker
begin atomic
    select case
        when r.rolsuper then 'a superuser has no tools'
        -- A tool could RESET ROLE, or SESSION AUTHORIZATION, which session_user does not show.
        when not pg_catalog.pg_has_role(current_user, a.usesysid, 'member')
            then pg_catalog.format('%s has no tools in a connection of %s', current_user, pg_catalog.pg_get_userbyid(a.usesysid))
    end
    from pg_catalog.pg_roles r
    cross join pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid()) a
    where r.rolname = current_user;
end;
comment on function _mindful.tool_role() is 'Why the current role has no tools in this connection; NULL: it has.';

create function _mindful.tool_check() returns trigger
language plpgsql stable parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    found record;
begin
    select f.* into found from _mindful.tool_function(new.function) f;
    if found.definition is null or found.kind is not null then
        perform _mindful.raise('42809', format('%s %s', new.function, coalesce(found.kind, 'is no function')),
            'Write a function in SQL or PL/pgSQL that calls it, SECURITY INVOKER and without VARIADIC, and register that.');
    elsif new.tenant <> '' and not (found.executable and found.trusted) then
        perform _mindful.raise('42501', format('%s is not yours to call as a tool', new.function),
            'You need EXECUTE on it, and it must belong to you, a superuser or the database''s owner.');
    elsif new.tenant <> '' and _mindful.tool_role() is not null then
        perform _mindful.raise('42501', _mindful.tool_role(),
            'Connect as the role itself, which is no superuser: a tool could take any role that the connection can.');
    end if;
    new.definition := found.definition;
    return new;
end
$$;
comment on function _mindful.tool_check() is 'Refuses what can be no tool, however it is inserted, and keeps the hash of the function''s definition.';
create trigger checked before insert or update on tool for each row
    when (pg_catalog.current_setting('row_security') = 'on' or not _mindful.is_restore()) execute function _mindful.tool_check();

create function _mindful.tool_delete(name text, scope text) returns bigint
language sql volatile parallel unsafe security invoker
begin atomic
    select coalesce(pg_catalog.sum(d.deleted), 0)::bigint
    from (
        select _mindful.delete('tool', pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object(
            'registered_by', t.registered_by, 'name', t.name)), t.tenant) as deleted
        from mindful.tool t
        where t.name = tool_delete.name
            and case scope
                when 'global' then t.tenant = '' and pg_catalog.pg_has_role(current_user, 'mindful_admin', 'usage')
                when 'user' then t.tenant = (select _mindful.tenant_required()) and t.registered_by = current_user
            end
        group by t.tenant
    ) d;
end;
comment on function _mindful.tool_delete(text, text) is 'Deletes a tool of the caller''s, or an administrator''s offer (scope global); returns how many there were.';

create function _mindful.tool_insert(
    name text, function text, description text, json_schema jsonb, read_only boolean, scope text
) returns text
language sql volatile parallel unsafe security invoker
begin atomic
    select _mindful.tool_delete(name, case scope when 'global' then 'global' else 'user' end);
    insert into mindful.tool (tenant, name, function, description, json_schema, read_only)
    values (case scope when 'global' then '' else _mindful.tenant_required() end, name, function, description, json_schema, read_only)
    on conflict do nothing
    returning name;
end;
comment on function _mindful.tool_insert(text, text, text, jsonb, boolean, text) is 'Enters a tool, or replaces it, and returns its name; NULL if another transaction has just entered it.';

create function tool_register(
    name text,
    function regprocedure,
    description text,
    json_schema jsonb default null,
    read_only boolean default true,
    scope text default 'user'
) returns text
language plpython3u volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.conversation.tool import tool_register
return tool_register(name, function, description, json_schema, read_only, scope)
$python$;
comment on function tool_register(text, regprocedure, text, jsonb, boolean, text) is
'Lets chats call a function where the setting tools allows it, and returns its name; one of the same name is replaced. The description says in a sentence what it does: a message like it leads to a call. The JSON schema of its arguments, an object whose properties are named as they are, is made of their types where none is given; the generator is held to it. A function runs with the rights of the role that registered it, in chats of that role alone, and with search_path pg_catalog, mindful, pg_temp. It is written in a trusted language, belongs to that role, a superuser or the database''s owner, and is not SECURITY DEFINER, nor a function of the server or of an extension. A function that is replaced is not called until it is registered again. With read_only it runs in a subtransaction that cannot write and is undone; that is no protection against a function that starts programs or reads files, so register only what you would run yourself. Scope user registers it for the caller; global, for administrators, offers it to all, and whoever wants it calls tool_accept. Superusers have no tools. Errors: 22004, 22023 (bad name, description, schema or scope), 42809 (not a function that can be a tool), 42501 (not executable, not trusted, or a superuser; global is for mindful_admin), 55000 (no tenant is set).';

create function tool_accept(name text) returns text
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    offer mindful.tool;
    current_definition text;
begin
    perform _mindful.writable();
    select t.* into offer from mindful.tool t where t.tenant = '' and t.name = tool_accept.name;
    if not found then
        perform _mindful.raise('42704', format('no tool named %s is offered', coalesce(quote_literal(name), 'null')),
            'Offers are the rows of mindful.tool whose tenant is empty.');
    end if;
    select f.definition into current_definition from _mindful.tool_function(offer.function) f;
    if current_definition is distinct from offer.definition then
        perform _mindful.raise('55000', format('%s was replaced since it was offered', offer.function),
            'An administrator offers it again with tool_register.');
    end if;
    perform _mindful.tool_delete(offer.name, 'user');
    insert into mindful.tool (tenant, name, function, description, json_schema, read_only, accepted)
    values (_mindful.tenant_required(), offer.name, offer.function, offer.description, offer.json_schema, offer.read_only, true);
    return offer.name;
end
$$;
comment on function tool_accept(text) is
'Lets chats of the caller call a tool that an administrator offers to all, and returns its name.
A tool of the caller with that name is replaced. It is called as long as the offer is unchanged. tool_unregister removes it. Errors: 42704 (no such offer), 42501 (not executable, or a superuser), 55000 (replaced since it was offered, or no tenant is set).';

create function tool_unregister(name text, scope text default 'user') returns boolean
language sql volatile parallel unsafe security invoker
begin atomic
    select _mindful.writable();
    with deleted as (
        select _mindful.tool_delete(name, scope) as deleted
    )
    select case
        when scope = any (array['user', 'global']) then (select d.deleted > 0 from deleted d)
        else _mindful.raise('22023', 'scope is ' || coalesce(scope, 'null'), 'Scopes are user and global.')
    end;
end;
comment on function tool_unregister(text, text) is
'Removes a tool, or with scope global an offer, and returns whether it existed. Error 22023: no such scope.';

create function _mindful.tool_available(writing boolean)
returns table (
    name text, description text, json_schema jsonb, read_only boolean, relation text, arguments jsonb, returns_set boolean
)
language sql stable parallel safe security invoker
begin atomic
    select t.name, t.description, t.json_schema, t.read_only, f.relation, f.arguments, f.returns_set
    from mindful.tool t
    cross join lateral _mindful.tool_function(t.function) f
    where t.tenant = (select _mindful.tenant()) and t.registered_by = current_user
        and (select _mindful.tool_role()) is null
        and (t.read_only or writing) and f.executable and f.trusted and f.kind is null and f.definition = t.definition
        and (not t.accepted or exists (
            select from mindful.tool o
            where o.tenant = '' and o.name = t.name and o.function = t.function and o.description = t.description
                and o.json_schema = t.json_schema and o.read_only = t.read_only and o.definition = t.definition
        ))
    order by t.name;
end;
comment on function _mindful.tool_available(boolean) is
'Returns the tools that the caller may use now: registered or accepted by the current role, of functions that are unchanged.';

create function _mindful.tool_run(statement text, arguments jsonb, read_only boolean) returns jsonb
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    result jsonb;
begin
    if read_only then
        -- In force until the subtransaction ends that this statement is in; nothing within can lift it.
        perform set_config('transaction_read_only', 'on', true);
    end if;
    execute statement into result using arguments;
    return result;
end
$$;
comment on function _mindful.tool_run(text, jsonb, boolean) is 'Runs the statement of a tool''s call, and lets it write nothing with read_only.';

-- review
drop index review_tenant_message_id_idx;
create index on review (tenant, message_id) where message_id is not null;
comment on table review is 'Reviews of answers by a model, read from its logits.';
comment on type review_detail is 'Result of self_review.';
comment on column review.score is
'p(true) / (p(true) + p(false)) of the token after the answer, relative to that of an empty answer. It is not calibrated.';
comment on column review.signals is
'log_odds of true against false, log_odds_content_free (the same for an empty answer), prompt_tokens of the review, and cached_tokens, those among them that were not evaluated again.';
drop function _mindful.review_subject(bigint);
create or replace function _mindful.question_of(message_id bigint) returns bigint
language sql stable parallel safe security invoker
begin atomic
    select coalesce((a.metadata ->> 'reply_to')::bigint, (
        select q.id from mindful.memory q
        where q.tenant = a.tenant and q.session_id = a.session_id and q.turn < a.turn and q.role = 'user'
        order by q.turn desc limit 1
    ))
    from mindful.memory a
    where a.tenant = (select _mindful.tenant()) and a.id = question_of.message_id;
end;
comment on function _mindful.question_of(bigint) is
'Returns the id of the user''s turn that an answer replies to. Tool calls may lie in between.';
create or replace function _mindful.review_subject(message_id bigint)
returns table (session_id uuid, question text, answer text, memories text[])
language sql stable parallel safe security invoker
begin atomic
    select a.session_id, q.content, a.content,
        array(
            select m.content
            from pg_catalog.jsonb_array_elements_text(a.metadata -> 'memory_ids') with ordinality s (id, place)
            join mindful.memory m on m.tenant = a.tenant and m.id = s.id::bigint
            order by s.place
        )
    from mindful.memory a
    join mindful.memory q on q.tenant = a.tenant and q.id = _mindful.question_of(a.id)
    where a.tenant = (select _mindful.tenant()) and a.id = review_subject.message_id and a.role = 'assistant';
end;
comment on function _mindful.review_subject(bigint) is
'Returns an answer with its session, its question, and the memories in its prompt, in order.';
create or replace function _mindful.review_turns(message_id bigint) returns table (role text, content text)
language sql stable parallel safe security invoker
begin atomic
    select m.role, m.content
    from mindful.memory a
    join mindful.memory m on m.tenant = a.tenant and m.session_id = a.session_id
        and m.turn < (
            select q.turn from mindful.memory q where q.tenant = a.tenant and q.id = _mindful.question_of(a.id)
        )
        and case when pg_catalog.jsonb_typeof(a.metadata -> 'shown_from') = 'number'
            then m.turn >= (a.metadata ->> 'shown_from')::numeric end
    where a.tenant = (select _mindful.tenant()) and a.id = review_turns.message_id and m.role in ('user', 'assistant')
    order by m.turn;
end;
comment on function _mindful.review_turns(bigint) is
'Returns the turns that the prompt of an answer contained, oldest first.';
create or replace function self_review(message_id bigint, model text default null) returns review_detail
language plpython3u volatile parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.confidence.review import self_review
return self_review(message_id, model)
$python$;
comment on function self_review(bigint, text) is
'Has a generator review an answer of the assistant, stores the review and returns it. NULL is the default generator. The conversation is continued with the question whether the answer is true, so its cached tokens are used again. Nothing is generated: score is p(true) / (p(true) + p(false)) from the logits, over all spellings of the two labels (Kadavath et al. 2022, arXiv 2207.05221). The log-odds of an empty answer are subtracted (contextual calibration, Zhao et al. 2021). verdict is supported from 0.5, else doubtful. A small model''s review is weak evidence; use it as one signal. Errors: 22004, 42704 (no such answer of the tenant), 54000 (longer than the model''s context). Example: select score, verdict from self_review(42);';

create table calibrator (
    tenant text not null default _mindful.tenant(),
    id bigint generated always as identity,
    model text not null,
    ways text[] not null default '{}' check (ways <@ '{retrieve,retry,escalate}'),
    second_model text,
    with_memory boolean not null,
    signal_tier integer not null check (signal_tier between 0 and 3),
    features text[] not null,
    means double precision[] not null,
    scales double precision[] not null,
    weights double precision[] not null,
    intercept double precision not null,
    knots_x double precision[] not null default '{}',
    knots_y double precision[] not null default '{}',
    labels integer not null check (labels > 0),
    wrong integer not null check (wrong between 0 and labels),
    metrics jsonb not null,
    last_outcome bigint not null,
    supersedes bigint,
    adopted boolean not null,
    made_by text not null default current_user,
    created_at timestamptz not null default clock_timestamp(),
    primary key (tenant, id),
    foreign key (tenant, supersedes) references calibrator,
    check ((second_model is not null) = ('escalate' = any (ways))),
    check (cardinality(means) = cardinality(features) and cardinality(scales) = cardinality(features)
        and cardinality(weights) = cardinality(features) and cardinality(knots_x) = cardinality(knots_y))
);
create index on calibrator (tenant, model, with_memory, signal_tier, id) where model is not null;
comment on table calibrator is
'Fitted numbers that turn an answer''s signals into the probability that it is right. With g = intercept + sum of weights x (signal - mean) / scale, the probability is 1 / (1 + exp(-g)), or, if there are knots, a linear interpolation between them. Rows are added, never changed. The newest adopted row of its model, ways, kind of prompt and tier is in force.';
comment on column calibrator.model is 'The generator that was asked first.';
comment on column calibrator.ways is 'Ways by which the answers were made, see decision.ways.';
comment on column calibrator.second_model is 'The generator that answered after an escalation, see decision.second_model.';
comment on column calibrator.with_memory is
'Whether the answers had memories in the prompt. Memories raise a model''s confidence even if they do not help.';
comment on column calibrator.signal_tier is
'The signals it reads. 0: those that cost no further call; 1: also the similarity of answer and question and a review by the model; 2: also the answer of the model''s fallback; 3: also four sampled answers.';
comment on column calibrator.features is
'Names of signals, as in decision.signals. A missing signal counts as its mean.';
comment on column calibrator.labels is 'Number of labelled answers in the fit.';
comment on column calibrator.metrics is
'Figures on answers that were not fitted to (cross-validation), each with the bounds of its 95% interval.';
comment on column calibrator.last_outcome is 'Id of the newest label at the time of the fit.';
comment on column calibrator.supersedes is 'The calibrator that was in force at the time of the fit.';
comment on column calibrator.adopted is
'Whether it was put in force. It is only if its log-loss on the newest labels is lower than that of the calibrator it would replace.';

create table threshold (
    tenant text not null default _mindful.tenant(),
    id bigint generated always as identity,
    calibrator_id bigint not null,
    budget_kind text not null check (budget_kind in ('answers', 'questions')),
    budget double precision not null check (budget > 0 and budget < 1),
    delta double precision not null check (delta > 0 and delta < 1),
    run integer not null check (run > 0),
    delta_spent double precision not null check (delta_spent between 0 and delta),
    value double precision,
    status text not null check (status in ('certified', 'infeasible', 'tightened')),
    labels integer not null,
    answered integer,
    wrong integer,
    bound double precision,
    reason text not null,
    supersedes bigint,
    made_by text not null default current_user,
    created_at timestamptz not null default clock_timestamp(),
    primary key (tenant, id),
    foreign key (tenant, calibrator_id) references calibrator,
    foreign key (tenant, supersedes) references threshold,
    check ((value is null) = (bound is null))
);
create index on threshold (tenant, calibrator_id, id) where calibrator_id is not null;
comment on table threshold is
'Probabilities from which answers are given unflagged, with the budget that each keeps. The newest row of its calibrator and budget is in force.';
comment on column threshold.budget_kind is
'answers: at most this share of the answers given is wrong, with probability 1 - delta. questions: at most this share of all questions gets a wrong answer, in the mean.';
comment on column threshold.run is
'Sequence number of the test of this budget. Test k may fail with probability 6 delta / (pi k)^2, so that all tests together fail with probability delta.';
comment on column threshold.value is 'NULL: no threshold was certified, and every answer is flagged.';
comment on column threshold.labels is 'Number of labelled answers in the test; none of them is in the fit.';
comment on column threshold.answered is 'Number of these answers with at least this probability.';
comment on column threshold.wrong is 'Number of wrong answers among the answered.';
comment on column threshold.bound is 'Upper bound of the share that the budget limits.';
comment on column threshold.status is
'certified: a threshold passed the test. infeasible: none did. tightened: labels showed too many wrong answers among those given, see answer_label.';

alter table calibrator enable row level security, force row level security;
create policy own on calibrator using (tenant = (select _mindful.tenant())) with check (tenant = (select _mindful.tenant_claimed()));
alter table threshold enable row level security, force row level security;
create policy own on threshold using (tenant = (select _mindful.tenant())) with check (tenant = (select _mindful.tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.calibrator', '');
select pg_catalog.pg_extension_config_dump('mindful.calibrator_id_seq', '');
select pg_catalog.pg_extension_config_dump('mindful.threshold', '');
select pg_catalog.pg_extension_config_dump('mindful.threshold_id_seq', '');

create function _mindful.calibrator_find(
    model text,
    ways text[],
    second_model text,
    with_memory boolean,
    signal_tier integer,
    budget double precision
)
returns table (
    id bigint,
    features text[],
    means double precision[],
    scales double precision[],
    weights double precision[],
    intercept double precision,
    knots_x double precision[],
    knots_y double precision[],
    threshold_id bigint,
    threshold double precision,
    status text,
    reason text
)
language sql stable parallel safe security invoker rows 1
begin atomic
    select c.id, c.features, c.means, c.scales, c.weights, c.intercept, c.knots_x, c.knots_y, t.id, t.value, t.status, t.reason
    from (
        select c.*
        from mindful.calibrator c
        where c.tenant = (select _mindful.tenant()) and c.model = calibrator_find.model
            and c.ways = calibrator_find.ways and c.second_model is not distinct from calibrator_find.second_model
            and c.with_memory = calibrator_find.with_memory and c.signal_tier = calibrator_find.signal_tier and c.adopted
        order by c.id desc
        limit 1
    ) c
    left join lateral (
        select t.*
        from mindful.threshold t
        where t.tenant = (select _mindful.tenant()) and t.calibrator_id = c.id
            and t.budget = coalesce(nullif(calibrator_find.budget, 0), (
                select n.budget from mindful.threshold n
                where n.tenant = (select _mindful.tenant()) and n.calibrator_id = c.id and n.status <> 'tightened'
                order by n.id desc
                limit 1
            ))
        order by t.id desc
        limit 1
    ) t on true;
end;
comment on function _mindful.calibrator_find(text, text[], text, boolean, integer, double precision) is
'Returns the calibrator in force for a model''s answers and its threshold for a budget. Budget 0 is the one most recently passed to calibrate.';
create table gold (
    tenant text not null default _mindful.tenant(),
    id bigint generated always as identity,
    question text not null,
    answers text[] not null,
    memories text[] not null default '{}',
    source text not null default '',
    created_at timestamptz not null default now(),
    primary key (tenant, id)
);
comment on table gold is
'Questions with known answers, to measure a model by. They are not memories and are never recalled.';
comment on column gold.answers is
'Right answers; each of them is enough. Empty: the question has no answer, and every answer to it is wrong.';
comment on column gold.memories is 'Texts that the prompt showed as memories.';
comment on column gold.source is
'Name of a group, such as one conversation, that is never split between fitting and testing.';

create table decision (
    tenant text not null default _mindful.tenant(),
    id bigint generated always as identity,
    parent_id bigint,
    message_id bigint,
    replaced_by_id bigint,
    gold_id bigint,
    generation_id bigint,
    answer text,
    model text not null,
    ways text[] not null default '{}' check (ways <@ '{retrieve,retry,escalate}'),
    second_model text,
    with_memory boolean not null,
    signal_tier integer not null check (signal_tier between 0 and 3),
    signals jsonb not null check (jsonb_typeof(signals) = 'object'),
    signal_ms jsonb not null default '{}',
    probability double precision not null check (probability between 0 and 1),
    calibrator_id bigint,
    threshold_id bigint,
    threshold double precision,
    action text not null check (action in ('answer', 'retrieve', 'retry', 'escalate', 'clarify', 'flag', 'abstain')),
    reason text not null,
    alternatives jsonb not null default '[]',
    offered boolean not null default false,
    propensity double precision not null default 1 check (propensity > 0 and propensity <= 1),
    total_ms double precision not null default 0,
    created_at timestamptz not null default clock_timestamp(),
    primary key (tenant, id),
    foreign key (tenant, parent_id) references decision on delete set null (parent_id),
    foreign key (tenant, message_id) references memory on delete cascade,
    foreign key (tenant, replaced_by_id) references memory on delete cascade,
    foreign key (tenant, gold_id) references gold on delete cascade,
    foreign key (tenant, generation_id) references generation on delete set null (generation_id),
    foreign key (tenant, calibrator_id) references calibrator,
    foreign key (tenant, threshold_id) references threshold,
    check ((second_model is not null) = ('escalate' = any (ways)))
);
create index on decision (tenant, message_id) where message_id is not null;
create index on decision (tenant, replaced_by_id) where replaced_by_id is not null;
create index on decision (tenant, parent_id) where parent_id is not null;
create index on decision (tenant, gold_id) where gold_id is not null;
create index on decision (tenant, generation_id) where generation_id is not null;
create index on decision (tenant, model, with_memory, id) where model is not null;
comment on table decision is
'One row per answer: its signals, the probability that it is right, the threshold, the action and the reason.';
comment on column decision.parent_id is
'The decision that led to this one: about an earlier attempt at the same reply, or about the turn that asked back.';
comment on column decision.message_id is
'The reply that was shown. NULL for answers to gold questions and for answers that another answer replaced.';
comment on column decision.replaced_by_id is 'The reply that was shown instead of this answer.';
comment on column decision.action is
'answer: given without a flag. flag: given with a flag, or not chosen. retrieve, retry, escalate: another attempt replaced this answer, or this attempt replaced another and reached its threshold. clarify: a question was asked back. abstain: the answer was withheld.';
comment on column decision.answer is 'The answer, if no message contains it.';
comment on column decision.signal_tier is 'Highest tier of signals that was gathered, see calibrator.signal_tier.';
comment on column decision.signal_ms is
'Cost of each kind of signal in milliseconds: free, question (similarity to the question), review, second (the fallback''s answer), samples.';
comment on column decision.model is 'The generator that was asked first. Each combination of model, ways and second_model has calibrators of its own.';
comment on column decision.ways is 'Other ways by which this answer was made, in order. Empty: a first answer. retrieve: with more memories; retry: by sampling again; escalate: by the fallback.';
comment on column decision.second_model is 'The generator that gave this answer after an escalation, else NULL.';
comment on column decision.total_ms is
'Milliseconds of the decision without the generation of the first answer. For a further attempt, all of its time.';
comment on column decision.probability is
'Probability that the answer is right, by the calibrator. Without a calibrator it is (right + 1) / (labels + 2), the same for every answer (Laplace''s rule of succession).';
comment on column decision.alternatives is
'Other answers that were considered: objects with model, answer and, for samples, times.';
comment on column decision.offered is
'Whether the answer was drawn at random for a label, with the probability of the setting label_share.';
comment on column decision.propensity is
'Probability with which an offered answer was drawn, else 1. Calibration weights labels by its inverse (Horvitz and Thompson 1952).';

create function _mindful.decision_forget() returns trigger
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    if current_setting('mindful.pruning', true) is distinct from 'on' then
        delete from mindful.generation g using old_rows o where g.tenant = o.tenant and g.id = o.generation_id;
    end if;
    return null;
end
$$;
comment on function _mindful.decision_forget() is
'Deletes the generation of a forgotten answer, as its log-probabilities could confirm a guess. Generations of pruned answers stay for retention_audit_days. It runs with the owner''s rights, as users may not delete generations.';
create trigger decision_deleted after delete on decision referencing old table as old_rows
    for each statement when (pg_catalog.current_setting('row_security') = 'on' or not _mindful.is_restore()) execute function _mindful.decision_forget();

alter table gold enable row level security, force row level security;
create policy own on gold using (tenant = (select _mindful.tenant())) with check (tenant = (select _mindful.tenant_claimed()));
alter table decision enable row level security, force row level security;
create policy own on decision using (tenant = (select _mindful.tenant())) with check (tenant = (select _mindful.tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.gold', '');
select pg_catalog.pg_extension_config_dump('mindful.gold_id_seq', '');
select pg_catalog.pg_extension_config_dump('mindful.decision', '');
select pg_catalog.pg_extension_config_dump('mindful.decision_id_seq', '');

insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('signal_tier', 'integer', 0, 3, '{global,user,session}', '0',
        'Highest tier of signals for answers that tier 0 leaves below the threshold. 1: similarity to the question and a review; 2: also the fallback''s answer; 3: also four samples.'),
    ('chat_escalate', 'boolean', null, null, '{global,user,session}', 'false',
        'Whether the answer of the model''s fallback is given if the model''s own answer is below its threshold and the fallback''s reaches its own.'),
    ('chat_abstain_below', 'number', 0, 1, '{global,user,session}', '0',
        'Flagged answers with a lower probability are withheld. The reply is "I do not know.", and decision stores the answer.'),
    ('chat_flag_notice', 'boolean', null, null, '{global,user,session}', 'false',
        'Whether llm_chat adds a sentence about its confidence to a flagged reply. The stored message does not have it.');

create function _mindful.recall_coverage(query text, memory_ids bigint[])
returns table (
    coverage double precision,
    best double precision,
    mean double precision,
    length double precision,
    asking double precision
)
language plpgsql stable parallel safe security invoker rows 1
set search_path = pg_catalog, mindful, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
#variable_conflict use_column
begin
    return query
    with term as materialized (
        select q.lexeme, ln(1 + total.memories / (1 + coalesce(t.holders, 0))) as idf
        from _mindful.memory_total() total
        cross join _mindful.terms(query) q
        left join _mindful.recall_terms(query) t on t.lexeme = q.lexeme
    ),
    -- OFFSET 0 looks each posting up by its whole key; else all postings of the tenant are read.
    holder as materialized (
        select i.id, p.length, t.lexeme, t.idf
        from term t
        cross join unnest(memory_ids) i (id)
        cross join lateral (
            select h.length from mindful.memory_term h
            where h.tenant = (select _mindful.tenant()) and h.lexeme = t.lexeme and h.id = i.id
            offset 0
        ) p
    )
    select coalesce((select sum(d.idf) from (select distinct h.lexeme, h.idf from holder h) d) / s.total, 0),
        coalesce(m.best / s.total, 0), coalesce(m.total / s.total / nullif(cardinality(memory_ids), 0), 0),
        coalesce(ln(1 + m.length), 0), coalesce((
            select avg((right(rtrim(a.content, E' \t\n\r"'')'), 1) = any (array['?', '？']))::integer)
            from unnest(memory_ids) i (id)
            cross join lateral (
                select a.content from mindful.memory a where a.tenant = (select _mindful.tenant()) and a.id = i.id offset 0
            ) a
        )::double precision, 0)
    from (select sum(t.idf) as total from term t) s,
        (
            select max(one.idf) as best, sum(one.idf) as total,
                (array_agg(one.length order by one.idf desc, one.length desc))[1] as length
            from (select sum(h.idf) as idf, max(h.length) as length from holder h group by h.id) one
        ) m;
end
$$;
comment on function _mindful.recall_coverage(text, bigint[]) is
'Returns shares of a query''s lexemes that memories contain, weighted by rarity ln(1 + memories / (1 + memories with the lexeme)): coverage by all, best by the best memory, mean over memories. length is ln(1 + lexemes) of the best memory, as longer texts contain more (Singhal, Buckley and Mitra 1996). asking is the share of memories that end with a question mark.';
insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('chat_clarify', 'boolean', null, null, '{global,user,session}', 'false',
        'Whether an answer below its threshold is held back for a question, where the question has more than one: memories know more than one full name for a name in it, or at least two answers were each given more than once. It samples four answers, unless they were.');

create function _mindful.clarification(message_id bigint)
returns table (decision_id bigint, question text, answer text, clarification jsonb)
language sql stable parallel safe security invoker rows 1
begin atomic
    select d.id, q.content, d.answer, c.metadata -> 'clarification'
    from mindful.memory c
    join mindful.decision d on d.tenant = c.tenant and d.message_id = c.id and d.action = 'clarify',
        lateral (
            select u.content from mindful.memory u
            where u.tenant = c.tenant and u.session_id = c.session_id and u.turn < c.turn and u.role = 'user'
            order by u.turn desc
            limit 1
        ) q
    where c.tenant = (select _mindful.tenant()) and c.id = clarification.message_id and c.role = 'clarification'
    order by d.id desc
    limit 1;
end;
comment on function _mindful.clarification(bigint) is
'Returns the message, the withheld answer and the choices of a clarification.';
create table outcome (
    tenant text not null default _mindful.tenant(),
    id bigint generated always as identity,
    message_id bigint,
    decision_id bigint,
    correct boolean not null,
    grader text not null check (grader in ('user', 'gold', 'rule', 'model')),
    grader_version integer not null default 1,
    note text,
    graded_by text not null default current_user,
    created_at timestamptz not null default clock_timestamp(),
    primary key (tenant, id),
    foreign key (tenant, message_id) references memory on delete cascade,
    foreign key (tenant, decision_id) references decision on delete cascade,
    check (num_nonnulls(message_id, decision_id) > 0)
);
create index on outcome (tenant, decision_id, id) where decision_id is not null;
create index on outcome (tenant, message_id, id) where message_id is not null;
comment on table outcome is
'Labels: whether answers are right, and who labelled them. Labels are added, never changed; the latest counts.';
comment on column outcome.grader_version is 'Version of the rule that graded, of answer_grade for gold.';
alter table outcome enable row level security, force row level security;
create policy own on outcome using (tenant = (select _mindful.tenant()))
    with check (tenant = (select _mindful.tenant_claimed()) and graded_by = current_user);
select pg_catalog.pg_extension_config_dump('mindful.outcome', '');
select pg_catalog.pg_extension_config_dump('mindful.outcome_id_seq', '');

create view latest_outcome with (security_invoker = true) as
select distinct on (o.tenant, o.decision_id, o.message_id)
    o.tenant, o.decision_id, o.message_id, o.correct, o.grader, o.grader_version, o.note, o.graded_by, o.created_at, o.id as outcome_id
from mindful.outcome o
order by o.tenant, o.decision_id, o.message_id, o.id desc;
comment on view latest_outcome is 'The latest label of each answer.';

create function answer_label(message_id bigint, correct boolean, note text default null) returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    label bigint;
    decided bigint;
begin
    perform _mindful.writable();
    if message_id is null or correct is null then
        perform _mindful.raise('22004', 'message_id or correct is null',
            'Pass the message_id that llm_chat_detail returned, and true or false.');
    elsif octet_length(note) > 8192 then
        perform _mindful.raise('54000', format('note has %s bytes, more than 8192', octet_length(note)), 'Pass a note of at most 8192 bytes.');
    end if;
    perform from mindful.memory m
    where m.tenant = (select _mindful.tenant()) and m.id = answer_label.message_id and m.kind = 'message' and m.role = 'assistant';
    if not found then
        perform _mindful.raise('42704', format('there is no answer %s', message_id),
            'List the tenant''s answers in mindful.conversation, role assistant.');
    end if;
    select max(d.id) into decided from mindful.decision d
    where d.tenant = (select _mindful.tenant()) and d.message_id = answer_label.message_id;
    insert into mindful.outcome (message_id, decision_id, correct, grader, note)
    values (answer_label.message_id, decided, answer_label.correct, 'user', answer_label.note)
    returning id into label;
    perform _mindful.threshold_watch(d.threshold_id) from mindful.decision d
    where d.tenant = (select _mindful.tenant()) and d.id = decided and d.threshold_id is not null;
    return label;
end
$$;
comment on function answer_label(bigint, boolean, text) is
'Labels an answer of the assistant as right or wrong, and returns the label''s id. message_id is the one that llm_chat_detail returns. note has at most 8192 bytes. calibrate learns from labels; a later label of the same answer counts instead of the earlier. If the labels of answers given under a threshold show more errors than its budget allows, every answer is flagged from then on until calibrate certifies a new threshold (threshold.status tightened). Errors: 22004, 42704 (no such answer of the tenant), 54000 (note too long). Example: select answer_label(42, false, ''It was 1912.'');';

create function _mindful.threshold_evidence(threshold_id bigint) returns double precision
language sql stable parallel safe security invoker
begin atomic
    select coalesce(pg_catalog.max(s.log_evidence), 0)
    from (
        select pg_catalog.sum(pg_catalog.ln(1 + 0.15 * (o.wrong - t.budget) / t.budget)) over (order by o.outcome_id) as log_evidence
        from mindful.threshold t
        join lateral (
            select l.outcome_id, (given.unflagged and not l.correct)::integer::double precision as wrong
            from mindful.decision d
            cross join lateral (
                select d.action = any (array['answer', 'retrieve', 'retry', 'escalate']) and d.replaced_by_id is null as unflagged
            ) given
            join mindful.latest_outcome l on l.tenant = d.tenant and l.decision_id = d.id
            where d.tenant = (select _mindful.tenant()) and d.threshold_id = t.id
                and case t.budget_kind when 'answers' then given.unflagged else true end
        ) o on true
        where t.tenant = (select _mindful.tenant()) and t.id = threshold_evidence.threshold_id
    ) s;
end;
comment on function _mindful.threshold_evidence(bigint) is
'Returns the logarithm of the evidence that a threshold breaks its budget: the maximum over time of the product of 1 + lambda (error - budget) over labelled answers, lambda = 0.15 / budget. If the budget is kept, it exceeds -ln(delta) with probability at most delta (Ville''s inequality; Waudby-Smith and Ramdas 2024).';

create function _mindful.threshold_watch(threshold_id bigint) returns boolean
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    watched mindful.threshold;
begin
    select t.* into watched from mindful.threshold t
    where t.tenant = (select _mindful.tenant()) and t.id = threshold_watch.threshold_id
        and t.id = (
            select max(n.id) from mindful.threshold n
            where n.tenant = t.tenant and n.calibrator_id = t.calibrator_id and n.budget = t.budget
        )
        and t.value is not null;
    if not found or _mindful.threshold_evidence(watched.id) < -ln(watched.delta) then
        return false;
    end if;
    insert into mindful.threshold (calibrator_id, budget_kind, budget, delta, run, delta_spent, status, labels, reason, supersedes)
    values (watched.calibrator_id, watched.budget_kind, watched.budget, watched.delta, watched.run, 0, 'tightened', 0,
        format('labels show more errors than the budget of %s allows; every answer is flagged until calibrate() certifies a new threshold',
            watched.budget),
        watched.id);
    return true;
end
$$;
comment on function _mindful.threshold_watch(bigint) is
'Replaces a threshold in force by one that flags every answer if the evidence against its budget exceeds 1 / delta. Returns whether it did.';

create function _mindful.answer_normal(content text) returns text
language sql immutable parallel safe security invoker
begin atomic
    select pg_catalog.btrim(pg_catalog.regexp_replace(pg_catalog.regexp_replace(pg_catalog.regexp_replace(
        pg_catalog.lower(pg_catalog.normalize(pg_catalog.left(content, 4096), 'NFKC')), '[^[:alnum:]]+', ' ', 'g'), '\y(a|an|the)\y', ' ', 'g'), ' +', ' ', 'g'));
end;
comment on function _mindful.answer_normal(text) is
'Returns the first 4096 characters of a text in lower case, without punctuation and articles (SQuAD; Rajpurkar et al. 2016). The limit is there because normalization takes quadratic time in a run of combining marks and cannot be cancelled. Version 1.';

create function _mindful.answer_grade(answer text, answers text[]) returns boolean
language sql immutable parallel safe security invoker
begin atomic
    select exists (
        select from pg_catalog.unnest(answers) g (answer)
        where _mindful.answer_normal(g.answer) <> ''
            and pg_catalog.strpos(' ' || _mindful.answer_normal(answer_grade.answer) || ' ', ' ' || _mindful.answer_normal(g.answer) || ' ') > 0
    );
end;
comment on function _mindful.answer_grade(text, text[]) is
'Returns whether an answer equals or contains one of the right answers, word by word, after answer_normal. Version 1. The rule is frozen: labels by different rules cannot be compared.';

create function _mindful.labelled(model text, ways text[], second_model text, with_memory boolean, signal_tier integer)
returns table (
    decision_id bigint,
    signals jsonb,
    signal_tier integer,
    correct boolean,
    propensity double precision,
    source text,
    fitting boolean,
    outcome_id bigint
)
language sql stable parallel safe security invoker rows 1000
begin atomic
    select d.id, d.signals, d.signal_tier, l.correct, d.propensity, s.source,
        pg_catalog.strpos('01234567', pg_catalog.left(pg_catalog.md5(s.source), 1)) > 0, l.outcome_id
    from mindful.decision d
    join mindful.latest_outcome l on l.tenant = d.tenant and l.decision_id = d.id
    left join mindful.gold g on g.tenant = d.tenant and g.id = d.gold_id
    left join mindful.memory m on m.tenant = d.tenant and m.id = d.message_id,
    lateral (
        select coalesce('gold ' || nullif(g.source, ''), 'gold question ' || d.gold_id, 'session ' || m.session_id, 'decision ' || d.id)
            as source
    ) s
    where d.tenant = (select _mindful.tenant()) and d.model = labelled.model
        and d.ways = labelled.ways and d.second_model is not distinct from labelled.second_model
        and d.with_memory = labelled.with_memory and d.signal_tier >= labelled.signal_tier
    order by l.outcome_id;
end;
comment on function _mindful.labelled(text, text[], text, boolean, integer) is
'Returns a model''s labelled answers with signals up to a tier, oldest label first. A source is never split between fitting and testing. Its hash decides for ever to which part it belongs, so that no calibrator is tested on answers it was fitted to.';

create function _mindful.lineage_list(model text) returns table (ways text[], second_model text)
language sql stable parallel safe security invoker rows 10
begin atomic
    select d.ways, d.second_model
    from mindful.decision d
    where d.tenant = (select _mindful.tenant()) and d.model = lineage_list.model
        and exists (select from mindful.outcome o where o.tenant = d.tenant and o.decision_id = d.id)
    group by d.ways, d.second_model
    order by pg_catalog.cardinality(d.ways), d.ways, d.second_model;
end;
comment on function _mindful.lineage_list(text) is 'Returns the ways by which a model''s labelled answers were made, first answers first; see decision.ways.';

create function _mindful.label_count(model text, ways text[], second_model text, with_memory boolean)
returns table (labels bigint, correct bigint)
language sql stable parallel safe security invoker rows 1
begin atomic
    select pg_catalog.count(*), pg_catalog.count(*) filter (where l.correct)
    from _mindful.labelled(model, ways, second_model, with_memory, 0) l;
end;
comment on function _mindful.label_count(text, text[], text, boolean) is 'Returns the number of labelled answers of a model made in given ways, and the number of right ones among them.';
insert into setting_definition (key, type, scopes, initial, description) values
    ('chat_lessons', 'boolean', '{global,user,session}', 'true',
        'Whether a chat keeps in mind what labels say of answers to like questions: see answer_label.');

create index memory_question on memory (tenant, content_hash) where kind = 'message' and role = 'user';

create function _mindful.lesson(memory_ids bigint[])
returns table (memory_id bigint, question text, message_id bigint, answer text, correct boolean, note text)
language plpgsql stable parallel safe security invoker rows 2
set search_path = pg_catalog, mindful, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
begin
    -- OFFSET 0 looks the answer of each question up by its turn, and the label by its answer.
    return query
    select r.id, r.content, l.message_id, l.answer, l.correct, l.note
    from unnest(memory_ids) asked (id)
    cross join lateral (
        select m.id, m.content, m.content_hash from mindful.memory m
        where m.tenant = (select _mindful.tenant()) and m.id = asked.id and m.kind = 'message' and m.role = 'user'
        offset 0
    ) r
    cross join lateral (
        select a.id as message_id, coalesce(d.answer, a.content) as answer, o.correct, o.note
        from mindful.memory q
        cross join lateral (
            select n.turn from mindful.memory n
            where n.tenant = q.tenant and n.session_id = q.session_id and n.turn > q.turn and n.role <> 'tool'
            order by n.turn limit 1
        ) next
        -- Turns that were inserted while the reply was generated stand between: 50 are more than enough.
        cross join lateral (
            select n.id, n.content from mindful.memory n
            where n.tenant = q.tenant and n.session_id = q.session_id and n.turn > q.turn and n.turn <= q.turn + 50
                and n.role = 'assistant'
                and case when n.metadata ? 'reply_to' then (n.metadata ->> 'reply_to')::bigint = q.id else n.turn = next.turn end
            offset 0
        ) a
        join mindful.outcome o on o.tenant = q.tenant and o.message_id = a.id
        left join mindful.decision d on d.tenant = o.tenant and d.id = o.decision_id
        where q.tenant = (select _mindful.tenant()) and q.content_hash = r.content_hash
            and q.kind = 'message' and q.role = 'user'
        order by o.id desc limit 1
    ) l;
end
$$;
comment on function _mindful.lesson(bigint[]) is
'Of recalled messages those whose text was asked and answered before, and the answer has a label: the question, the answer (what was withheld, if it was), and what the latest label says of it.';
create function gold_evaluate(
    gold jsonb,
    model text default null,
    source text default '',
    memories integer default null,
    max_tokens integer default 64,
    signal_tier integer default 0
) returns integer
language plpython3u volatile parallel unsafe security invoker cost 1000000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.confidence.gold import gold_evaluate
return gold_evaluate(gold, model, source, memories, max_tokens, signal_tier)
$python$;
comment on function gold_evaluate(jsonb, text, text, integer, integer, integer) is
'Has a generator answer gold questions, grades its answers, stores them as labels for calibrate, and returns their number. NULL is the default generator. gold is an array of objects with question (a text) and answers (an array of texts, each of them right; empty if the question has no answer). An object may have memories (texts shown instead of recalled ones) and source (a name; calibrate never splits a source between fitting and testing; default: the argument). Each question is asked as llm_chat would in a new session. signal_tier (0 to 3) is the highest tier of signals to gather, see calibrator.signal_tier. From tier 2 on the answers of the model''s fallback are labelled too. No memory is stored. An error in one item stores nothing, and names the item. Errors: 22004, 22023 (item, signal_tier), 42704 (no such model), 54000 (a question is longer than the context), 55000 (no embedder or no fallback for the tier), 57014 (cancelled). Example: select gold_evaluate(''[{"question": "Who wrote Hamlet?", "answers": ["Shakespeare"]}]'');';

create type calibration_detail as (
    model text,
    ways text[],
    second_model text,
    with_memory boolean,
    signal_tier integer,
    labels integer,
    wrong integer,
    calibrator_id bigint,
    threshold_id bigint,
    status text,
    threshold double precision,
    bound double precision,
    coverage double precision,
    metrics jsonb,
    reason text
);
comment on type calibration_detail is 'Result of calibrate for one kind of answers of a model.';

create function calibrate(
    model text default null,
    error_budget double precision default 0.1,
    delta double precision default 0.1,
    budget_kind text default 'answers'
) returns setof calibration_detail
language plpython3u volatile parallel unsafe security invoker cost 1000000 rows 2
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.confidence.calibration import calibrate
return calibrate(model, error_budget, delta, budget_kind)
$python$;
comment on function calibrate(text, double precision, double precision, text) is
'Fits the probability that a generator''s answers are right, and certifies a threshold from which answers are given unflagged. NULL is the default generator. It learns from labels (answer_label, gold_evaluate). error_budget (between 0 and 1) is the largest share of wrong answers. If budget_kind is answers, it limits the wrong share of the answers given, with probability 1 - delta over the labels (exact binomial tests in a fixed sequence). If budget_kind is questions, it limits the share of all questions that get a wrong answer, in the mean (conformal risk control). Returns a row for each combination of ways to the answer (see decision.ways), memories in the prompt, and tier of signals that has labels. Half of the labels are for the fit, half for the test. Labels drawn at random count for those that were not drawn (see decision.propensity). A fit needs 30 labels; isotonic regression needs 1000 labels with 200 of the rarer kind. A new calibrator replaces one in force only if it does better on labels newer than that one. Each repeated test of a budget spends a part of delta. status is certified, infeasible (every answer is flagged; see reason) or uncalibrated. coverage is the share of labelled answers that reach the threshold. metrics are figures on answers that were not fitted to, each with its 95% interval. Errors: 22004, 22023 (budget or delta not between 0 and 1), 42704 (no such model), 55000 (no labels, too few, or of one kind only). Example: select model, status, threshold, coverage, reason from calibrate(error_budget => 0.2);';
create table tuning (
    tenant text not null default _mindful.tenant(),
    id bigint generated always as identity,
    model text not null,
    key text not null references setting_definition,
    current_value jsonb not null,
    candidate jsonb,
    adopted boolean not null,
    change_id bigint,
    reason text not null,
    evidence jsonb not null,
    last_outcome bigint not null,
    made_by text not null default current_user,
    created_at timestamptz not null default clock_timestamp(),
    primary key (tenant, id),
    foreign key (tenant, change_id) references setting,
    check (adopted = (change_id is not null))
);
create index on tuning (tenant, model, key, id) where model is not null;
comment on table tuning is
'Results of confidence_tune: a value chosen on older labels and tested on newer ones against the current value.';
comment on column tuning.current_value is 'The value in force during the test.';
comment on column tuning.candidate is 'The value that did best on the older labels; NULL if the current value did.';
comment on column tuning.change_id is 'Id of the change of the setting, for setting_undo.';
comment on column tuning.evidence is
'recent: confidence, error, tokens, time and drift of the last days. chosen: figures of each value on the older labels. tested: figures of both values on the newer labels. score is the share of right answers; for signal_tier it is minus the log-loss of the probability. tokens and ms are the cost of an answer.';
comment on column tuning.last_outcome is 'Id of the newest label at the time. The next test uses newer ones.';
alter table tuning enable row level security, force row level security;
create policy own on tuning using (tenant = (select _mindful.tenant())) with check (tenant = (select _mindful.tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.tuning', '');
select pg_catalog.pg_extension_config_dump('mindful.tuning_id_seq', '');

create function _mindful.drift(reference bigint[], recent bigint[]) returns table (drift double precision, drift_limit double precision)
language sql immutable parallel safe security invoker rows 1
begin atomic
    select pg_catalog.sum((b.now - b.before) * pg_catalog.ln(b.now / b.before)),
        21.67 * (1.0 / pg_catalog.max(b.recent) + 1.0 / pg_catalog.max(b.reference))::double precision
    from (
        select (c.before + 0.5)::double precision / (t.reference + 5) as before, (c.now + 0.5)::double precision / (t.recent + 5) as now,
            t.reference, t.recent
        from (
            select pg_catalog.sum(s.before) as reference, pg_catalog.sum(s.now) as recent
            from unnest(drift.reference, drift.recent) s (before, now)
        ) t,
            unnest(drift.reference, drift.recent) c (before, now)
        where t.reference > 0 and t.recent > 0
    ) b;
end;
comment on function _mindful.drift(bigint[], bigint[]) is
'Returns the population stability index of two histograms of ten bins, sum of (q - p) ln(q / p), with half an answer added to each bin (Siddiqi 2006, Credit Risk Scorecards). By convention more than 0.25 is a change to act on. drift_limit is exceeded by chance once in a hundred times: the 99% quantile of chi-squared with 9 degrees of freedom times 1/n + 1/m (Yurdakul and Naranjo 2020). NULL if a histogram is empty.';

create function _mindful.confidence_recent(model text, days integer) returns jsonb
language sql stable parallel safe security invoker
begin atomic
    with answer as (
        select g.id, g.created_at >= pg_catalog.now() - pg_catalog.make_interval(days => confidence_recent.days) as recent,
            g.confidence, g.completion_tokens, g.total_ms
        from mindful.generation g
        where g.tenant = (select _mindful.tenant()) and g.model = confidence_recent.model
            and g.created_at >= pg_catalog.now() - pg_catalog.make_interval(days => 5 * confidence_recent.days)
    ),
    histogram as (
        select pg_catalog.array_agg(b.before order by b.bin) as before, pg_catalog.array_agg(b.now order by b.bin) as now
        from (
            select n.bin, pg_catalog.count(a.id) filter (where not a.recent) as before,
                pg_catalog.count(a.id) filter (where a.recent) as now
            from pg_catalog.generate_series(1, 10) n (bin)
            left join answer a on least(pg_catalog.width_bucket(a.confidence, 0, 1, 10), 10) = n.bin
            group by n.bin
        ) b
    ),
    label as (
        select pg_catalog.count(*) as labels, pg_catalog.avg((not l.correct)::integer) as error,
            pg_catalog.avg(d.probability) as probability
        from mindful.decision d
        join answer a on a.id = d.generation_id and a.recent
        join mindful.latest_outcome l on l.tenant = d.tenant and l.decision_id = d.id
        where d.tenant = (select _mindful.tenant())
    )
    select pg_catalog.jsonb_build_object(
        'days', confidence_recent.days, 'answers', r.answers, 'confidence', r.confidence, 'tokens', r.tokens, 'ms', r.ms,
        'labels', l.labels, 'error', pg_catalog.round(l.error, 4), 'probability', pg_catalog.round(l.probability::numeric, 4),
        'drift', pg_catalog.round(f.drift::numeric, 4), 'drift_limit', pg_catalog.round(f.drift_limit::numeric, 4))
    from (
        select pg_catalog.count(*) as answers, pg_catalog.round(pg_catalog.avg(a.confidence)::numeric, 4) as confidence,
            pg_catalog.round(pg_catalog.avg(a.completion_tokens), 1) as tokens,
            pg_catalog.round(pg_catalog.avg(a.total_ms)::numeric, 1) as ms
        from answer a where a.recent
    ) r,
        label l, histogram h, lateral _mindful.drift(h.before, h.now) f;
end;
comment on function _mindful.confidence_recent(text, integer) is
'Returns figures of a model''s answers of the last days: number, mean confidence, tokens and milliseconds; of labelled answers the share of wrong ones and the mean probability. drift compares their confidence with that of four times as many days before.';

create function _mindful.tuning_gold(model text)
returns table (outcome_id bigint, question text, answers text[], memories text[], source text)
language sql stable parallel safe security invoker rows 1000
begin atomic
    select f.outcome_id, f.question, f.answers, f.memories, f.source
    from (
        select distinct on (g.question) l.outcome_id, g.question, g.answers, g.memories, g.source
        from mindful.gold g
        join mindful.decision d on d.tenant = g.tenant and d.gold_id = g.id and d.model = tuning_gold.model and d.ways = '{}'
        join mindful.latest_outcome l on l.tenant = d.tenant and l.decision_id = d.id
        where g.tenant = (select _mindful.tenant()) and pg_catalog.cardinality(g.answers) > 0
        order by g.question, l.outcome_id
    ) f
    order by f.outcome_id;
end;
comment on function _mindful.tuning_gold(text) is
'Returns the gold questions with an answer that a model was asked, each once, ordered by its first label. So no question is both chosen by and tested on.';

create function _mindful.tuning_signals(model text, signal_tier integer)
returns table (
    outcome_id bigint,
    signals jsonb,
    signal_ms jsonb,
    with_memory boolean,
    correct boolean,
    propensity double precision,
    source text
)
language sql stable parallel safe security invoker rows 1000
begin atomic
    select l.outcome_id, l.signals, d.signal_ms, d.with_memory, l.correct, l.propensity, l.source
    from (values (false), (true)) m (with_memory),
        _mindful.labelled(tuning_signals.model, '{}', null, m.with_memory, tuning_signals.signal_tier) l
    join mindful.decision d on d.tenant = (select _mindful.tenant()) and d.id = l.decision_id
    order by l.outcome_id;
end;
comment on function _mindful.tuning_signals(text, integer) is
'Returns labelled first answers with signals up to a tier, oldest label first.';

create function _mindful.tuning_chain(model text)
returns table (outcome_id bigint, first_correct boolean, chain_correct boolean, first_ms double precision, chain_ms double precision)
language sql stable parallel safe security invoker rows 1000
begin atomic
    select greatest(l.outcome_id, c.outcome_id), l.correct,
        case when s.action = any (array['answer', 'escalate']) then c.correct else l.correct end,
        0::double precision, coalesce((d.signal_ms ->> 'second')::double precision, 0)
    from mindful.decision d
    join mindful.latest_outcome l on l.tenant = d.tenant and l.decision_id = d.id
    join mindful.decision s on s.tenant = d.tenant and s.parent_id = d.id
    join mindful.latest_outcome c on c.tenant = s.tenant and c.decision_id = s.id
    where d.tenant = (select _mindful.tenant()) and d.model = tuning_chain.model and d.ways = '{}'
        and s.model = d.model and s.ways = '{escalate}'
    order by 1;
end;
comment on function _mindful.tuning_chain(text) is
'Returns flagged answers that the fallback answered too: whether the first answer is right, and whether the answer that escalation would have given is. The decisions were made before the labels.';

create function _mindful.tuning_current(key text) returns table (value jsonb, by_hand boolean)
language sql stable parallel safe security invoker rows 1
begin atomic
    select mindful.setting_get(tuning_current.key), coalesce((
        select not pg_catalog.starts_with(s.changed_by, 'confidence_tune for ')
            and (s.value <> 'null' or s.reason ~ '^undo of change [0-9]+$')
        from mindful.setting s
        where s.tenant = (select _mindful.tenant()) and s.key = tuning_current.key and s.scope = 'user'
        order by s.id desc limit 1
    ), false);
end;
comment on function _mindful.tuning_current(text) is
'Returns the current value of a setting, and whether its user set it or undid a tuning by hand. confidence_tune does not change such a setting until the user sets it to a JSON null.';

create function _mindful.tuning_change(key text, value jsonb, reason text) returns bigint
language sql volatile parallel unsafe security invoker
begin atomic
    insert into mindful.setting (scope, key, value, reason, changed_by)
    values ('user', tuning_change.key, tuning_change.value, tuning_change.reason,
        'confidence_tune for ' || current_user)
    returning id;
end;
comment on function _mindful.tuning_change(text, jsonb, text) is 'Changes a setting of the caller, with the evidence as its reason, and returns the id of the change.';

create type tuning_detail as (
    key text,
    current_value jsonb,
    candidate jsonb,
    adopted boolean,
    change_id bigint,
    reason text,
    evidence jsonb
);
comment on type tuning_detail is 'Result of confidence_tune for one setting; see the table tuning.';

create function confidence_tune(model text default null, max_questions integer default 100, max_tokens integer default 64)
returns setof tuning_detail
language plpython3u volatile parallel unsafe security invoker cost 1000000 rows 4
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.confidence.tune import confidence_tune
return confidence_tune(model, max_questions, max_tokens)
$python$;
comment on function confidence_tune(text, integer, integer) is
'Tries other values of the caller''s settings on labelled questions, and adopts values that do better on newer labels. NULL is the default generator. chat_temperature and chat_memories are tried by answering gold questions again: at most max_questions (30 to 100000) older and as many newer ones, with at most max_tokens tokens each. signal_tier is judged by the log-loss of each tier''s probability, chat_escalate by the labelled answers of the fallback. The value that does best on the older labels is adopted if a paired randomization test at 5% (Fisher 1935) on the newer labels shows that it does better than the current value. Both parts need 30 labels, and each test uses labels newer than the last. A setting that a user set or undid by hand is not changed. setting_undo(change_id) undoes a change. Returns a row for each setting. Errors: 22004, 22023, 42704 (no such model), 57014 (cancelled). Example: select key, current_value, candidate, adopted, reason from confidence_tune();';
insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('error_budget', 'number', 0, 0.99, '{global,user,session}', '0',
        'Error budget of answers, one that was passed to calibrate; 0 is the newest. If calibrate was not called with this budget, every answer is flagged.'),
    ('chat_retrieve', 'boolean', null, null, '{global,user,session}', 'false',
        'Whether a flagged answer is generated again with more memories if the memories shown cover little of the question.'),
    ('chat_retrieve_below', 'number', 0, 1, '{global,user,session}', '0.5',
        'Coverage of the question below which chat_retrieve recalls more memories. Coverage is the share of its words in the memories shown, weighted by rarity.'),
    ('chat_retrieve_memories', 'integer', 1, 50, '{global,user,session}', '10',
        'Largest number of memories shown when chat_retrieve generates an answer again.'),
    ('chat_retry', 'boolean', null, null, '{global,user,session}', 'false',
        'Whether four more answers are sampled for a flagged answer, and the most frequent of the five is given. Only for models that action_evaluate has shown to gain.'),
    ('chat_retry_temperature', 'number', 0.05, 2, '{global,user,session}', '0.5',
        'Temperature of the samples of chat_retry. Results of action_evaluate count for their own temperature only.'),
    ('label_share', 'number', 0, 1, '{global,user,session}', '0.05',
        'Share of flagged answers, drawn at random, that label_queue lists first. Their labels stand for all flagged answers.');

create table action_gain (
    tenant text not null default _mindful.tenant(),
    id bigint generated always as identity,
    action text not null check (action in ('retrieve', 'retry')),
    model text not null,
    temperature real,
    answers integer not null,
    changed integer not null,
    gained integer not null,
    lost integer not null,
    p_value double precision not null check (p_value between 0 and 1),
    helps boolean not null,
    made_by text not null default current_user,
    created_at timestamptz not null default clock_timestamp(),
    primary key (tenant, id),
    check (gained >= 0 and lost >= 0 and gained + lost <= changed and changed <= answers)
);
create index on action_gain (tenant, action, model, id) where action is not null;
comment on table action_gain is
'Results of action_evaluate: whether retrieve or retry improves a model''s answers. The newest row per action, model and temperature counts.';
comment on column action_gain.temperature is 'Value of the setting chat_retry_temperature; NULL for retrieve.';
comment on column action_gain.answers is 'Number of flagged answers to gold questions that were tried again.';
comment on column action_gain.changed is 'Number of them that the other answer would have replaced.';
comment on column action_gain.gained is 'Number of wrong answers that right ones would have replaced.';
comment on column action_gain.lost is 'Number of right answers that wrong ones would have replaced.';
comment on column action_gain.p_value is
'One-sided p-value of an exact sign test on gained and lost (McNemar 1947).';
comment on column action_gain.helps is 'p_value <= 0.1. llm_chat retries only if the newest row says so.';
alter table action_gain enable row level security, force row level security;
create policy own on action_gain using (tenant = (select _mindful.tenant())) with check (tenant = (select _mindful.tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.action_gain', '');
select pg_catalog.pg_extension_config_dump('mindful.action_gain_id_seq', '');

create function _mindful.action_gain_find(action text, model text, temperature real) returns table (helps boolean)
language sql stable parallel safe security invoker rows 1
begin atomic
    select g.helps
    from mindful.action_gain g
    where g.tenant = (select _mindful.tenant()) and g.action = action_gain_find.action
        and g.model = action_gain_find.model and g.temperature is not distinct from action_gain_find.temperature
    order by g.id desc
    limit 1;
end;
comment on function _mindful.action_gain_find(text, text, real) is
'Returns whether the newest action_evaluate showed that an action improves a model''s answers.';

create function _mindful.action_pending(action text, model text, max_answers integer)
returns table (
    decision_id bigint,
    gold_id bigint,
    question text,
    memories text[],
    with_memory boolean,
    signals jsonb,
    answer text,
    correct boolean
)
language sql stable parallel safe security invoker rows 100
begin atomic
    select d.id, g.id, g.question, g.memories, d.with_memory, d.signals, d.answer, l.correct
    from mindful.gold g
    join lateral (
        select f.*
        from mindful.decision f
        where f.tenant = g.tenant and f.gold_id = g.id and f.model = action_pending.model and f.parent_id is null
        order by f.id desc
        limit 1
    ) d on d.action = 'flag'
    join mindful.latest_outcome l on l.tenant = d.tenant and l.decision_id = d.id
    where g.tenant = (select _mindful.tenant())
        and not (action_pending.action = 'retrieve' and pg_catalog.cardinality(g.memories) > 0)
    order by g.id desc
    limit action_pending.max_answers;
end;
comment on function _mindful.action_pending(text, text, integer) is
'Returns the newest gold questions whose first answer by a model is flagged. retrieve leaves out questions with memories of their own, as recall cannot add to these.';

create function action_evaluate(
    action text,
    model text default null,
    max_answers integer default 100,
    max_tokens integer default 64
) returns action_gain
language plpython3u volatile parallel unsafe security invoker cost 1000000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.confidence.measure import action_evaluate
return action_evaluate(action, model, max_answers, max_tokens)
$python$;
comment on function action_evaluate(text, text, integer, integer) is
'Measures whether an action, retrieve or retry, improves the flagged answers of a generator to its newest gold questions. NULL is the default generator. The action uses the settings chat_retrieve_... or chat_retry_temperature. At most max_answers (1 to 10000) answers are tried again, each with at most max_tokens tokens, and graded. The action helps if it turns more wrong answers right than right ones wrong (exact sign test at 10%). The result is stored in action_gain; llm_chat retries only if the newest result for the model and temperature says helps. The answers are stored in decision with labels, so that calibrate can certify answers made this way. Errors: 22004, 22023, 42704 (no such model), 55000 (no flagged answers to gold questions), 57014 (cancelled). Example: select helps, gained, lost from action_evaluate(''retry'');';

create view action_latency with (security_barrier = true) as
with recursive attempt as (
    select d.tenant, d.id, d.id as first_id, d.message_id, d.action, d.total_ms + coalesce(g.total_ms, 0) as ms,
        null::text as way, d.model, d.created_at
    from mindful.decision d
    left join mindful.generation g on g.tenant = d.tenant and g.id = d.generation_id
    where (d.tenant = (select _mindful.tenant()) or (select _mindful.reads_all())) and d.gold_id is null
        and not exists (
            select from mindful.decision p
            where p.tenant = d.tenant and p.id = d.parent_id and p.action <> 'clarify'
        )
    union all
    select d.tenant, d.id, a.first_id, d.message_id, d.action, d.total_ms,
        d.ways[cardinality(d.ways)],
        a.model, a.created_at
    from attempt a
    join mindful.decision d on d.tenant = a.tenant and d.parent_id = a.id
    where a.action <> 'clarify'
),
reply as (
    select a.tenant, a.model, a.created_at, sum(a.ms) as ms, min(a.action) filter (where a.message_id is not null) as action,
        coalesce(array_agg(a.way order by a.id) filter (where a.way is not null), '{}') as tried
    from attempt a
    group by a.tenant, a.first_id, a.model, a.created_at
)
select r.created_at::date as day, r.tenant, r.model, r.tried, r.action, count(*) as replies, avg(r.ms) as mean_ms,
    percentile_cont(0.5) within group (order by r.ms) as median_ms,
    percentile_cont(0.95) within group (order by r.ms) as p95_ms
from reply r
group by r.created_at::date, r.tenant, r.model, r.tried, r.action;
comment on view action_latency is
'Latency of replies in milliseconds by day, tenant, model, the other ways that were tried, and the final action. Shows the caller''s tenant, to mindful_reader all tenants.';

-- view
create or replace view conversation with (security_invoker = true) as
select m.tenant, m.session_id, s.title, m.turn, m.role, m.content, m.id as message_id, m.created_at,
    case when jsonb_typeof(m.metadata -> 'confidence') = 'number' and (m.metadata -> 'confidence')::numeric between 0 and 1
        then _mindful.real((m.metadata -> 'confidence')::numeric(40, 39)) end as confidence,
    m.metadata ->> 'model' as model
from mindful.memory m
join mindful.session s on s.tenant = m.tenant and s.session_id = m.session_id
where m.kind = 'message';
comment on view conversation is 'The caller''s conversations, message by message; order by session_id, turn.';
create or replace view model_usage with (security_barrier = true) as
select created_at::date as day, tenant, model, role, count(*) as generations, sum(prompt_tokens) as prompt_tokens,
    sum(cached_tokens) as cached_tokens, sum(completion_tokens) as completion_tokens,
    avg(first_token_ms) as mean_first_token_ms, avg(total_ms) as mean_total_ms,
    count(*) filter (where finish_reason = 'length') as cut_by_length,
    count(*) filter (where finish_reason = 'stop') as ended, avg(slot_wait_ms) as mean_slot_wait_ms,
    max(slot_wait_ms) as max_slot_wait_ms
from mindful.generation
where tenant = (select _mindful.tenant()) or (select _mindful.reads_all())
group by created_at::date, tenant, model, role;
comment on view model_usage is
'Calls of generators by day, tenant, model and role. Shows the caller''s tenant, to mindful_reader all tenants. ended counts answers that the model ended, cut_by_length those that max_tokens cut. Times are in milliseconds; slot_wait_ms is the wait for a slot.';
create or replace view confidence_daily with (security_barrier = true) as
with label as (
    select distinct on (d.tenant, d.generation_id) d.tenant, d.generation_id, o.correct
    from mindful.outcome o
    join mindful.decision d on d.tenant = o.tenant and d.id = o.decision_id
    where (o.tenant = (select _mindful.tenant()) or (select _mindful.reads_all())) and d.generation_id is not null
    order by d.tenant, d.generation_id, o.id desc
),
answer as (
    select g.created_at::date as day, g.tenant, g.model, g.confidence, g.completion_tokens, g.total_ms, l.correct,
        least(width_bucket(g.confidence, 0, 1, 10), 10) as bin
    from mindful.generation g
    left join label l on l.tenant = g.tenant and l.generation_id = g.id
    where g.tenant = (select _mindful.tenant()) or (select _mindful.reads_all())
),
daily as (
    select day, tenant, model, count(*) as generations, avg(confidence) as mean_confidence,
        percentile_cont(0.1) within group (order by confidence) as confidence_p10,
        percentile_cont(0.9) within group (order by confidence) as confidence_p90,
        avg(completion_tokens) as mean_tokens, avg(total_ms) as mean_ms,
        count(correct) as labels, count(*) filter (where not correct) as wrong
    from answer
    group by day, tenant, model
),
histogram as (
    select d.day, d.tenant, d.model, array_agg(b.now order by b.bin) as now, array_agg(b.before order by b.bin) as before
    from daily d
    join (
        select g.day, g.tenant, g.model, g.bin, g.now,
            coalesce(sum(g.now) over (
                partition by g.tenant, g.model, g.bin order by g.day
                range between interval '28 days' preceding and interval '1 day' preceding
            ), 0)::bigint as before
        from (
            select d.day, d.tenant, d.model, n.bin, coalesce(c.answers, 0) as now
            from daily d
            cross join generate_series(1, 10) n (bin)
            left join (
                select a.day, a.tenant, a.model, a.bin, count(*) as answers from answer a group by a.day, a.tenant, a.model, a.bin
            ) c on c.day = d.day and c.tenant = d.tenant and c.model = d.model and c.bin = n.bin
        ) g
    ) b on b.day = d.day and b.tenant = d.tenant and b.model = d.model
    group by d.day, d.tenant, d.model
)
select d.day, d.tenant, d.model, d.generations, d.mean_confidence, d.confidence_p10, d.confidence_p90,
    d.mean_tokens, d.mean_ms, d.labels, d.wrong, f.drift, f.drift_limit
from daily d
join histogram h on h.day = d.day and h.tenant = d.tenant and h.model = d.model,
    lateral _mindful.drift(h.before, h.now) f;
comment on view confidence_daily is
'Confidence of the generators by day, tenant and model, with cost (tokens, milliseconds), number of labels and number of wrong answers. drift compares the day''s confidence with that of the 28 days before; above drift_limit it is more than chance. Shows the caller''s tenant, to mindful_reader all tenants.';

create function _mindful.sample_prompt(instruction text, input text) returns text
language sql immutable parallel safe security invoker
begin atomic
    select instruction || case when input = '' then '' else E'\n\n' || input end;
end;
comment on function _mindful.sample_prompt(text, text) is
'Returns the prompt of a pair: the instruction, and the input below it.';

create function _mindful.sample_json(format text, instruction text, input text, output text) returns jsonb
language sql stable parallel safe security invoker
begin atomic
    select case format
        when 'alpaca' then pg_catalog.jsonb_build_object('instruction', instruction, 'input', input, 'output', output)
        when 'chat' then pg_catalog.jsonb_build_object('messages', pg_catalog.jsonb_build_array(
            pg_catalog.jsonb_build_object('role', 'user', 'content', _mindful.sample_prompt(instruction, input)),
            pg_catalog.jsonb_build_object('role', 'assistant', 'content', output)))
        when 'sharegpt' then pg_catalog.jsonb_build_object('conversations', pg_catalog.jsonb_build_array(
            pg_catalog.jsonb_build_object('from', 'human', 'value', _mindful.sample_prompt(instruction, input)),
            pg_catalog.jsonb_build_object('from', 'gpt', 'value', output)))
    end;
end;
comment on function _mindful.sample_json(text, text, text, text) is 'Returns a pair as JSON in an export format.';

create function replay_export(run bigint, format text default 'alpaca', split text default null) returns setof jsonb
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    if format is null or format not in ('alpaca', 'chat', 'sharegpt') then
        perform _mindful.raise('22023', format('format is %L', format), 'Pass alpaca, chat or sharegpt.');
    elsif split is not null and split not in ('train', 'validation') then
        perform _mindful.raise('22023', format('split is %L', split), 'Pass train, validation, or NULL for both.');
    elsif not exists (select from mindful.consolidation c
        where c.tenant = (select _mindful.tenant()) and c.id = run and c.type = 'replay' and c.status = 'completed')
    then
        perform _mindful.raise('42704', format('there is no completed replay run %s', coalesce(run::text, 'null')),
            'List the tenant''s runs in mindful.consolidation, or create one with mindful.replay_run().');
    end if;
    return query
    select _mindful.sample_json(format, s.instruction, s.input, s.output)
    from mindful.training_sample s
    where s.tenant = (select _mindful.tenant()) and s.consolidation_id = run and s.refused = '{}'
        and (replay_export.split is null or s.split = replay_export.split)
    order by s.id;
end
$$;
comment on function replay_export(bigint, text, text) is
'Returns the accepted pairs of a completed replay run, one JSON object per row, in the order of their creation. format is alpaca (instruction, input, output), chat (messages with role and content) or sharegpt (conversations with from and value). split is train, validation or NULL (both). One object per line makes a JSONL file. Errors: 22023 (format, split), 42704 (no such completed run of the tenant). Example: select replay_export(3, ''chat'', ''train'');';
insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('consolidation_after', 'integer', 0, 10000, '{global,user}', '50',
        'Number of unread messages and documents among the newest memories that requests a run. A worker makes the run. 0 disables requests.');

create function _mindful.consolidation_ask() returns trigger
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    enough integer := (mindful.setting_get('consolidation_after') #>> '{}')::integer;
    unread bigint;
begin
    if enough = 0 or exists (select from mindful.consolidation c
        where c.tenant = (select _mindful.tenant()) and c.type = 'extract' and c.status in ('pending', 'running'))
    then
        return null;
    end if;
    select count(*) into unread
    from (
        select m.id, m.kind, m.role from mindful.memory m
        where m.tenant = (select _mindful.tenant()) order by m.id desc limit 2 * enough
    ) m
    left join mindful.memory_extraction x on x.tenant = (select _mindful.tenant()) and x.id = m.id
    where x.id is null and (m.kind = 'document' or m.kind = 'message' and m.role = 'user');
    -- If another transaction is requesting the run, this one does not wait for it.
    if unread >= enough and _mindful.lock_try('consolidation_ask') then
        insert into mindful.consolidation (type) values ('extract') on conflict do nothing;
        notify mindful_job;
    end if;
    return null;
end
$$;
comment on function _mindful.consolidation_ask() is
'Adds a pending run if enough of the newest memories are unread, and notifies workers on the channel mindful_job.';

create trigger consolidation_ask after insert on memory
    for each statement when (pg_catalog.current_setting('row_security') = 'on' or not _mindful.is_restore()) execute function _mindful.consolidation_ask();

create function _mindful.consolidation_work(all_unread boolean, max_tenants integer) returns integer
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    outer_tenant text := coalesce(current_setting('mindful.tenant', true), '');
    due text;
    runs integer := 0;
begin
    for due in
        select d.tenant from (
            select c.tenant, min(c.created_at) as since from mindful.consolidation c
            where c.type = 'extract' and c.status in ('pending', 'running') group by c.tenant
            union all
            select m.tenant, max(m.created_at) from mindful.memory m
            left join mindful.memory_extraction x on x.tenant = m.tenant and x.id = m.id
            where all_unread and m.kind in ('message', 'document') and (x.id is null or x.content_hash <> m.content_hash)
            group by m.tenant
        ) d
        group by d.tenant order by min(d.since) limit max_tenants
    loop
        begin
            perform set_config('mindful.tenant', due, true);
            if _mindful.lock_try('consolidation') then
                perform mindful.memory_consolidate();
                runs := runs + 1;
            end if;
        exception when others then  -- a cancel is not among them
            raise warning 'mindful: consolidation of tenant % failed: %', due, sqlerrm;
        end;
    end loop;
    perform set_config('mindful.tenant', outer_tenant, true);
    return runs;
end
$$;
comment on function _mindful.consolidation_work(boolean, integer) is
'Runs memory_consolidate for each tenant whose rows the current role may read and that is due; returns the number of runs. A failure for one tenant is a warning.';

create function _mindful.consolidation_run_all(all_unread boolean, max_tenants integer) returns integer
language sql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
set mindful.tenant = ''
set lock_timeout = '1s'
as $$
    select _mindful.consolidation_work(all_unread, max_tenants);
$$;
comment on function _mindful.consolidation_run_all(boolean, integer) is
'Runs memory_consolidate for all tenants that are due. It runs with the owner''s rights and returns a count only; for administrators.';

create function consolidation_run(all_unread boolean default false, max_tenants integer default 10) returns integer
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform _mindful.writable();
    perform _mindful.integer_argument('max_tenants', max_tenants, 1, 100000);
    if pg_has_role(current_user, 'mindful_admin', 'usage') then
        return _mindful.consolidation_run_all(coalesce(all_unread, false), max_tenants);
    end if;
    return _mindful.consolidation_work(coalesce(all_unread, false), max_tenants);
end
$$;
comment on function consolidation_run(boolean, integer) is
'Runs memory_consolidate for all tenants that are due if an administrator calls it, else for the caller''s tenant if it is due. A tenant is due if it has a pending or unfinished run; with all_unread also if it has unread texts. At most max_tenants (1 to 100000) tenants are read, the longest waiting first. Each run reads at most consolidation_memories texts. Returns the number of runs. A failure for one tenant is a warning. Error 22023 (max_tenants). Example: select consolidation_run(all_unread => true);';

create function consolidation_schedule(schedule text default '30 2 * * *') returns boolean
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform _mindful.writable();
    perform _mindful.cron_schedule('mindful_consolidation', case when schedule is not null then '*/5 * * * *' end,
        'select mindful.consolidation_run()');
    return _mindful.cron_schedule('mindful_consolidation_nightly', schedule,
        'select mindful.consolidation_run(all_unread => true, max_tenants => 100000)');
end
$$;
comment on function consolidation_schedule(text) is
'Schedules consolidation_run with pg_cron as the calling role, and returns whether it is scheduled. Requested runs start every five minutes; all unread texts are read at the schedule, the five fields of crontab. NULL removes both jobs. Errors: 55000 (pg_cron is not installed), 42501 (no right to the schema cron). Example: select consolidation_schedule(''30 2 * * *'');';

create function _mindful.tuning_work(max_tenants integer) returns integer
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    outer_tenant text := coalesce(current_setting('mindful.tenant', true), '');
    due text;
    runs integer := 0;
begin
    for due in
        select o.tenant
        from mindful.outcome o
        left join (select a.tenant, max(a.last_outcome) as seen from mindful.tuning a group by a.tenant) a on a.tenant = o.tenant
        where o.id > coalesce(a.seen, 0)
        group by o.tenant having count(*) >= 30
        order by min(o.id) limit max_tenants
    loop
        begin
            perform set_config('mindful.tenant', due, true);
            if _mindful.lock_try('tuning') then
                perform mindful.confidence_tune();
                runs := runs + 1;
            end if;
        exception when others then  -- a cancel is not among them
            raise warning 'mindful: confidence_tune of tenant % failed: %', due, sqlerrm;
        end;
    end loop;
    perform set_config('mindful.tenant', outer_tenant, true);
    return runs;
end
$$;
comment on function _mindful.tuning_work(integer) is
'Runs confidence_tune for each tenant whose rows the current role may read and that has 30 new labels; returns the number of tenants. A failure for one tenant is a warning.';

create function _mindful.tuning_run_all(max_tenants integer) returns integer
language sql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
set mindful.tenant = ''
set lock_timeout = '1s'
as $$
    select _mindful.tuning_work(max_tenants);
$$;
comment on function _mindful.tuning_run_all(integer) is
'Runs confidence_tune for all tenants that have 30 new labels. It runs with the owner''s rights and returns a count only; for administrators.';

create function tuning_run(max_tenants integer default 10) returns integer
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform _mindful.writable();
    perform _mindful.integer_argument('max_tenants', max_tenants, 1, 100000);
    if pg_has_role(current_user, 'mindful_admin', 'usage') then
        return _mindful.tuning_run_all(max_tenants);
    end if;
    return _mindful.tuning_work(max_tenants);
end
$$;
comment on function tuning_run(integer) is
'Runs confidence_tune for all tenants that are due if an administrator calls it, else for the caller''s tenant if it is due. A tenant is due if it has at least 30 labels newer than its last confidence_tune. At most max_tenants (1 to 100000) tenants are tuned. Returns their number. A failure for one tenant is a warning. Error 22023 (max_tenants).';

create function tuning_schedule(schedule text default '30 3 * * *') returns boolean
language sql volatile parallel unsafe security invoker
begin atomic
    select _mindful.writable();
    select _mindful.cron_schedule('mindful_tuning', schedule, 'select mindful.tuning_run(max_tenants => 100000)');
end;
comment on function tuning_schedule(text) is
'Schedules tuning_run with pg_cron as the calling role, and returns whether it is scheduled. The schedule has the five fields of crontab; NULL removes the job. Errors: 55000 (pg_cron is not installed), 42501 (no right to the schema cron). Example: select tuning_schedule(''30 3 * * *'');';
insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('consolidation_extractor', 'text', null, null, '{global,user}', '"rule"',
        'Extractor of facts: rule (without a model) or model (the default generator).'),
    ('consolidation_memories', 'integer', 1, 1000000, '{global,user}', '1000',
        'Largest number of texts that one call of memory_consolidate reads.'),
    ('knowledge_evidence', 'integer', 1, 1000, '{global,user}', '2', 'Number of sources that makes information knowledge.'),
    ('knowledge_accesses', 'integer', 1, 1000000, '{global,user}', '3', 'Number of accesses that makes information knowledge.'),
    ('knowledge_confidence', 'number', 0, 1, '{global,user}', '0.8', 'Lowest confidence of knowledge.'),
    ('wisdom_evidence', 'integer', 1, 1000, '{global,user}', '4', 'Number of sources that wisdom needs.'),
    ('wisdom_accesses', 'integer', 1, 1000000, '{global,user}', '8', 'Number of accesses that wisdom needs.'),
    ('wisdom_confidence', 'number', 0, 1, '{global,user}', '0.95', 'Lowest confidence of wisdom.'),
    ('consolidation_decay_after_days', 'integer', 1, 36500, '{global,user}', '30', 'Days without an access after which an extracted fact loses importance.'),
    ('consolidation_decay_half_life_days', 'integer', 1, 36500, '{global,user}', '90', 'Days in which the importance of an unused fact halves.');

create table consolidation (
    tenant text not null default _mindful.tenant(),
    id bigint generated always as identity,
    type text not null check (type in ('extract', 'replay')),
    status text not null default 'pending' check (status in ('pending', 'running', 'completed', 'failed')),
    model text,
    request jsonb not null default '{}',
    memories_processed integer not null default 0,
    pairs_generated integer not null default 0,
    outputs jsonb not null default '{}',
    error text,
    created_at timestamptz not null default clock_timestamp(),
    finished_at timestamptz,
    withdrawn integer not null default 0,
    primary key (tenant, id),
    check ((status in ('completed', 'failed')) = (finished_at is not null)),
    check ((status = 'failed') = (error is not null))
);
create unique index consolidation_open on consolidation (tenant, type) where status in ('pending', 'running');
comment on table consolidation is
'Runs that extract facts from texts (extract) or make training samples from facts (replay). A run that reached a limit or lost its connection has the status running; the next call continues it.';
comment on column consolidation.model is
'The generator that extracted facts, or that samples are for; NULL for rules.';
comment on column consolidation.request is 'Arguments of the run.';
comment on column consolidation.withdrawn is
'Number of samples deleted because a memory was forgotten. Exports made before are no longer valid.';
comment on column consolidation.outputs is 'Counts of results, and of rejected facts by reason.';

-- A watermark would miss rows: ids are assigned before rows are committed.
create table memory_extraction (
    tenant text not null default _mindful.tenant(),
    id bigint not null,
    content_hash text not null,
    extractor text not null check (extractor in ('rule', 'model')),
    consolidation_id bigint not null,
    facts integer not null,
    primary key (tenant, id),
    foreign key (tenant, id) references memory (tenant, id) on delete cascade,
    foreign key (tenant, consolidation_id) references consolidation (tenant, id) on delete cascade
);
create index on memory_extraction (tenant, consolidation_id) where consolidation_id is not null;
comment on table memory_extraction is
'Texts that were read for facts, with the hash of the text that was read. A changed text is read again.';

create table memory_statement (
    tenant text not null default _mindful.tenant(),
    id bigint not null,
    subject text not null,
    relation text not null,
    object text not null,
    extractor text not null check (extractor in ('rule', 'model')),
    model text,
    prior real not null check (prior between 0 and 1),
    consolidation_id bigint not null,
    primary key (tenant, id),
    foreign key (tenant, id) references memory (tenant, id) on delete cascade,
    foreign key (tenant, consolidation_id) references consolidation (tenant, id) on delete cascade
);
create index on memory_statement (tenant, subject, relation) where subject is not null;
create index on memory_statement (tenant, consolidation_id) where consolidation_id is not null;
comment on table memory_statement is 'Extracted facts as subject, relation and object, and the extractor.';
comment on column memory_statement.prior is
'Confidence with one source. With n sources it is 1 - (1 - prior) * 0.5 ^ (n - 1), at most 0.99.';

create table memory_entity (
    tenant text not null default _mindful.tenant(),
    entity text not null,
    id bigint not null,
    primary key (tenant, entity, id),
    foreign key (tenant, id) references memory (tenant, id) on delete cascade
);
create index on memory_entity (tenant, id) where id is not null;
comment on table memory_entity is 'Names of persons and things that facts are about, in lower case.';

alter table consolidation enable row level security, force row level security;
create policy own on consolidation using (tenant = (select _mindful.tenant())) with check (tenant = (select _mindful.tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.consolidation', '');
alter table memory_extraction enable row level security, force row level security;
create policy own on memory_extraction using (tenant = (select _mindful.tenant()))
    with check (tenant = (select _mindful.tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.memory_extraction', '');
alter table memory_statement enable row level security, force row level security;
create policy own on memory_statement using (tenant = (select _mindful.tenant()))
    with check (tenant = (select _mindful.tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.memory_statement', '');
alter table memory_entity enable row level security, force row level security;
create policy own on memory_entity using (tenant = (select _mindful.tenant())) with check (tenant = (select _mindful.tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.memory_entity', '');
select pg_catalog.pg_extension_config_dump('mindful.consolidation_id_seq', '');

create function _mindful.evidence_lost() returns trigger
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    if current_setting('mindful.pruning', true) = 'on' then
        return null;
    end if;
    delete from mindful.memory m
    using old_rows o
    where m.tenant = o.tenant and m.id = o.id and not m.stated
        and exists (select from mindful.memory_statement s where s.tenant = o.tenant and s.id = o.id)
        and not exists (select from mindful.memory_evidence e where e.tenant = o.tenant and e.id = o.id);
    update mindful.memory m
    set confidence = _mindful.evidence_confidence(m.tenant, m.id)
    from (select distinct tenant, id from old_rows) o
    join mindful.memory_statement s on s.tenant = o.tenant and s.id = o.id
    where m.tenant = o.tenant and m.id = o.id;
    return null;
end
$$;
comment on function _mindful.evidence_lost() is
'Deletes extracted facts whose sources were all forgotten, and lowers the confidence of facts that lost some. Facts stay if their sources are pruned.';

create function _mindful.evidence_confidence(tenant text, id bigint) returns real
language sql stable parallel safe security invoker
begin atomic
    select least(0.99, 1 - (1 - s.prior) * _mindful.power(0.5, greatest(e.sources, 1) - 1))::real
    from mindful.memory_statement s,
        lateral (
            select pg_catalog.count(distinct v.source_id) as sources
            from mindful.memory_evidence v
            where v.tenant = s.tenant and v.id = s.id
        ) e
    where s.tenant = evidence_confidence.tenant and s.id = evidence_confidence.id;
end;
comment on function _mindful.evidence_confidence(text, bigint) is
'Returns the confidence of a fact by the number of its sources n: 1 - (1 - prior) * 0.5 ^ (n - 1), at most 0.99.';

create trigger evidence_lost after delete on memory_evidence referencing old table as old_rows
    for each statement when (pg_catalog.current_setting('row_security') = 'on' or not _mindful.is_restore()) execute function _mindful.evidence_lost();

-- Only a populated view can be refreshed concurrently. It has no row-level security, so only readers may select from it.
create function _mindful.outcome_count(outputs jsonb, name text) returns bigint
language sql immutable parallel safe security invoker
begin atomic
    select case
        when pg_catalog.jsonb_typeof(outputs -> name) = 'number' and (outputs -> name)::numeric between 0 and 1000000000
            then (outputs -> name)::bigint
    end;
end;
comment on function _mindful.outcome_count(jsonb, text) is
'Returns a count from a run''s outputs, NULL if it is not a number. Tenants may write any value, and one must not break a view of all tenants.';

create materialized view consolidation_summary as
select tenant, created_at::date as day, type, status, coalesce(left(model, 100), '') as model, count(*) as runs,
    sum(memories_processed) as memories_processed, sum(pairs_generated) as pairs_generated,
    sum(_mindful.outcome_count(outputs, 'facts')) as facts, sum(_mindful.outcome_count(outputs, 'contradicted')) as contradicted,
    max(finished_at) as last_finished_at
from consolidation
group by tenant, created_at::date, type, status, coalesce(left(model, 100), '');
create unique index on consolidation_summary (tenant, day, type, status, model);
comment on materialized view consolidation_summary is
'Runs of all tenants by day, type, status and model, for mindful_reader. Refreshed at the end of a run unless another run is refreshing it.';

create function _mindful.consolidation_summary_refresh() returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
set lock_timeout = '200ms'
as $$
begin
    refresh materialized view concurrently mindful.consolidation_summary;
exception
    when lock_not_available then
        null;
    when program_limit_exceeded then  -- a tenant's name is too long for the index
        raise warning 'mindful: consolidation_summary could not be brought up to date: %', sqlstate;
end
$$;
comment on function _mindful.consolidation_summary_refresh() is
'Refreshes consolidation_summary unless another run is refreshing it.';

create type consolidation_detail as (
    id bigint,
    status text,
    extractor text,
    memories_processed integer,
    remaining bigint,
    facts integer,
    strengthened integer,
    refined integer,
    contradicted integer,
    links integer,
    promoted integer,
    decayed integer,
    rejected jsonb,
    error text
);
comment on type consolidation_detail is
'Result of memory_consolidate: counts of texts read, of results, of rejected facts by reason, and of texts left.';

create function _mindful.consolidation_pending(since timestamptz, kinds text[] default '{message,document}')
returns table (id bigint)
language sql stable parallel safe security invoker
begin atomic
    select m.id
    from mindful.memory m
    left join mindful.memory_extraction x on x.tenant = m.tenant and x.id = m.id
    where m.tenant = (select _mindful.tenant()) and m.kind = any (kinds)
        and (since is null or m.created_at >= since)
        and (x.id is null or x.content_hash <> m.content_hash)
    order by m.created_at, m.id;
end;
comment on function _mindful.consolidation_pending(timestamptz, text[]) is
'Returns messages and documents whose current text was not read for facts, oldest first.';

create function _mindful.consolidation_lock() returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    if not _mindful.lock_try('consolidation') then
        perform _mindful.raise('55P03', 'a run is active for this tenant', 'Wait until it ends; see mindful.consolidation.');
    end if;
end
$$;
comment on function _mindful.consolidation_lock() is
'Takes the tenant''s lock for one run at a time until the transaction ends; error 55P03.';

create function _mindful.consolidation_open(type text, model text, request jsonb) returns bigint
language sql volatile parallel unsafe security invoker
begin atomic
    insert into mindful.consolidation (type, status, model, request)
    values (type, 'running', model, request)
    on conflict (tenant, type) where status in ('pending', 'running')
        do update set status = 'running', model = excluded.model, request = excluded.request
    returning id;
end;
comment on function _mindful.consolidation_open(text, text, jsonb) is
'Returns the id of the open run of a type, or starts one.';

create function _mindful.counts_add(counts jsonb, more jsonb) returns jsonb
language sql immutable parallel safe security invoker
begin atomic
    select coalesce(pg_catalog.jsonb_object_agg(key, case
        when pg_catalog.jsonb_typeof(coalesce(a.value, b.value)) = 'object'
            then (select coalesce(pg_catalog.jsonb_object_agg(inner_key, coalesce(c.value::bigint, 0) + coalesce(d.value::bigint, 0)), '{}')
                from pg_catalog.jsonb_each_text(coalesce(a.value, '{}')) c (inner_key, value)
                full join pg_catalog.jsonb_each_text(coalesce(b.value, '{}')) d (inner_key, value) using (inner_key))
        else pg_catalog.to_jsonb(coalesce((a.value #>> '{}')::bigint, 0) + coalesce((b.value #>> '{}')::bigint, 0))
    end), '{}')
    from pg_catalog.jsonb_each(counts) a (key, value)
    full join pg_catalog.jsonb_each(more) b (key, value) using (key);
end;
comment on function _mindful.counts_add(jsonb, jsonb) is 'Adds two objects of counts, which may hold objects of counts, key by key.';

create function _mindful.consolidate(run bigint, since timestamptz, extractor text, model text, memories integer, seconds integer)
returns jsonb
language plpython3u volatile parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.learning.consolidation import consolidate
return consolidate(run, since, extractor, model, memories, seconds)
$python$;
comment on function _mindful.consolidate(bigint, timestamptz, text, text, integer, integer) is
'Extracts facts from texts, inserts new ones, strengthens existing ones, ends contradicted ones and links them; returns counts.';

create function _mindful.link_strengthen(since timestamptz) returns bigint
language sql volatile parallel unsafe security invoker
begin atomic
    with used as (
        update mindful.memory_link l
        set weight = l.weight + (1 - l.weight) * 0.1
        from mindful.memory_access a, mindful.memory_access b
        where l.tenant = (select _mindful.tenant()) and l.weight < 0.999
            and a.tenant = l.tenant and a.id = l.source_id and a.last_accessed_at > since
            and b.tenant = l.tenant and b.id = l.target_id and b.last_accessed_at > since
        returning 1
    )
    select pg_catalog.count(*) from used;
end;
comment on function _mindful.link_strengthen(timestamptz) is
'Raises the weight w of links by (1 - w) / 10 if both ends were accessed since a time.';

create function _mindful.memory_decay(days integer) returns bigint
language sql volatile parallel unsafe security invoker
begin atomic
    with faded as (
        update mindful.memory m
        set importance = greatest(0.05, m.importance * _mindful.power(0.5, days / (mindful.setting_get('consolidation_decay_half_life_days') #>> '{}')::double precision))
        from mindful.memory_statement s
        left join mindful.memory_access a on a.tenant = s.tenant and a.id = s.id
        where days > 0 and s.tenant = (select _mindful.tenant()) and m.tenant = s.tenant and m.id = s.id and m.importance > 0.05
            and greatest(a.last_accessed_at, m.created_at)
                < pg_catalog.now() - pg_catalog.make_interval(days => (mindful.setting_get('consolidation_decay_after_days') #>> '{}')::integer)
        returning 1
    )
    select pg_catalog.count(*) from faded;
end;
comment on function _mindful.memory_decay(integer) is
'Lowers the importance of extracted facts without an access for consolidation_decay_after_days, to 0.05 at least; the half-life is consolidation_decay_half_life_days.';

create function _mindful.memory_promote() returns bigint
language sql volatile parallel unsafe security invoker
begin atomic
    with threshold as (
        select pg_catalog.jsonb_object_agg(d.key, mindful.setting_get(d.key)) as t
        from mindful.setting_definition d
        where d.key like any (array['knowledge\_%', 'wisdom\_%'])
    ),
    measured as (
        select m.id, m.level, m.confidence, coalesce(a.access_count, 0) as accesses,
            (select pg_catalog.count(distinct e.source_id) from mindful.memory_evidence e
                where e.tenant = m.tenant and e.id = m.id) as sources
        from mindful.memory_statement s
        join mindful.memory m on m.tenant = s.tenant and m.id = s.id
        left join mindful.memory_access a on a.tenant = m.tenant and a.id = m.id
        where s.tenant = (select _mindful.tenant()) and (m.valid_to is null or m.valid_to > pg_catalog.now())
    ),
    earned as (
        select id, level as held, case
            when sources >= (t ->> 'wisdom_evidence')::integer and accesses >= (t ->> 'wisdom_accesses')::integer
                and confidence >= (t ->> 'wisdom_confidence')::real then 'wisdom'
            when (sources >= (t ->> 'knowledge_evidence')::integer or accesses >= (t ->> 'knowledge_accesses')::integer)
                and confidence >= (t ->> 'knowledge_confidence')::real then 'knowledge'
            when sources > 0 then 'information'
            else 'data'
        end as level
        from measured, threshold
    ),
    promoted as (
        update mindful.memory m set level = e.level
        from earned e
        where m.tenant = (select _mindful.tenant()) and m.id = e.id
            and pg_catalog.array_position(array['data', 'information', 'knowledge', 'wisdom'], e.level)
                > pg_catalog.array_position(array['data', 'information', 'knowledge', 'wisdom'], e.held)
        returning 1
    )
    select pg_catalog.count(*) from promoted;
end;
comment on function _mindful.memory_promote() is
'Raises valid extracted facts to the highest level whose conditions they meet. information: one source. knowledge: knowledge_evidence sources or knowledge_accesses uses, and knowledge_confidence. wisdom: wisdom_evidence, wisdom_accesses and wisdom_confidence. No level is lowered.';

create function _mindful.consolidation_finish(run bigint) returns jsonb
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    last timestamptz;
    faded timestamptz;
begin
    select max(c.finished_at), max(c.finished_at) filter (where c.outputs ? 'days_decayed') into last, faded
    from mindful.consolidation c
    where c.tenant = (select _mindful.tenant()) and c.type = 'extract' and c.status = 'completed' and c.id <> run;
    return jsonb_build_object(
        'links_strengthened', _mindful.link_strengthen(coalesce(last, '-infinity')),
        'decayed', _mindful.memory_decay(floor(extract(epoch from now() - faded) / 86400)::integer),
        'promoted', _mindful.memory_promote())
        || case when faded is null or now() - faded >= interval '1 day'
            then jsonb_build_object('days_decayed', coalesce(floor(extract(epoch from now() - faded) / 86400), 0))
            else '{}' end;
end
$$;
comment on function _mindful.consolidation_finish(bigint) is
'Strengthens used links, lowers the importance of unused facts and promotes facts, when all texts are read. Decay counts whole days since the last one.';

create function _mindful.consolidation_close(run bigint, counts jsonb, failure text, done boolean) returns consolidation
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    closed mindful.consolidation;
begin
    update mindful.consolidation c
    set status = case when failure is not null then 'failed' when done then 'completed' else 'running' end,
        memories_processed = c.memories_processed + coalesce((counts ->> 'memories_processed')::integer, 0),
        pairs_generated = c.pairs_generated + coalesce((counts ->> 'pairs_generated')::integer, 0),
        outputs = _mindful.counts_add(c.outputs, counts - '{memories_processed,pairs_generated}'::text[]),
        error = failure,
        finished_at = case when done or failure is not null then clock_timestamp() end
    where c.tenant = (select _mindful.tenant()) and c.id = run
    returning c.* into closed;
    if closed.finished_at is not null then
        -- Any role may listen, so the payload contains neither tenant nor content.
        perform _mindful.consolidation_summary_refresh();
        perform pg_notify('mindful_consolidation', jsonb_build_object('id', closed.id, 'status', closed.status)::text);
    end if;
    return closed;
end
$$;
comment on function _mindful.consolidation_close(bigint, jsonb, text, boolean) is
'Adds a call''s counts to its run. If the run is done or failed, ends it and notifies the channel mindful_consolidation.';

create function memory_consolidate(
    since timestamptz default null,
    limits jsonb default '{}',
    extractor text default null,
    model text default null
) returns consolidation_detail
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    is_writable constant boolean := _mindful.writable();
    chosen text := coalesce(extractor, mindful.setting_get('consolidation_extractor') #>> '{}');
    texts integer := _mindful.limit(limits, 'memories', (mindful.setting_get('consolidation_memories') #>> '{}')::integer, 1000000);
    seconds integer := _mindful.limit(limits, 'seconds', null, 86400);
    run bigint;
    counts jsonb := '{}';
    remaining bigint;
    failure text;
    closed mindful.consolidation;
begin
    if chosen not in ('rule', 'model') then
        perform _mindful.raise('22023', format('extractor is %L', chosen), 'Pass rule or model.');
    end if;
    perform _mindful.range_argument('since', since);
    perform _mindful.consolidation_lock();
    run := _mindful.consolidation_open('extract', model, jsonb_strip_nulls(jsonb_build_object('since', since, 'limits', limits, 'extractor', chosen)));
    begin
        counts := _mindful.consolidate(run, since, chosen, model, texts, seconds);
        remaining := (select count(*) from _mindful.consolidation_pending(since));
        if remaining = 0 then
            counts := counts || _mindful.consolidation_finish(run);
        end if;
    exception when feature_not_supported then  -- a library is missing: no run of this server can succeed
        raise;
    when others then  -- a cancel is not among them
        failure := sqlstate || ': ' || sqlerrm;
        counts := '{}';
    end;
    closed := _mindful.consolidation_close(run, counts, failure, remaining = 0);
    return (closed.id, closed.status, chosen, closed.memories_processed,
        coalesce(remaining, (select count(*) from _mindful.consolidation_pending(since))),
        (closed.outputs ->> 'facts')::integer, (closed.outputs ->> 'strengthened')::integer,
        (closed.outputs ->> 'refined')::integer, (closed.outputs ->> 'contradicted')::integer,
        (closed.outputs ->> 'links')::integer, (closed.outputs ->> 'promoted')::integer,
        (closed.outputs ->> 'decayed')::integer, closed.outputs -> 'rejected', closed.error)::mindful.consolidation_detail;
end
$$;
comment on function memory_consolidate(timestamptz, jsonb, text, text) is
'Extracts facts from messages and documents that were not read yet, oldest first. since: only texts created since then. Each fact is a memory of kind fact, with quotes of its sources in memory_evidence. An existing fact gains a source. A contradicted fact gets valid_to and superseded_by. Related facts are linked. System prompts, generated answers and repetitions of both are rejected and counted. limits is {"memories": n, "seconds": n}; if a limit ends the call, the next call continues the run. When no text is left, used links are strengthened, unused facts lose importance, and facts are promoted from data to information, knowledge and wisdom. Without new texts a call changes nothing. extractor is rule (English, without a model) or model (a generator; NULL is the default one); default: the setting consolidation_extractor. A failed run is stored with its error and returned. Errors: 22008 (since is outside the years 1 to 9999), 22023 (limits, extractor), 55P03 (a run is active). Example: select status, facts, remaining from memory_consolidate(limits => ''{"memories": 500}'');';

create function _mindful.limit(limits jsonb, key text, initial integer, high integer) returns integer
language plpgsql immutable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    if limits is null or jsonb_typeof(limits) <> 'object' or limits - '{memories,seconds}'::text[] <> '{}' then
        perform _mindful.raise('22023', 'limits is not an object with memories and seconds', 'Pass limits such as {"memories": 500, "seconds": 60}.');
    elsif not limits ? key then
        return initial;
    elsif jsonb_typeof(limits -> key) <> 'number' or (limits ->> key)::numeric not between 1 and high
        or (limits ->> key)::numeric % 1 <> 0
    then
        perform _mindful.raise('22023', format('limit %s is %s', key, limits -> key), format('Pass a whole number between 1 and %s.', high));
    end if;
    return (limits ->> key)::numeric::integer;
end
$$;
comment on function _mindful.limit(jsonb, text, integer, integer) is
'Returns one of the limits of a run, or raises 22023.';
alter table model
    add column prompt_format text check (prompt_format in ('alpaca', 'chat')),
    add column max_sequence_length integer check (max_sequence_length between 16 and 1048576),
    add column specialization text not null default 'general_reasoning'
        check (specialization in ('general_reasoning', 'code_generation')),
    add column lora jsonb not null default '{}' check (jsonb_typeof(lora) = 'object');
comment on column model.prompt_format is
'Layout of training prompts: alpaca, or chat (the model''s own chat template). NULL: the model is not trained.';
comment on column model.max_sequence_length is
'Largest number of tokens of a training sample; NULL is the context length.';
comment on column model.specialization is 'Purpose of the model. It decides the forms of its training samples.';
comment on column model.lora is
'LoRA parameters that replace the defaults of mindful train: rank, alpha, dropout, epochs, learning_rate, batch.';

insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('training_consent', 'boolean', null, null, '{user}', 'false',
        'Whether what the user has told may become training samples.'),
    ('replay_level', 'text', null, null, '{global,user}', '"knowledge"', 'Lowest level of facts that become training samples.'),
    ('replay_confidence', 'number', 0, 1, '{global,user}', '0.7', 'Lowest confidence of facts that become training samples.'),
    ('replay_accesses', 'integer', 0, 1000000, '{global,user}', '0', 'Smallest number of accesses of facts that become training samples.');

create table training_sample (
    tenant text not null default _mindful.tenant(),
    id bigint generated always as identity,
    consolidation_id bigint not null,
    model text not null,
    form text not null check (form in ('recall', 'answer', 'explain', 'factors', 'apply', 'decide', 'abstain')),
    instruction text,
    input text,
    output text,
    source_id bigint not null,
    neighbor_ids bigint[] not null default '{}',
    confidence real not null,
    split text not null check (split in ('train', 'validation')),
    refused text[] not null default '{}',
    created_at timestamptz not null default now(),
    primary key (tenant, id),
    foreign key (tenant, consolidation_id) references consolidation (tenant, id) on delete cascade,
    foreign key (tenant, source_id) references memory (tenant, id) on delete cascade,
    check (refused <> '{}' or instruction is not null and output is not null)
);
comment on column training_sample.form is
'recall: a question answered without a quote. answer, explain: a question about a quote. factors: linked facts. apply: a preference about code. decide: contradicting facts. abstain: a question without a known answer.';
create index on training_sample (tenant, consolidation_id) where consolidation_id is not null;
create index on training_sample (tenant, source_id) where source_id is not null;
comment on table training_sample is
'Instruction pairs made from facts: accepted ones, and refused ones with the reasons.';
comment on column training_sample.source_id is 'The fact that the pair is about.';
comment on column training_sample.neighbor_ids is
'Other facts in the pair. If one of them is forgotten, the pair is deleted.';
comment on column training_sample.split is
'train or validation, by the sources of the fact. No source has facts in both.';
comment on column training_sample.refused is
'Gates that the pair failed: no_consent, no_evidence, not_valid, confidence, volatile, secret, personal, duplicate, mixed_split (it would put held-out facts into training), not_code (not for a code model), too_long. Texts of secret and personal pairs are not stored.';

create table training_sample_memory (
    tenant text not null default _mindful.tenant(),
    sample_id bigint not null,
    memory_id bigint not null,
    primary key (tenant, sample_id, memory_id),
    foreign key (tenant, sample_id) references training_sample (tenant, id) on delete cascade,
    foreign key (tenant, memory_id) references memory (tenant, id) on delete cascade
);
create index on training_sample_memory (tenant, memory_id) where memory_id is not null;
comment on table training_sample_memory is 'All memories that a pair was made from.';

alter table training_sample enable row level security, force row level security;
create policy own on training_sample using (tenant = (select _mindful.tenant())) with check (tenant = (select _mindful.tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.training_sample', '');
alter table training_sample_memory enable row level security, force row level security;
create policy own on training_sample_memory using (tenant = (select _mindful.tenant()))
    with check (tenant = (select _mindful.tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.training_sample_memory', '');
select pg_catalog.pg_extension_config_dump('mindful.training_sample_id_seq', '');

create function _mindful.sample_memory_lost() returns trigger
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    delete from mindful.training_sample s using old_rows o where s.tenant = o.tenant and s.id = o.sample_id;
    return null;
end
$$;
comment on function _mindful.sample_memory_lost() is 'Deletes training samples made from a forgotten memory.';

create function _mindful.sample_lost() returns trigger
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    update mindful.consolidation c set withdrawn = c.withdrawn + o.samples
    from (select tenant, consolidation_id, count(*) as samples from old_rows where refused = '{}' group by 1, 2) o
    where c.tenant = o.tenant and c.id = o.consolidation_id;
    return null;
end
$$;
comment on function _mindful.sample_lost() is 'Counts deleted samples in consolidation.withdrawn of their run.';

create trigger sample_lost after delete on training_sample referencing old table as old_rows
    for each statement when (pg_catalog.current_setting('row_security') = 'on' or not _mindful.is_restore()) execute function _mindful.sample_lost();
create trigger sample_memory_lost after delete on training_sample_memory referencing old table as old_rows
    for each statement when (pg_catalog.current_setting('row_security') = 'on' or not _mindful.is_restore()) execute function _mindful.sample_memory_lost();

create function training_configure(
    name text,
    prompt_format text,
    max_sequence_length integer default null,
    specialization text default 'general_reasoning',
    lora jsonb default '{}'
) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform _mindful.writable();
    if prompt_format is not null and prompt_format not in ('alpaca', 'chat') then
        perform _mindful.raise('22023', format('prompt_format is %L', prompt_format), 'Pass alpaca or chat.');
    elsif specialization is null or specialization not in ('general_reasoning', 'code_generation') then
        perform _mindful.raise('22023', format('specialization is %L', specialization), 'Pass general_reasoning or code_generation.');
    elsif lora is null or jsonb_typeof(lora) <> 'object' or lora - '{rank,alpha,dropout,epochs,learning_rate,batch}'::text[] <> '{}'
        or exists (select from jsonb_each(lora) e where jsonb_typeof(e.value) <> 'number')
    then
        perform _mindful.raise('22023', 'lora is not an object of LoRA parameters', 'Pass an object with some of the numbers rank, alpha, dropout, epochs, learning_rate and batch.');
    elsif max_sequence_length not between 16 and 1048576 then
        perform _mindful.raise('22023', format('max_sequence_length is %s', max_sequence_length), 'Pass max_sequence_length between 16 and 1048576.');
    end if;
    update mindful.model m
    set prompt_format = training_configure.prompt_format, max_sequence_length = training_configure.max_sequence_length,
        specialization = training_configure.specialization, lora = training_configure.lora
    where m.name = training_configure.name and m.kind = 'generator';
    if not found then
        perform _mindful.raise('42704', format('there is no generator %s', coalesce(quote_literal(name), 'null')),
            'The models that you may use are listed in mindful.model.');
    end if;
end
$$;
comment on function training_configure(text, text, integer, text, jsonb) is
'Sets how a generator is trained; for administrators. prompt_format is alpaca (### Instruction and ### Response), chat (the model''s own chat template) or NULL (it is not trained). max_sequence_length is the largest number of tokens of a pair, 16 to 1048576; NULL is the context length. specialization is general_reasoning or code_generation. lora holds the numbers rank, alpha, dropout, epochs, learning_rate and batch. Errors: 22023, 42704 (no such generator). Example: select training_configure(''smollm2-135m-instruct'', ''chat'', lora => ''{"rank": 8}'');';

create type replay_detail as (
    id bigint,
    status text,
    model text,
    facts integer,
    accepted integer,
    refused jsonb,
    below jsonb,
    error text
);
comment on type replay_detail is
'Result of replay_run: facts above the thresholds, accepted pairs, refused pairs by reason, and facts below each threshold.';

create function _mindful.replay_filter(filter jsonb) returns jsonb
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    found_filter jsonb := jsonb_build_object('level', mindful.setting_get('replay_level'),
        'confidence', mindful.setting_get('replay_confidence'), 'accesses', mindful.setting_get('replay_accesses'),
        'facts', 1000, 'since', null) || coalesce(filter, '{}');
begin
    if jsonb_typeof(coalesce(filter, '{}')) <> 'object' or found_filter - '{level,confidence,accesses,facts,since}'::text[] <> '{}' then
        perform _mindful.raise('22023', 'filter is not an object of thresholds', 'Pass an object with some of level, confidence, accesses, facts and since.');
    elsif coalesce(found_filter ->> 'level', '') <> all (array['data', 'information', 'knowledge', 'wisdom']) then
        perform _mindful.raise('22023', format('level is %L', found_filter ->> 'level'), 'Pass data, information, knowledge or wisdom.');
    elsif jsonb_typeof(found_filter -> 'confidence') <> 'number' or jsonb_typeof(found_filter -> 'accesses') <> 'number'
        or jsonb_typeof(found_filter -> 'facts') <> 'number' or not (found_filter ->> 'facts')::numeric between 1 and 1000000
    then
        perform _mindful.raise('22023', 'confidence, accesses and facts must be numbers', 'Pass numbers, such as {"confidence": 0.8, "accesses": 1, "facts": 500}.');
    end if;
    perform _mindful.time_argument('since', found_filter ->> 'since');
    return found_filter;
end
$$;
comment on function _mindful.replay_filter(jsonb) is
'Returns the thresholds of a replay run, from the filter or the settings, or raises 22023.';

create function _mindful.replay_facts(filter jsonb)
returns table (
    id bigint, subject text, relation text, object text, content text, confidence real, valid boolean, said date,
    superseded_by bigint, contradicted_by bigint, evidence jsonb, below text
)
language sql stable parallel safe security invoker
begin atomic
    select m.id, s.subject, s.relation, s.object, m.content, m.confidence,
        (m.valid_to is null or m.valid_to > pg_catalog.now()), m.valid_from::date, m.superseded_by,
        (select pg_catalog.min(l.source_id) from mindful.memory_link l
            where l.tenant = m.tenant and l.target_id = m.id and l.relation = 'contradicts'),
        (select pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object('source_id', e.source_id, 'quote', e.quote) order by e.source_id)
            from mindful.memory_evidence e where e.tenant = m.tenant and e.id = m.id),
        case
            when pg_catalog.array_position(array['data', 'information', 'knowledge', 'wisdom'], m.level)
                < pg_catalog.array_position(array['data', 'information', 'knowledge', 'wisdom'], filter ->> 'level') then 'level'
            when coalesce(m.confidence, 0) < (filter ->> 'confidence')::real then 'confidence'
            when coalesce(a.access_count, 0) < (filter ->> 'accesses')::numeric then 'accesses'
        end
    from mindful.memory_statement s
    join mindful.memory m on m.tenant = s.tenant and m.id = s.id
    left join mindful.memory_access a on a.tenant = m.tenant and a.id = m.id
    where s.tenant = (select _mindful.tenant())
        and (filter ->> 'since' is null or m.created_at >= (filter ->> 'since')::timestamptz)
    order by coalesce(a.access_count, 0) desc, m.confidence desc, m.id;
end;
comment on function _mindful.replay_facts(jsonb) is
'Returns extracted facts, the most used and most confident first, with the threshold that each is below, if any.';

create function _mindful.replay_neighbors(id bigint, most integer)
returns table (neighbor_id bigint, relation text, depth integer, content text)
language sql stable parallel safe security invoker
begin atomic
    with recursive walk (id, relation, depth, weight) as (
        select replay_neighbors.id, null::text, 0, 1::double precision
        union all
        select n.id, n.relation, w.depth + 1, w.weight * n.weight
        from walk w,
            lateral (
                select case when l.source_id = w.id then l.target_id else l.source_id end as id, l.relation, l.weight
                from mindful.memory_link l
                where l.tenant = (select _mindful.tenant()) and (l.source_id = w.id or l.target_id = w.id)
                    and l.relation <> 'contradicts'
                order by l.weight desc, 1 limit 8
            ) n
        where w.depth < 2
    ),
    nearest as (
        select distinct on (w.id) w.id, w.relation, w.depth, w.weight
        from walk w where w.id <> replay_neighbors.id order by w.id, w.depth, w.weight desc
    )
    select n.id, n.relation, n.depth, m.content
    from nearest n
    join mindful.memory m on m.tenant = (select _mindful.tenant()) and m.id = n.id
    where m.kind = 'fact' and (m.valid_to is null or m.valid_to > pg_catalog.now())
    order by n.depth, n.weight desc, n.id
    limit most;
end;
comment on function _mindful.replay_neighbors(bigint, integer) is
'Returns valid facts within two links of a fact, the nearest and most strongly linked first.';

create function _mindful.replay(run bigint, model text, thresholds jsonb) returns jsonb
language plpython3u volatile parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.learning.sample import replay
return replay(run, model, thresholds)
$python$;
comment on function _mindful.replay(bigint, text, jsonb) is
'Inserts the training samples of a run and returns counts.';

create function replay_run(model text, filter jsonb default '{}') returns replay_detail
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    thresholds jsonb := _mindful.replay_filter(filter);
    trained mindful.model;
    run bigint;
    counts jsonb := '{}';
    failure text;
    closed mindful.consolidation;
begin
    perform _mindful.writable();
    select m.* into trained from mindful.model m where m.name = replay_run.model and m.kind = 'generator';
    if not found then
        perform _mindful.raise('42704', format('there is no generator %s', coalesce(quote_literal(model), 'null')),
            'The models that you may use are listed in mindful.model.');
    elsif trained.prompt_format is null then
        perform _mindful.raise('55000', format('the model "%s" has no prompt format', model),
            format('Ask an administrator to call mindful.training_configure(%L, ''chat'').', model));
    end if;
    perform _mindful.consolidation_lock();
    run := _mindful.consolidation_open('replay', model, jsonb_strip_nulls(thresholds));
    begin
        counts := _mindful.replay(run, model, thresholds);
    exception when feature_not_supported then  -- a library is missing: no run of this server can succeed
        raise;
    when others then  -- a cancel is not among them
        failure := sqlstate || ': ' || sqlerrm;
        counts := '{}';
    end;
    closed := _mindful.consolidation_close(run, counts, failure, true);
    return (closed.id, closed.status, model, closed.memories_processed, closed.pairs_generated,
        closed.outputs -> 'refused', closed.outputs -> 'below', closed.error)::mindful.replay_detail;
end
$$;
comment on function replay_run(text, jsonb) is
'Makes instruction pairs for a generator from the tenant''s best facts, and returns counts. filter is an object with level (data, information, knowledge, wisdom), confidence (0 to 1), accesses, facts (the largest number of them) and since; defaults are the settings replay_level, replay_confidence and replay_accesses. The forms of pairs fit the model''s specialization. A pair is accepted if its evidence exists and is valid, the tenant consents (setting training_consent), it contains no secret and no personal data, it is not a duplicate, does not change soon, and fits max_sequence_length. Refused pairs are stored with the reasons. A run without a fact or an accepted pair has the status failed; its error names the thresholds. Errors: 22023 (filter), 42704 (no such generator), 55000 (the model has no prompt format), 55P03 (a run is active). Example: select id, accepted, refused from replay_run(''smollm2-135m-instruct'', ''{"level": "information"}'');';

create function _mindful.training_model(run bigint) returns jsonb
language plpython3u stable parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.learning.sample import training_model
return training_model(run)
$python$;
comment on function _mindful.training_model(bigint) is
'Returns what a training needs of the model of a replay run: model, source, sha256_base, prompt_format, max_sequence_length, specialization, lora, system_prompt. Error 42704 (no such run of the tenant).';
insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('training_gain', 'number', 0, 1, '{global,user}', '0.02',
        'Smallest gain of an adapter over its base, in F1 of words on held-out pairs, that makes it active.'),
    ('training_margin', 'number', 0, 1, '{global,user}', '0.05',
        'Largest loss of accuracy on general questions with which an adapter becomes active.');

create table training (
    tenant text not null default _mindful.tenant(),
    id bigint generated always as identity,
    consolidation_id bigint not null,
    base text not null,
    adapter text,
    status text not null default 'running' check (status in ('running', 'completed', 'failed')),
    dataset_sha256 text not null,
    samples integer not null,
    parameters jsonb not null default '{}',
    base_figures jsonb,
    adapter_figures jsonb,
    verdict text,
    error text,
    created_at timestamptz not null default clock_timestamp(),
    finished_at timestamptz,
    primary key (tenant, id),
    foreign key (tenant, consolidation_id) references consolidation (tenant, id),
    check ((status = 'failed') = (error is not null))
);
create index on training (tenant, consolidation_id) where consolidation_id is not null;
comment on table training is 'Trainings of adapters on replay runs, with the figures of base and adapter.';
comment on column training.dataset_sha256 is
'SHA-256 of the pairs as replay_export returns them in the format alpaca, one per line.';
comment on column training.verdict is 'Why the adapter became the tenant''s default generator, or why not.';

-- No foreign key to memory: the row must outlive a forgotten memory.
create table training_memory (
    tenant text not null default _mindful.tenant(),
    training_id bigint not null,
    memory_id bigint not null,
    primary key (tenant, memory_id, training_id),
    foreign key (tenant, training_id) references training (tenant, id) on delete cascade
);
create index on training_memory (tenant, training_id) where training_id is not null;
alter table model_tenant add constraint model_tenant_training foreign key (tenant, training_id) references training (tenant, id);
create index on model_tenant (tenant, training_id) where training_id is not null;
comment on table training_memory is
'Memories that adapters were trained on, and the sources of facts. Rows stay if the memory is forgotten.';

create table general_question (
    id integer primary key,
    question text not null,
    answer text not null
);
comment on table general_question is
'Fixed questions of general knowledge, to measure what training makes a model forget. An answer is right if it contains this text in any case.';
alter table general_question enable row level security, force row level security;
create policy read on general_question for select using (true);
insert into general_question (id, question, answer)
select row_number() over (), q.question, q.answer
from (values
    ('What is the capital of France?', 'Paris'), ('What is the capital of Japan?', 'Tokyo'), ('What is the capital of Italy?', 'Rome'),
    ('What is the capital of Germany?', 'Berlin'), ('What is the capital of Spain?', 'Madrid'), ('What is the capital of Egypt?', 'Cairo'),
    ('What is the capital of England?', 'London'), ('What is the capital of Russia?', 'Moscow'), ('What is the capital of China?', 'Beijing'),
    ('What is the capital of Greece?', 'Athens'), ('Which planet is closest to the sun?', 'Mercury'),
    ('Which planet is the largest in the solar system?', 'Jupiter'), ('Which planet is known as the red planet?', 'Mars'),
    ('What is the chemical formula of water?', 'H2O'), ('What gas do plants take in from the air?', 'carbon dioxide'),
    ('Who wrote Romeo and Juliet?', 'Shakespeare'), ('Who painted the Mona Lisa?', 'Leonardo'), ('Who developed the theory of relativity?', 'Einstein'),
    ('What is the largest ocean on Earth?', 'Pacific'), ('What is the longest river in Africa?', 'Nile'),
    ('What is the highest mountain on Earth?', 'Everest'), ('How many days are there in a week?', 'seven'), ('How many legs does a spider have?', 'eight'),
    ('What is the opposite of hot?', 'cold'), ('What is the opposite of up?', 'down'), ('Which animal is known as the king of the jungle?', 'lion'),
    ('What do bees make?', 'honey'), ('What is frozen water called?', 'ice'), ('Which language is spoken in Brazil?', 'Portuguese'),
    ('Which language is spoken in Mexico?', 'Spanish'), ('In which continent is Kenya?', 'Africa'), ('In which continent is India?', 'Asia'),
    ('In which country is the Eiffel Tower?', 'France'), ('In which country are the pyramids of Giza?', 'Egypt'),
    ('What is the first month of the year?', 'January'), ('What is the last month of the year?', 'December'),
    ('What color is the sky on a clear day?', 'blue'), ('What color is grass?', 'green'), ('What do we call a baby dog?', 'puppy'),
    ('What is the name of the star at the center of our solar system?', 'Sun')
) q (question, answer);

alter table training enable row level security, force row level security;
create policy own on training using (tenant = (select _mindful.tenant())) with check (tenant = (select _mindful.tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.training', '');
alter table training_memory enable row level security, force row level security;
create policy own on training_memory using (tenant = (select _mindful.tenant())) with check (tenant = (select _mindful.tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.training_memory', '');
select pg_catalog.pg_extension_config_dump('mindful.training_id_seq', '');

create function _mindful.text_f1(answer text, expected text) returns double precision
language sql stable parallel safe security invoker
begin atomic
    with given as (
        select w.word, pg_catalog.count(*) as n from pg_catalog.regexp_split_to_table(pg_catalog.lower(answer), '[^a-z0-9]+') w (word)
        where w.word <> '' group by w.word
    ),
    wanted as (
        select w.word, pg_catalog.count(*) as n from pg_catalog.regexp_split_to_table(pg_catalog.lower(expected), '[^a-z0-9]+') w (word)
        where w.word <> '' group by w.word
    )
    select coalesce(2.0 * (select pg_catalog.sum(least(g.n, w.n)) from given g join wanted w using (word))
        / nullif((select pg_catalog.sum(n) from given) + (select pg_catalog.sum(n) from wanted), 0), 0)::double precision;
end;
comment on function _mindful.text_f1(text, text) is
'Returns the F1 of the words of an answer against the expected text, as in SQuAD (Rajpurkar et al. 2016), but without the removal of articles.';

create function _mindful.is_abstention(answer text) returns boolean
language sql immutable parallel safe security invoker
begin atomic
    select answer ~* '\m(do not|don''t) know\M';
end;
comment on function _mindful.is_abstention(text) is 'Returns whether an answer says that it does not know.';

create function training_evaluate(run bigint, model text default null) returns jsonb
language plpgsql volatile parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    pairs mindful.training_sample[];
    questions mindful.general_question[];
    taught text[];
    answers text[];
    general text[];
    recalled text[];
begin
    perform _mindful.writable();
    perform mindful.replay_export(run);
    pairs := array(select s from mindful.training_sample s
        where s.tenant = (select _mindful.tenant()) and s.consolidation_id = run and s.refused = '{}' and s.split = 'validation'
        order by s.id);
    taught := array(select distinct s.instruction from mindful.training_sample s
        where s.tenant = (select _mindful.tenant()) and s.consolidation_id = run and s.refused = '{}' and s.split = 'train' and s.form = 'recall'
        order by 1);
    questions := array(select q from mindful.general_question q order by q.id);
    answers := mindful.llm_generate_many(array(select _mindful.sample_prompt(p.instruction, p.input) from unnest(pairs) p), model => training_evaluate.model, max_tokens => 64);
    recalled := mindful.llm_generate_many(taught, model => training_evaluate.model, max_tokens => 64);
    general := mindful.llm_generate_many(array(select q.question from unnest(questions) q), model => training_evaluate.model, max_tokens => 32);
    return (
        with answered as (
            select p.form, _mindful.text_f1(a.answer, p.output) as f1, _mindful.is_abstention(a.answer) as abstained
            from unnest(pairs) with ordinality p
            join unnest(answers) with ordinality a (answer, at) on a.at = p.ordinality
        )
        select jsonb_build_object('held_out_f1', round(avg(f1)::numeric, 4), 'held_out', count(*),
            'by_form', (select jsonb_object_agg(f.form, f.f1) from (select form, round(avg(f1)::numeric, 4) as f1 from answered group by form) f),
            'abstained_unanswerable', round(avg(abstained::integer) filter (where form = 'abstain'), 4),
            'abstained_answerable', round(avg(abstained::integer) filter (where form <> 'abstain'), 4))
        from answered
    ) || (
        select jsonb_build_object('taught_f1', round(avg(best.f1)::numeric, 4), 'taught', count(*))
        from unnest(recalled) with ordinality a (answer, at),
            lateral (
                select max(_mindful.text_f1(a.answer, s.output)) as f1 from mindful.training_sample s
                where s.tenant = (select _mindful.tenant()) and s.consolidation_id = run and s.refused = '{}' and s.split = 'train'
                    and s.form = 'recall' and s.instruction = taught[a.at]
            ) best
    ) || (
        select jsonb_build_object('general_accuracy', round(avg((strpos(lower(a.answer), lower(q.answer)) > 0)::integer), 4), 'general', count(*),
            'abstained_general', round(avg(_mindful.is_abstention(a.answer)::integer), 4))
        from unnest(questions) with ordinality q
        join unnest(general) with ordinality a (answer, at) on a.at = q.ordinality
    );
end
$$;
comment on function training_evaluate(bigint, text) is
'Measures a generator on the held-out pairs of a replay run, on its taught questions and on general questions, by greedy answers. NULL is the default generator. held_out_f1: mean F1 of words against the outputs of held-out pairs, by_form the same by form. taught_f1: mean F1 against the nearest right answer to questions of the training pairs. general_accuracy: share of general questions whose answer contains the right text. abstained_unanswerable, abstained_answerable, abstained_general: share of answers that say that the model does not know. Errors: 42704 (no such run or model), 57014 (cancelled), 55P03 (no free slot). Example: select training_evaluate(3, ''smollm2-135m-instruct'') -> ''held_out_f1'';';

create function _mindful.replay_hash(run bigint) returns text
language sql stable parallel safe security invoker
begin atomic
    select pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(coalesce(pg_catalog.string_agg(e.line::text, E'\n'), ''), 'UTF8')), 'hex')
    from mindful.replay_export(run) e (line);
end;
comment on function _mindful.replay_hash(bigint) is
'Returns the SHA-256 of the lines that replay_export returns in the format alpaca, joined by line feeds. A training refuses a dataset whose run has another hash by then. Error 42704.';

create function _mindful.training_start(run bigint, dataset_sha256 text, parameters jsonb default '{}') returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    started bigint;
begin
    perform _mindful.writable();
    if dataset_sha256 is distinct from _mindful.replay_hash(run) then
        perform _mindful.raise('55000', format('the pairs of run %s are no longer those of the dataset', run),
            'A memory was forgotten since the export. Export the run again.');
    end if;
    insert into mindful.training (consolidation_id, base, dataset_sha256, samples, parameters)
    select c.id, c.model, training_start.dataset_sha256,
        (select count(*) from mindful.training_sample s
            where s.tenant = c.tenant and s.consolidation_id = c.id and s.refused = '{}' and s.split = 'train'),
        training_start.parameters
    from mindful.consolidation c
    where c.tenant = (select _mindful.tenant()) and c.id = run
    returning id into started;
    insert into mindful.training_memory (training_id, memory_id)
    select started, x.memory_id
    from mindful.training_sample s
    join mindful.training_sample_memory x on x.tenant = s.tenant and x.sample_id = s.id
    where s.tenant = (select _mindful.tenant()) and s.consolidation_id = run and s.refused = '{}' and s.split = 'train'
    union
    select started, e.source_id
    from mindful.training_sample s
    join mindful.training_sample_memory x on x.tenant = s.tenant and x.sample_id = s.id
    join mindful.memory_evidence e on e.tenant = x.tenant and e.id = x.memory_id
    where s.tenant = (select _mindful.tenant()) and s.consolidation_id = run and s.refused = '{}' and s.split = 'train';
    return started;
end
$$;
comment on function _mindful.training_start(bigint, text, jsonb) is
'Records a training on a replay run''s pairs, and returns its id. Errors: 42704 (no such run), 55000 (the pairs have changed since the export).';

create type _mindful.training_detail as (verdict text, active boolean, base_figures jsonb, adapter_figures jsonb);
comment on type _mindful.training_detail is
'Result of a training: the verdict, whether the adapter became the tenant''s default generator, and the figures of both.';

create function _mindful.training_finish(id bigint, adapter text) returns _mindful.training_detail
language plpgsql volatile parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    trained mindful.training;
    of_base jsonb;
    of_adapter jsonb;
    gain numeric;
    loss numeric;
    kept boolean;
    outcome text;
begin
    perform _mindful.writable();
    select t.* into trained from mindful.training t
    where t.tenant = (select _mindful.tenant()) and t.id = training_finish.id and t.status = 'running';
    if not found then
        perform _mindful.raise('42704', format('there is no running training %s', coalesce(id::text, 'null')), 'List the tenant''s trainings in mindful.training.');
    elsif not exists (
        select from mindful.model_tenant t where t.tenant = trained.tenant and t.model = adapter and t.training_id = trained.id
    ) then
        perform _mindful.raise('42704', format('training %s has no adapter %s', id, coalesce(quote_literal(adapter), 'null')),
            format('Ask an administrator to register its file: mindful.adapter_register(name, %L, source, trained_on => %L).',
                trained.base, jsonb_build_object(trained.tenant, trained.id)));
    elsif _mindful.replay_hash(trained.consolidation_id) <> trained.dataset_sha256 then
        perform _mindful.raise('55000', format('the pairs of run %s are no longer those of training %s', trained.consolidation_id, id),
            'Export the run again, and train anew.');
    end if;
    of_base := mindful.training_evaluate(trained.consolidation_id, trained.base);
    of_adapter := mindful.training_evaluate(trained.consolidation_id, adapter);
    gain := (of_adapter ->> 'held_out_f1')::numeric - (of_base ->> 'held_out_f1')::numeric;
    loss := (of_base ->> 'general_accuracy')::numeric - (of_adapter ->> 'general_accuracy')::numeric;
    kept := coalesce(gain >= (mindful.setting_get('training_gain') #>> '{}')::numeric
        and loss <= (mindful.setting_get('training_margin') #>> '{}')::numeric, false);
    outcome := case
        when gain is null or loss is null then 'not active: the run has no held-out pairs'
        else format('%s: %s F1 on held-out pairs, %s of general accuracy', case when kept then 'active' else 'not active' end,
            to_char(gain, 'SG0.0000'), to_char(-loss, 'SG0.0000'))
    end;
    update mindful.training t
    set status = 'completed', adapter = training_finish.adapter, base_figures = of_base,
        adapter_figures = of_adapter, verdict = outcome, finished_at = clock_timestamp()
    where t.tenant = trained.tenant and t.id = trained.id and t.status = 'running';
    if not found then
        perform _mindful.raise('42704', format('there is no running training %s', id), 'List the tenant''s trainings in mindful.training.');
    end if;
    if kept then
        perform mindful.adapter_activate(adapter);
    end if;
    return (outcome, kept, of_base, of_adapter)::_mindful.training_detail;
end
$$;
comment on function _mindful.training_finish(bigint, text) is
'Measures the base and the adapter of a training by training_evaluate, and returns the verdict and the figures. The adapter becomes the tenant''s default generator if it gains at least training_gain on held-out pairs and loses at most training_margin on general questions. An administrator must have registered the adapter for the training. Errors: 42704 (no such training or adapter of it), 55000 (the pairs have changed since the export; the adapter was withdrawn), 57014 (cancelled), 55P03 (no free slot).';

create function _mindful.training_fail(id bigint, error text) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform _mindful.writable();
    update mindful.training t set status = 'failed', error = coalesce(training_fail.error, 'unknown'), finished_at = clock_timestamp()
    where t.tenant = (select _mindful.tenant()) and t.id = training_fail.id and t.status = 'running';
    if not found then
        perform _mindful.raise('42704', format('there is no running training %s', coalesce(id::text, 'null')), 'List the tenant''s trainings in mindful.training.');
    end if;
end
$$;
comment on function _mindful.training_fail(bigint, text) is
'Records that a training has failed, and why. Error 42704.';

create function adapter_activate(adapter text) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform _mindful.writable();
    perform from mindful.training t
    where t.tenant = (select _mindful.tenant()) and t.adapter = adapter_activate.adapter and t.status = 'completed';
    if not found then
        perform _mindful.raise('42704', format('no training of the tenant has made %s', coalesce(quote_literal(adapter), 'null')), 'List the tenant''s trainings in mindful.training.');
    end if;
    perform mindful.model_default_set(adapter, scope => 'user');
end
$$;
comment on function adapter_activate(text) is
'Makes an adapter of a completed training of the tenant its default generator. Errors: 42704 (no such training), 55000 (the adapter was withdrawn).';

create function adapter_rollback(base text) returns text
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    rolled text;
begin
    perform _mindful.writable();
    select m.name into rolled
    from _mindful.model_find('generator', null) f
    join mindful.model m on m.name = f.name and m.base = adapter_rollback.base;
    if not found then
        perform _mindful.raise('42704', format('no adapter of %s is active', coalesce(quote_literal(base), 'null')), 'The setting default_generator is the tenant''s own default.');
    end if;
    perform mindful.model_default_set(base, scope => 'user');
    return rolled;
end
$$;
comment on function adapter_rollback(text) is
'Makes a base the tenant''s default generator again instead of an adapter of it, and returns the adapter''s name. The adapter stays registered. Error 42704 (no adapter of the base is active). Example: select adapter_rollback(''smollm2-135m-instruct'');';

create function adapters_trained_on(memory_id bigint)
returns table (training_id bigint, adapter text, base text, active boolean, forgotten boolean, withdrawn boolean)
language sql stable parallel safe security invoker
begin atomic
    select t.id, coalesce(t.adapter, a.model), t.base,
        coalesce(t.adapter, a.model) is not distinct from (select f.name from _mindful.model_find('generator', null) f),
        not exists (select from mindful.memory m where m.tenant = t.tenant and m.id = x.memory_id),
        exists (select from mindful.model m where m.name = a.model and m.withdrawn_at is not null)
    from mindful.training_memory x
    join mindful.training t on t.tenant = x.tenant and t.id = x.training_id
    left join mindful.model_tenant a on a.tenant = t.tenant and a.training_id = t.id
    where x.tenant = (select _mindful.tenant()) and x.memory_id = adapters_trained_on.memory_id
    order by t.id, a.model;
end;
comment on function adapters_trained_on(bigint) is
'Returns the adapters that were trained on a memory, even if it was forgotten. active: it is the tenant''s default generator. forgotten: the memory was forgotten. withdrawn: the adapter serves no tenant any more.';

create function _mindful.adapter_withdraw() returns trigger
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    if exists (select from mindful.trained_weights) then
        update mindful.trained_weights w set withdrawn_at = clock_timestamp()
        where w.withdrawn_at is null and (w.tenant, w.training_id) in (
            select x.tenant, x.training_id
            from mindful.training_memory x join old_rows o on o.tenant = x.tenant and o.id = x.memory_id
            where _mindful.setting_of(x.tenant, 'adapter_on_forget') = '"withdraw"'
        );
        update mindful.model m set withdrawn_at = clock_timestamp()
        where m.withdrawn_at is null and m.trained_on > 0
            and m.sha256 in (select w.sha256 from mindful.trained_weights w where w.withdrawn_at is not null);
    end if;
    return null;
end
$$;
comment on function _mindful.adapter_withdraw() is
'Withdraws adapters trained on deleted memories, and models with the same file under other names. It runs with the owner''s rights, as users may not change models.';
create trigger adapter_withdraw after delete on memory referencing old table as old_rows
    for each statement when (pg_catalog.current_setting('row_security') = 'on' or not _mindful.is_restore()) execute function _mindful.adapter_withdraw();

create function _mindful.model_tenant_check() returns trigger
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    wrong record;
begin
    select n.model, t.base into wrong
    from new_rows n
    join mindful.training t on t.tenant = n.tenant and t.id = n.training_id
    join mindful.model m on m.name = n.model
    where m.base is distinct from t.base;
    if found then
        perform _mindful.raise('22023', format('the training was one of "%s", which is not the base of "%s"', wrong.base, wrong.model),
            'Give the training that made the adapter.');
    end if;
    select m.name into wrong
    from (select distinct r.model from new_rows r) n
    join mindful.model m on m.name = n.model
    join mindful.trained_weights w on w.sha256 = m.sha256
    group by m.name
    having bool_or(w.withdrawn_at is not null) or array_agg(distinct w.tenant order by w.tenant)
        <> array(select t.tenant from mindful.model_tenant t where t.model = m.name order by t.tenant)
    limit 1;
    if found then
        perform _mindful.raise('42710', format('the file of "%s" is that of an adapter that was trained on other tenants'' texts, or was withdrawn',
            wrong.name), 'Use mindful.adapter_share to have an adapter serve others.');
    end if;
    -- A concurrent deletion of one of these texts waits for this lock, then withdraws the adapter.
    perform from mindful.memory m
    where (m.tenant, m.id) in (
        select x.tenant, x.memory_id
        from new_rows n
        join mindful.training_memory x on x.tenant = n.tenant and x.training_id = n.training_id
        where _mindful.setting_of(n.tenant, 'adapter_on_forget') = '"withdraw"'
    )
    order by m.id for key share;
    select n.training_id into wrong
    from new_rows n
    join mindful.training_memory x on x.tenant = n.tenant and x.training_id = n.training_id
    where _mindful.setting_of(n.tenant, 'adapter_on_forget') = '"withdraw"'
        and not exists (select from mindful.memory m where m.tenant = x.tenant and m.id = x.memory_id)
    limit 1;
    if found then
        perform _mindful.raise('55000', format('a text of training %s was forgotten', wrong.training_id),
            'Export the run again, train anew, and delete the adapter''s file.');
    end if;
    insert into mindful.trained_weights (tenant, training_id, sha256)
    select n.tenant, n.training_id, m.sha256 from new_rows n join mindful.model m on m.name = n.model
    on conflict do nothing;
    return null;
end
$$;
comment on function _mindful.model_tenant_check() is
'Refuses an adapter whose base is not that of its training, whose file belongs to other tenants'' adapters, or whose training used a text that was forgotten since. Stores the hash of accepted files. It runs with the owner''s rights, as administrators may not read tenants'' rows.';
create trigger checked after insert on model_tenant referencing new table as new_rows
    for each statement when (pg_catalog.current_setting('row_security') = 'on' or not _mindful.is_restore()) execute function _mindful.model_tenant_check();

create function _mindful.forget_adapters(ids bigint[]) returns jsonb
language sql stable parallel safe security invoker
begin atomic
    select coalesce(pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object('adapter', m.name, 'file', m.source,
        'action', case when m.withdrawn_at is null then 'kept' else 'withdrawn' end) order by m.name), '[]')
    from mindful.model m
    where m.name in (
        select t.model
        from mindful.model_tenant t
        join mindful.training_memory x on x.tenant = t.tenant and x.training_id = t.training_id
        where t.tenant = (select _mindful.tenant()) and x.memory_id = any (ids)
    );
end;
comment on function _mindful.forget_adapters(bigint[]) is
'Returns the adapters that were trained on some of the tenant''s memories, with their files, and whether they were withdrawn or kept.';
create or replace view decision_log with (security_invoker = true) as
select d.tenant, d.id as decision_id, d.parent_id, d.created_at, d.message_id, d.replaced_by_id, d.model, d.ways, d.second_model, d.with_memory, d.signal_tier,
    d.probability, d.threshold, d.action, d.reason, l.correct, l.grader, d.signals, w.weights, d.alternatives, d.signal_ms, d.total_ms,
    t.budget, t.budget_kind, t.delta, d.calibrator_id, d.threshold_id
from mindful.decision d
left join mindful.threshold t on t.tenant = d.tenant and t.id = d.threshold_id
left join mindful.latest_outcome l on l.tenant = d.tenant and l.decision_id = d.id
left join lateral (
    select jsonb_object_agg(f.name, round((f.weight * (coalesce((d.signals ->> f.name)::double precision, f.mean) - f.mean)
        / f.scale)::numeric, 4)) as weights
    from mindful.calibrator c,
        unnest(c.features, c.means, c.scales, c.weights) f (name, mean, scale, weight)
    where c.tenant = d.tenant and c.id = d.calibrator_id
) w on true;
comment on view decision_log is
'One row per decision with all that explains it: signals, what each adds to the log-odds of being right (weights), threshold, budget, alternatives and label.';
create or replace view label_queue with (security_invoker = true) as
select d.tenant, d.message_id, d.id as decision_id, q.content as question, coalesce(d.answer, a.content) as answer,
    d.probability, d.threshold, d.action, d.created_at, d.offered, n.need, w.why
from mindful.decision d
join mindful.memory a on a.tenant = d.tenant and a.id = d.message_id and a.role = 'assistant'
left join mindful.memory q on q.tenant = a.tenant and q.id = _mindful.question_of(a.id)
cross join lateral (
    select case
        when d.offered then 'random'
        when d.calibrator_id is null then 'uncalibrated'
        when abs(d.probability - coalesce(d.threshold, 0.5)) < 0.1 then 'near'
        else 'any'
    end as need
) n
cross join lateral (
    select case n.need
        when 'random' then format('drawn at random: the label counts for %s flagged answers', round(1 / d.propensity))
        when 'uncalibrated' then format('answers of %s %s memories are not calibrated yet and need labels',
            d.model, case when d.with_memory then 'with' else 'without' end)
        when 'near' then format('the probability %s is near the threshold %s', round(d.probability::numeric, 2),
            coalesce(round(d.threshold::numeric, 2)::text, '(none yet: 0.5)'))
        else 'low priority: the model is already calibrated here'
    end as why
) w
where not exists (
    select from mindful.outcome o where o.tenant = d.tenant and o.decision_id = d.id
)
order by array_position(array['random', 'uncalibrated', 'near', 'any'], n.need),
    abs(d.probability - coalesce(d.threshold, 0.5)), d.id desc;
comment on view label_queue is
'Answers without a label, for answer_label, most needed first. need is random (drawn with the probability label_share: only such labels are an unbiased sample of flagged answers), uncalibrated (no calibrator exists for this kind of answer), near (the probability is within 0.1 of the threshold) or any. why is the reason in words.';
create or replace view reliability_curve with (security_barrier = true) as
select s.tenant, s.model, s.ways, s.second_model, s.with_memory, s.signal_tier, s.bin, count(*) as answers,
    sum(s.probability * s.weight) / sum(s.weight) as mean_probability,
    sum(s.correct::integer * s.weight) / sum(s.weight) as share_right
from (
    select b.*, ntile(greatest(1, least(10, b.labels / 20))::integer)
        over (partition by b.tenant, b.model, b.ways, b.second_model, b.with_memory, b.signal_tier order by b.probability) as bin
    from (
        select d.tenant, d.model, d.ways, d.second_model, d.with_memory, d.signal_tier, d.probability, 1 / d.propensity as weight, l.correct,
            count(*) over (partition by d.tenant, d.model, d.ways, d.second_model, d.with_memory, d.signal_tier) as labels
        from mindful.decision d
        join lateral (
            select o.correct from mindful.outcome o
            where o.tenant = d.tenant and o.decision_id = d.id order by o.id desc limit 1
        ) l on true
        where d.calibrator_id is not null
            and (d.tenant = (select _mindful.tenant()) or (select _mindful.reads_all()))
    ) b
) s
group by s.tenant, s.model, s.ways, s.second_model, s.with_memory, s.signal_tier, s.bin;
comment on view reliability_curve is
'Labelled answers in up to ten bins of equal size, at least 20 answers each, by predicted probability. A calibrated model has mean_probability equal to share_right. Both are means weighted by 1 / propensity (Horvitz and Thompson 1952; Hajek 1971). Shows the caller''s tenant, to mindful_reader all tenants.';
create or replace view risk_coverage with (security_barrier = true) as
select s.tenant, s.model, s.ways, s.second_model, s.with_memory, s.probability, s.weight / s.total as coverage, s.wrong / s.weight as risk
from (
    select d.tenant, d.model, d.ways, d.second_model, d.with_memory, d.probability, sum(1 / d.propensity) over ranked as weight,
        coalesce(sum(1 / d.propensity) filter (where not l.correct) over ranked, 0) as wrong,
        sum(1 / d.propensity) over (partition by d.tenant, d.model, d.ways, d.second_model, d.with_memory) as total
    from mindful.decision d
    join lateral (
        select o.correct from mindful.outcome o
        where o.tenant = d.tenant and o.decision_id = d.id order by o.id desc limit 1
    ) l on true
    where d.tenant = (select _mindful.tenant()) or (select _mindful.reads_all())
    window ranked as (partition by d.tenant, d.model, d.ways, d.second_model, d.with_memory order by d.probability desc)
) s;
comment on view risk_coverage is
'For each labelled answer: the share of labelled answers with at least its probability (coverage), and the share of wrong ones among these (risk). Labels are weighted by 1 / propensity. Shows the caller''s tenant, to mindful_reader all tenants.';
create or replace view signal_quality with (security_barrier = true) as
select s.tenant, s.model, s.ways, s.second_model, s.with_memory, s.signal, s.right_answers, s.wrong_answers, s.auroc,
    greatest(s.auroc - 1.96 * s.error, 0) as low, least(s.auroc + 1.96 * s.error, 1) as high
from (
    select r.tenant, r.model, r.ways, r.second_model, r.with_memory, r.signal, r.right_answers, r.wrong_answers, a.auroc,
        sqrt((a.auroc * (1 - a.auroc) + (n.right_answers - 1) * (a.auroc / (2 - a.auroc) - a.auroc ^ 2)
            + (n.wrong_answers - 1) * (2 * a.auroc ^ 2 / (1 + a.auroc) - a.auroc ^ 2))
            / (n.right_answers * n.wrong_answers)) as error
    from (
        select v.tenant, v.model, v.ways, v.second_model, v.with_memory, v.signal, count(*) filter (where v.correct) as right_answers,
            count(*) filter (where not v.correct) as wrong_answers,
            sum(v.weight) filter (where v.correct) as right_weight,
            sum(v.weight) filter (where not v.correct) as wrong_weight,
            sum(v.weight ^ 2) filter (where v.correct) as right_squares,
            sum(v.weight ^ 2) filter (where not v.correct) as wrong_squares,
            sum(v.weight * (v.wrong_up_to - v.wrong_beside / 2)) filter (where v.correct) as outranked
        from (
            select d.tenant, d.model, d.ways, d.second_model, d.with_memory, e.key as signal, l.correct, 1 / d.propensity as weight,
                coalesce(sum(1 / d.propensity) filter (where not l.correct) over (
                    partition by d.tenant, d.model, d.ways, d.second_model, d.with_memory, e.key order by e.value::double precision), 0) as wrong_up_to,
                coalesce(sum(1 / d.propensity) filter (where not l.correct) over (
                    partition by d.tenant, d.model, d.ways, d.second_model, d.with_memory, e.key, e.value::double precision), 0) as wrong_beside
            from mindful.decision d
            join lateral (
                select o.correct from mindful.outcome o
                where o.tenant = d.tenant and o.decision_id = d.id order by o.id desc limit 1
            ) l on true,
                jsonb_each_text(d.signals) e
            where d.tenant = (select _mindful.tenant()) or (select _mindful.reads_all())
        ) v
        group by v.tenant, v.model, v.ways, v.second_model, v.with_memory, v.signal
    ) r
    cross join lateral (select r.outranked / (r.right_weight * r.wrong_weight) as auroc) a
    cross join lateral (
        select r.right_weight ^ 2 / r.right_squares as right_answers, r.wrong_weight ^ 2 / r.wrong_squares as wrong_answers
    ) n
) s
where s.auroc is not null;
comment on view signal_quality is
'AUROC of each signal alone: the probability that it ranks a right answer above a wrong one. 0.5 is chance; below 0.5 high values indicate wrong answers. Pairs are weighted by the product of 1 / propensity (Horvitz and Thompson 1952). low and high bound the 95% interval (Hanley and McNeil 1982) for the effective number of answers (Kish 1965). Shows the caller''s tenant, to mindful_reader all tenants.';
create or replace view decision_daily with (security_barrier = true) as
select d.created_at::date as day, d.tenant, d.model, d.ways, d.second_model, d.action, count(*) as decisions, avg(d.probability) as mean_probability,
    avg(d.total_ms) as mean_ms, count(l.correct) as labels, count(*) filter (where not l.correct) as wrong, max(t.budget) as budget
from mindful.decision d
left join mindful.threshold t on t.tenant = d.tenant and t.id = d.threshold_id
left join lateral (
    select o.correct from mindful.outcome o
    where o.tenant = d.tenant and o.decision_id = d.id order by o.id desc limit 1
) l on true
where d.message_id is not null and (d.tenant = (select _mindful.tenant()) or (select _mindful.reads_all()))
group by d.created_at::date, d.tenant, d.model, d.ways, d.second_model, d.action;
comment on view decision_daily is
'Actions on the answers of chats by day, tenant and model, with the number of labels, the number of wrong answers and the error budget. mean_ms is the time of the decision without the generation of the answer. Shows the caller''s tenant, to mindful_reader all tenants.';
create or replace view signal_cost with (security_barrier = true) as
select d.tenant, d.model, d.ways, d.second_model, e.key as kind, count(*) as answers, avg(e.value::double precision) as mean_ms,
    percentile_cont(0.9) within group (order by e.value::double precision) as ms_p90
from mindful.decision d, jsonb_each_text(d.signal_ms) e
where d.tenant = (select _mindful.tenant()) or (select _mindful.reads_all())
group by d.tenant, d.model, d.ways, d.second_model, e.key;
comment on view signal_cost is
'Cost of each kind of signal (see decision.signal_ms) in milliseconds per answer. Shows the caller''s tenant, to mindful_reader all tenants.';
create or replace function confidence_report() returns jsonb
language sql stable parallel safe security invoker set jit = off
begin atomic
    select pg_catalog.jsonb_build_object(
        'daily', (select pg_catalog.jsonb_agg(pg_catalog.to_jsonb(v) - 'tenant' order by v.day, v.model)
            from mindful.confidence_daily v where v.tenant = (select _mindful.tenant())),
        'decisions', (select pg_catalog.jsonb_agg(pg_catalog.to_jsonb(v) - 'tenant' order by v.day, v.model, v.action)
            from mindful.decision_daily v where v.tenant = (select _mindful.tenant())),
        'reliability', (select pg_catalog.jsonb_agg(pg_catalog.to_jsonb(v) - 'tenant' order by v.model, v.with_memory, v.signal_tier, v.bin)
            from mindful.reliability_curve v where v.tenant = (select _mindful.tenant())),
        'risk', (
            select pg_catalog.jsonb_agg(pg_catalog.to_jsonb(p) - 'part' order by p.model, p.with_memory, p.coverage)
            from (
                select distinct on (v.model, v.ways, v.second_model, v.with_memory, pg_catalog.ceil(v.coverage * 100))
                    v.model, v.ways, v.second_model, v.with_memory,
                    v.coverage, v.risk, pg_catalog.ceil(v.coverage * 100) as part
                from mindful.risk_coverage v
                where v.tenant = (select _mindful.tenant())
                order by v.model, v.ways, v.second_model, v.with_memory, pg_catalog.ceil(v.coverage * 100), v.coverage desc
            ) p
        ),
        'signals', (select pg_catalog.jsonb_agg(pg_catalog.to_jsonb(v) - 'tenant' order by v.model, v.with_memory, v.auroc desc)
            from mindful.signal_quality v where v.tenant = (select _mindful.tenant())),
        'costs', (select pg_catalog.jsonb_agg(pg_catalog.to_jsonb(v) - 'tenant' order by v.model, v.kind)
            from mindful.signal_cost v where v.tenant = (select _mindful.tenant())),
        'thresholds', (
            select pg_catalog.jsonb_agg(pg_catalog.to_jsonb(t) - 'tenant' || pg_catalog.jsonb_build_object('model', c.model, 'ways', c.ways, 'second_model', c.second_model,
                'with_memory', c.with_memory, 'signal_tier', c.signal_tier) order by t.id)
            from mindful.threshold t
            join mindful.calibrator c on c.tenant = t.tenant and c.id = t.calibrator_id
            where t.tenant = (select _mindful.tenant())
        ),
        'tunings', (
            select pg_catalog.jsonb_agg(pg_catalog.to_jsonb(a) - 'tenant' order by a.id)
            from mindful.tuning a where a.tenant = (select _mindful.tenant()) and a.candidate is not null
        )
    );
end;
comment on function confidence_report() is
'Returns the views of confidence for the caller''s tenant as one JSON object: daily, decisions, reliability, risk (one point per percent of coverage), signals, costs, thresholds (alarms have the status tightened) and tunings. An empty list is null. The command mindful report draws it.';
-- A time outside the years 1 to 9999 makes every query fail that returns it, views for all tenants included.
do $do$
declare
    moment record;
    security text := current_setting('row_security');
begin
    perform set_config('row_security', 'off', true);  -- Triggers check only users' changes, see is_restore.
    for moment in
        select c.relname as relation, a.attname as name, a.attname like 'valid\_%' as is_open,
            format('%s_%s_range', c.relname, a.attname) as rule
        from pg_class c
        join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and a.atttypid = 'timestamptz'::regtype
        where c.relnamespace = 'mindful'::regnamespace and c.relkind = 'r'
            and exists (select from pg_attribute t where t.attrelid = c.oid and t.attname = 'tenant' and not t.attisdropped)
            and not exists (select from pg_constraint k where k.conrelid = c.oid and k.conname = format('%s_%s_range', c.relname, a.attname))
        order by c.relname, a.attnum
    loop
        -- Version 0.1.0 accepted any time.
        execute format('update mindful.%1$I t set %2$I = least(greatest(t.%2$I, %3$L), %4$L)
            where not _mindful.time_is_readable(t.%2$I) and (isfinite(t.%2$I) or not %5$L::boolean)',
            moment.relation, moment.name, '0001-01-02 00:00:00+00', '9999-12-30 00:00:00+00', moment.is_open);
        execute format('alter table mindful.%I add constraint %I check (%s)', moment.relation, moment.rule,
            format(case when moment.is_open then '_mindful.time_is_readable(%1$I) or not isfinite(%1$I)'
                else '_mindful.time_is_readable(%1$I)' end, moment.name));
    end loop;
    perform set_config('row_security', security, true);
end
$do$;
revoke update on model from mindful_admin;
-- modules of Python have moved into rooms
create or replace function model_register(
    name text,
    kind text,
    provider text,
    source text,
    options jsonb default '{}',
    granted_to text[] default '{mindful_user}'
) returns text
language plpython3u volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.models.registry import model_register
return model_register(name, kind, provider, source, options, granted_to)
$python$;
comment on function model_register(text, text, text, text, jsonb, text[]) is
'Registers a model and returns its name. For administrators (mindful_admin). The files are loaded once to check them. The first model of a kind becomes its default. kind is generator, embedder or reranker. provider is llama_cpp (source is the absolute path of a GGUF file on the server), sentence_transformers (a folder; embedders and rerankers only), openai (the address of a server with OpenAI''s interface, such as http://127.0.0.1:8080/v1 or unix:/run/engine.sock; docs/engines.md lists its options), or a provider that a Python package adds by an entry point in the group mindful.providers. options are described at model.options. An embedder gets a table for its vectors. granted_to names the roles whose members see and use the model. Errors: 08006 (the model''s server is down), 08P01 (it does not answer as expected), 0A000 (the provider''s Python package is missing), 22004, 22023 (bad argument, unknown provider), 42501 (address not allowed by the owner of the database server), 42710 (name taken), 58P01 (file not found), XX001 (file damaged). Example: select model_register(''gemma'', ''generator'', ''llama_cpp'', ''/srv/models/gemma.gguf'', ''{"context_length": 4096}'');';
create or replace function model_unload(name text default null) returns integer
language plpython3u volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.models.registry import model_unload
return model_unload(name)
$python$;
comment on function model_unload(text) is
'Frees the memory of a model that this connection has loaded, or of all (NULL), and returns their number. The next use loads the model again.';
create or replace function model_unregister(name text) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    chosen mindful.model;
    dependents text;
begin
    perform _mindful.writable();
    select m.* into chosen from mindful.model m where m.name = model_unregister.name for update;
    if not found then
        perform _mindful.raise('42704', format('there is no model %s', coalesce(quote_literal(name), 'null')),
            'The table mindful.model lists the models.');
    elsif chosen.is_default then
        perform _mindful.raise('55000', format('model "%s" is the default %s', name, chosen.kind),
            'Make another model the default with mindful.model_default_set first.');
    end if;
    select string_agg(quote_ident(m.name), ', ' order by m.name) into dependents
    from mindful.model m where m.fallback = model_unregister.name and m.name <> model_unregister.name;
    if dependents is not null then
        perform _mindful.raise('55000', format('model "%s" is the fallback of %s', name, dependents),
            'Call mindful.model_fallback_set(name, fallback) first, with another fallback or NULL.');
    end if;
    select string_agg(quote_ident(m.name), ', ' order by m.name) into dependents
    from mindful.model m where m.base = model_unregister.name;
    if dependents is not null then
        perform _mindful.raise('55000', format('model "%s" is the base of %s', name, dependents),
            'Unregister these adapters first.');
    end if;
    delete from mindful.model m where m.name = model_unregister.name;
    perform mindful.model_unload(name);
end
$$;
comment on function model_unregister(text) is
'Removes a model from the registry; its files stay. For administrators (mindful_admin). An embedder''s vectors, queued jobs and failed jobs are deleted, and the call waits for transactions that use mindful.memory. A generator''s cached states (kv_state) are deleted. Generations, decisions, calibrators and trainings of the model stay. A tenant that had it as its own default gets the global default. Other connections free its memory when they end. Errors: 42501, 42704 (no such model), 55000 (it is a default, or the fallback or base of another model). Example: select model_unregister(''old-embedder'');';
create or replace function model_fallback_set(name text, fallback text) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    given text;
    found_kind text;
begin
    perform _mindful.writable();
    -- Two concurrent calls could together make a cycle that neither of them sees.
    lock table mindful.model in share row exclusive mode;
    foreach given in array array[name, fallback] loop
        continue when given is null and fallback is null and name is not null;
        select m.kind into found_kind from mindful.model m where m.name = given;
        if not found then
            perform _mindful.raise('42704', format('there is no model %s', coalesce(quote_literal(given), 'null')),
                'The table mindful.model lists the models.');
        elsif found_kind <> 'generator' then
            perform _mindful.raise('22023', format('model "%s" is of kind %s', given, found_kind),
                'Both model and fallback must be generators.');
        end if;
    end loop;
    if exists (
        with recursive chain (name) as (
            select model_fallback_set.fallback
            union
            select m.fallback from chain c join mindful.model m on m.name = c.name where m.fallback is not null
        )
        select from chain c where c.name = model_fallback_set.name
    ) then
        perform _mindful.raise('22023', format('fallback "%s" leads back to model "%s"', fallback, name),
            'Pass a model whose chain of fallbacks does not contain this one, or NULL.');
    end if;
    update mindful.model m set fallback = model_fallback_set.fallback where m.name = model_fallback_set.name;
end
$$;
comment on function model_fallback_set(text, text) is
'Sets a generator''s fallback, the generator that is used when it is not confident of its answer; NULL removes it. For administrators (mindful_admin). The fallback is used by the action escalate and for signals of tier 2. A tenant that may not use the fallback gets answers without it. Errors: 22023 (not a generator, or a cycle of fallbacks), 42501, 42704 (no such model). Example: select model_fallback_set(''smollm2-135m-instruct'', ''gemma'');';
create or replace function model_serve(name text, server text default null, when_down text default 'embedded') returns void
language plpython3u volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.models.registry import model_serve
return model_serve(name, server, when_down)
$python$;
comment on function model_serve(text, text, text) is
'Has a server of llama.cpp run a model''s file for all connections; NULL has each connection run it again. For administrators (mindful_admin). The model must be registered with the provider llama_cpp. Its name, its embeddings and its calibrators stay. The server must run the same file: token by token for a generator, at cosine 0.999 for an embedder. when_down says what calls do that find the server down: embedded (they run the model in the connection) or error (08006). The command mindful engine starts such a server and calls this function. Example: SELECT mindful.model_serve(''smollm2-135m-instruct'', ''unix:/run/mindful/smollm2-135m-instruct.sock''). Errors: 22004, 22023 (bad argument, another model), 42501 (not an administrator, or an address that is not allowed), 42704 (no such model), 08006 and 08P01 (the server is down, or does not answer as such a server).';
create or replace function _mindful.model_deleted() returns trigger
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
set client_min_messages = warning
as $$
begin
    if old.kind = 'embedder' then
        execute format('drop table if exists mindful.%I', _mindful.embedding_table(old.name));
    end if;
    delete from mindful.kv_state k where k.model = old.name;
    return null;
end
$$;
comment on function _mindful.model_deleted() is
'Drops the vector table of a deleted embedder, and deletes a generator''s cached states (kv_state) of all tenants. It runs with the owner''s rights, because administrators neither own the table nor see the states.';
create trigger model_deleted after delete on model for each row execute function _mindful.model_deleted();
create or replace function mindful_status() returns status_detail
language plpython3u stable parallel restricted security invoker
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.models.status import mindful_status
return mindful_status()
$python$;
comment on function mindful_status() is
'Returns versions, the Python environment, the tenant, and the memory and loaded models of this connection. private_bytes is memory of this process alone. shared_bytes is memory that it shares with other processes, such as mapped model files. models is an array of objects with name, kind, provider, load_ms and private_bytes. Served models also have address, health (unknown, up, failing or paused), latency_ms of the last request, and last_error.';
comment on type status_detail is
'Result of mindful_status: versions, Python environment, memory and loaded models of the connection.';
create or replace function llm_embed(content text, model text default null) returns vector
language plpython3u stable parallel restricted security invoker cost 10000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.generate.llm import llm_embed
return llm_embed(content, model)
$python$;
comment on function llm_embed(text, text) is
'Embeds a text as a unit vector with an embedder (NULL: the default one). NULL gives NULL. A text longer than the embedder''s context is cut. In a query that orders by distance write (SELECT llm_embed(...)), else the model runs once per row. Errors: 22023 (empty text), 42704 (no such model), 55000 (no default embedder), 55P03 (no free slot), 57014 (cancelled). Example: select llm_embed(''a cat'') <=> llm_embed(''a kitten'') as cosine_distance;';
create or replace function llm_embed_many(contents text[], model text default null) returns vector[]
language plpython3u stable parallel restricted security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.generate.llm import llm_embed_many
return llm_embed_many(contents, model)
$python$;
comment on function llm_embed_many(text[], text) is
'Embeds texts in batches, which is much faster than single calls, and returns the vectors in the order of the texts. A NULL element gives NULL, a NULL array gives NULL. Errors as llm_embed.';
create or replace function llm_token_count(content text, model text default null) returns integer
language plpython3u stable parallel restricted security invoker cost 1000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.generate.llm import llm_token_count
return llm_token_count(content, model)
$python$;
comment on function llm_token_count(text, text) is
'Returns the number of tokens of a text for a generator or an embedder (NULL: the default generator), without special tokens. NULL gives NULL. Errors: 42704 (no such model), 54000 (more than 262144 bytes), 55000 (no default generator).';
create or replace function _mindful.memory_embed() returns trigger
language plpython3u volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.memory.embedding import memory_embed
return memory_embed()
$python$;
comment on function _mindful.memory_embed() is 'Embeds the new and changed rows of a statement in one batch.';

-- their callers
create or replace function _mindful.integer_argument(name text, value integer, low integer, high integer) returns integer
language sql stable parallel safe security invoker
begin atomic
    select case
        when value is null
            then _mindful.raise('22004', name || ' is null', pg_catalog.format('Pass a number between %s and %s.', low, high))::integer
        when value < low or value > high
            then _mindful.raise('22023', pg_catalog.format('%s is %s', name, value), pg_catalog.format('It must be between %s and %s.', low, high))::integer
        else value
    end;
end;
comment on function _mindful.integer_argument(text, integer, integer, integer) is
'Returns a number between low and high. Errors: 22004 (NULL), 22023 (out of range).';
create or replace function _mindful.memory_kind(kind text) returns text
language sql stable parallel safe security invoker
begin atomic
    select case
        when kind = any (array['fact', 'document', 'summary', 'reflection']) then kind
        else _mindful.raise('22023', pg_catalog.format('kind is %s', coalesce(pg_catalog.quote_literal(kind), 'null')),
            'Pass fact, document, summary or reflection. Use message_insert for messages.')::text
    end;
end;
comment on function _mindful.memory_kind(text) is
'Returns a kind that memory_insert accepts, or raises 22023.';
create or replace function _mindful.array_elements(name text, value jsonb, fields text[])
returns table (element jsonb, number bigint)
-- With PostgreSQL's default estimate of 1000 rows, queries over two of these are compiled by JIT, which takes 1.4 s.
language plpgsql stable parallel safe security invoker rows 10
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    unknown text;
begin
    if value is null then
        perform _mindful.raise('22004', name || ' is null', 'Pass a JSON array of objects.');
    elsif jsonb_typeof(value) <> 'array' then
        perform _mindful.raise('22023', name || ' is not a JSON array', 'Pass a JSON array of objects.');
    end if;
    for element, number in select e.value, e.ordinality from jsonb_array_elements(value) with ordinality e loop
        if jsonb_typeof(element) <> 'object' then
            perform _mindful.raise('22023', format('element %s of %s is not a JSON object', number, name),
                'Fields are ' || array_to_string(fields, ', ') || '.');
        end if;
        select k into unknown from jsonb_object_keys(element) k where k <> all (fields) limit 1;
        if found then
            perform _mindful.raise('22023', format('element %s of %s has an unknown field "%s"', number, name, unknown),
                'Fields are ' || array_to_string(fields, ', ') || '.');
        end if;
        return next;
    end loop;
end
$$;
comment on function _mindful.array_elements(text, jsonb, text[]) is
'Returns the objects of a JSON array, numbered from 1. Raises 22004 or 22023 with the number of an element that is not an object or has an unknown field.';
create or replace function _mindful.memory_total() returns table (memories double precision, mean_length double precision)
language sql stable parallel safe security invoker
begin atomic
    select coalesce(pg_catalog.sum(c.memories), 0)::double precision,
        (pg_catalog.sum(c.lexemes) / nullif(pg_catalog.sum(c.memories), 0))::double precision
    from mindful.memory_count c
    where c.tenant = (select _mindful.tenant());
end;
comment on function _mindful.memory_total() is
'Returns the number of the tenant''s memories and their mean number of lexemes.';
create or replace function _mindful.session_lock(session_id uuid) returns uuid
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform from mindful.session s
    where s.tenant = (select _mindful.tenant()) and s.session_id = session_lock.session_id
    for no key update;
    if not found then
        perform _mindful.raise('42704', format('there is no session %s', coalesce(session_id::text, 'null')),
            'Use session_start() to start one, or session_list() to see those of your tenant.');
    end if;
    return session_id;
end
$$;
comment on function _mindful.session_lock(uuid) is
'Locks a session against other writers, or raises 42704 if the tenant has no such session.';
create or replace view memory_overview with (security_barrier = true) as
select tenant, kind, count(*) as memories, min(created_at) as first_at, max(created_at) as last_at
from mindful.memory
where tenant = (select _mindful.tenant()) or (select _mindful.reads_all())
group by tenant, kind;
comment on view memory_overview is 'How many memories there are, by tenant and kind: one''s own, or for mindful_reader all.';

-- policies name their function's column by it
do $do$
declare
    policy record;
begin
    for policy in
        select p.policyname, p.tablename, p.qual, p.with_check from pg_catalog.pg_policies p
        where p.schemaname = 'mindful' and concat(p.qual, p.with_check) ~ ' AS _'
    loop
        execute format('alter policy %I on mindful.%I%s%s', policy.policyname, policy.tablename,
            ' using (' || regexp_replace(policy.qual, ' AS _[a-z_]+', '', 'g') || ')',
            ' with check (' || regexp_replace(policy.with_check, ' AS _[a-z_]+', '', 'g') || ')');
    end loop;
end
$do$;

revoke all on schema mindful, _mindful from public;
grant usage on schema mindful, _mindful to mindful_user, mindful_reader, mindful_admin;
revoke execute on all routines in schema mindful, _mindful from public;

-- Roles belong to the cluster, so another database may have granted the membership already.
do $do$
begin
    if not pg_catalog.pg_has_role('mindful_application', 'mindful_user', 'member') then
        grant mindful_user to mindful_application;
    end if;
end
$do$;

grant select on tenant_claim to mindful_user, mindful_reader, mindful_admin;
grant insert on tenant_claim to mindful_user, mindful_admin;

-- Version 0.1.0 granted privileges that allow LOCK TABLE (see deletion).
revoke update, delete on all tables in schema mindful from mindful_user, mindful_admin;
grant select on model, model_tenant, trained_weights to mindful_user, mindful_admin;
grant insert, delete on model to mindful_admin;
-- Administrators may not change trained_on and withdrawn_at.
grant update (source, options, license, context_length, fallback, is_default, granted_to,
    prompt_format, max_sequence_length, specialization, lora) on model to mindful_admin;
grant insert on model_tenant to mindful_admin;
-- The server sets who registered a tool, and its definition.
grant select on tool to mindful_user, mindful_admin;
grant insert (tenant, name, function, description, json_schema, read_only, accepted) on tool to mindful_user, mindful_admin;
grant insert on deletion to mindful_admin;
grant select, insert on deletion, index_rebuild, tenant_lock, session, memory, memory_access, memory_link, memory_evidence, memory_duplicate,
    attachment, embedding_job, embedding_job_failed, consolidation, memory_extraction, memory_statement, memory_entity to mindful_user;
revoke insert on memory_term, memory_count from mindful_user;
grant select on memory_term, memory_count to mindful_user;
select _mindful.update_grant(c.oid)
from pg_catalog.pg_class c
where c.relnamespace = 'mindful'::pg_catalog.regnamespace and c.relkind = 'r' and (
    c.relname = any (array['session', 'memory', 'memory_access', 'memory_link', 'memory_duplicate', 'attachment', 'embedding_job',
        'embedding_job_failed', 'consolidation', 'memory_extraction', 'training', 'training_sample'])
    or c.relname like 'memory\_embedding\_%'
);
-- Logs: rows are inserted and read, never updated.
grant select, insert on generation, review, forget_receipt, calibrator, threshold, gold, decision, outcome,
    tuning, action_gain to mindful_user;
grant select on latest_outcome, decision_log, label_queue to mindful_user;
grant select on reliability_curve, risk_coverage, signal_quality, decision_daily, signal_cost, action_latency
to mindful_user, mindful_reader;
grant select (tenant, id, name, scopes, requests_per_minute, expires_at, revoked_at, last_used_at, created_by, created_at),
    insert (tenant, name, hash, scopes, requests_per_minute, expires_at), update (revoked_at) on api_key to mindful_user, mindful_admin;
-- The server refuses rows without its seal, and sets the tenant and the time of use.
grant select, insert (session_id, list_id, model, first, fingerprint, tokens, state, mac) on kv_state to mindful_user;
grant select on conversation, memory_overview, model_usage, confidence_daily, embedding_status to mindful_user;
grant select on document to mindful_user;
-- An import needs the new ids before it inserts rows that refer to them.
grant usage on sequence memory_id_seq to mindful_user;

-- mindful_reader reads views with figures of all tenants, and no table.
grant select on memory_overview, model_usage, confidence_daily, embedding_status to mindful_reader;

grant select on setting_definition, setting, active_setting to mindful_user, mindful_admin;
grant insert on setting to mindful_user, mindful_admin;

grant execute on all routines in schema mindful, _mindful to mindful_user;
revoke execute on function key_use(text) from mindful_user;
grant execute on function key_use(text) to mindful_application;
revoke execute on function
    model_register(text, text, text, text, jsonb, text[]),
    model_unregister(text),
    model_fallback_set(text, text),
    model_serve(text, text, text),
    adapter_register(text, text, text, real, jsonb, text[], jsonb),
    adapter_share(text, text[]),
    _mindful.adapter_consents_check(text),
    _mindful.model_consents(text),
    _mindful.embedding_table_create(text, integer),
    memory_index_create(text, text),
    _mindful.retention_run_all(),
    _mindful.index_rebuild_all(),
    _mindful.retention_count(text, jsonb),
    _mindful.embedding_missing(text),
    _mindful.embedding_sweep_all(text),
    _mindful.job_run_all(integer, real),
    _mindful.job_retry_all(text),
    _mindful.consolidation_run_all(boolean, integer),
    _mindful.tuning_run_all(integer),
    embedding_replica_set(boolean),
    _mindful.embedding_count_all(),
    slot_status(),
    _mindful.update_grant(regclass),
    _mindful.kv_state_evict()
from mindful_user;
grant execute on function
    model_register(text, text, text, text, jsonb, text[]),
    model_unregister(text),
    model_fallback_set(text, text),
    model_serve(text, text, text),
    adapter_register(text, text, text, real, jsonb, text[], jsonb),
    adapter_share(text, text[]),
    _mindful.adapter_consents_check(text),
    _mindful.model_consents(text),
    _mindful.embedding_table_create(text, integer),
    memory_index_create(text, text),
    _mindful.retention_run_all(),
    _mindful.index_rebuild_all(),
    _mindful.embedding_missing(text),
    _mindful.embedding_sweep_all(text),
    _mindful.job_run_all(integer, real),
    _mindful.job_retry_all(text),
    _mindful.consolidation_run_all(boolean, integer),
    _mindful.tuning_run_all(integer),
    embedding_replica_set(boolean),
    embedding_enqueue(text),
    embedding_run(integer, real),
    embedding_retry(text),
    worker_schedule(text),
    consolidation_run(boolean, integer),
    consolidation_schedule(text),
    tuning_run(integer),
    tuning_schedule(text),
    _mindful.cron_schedule(text, text, text),
    retention_run(),
    memory_index_rebuild(),
    _mindful.integer_argument(text, integer, integer, integer),
    _mindful.range_argument(text, timestamptz),
    _mindful.embedding_table(text),
    model_default_set(text, boolean, text),
    _mindful.default_generator_set(text),
    _mindful.model_find(text, text),
    _mindful.model_serves(text, text[], integer, timestamptz),
    _mindful.model_consented(text),
    _mindful.default_base(text),
    _mindful.is_member(text[]),
    _mindful.tenant_roles(text),
    _mindful.raise(text, text, text),
    key_create(text, text, text[], integer, timestamptz),
    key_list(),
    key_revoke(uuid),
    _mindful.key_hash(text),
    _mindful.key_tenant(text),
    _mindful.text_argument(text, text),
    _mindful.short_argument(text, text),
    model_unload(text),
    mindful_status(),
    slot_status(),
    _mindful.tenant(),
    _mindful.time_is_readable(timestamptz),
    _mindful.is_restore(),
    _mindful.read_only_hint(),
    _mindful.writable(),
    _mindful.tenant_refuse(text, text),
    _mindful.tenant_required(),
    _mindful.tenant_claim(),
    _mindful.tenant_claimed(),
    setting_get(text, uuid),
    setting_set(text, jsonb, text, uuid, text, bigint),
    _mindful.retention_check(text, jsonb, bigint),
    _mindful.retention_count(text, jsonb),
    setting_undo(bigint),
    tool_register(text, regprocedure, text, jsonb, boolean, text),
    tool_unregister(text, text),
    _mindful.delete(text, jsonb, text),
    _mindful.tool_function(text),
    _mindful.tool_insert(text, text, text, jsonb, boolean, text),
    _mindful.tool_delete(text, text),
    _mindful.tool_role(),
    _mindful.setting_check(text, jsonb, text)
to mindful_admin;
grant execute on procedure worker_run(real, boolean) to mindful_admin;
grant execute on function _mindful.tenant(), _mindful.tenant_refuse(text, text), _mindful.raise(text, text, text), _mindful.reads_all(), _mindful.drift(bigint[], bigint[]), mindful_status(), _mindful.embedding_status(),
    _mindful.embedding_count_all()
to mindful_reader;

grant select, insert on training_sample, training_sample_memory to mindful_user;
-- The record of the texts that weights were trained on is permanent.
grant select, insert on training to mindful_user;
grant select, insert on training_memory to mindful_user;
grant select on general_question to mindful_user;
grant select on consolidation_summary to mindful_reader;
-- The parameters of training are the same for all tenants.
revoke execute on function training_configure(text, text, integer, text, jsonb) from mindful_user;
grant execute on function training_configure(text, text, integer, text, jsonb) to mindful_admin;

-- A role that may execute a trigger function could call it from a table of its own with any rows.
do $do$
declare
    function regprocedure;
begin
    for function in
        select p.oid from pg_catalog.pg_proc p
        where p.pronamespace operator(pg_catalog.=) any (array['mindful'::pg_catalog.regnamespace, '_mindful'::pg_catalog.regnamespace])
            and p.prorettype operator(pg_catalog.=) 'pg_catalog.trigger'::pg_catalog.regtype
    loop
        execute pg_catalog.format('revoke execute on function %s from mindful_user', function);
    end loop;
end
$do$;
-- Row-level security hides rows, but EXPLAIN shows estimates. For leakproof operators the planner makes them from
-- statistics of all tenants' rows. Therefore ANALYZE gathers no statistics of columns and indexed expressions here.
create function _mindful.statistics_remove() returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    part record;
begin
    for part in
        select c.oid, c.oid::regclass as relation, a.attname, a.attnum, i.indrelid is not null as is_index
        from pg_class c
        left join pg_index i on i.indexrelid = c.oid
        join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
        where c.relnamespace = 'mindful'::regnamespace and a.attstattarget is distinct from 0
            and (c.relkind = any ('{r,p,m}') or i.indkey[a.attnum - 1] = 0)
        order by c.oid, a.attnum
    loop
        if part.is_index then
            execute format('alter index %s alter column %s set statistics 0', part.relation, part.attnum);
        else
            execute format('alter table %s alter column %I set statistics 0', part.relation, part.attname);
        end if;
    end loop;
    -- ANALYZE does not remove the statistics that older versions gathered.
    delete from pg_statistic s using pg_class c where c.oid = s.starelid and c.relnamespace = 'mindful'::regnamespace;
    delete from pg_statistic_ext_data d using pg_statistic_ext s, pg_class c
    where s.oid = d.stxoid and c.oid = s.stxrelid and c.relnamespace = 'mindful'::regnamespace;
end
$$;
comment on function _mindful.statistics_remove() is
'Removes the planner''s statistics of the schema mindful, and stops ANALYZE from gathering them. It covers columns and indexed expressions. For the extension''s owner.';
revoke execute on function _mindful.statistics_remove() from public, mindful_user, mindful_admin;
select _mindful.statistics_remove();
-- The caller chooses the settings under which a SECURITY DEFINER function runs. With debug_print_plan and its relatives
-- the server would send the caller the function's plans, including texts and vectors of other tenants.
do $do$
declare
    found record;
begin
    for found in
        select p.oid::regprocedure as signature
        from pg_proc p
        where p.prosecdef and (p.pronamespace in ('mindful'::regnamespace, '_mindful'::regnamespace) or exists (
            select from pg_depend d join pg_extension e on e.oid = d.refobjid
            where d.classid = 'pg_proc'::regclass and d.objid = p.oid and d.refclassid = 'pg_extension'::regclass
                and d.deptype = 'x' and e.extname = 'mindful'
        ))
        order by p.oid
    loop
        execute format('alter function %s set debug_print_parse = off', found.signature);
        execute format('alter function %s set debug_print_rewritten = off', found.signature);
        execute format('alter function %s set debug_print_plan = off', found.signature);
    end loop;
end
$do$;
