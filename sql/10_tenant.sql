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

create function _tenant() returns text
language sql stable parallel safe security invoker
begin atomic
    select case
        when pg_catalog.pg_has_role(current_user, 'mindful_application', 'usage')
            then coalesce(nullif(pg_catalog.current_setting('mindful.tenant', true), ''), current_user::text)
        else current_user::text
    end;
end;
comment on function _tenant() is
'Whose rows this is about: the current role, or the setting mindful.tenant where the role is a member of mindful_application, as an application that serves many people through one role is. Nobody else is believed.';

create function _reads_all() returns boolean
language sql stable parallel safe security invoker
begin atomic
    select pg_catalog.pg_has_role(current_user, 'mindful_reader', 'usage');
end;
comment on function _reads_all() is
'Whether the current role sees the figures of all tenants in the views for BI. It gives no sight of any table''s rows.';

create function _raise(sqlstate text, message text, hint text) returns boolean
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    raise exception using errcode = sqlstate, message = 'mindful: ' || message, hint = hint;
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
    select case when h.hint is null then true else mindful._raise('25006', 'the transaction is read-only', h.hint) end
    from (select mindful._read_only_hint() as hint) h;
end;
comment on function _writable() is 'Raises 25006 where this transaction may not write: called before anything is computed.';

create function _text_argument(name text, value text) returns text
language sql stable parallel safe security invoker
begin atomic
    select case
        when value is null
            then mindful._raise('22004', name || ' is null', 'Give a text.')::text
        when pg_catalog.btrim(value, E' \t\n\r') = ''
            then mindful._raise('22023', name || ' is empty', 'Give a text with at least one visible character.')::text
        when pg_catalog.octet_length(value) > 262144
            then mindful._raise('54000', pg_catalog.format('%s has %s bytes, more than 262144', name, pg_catalog.octet_length(value)),
                'Split it into passages: a long text is recalled better by its parts.')::text
        else value
    end;
end;
comment on function _text_argument(text, text) is 'Returns a text that can be remembered, or raises 22004, 22023 or 54000.';

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

