-- The public functions are in the schema mindful.
create schema _mindful;
comment on schema _mindful is 'Internal functions of the extension mindful. They may change with any version; use the functions of the schema mindful.';

create function _mindful.tenant_refuse(message text, hint text) returns void
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

create function _mindful.tenant() returns text
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
    elsif named <> current_user and (left(named, 3) = 'pg_' or to_regrole(quote_ident(named)) is not null) then
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

create table tenant_claim (
    tenant text not null,
    by_role boolean not null,
    claim bigint not null default 0,
    primary key (tenant, claim)
);
comment on table tenant_claim is
'Names of tenants that have written, with their kind: role or application. A role created or renamed later cannot read the rows of an application''s tenant of the same name, and an application cannot read those of a former role.';
comment on column tenant_claim.by_role is 'true: the tenant is a role. false: an application sets its name.';
comment on column tenant_claim.claim is
'0, or a random number if another transaction claimed the same name at the same time and could still roll back.';
alter table tenant_claim enable row level security, force row level security;
-- _mindful.tenant() reads this table, so its policies cannot call it to read.
create policy own on tenant_claim
    using (tenant = current_user::text or tenant = pg_catalog.current_setting('mindful.tenant', true)
        and pg_catalog.pg_has_role(current_user, 'mindful_application', 'usage'))
    with check (tenant = (select _mindful.tenant()) and by_role = (tenant = current_user::text));
select pg_catalog.pg_extension_config_dump('mindful.tenant_claim', '');

create function _mindful.tenant_required() returns text
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

create function _mindful.tenant_claim() returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
set lock_timeout = '1ms'
as $$
begin
    insert into mindful.tenant_claim (tenant, by_role)
    select t.name, t.name = current_user from _mindful.tenant_required() t (name)
    on conflict do nothing;
exception when lock_not_available or serialization_failure then
    -- Another transaction claims the same name and may roll back. Writers must not wait for each other.
    insert into mindful.tenant_claim (tenant, by_role, claim)
    select t.name, t.name = current_user, 1 + floor(random() * 1e15) from _mindful.tenant_required() t (name);
end
$$;
comment on function _mindful.tenant_claim() is 'Stores the tenant''s name and kind in tenant_claim.';

create function _mindful.tenant_claimed() returns text
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
comment on function tenant_set(text) is
'Sets the tenant until the transaction ends and returns it, for members of mindful_application. NULL removes it. It works as SET LOCAL mindful.tenant, so it is safe behind a connection pooler. Error 42501: the role is not a member of mindful_application, or the tenant has the name of another role. Example: begin; select tenant_set(''customer-7''); select llm_chat(''Hello''); commit;';

create function _mindful.tenant_switch(tenant text) returns text
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    outer_tenant text := coalesce(current_setting('mindful.tenant', true), '');
begin
    perform set_config('mindful.tenant', tenant, true);
    return outer_tenant;
end
$$;
comment on function _mindful.tenant_switch(text) is
'Sets mindful.tenant until the transaction ends and returns its value before, with which a second call switches back. An error switches back by itself, as its subtransaction ends. Unlike tenant_set it checks nothing; workers use it.';

create function _mindful.reads_all() returns boolean
language sql stable parallel safe security invoker
begin atomic
    select pg_catalog.pg_has_role(current_user, 'mindful_reader', 'usage');
end;
comment on function _mindful.reads_all() is
'Returns whether the current role sees all tenants'' figures in the views for reports. It does not make rows of tables visible.';

create function _mindful.is_restore() returns boolean
language sql stable parallel safe security invoker
begin atomic
    select pg_catalog.current_setting('row_security') <> 'on'
        and not exists (
            select from pg_catalog.pg_roles r where r.rolname in (session_user, current_user) and not (r.rolsuper or r.rolbypassrls)
        );
end;
comment on function _mindful.is_restore() is
'Returns whether rows are being restored from a dump; triggers then keep them unchanged. A restore has row_security off, and both the session''s role and the current role bypass policies. row_security alone is not enough: any role can turn it off within a statement whose policies are applied already, and in functions and foreign keys that run with the owner''s rights.';

create function _mindful.deprecated(old_name text, new_name text) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    raise notice '%() is deprecated', old_name using hint = format('Call %s() instead. Version 0.4.0 removes the old name.', new_name);
end
$$;
comment on function _mindful.deprecated(text, text) is
'Raises a notice that a function is deprecated, with the name of the new function.';

create function _mindful.raise(sqlstate text, message text, hint text) returns boolean
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    raise exception using errcode = sqlstate, message = 'mindful: ' || left(message, 1000), hint = left(hint, 1000);
end
$$;
comment on function _mindful.raise(text, text, text) is
'Raises an error with a SQLSTATE, a message and a hint from within an expression. Message and hint are cut at 1000 characters.';

-- Both in PL/pgSQL, whose sessions keep the plan: a body in SQL that is not inlined is planned in each statement.
create function _mindful.read_only_hint() returns text
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    return case
        when pg_is_in_recovery() then 'This server is a standby: connect to the primary.'
        when current_setting('transaction_read_only') = 'on'
            then 'Start a read-write transaction. default_transaction_read_only may be set for the role, the database or the connection.'
    end;
end
$$;
comment on function _mindful.read_only_hint() is 'Returns a hint for a transaction that may not write, NULL if it may write.';

create function _mindful.writable() returns boolean
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    hint text := _mindful.read_only_hint();
begin
    return case when hint is null then _mindful.tenant_required() is not null
        else _mindful.raise('25006', 'the transaction is read-only', hint) end;
end
$$;
comment on function _mindful.writable() is
'Returns true if the transaction may write. Writing functions call it first. Errors: 25006 (read-only transaction or standby), 55000 (no tenant is set).';

create function _mindful.text_argument(name text, value text) returns text
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

create function _mindful.short_argument(name text, value text) returns text
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

create function _mindful.json_argument(name text, value jsonb) returns jsonb
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

create function _mindful.integer_argument(name text, value integer, low integer, high integer) returns integer
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
