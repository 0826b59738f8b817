-- A role with DELETE, TRUNCATE or UPDATE on a whole table can lock it in ACCESS EXCLUSIVE mode and so block all tenants.
-- Therefore no role has these privileges. UPDATE is granted by column. A row inserted here requests a deletion, and the
-- policy of this table checks the tenant. A trigger carries the request out and removes the row in the same statement.
create unlogged table deletion (
    tenant text not null default _mindful.tenant(),
    id bigint generated always as identity,
    relation text not null check (relation in ('session', 'memory', 'memory_link', 'memory_evidence', 'attachment',
        'embedding_job', 'embedding_job_failed', 'tool', 'kv_state', 'cached_result', 'classifier',
        'setting_definition')),
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
