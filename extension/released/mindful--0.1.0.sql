\echo Use "CREATE EXTENSION mindful CASCADE" to load this file. \quit

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

create table model (
    name text primary key check (name ~ '^[a-z0-9][a-z0-9_.-]{0,39}$'),
    kind text not null check (kind in ('generator', 'embedder', 'reranker')),
    provider text not null,
    source text not null,
    options jsonb not null default '{}' check (jsonb_typeof(options) = 'object'),
    sha256 text not null,
    context_length integer check (context_length > 0),
    dims integer check (dims between 1 and 2000),
    licence text,
    fallback text references model,
    is_default boolean not null default false,
    granted_to text[] not null default '{mindful_user}',
    registered_by text not null default current_user,
    created_at timestamptz not null default now(),
    check ((kind = 'embedder') = (dims is not null))
);
create unique index on model (kind) where is_default;
-- Names that differ in punctuation alone would share an embedding table.
create unique index on model (translate(name, '.-', '__'));

comment on table model is 'Registered models: generators and embedders, and who may use them.';
comment on column model.source is 'Absolute path, on the server, of a GGUF file or a sentence-transformers folder.';
comment on column model.options is 'Options of the provider: context_length, threads (default 1), and of a generator also system_prompt and layout, a text with {memories} and {message} that says how recalled memories stand with a message.';
comment on column model.sha256 is 'Hash of the file, or of the folder''s weights, when the model was registered.';
comment on column model.dims is 'Length of an embedder''s vectors.';
comment on column model.granted_to is 'Roles whose members see and use the model.';

alter table model enable row level security;
alter table model force row level security;
create policy use on model for select using (
    exists (
        select from pg_catalog.unnest(granted_to || '{mindful_admin}'::text[]) r (name)
        where pg_catalog.pg_has_role(pg_catalog.to_regrole(pg_catalog.quote_ident(r.name))::oid, 'usage')
    )
);
create policy administer on model to mindful_admin using (true) with check (true);
select pg_catalog.pg_extension_config_dump('mindful.model', '');

create function _model_find(kind text, name text)
returns table (name text, kind text, provider text, source text, sha256 text, options jsonb)
language sql stable parallel safe security invoker
begin atomic
    select m.name, m.kind, m.provider, m.source, m.sha256, m.options
    from mindful.model m
    where m.kind = _model_find.kind
        and (m.name = _model_find.name or _model_find.name is null and m.is_default);
end;
comment on function _model_find(text, text) is 'The named model, or the default one of its kind, if the caller may use it.';

create function _embedding_table(model text) returns text
language sql immutable parallel safe security invoker
begin atomic
    select 'memory_embedding_' || pg_catalog.translate(model, '.-', '__');
end;
comment on function _embedding_table(text) is 'Name of the table that holds an embedder''s vectors.';

create function model_register(
    name text,
    kind text,
    provider text,
    source text,
    options jsonb default '{}',
    granted_to text[] default '{mindful_user}'
) returns text
language plpython3u volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.model import model_register
return model_register(name, kind, provider, source, options, granted_to)
$python$;
comment on function model_register(text, text, text, text, jsonb, text[]) is
'Loads a model''s files once to check them, and enters it in the registry; the first of its kind becomes the default. For administrators (mindful_admin). Kinds: generator, embedder. Providers: llama_cpp (a GGUF file), sentence_transformers (a folder), scripted (answers given in the options, for tests). The source is an absolute path on the server. An embedder gets a table for its vectors. Errors: 22004, 22023 (bad argument), 42710 (name taken), 58P01 (no such file), XX001 (file damaged), 0A000 (provider''s package not installed).';

create function model_default_set(name text) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    chosen mindful.model;
begin
    select * into chosen from mindful.model m where m.name = model_default_set.name;
    if not found then
        raise exception using errcode = '42704', message = format('mindful: there is no model "%s"', name),
            hint = 'The models that you may use are listed in mindful.model.';
    end if;
    update mindful.model m set is_default = false where m.kind = chosen.kind and m.is_default;
    update mindful.model m set is_default = true where m.name = chosen.name;
end
$$;
comment on function model_default_set(text) is
'Makes a model the default of its kind, for all who may use it. For administrators. Memories keep the embeddings of the embedder that was the default when they were written; UPDATE mindful.memory SET content = content gives a tenant''s own those of the new one. Error 42704: no such model.';

create function model_unload(name text default null) returns integer
language plpython3u volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.model import model_unload
return model_unload(name)
$python$;
comment on function model_unload(text) is
'Gives back the memory of a model, or of all (NULL), that this connection has loaded, and returns how many there were. The next use loads it again.';

create table generation (
    tenant text not null default _tenant(),
    id bigint generated always as identity,
    parent_id bigint,
    model text not null,
    model_sha256 text not null,
    temperature real not null,
    seed integer,
    max_tokens integer not null,
    prompt_sha256 text not null,
    memory_ids bigint[] not null default '{}',
    prompt_tokens integer not null,
    cached_tokens integer not null,
    completion_tokens integer not null,
    finish_reason text not null check (finish_reason in ('stop', 'length')),
    first_token_ms real,
    total_ms real not null,
    confidence real not null check (confidence between 0 and 1),
    signals jsonb not null,
    token_logprobs real[] not null,
    role text not null default current_user,
    created_at timestamptz not null default now(),
    primary key (tenant, id),
    foreign key (tenant, parent_id) references generation on delete set null (parent_id)
);
comment on table generation is 'One row per call of a generator: what it cost and how sure it was. It holds no text.';
comment on column generation.parent_id is 'The generation that this one is a second attempt at, or a review of.';
comment on column generation.memory_ids is 'The memories that the prompt showed.';
comment on column generation.cached_tokens is 'Prompt tokens that did not have to be evaluated, as this connection had seen them before.';
comment on column generation.confidence is 'exp of the mean log-probability of the tokens: ranks answers, but is not calibrated.';
comment on column generation.signals is 'Log-probabilities (nats), entropies (nats) and margins of the tokens, summed up; see llm_generate_detail.';
comment on column generation.token_logprobs is 'Log-probability (nats) of each sampled token, the end token included, at temperature 1.';

alter table generation enable row level security;
alter table generation force row level security;
create policy own on generation using (tenant = (select mindful._tenant()))
    with check (tenant = (select mindful._tenant()) and role = current_user);
select pg_catalog.pg_extension_config_dump('mindful.generation', '');
select pg_catalog.pg_extension_config_dump('mindful.generation_id_seq', '');

create function llm_generate(
    prompt text,
    model text default null,
    max_tokens integer default 256,
    temperature real default 0,
    seed integer default null,
    system_prompt text default null,
    stop text[] default '{}',
    truncate boolean default false
) returns text
language plpython3u volatile parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.llm import llm_generate
return llm_generate(prompt, model, max_tokens, temperature, seed, system_prompt, stop, truncate)
$python$;
comment on function llm_generate(text, text, integer, real, integer, text, text[], boolean) is
'Answers a prompt with a generator (NULL: the default one). A NULL prompt gives NULL. At most max_tokens tokens are made; temperature 0 always takes the likeliest token; a seed makes a call give the same text again on the same machine, at the price of evaluating the whole prompt anew. Generation ends at any of the stop strings, which are not returned. A prompt longer than the model''s context is error 54000, or is cut at its end where truncate is true. Other errors: 22023 (bad argument), 42704 (no such model), 57014 (cancelled).';

create type generation_detail as (
    text text,
    model text,
    prompt_tokens integer,
    cached_tokens integer,
    completion_tokens integer,
    finish_reason text,
    confidence real,
    signals jsonb,
    first_token_ms real,
    total_ms real
);
comment on type generation_detail is 'An answer, what it cost, and how sure the model was.';

create function llm_generate_detail(
    prompt text,
    model text default null,
    max_tokens integer default 256,
    temperature real default 0,
    seed integer default null,
    system_prompt text default null,
    stop text[] default '{}',
    truncate boolean default false
) returns generation_detail
language plpython3u volatile parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.llm import llm_generate_detail
return llm_generate_detail(prompt, model, max_tokens, temperature, seed, system_prompt, stop, truncate)
$python$;
comment on function llm_generate_detail(text, text, integer, real, integer, text, text[], boolean) is
'As llm_generate, with what the call cost and how sure the model was. Confidence is exp(mean log-probability of the tokens), in (0, 1], not calibrated. Signals: logprob_sum, logprob_mean, logprob_min, logprob_first (nats), entropy_mean, entropy_max (nats), margin_min (difference of the two best probabilities), tokens. finish_reason is stop or length. A NULL prompt gives NULLs.';

create function llm_stream(
    prompt text,
    model text default null,
    max_tokens integer default 256,
    temperature real default 0,
    seed integer default null,
    system_prompt text default null,
    stop text[] default '{}',
    truncate boolean default false
) returns setof text
language plpython3u volatile parallel unsafe security invoker cost 100000 rows 100
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.llm import llm_stream
return llm_stream(prompt, model, max_tokens, temperature, seed, system_prompt, stop, truncate)
$python$;
comment on function llm_stream(text, text, integer, real, integer, text, text[], boolean) is
'As llm_generate, one row per piece of text as it is made, never half a character. The rows arrive one by one where the function stands in the select list and is read through a cursor (psql: \set FETCH_COUNT 1). A NULL prompt gives no rows.';

create function llm_embed(content text, model text default null) returns vector
language plpython3u stable parallel restricted security invoker cost 10000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.llm import llm_embed
return llm_embed(content, model)
$python$;
comment on function llm_embed(text, text) is
'Embeds a text as a unit vector with an embedder (NULL: the default one). NULL gives NULL. A text past the embedder''s context is cut. In a query that orders by distance, write (SELECT llm_embed(...)), or the model runs once per row. Errors: 22023 (empty text), 42704 (no such model).';

create function llm_embed_many(contents text[], model text default null) returns vector[]
language plpython3u stable parallel restricted security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.llm import llm_embed_many
return llm_embed_many(contents, model)
$python$;
comment on function llm_embed_many(text[], text) is
'Embeds texts in batches, many times faster than one by one; the vectors stand in the order of the texts, NULL for NULL. A NULL array gives NULL. Errors as llm_embed.';

create function llm_token_count(content text, model text default null) returns integer
language plpython3u stable parallel restricted security invoker cost 1000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.llm import llm_token_count
return llm_token_count(content, model)
$python$;
comment on function llm_token_count(text, text) is
'Counts the tokens of a text for a generator (NULL: the default one), without the chat template''s own. NULL gives NULL.';

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
    role text check (role in ('system', 'user', 'assistant', 'tool')),
    source text,
    source_key text,
    content_hash text not null generated always as (md5(content)) stored,
    created_at timestamptz not null default now(),
    primary key (tenant, id),
    foreign key (tenant, session_id) references session on delete cascade,
    unique (tenant, session_id, turn),
    unique (tenant, source, source_key),
    check (kind <> 'message' or session_id is not null and turn is not null and role is not null)
);
comment on table memory is 'Everything remembered; what it is, is its kind.';
comment on column memory.turn is 'Position of a message in its session, from 1.';
comment on column memory.source is 'Where a document or a row of an attached table comes from.';
comment on column memory.source_key is 'Which part of the source this is: a chunk''s number, a row''s primary key.';
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
-- Statistics are of all tenants, and estimates would tell which words others use.
alter table memory_term alter column lexeme set statistics 0;
alter table memory alter column source set statistics 0;
comment on table memory_term is 'Which memory holds which lexeme, how often, and how many lexemes it has in all.';

-- Writers never wait for one another: each adds to a row that nobody else is adding to, or to a new one.
create table memory_count (
    tenant text not null default _tenant(),
    shard bigint generated always as identity,
    memories bigint not null,
    lexemes bigint not null,
    primary key (tenant, shard)
);
comment on table memory_count is 'How many memories a tenant has, and lexemes in them; the sum over the shards counts.';

do $do$
declare
    relation text;
begin
    foreach relation in array array['session', 'memory', 'memory_term', 'memory_count'] loop
        execute pg_catalog.format('alter table mindful.%I enable row level security', relation);
        execute pg_catalog.format('alter table mindful.%I force row level security', relation);
        execute pg_catalog.format($$create policy own on mindful.%I using (tenant = (select mindful._tenant()))
            with check (tenant = (select mindful._tenant()))$$, relation);
    end loop;
end
$do$;
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
        primary key (tenant, id),
        foreign key (tenant, id) references mindful.memory on delete cascade)', relation, vector_schema, dims);
    execute format('alter table mindful.%I enable row level security', relation);
    execute format('alter table mindful.%I force row level security', relation);
    execute format('create policy own on mindful.%I using (tenant = (select mindful._tenant()))
        with check (tenant = (select mindful._tenant()))', relation);
    execute format('grant select, insert, update, delete on mindful.%I to mindful_user', relation);
    execute format('comment on table mindful.%I is %L', relation, 'Embeddings of memories by the model ' || model || '.');
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

create function _memory_index() returns trigger
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    if tg_op = 'DELETE' then
        delete from mindful.memory_term t
        using old_rows o, mindful._terms(o.content) d
        where t.tenant = o.tenant and t.id = o.id and t.lexeme = d.lexeme;
        perform mindful._memory_count_add(o.tenant, -count(*), -sum(mindful._length(o.content)))
        from old_rows o group by o.tenant;
    elsif tg_op = 'INSERT' then
        insert into mindful.memory_term (tenant, lexeme, id, frequency, length)
        select n.tenant, d.lexeme, n.id, d.frequency, d.length
        from new_rows n, mindful._terms(n.content) d;
        perform mindful._memory_count_add(n.tenant, count(*), sum(mindful._length(n.content)))
        from new_rows n group by n.tenant;
    else
        delete from mindful.memory_term t
        using old_rows o
        join new_rows n on n.tenant = o.tenant and n.id = o.id and n.content <> o.content,
            mindful._terms(o.content) d
        where t.tenant = o.tenant and t.id = o.id and t.lexeme = d.lexeme;
        insert into mindful.memory_term (tenant, lexeme, id, frequency, length)
        select n.tenant, d.lexeme, n.id, d.frequency, d.length
        from new_rows n
        join old_rows o on o.tenant = n.tenant and o.id = n.id and o.content <> n.content,
            mindful._terms(n.content) d;
        perform mindful._memory_count_add(n.tenant, 0, sum(mindful._length(n.content) - mindful._length(o.content)))
        from new_rows n
        join old_rows o on o.tenant = n.tenant and o.id = n.id and o.content <> n.content
        group by n.tenant;
    end if;
    return null;
end
$$;
comment on function _memory_index() is 'Keeps memory_term and memory_count true to the statement''s rows.';

create function _length(content text) returns bigint
language sql immutable parallel safe security invoker
begin atomic
    select coalesce(pg_catalog.max(t.length), 0)::bigint from mindful._terms(content) t;
end;
comment on function _length(text) is 'Number of lexemes in a text.';

create function _memory_count_add(tenant text, memories bigint, lexemes numeric) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    -- Under a snapshot that is older than another's change of the row, even a free row cannot be updated.
    if current_setting('transaction_isolation') = 'read committed' then
        update mindful.memory_count c
        set memories = c.memories + _memory_count_add.memories, lexemes = c.lexemes + _memory_count_add.lexemes
        where c.tenant = _memory_count_add.tenant and c.shard = (
            select f.shard from mindful.memory_count f
            where f.tenant = _memory_count_add.tenant
            order by f.shard limit 1 for update skip locked
        );
        if found then
            return;
        end if;
    end if;
    insert into mindful.memory_count (tenant, memories, lexemes)
    values (_memory_count_add.tenant, _memory_count_add.memories, _memory_count_add.lexemes);
end
$$;
comment on function _memory_count_add(text, bigint, numeric) is 'Adds to a tenant''s counts, without waiting for other writers.';

-- pg_dump's scripts turn row_security off: restored rows come with their embeddings and terms.
create trigger embed_inserted after insert on memory referencing new table as new_rows
    for each statement when (pg_catalog.current_setting('row_security') = 'on') execute function _memory_embed();
create trigger embed_updated after update on memory referencing new table as new_rows
    for each statement when (pg_catalog.current_setting('row_security') = 'on') execute function _memory_embed();
create trigger index_inserted after insert on memory referencing new table as new_rows
    for each statement when (pg_catalog.current_setting('row_security') = 'on') execute function _memory_index();
create trigger index_updated after update on memory referencing old table as old_rows new table as new_rows
    for each statement when (pg_catalog.current_setting('row_security') = 'on') execute function _memory_index();
create trigger index_deleted after delete on memory referencing old table as old_rows
    for each statement when (pg_catalog.current_setting('row_security') = 'on') execute function _memory_index();

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
        when pg_catalog.jsonb_typeof(metadata) = 'object' then metadata
        else mindful._raise('22023', 'metadata is no JSON object', 'Give an object, such as {"topic": "travel"}.')::text::jsonb
    end;
end;
comment on function _metadata(jsonb) is 'Returns metadata that is a JSON object, or raises 22023.';

create function _array_elements(name text, value jsonb, fields text[])
returns table (element jsonb, number bigint)
language plpgsql stable parallel safe security invoker
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

create function memory_insert(
    content text,
    kind text default 'fact',
    metadata jsonb default '{}',
    source text default null,
    source_key text default null
) returns bigint
language sql volatile parallel unsafe security invoker
begin atomic
    insert into mindful.memory (kind, content, metadata, source, source_key)
    select mindful._memory_kind(kind), mindful._text_argument('content', content), mindful._metadata(metadata),
        source, source_key
    returning id;
end;
comment on function memory_insert(text, text, jsonb, text, text) is
'Remembers a text and returns its id. Kinds: fact, document, summary, reflection (messages come by message_insert). It is indexed and, if there is a default embedder, embedded in the same transaction. Errors: 22004 (NULL), 22023 (empty text, unknown kind), 54000 (over 262144 bytes), 23505 (source and source_key taken).';

create function memory_insert_many(memories jsonb) returns setof bigint
language sql volatile parallel unsafe security invoker
begin atomic
    insert into mindful.memory (kind, content, metadata, source, source_key)
    select mindful._memory_kind(coalesce(e.element ->> 'kind', 'fact')),
        mindful._text_argument(pg_catalog.format('content of element %s', e.number), e.element ->> 'content'),
        mindful._metadata(e.element -> 'metadata'),
        e.element ->> 'source',
        e.element ->> 'source_key'
    from mindful._array_elements('memories', memories, '{content,kind,metadata,source,source_key}') e
    order by e.number
    returning id;
end;
comment on function memory_insert_many(jsonb) is
'Remembers an array of objects with the fields of memory_insert, embedded in batches, and returns their ids in order. All or none: the error names the element. Errors as memory_insert.';

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

create function _memory_nearest(query text, candidates integer, kinds text[])
returns table (id bigint, similarity double precision)
language plpgsql stable parallel restricted security invoker rows 100
set search_path = pg_catalog, mindful, pg_temp
set hnsw.iterative_scan = 'strict_order'
as $$
declare
    embedder text := (select f.name from mindful._model_find('embedder', null) f);
    vector_schema text := (select extnamespace::regnamespace from pg_extension where extname = 'vector');
begin
    if embedder is null then  -- full text alone, then
        return;
    end if;
    -- The tenant as a constant: an index of its own is found by it.
    return query execute format('
        select e.id, 1 - (e.embedding operator(%1$s.<=>) $1::%1$s.vector)
        from mindful.%2$I e join mindful.memory m on m.tenant = e.tenant and m.id = e.id
        where e.tenant = %3$L and ($2 is null or m.kind = any ($2))
        order by e.embedding operator(%1$s.<=>) $1::%1$s.vector
        limit $3', vector_schema, mindful._embedding_table(embedder), mindful._tenant())
    using mindful.llm_embed(query, embedder)::text, kinds, candidates;
end
$$;
comment on function _memory_nearest(text, integer, text[]) is
'The memories whose embeddings by the default embedder are nearest to the query''s, by cosine similarity: exactly, or by the tenant''s HNSW index where it has one.';

create function _memory_lexical(query text, candidates integer, kinds text[])
returns table (id bigint, bm25 double precision)
language sql stable parallel safe security invoker rows 100
begin atomic
    with term as (
        select q.lexeme, total.mean_length,
            pg_catalog.ln(1 + (total.memories - holders.n + 0.5::double precision) / (holders.n + 0.5::double precision)) as idf
        from mindful._memory_total() total,
            mindful._terms(query) q,
            lateral (
                select pg_catalog.count(*)::double precision as n
                from mindful.memory_term t
                where t.tenant = (select mindful._tenant()) and t.lexeme = q.lexeme
            ) holders
    )
    select p.id,
        pg_catalog.sum(
            q.idf * p.frequency * 2.2::double precision
            / (p.frequency + 1.2::double precision
                * (0.25::double precision + 0.75::double precision * p.length / q.mean_length))
        ) as bm25
    from term q
    join mindful.memory_term p on p.tenant = (select mindful._tenant()) and p.lexeme = q.lexeme
    where kinds is null
        or exists (select from mindful.memory m where m.tenant = (select mindful._tenant()) and m.id = p.id and m.kind = any (kinds))
    group by p.id
    order by bm25 desc, p.id desc
    limit candidates;
end;
comment on function _memory_lexical(text, integer, text[]) is
'The memories that share lexemes with the query, by Okapi BM25 with k1 = 1.2 and b = 0.75 (Robertson and Zaragoza 2009, with the inverse document frequency of Lucene). A lexeme counts at most 255 times in a text, as in tsvector.';

create function memory_recall(query text, k integer default 5, kinds text[] default null)
returns table (
    id bigint,
    content text,
    kind text,
    score double precision,
    similarity double precision,
    bm25 double precision,
    metadata jsonb,
    session_id uuid,
    turn integer,
    role text,
    source text,
    created_at timestamptz
)
language sql stable parallel restricted security invoker rows 5
begin atomic
    with argument as (
        select mindful._text_argument('query', query) as query,
            mindful._integer_argument('k', k, 1, 1000) as k
    ),
    dense as (
        select d.id, d.similarity,
            (d.similarity - pg_catalog.min(d.similarity) over ())
                / nullif(pg_catalog.max(d.similarity) over () - pg_catalog.min(d.similarity) over (), 0) as share
        from argument a, mindful._memory_nearest(a.query, 50 + 2 * a.k, kinds) d
    ),
    lexical as (
        select l.id, l.bm25, l.bm25 / pg_catalog.max(l.bm25) over () as share
        from argument a, mindful._memory_lexical(a.query, 50 + 2 * a.k, kinds) l
    ),
    -- Joined before memory is: a coalesce is not leakproof, so under row-level security it never reaches an index.
    fused as materialized (
        select id, 0.4 * coalesce(d.share, case when d.id is null then 0 else 1 end) + 0.6 * coalesce(l.share, 0) as score,
            d.similarity, l.bm25
        from dense d
        full join lexical l using (id)
    )
    select m.id, m.content, m.kind, f.score, f.similarity, f.bm25, m.metadata, m.session_id, m.turn, m.role, m.source,
        m.created_at
    from fused f
    join mindful.memory m on m.tenant = (select mindful._tenant()) and m.id = f.id
    order by f.score desc, m.id desc
    limit (select a.k from argument a);
end;
comment on function memory_recall(text, integer, text[]) is
'The k memories that best match a query in meaning and in words, best first; kinds limits them to some kinds. Score is 0.4 x similarity + 0.6 x bm25, each scaled to [0, 1] over its candidates; the columns show both as they are, cosine similarity of the embeddings and BM25, NULL where an arm did not find the memory. No model but the embedder runs. Errors: 22004 (NULL), 22023 (empty query, k outside 1 to 1000).';

create table attachment (
    tenant text not null default _tenant(),
    relation regclass not null,
    source text not null,
    content text not null,
    mode text not null check (mode in ('sync')),
    created_at timestamptz not null default now(),
    primary key (tenant, relation)
);
comment on table attachment is 'Tables of applications whose rows are remembered.';
comment on column attachment.source is 'The table''s name when it was attached, which its memories carry.';
comment on column attachment.content is 'The SQL expression over a row that gives the text to remember.';
alter table attachment enable row level security;
alter table attachment force row level security;
create policy own on attachment using (tenant = (select mindful._tenant())) with check (tenant = (select mindful._tenant()));
select pg_catalog.pg_extension_config_dump('mindful.attachment', '');

create function _relation_name(relation oid) returns text
language sql stable strict parallel safe security invoker
begin atomic
    select pg_catalog.format('%I.%I', n.nspname, c.relname)
    from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where c.oid = relation;
end;
comment on function _relation_name(oid) is 'A relation''s name, always with its schema.';

create function _attachment_write(source text, keys text[], contents text[]) returns void
language sql volatile parallel unsafe security invoker
begin atomic
    delete from mindful.memory m
    using rows from (pg_catalog.unnest(keys), pg_catalog.unnest(contents)) w (key, content)
    where m.tenant = (select mindful._tenant()) and m.source = _attachment_write.source and m.source_key = w.key
        and pg_catalog.btrim(coalesce(w.content, ''), E' \t\n\r') = '';
    insert into mindful.memory as m (kind, content, source, source_key)
    select 'document', w.content, _attachment_write.source, w.key
    from rows from (pg_catalog.unnest(keys), pg_catalog.unnest(contents)) w (key, content)
    where pg_catalog.btrim(coalesce(w.content, ''), E' \t\n\r') <> ''
    on conflict (tenant, source, source_key) do update set content = excluded.content
        where m.content <> excluded.content;
end;
comment on function _attachment_write(text, text[], text[]) is
'Makes memories of rows, by primary key: new texts are added, changed ones replaced, rows without a text forgotten.';

create function _attachment_delete(source text, keys text[]) returns void
language sql volatile parallel unsafe security invoker
begin atomic
    delete from mindful.memory m
    where m.tenant = (select mindful._tenant()) and m.source = _attachment_delete.source
        and (keys is null or m.source_key = any (keys));
end;
comment on function _attachment_delete(text, text[]) is 'Forgets the memories of deleted rows, or of all (NULL).';

create function memory_attach(relation regclass, content text, mode text default 'sync') returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
set timezone = 'UTC'
set datestyle = 'ISO'
set intervalstyle = 'postgres'
set extra_float_digits = 1
set bytea_output = 'hex'
set client_min_messages = warning
as $$
declare
    target pg_class := (select c from pg_class c where c.oid = relation);
    schema_name name := (select n.nspname from pg_namespace n where n.oid = target.relnamespace);
    full_name text := mindful._relation_name(relation);
    function_name text := format('remember_%s', md5(full_name));
    key text;
    body text;
    event text;
    keys text[];
    contents text[];
    remembered bigint;
begin
    perform mindful._text_argument('content', content);
    -- Tables that were dropped while they were attached.
    for full_name in
        delete from mindful.attachment a
        where a.tenant = mindful._tenant() and not exists (select from pg_class c where c.oid = a.relation)
        returning a.source
    loop
        perform mindful._attachment_delete(full_name, null);
        execute format('drop function if exists %I.%I()', (parse_ident(full_name))[1], 'remember_' || md5(full_name));
    end loop;
    full_name := mindful._relation_name(relation);
    if relation is null then
        perform mindful._raise('22004', 'relation is null', 'Name a table.');
    elsif target.relkind <> 'r' then
        perform mindful._raise('42809', format('%s is not an ordinary table', full_name),
            'Attach the tables or partitions that hold its rows.');
    elsif schema_name = 'mindful' then
        perform mindful._raise('42809', format('%s belongs to mindful', full_name), 'Attach a table of an application.');
    elsif target.relowner <> current_user::regrole then
        perform mindful._raise('42501', format('%s is owned by %s', full_name, target.relowner::regrole),
            'Only its owner can attach a table: SET ROLE to the owner first.');
    elsif mode is distinct from 'sync' then
        perform mindful._raise('22023', format('mode is %s', coalesce(quote_literal(mode), 'null')), 'The mode is sync.');
    elsif exists (
        select from mindful.attachment a
        where a.tenant = mindful._tenant() and (a.relation = memory_attach.relation or a.source = full_name)
    ) then
        perform mindful._raise('42710', format('%s is attached already', full_name),
            format('Detach it first: SELECT memory_detach(%L).', full_name));
    end if;
    select case count(*)
        when 1 then min(format('r.%I::text', a.attname))
        else format('array[%s]::text', string_agg(format('r.%I::text', a.attname), ', ' order by k.position))
    end into key
    from pg_index i
    cross join unnest(i.indkey) with ordinality k (attribute, position)
    join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attribute
    where i.indrelid = relation and i.indisprimary;
    if key is null or key = 'array[]::text' then
        perform mindful._raise('42P16', format('%s has no primary key', full_name),
            'Add one: a memory follows its row by it.');
    end if;

    -- The function runs as the table's owner, whoever changes its rows, so all its memories have one tenant; and the
    -- owner answers for the expression. Nothing of the table's schema is on its path, where others may create.
    body := format($body$
        #variable_conflict use_column
        declare
            keys text[];
            contents text[];
            outer_tenant text := coalesce(current_setting('mindful.tenant', true), '');
        begin
            if (select c.relowner <> current_user::regrole from pg_class c where c.oid = tg_relid) then
                raise exception using errcode = '55000', message = 'mindful: the table has another owner than when it was attached',
                    hint = 'Have its former owner detach it, or drop its triggers named remember_*.';
            end if;
            -- Whoever writes may have set another tenant, which would be believed if the owner is an application.
            perform set_config('mindful.tenant', %1$L, true);
            if tg_op = 'TRUNCATE' then
                perform mindful._attachment_delete(%2$L, null);
            elsif tg_op = 'DELETE' then
                perform mindful._attachment_delete(%2$L, array(select %3$s from old_rows r));
            elsif tg_op = 'UPDATE' then
                perform mindful._attachment_delete(%2$L,
                    array(select %3$s from old_rows r except select %3$s from new_rows r));
            end if;
            if tg_op in ('INSERT', 'UPDATE') then
                for keys, contents in
                    select array_agg(key), array_agg(content)
                    from (select %3$s as key, (%4$s)::text as content, row_number() over () as n from new_rows r) s
                    group by n / 1000
                loop
                    perform mindful._attachment_write(%2$L, keys, contents);
                end loop;
            end if;
            perform set_config('mindful.tenant', outer_tenant, true);
            return null;
        end
        $body$, mindful._tenant(), full_name, key, content);
    -- The last five: a row's key must read the same in every session.
    execute format($create$
        create function %I.%I() returns trigger
        language plpgsql security definer
        set search_path = pg_catalog, mindful, pg_temp
        set timezone = 'UTC'
        set datestyle = 'ISO'
        set intervalstyle = 'postgres'
        set extra_float_digits = 1
        set bytea_output = 'hex'
        set row_security = on
        as %L
        $create$, schema_name, function_name, body);
    execute format('revoke execute on function %I.%I() from public', schema_name, function_name);
    foreach event in array array[
        'remember_inserted after insert on %1$s referencing new table as new_rows',
        'remember_updated after update on %1$s referencing old table as old_rows new table as new_rows',
        'remember_deleted after delete on %1$s referencing old table as old_rows',
        'remember_truncated after truncate on %1$s'
    ] loop
        -- A restored row comes with its memory: pg_dump's scripts turn row_security off. Nobody but the owner, and
        -- who has the owner's rights, keeps the triggers still in this way.
        execute format('create trigger ' || event || $call$ for each statement
            when (pg_catalog.current_setting('row_security') = 'on' or not pg_catalog.pg_has_role(%4$L, 'usage'))
            execute function %2$I.%3$I()$call$, full_name, schema_name, function_name, current_user);
        execute format('alter trigger %s on %s depends on extension mindful', split_part(event, ' ', 1), full_name);
    end loop;
    execute format('alter function %I.%I() depends on extension mindful', schema_name, function_name);
    insert into mindful.attachment (relation, source, content, mode) values (relation, full_name, content, mode);
    for keys, contents in execute format('
        select array_agg(key), array_agg(content)
        from (select %s as key, (%s)::text as content, row_number() over () as n from %s r) s
        group by n / 1000', key, content, full_name)
    loop
        perform mindful._attachment_write(full_name, keys, contents);
    end loop;
    select count(*) into remembered from mindful.memory m
    where m.tenant = mindful._tenant() and m.source = full_name;
    return remembered;
end
$$;
comment on function memory_attach(regclass, text, text) is
'Remembers the rows of a table, those it has and those to come: content is an SQL expression over its columns, such as ''subject || body''. Inserts and updates are embedded in one batch a statement, in the same transaction; deleted rows, and rows whose expression is NULL or empty, are forgotten. The memories belong to the role that attaches the table, its owner. Returns the number of rows remembered at once. Writers wait while the rows that are there are embedded. Sessions'' settings do not touch the expression: it is evaluated with time zone UTC and ISO dates, and names functions and operators outside pg_catalog with their schema. A column it names cannot be renamed while the table is attached without breaking the table''s writes. Errors: 42P01 (no such table), 42501 (not its owner), 42P16 (no primary key), 42710 (attached already), 42703 (no such column), 22004, 22023, 42809.';

create function memory_detach(relation regclass) returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    remember regprocedure := (
        select t.tgfoid from pg_trigger t where t.tgrelid = relation and t.tgname = 'remember_inserted'
    );
    event text;
    attached_as text;
    forgotten bigint;
begin
    delete from mindful.attachment a
    where a.tenant = mindful._tenant() and a.relation = memory_detach.relation
    returning a.source into attached_as;
    if not found then
        perform mindful._raise('42704', format('%s is not attached', coalesce(relation::text, 'null')),
            'The tables that you attached are listed in mindful.attachment.');
    end if;
    foreach event in array array['inserted', 'updated', 'deleted', 'truncated'] loop
        execute format('drop trigger remember_%s on %s', event, relation);
    end loop;
    execute format('drop function %s', remember);
    delete from mindful.memory m where m.tenant = mindful._tenant() and m.source = attached_as;
    get diagnostics forgotten = row_count;
    return forgotten;
end
$$;
comment on function memory_detach(regclass) is
'Undoes memory_attach: removes the triggers and forgets the table''s memories, whose number is returned. Error 42704: not attached.';

create function session_start(title text default null, system_prompt text default null, metadata jsonb default '{}')
returns uuid
language sql volatile parallel unsafe security invoker
begin atomic
    insert into mindful.session (title, system_prompt, metadata)
    values (title, system_prompt, mindful._metadata(metadata))
    returning session_id;
end;
comment on function session_start(text, text, jsonb) is
'Starts a conversation and returns its id. The system prompt, if any, opens every prompt of this conversation.';

create function _session_lock(session_id uuid) returns uuid
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform from mindful.session s
    where s.tenant = (select mindful._tenant()) and s.session_id = _session_lock.session_id
    for no key update;
    if not found then
        perform mindful._raise('42704', format('there is no session %s', coalesce(session_id::text, 'null')),
            'Start one with session_start(), or look at your own in mindful.session.');
    end if;
    return session_id;
end
$$;
comment on function _session_lock(uuid) is 'Makes writers of a session take turns; error 42704 if it is not the tenant''s.';

create function message_insert_many(session_id uuid, messages jsonb) returns setof bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_column
begin
    perform mindful._session_lock(message_insert_many.session_id);
    return query
    insert into mindful.memory (kind, session_id, turn, role, content, metadata, created_at)
    select 'message', message_insert_many.session_id,
        (select coalesce(max(m.turn), 0) from mindful.memory m
            where m.tenant = (select mindful._tenant()) and m.session_id = message_insert_many.session_id) + e.number,
        mindful._message_role(e.element ->> 'role', e.number),
        mindful._text_argument(format('content of element %s', e.number), e.element ->> 'content'),
        mindful._metadata(e.element -> 'metadata'),
        coalesce((e.element ->> 'created_at')::timestamptz, now())
    from mindful._array_elements('messages', messages, '{role,content,metadata,created_at}') e
    order by e.number
    returning id;
end
$$;
comment on function message_insert_many(uuid, jsonb) is
'Appends messages, an array of objects with role, content and, if wanted, metadata and created_at, to a session in their order, embedded in batches, and returns their ids. All or none: the error names the element. Roles: system, user, assistant, tool. Errors: 22004, 22023, 42704 (no such session of yours), 54000.';

create function _message_role(role text, number bigint) returns text
language sql stable parallel safe security invoker
begin atomic
    select case
        when role = any (array['system', 'user', 'assistant', 'tool']) then role
        else mindful._raise('22023',
            pg_catalog.format('role of element %s is %s', number, coalesce(pg_catalog.quote_literal(role), 'null')),
            'Roles are system, user, assistant and tool.')::text
    end;
end;
comment on function _message_role(text, bigint) is 'Returns a role that a message can have, or raises 22023.';

create function message_insert(
    session_id uuid,
    role text,
    content text,
    metadata jsonb default '{}',
    created_at timestamptz default now()
) returns bigint
language sql volatile parallel unsafe security invoker
begin atomic
    select mindful.message_insert_many(session_id, pg_catalog.jsonb_build_array(pg_catalog.jsonb_build_object(
        'role', role, 'content', content, 'metadata', metadata, 'created_at', created_at)));
end;
comment on function message_insert(uuid, text, text, jsonb, timestamptz) is
'Appends a message to a session and returns its id. Roles and errors as message_insert_many.';

create function _session_turns(session_id uuid, turns integer)
returns table (id bigint, turn integer, role text, content text)
language sql stable parallel safe security invoker
begin atomic
    select m.id, m.turn, m.role, m.content
    from mindful.memory m
    where m.tenant = (select mindful._tenant()) and m.session_id = _session_turns.session_id
    order by m.turn desc
    limit turns;
end;
comment on function _session_turns(uuid, integer) is 'The last messages of a session, newest first.';

create function session_context(
    session_id uuid,
    query text default null,
    model text default null,
    max_tokens integer default 256,
    memories integer default 3
) returns table (part text, role text, content text, tokens integer, memory_id bigint, score double precision)
language plpython3u volatile parallel unsafe security invoker cost 10000 rows 10
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.chat import session_context
return session_context(session_id, query, model, max_tokens, memories)
$python$;
comment on function session_context(uuid, text, text, integer, integer) is
'What the model would be shown for a message in a session, part by part, with its tokens: the system prompt, the recalled memories, the newest turns that fit the context beside max_tokens of answer, the message. Without a query, the session''s last message if the user wrote it. Errors: 22023, 42704, 54000 (the message alone is too long).';

create type chat_detail as (
    reply text,
    session_id uuid,
    message_id bigint,
    action text,
    confidence real,
    threshold real,
    memory_ids bigint[],
    model text,
    prompt_tokens integer,
    cached_tokens integer,
    completion_tokens integer,
    finish_reason text,
    signals jsonb,
    first_token_ms real,
    total_ms real
);
comment on type chat_detail is 'A reply, where it is stored, what it rests on, what it cost, and how sure the model was.';

create function llm_chat(
    message text,
    session_id uuid default null,
    model text default null,
    max_tokens integer default 256,
    temperature real default 0,
    seed integer default null,
    memories integer default 3
) returns text
language plpython3u volatile parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.chat import llm_chat
return llm_chat(message, session_id, model, max_tokens, temperature, seed, memories)
$python$;
comment on function llm_chat(text, uuid, text, integer, real, integer, integer) is
'Answers a message with the conversation so far and with recalled memories (at most `memories` of them) in view, and stores both turns. session_id NULL starts a new conversation, which still remembers all others of the caller. message NULL answers the session''s last message, which a client has inserted and committed before. Errors: 22004 (both NULL), 22023, 42704 (no such session of yours, no such model), 54000 (message longer than the context), 57014 (cancelled).';

create function llm_chat_detail(
    message text,
    session_id uuid default null,
    model text default null,
    max_tokens integer default 256,
    temperature real default 0,
    seed integer default null,
    memories integer default 3
) returns chat_detail
language plpython3u volatile parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.chat import llm_chat_detail
return llm_chat_detail(message, session_id, model, max_tokens, temperature, seed, memories)
$python$;
comment on function llm_chat_detail(text, uuid, text, integer, real, integer, integer) is
'As llm_chat, with where the reply is stored (message_id), the memories it was shown, its cost, and its confidence as in llm_generate_detail. The action is answer; the threshold is NULL until one is calibrated.';

create function llm_chat_stream(
    message text,
    session_id uuid default null,
    model text default null,
    max_tokens integer default 256,
    temperature real default 0,
    seed integer default null,
    memories integer default 3
) returns setof text
language plpython3u volatile parallel unsafe security invoker cost 100000 rows 100
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.chat import llm_chat_stream
return llm_chat_stream(message, session_id, model, max_tokens, temperature, seed, memories)
$python$;
comment on function llm_chat_stream(text, uuid, text, integer, real, integer, integer) is
'As llm_chat, one row per piece of text as it is made (see llm_stream). Both turns are stored when the last row has been read.';

create table review (
    tenant text not null default _tenant(),
    id bigint generated always as identity,
    message_id bigint not null,
    reviewer text not null,
    prompt_version integer not null,
    score real not null check (score between 0 and 1),
    verdict text not null check (verdict in ('supported', 'doubtful')),
    signals jsonb not null,
    total_ms real not null,
    created_at timestamptz not null default now(),
    primary key (tenant, id),
    foreign key (tenant, message_id) references memory on delete cascade
);
create index on review (tenant, message_id);
comment on table review is 'Second looks of a model at answers, read from its logits.';
comment on column review.score is 'p(yes) / (p(yes) + p(no)) for "is this answer correct?", not calibrated.';
alter table review enable row level security;
alter table review force row level security;
create policy own on review using (tenant = (select mindful._tenant())) with check (tenant = (select mindful._tenant()));
select pg_catalog.pg_extension_config_dump('mindful.review', '');
select pg_catalog.pg_extension_config_dump('mindful.review_id_seq', '');

create type review_detail as (score real, verdict text, signals jsonb);
comment on type review_detail is 'A model''s second look at an answer.';

create function _review_subject(message_id bigint)
returns table (question text, answer text, memories text[])
language sql stable parallel safe security invoker
begin atomic
    select q.content, a.content,
        array(
            select m.content
            from mindful.memory m
            where m.tenant = a.tenant
                and m.id = any (array(select pg_catalog.jsonb_array_elements_text(a.metadata -> 'memory_ids')::bigint))
            order by m.id
        )
    from mindful.memory a
    join mindful.memory q on q.tenant = a.tenant and q.session_id = a.session_id
        and case when a.metadata ? 'reply_to' then q.id = (a.metadata ->> 'reply_to')::bigint else q.turn = a.turn - 1 end
    where a.tenant = (select mindful._tenant()) and a.id = _review_subject.message_id and a.role = 'assistant';
end;
comment on function _review_subject(bigint) is 'An answer, the message it answers, and the memories it was shown.';

create function self_review(message_id bigint, model text default null) returns review_detail
language plpython3u volatile parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.review import self_review
return self_review(message_id, model)
$python$;
comment on function self_review(bigint, text) is
'Has a generator (NULL: the default one) look again at an answer of the assistant, and stores the result. The score is p(yes) / (p(yes) + p(no)) for the question whether the answer is correct, read from the logits and divided by what the same model says of an empty answer (contextual calibration, Zhao et al. 2021); the verdict is supported from 0.5 up. A small model''s word about itself says little: treat the score as one signal. Errors: 22004, 42704 (no such answer of yours).';

create view conversation with (security_invoker = true) as
select m.tenant, m.session_id, s.title, m.turn, m.role, m.content, m.id as message_id, m.created_at,
    case jsonb_typeof(m.metadata -> 'confidence') when 'number' then (m.metadata -> 'confidence')::real end as confidence,
    m.metadata ->> 'model' as model
from mindful.memory m
join mindful.session s on s.tenant = m.tenant and s.session_id = m.session_id
where m.kind = 'message';
comment on view conversation is 'The caller''s conversations, message by message; order by session_id, turn.';

-- The views for BI read with their owner's rights and choose the rows themselves. As invoker's views they would need
-- policies that show readers all rows of the tables, and whoever is reader and user at once could read contents by them.
create view memory_overview with (security_barrier = true) as
select tenant, kind, count(*) as memories, min(created_at) as first_at, max(created_at) as last_at
from mindful.memory
where tenant = (select mindful._tenant()) or (select mindful._reads_all())
group by tenant, kind;
comment on view memory_overview is 'How many memories there are, by tenant and kind: one''s own, or for mindful_reader all.';

create view model_usage with (security_barrier = true) as
select created_at::date as day, tenant, model, role, count(*) as generations, sum(prompt_tokens) as prompt_tokens,
    sum(cached_tokens) as cached_tokens, sum(completion_tokens) as completion_tokens,
    avg(first_token_ms) as mean_first_token_ms, avg(total_ms) as mean_total_ms,
    count(*) filter (where finish_reason = 'length') as cut_by_length
from mindful.generation
where tenant = (select mindful._tenant()) or (select mindful._reads_all())
group by created_at::date, tenant, model, role;
comment on view model_usage is 'What generators did, by day, tenant, model and role: for oneself, or for mindful_reader for all.';

create view confidence_daily with (security_barrier = true) as
select created_at::date as day, tenant, model, count(*) as generations, avg(confidence) as mean_confidence,
    percentile_cont(0.1) within group (order by confidence) as confidence_p10,
    percentile_cont(0.9) within group (order by confidence) as confidence_p90
from mindful.generation
where tenant = (select mindful._tenant()) or (select mindful._reads_all())
group by created_at::date, tenant, model;
comment on view confidence_daily is 'How sure the generators were, by day, tenant and model: for oneself, or for mindful_reader for all.';

create type status_detail as (
    extension_version text,
    package_version text,
    server_version text,
    vector_version text,
    python_version text,
    python_prefix text,
    llama_cpp_version text,
    tenant text,
    backend_pid integer,
    private_bytes bigint,
    shared_bytes bigint,
    models jsonb
);
comment on type status_detail is 'What mindful runs on, and what this connection holds.';

create function mindful_status() returns status_detail
language plpython3u stable parallel restricted security invoker
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.status import mindful_status
return mindful_status()
$python$;
comment on function mindful_status() is
'Versions of the extension and its parts, where Python lives, whose memories the caller sees, the memory of this connection''s process (private bytes are its own, shared ones it maps together with others), and the models it has loaded, each with load_ms and private_bytes.';

revoke all on schema mindful from public;
grant usage on schema mindful to mindful_user, mindful_reader, mindful_admin;
revoke execute on all functions in schema mindful from public;

grant select on model to mindful_user, mindful_admin;
grant insert, update, delete on model to mindful_admin;
grant select, insert, update, delete on session, memory, memory_term, memory_count, attachment to mindful_user;
-- Records of what happened are added to and read, never changed.
grant select, insert on generation, review to mindful_user;
grant select on conversation, memory_overview, model_usage, confidence_daily to mindful_user;

-- Readers see figures of all tenants, and no table.
grant select on memory_overview, model_usage, confidence_daily to mindful_reader;

grant execute on all functions in schema mindful to mindful_user;
revoke execute on function
    model_register(text, text, text, text, jsonb, text[]),
    model_default_set(text),
    _embedding_table_create(text, integer),
    memory_index_create(text, text)
from mindful_user;
grant execute on function
    model_register(text, text, text, text, jsonb, text[]),
    model_default_set(text),
    _embedding_table_create(text, integer),
    memory_index_create(text, text),
    _embedding_table(text),
    _model_find(text, text),
    _raise(text, text, text),
    model_unload(text),
    mindful_status(),
    _tenant()
to mindful_admin;
grant execute on function _tenant(), _reads_all(), mindful_status() to mindful_reader;
