create function _mindful.language(name text) returns regconfig
language sql stable strict parallel safe security invoker
begin atomic
    select ('pg_catalog.' || pg_catalog.quote_ident(name))::regconfig;
end;
comment on function _mindful.language(text) is 'Returns one of the text-search configurations of PostgreSQL by its name.';

create function _mindful.terms(content text, language text default _mindful.recall_language())
returns table (lexeme text, frequency integer, length integer)
language sql stable parallel safe security invoker
begin atomic
    select t.lexeme, pg_catalog.cardinality(t.positions),
        (pg_catalog.sum(pg_catalog.cardinality(t.positions)) over ())::integer
    from pg_catalog.unnest(pg_catalog.to_tsvector(_mindful.language(language), content)) t;
end;
comment on function _mindful.terms(text, text) is 'Returns the lexemes of a text by a text-search configuration, the frequency of each, and their number in all.';

create function _mindful.memory_changed(tenant text, id bigint, content text) returns table (content text)
language sql stable parallel safe security invoker rows 1
begin atomic
    select m.content from mindful.memory m
    where m.tenant = memory_changed.tenant and m.id = memory_changed.id and m.content <> memory_changed.content
    offset 0;
end;
comment on function _mindful.memory_changed(text, bigint, text) is 'A memory''s content, if it was another.';

create function _mindful.memory_reindexed(tenant text, id bigint, content text, language text)
returns table (content text, language text)
language sql stable parallel safe security invoker rows 1
begin atomic
    select m.content, m.language from mindful.memory m
    where m.tenant = memory_reindexed.tenant and m.id = memory_reindexed.id
        and (m.content <> memory_reindexed.content or m.language <> memory_reindexed.language)
    offset 0;
end;
comment on function _mindful.memory_reindexed(text, bigint, text, text) is
'Returns the content and language of a memory if one of them differs from the arguments.';

create function _mindful.memory_index() returns trigger
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
set mindful.tenant = ''
set enable_hashjoin = off
set enable_mergejoin = off
set enable_seqscan = off
as $$
declare
    added record;
begin
    -- Each posting is looked up by its whole key, and each row by its own: a plan that is kept from a small statement else
    -- compares all rows of a large one with one another, or reads all postings of the tenant for each.
    if tg_op = 'DELETE' then
        delete from mindful.memory_term t
        using (select o.tenant, d.lexeme, o.id from old_rows o, _mindful.terms(o.content, o.language) d offset 0) gone
        where t.tenant = gone.tenant and t.lexeme = gone.lexeme and t.id = gone.id;
        perform _mindful.memory_count_add(o.tenant, -count(*), -sum(_mindful.length(o.content, o.language)),
            -sum(_mindful.memory_bytes(o.content, o.metadata)))
        from old_rows o group by o.tenant;
    elsif tg_op = 'INSERT' then
        -- Each text is parsed once.
        for added in
            with term as materialized (
                select n.tenant, n.id, d.lexeme, d.frequency, d.length from new_rows n, _mindful.terms(n.content, n.language) d
            ),
            stored as (
                insert into mindful.memory_term (tenant, lexeme, id, frequency, length)
                select t.tenant, t.lexeme, t.id, t.frequency, t.length from term t
            ),
            counted as (
                select t.tenant, sum(t.frequency) as lexemes from term t group by t.tenant
            )
            select n.tenant, count(*) as memories, coalesce(max(c.lexemes), 0) as lexemes,
                sum(_mindful.memory_bytes(n.content, n.metadata)) as bytes
            from new_rows n left join counted c on c.tenant = n.tenant
            group by n.tenant
        loop
            perform _mindful.memory_count_add(added.tenant, added.memories, added.lexemes, added.bytes);
        end loop;
    else
        delete from mindful.memory_term t
        using (
            select o.tenant, d.lexeme, o.id
            from old_rows o, _mindful.memory_reindexed(o.tenant, o.id, o.content, o.language), _mindful.terms(o.content, o.language) d
            offset 0
        ) gone
        where t.tenant = gone.tenant and t.lexeme = gone.lexeme and t.id = gone.id;
        insert into mindful.memory_term (tenant, lexeme, id, frequency, length)
        select o.tenant, d.lexeme, o.id, d.frequency, d.length
        from old_rows o, _mindful.memory_reindexed(o.tenant, o.id, o.content, o.language) n,
            _mindful.terms(n.content, n.language) d;
        perform _mindful.memory_count_add(o.tenant, 0,
            sum(_mindful.length(n.content, n.language) - _mindful.length(o.content, o.language)), 0)
        from old_rows o, _mindful.memory_reindexed(o.tenant, o.id, o.content, o.language) n
        group by o.tenant;
        perform _mindful.memory_count_add(c.tenant, 0, 0, c.bytes)
        from (
            select r.tenant, sum(r.bytes) as bytes
            from (
                select n.tenant, _mindful.memory_bytes(n.content, n.metadata) as bytes from new_rows n
                union all
                select o.tenant, -_mindful.memory_bytes(o.content, o.metadata) from old_rows o
            ) r
            group by r.tenant
        ) c
        where c.bytes <> 0;
    end if;
    return null;
end
$$;
comment on function _mindful.memory_index() is 'Keeps memory_term and memory_count true to the statement''s rows, with the owner''s rights: no role writes these tables otherwise.';

create function _mindful.length(content text, language text default _mindful.recall_language()) returns bigint
language sql stable parallel safe security invoker
begin atomic
    select coalesce(pg_catalog.max(t.length), 0)::bigint from _mindful.terms(content, language) t;
end;
comment on function _mindful.length(text, text) is 'Returns the number of lexemes in a text by a text-search configuration.';

create function _mindful.memory_count_merged(tenant text) returns memory_count
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    shards bigint[];
    merged mindful.memory_count;
begin
    begin
        -- The limit bounds the rows that later writers have to skip while this transaction stays open.
        shards := array(
            select f.shard from mindful.memory_count f where f.tenant = memory_count_merged.tenant
            order by f.shard limit 100 for update skip locked
        );
    exception
        when serialization_failure then  -- A transaction that is newer than the snapshot has changed one of them.
            return null;
    end;
    if cardinality(shards) < 2 then
        return null;
    end if;
    with gone as (
        delete from mindful.memory_count c
        where c.tenant = memory_count_merged.tenant and c.shard = any (shards)
        returning c.memories, c.lexemes, c.bytes
    )
    select memory_count_merged.tenant, null, sum(g.memories), sum(g.lexemes), sum(g.bytes) into merged from gone g;
    return merged;
end
$$;
comment on function _mindful.memory_count_merged(text) is
'Removes up to 100 rows of a tenant from memory_count and returns their sums, which the caller inserts. Rows that other transactions have locked stay. NULL: fewer than two are free.';

create function _mindful.memory_count_add(tenant text, memories bigint, lexemes numeric, bytes numeric) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    isolation text := current_setting('transaction_isolation');
    merged mindful.memory_count;
begin
    -- Under serializable each row that is read here could make a transaction fail.
    if isolation <> 'serializable' and exists (
        select from mindful.memory_count c where c.tenant = memory_count_add.tenant
        order by c.shard offset 16 limit 1
    ) then
        merged := _mindful.memory_count_merged(tenant);
    end if;
    -- Under a snapshot that is older than another's change of the row, even a free row cannot be updated.
    if merged.memories is null and isolation in ('read committed', 'read uncommitted') then
        update mindful.memory_count c
        set memories = c.memories + memory_count_add.memories, lexemes = c.lexemes + memory_count_add.lexemes,
            bytes = c.bytes + memory_count_add.bytes
        where c.tenant = memory_count_add.tenant and c.shard = (
            select f.shard from mindful.memory_count f
            where f.tenant = memory_count_add.tenant
            order by f.shard limit 1 for update skip locked
        );
        if found then
            return;
        end if;
    elsif merged.memories is null and isolation = 'repeatable read' then
        -- The row that this transaction has inserted is its own.
        update mindful.memory_count c
        set memories = c.memories + memory_count_add.memories, lexemes = c.lexemes + memory_count_add.lexemes,
            bytes = c.bytes + memory_count_add.bytes
        where c.tenant = memory_count_add.tenant and c.xmin = pg_current_xact_id()::xid and c.shard = (
            select max(f.shard) from mindful.memory_count f where f.tenant = memory_count_add.tenant
        );
        if found then
            return;
        end if;
    end if;
    insert into mindful.memory_count (tenant, memories, lexemes, bytes)
    values (
        memory_count_add.tenant, memory_count_add.memories + coalesce(merged.memories, 0),
        memory_count_add.lexemes + coalesce(merged.lexemes, 0), memory_count_add.bytes + coalesce(merged.bytes, 0)
    );
end
$$;
comment on function _mindful.memory_count_add(text, bigint, numeric, numeric) is
'Adds to a tenant''s counts, without waiting for other writers. Of more than 16 rows it makes one. A transaction at serializable always inserts a row, which later writers merge.';

-- pg_dump's scripts turn row_security off: restored rows come with their terms.
create trigger index_inserted after insert on memory referencing new table as new_rows
    for each statement when (pg_catalog.current_setting('row_security') = 'on' or not _mindful.is_restore()) execute function _mindful.memory_index();
create trigger index_updated after update on memory referencing old table as old_rows new table as new_rows
    for each statement when (pg_catalog.current_setting('row_security') = 'on' or not _mindful.is_restore()) execute function _mindful.memory_index();
create trigger index_deleted after delete on memory referencing old table as old_rows
    for each statement when (pg_catalog.current_setting('row_security') = 'on' or not _mindful.is_restore()) execute function _mindful.memory_index();

-- A role cannot write memory_term. It inserts a request instead: the policy of this table proves the tenant, and the trigger
-- rebuilds with the owner's rights. The primary key makes two rebuilds of a tenant run one after the other.
create unlogged table index_rebuild (
    tenant text not null default _mindful.tenant(),
    primary key (tenant)
);
comment on table index_rebuild is 'Requests to rebuild the words of a tenant''s memories. A trigger carries a request out and deletes it.';
alter table index_rebuild enable row level security, force row level security;
create policy own on index_rebuild using (tenant = (select _mindful.tenant())) with check (tenant = (select _mindful.tenant_claimed()));

create function _mindful.index_rebuild(tenant text) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    outer_tenant text := _mindful.tenant_switch(tenant);
    tenant_language text := _mindful.recall_language();
begin
    perform _mindful.tenant_switch(outer_tenant);
    -- First of all, as a writer locks a memory before its words: what it changes meanwhile would leave words of the old text.
    perform from mindful.memory m where m.tenant = index_rebuild.tenant order by m.id for no key update;
    update mindful.memory m set language = tenant_language
    where m.tenant = index_rebuild.tenant and m.language <> tenant_language;
    delete from mindful.memory_term t where t.tenant = index_rebuild.tenant;
    insert into mindful.memory_term (tenant, lexeme, id, frequency, length)
    select m.tenant, d.lexeme, m.id, d.frequency, d.length
    from mindful.memory m, _mindful.terms(m.content, m.language) d
    where m.tenant = index_rebuild.tenant
    on conflict do nothing;
    -- Other writers skip locked rows of memory_count, and add rows of their own.
    perform from mindful.memory_count c where c.tenant = index_rebuild.tenant for update;
    with gone as (
        delete from mindful.memory_count c where c.tenant = index_rebuild.tenant
    )
    insert into mindful.memory_count (tenant, memories, lexemes, bytes)
    select m.tenant, count(*), sum(_mindful.length(m.content, m.language)), sum(_mindful.memory_bytes(m.content, m.metadata))
    from mindful.memory m
    where m.tenant = index_rebuild.tenant
    group by m.tenant;
end
$$;
comment on function _mindful.index_rebuild(text) is
'Writes memory_term and memory_count of a tenant again, by its setting recall_language. Only the extension''s owner has the rights.';

create function _mindful.index_rebuild_requested() returns trigger
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
set mindful.tenant = ''
as $$
begin
    perform _mindful.index_rebuild(new.tenant);
    delete from mindful.index_rebuild r where r.tenant = new.tenant;
    return null;
end
$$;
comment on function _mindful.index_rebuild_requested() is 'Carries out a row of index_rebuild. Its policy has checked the tenant.';
create trigger index_rebuild_requested after insert on index_rebuild
    for each row execute function _mindful.index_rebuild_requested();
