create function memory_index_create(tenant text, model text default null) returns text
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    chosen text := (
        select m.name from mindful.model m
        where m.kind = 'embedder' and (m.name = memory_index_create.model or memory_index_create.model is null and m.is_default)
    );
    index_name text := _mindful.embedding_index(chosen, tenant);
    statement text;
begin
    perform _mindful.writable();
    if tenant is null then
        perform _mindful.raise('22004', 'tenant is null', 'Name the tenant whose memories are to be indexed.');
    elsif chosen is null then
        perform _mindful.raise('42704', format('there is no embedder %s', coalesce(quote_literal(model), 'by default')),
            'Embedders are listed in mindful.model.');
    end if;
    -- Of one tenant alone: a common index would leak, through the planner, what other tenants store. With the default
    -- ef_construction of 64, recall finds 0.97 of the ten nearest of 100,000 memories; with 128, 0.995 in the same time.
    select format('create index %I on mindful.%I using hnsw (embedding %s.%I) with (ef_construction = 128) where tenant = %L',
        index_name, _mindful.embedding_table(chosen), t.typnamespace::regnamespace, t.typname || '_cosine_ops', memory_index_create.tenant)
    into strict statement
    from pg_attribute a join pg_type t on t.oid = a.atttypid
    where a.attrelid = format('mindful.%I', _mindful.embedding_table(chosen))::regclass and a.attname = 'embedding';
    perform _mindful.lock_briefly('the embeddings', format('lock table mindful.%I in share mode', _mindful.embedding_table(chosen)));
    execute statement;
    return index_name;
end
$$;
comment on function memory_index_create(text, text) is
'Creates an HNSW index on one tenant''s embeddings by an embedder (NULL: the default) and returns its name. For administrators. It pays from some ten thousand memories; without it, recall is exact, at about 1.5 ms per 1000. The build is parallel if maintenance_work_mem holds it, see docs/scale.md.
Errors: 22004, 42704 (no such embedder), 42P07 (the index exists), 55P03.';

create function _mindful.index_rebuild_own() returns bigint
language sql volatile parallel unsafe security invoker
begin atomic
    insert into mindful.index_rebuild default values;
    select coalesce(pg_catalog.sum(c.memories), 0)::bigint from mindful.memory_count c where c.tenant = (select _mindful.tenant());
end;
comment on function _mindful.index_rebuild_own() is 'memory_index_rebuild for the tenant of the caller.';

create function _mindful.index_rebuild_all() returns bigint
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
set mindful.tenant = ''
set lock_timeout = '1s'
as $$
begin
    perform _mindful.tenants_run(
        array(select t from _mindful.memory_tenants() t union select distinct c.tenant from mindful.memory_count c),
        'memory_index_rebuild', 'select to_jsonb(_mindful.index_rebuild(_mindful.tenant())::text)');
    return (select coalesce(sum(c.memories), 0) from mindful.memory_count c);
end
$$;
comment on function _mindful.index_rebuild_all() is 'memory_index_rebuild for all tenants. It takes no argument and returns a count, so it may run with the owner''s rights.';

create function memory_index_rebuild() returns bigint
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
'Writes the full-text index of memories again, by the setting recall_language, and returns the number of memories. A user''s call works for the own tenant, an administrator''s call for all tenants. Time grows with the length of the texts.
Example: SELECT setting_set(''recall_language'', ''german''); SELECT memory_index_rebuild();';
