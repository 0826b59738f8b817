insert into setting_definition (key, type, low, high, scopes, initial, description, choices) values
    ('chat_tools', 'text', null, null, '{user,session}', '"off"',
        'Registered functions that a chat may call. off: none. read: read-only functions. write: all.', '{off,read,write}'),
    ('tool_calls', 'integer', 1, 8, '{global,user,session}', '1',
        'Largest number of functions that a chat calls for a message.', null),
    ('tool_timeout_ms', 'integer', 10, 600000, '{global,user,session}', '5000',
        'Time limit of one call of a function, in milliseconds.', null),
    ('tool_result_tokens', 'integer', 16, 100000, '{global,user,session}', '256',
        'Largest number of tokens of a function''s result in the prompt and in the stored turn.', null),
    ('tool_threshold', 'number', -1, 1, '{global,user,session}', '0.3',
        'Lowest cosine similarity of a message and a function''s description at which the function is called.', null);

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
            when pg_catalog.left(n.nspname, 3) = 'pg_' or n.nspname = any (array['information_schema', 'mindful', '_mindful'])
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
'Lets chats call a function if the setting tools allows it, and returns the tool''s name. A tool of the same name is replaced. The function runs with the rights of the role that registered it, in chats of that role only. Errors: 22004, 22023, 42501, 42809, 55000 (no tenant). Example: select tool_register(''weather'', ''public.weather(text)'', ''Returns the weather of a city.'');';

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
