-- PostgreSQL lets whoever may delete from a table, truncate it or update all of it take ACCESS EXCLUSIVE, and so stop all
-- tenants. So no role has these rights: UPDATE is granted by column, and a row of this table asks for rows to be deleted,
-- whose policy proves whose they are. No row of it outlives its statement.
create unlogged table deletion (
    tenant text not null default _tenant(),
    id bigint generated always as identity,
    relation text not null check (relation in ('session', 'memory', 'memory_link', 'memory_evidence', 'attachment',
        'embedding_job', 'embedding_job_failed', 'tool', 'kv_state')),
    keys jsonb not null check (jsonb_typeof(keys) = 'array'),
    primary key (tenant, id)
);
comment on table deletion is 'Requests to delete rows of the tenant: the relation, and the rows'' primary keys without the tenant. Carried out as it is inserted.';
alter table deletion enable row level security, force row level security;
-- A tool is its role's, not its tenant's.
create policy own on deletion using (tenant = (select mindful._tenant())) with check (
    tenant = (select mindful._tenant_claimed()) and (relation <> 'tool' or not exists (
        select from jsonb_array_elements(keys) k where k ->> 'registered_by' is distinct from current_user::text
    ))
);
create policy offer on deletion for insert to mindful_admin with check (tenant = '' and relation = 'tool');

create function _deletion_run() returns trigger
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
set mindful.tenant = '' -- or _tenant() would be what the user says, as the owner is believed
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
comment on function _deletion_run() is
'Deletes the rows that a new row of deletion names. It runs with the owner''s rights; whose rows they are, the policy of deletion has checked, and which tables, its constraint.';
create trigger deletion_run after insert on deletion for each row execute function _deletion_run();

create function _delete(relation text, keys jsonb, tenant text default _tenant()) returns bigint
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
comment on function _delete(text, jsonb, text) is
'Deletes rows of a tenant by their primary keys, an array of objects (NULL: none), and returns their number; the caller has just selected them. Errors: 42501 (another tenant''s), 23514 (a table whose rows are not deleted so).';

create function _memory_delete(ids bigint[], tenant text default _tenant()) returns bigint
language sql volatile parallel unsafe security invoker
begin atomic
    select mindful._delete('memory', pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object('id', i)), tenant)
    from pg_catalog.unnest(ids) i;
end;
comment on function _memory_delete(bigint[], text) is 'Deletes memories of a tenant, as _delete does.';

create function _update_grant(relation regclass) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    execute format('grant update (%s) on %s to mindful_user', string_agg(quote_ident(a.attname), ', '), relation)
    from pg_attribute a
    where a.attrelid = relation and a.attnum > 0 and not a.attisdropped and a.attgenerated = '' and a.attname <> 'tenant';
end
$$;
comment on function _update_grant(regclass) is
'Lets users update each column of a table but the tenant, which gives no right to LOCK TABLE. For the extension''s owner.';
