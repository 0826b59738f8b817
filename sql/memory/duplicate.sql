insert into setting_definition (key, type, low, high, scopes, initial, description, choices) values
    ('memory_duplicates', 'text', null, null, '{global,user}', '"keep"',
        'Action for a fact that is stored already. keep: a second memory. join_exact: one memory for equal texts, which counts the repetitions. join_near: also for similar embeddings (memory_duplicate_similarity).',
        '{keep,join_exact,join_near}'),
    ('memory_duplicate_similarity', 'number', 0.5, 1, '{global,user}', '0.95',
        'Lowest cosine similarity of the embeddings of two facts that join_near joins.', null);

create index memory_fact on memory (tenant, content_hash) where kind = 'fact' and source is null;

-- One row a text, because its lock is what keeps two writers from remembering the same at once. An advisory lock
-- could be taken by anybody who guesses the text.
create table memory_duplicate (
    tenant text not null default _mindful.tenant(),
    content_hash text not null,
    id bigint,
    repeats bigint not null default 0 check (repeats >= 0),
    last_at timestamptz not null default now(),
    primary key (tenant, content_hash),
    foreign key (tenant, id) references memory (tenant, id) on delete cascade
);
create index on memory_duplicate (tenant, id) where id is not null;
comment on table memory_duplicate is
'Number of repetitions of facts that were joined with an existing memory (setting memory_duplicates).';
comment on column memory_duplicate.content_hash is 'That of the fact; empty in the row that writers with join_near lock.';
alter table memory_duplicate enable row level security, force row level security;
create policy own on memory_duplicate using (tenant = (select _mindful.tenant())) with check (tenant = (select _mindful.tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.memory_duplicate', '');

create function _mindful.memory_joinable(fact memory) returns boolean
language sql stable parallel safe security invoker
begin atomic
    select fact.kind = 'fact' and fact.source is null and fact.source_key is null and fact.superseded_by is null
        and fact.valid_from is null and fact.valid_to is null;
end;
comment on function _mindful.memory_joinable(memory) is
'Returns whether a memory can be joined with another: a fact that is not superseded, without a source and without limits of validity.';

create function _mindful.memory_near(fact memory, later bigint[]) returns bigint
language plpgsql stable parallel restricted security invoker
set search_path = pg_catalog, mindful, pg_temp
set hnsw.iterative_scan = 'strict_order'
as $$
declare
    embedder text := (select f.name from _mindful.model_find('embedder', null) f);
    least_similarity double precision := mindful.setting_get('memory_duplicate_similarity') #>> '{}';
    found_embedding text;
    found_id bigint;
begin
    if embedder is null then
        return null;
    end if;
    execute format('select e.embedding::text from mindful.%I e where e.tenant = $1 and e.id = $2 and e.content_hash = $3',
        _mindful.embedding_table(embedder)) using fact.tenant, fact.id, fact.content_hash into found_embedding;
    if found_embedding is null then
        return null;
    end if;
    -- The tenant as a constant: an index of its own is found by it.
    execute format('
        select n.id
        from (
            select m.id, _mindful.distance(e.embedding, _mindful.vector($1)) as distance
            from mindful.%1$I e
            join mindful.memory m on m.tenant = e.tenant and m.id = e.id and m.content_hash = e.content_hash
            where e.tenant = %2$L and e.id <> all ($2) and m.metadata @> $3 and _mindful.memory_joinable(m)
            order by _mindful.distance(e.embedding, _mindful.vector($1))
            limit 1
        ) n
        where n.distance <= 1 - $4', _mindful.embedding_table(embedder), fact.tenant)
    using found_embedding, later, fact.metadata, least_similarity into found_id;
    return found_id;
end
$$;
comment on function _mindful.memory_near(memory, bigint[]) is
'Returns the nearest fact, by the default embedder, that is similar enough to a given one (memory_duplicate_similarity). Its metadata contain those of the given one. Facts of the array are left out.';

create function _mindful.memory_same(fact memory, later bigint[]) returns bigint
language sql stable parallel safe security invoker
begin atomic
    select pg_catalog.min(m.id)
    from mindful.memory m
    where m.tenant = (select _mindful.tenant()) and m.kind = 'fact' and m.source is null
        and m.content_hash = fact.content_hash and m.content = fact.content
        and m.id <> all (later) and m.metadata @> fact.metadata and _mindful.memory_joinable(m);
end;
comment on function _mindful.memory_same(memory, bigint[]) is
'Returns the oldest fact with the text of a given one. Its metadata contain those of the given one. Facts of the array are left out.';

create function _mindful.memory_repeat(id bigint) returns void
language sql volatile parallel unsafe security invoker
begin atomic
    insert into mindful.memory_duplicate as d (content_hash, id, repeats)
    select m.content_hash, m.id, 1
    from mindful.memory m
    where m.tenant = (select _mindful.tenant()) and m.id = memory_repeat.id
    on conflict (tenant, content_hash) do update
        set id = excluded.id, repeats = d.repeats + 1, last_at = pg_catalog.clock_timestamp();
end;
comment on function _mindful.memory_repeat(bigint) is 'Counts that a fact was remembered once more.';

create function _mindful.memory_join_lock(ids bigint[], near boolean) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    if near then
        insert into mindful.memory_duplicate (content_hash) values ('')
        on conflict (tenant, content_hash) do update set last_at = clock_timestamp();
    end if;
    -- In one order, lest two writers wait for each other.
    insert into mindful.memory_duplicate (content_hash, id)
    select m.content_hash, min(m.id)
    from mindful.memory m
    where m.tenant = _mindful.tenant() and m.id = any (ids) and _mindful.memory_joinable(m)
    group by m.content_hash
    order by m.content_hash
    on conflict (tenant, content_hash) do update set last_at = clock_timestamp();
end
$$;
comment on function _mindful.memory_join_lock(bigint[], boolean) is
'Keeps others from joining facts with the same texts, or with near any, until the transaction ends: what they have written is to be seen first.';

create function _mindful.memory_join(ids bigint[], near boolean) returns setof bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    fact mindful.memory;
    older bigint;
    later bigint[];
    stays bigint[] := ids;
    position integer;
begin
    perform _mindful.memory_join_lock(ids, near);
    for position in 1 .. cardinality(ids) loop
        select m.* into fact from mindful.memory m where m.tenant = _mindful.tenant() and m.id = ids[position];
        later := ids[position:];
        older := null;
        if _mindful.memory_joinable(fact) then
            older := _mindful.memory_same(fact, later);
            if older is null and near then
                older := _mindful.memory_near(fact, later);
            end if;
        end if;
        if older is not null then
            -- What one of them was not drawn from is not all that the memory rests on.
            update mindful.memory m set stated = true
            where m.tenant = fact.tenant and m.id = older and not m.stated
                and (select count(distinct v.id) from mindful.memory_evidence v
                    where v.tenant = fact.tenant and v.id in (fact.id, older)) < 2;
            insert into mindful.memory_evidence (id, source_id, quote)
            select older, v.source_id, v.quote
            from mindful.memory_evidence v
            where v.tenant = fact.tenant and v.id = fact.id and v.source_id <> older
            on conflict do nothing;
            perform _mindful.memory_repeat(older);
            perform _mindful.memory_delete(array[fact.id]);
            stays[position] := older;
        end if;
    end loop;
    return query select unnest(stays);
end
$$;
comment on function _mindful.memory_join(bigint[], boolean) is
'Joins new facts with those that exist, and returns for each the id that stays. The repetitions of the existing facts are counted, and they get the evidence of the new ones.';

create function _mindful.memory_supersede(ids bigint[]) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    fact mindful.memory;
    older bigint;
begin
    perform _mindful.memory_join_lock(ids, true);
    for fact in
        select m.* from mindful.memory m
        where m.tenant = _mindful.tenant() and m.id = any (ids) and _mindful.memory_joinable(m)
        order by m.id
    loop
        older := _mindful.memory_near(fact, array(select i from unnest(ids) i where i >= fact.id));
        if older is not null then
            update mindful.memory m set superseded_by = older, valid_to = clock_timestamp()
            where m.tenant = fact.tenant and m.id = fact.id;
            perform _mindful.memory_repeat(older);
        end if;
    end loop;
end
$$;
comment on function _mindful.memory_supersede(bigint[]) is
'Supersedes facts that a worker has embedded by those nearly the same. They stay, because clients have their ids.';

create function _mindful.source_key_check(memories jsonb, own bigint[] default '{}') returns void
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    repeated record;
begin
    -- Nothing is caught in place of this: a subtransaction for each insert slows every snapshot after 64 of them.
    select k.source, k.source_key, min(m.id) as id into repeated
    from jsonb_array_elements(memories) e (element)
    cross join lateral (select e.element ->> 'source' as source, e.element ->> 'source_key' as source_key) k
    left join mindful.memory m on m.tenant = (select _mindful.tenant()) and m.source = k.source and m.source_key = k.source_key
        and m.id <> all (own)
    where k.source is not null and k.source_key is not null
    group by k.source, k.source_key
    having count(*) > 1 or count(m.id) > 0
    limit 1;
    if repeated.id is not null then
        perform _mindful.raise('23505', format('memory %s has source %L and source_key %L', repeated.id, repeated.source, repeated.source_key),
            format('Use memory_update(%s, ...) to replace its text, or pass another source_key.', repeated.id));
    elsif found then
        perform _mindful.raise('23505', format('two elements have source %L and source_key %L', repeated.source, repeated.source_key),
            'Pass each source_key of a source once.');
    end if;
end
$$;
comment on function _mindful.source_key_check(jsonb, bigint[]) is
'Raises 23505 if a memory other than some, or two of the elements, have the same source and source_key.';
