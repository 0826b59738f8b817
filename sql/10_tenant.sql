-- Roles belong to the cluster, not to a database: another database may have made them already.
do $do$
declare
    wanted text;
begin
    foreach wanted in array array['mindful_user', 'mindful_reader', 'mindful_admin', 'mindful_application'] loop
        if not exists (select from pg_catalog.pg_roles where rolname operator(pg_catalog.=) wanted) then
            execute pg_catalog.format('create role %I nologin', wanted);
        end if;
    end loop;
end
$do$;

-- Who owns a schema can put functions of his own beside ours.
do $do$
begin
    if (select nspowner::pg_catalog.regrole::pg_catalog.text from pg_catalog.pg_namespace where nspname operator(pg_catalog.=) 'mindful')
        operator(pg_catalog.<>) current_user::pg_catalog.regrole::pg_catalog.text
    then
        raise exception using errcode = '42501', message = 'mindful: somebody else owns a schema mindful',
            hint = 'Look at what is in it, then drop it, or have its owner changed to the role that creates the extension.';
    end if;
end
$do$;

create function _tenant_refuse(message text, hint text) returns void
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    if not (select r.rolsuper from pg_roles r where r.rolname = current_user) then
        perform mindful._raise('42501', message, hint);
    end if;
end
$$;
comment on function _tenant_refuse(text, text) is
'Raises 42501, unless the current role is a superuser, whose background work acts for every tenant.';

create function _tenant() returns text
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
    -- Names that begin with pg_ are kept for roles of later versions.
    elsif named <> current_user and (named like 'pg\_%' or to_regrole(quote_ident(named)) is not null) then
        perform mindful._tenant_refuse(format('mindful.tenant is %L, the name of another role', named),
            'Give tenants names that no role has, such as customer-7.');
    end if;
    -- Every policy calls this: what is seldom needed stands in the branches.
    if exists (select from mindful.tenant_claim c where c.tenant = named and c.by_role <> (named = current_user)) then
        perform mindful._tenant_refuse(
            format(case when named = current_user then 'the name of the role %s is the name of a tenant of an application'
                else 'the tenant %s was a role' end, named),
            'Rename the role, or name the tenant otherwise.');
    end if;
    return named;
end
$$;
comment on function _tenant() is
'Returns the tenant whose rows the current role reads and writes. For a member of mindful_application it is the setting mindful.tenant, and NULL without one: no rows. For other roles it is the role''s name; a superuser may name any tenant. Error 42501: the tenant has the name of another role, or belongs to the other kind (see tenant_claim).';

create table tenant_claim (
    tenant text primary key,
    by_role boolean not null
);
comment on table tenant_claim is
'Tenants that have written, so that a role made or renamed later gets no rows of an application''s tenant of its name, nor an application those of a former role.';
comment on column tenant_claim.by_role is 'Whether the tenant is a role; else an application names it.';
alter table tenant_claim enable row level security, force row level security;
-- _tenant() reads this table, so its policies cannot call it to read.
create policy own on tenant_claim
    using (tenant = current_user::text or tenant = pg_catalog.current_setting('mindful.tenant', true)
        and pg_catalog.pg_has_role(current_user, 'mindful_application', 'usage'))
    with check (tenant = (select mindful._tenant()) and by_role = (tenant = current_user::text));
select pg_catalog.pg_extension_config_dump('mindful.tenant_claim', '');

create function _tenant_required() returns text
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    tenant text := mindful._tenant();
begin
    if tenant is null then
        perform mindful._raise('55000', 'no tenant is set',
            'Set it for the transaction: BEGIN; SELECT tenant_set(''customer-7''); ...');
    end if;
    return tenant;
end
$$;
comment on function _tenant_required() is 'Returns the tenant, or raises 55000 for a member of mindful_application that has set none.';

create function _tenant_claim() returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
set lock_timeout = '1ms'
as $$
begin
    insert into mindful.tenant_claim (tenant, by_role)
    select t.name, t.name = current_user from mindful._tenant_required() t (name)
    on conflict do nothing;
exception when lock_not_available or serialization_failure then
    null;  -- Another transaction is claiming it: writers do not wait for each other.
end
$$;
comment on function _tenant_claim() is 'Keeps the name of the tenant for roles, or for applications, as it is one of theirs.';

create function _tenant_claimed() returns text
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    writer text := mindful._tenant_required();
begin
    if not exists (select from mindful.tenant_claim c where c.tenant = writer) then
        perform mindful._tenant_claim();
    end if;
    return writer;
end
$$;
comment on function _tenant_claimed() is
'Returns the tenant that new rows belong to, for policies, and claims its name at the first row; 55000 without a tenant.';

create function tenant_set(tenant text) returns text
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform set_config('mindful.tenant', coalesce(tenant, ''), true);
    if nullif(tenant, '') is distinct from mindful._tenant() then
        perform mindful._raise('42501', format('role %s cannot act for the tenant %L', current_user, tenant),
            format('A superuser can GRANT mindful_application TO %I.', current_user));
    end if;
    return tenant;
end
$$;
comment on function tenant_set(text) is
'Sets the tenant until the transaction ends, as SET LOCAL mindful.tenant does, and returns it: for members of mindful_application. NULL: none. It never outlives the transaction, so it is safe behind a pooler. Error 42501: the role is no application, or the tenant has the name of another role.';

create function _reads_all() returns boolean
language sql stable parallel safe security invoker
begin atomic
    select pg_catalog.pg_has_role(current_user, 'mindful_reader', 'usage');
end;
comment on function _reads_all() is
'Whether the current role sees the figures of all tenants in the views for BI. It gives no sight of any table''s rows.';

create function _is_restore() returns boolean
language sql stable parallel safe security invoker
begin atomic
    select pg_catalog.current_setting('row_security') <> 'on'
        and (select r.rolsuper or r.rolbypassrls from pg_catalog.pg_roles r where r.rolname = session_user);
end;
comment on function _is_restore() is
'Whether a script of pg_dump is writing rows, for which triggers stay still: row_security is off, and the connection is of a role that is above policies. Others can turn row_security off within a statement, when its policies are applied already; and in functions and foreign keys that run with the owner''s rights.';

create function _raise(sqlstate text, message text, hint text) returns boolean
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    raise exception using errcode = sqlstate, message = 'mindful: ' || left(message, 1000), hint = left(hint, 1000);
end
$$;
comment on function _raise(text, text, text) is 'Raises an error from within an expression.';

create function _read_only_hint() returns text
language sql stable parallel safe security invoker
begin atomic
    select case
        when pg_catalog.pg_is_in_recovery() then 'This server is a standby: connect to the primary.'
        when pg_catalog.current_setting('transaction_read_only') = 'on'
            then 'Start a transaction that may write; default_transaction_read_only is a setting of the role, the database and the connection.'
    end;
end;
comment on function _read_only_hint() is 'What to do where this transaction may not write; NULL where it may.';

create function _writable() returns boolean
language sql stable parallel safe security invoker
begin atomic
    select case when h.hint is null then mindful._tenant_required() is not null
        else mindful._raise('25006', 'the transaction is read-only', h.hint) end
    from (select mindful._read_only_hint() as hint) h;
end;
comment on function _writable() is
'Raises 25006 where this transaction may not write, and 55000 where no tenant is set: called before anything is computed.';

create function _text_argument(name text, value text) returns text
language sql stable parallel safe security invoker
begin atomic
    select case
        when value is null
            then mindful._raise('22004', name || ' is null', 'Give a text.')::text
        when pg_catalog.octet_length(value) > 262144
            then mindful._raise('54000', pg_catalog.format('%s has %s bytes, more than 262144', name, pg_catalog.octet_length(value)),
                'Split it into passages: a long text is recalled better by its parts.')::text
        when pg_catalog.btrim(value, E' \t\n\r') = ''
            then mindful._raise('22023', name || ' is empty', 'Give a text with at least one visible character.')::text
        else value
    end;
end;
comment on function _text_argument(text, text) is 'Returns a text that can be remembered, or raises 22004, 22023 or 54000.';

create function _short_argument(name text, value text) returns text
language sql stable parallel safe security invoker
begin atomic
    select case
        when pg_catalog.octet_length(value) > 1024
            then mindful._raise('54000', pg_catalog.format('%s has %s bytes, more than 1024', name, pg_catalog.octet_length(value)),
                'Give a shorter one.')::text
        else value
    end;
end;
comment on function _short_argument(text, text) is 'Returns a name or a title of at most 1024 bytes, or raises 54000.';

create function _json_argument(name text, value jsonb) returns jsonb
language sql stable parallel safe security invoker
begin atomic
    select case
        when pg_catalog.pg_column_size(value) > 262144
            then mindful._raise('54000', pg_catalog.format('%s has %s bytes, more than 262144', name, pg_catalog.pg_column_size(value)),
                'Give less at once.')::text::jsonb
        else value
    end;
end;
comment on function _json_argument(text, jsonb) is 'Returns JSON of at most 262144 bytes, or raises 54000.';

create function _integer_argument(name text, value integer, low integer, high integer) returns integer
language sql stable parallel safe security invoker
begin atomic
    select case
        when value is null
            then mindful._raise('22004', name || ' is null', pg_catalog.format('Give a number between %s and %s.', low, high))::integer
        when value < low or value > high
            then mindful._raise('22023', pg_catalog.format('%s is %s', name, value), pg_catalog.format('It must be between %s and %s.', low, high))::integer
        else value
    end;
end;
comment on function _integer_argument(text, integer, integer, integer) is 'Returns a number within its bounds, or raises 22004 or 22023.';

