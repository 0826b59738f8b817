create table setting_definition (
    key text not null,
    type text not null check (type in ('integer', 'number', 'boolean', 'text')),
    low double precision,
    high double precision,
    scopes text[] not null check (scopes <@ array['global', 'user', 'session']),
    initial jsonb not null,
    description text not null,
    choices text[],
    prompt text,
    tenant text not null default '',
    primary key (tenant, key),
    check ((tenant <> '') = (key ~ '^[a-z][a-z0-9_]*\.[a-z][a-z0-9_]*$')),
    check (tenant = '' or length(key) <= 100 and scopes = '{user,session}'
        and octet_length(coalesce(prompt, '') || description || initial::text || coalesce(choices::text, '')) <= 16384)
);
comment on table setting_definition is 'The settings that exist: type, range, scopes and initial value. Tenants add their own by setting_define.';
comment on column setting_definition.key is 'Name of the setting. Those that tenants define have a dot in it, as in app.units.';
comment on column setting_definition.tenant is 'Tenant that defined the setting; empty for the settings of the extension, which all tenants have.';
comment on column setting_definition.high is 'Largest number, or for texts the largest number of characters.';
comment on column setting_definition.choices is 'The allowed texts; NULL: any text.';
comment on column setting_definition.prompt is
'Sentence that tells the model the value (%s). The assistant may change only settings with such a sentence, when a message asks for it.';
alter table setting_definition enable row level security, force row level security;
-- The tenant is looked up only for tenants' own settings: a chat turn reads fifteen of the others.
create policy read on setting_definition for select using (tenant = '' or tenant = (select _mindful.tenant()));
create policy own on setting_definition using (tenant = (select _mindful.tenant()))
    with check (tenant = (select _mindful.tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.setting_definition', 'where tenant <> ''''');

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
    key text not null,
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
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
declare
    own_tenant text := _mindful.tenant();
    found jsonb;
begin
    -- The session keeps these plans, by indexes: a chat turn reads fifteen settings, there are a hundred definitions, and
    -- few settings were ever changed.
    if exists (select from mindful.setting c where c.key = setting_get.key and c.tenant = any (array['', own_tenant])) then
        found := (
            select s.value
            from (
                select distinct on (c.scope) c.scope, c.value
                from mindful.setting c
                where c.key = setting_get.key
                    and c.tenant = any (array['', own_tenant])
                    and (c.scope <> 'session' or c.session_id = setting_get.session_id)
                order by c.scope, c.id desc
            ) s
            where s.value <> 'null'
            order by array_position(array['session', 'user', 'global'], s.scope)
            limit 1
        );
    end if;
    if found is null then
        found := (
            select d.initial from mindful.setting_definition d
            where d.key = setting_get.key and d.tenant = any (array['', own_tenant])
        );
    end if;
    if found is null then
        perform _mindful.raise('42704', format('there is no setting %s', coalesce(quote_literal(key), 'null')),
            'Settings are listed in mindful.setting_definition.');
    end if;
    return found;
end
$$;
comment on function setting_get(text, uuid) is
'Returns the value of a setting that is in force. Error 42704: there is no such setting. The session''s value comes first, then the caller''s own, then the global one, then the initial one. Example: select setting_get(''chat_memories'');';

create function _mindful.settings(session_id uuid) returns jsonb
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
set plan_cache_mode = force_generic_plan
set enable_sort = off
as $$
declare
    own_tenant text := _mindful.tenant();
begin
    return (
        -- Few of the hundred settings were ever changed. Each key that was is found by one step in the index.
        with recursive changed (tenant, key) as (
            select t.tenant, (select min(s.key) from mindful.setting s where s.tenant = t.tenant)
            from unnest(array['', own_tenant]) t (tenant)
            union all
            select c.tenant, (select min(s.key) from mindful.setting s where s.tenant = c.tenant and s.key > c.key)
            from changed c
            where c.key is not null
        )
        select jsonb_object_agg(d.key, case when d.key in (select c.key from changed c where c.key is not null)
            then mindful.setting_get(d.key, settings.session_id) else d.initial end)
        from mindful.setting_definition d
        where d.tenant = any (array['', own_tenant])
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
    select d.* into defined from mindful.setting_definition d
    where d.key = setting_check.key and d.tenant = any (array['', (select _mindful.tenant())]);
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
    -- 5.0 is an integer, but does not read as one.
    return case when defined.type = 'integer' then to_jsonb(trunc((value #>> '{}')::numeric)) else value end;
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

create function _mindful.setting_value(type text, given text) returns jsonb
language plpgsql stable parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    parsed jsonb;
begin
    begin
        parsed := given::jsonb;
    exception when data_exception then
        return to_jsonb(given);
    end;
    if type = 'text' and jsonb_typeof(parsed) not in ('string', 'null') then
        return to_jsonb(given);
    end if;
    return coalesce(parsed, 'null');
end
$$;
comment on function _mindful.setting_value(text, text) is
'Returns the value of a setting of a type from its text form: JSON if it is JSON, else the text itself. A setting of type text gets numbers, booleans, arrays and objects as texts, as SET does. NULL is a JSON null.';

create function _mindful.setting_scope(key text, scope text) returns void
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    if scope = 'global' and not pg_has_role(current_user, 'mindful_admin', 'usage') then
        if key is not null then
            perform _mindful.setting_check(key, null, scope);
        end if;
        perform _mindful.raise('42501', format('role %s cannot change a setting of all tenants', current_user),
            case when key is null or exists (
                select from mindful.setting_definition d
                where d.key = setting_scope.key and d.tenant = '' and 'user' = any (d.scopes)
            ) then 'Use scope => ''user'' for your own tenant. ' else '' end
                || 'Only members of mindful_admin may use scope global.');
    end if;
end
$$;
comment on function _mindful.setting_scope(text, text) is
'Raises 42501 if a role that is not a member of mindful_admin changes a setting, or all settings (NULL), of scope global.';

create function setting_set(
    key text,
    value anycompatible,
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
    elsif scope = 'session' then
        perform from mindful.session s
        where s.tenant = (select _mindful.tenant()) and s.session_id = setting_set.session_id
        for key share;
        if not found then
            perform _mindful.raise('42704', format('there is no session %s', session_id),
                'Call session_start(), or select an id from mindful.session.');
        end if;
    end if;
    perform _mindful.setting_scope(key, scope);
    insert into mindful.setting (tenant, scope, session_id, key, value, reason, confirmed_rows)
    values (
        case scope when 'global' then '' else _mindful.tenant_required() end, scope, session_id, key,
        _mindful.setting_value(
            (
                select d.type from mindful.setting_definition d
                where d.key = setting_set.key and d.tenant = any (array['', (select _mindful.tenant())])
            ),
            value::text
        ),
        reason, confirmed_rows
    );
    return mindful.setting_get(key, session_id);
end
$$;
comment on function setting_set(text, anycompatible, text, uuid, text, bigint) is
'Changes a setting and returns the value in force afterwards. value is a number, a boolean, a text or JSON; null removes the scope''s setting. scope is global (for administrators), user (the caller''s tenant) or session. Errors: 22023 (value or scope), 42501 (scope global), 42704 (no such setting or session), 55000 (not confirmed). Example: select setting_set(''chat_memories'', 5);';

create function setting_reset(
    key text default null,
    scope text default 'user',
    session_id uuid default null,
    reason text default null
) returns integer
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    changed text;
    settings integer := 0;
begin
    perform _mindful.writable();
    if key is not null then
        perform _mindful.setting_check(key, 'null', scope);
    end if;
    perform _mindful.setting_scope(key, scope);
    for changed in
        select c.key
        from (
            select distinct on (s.key) s.key, s.value
            from mindful.setting s
            where s.tenant = case setting_reset.scope when 'global' then '' else (select _mindful.tenant()) end
                and s.scope = setting_reset.scope and s.session_id is not distinct from setting_reset.session_id
                and s.key = coalesce(setting_reset.key, s.key)
            order by s.key, s.id desc
        ) c
        where c.value <> 'null'
    loop
        perform mindful.setting_set(changed, null, scope, session_id, reason);
        settings := settings + 1;
    end loop;
    return settings;
end
$$;
comment on function setting_reset(text, text, uuid, text) is
'Takes a setting, or all settings if key is NULL, of one scope back, and returns the number of settings that changed.
The value of the next wider scope, or the initial value, is in force again. Each reset is a change and can be undone. Errors: 42704 (no such setting or session), 22023 (wrong scope), 42501 (scope global needs mindful_admin). Example: select setting_reset(''chat_memories'');';

create function _mindful.setting_undefined() returns trigger
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    delete from mindful.setting s where s.tenant = old.tenant and s.key = old.key;
    return null;
end
$$;
comment on function _mindful.setting_undefined() is 'Deletes the values of a deleted setting. It runs within _mindful.deletion_run, with the owner''s rights.';
create trigger undefined after delete on setting_definition for each row execute function _mindful.setting_undefined();

create function setting_define(
    key text,
    type text,
    description text,
    initial anycompatible default null,
    low double precision default null,
    high double precision default null,
    choices text[] default null,
    prompt text default null
) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    own_tenant text := _mindful.tenant_required();
    initial_value jsonb := _mindful.setting_value(type, initial::text);
    found_type text;
begin
    perform _mindful.writable();
    if key is null or type is null or description is null then
        perform _mindful.raise('22004', 'key, type or description is null', 'Pass all three.');
    elsif length(key) > 100 or key !~ '^[a-z][a-z0-9_]*[.][a-z][a-z0-9_]*$' then
        perform _mindful.raise('22023', format('key is %L', left(key, 120)), 'Use two lower-case names with a dot between, such as app.units, of at most 100 characters.');
    elsif type <> all ('{integer,number,boolean,text}') then
        perform _mindful.raise('22023', format('type is %L', type), 'It must be one of integer, number, boolean, text.');
    elsif choices is not null and (type <> 'text' or array_ndims(choices) is distinct from 1 or cardinality(choices) > 100
        or array_position(choices, null) is not null)
    then
        perform _mindful.raise('22023', 'choices are not for this setting', 'Pass an array of 1 to 100 texts, for a setting of type text.');
    elsif prompt is not null and strpos(prompt, '%s') = 0 then
        perform _mindful.raise('22023', 'prompt has no %s', 'Write %s where the value belongs: Use %s units.');
    elsif octet_length(coalesce(prompt, '') || description || initial_value::text || coalesce(choices::text, '')) > 16384 then
        perform _mindful.raise('54000', 'the definition has more than 16384 bytes', 'Shorten its texts.');
    elsif (
        select count(*) from (
            select from mindful.setting_definition d
            where d.tenant = own_tenant and d.key <> setting_define.key
            limit 100
        ) others
    ) = 100 then
        perform _mindful.raise('54000', 'the tenant has 100 settings of its own', 'Delete one by setting_undefine(key).');
    end if;
    select d.type into found_type from mindful.setting_definition d
    where d.tenant = own_tenant and d.key = setting_define.key;
    if found_type <> type then
        perform _mindful.raise('55000', format('setting %s is of type %s', key, found_type),
            format('Delete it with its values by setting_undefine(%L) first.', key));
    end if;
    insert into mindful.setting_definition as d (tenant, key, type, low, high, scopes, initial, description, choices, prompt)
    values (own_tenant, key, type, case when type in ('integer', 'number') then coalesce(low, -1e15) end,
        case when type in ('integer', 'number') then coalesce(high, 1e15) when type = 'text' then least(coalesce(high, 10000), 10000) end,
        '{user,session}', initial_value, description, choices, prompt)
    on conflict on constraint setting_definition_pkey do update
    set low = excluded.low, high = excluded.high, initial = excluded.initial, description = excluded.description,
        choices = excluded.choices, prompt = excluded.prompt;
    perform _mindful.setting_check(key, initial_value, 'user');
end
$$;
comment on function setting_define(text, text, text, anycompatible, double precision, double precision, text[], text) is
'Defines a setting of the tenant''s own, or defines it anew. The key has a dot in it. Values that were set stay. Errors: 22004, 22023, 54000, 55000. Example: select setting_define(''app.units'', ''text'', ''Units of measurement.'', choices => ''{metric,imperial}'', prompt => ''Use %s units.'');';

create function setting_undefine(key text) returns boolean
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform _mindful.writable();
    if not exists (
        select from mindful.setting_definition d
        where d.tenant = (select _mindful.tenant()) and d.tenant <> '' and d.key = setting_undefine.key
    ) then
        return false;
    end if;
    perform _mindful.delete('setting_definition', jsonb_build_array(jsonb_build_object('key', key)));
    return true;
end
$$;
comment on function setting_undefine(text) is
'Deletes a setting of the tenant''s own with all its values, and returns whether it existed. Settings of the extension stay.';

create view active_setting with (security_invoker = true) as
select d.key, mindful.setting_get(d.key) as value, d.initial, d.type, d.low, d.high, d.scopes, d.description, d.choices
from mindful.setting_definition d
where d.tenant = any (array['', (select _mindful.tenant())]);
comment on view active_setting is 'The settings that are in force for the caller outside of sessions.';
