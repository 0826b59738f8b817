insert into setting_definition (key, type, low, high, scopes, initial, description, choices) values
    ('tools', 'text', null, null, '{user,session}', '"off"',
        'Which registered functions a chat may call: none (off), those that only read (read), all (write).', '{off,read,write}'),
    ('tool_calls', 'integer', 1, 8, '{global,user,session}', '1', 'How many functions are called for a message at most.', null),
    ('tool_timeout_ms', 'integer', 10, 600000, '{global,user,session}', '5000', 'How long one call may take.', null),
    ('tool_result_tokens', 'integer', 16, 100000, '{global,user,session}', '256',
        'How much of a function''s result is shown and kept.', null),
    ('tool_threshold', 'number', -1, 1, '{global,user,session}', '0.3',
        'Cosine similarity of a message and a function''s description from which on it is called.', null);

create table tool (
    tenant text not null default _tenant(),
    name text not null check (name ~ '^[a-z][a-z0-9_]{0,62}$'),
    function text not null,
    description text not null check (btrim(description) <> '' and length(description) <= 1000),
    json_schema jsonb not null check (jsonb_typeof(json_schema) = 'object'),
    read_only boolean not null default true,
    registered_by text not null default current_user,
    created_at timestamptz not null default now(),
    primary key (tenant, name)
);
comment on table tool is 'Functions that a chat may call for its user, where the setting tools allows it.';
comment on column tool.tenant is 'Whose it is; empty for those that administrators have registered for all.';
comment on column tool.function is 'The function''s name and argument types; a text, so that upgrades and restores do not depend on it.';
comment on column tool.read_only is 'Whether it is called in a transaction that cannot write, and undone.';
alter table tool enable row level security, force row level security;
create policy own on tool using (tenant = (select mindful._tenant())) with check (tenant = (select mindful._tenant()));
create policy read_global on tool for select using (tenant = '');
create policy write_global on tool to mindful_admin using (tenant = '') with check (tenant = '');
select pg_catalog.pg_extension_config_dump('mindful.tool', '');

create function _tool_function(function text)
returns table (
    relation text, arguments jsonb, returns_set boolean, executable boolean, definer boolean, trusted boolean, kind text
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
        p.prosecdef,
        p.proowner = me.oid or owner.rolsuper or not me.rolsuper and p.proowner = (
            select d.datdba from pg_catalog.pg_database d where d.datname = pg_catalog.current_database()
        ),
        case when p.prokind <> 'f' then 'kind' when p.provariadic <> 0 then 'variadic'
            when p.prorettype = any ('{trigger,event_trigger,internal}'::regtype[]) then 'result' end
    from pg_catalog.pg_proc p
    join pg_catalog.pg_namespace n on n.oid = p.pronamespace
    join pg_catalog.pg_roles owner on owner.oid = p.proowner
    join pg_catalog.pg_roles me on me.rolname = current_user
    where p.oid = pg_catalog.to_regprocedure(function);
end;
comment on function _tool_function(text) is
'A function as the caller may use it as a tool: executable with the caller''s rights, definer if it runs with others'', trusted if it belongs to the caller, a superuser or, unless the caller is one, the database''s owner; kind says why it can be no tool at all.';

create function _tool_insert(
    name text, function text, description text, json_schema jsonb, read_only boolean, scope text
) returns text
language sql volatile parallel unsafe security invoker
begin atomic
    insert into mindful.tool (tenant, name, function, description, json_schema, read_only)
    select case scope when 'global' then '' else mindful._tenant() end, name, function, description, json_schema, read_only
    on conflict (tenant, name) do update
    set function = excluded.function, description = excluded.description, json_schema = excluded.json_schema,
        read_only = excluded.read_only, registered_by = current_user, created_at = pg_catalog.now()
    returning name;
end;
comment on function _tool_insert(text, text, text, jsonb, boolean, text) is 'Enters a tool, or replaces it.';

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
from mindful.tool import tool_register
return tool_register(name, function, description, json_schema, read_only, scope)
$python$;
comment on function tool_register(text, regprocedure, text, jsonb, boolean, text) is
'Lets chats call a function where the setting tools allows it, and returns its name; one of the same name is replaced. The description says in a sentence what it does: a message like it leads to a call. The JSON schema of its arguments, an object whose properties are named as they are, is made of their types where none is given; the generator is held to it. A function is called with the rights of the chat''s user, who needs EXECUTE, and with search_path pg_catalog, mindful, pg_temp; it must belong to that user, a superuser or the database''s owner, and not be SECURITY DEFINER. With read_only it runs in a subtransaction that cannot write and is undone. Scope user registers it for the caller, global for all (administrators). Errors: 22004, 22023 (bad name, description, schema or scope), 42809 (not a function that can be a tool), 42501 (not executable or not trusted; global is for mindful_admin).';

create function tool_unregister(name text, scope text default 'user') returns boolean
language sql volatile parallel unsafe security invoker
begin atomic
    select mindful._writable();
    with deleted as (
        delete from mindful.tool t
        where t.name = tool_unregister.name and t.tenant = case scope when 'global' then '' when 'user' then mindful._tenant() end
        returning 1
    )
    select case
        when scope = any (array['user', 'global']) then exists (select from deleted)
        else mindful._raise('22023', 'scope is ' || coalesce(scope, 'null'), 'Scopes are user and global.')
    end;
end;
comment on function tool_unregister(text, text) is 'Takes a tool back, and tells whether there was one. Error 22023: no such scope.';

create function _tool_settings(session_id uuid)
returns table (allowed text, calls integer, timeout_ms integer, result_tokens integer, threshold double precision)
language sql stable parallel safe security invoker rows 1
begin atomic
    select mindful.setting_get('tools', session_id) #>> '{}',
        mindful.setting_get('tool_calls', session_id)::integer,
        mindful.setting_get('tool_timeout_ms', session_id)::integer,
        mindful.setting_get('tool_result_tokens', session_id)::integer,
        mindful.setting_get('tool_threshold', session_id)::double precision;
end;
comment on function _tool_settings(uuid) is 'The settings in force that say whether and how tools are called.';

create function _tool_available(writing boolean)
returns table (
    name text, description text, json_schema jsonb, read_only boolean, relation text, arguments jsonb, returns_set boolean
)
language sql stable parallel safe security invoker
begin atomic
    select t.name, t.description, t.json_schema, t.read_only, f.relation, f.arguments, f.returns_set
    from (
        select distinct on (o.name) o.* from mindful.tool o
        where o.tenant = any (array['', (select mindful._tenant())])
        order by o.name, o.tenant desc
    ) t
    cross join lateral mindful._tool_function(t.function) f
    where (t.read_only or writing) and f.executable and f.trusted and not f.definer and f.kind is null
    order by t.name;
end;
comment on function _tool_available(boolean) is
'The tools that the caller may use now, with what is needed to call them; one''s own goes before one of all of the same name.';

create function _tool_run(statement text, arguments jsonb, read_only boolean) returns jsonb
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
comment on function _tool_run(text, jsonb, boolean) is 'Runs the statement of a tool''s call, and lets it write nothing with read_only.';
