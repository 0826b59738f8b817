create table session (
    tenant text not null default _tenant(),
    session_id uuid not null default gen_random_uuid(),
    title text,
    system_prompt text check (octet_length(system_prompt) <= 262144),
    metadata jsonb not null default '{}' check (jsonb_typeof(metadata) = 'object'),
    created_at timestamptz not null default now(),
    primary key (tenant, session_id)
);
comment on table session is 'Conversations.';

create table memory (
    tenant text not null default _tenant(),
    id bigint generated always as identity,
    kind text not null default 'fact' check (kind in ('message', 'fact', 'summary', 'document', 'reflection')),
    content text not null check (btrim(content, E' \t\n\r') <> '' and octet_length(content) <= 262144),
    metadata jsonb not null default '{}' check (jsonb_typeof(metadata) = 'object'),
    session_id uuid,
    turn integer check (turn > 0),
    role text check (role in ('system', 'user', 'assistant', 'tool', 'clarification')),
    source text,
    source_key text,
    content_hash text not null generated always as (md5(content)) stored,
    created_at timestamptz not null default now(),
    importance real not null default 0.5 check (importance between 0 and 1),
    confidence real check (confidence between 0 and 1),
    level text not null default 'data' check (level in ('data', 'information', 'knowledge', 'wisdom')),
    valid_from timestamptz,
    valid_to timestamptz,
    superseded_by bigint,
    valid_to_given timestamptz,
    stated boolean not null default false,
    primary key (tenant, id),
    foreign key (tenant, session_id) references session on delete cascade,
    check (kind <> 'message' or session_id is not null and turn is not null and role is not null),
    constraint memory_validity check (valid_from <= valid_to),
    constraint memory_superseded_by foreign key (tenant, superseded_by) references memory (tenant, id)
        on delete set null (superseded_by)
);
-- Without statistics (see _statistics_remove), all indexes that the tenant leads are as good to the planner wherever it
-- takes a tenant for one row, as in an empty table. So an index beside the primary key serves only those queries that
-- name its second column.
create unique index memory_turn on memory (tenant, session_id, turn) where session_id is not null;
create unique index memory_source on memory (tenant, source, source_key) where source is not null;
create index memory_superseded_by on memory (tenant, superseded_by) where superseded_by is not null;
create index memory_valid_from on memory (tenant, valid_from) where valid_from is not null;
create index memory_valid_to on memory (tenant, valid_to) where valid_to is not null;
comment on table memory is 'Everything remembered; what it is, is its kind.';
comment on column memory.turn is 'Position of a message in its session, from 1.';
comment on column memory.role is 'Whose words a message holds; clarification: the assistant asked back.';
comment on column memory.source is 'Where a document or a row of an attached table comes from.';
comment on column memory.source_key is 'Which part of the source this is: a chunk''s hash, a row''s primary key.';
comment on column memory.importance is 'From 0 to 1; what is known of no memory is 0.5.';
comment on column memory.confidence is 'Probability that it is true; NULL if nobody has said.';
comment on column memory.valid_from is 'Since when it is true; NULL is since ever.';
comment on column memory.valid_to is 'Until when it was true; NULL is until now.';
comment on column memory.superseded_by is 'The memory that took its place.';
comment on column memory.valid_to_given is 'What valid_to was before the memory was superseded; forgetting what took its place puts it back.';
comment on column memory.stated is 'Whether a memory with evidence was remembered without any as well, so that it outlives the evidence.';
comment on column memory.content_hash is 'Tells whether an embedding was computed from this content.';

-- BM25 by an inverted index of our own: under row-level security a GIN index is never used, because the operators
-- of tsvector are not leakproof, while a B-tree led by the tenant is.
create table memory_term (
    tenant text not null default _tenant(),
    lexeme text not null,
    id bigint not null,
    frequency integer not null,
    length integer not null,
    primary key (tenant, lexeme, id) include (frequency, length)
);
-- One posting in 32: counting these tells how many memories hold a common lexeme, where counting all would take long and
-- a counter would be a row that every writer waits for.
create index memory_term_sample on memory_term (tenant, lexeme) where hashint8(id) & 31 = 0;
comment on table memory_term is 'Which memory holds which lexeme, how often, and how many lexemes it has in all.';

-- Writers never wait for one another: each adds to a row that nobody else is adding to, or to a new one.
create table memory_count (
    tenant text not null default _tenant(),
    shard bigint generated always as identity,
    memories bigint not null,
    lexemes bigint not null,
    bytes bigint not null default 0,
    primary key (tenant, shard)
);
comment on table memory_count is 'How many memories a tenant has, and lexemes in them; the sum over the shards counts.';
comment on column memory_count.bytes is 'Bytes of the memories'' content and metadata.';

alter table session enable row level security, force row level security;
create policy own on session using (tenant = (select mindful._tenant())) with check (tenant = (select mindful._tenant_claimed()));
alter table memory enable row level security, force row level security;
create policy own on memory using (tenant = (select mindful._tenant())) with check (tenant = (select mindful._tenant_claimed()));
alter table memory_term enable row level security, force row level security;
create policy own on memory_term using (tenant = (select mindful._tenant())) with check (tenant = (select mindful._tenant_claimed()));
alter table memory_count enable row level security, force row level security;
create policy own on memory_count using (tenant = (select mindful._tenant())) with check (tenant = (select mindful._tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.session', '');
select pg_catalog.pg_extension_config_dump('mindful.memory', '');
select pg_catalog.pg_extension_config_dump('mindful.memory_id_seq', '');
select pg_catalog.pg_extension_config_dump('mindful.memory_term', '');
select pg_catalog.pg_extension_config_dump('mindful.memory_count', '');
select pg_catalog.pg_extension_config_dump('mindful.memory_count_shard_seq', '');

create function _terms(content text) returns table (lexeme text, frequency integer, length integer)
language sql immutable parallel safe security invoker
begin atomic
    select t.lexeme, pg_catalog.cardinality(t.positions),
        (pg_catalog.sum(pg_catalog.cardinality(t.positions)) over ())::integer
    from pg_catalog.unnest(pg_catalog.to_tsvector('pg_catalog.english', content)) t;
end;
comment on function _terms(text) is 'The lexemes of a text, how often each stands in it, and their number in all.';

create function _vector(embedding text) returns vector
language sql immutable strict parallel safe security invoker
begin atomic
    select embedding::vector;
end;
comment on function _vector(text) is 'A vector from its text, wherever the extension vector is installed.';

create function _embedding_table_create(model text, dims integer) returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
set client_min_messages = warning
as $$
declare
    relation text := mindful._embedding_table(model);
    vector_schema text := (select extnamespace::regnamespace from pg_extension where extname = 'vector');
begin
    -- A dropped extension leaves its embedding tables, which are no members of it, without what tied them to memory.
    if exists (select from pg_constraint c
        where c.conrelid = to_regclass(format('mindful.%I', relation)) and c.confrelid = 'mindful.memory'::regclass)
    then
        perform mindful._raise('42710', format('there is a table %s already', relation), 'It holds another model''s vectors.');
    end if;
    execute format('drop table if exists mindful.%I', relation);
    execute format('create table mindful.%I (
        tenant text not null default mindful._tenant(),
        id bigint not null,
        embedding %s.vector(%s) not null,
        content_hash text not null,
        primary key (tenant, id))', relation, vector_schema, dims);
    execute format('alter table mindful.%I add foreign key (tenant, id) references mindful.memory on delete cascade', relation);
    execute format('alter table mindful.%I enable row level security, force row level security', relation);
    execute format('create policy own on mindful.%I using (tenant = (select mindful._tenant()))
        with check (tenant = (select mindful._tenant_claimed()))', relation);
    execute format('grant select, insert on mindful.%I to mindful_user', relation);
    perform mindful._update_grant(format('mindful.%I', relation));
    execute format('comment on table mindful.%I is %L', relation, 'Embeddings of memories by the model ' || model || '.');
    perform mindful._statistics_remove();
end
$$;
comment on function _embedding_table_create(text, integer) is
'Makes the table for an embedder''s vectors, owned by the extension''s owner whoever registers the model, or that role could lift its row-level security.';

create function _memory_embed() returns trigger
language plpython3u volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.memory import memory_embed
return memory_embed()
$python$;
comment on function _memory_embed() is 'Embeds the new and changed rows of a statement in one batch.';

create function _memory_changed(tenant text, id bigint, content text) returns table (content text)
language sql stable parallel safe security invoker rows 1
begin atomic
    select m.content from mindful.memory m
    where m.tenant = _memory_changed.tenant and m.id = _memory_changed.id and m.content <> _memory_changed.content
    offset 0;
end;
comment on function _memory_changed(text, bigint, text) is 'A memory''s content, if it was another.';

create function _memory_bytes(content text, metadata jsonb) returns bigint
language sql immutable parallel safe security invoker
begin atomic
    select pg_catalog.octet_length(content) + pg_catalog.octet_length(metadata::text)::bigint;
end;
comment on function _memory_bytes(text, jsonb) is 'What a memory counts towards the setting quota_mb.';

create function _memory_index() returns trigger
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
set mindful.tenant = ''
set enable_hashjoin = off
set enable_mergejoin = off
set enable_seqscan = off
as $$
begin
    -- Each posting is looked up by its whole key, and each row by its own: a plan that is kept from a small statement else
    -- compares all rows of a large one with one another, or reads all postings of the tenant for each.
    if tg_op = 'DELETE' then
        delete from mindful.memory_term t
        using (select o.tenant, d.lexeme, o.id from old_rows o, mindful._terms(o.content) d offset 0) gone
        where t.tenant = gone.tenant and t.lexeme = gone.lexeme and t.id = gone.id;
        perform mindful._memory_count_add(o.tenant, -count(*), -sum(mindful._length(o.content)),
            -sum(mindful._memory_bytes(o.content, o.metadata)))
        from old_rows o group by o.tenant;
    elsif tg_op = 'INSERT' then
        insert into mindful.memory_term (tenant, lexeme, id, frequency, length)
        select n.tenant, d.lexeme, n.id, d.frequency, d.length
        from new_rows n, mindful._terms(n.content) d;
        perform mindful._memory_count_add(n.tenant, count(*), sum(mindful._length(n.content)),
            sum(mindful._memory_bytes(n.content, n.metadata)))
        from new_rows n group by n.tenant;
    else
        delete from mindful.memory_term t
        using (
            select o.tenant, d.lexeme, o.id
            from old_rows o, mindful._memory_changed(o.tenant, o.id, o.content), mindful._terms(o.content) d
            offset 0
        ) gone
        where t.tenant = gone.tenant and t.lexeme = gone.lexeme and t.id = gone.id;
        insert into mindful.memory_term (tenant, lexeme, id, frequency, length)
        select o.tenant, d.lexeme, o.id, d.frequency, d.length
        from old_rows o, mindful._memory_changed(o.tenant, o.id, o.content) n, mindful._terms(n.content) d;
        perform mindful._memory_count_add(o.tenant, 0, sum(mindful._length(n.content) - mindful._length(o.content)), 0)
        from old_rows o, mindful._memory_changed(o.tenant, o.id, o.content) n
        group by o.tenant;
        perform mindful._memory_count_add(c.tenant, 0, 0, c.bytes)
        from (
            select r.tenant, sum(r.bytes) as bytes
            from (
                select n.tenant, mindful._memory_bytes(n.content, n.metadata) as bytes from new_rows n
                union all
                select o.tenant, -mindful._memory_bytes(o.content, o.metadata) from old_rows o
            ) r
            group by r.tenant
        ) c
        where c.bytes <> 0;
    end if;
    return null;
end
$$;
comment on function _memory_index() is 'Keeps memory_term and memory_count true to the statement''s rows, with the owner''s rights: no role writes these tables otherwise.';

create function _length(content text) returns bigint
language sql immutable parallel safe security invoker
begin atomic
    select coalesce(pg_catalog.max(t.length), 0)::bigint from mindful._terms(content) t;
end;
comment on function _length(text) is 'Number of lexemes in a text.';

create function _memory_count_add(tenant text, memories bigint, lexemes numeric, bytes numeric) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    -- Under a snapshot that is older than another's change of the row, even a free row cannot be updated.
    if current_setting('transaction_isolation') = 'read committed' then
        update mindful.memory_count c
        set memories = c.memories + _memory_count_add.memories, lexemes = c.lexemes + _memory_count_add.lexemes,
            bytes = c.bytes + _memory_count_add.bytes
        where c.tenant = _memory_count_add.tenant and c.shard = (
            select f.shard from mindful.memory_count f
            where f.tenant = _memory_count_add.tenant
            order by f.shard limit 1 for update skip locked
        );
        if found then
            return;
        end if;
    end if;
    insert into mindful.memory_count (tenant, memories, lexemes, bytes)
    values (_memory_count_add.tenant, _memory_count_add.memories, _memory_count_add.lexemes, _memory_count_add.bytes);
end
$$;
comment on function _memory_count_add(text, bigint, numeric, numeric) is 'Adds to a tenant''s counts, without waiting for other writers.';

-- pg_dump's scripts turn row_security off: restored rows come with their terms.
create trigger index_inserted after insert on memory referencing new table as new_rows
    for each statement when (pg_catalog.current_setting('row_security') = 'on' or not mindful._is_restore()) execute function _memory_index();
create trigger index_updated after update on memory referencing old table as old_rows new table as new_rows
    for each statement when (pg_catalog.current_setting('row_security') = 'on' or not mindful._is_restore()) execute function _memory_index();
create trigger index_deleted after delete on memory referencing old table as old_rows
    for each statement when (pg_catalog.current_setting('row_security') = 'on' or not mindful._is_restore()) execute function _memory_index();

create function _memory_kind(kind text) returns text
language sql stable parallel safe security invoker
begin atomic
    select case
        when kind = any (array['fact', 'document', 'summary', 'reflection']) then kind
        else mindful._raise('22023', pg_catalog.format('kind is %s', coalesce(pg_catalog.quote_literal(kind), 'null')),
            'Kinds are fact, document, summary and reflection; messages come by message_insert.')::text
    end;
end;
comment on function _memory_kind(text) is 'Returns a kind that memory_insert takes, or raises 22023.';

create function _metadata(metadata jsonb) returns jsonb
language sql stable parallel safe security invoker
begin atomic
    select case
        when metadata is null then '{}'::jsonb
        when pg_catalog.pg_column_size(metadata) > 262144
            then mindful._raise('54000', pg_catalog.format('metadata has %s bytes, more than 262144', pg_catalog.pg_column_size(metadata)),
                'Keep what is long as a memory of its own.')::text::jsonb
        when pg_catalog.jsonb_typeof(metadata) = 'object' then metadata
        else mindful._raise('22023', 'metadata is no JSON object', 'Give an object, such as {"topic": "travel"}.')::text::jsonb
    end;
end;
comment on function _metadata(jsonb) is 'Returns metadata that is a JSON object, or raises 22023 or 54000.';

create function _array_elements(name text, value jsonb, fields text[])
returns table (element jsonb, number bigint)
-- With the 1000 rows that PostgreSQL supposes, queries over two of these look so dear that they are compiled (JIT, 1.4 s).
language plpgsql stable parallel safe security invoker rows 10
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    unknown text;
begin
    if value is null then
        perform mindful._raise('22004', name || ' is null', 'Give a JSON array of objects.');
    elsif jsonb_typeof(value) <> 'array' then
        perform mindful._raise('22023', name || ' is no JSON array', 'Give a JSON array of objects.');
    end if;
    for element, number in select e.value, e.ordinality from jsonb_array_elements(value) with ordinality e loop
        if jsonb_typeof(element) <> 'object' then
            perform mindful._raise('22023', format('element %s of %s is no JSON object', number, name),
                'Fields are ' || array_to_string(fields, ', ') || '.');
        end if;
        select k into unknown from jsonb_object_keys(element) k where k <> all (fields) limit 1;
        if found then
            perform mindful._raise('22023', format('element %s of %s has an unknown field "%s"', number, name, unknown),
                'Fields are ' || array_to_string(fields, ', ') || '.');
        end if;
        return next;
    end loop;
end
$$;
comment on function _array_elements(text, jsonb, text[]) is
'The objects of a JSON array, numbered from 1; raises 22004 or 22023 naming the element that is no object or has an unknown field.';

create function _memory_total() returns table (memories double precision, mean_length double precision)
language sql stable parallel safe security invoker
begin atomic
    select coalesce(pg_catalog.sum(c.memories), 0)::double precision,
        (pg_catalog.sum(c.lexemes) / nullif(pg_catalog.sum(c.memories), 0))::double precision
    from mindful.memory_count c
    where c.tenant = (select mindful._tenant());
end;
comment on function _memory_total() is 'How many memories the tenant has, and how many lexemes they have in the mean.';

create function memory_index_create(tenant text, model text default null) returns text
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    chosen text := (
        select m.name from mindful.model m
        where m.kind = 'embedder' and (m.name = memory_index_create.model or memory_index_create.model is null and m.is_default)
    );
    index_name text := 'embedding_' || left(md5(format('%s %s', chosen, tenant)), 16);
begin
    perform mindful._writable();
    if tenant is null then
        perform mindful._raise('22004', 'tenant is null', 'Name the tenant whose memories are to be indexed.');
    elsif chosen is null then
        perform mindful._raise('42704', format('there is no embedder %s', coalesce(quote_literal(model), 'by default')),
            'Embedders are listed in mindful.model.');
    end if;
    execute format('create index %I on mindful.%I using hnsw (embedding %s.vector_cosine_ops) where tenant = %L',
        index_name, mindful._embedding_table(chosen),
        (select extnamespace::regnamespace from pg_extension where extname = 'vector'), tenant);
    return index_name;
end
$$;
comment on function memory_index_create(text, text) is
'Makes an HNSW index on one tenant''s embeddings by an embedder (NULL: the default one), and returns its name. Without one, recall compares a query with all of a tenant''s embeddings, which is exact and takes some 1.5 ms a thousand; with tens of thousands an index pays. For administrators. Every tenant has an index of its own: one index for all would let users find out, by steering the planner, what others remember. Errors: 22004, 42704 (no such embedder), 42P07 (made already).';
