create type recalled_memory as (
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
    created_at timestamptz,
    bm25_context double precision,
    similarity_context double precision,
    recency double precision,
    importance double precision,
    access double precision,
    rerank real,
    source_key text
);
comment on type recalled_memory is 'A memory that matches a query, with every component of its score.';
comment on column recalled_memory.score is
'Weighted sum of the arms, each scaled to at most 1, plus the prior of a message (settings recall_prior_...), times the boosts (recall_boost_...).';
comment on column recalled_memory.similarity is 'Cosine similarity of the embeddings; NULL where it was not among the nearest.';
comment on column recalled_memory.bm25 is 'Okapi BM25 of the memory''s own words; NULL where none of the query''s was found in it.';
comment on column recalled_memory.bm25_context is 'BM25 of the words of a turn and of the two before and after it, which count less the farther they are; NULL where none of the query''s was found in them.';
comment on column recalled_memory.similarity_context is 'The scaled similarities of the two turns before and after, added; they count less the farther they are.';
comment on column recalled_memory.recency is 'From 1, just made, halved every recall_half_life_days.';
comment on column recalled_memory.access is 'n / (n + 5) of a memory that was used n times.';
comment on column recalled_memory.source_key is
'Key of the memory within its source: of a row of an attached table, its primary key. Parts of a long row have the same.';
comment on column recalled_memory.rerank is 'The reranker''s score; NULL where it did not run, or not in time.';

create function _mindful.recall_options() returns jsonb
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    return (
        with newest as (
            select distinct on (s.key, s.scope) s.key, s.scope, nullif(s.value, 'null') as value
            from mindful.setting s
            where s.tenant = any (array['', (select _mindful.tenant())]) and s.key >= 'recall_' and s.key < 'recall`'
                and s.scope <> 'session'
            order by s.key, s.scope, s.id desc
        )
        select jsonb_object_agg(d.key, coalesce(
            (select n.value from newest n where n.key = d.key and n.scope = 'user'),
            (select n.value from newest n where n.key = d.key and n.scope = 'global'), d.initial))
        from mindful.setting_definition d
        where d.tenant = '' and d.key >= 'recall_' and d.key < 'recall`'
    );
end
$$;
comment on function _mindful.recall_options() is 'The settings recall_... in force, as setting_get gives them, by one plan that the session keeps.';

create function _mindful.recall_reranked(query text, ranked recall_score[], options jsonb) returns recall_score[]
language plpgsql stable parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    scores real[] := mindful.llm_rerank(
        query,
        array(select (r.memory).content from unnest(ranked[:50]) with ordinality r order by r.ordinality),
        limit_ms => (options ->> 'recall_rerank_ms')::integer
    );
begin
    if array_position(scores, null) is not null then  -- Scores of some cannot be compared with those of others.
        return ranked;
    end if;
    return array(
        select row(r.memory, r.score, r.similarity, r.bm25, r.bm25_context, r.similarity_context, r.recency, r.access,
            scores[r.ordinality])::mindful.recall_score
        from unnest(ranked) with ordinality r
        order by scores[r.ordinality] desc nulls last, r.ordinality
    );
end
$$;
comment on function _mindful.recall_reranked(text, recall_score[], jsonb) is
'The first 50 in the order of the default reranker, which has recall_rerank_ms for it; unchanged if that is not enough.';

create function _mindful.recall_nearness(embedder text, ids bigint[]) returns real[]
language plpgsql stable parallel restricted security invoker
set search_path = pg_catalog, mindful, pg_temp
set jit = off
as $$
declare
    vector_schema text := (select extnamespace::regnamespace from pg_extension where extname = 'vector');
    nearness real[];
begin
    if embedder is null then
        return array_fill(0::real, array[cardinality(ids) ^ 2]::integer[]);
    end if;
    execute format('
        with own as materialized (
            select i.place, e.embedding
            from unnest($1) with ordinality i (id, place)
            left join lateral (
                select e.embedding from mindful.%2$I e where e.tenant = (select _mindful.tenant()) and e.id = i.id offset 0
            ) e on true
        )
        select array_agg(coalesce((1 - (a.embedding operator(%1$s.<=>) b.embedding))::real, 0) order by a.place, b.place)
        from own a cross join own b', vector_schema, _mindful.embedding_table(embedder))
    into nearness using ids;
    return nearness;
end
$$;
comment on function _mindful.recall_nearness(text, bigint[]) is
'The cosine similarities of n memories with one another, n x n in the order of the ids; 0 where there is no embedding.';

create function _mindful.recall_diverse(ranked recall_score[], embedder text, diversity real, k integer) returns recall_score[]
language plpgsql stable parallel restricted security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    places integer := cardinality(ranked);
    nearness real[] := _mindful.recall_nearness(embedder, array(select (r.memory).id from unnest(ranked) with ordinality r order by r.ordinality));
    relevance double precision[];
    likeness double precision[] := array_fill(0::double precision, array[places]);
    chosen integer[] := '{}';
    best integer;
begin
    select array_agg(coalesce((v.value - v.low) / nullif(v.high - v.low, 0), 1) order by v.place) into relevance
    from (
        select r.ordinality as place, coalesce(r.rerank, r.score) as value,
            min(coalesce(r.rerank, r.score)) over () as low, max(coalesce(r.rerank, r.score)) over () as high
        from unnest(ranked) with ordinality r
    ) v;
    while cardinality(chosen) < least(k, places) loop
        best := (
            select place from generate_series(1, places) place
            where place <> all (chosen)
            order by (1 - diversity) * relevance[place] - diversity * likeness[place] desc, place
            limit 1
        );
        chosen := chosen || best;
        likeness := array(
            select greatest(likeness[place], nearness[(best - 1) * places + place])
            from generate_series(1, places) place order by place
        );
    end loop;
    return array(select ranked[c.place] from unnest(chosen) with ordinality c (place) order by c.ordinality);
end
$$;
comment on function _mindful.recall_diverse(recall_score[], text, real, integer) is
'The k that maximal marginal relevance chooses (Carbonell and Goldstein 1998), in its order: each time that with the largest (1 - diversity) x relevance - diversity x similarity to the nearest one chosen.';

create function _mindful.memory_recall(
    query text,
    embedding vector,
    embedder text,
    k integer,
    filter recall_filter,
    max_tokens integer default null,
    diversity real default 0,
    rerank boolean default false
) returns setof recalled_memory
language plpgsql stable parallel unsafe security invoker rows 10
set search_path = pg_catalog, mindful, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
declare
    options jsonb := _mindful.recall_options();
    pool integer := greatest(k, case when rerank or diversity > 0 then 50 end);
    ranked mindful.recall_score[] := array(
        select r from _mindful.recall_ranked(query, embedding, embedder, pool, filter, options) r
    );
begin
    if rerank then
        ranked := _mindful.recall_reranked(query, ranked, options);
    end if;
    if diversity > 0 then
        ranked := _mindful.recall_diverse(ranked, embedder, diversity, k);
    end if;
    return query
    select (s.memory).id, (s.memory).content, (s.memory).kind, s.score, s.similarity, s.bm25, (s.memory).metadata,
        (s.memory).session_id, (s.memory).turn, (s.memory).role, (s.memory).source, (s.memory).created_at, s.bm25_context,
        s.similarity_context, s.recency, (s.memory).importance::double precision, s.access, s.rerank,
        split_part((s.memory).source_key, chr(31), 1)
    from (
        select r.*, sum(ceil(char_length((r.memory).content) / 4.0)) over (order by r.ordinality) as tokens
        from unnest(ranked[:k]) with ordinality r
    ) s
    where max_tokens is null or s.tokens <= max_tokens
    order by s.ordinality;
end
$$;
comment on function _mindful.memory_recall(text, vector, text, integer, recall_filter, integer, real, boolean) is
'memory_recall for a query that is embedded already (NULL: full text alone).';

create function _mindful.scope_argument(scope text, session_id uuid) returns text
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    wanted text := coalesce(_mindful.short_argument('scope', scope), mindful.setting_get('recall_scope', session_id) #>> '{}');
begin
    if scope = 'session' and session_id is null then
        perform _mindful.raise('22023', 'scope is session and session_id is null', 'Pass the session_id.');
    end if;
    return case when wanted not in ('all', 'session') then wanted end;
end
$$;
comment on function _mindful.scope_argument(text, uuid) is
'Returns the name of the scope that recall is restricted to: the argument, else the setting recall_scope. all and session give NULL. Error 22023: scope is session without a session_id.';

create function _mindful.chat_filter(session_id uuid, statements boolean default true, kinds text[] default null)
returns recall_filter
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    scope text := mindful.setting_get('recall_scope', session_id) #>> '{}';
    uuid_nil constant uuid := '00000000-0000-0000-0000-000000000000';
begin
    -- A chat that begins a session has no memories of its own yet.
    return _mindful.recall_filter(kinds, null, case when scope = 'session' then coalesce(session_id, uuid_nil) end, now(), statements, null,
        case when scope not in ('all', 'session') then scope end);
end
$$;
comment on function _mindful.chat_filter(uuid, boolean, text[]) is
'Returns which memories a chat may be shown: statements (or with statements => false, any), within the setting recall_scope of the session.';

create function memory_recall(
    query text,
    k integer default 5,
    kinds text[] default null,
    metadata jsonb default null,
    session_id uuid default null,
    as_of timestamptz default now(),
    max_tokens integer default null,
    diversity real default 0,
    rerank boolean default false,
    statements boolean default false,
    source text default null,
    scope text default null
) returns setof recalled_memory
language plpgsql stable parallel unsafe security invoker rows 5
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    asked text := _mindful.text_argument('query', query);
    wanted integer := _mindful.integer_argument('k', k, 1, 1000);
    budget integer := case when max_tokens is not null then _mindful.integer_argument('max_tokens', max_tokens, 1, 2147483647) end;
    wanted_scope text := _mindful.scope_argument(scope, session_id);
    filter mindful.recall_filter := _mindful.recall_filter(kinds, metadata, session_id,
        coalesce(_mindful.range_argument('as_of', as_of), now()), nullif(statements, false), source, wanted_scope);
    embedder text := (select f.name from _mindful.model_find('embedder', null) f);
begin
    if diversity is null or not diversity between 0 and 1 then
        perform _mindful.raise(case when diversity is null then '22004' else '22023' end,
            format('diversity is %s', coalesce(diversity::text, 'null')), 'It must be between 0 and 1.');
    end if;
    return query
    select r.* from _mindful.memory_recall(asked, case when embedder is not null then mindful.llm_embed(asked, embedder) end,
        embedder, wanted, filter, budget, diversity, coalesce(rerank, false)) r;
end
$$;
comment on function memory_recall(text, integer, text[], jsonb, uuid, timestamptz, integer, real, boolean, boolean, text, text) is
'Returns the k memories (1 to 1000) that best match a query in meaning and in words, best first. Filters are kinds, session_id, source, scope and metadata; NULL means any.
Example: SELECT content, source_key FROM memory_recall(''a wet basement'', source => ''public.ticket'', metadata => ''{"priority": {"$gte": 3}}'');
Errors: 22004, 22008, 22023, 54000, 55000 (rerank without a default reranker).';
