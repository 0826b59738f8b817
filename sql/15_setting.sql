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
comment on table setting_definition is 'What can be set: type, range, where, and the value where nobody has set it.';
comment on column setting_definition.high is 'The largest number, or the number of characters of a text at most.';
comment on column setting_definition.choices is 'The texts that it can be; NULL: any.';
comment on column setting_definition.prompt is 'What the model is told of a value (%s). Only such settings are changed by the assistant, when a message asks for it.';
alter table setting_definition enable row level security, force row level security;
create policy read on setting_definition for select using (true);

insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('model_slots', 'integer', 0, 1024, '{global}', '0',
        'How many connections may run a model at once; 0 is one for each processor core.'),
    ('model_slot_wait_ms', 'integer', 1, 3600000, '{global,user}', '60000',
        'How long a call waits for a slot, in milliseconds, before it fails with 55P03.'),
    ('generation_log', 'boolean', null, null, '{global,user}', 'true',
        'Whether calls of generators are recorded in the table generation.');

create table setting (
    tenant text not null default _tenant(),
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
comment on table setting is 'Every change of a setting; the newest of its scope is in force. Value null takes the scope''s setting back.';
comment on column setting.tenant is 'Whose setting it is; empty for those of scope global.';
comment on column setting.confirmed_rows is 'How many rows an administrator agreed to remove by a retention setting of scope global.';
alter table setting enable row level security, force row level security;
create policy own on setting using (tenant = (select mindful._tenant())) with check (tenant = (select mindful._tenant_claimed()));
create policy read_global on setting for select using (tenant = '');
create policy write_global on setting for insert to mindful_admin with check (tenant = '');
select pg_catalog.pg_extension_config_dump('mindful.setting', '');
select pg_catalog.pg_extension_config_dump('mindful.setting_id_seq', '');

create function setting_get(key text, session_id uuid default null) returns jsonb
language sql stable parallel safe security invoker
begin atomic
    select coalesce(
        (
            select s.value
            from (
                select distinct on (c.scope) c.scope, c.value
                from mindful.setting c
                where c.key = setting_get.key
                    and c.tenant = any (array['', (select mindful._tenant())])
                    and (c.scope <> 'session' or c.session_id = setting_get.session_id)
                order by c.scope, c.id desc
            ) s
            where s.value <> 'null'
            order by pg_catalog.array_position(array['session', 'user', 'global'], s.scope)
            limit 1
        ),
        (select d.initial from mindful.setting_definition d where d.key = setting_get.key)
    );
end;
comment on function setting_get(text, uuid) is
'The value in force: the session''s, else the caller''s own, else the global one, else the initial one. NULL where there is no such setting.';

create function _setting_check(key text, value jsonb, scope text) returns jsonb
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    defined mindful.setting_definition;
    found_type text := jsonb_typeof(value);
begin
    select d.* into defined from mindful.setting_definition d where d.key = _setting_check.key;
    if not found then
        perform mindful._raise('42704', format('there is no setting %s', coalesce(quote_literal(key), 'null')),
            'Settings are listed in mindful.setting_definition.');
    elsif scope is null or scope <> all (defined.scopes) then
        perform mindful._raise('22023', format('setting %s has no scope %s', key, coalesce(quote_literal(scope), 'null')),
            format('Its scopes are %s.', array_to_string(defined.scopes, ', ')));
    elsif value is null or found_type = 'null' then
        return 'null';
    elsif found_type <> (case defined.type when 'integer' then 'number' when 'text' then 'string' else defined.type end)
        or defined.type = 'integer' and (value #>> '{}')::numeric % 1 <> 0
    then
        perform mindful._raise('22023', format('setting %s is %s', key, value), format('It must be of type %s.', defined.type));
    elsif found_type = 'number' and not (value #>> '{}')::numeric between defined.low::numeric and defined.high::numeric then
        perform mindful._raise('22023', format('setting %s is %s', key, value),
            format('It must be between %s and %s.', defined.low, defined.high));
    elsif found_type = 'number' and abs((value #>> '{}')::numeric) < 1e-9 and (value #>> '{}')::numeric <> 0 then
        perform mindful._raise('22023', format('setting %s is %s', key, value), 'It must be 0, or at least 1e-9 away from 0.');
    elsif value #>> '{}' <> all (defined.choices) then
        perform mindful._raise('22023', format('setting %s is %s', key, value),
            format('It must be one of %s.', array_to_string(defined.choices, ', ')));
    elsif found_type = 'string' and length(value #>> '{}') > defined.high then
        perform mindful._raise('22023', format('setting %s has %s characters', key, length(value #>> '{}')),
            format('It must have %s at most.', defined.high));
    end if;
    return value;
end
$$;
comment on function _setting_check(text, jsonb, text) is 'Returns a value that the setting can have, or raises 42704 or 22023.';

create function _setting_insert() returns trigger
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    new.value := mindful._setting_check(new.key, new.value, new.scope);
    if new.scope = 'global' and new.key ~ '^retention_' then
        perform mindful._retention_check(new.key, new.value, new.confirmed_rows);
    end if;
    new.changed_at := clock_timestamp();
    new.changed_by := coalesce(substring(new.changed_by from '^(?:assistant|confidence_adapt) for '), '') || current_user;
    return new;
end
$$;
comment on function _setting_insert() is
'Holds every change to the setting''s type, range and scopes, and says who made it and when, however it is inserted: workers read the settings of all tenants, and everybody may insert his own.';
-- pg_dump's scripts turn row_security off: restored changes are as they were.
create trigger checked before insert on setting for each row
    when (pg_catalog.current_setting('row_security') = 'on' or not mindful._is_restore()) execute function _setting_insert();

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
    perform mindful._writable();
    if (scope = 'session') <> (session_id is not null) then
        perform mindful._raise('22023', format('scope is %s, session_id %s', scope, coalesce(session_id::text, 'null')),
            'Give a session_id for scope session, and for no other.');
    elsif scope = 'session' and not exists (
        select from mindful.session s where s.tenant = (select mindful._tenant()) and s.session_id = setting_set.session_id
    ) then
        perform mindful._raise('42704', format('there is no session %s', session_id),
            'Start one with session_start(), or look at your own in mindful.session.');
    end if;
    insert into mindful.setting (tenant, scope, session_id, key, value, reason, confirmed_rows)
    values (case scope when 'global' then '' else mindful._tenant_required() end, scope, session_id, key, value, reason, confirmed_rows);
    return mindful.setting_get(key, session_id);
end
$$;
comment on function setting_set(text, jsonb, text, uuid, text, bigint) is
'Sets a value for all (scope global, for administrators), for the caller (user) or for one session, and returns the value now in force; a JSON null takes the scope''s setting back. Every change is kept, with who made it, when and why. A global retention setting removes rows of all tenants: the error 55000 says how many, and confirmed_rows must be at least that number. Errors: 42704 (no such setting, or session of yours), 22023 (wrong type, range or scope), 42501 (global is for mindful_admin), 55000 (not confirmed).';

create view active_setting with (security_invoker = true) as
select d.key, mindful.setting_get(d.key) as value, d.initial, d.type, d.low, d.high, d.scopes, d.description, d.choices
from mindful.setting_definition d;
comment on view active_setting is 'The settings in force for the caller, outside any session''s own.';

