insert into setting_definition (key, type, low, high, scopes, initial, description, choices)
select 'recall_language', 'text', null::double precision, null::double precision, '{global,user}'::text[], '"english"'::jsonb,
    'Text-search configuration of PostgreSQL for the words of new memories and of queries. After a change, memory_index_rebuild() reads older memories by it.',
    array(
        select c.cfgname::text from pg_catalog.pg_ts_config c
        where c.cfgnamespace operator(pg_catalog.=) 'pg_catalog'::pg_catalog.regnamespace order by 1
    );

create function _mindful.recall_language() returns text
language sql stable parallel safe security invoker
begin atomic
    select mindful.setting_get('recall_language') #>> '{}';
end;
comment on function _mindful.recall_language() is 'Returns the setting recall_language in force.';

create table session (
    tenant text not null default _mindful.tenant(),
    session_id uuid not null default gen_random_uuid(),
    title text,
    system_prompt text check (octet_length(system_prompt) <= 262144),
    metadata jsonb not null default '{}' check (jsonb_typeof(metadata) = 'object'),
    created_at timestamptz not null default now(),
    primary key (tenant, session_id)
);
comment on table session is 'Conversations.';

create table memory (
    tenant text not null default _mindful.tenant(),
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
    asks boolean not null generated always as (kind = 'message' and role = 'user' and _mindful.asks(content)) stored,
    language text not null default _mindful.recall_language(),
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
comment on table memory is 'Messages, facts, documents, summaries and reflections. kind says which of them a row is.';
comment on column memory.turn is 'Position of a message in its session, from 1.';
comment on column memory.role is 'Author of a message: user, assistant, system or tool. clarification: a question that the assistant asked back.';
comment on column memory.source is 'Name of the document, or of the attached table.';
comment on column memory.source_key is 'Key within the source: a chunk''s hash, or a row''s primary key.';
comment on column memory.importance is 'From 0 to 1. The default is 0.5.';
comment on column memory.confidence is 'Probability that the memory is true; NULL if unknown.';
comment on column memory.valid_from is 'Start of validity; NULL is no limit.';
comment on column memory.valid_to is 'End of validity, exclusive; NULL is no limit.';
comment on column memory.superseded_by is 'The next version of this memory; NULL if it is the latest.';
comment on column memory.valid_to_given is 'valid_to before the memory was superseded. Forgetting the next version restores it.';
comment on column memory.stated is 'Whether a memory with evidence was remembered without any as well, so that it outlives the evidence.';
comment on column memory.asks is 'Whether this is a message of a user that asks and states nothing. Recall for a chat leaves it out.';
comment on column memory.language is 'Text-search configuration by which memory_term holds the words of content.';
comment on column memory.content_hash is 'Hash of the content. An embedding with another hash was computed from an older content.';

-- BM25 by an inverted index of our own: under row-level security a GIN index is never used, because the operators
-- of tsvector are not leakproof, while a B-tree led by the tenant is.
create table memory_term (
    tenant text not null default _mindful.tenant(),
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
    tenant text not null default _mindful.tenant(),
    shard bigint generated always as identity,
    memories bigint not null,
    lexemes bigint not null,
    bytes bigint not null default 0,
    primary key (tenant, shard)
);
comment on table memory_count is 'How many memories a tenant has, and lexemes in them; the sum over the shards counts.';
comment on column memory_count.bytes is 'Bytes of the memories'' content and metadata.';

alter table session enable row level security, force row level security;
create policy own on session using (tenant = (select _mindful.tenant())) with check (tenant = (select _mindful.tenant_claimed()));
alter table memory enable row level security, force row level security;
create policy own on memory using (tenant = (select _mindful.tenant())) with check (tenant = (select _mindful.tenant_claimed()));
alter table memory_term enable row level security, force row level security;
create policy own on memory_term using (tenant = (select _mindful.tenant())) with check (tenant = (select _mindful.tenant_claimed()));
alter table memory_count enable row level security, force row level security;
create policy own on memory_count using (tenant = (select _mindful.tenant())) with check (tenant = (select _mindful.tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.session', '');
select pg_catalog.pg_extension_config_dump('mindful.memory', '');
select pg_catalog.pg_extension_config_dump('mindful.memory_id_seq', '');
select pg_catalog.pg_extension_config_dump('mindful.memory_term', '');
select pg_catalog.pg_extension_config_dump('mindful.memory_count', '');
select pg_catalog.pg_extension_config_dump('mindful.memory_count_shard_seq', '');

create function _mindful.embedder_inserted() returns trigger
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform _mindful.embedding_table_create(new.name, new.dims);
    return null;
end
$$;
comment on function _mindful.embedder_inserted() is 'Makes the table for the vectors of an embedder, however it is registered.';
create trigger embedder_inserted after insert on model for each row
    when (new.kind = 'embedder' and (pg_catalog.current_setting('row_security') = 'on' or not _mindful.is_restore()))
    execute function _mindful.embedder_inserted();

create function _mindful.memory_bytes(content text, metadata jsonb) returns bigint
language sql immutable parallel safe security invoker
begin atomic
    select pg_catalog.octet_length(content) + pg_catalog.octet_length(metadata::text)::bigint;
end;
comment on function _mindful.memory_bytes(text, jsonb) is 'What a memory counts towards the setting quota_mb.';

-- The views for BI read with their owner's rights and choose the rows themselves. As invoker's views they would need
-- policies that show readers all rows of the tables, and whoever is reader and user at once could read contents by them.
create view memory_overview with (security_barrier = true) as
select tenant, kind, count(*) as memories, min(created_at) as first_at, max(created_at) as last_at
from mindful.memory
where tenant = (select _mindful.tenant()) or (select _mindful.reads_all())
group by tenant, kind;
comment on view memory_overview is 'How many memories there are, by tenant and kind: one''s own, or for mindful_reader all.';
