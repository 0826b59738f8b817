insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('recall_weight_bm25', 'number', 0, 1, '{global,user}', '0',
        'Weight of a memory''s own words in memory_recall.'),
    ('recall_weight_bm25_context', 'number', 0, 1, '{global,user}', '0.65',
        'Weight of a memory''s words together with those of the two turns before and after it.'),
    ('recall_weight_similarity', 'number', 0, 1, '{global,user}', '0.25',
        'Weight of a memory''s own meaning.'),
    ('recall_weight_similarity_context', 'number', 0, 1, '{global,user}', '0.3',
        'Weight of the meaning of the two turns before and after a memory.'),
    ('recall_neighbor_share', 'number', 0, 1, '{global,user}', '0.5',
        'How much the turn before or after a memory counts beside it, and each further one beside the one nearer.'),
    ('recall_boost_recency', 'number', 0, 1, '{global,user}', '0.04',
        'By which share the score of a memory made just now is raised. Above 0.1, new memories pass much better matches.'),
    ('recall_boost_importance', 'number', 0, 0.1, '{global,user}', '0.04',
        'By which share the score of a memory of importance 1 is raised, and of importance 0 lowered.'),
    ('recall_boost_access', 'number', 0, 0.1, '{global,user}', '0.02',
        'Towards which share the score of a memory is raised that is used again and again.'),
    ('recall_half_life_days', 'number', 0.01, 36500, '{global,user}', '30',
        'After how many days the boost by recency is half as large.'),
    ('recall_rerank_ms', 'integer', 1, 600000, '{global,user}', '2000',
        'How long a reranker may take in memory_recall, in milliseconds, before the order without it stands.');
insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('recall_neighbor_length', 'integer', 1, 262144, '{global,user}', '400',
        'Number of bytes above which a turn counts less for the turns beside it: a turn of n times as many counts 1/n.'),
    ('recall_neighbor_question', 'number', 0, 4, '{global,user}', '1',
        'By which share a turn that ends with a question mark counts more for the turn after it.'),
    ('recall_prior_question', 'number', 0, 1, '{global,user}', '0.17',
        'How much is taken from the score of a message that ends with a question mark.'),
    ('recall_prior_length', 'number', 0, 1, '{global,user}', '0.08',
        'How much the score of a message rises each time its length grows e-fold, between 20 and 400 characters.'),
    ('recall_prior_speaker', 'number', 0, 1, '{global,user}', '0.1',
        'How much the score of a message rises if the query names its speaker.'),
    ('recall_prior_reply', 'number', 0, 1, '{global,user}', '0.5',
        'How much is taken from the score of a long reply of the assistant: nothing up to 600 characters, all from 1630 on.'),
    ('recall_scope', 'text', null, 1024, '{global,user,session}', '"all"',
        'Memories that chats and memory_recall may use. all: every one. session: a chat uses those of its session. Another text: those with this "scope" in their metadata or in that of their session.');

create type recall_score as (
    memory memory,
    score double precision,
    similarity double precision,
    bm25 double precision,
    bm25_context double precision,
    similarity_context double precision,
    recency double precision,
    access double precision,
    rerank real
);
comment on type recall_score is 'How well a memory matches a query; see recalled_memory.';

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

create function _mindful.ends_asking(content text) returns boolean
language sql immutable parallel safe security invoker
begin atomic
    select pg_catalog.octet_length(content) < 10000
        and pg_catalog.right(pg_catalog.rtrim(content, E' \t\r\n"'')'), 1) = '?';
end;
comment on function _mindful.ends_asking(text) is
'Returns whether a text of less than 10000 bytes ends with a question mark, before quotes and parentheses.';

create function _mindful.recall_prior(m memory, named text[], options jsonb) returns double precision
language plpgsql immutable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    characters double precision;
    speaker text;
begin
    if m.kind <> 'message' then
        return 0;
    end if;
    characters := greatest(1, char_length(m.content));
    speaker := lower(coalesce(m.metadata ->> 'speaker', substring(left(m.content, 80) from '^([[:upper:]]\w*)(?: said,|:)')));
    return (options ->> 'recall_prior_length')::double precision * least(greatest(ln(characters / 90), -1.5), 1.5)
        + case when speaker = any (named) then (options ->> 'recall_prior_speaker')::double precision else 0 end
        - case when _mindful.ends_asking(m.content) then (options ->> 'recall_prior_question')::double precision else 0 end
        - case when m.role = 'assistant'
            then (options ->> 'recall_prior_reply')::double precision * least(greatest(ln(characters / 600), 0), 1) else 0 end;
end
$$;
comment on function _mindful.recall_prior(memory, text[], jsonb) is
'Returns what is added to the score of a message whatever the query says, except for the names in it (lower case): long statements are worth more than short ones and questions, and long replies of an assistant less. The speaker is metadata "speaker", or a name at the beginning, as in "Ana: ..." and "Ana said, ...". Other memories get 0.';

-- Pages cost nothing in its plan: memory_pkey has fewer than memory_turn, and would be taken to read all of a tenant.
create function _mindful.memory_places(session_ids uuid[], places bigint[])
returns table (place_number bigint, memory memory)
language plpgsql stable parallel safe security invoker rows 50
set search_path = pg_catalog, mindful, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set random_page_cost = 0
as $$
begin
    return query
    select p.n, f.memory
    from unnest(session_ids, places) with ordinality p (session_id, place, n)
    cross join lateral (
        select m::mindful.memory as memory from mindful.memory m
        where m.tenant = (select _mindful.tenant()) and p.session_id is null and m.id = p.place
        union all
        select m from mindful.memory m
        where m.tenant = (select _mindful.tenant()) and m.session_id = p.session_id and m.turn = p.place
    ) f;
end
$$;
comment on function _mindful.memory_places(uuid[], bigint[]) is
'The memories at places, each with the number of its place from 1. A place is a session and a turn of it, or NULL and the id of a memory.';

-- Words of a neighbor count by recall_neighbor_share to the power of its distance, less if the neighbor is long
-- (recall_neighbor_length), and more if it is a question before the turn (recall_neighbor_question). similarity_context
-- sums the similarities of the turns before and after, weighted likewise. Only candidates are read, so a neighbor that
-- no arm found adds nothing.
create function _mindful.recall_scores(
    query text,
    embedding vector,
    embedder text,
    candidates integer,
    pool integer,
    filter recall_filter,
    narrow boolean,
    options jsonb
) returns setof recall_score
language plpgsql stable parallel restricted security invoker rows 20
set search_path = pg_catalog, mindful, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
    weight_bm25 double precision := options ->> 'recall_weight_bm25';
    weight_bm25_context double precision := options ->> 'recall_weight_bm25_context';
    weight_similarity double precision := options ->> 'recall_weight_similarity';
    weight_similarity_context double precision := options ->> 'recall_weight_similarity_context';
    neighbor_share double precision := options ->> 'recall_neighbor_share';
    neighbor_length double precision := options ->> 'recall_neighbor_length';
    neighbor_question double precision := options ->> 'recall_neighbor_question';
    early recall_filter := case when narrow then filter end;
begin
    return query
    with dense as materialized (
        select d.id, d.similarity,
            1 - (max(d.similarity) over () - d.similarity)
                / greatest(max(d.similarity) over () - min(d.similarity) over (), 0.1) as share
        from _mindful.recall_dense(embedding, embedder, candidates, early) d
    ),
    posting as materialized (
        select l.* from _mindful.recall_lexical(query, candidates, early) l
    ),
    -- A place is a turn of a session, or outside of sessions a memory by itself.
    near as materialized (
        select c.id, case when m.turn is not null then m.session_id end as session_id, coalesce(m.turn, m.id) + s.step as place, s.step <> 0 as beside,
            case when s.step = 0 then 1
                else _mindful.power(neighbor_share, abs(s.step)) * least(1, neighbor_length / octet_length(m.content))
                    * case when s.step = 1 and _mindful.ends_asking(m.content) then 1 + neighbor_question else 1 end
            end as share
        from (select d.id from dense d union select l.id from posting l) c
        cross join lateral (
            select m.id, m.session_id, m.turn, m.content from mindful.memory m
            where m.tenant = (select _mindful.tenant()) and m.id = c.id
                and (filter.statements is not true or not m.asks and not _mindful.is_reply(m.role))
            offset 0
        ) m
        join (values (0), (-1), (1), (-2), (2)) s (step) on s.step = 0 or m.turn is not null
    ),
    term as (
        select n.session_id, n.place, p.idf, sum(case when n.beside then 0 else p.frequency end) as own,
            sum(n.share * p.frequency) as context
        from posting p join near n using (id)
        group by n.session_id, n.place, p.term, p.idf
    ),
    part as (
        select t.session_id, t.place, t.idf * 2.2 * t.own / (t.own + 1.2) as bm25,
            t.idf * 2.2 * t.context / (t.context + 1.2) as bm25_context,
            null::double precision as similarity, 0::double precision as share, 0::double precision as share_context
        from term t
        union all
        select n.session_id, n.place, 0, 0, case when not n.beside then d.similarity end,
            case when n.beside then 0 else d.share end, case when n.beside then n.share * d.share else 0 end
        from dense d join near n using (id)
    ),
    total as (
        select p.session_id, p.place, sum(p.bm25) as bm25, sum(p.bm25_context) as bm25_context,
            max(p.similarity) as similarity, sum(p.share) as share, sum(p.share_context) as share_context
        from part p
        group by p.session_id, p.place
    ),
    scored as (
        select t.*,
            weight_bm25 * coalesce(t.bm25 / nullif(max(t.bm25) over (), 0), 0)
            + weight_bm25_context * coalesce(t.bm25_context / nullif(max(t.bm25_context) over (), 0), 0)
            + weight_similarity * t.share
            + weight_similarity_context * t.share_context as score
        from total t
    ),
    best as materialized (
        select s.*, row_number() over (order by s.score desc) as n
        from scored s
        order by n
        limit pool
    )
    select f.memory, b.score, b.similarity, nullif(b.bm25, 0), nullif(b.bm25_context, 0), b.share_context,
        null::double precision, null::double precision, null::real
    from best b
    join _mindful.memory_places(
        array(select b.session_id from best b order by b.n), array(select b.place from best b order by b.n)
    ) f on f.place_number = b.n and _mindful.recall_admits(filter, f.memory);
end
$$;
comment on function _mindful.recall_scores(text, vector, text, integer, integer, recall_filter, boolean, jsonb) is
'The memories with the best weighted sums of what the arms found, without boosts. bm25_context is BM25 of a turn and the two before and after it as fields of one text (BM25F). Similarities are scaled to [0, 1] over the candidates, or to less if they are all within 0.1. If narrow, the arms find only what passes the filter; else the filter is applied to what they found.';

create function _mindful.recall_ranked(
    query text,
    embedding vector,
    embedder text,
    k integer,
    filter recall_filter,
    options jsonb
) returns setof recall_score
language plpgsql stable parallel restricted security invoker rows 10
set search_path = pg_catalog, mindful, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    half_life_days double precision := options ->> 'recall_half_life_days';
    named text[] := regexp_split_to_array(lower(left(query, 10000)), '\W+');
    recency_boost double precision := options ->> 'recall_boost_recency';
    importance_boost double precision := options ->> 'recall_boost_importance';
    access_boost double precision := options ->> 'recall_boost_access';
    narrow boolean := num_nonnulls(filter.kinds, filter.metadata, filter.session_id, filter.source, filter.condition,
        filter.scope) > 0;
    hidden integer := 0;
    ranked mindful.recall_score[];
begin
    if not narrow then
        hidden := _mindful.recall_hidden(filter.as_of);
        narrow := hidden > 100;
        hidden := case when narrow then 0 else hidden end;
    end if;
    loop
        ranked := array(
            with found as (
                select s.*,
                    _mindful.power(0.5, _mindful.half_lives((s.memory).created_at, filter.as_of, half_life_days)) as age_share,
                    coalesce(a.access_count / (a.access_count + 5.0::double precision), 0) as access_share
                from _mindful.recall_scores(query, embedding, embedder, 40 + k + hidden, 30 + 2 * k + hidden, filter, narrow, options) s
                left join lateral (
                    select a.access_count from mindful.memory_access a
                    where a.tenant = (select _mindful.tenant()) and a.id = (s.memory).id
                    offset 0
                ) a on true
            ),
            boosted as (
                select f.*, (f.score + _mindful.recall_prior(f.memory, named, options)) * (1 + greatest(-0.1, least(greatest(0.1, recency_boost), recency_boost * f.age_share
                    + importance_boost * (2 * (f.memory).importance - 1) + access_boost * f.access_share))) as raised
                from found f
            ),
            single as (
                select distinct on ((b.memory).content_hash) b.* from boosted b
                order by (b.memory).content_hash, _mindful.is_reply((b.memory).role), b.raised desc, (b.memory).id desc
            )
            select row(s.memory, s.raised, s.similarity, s.bm25, s.bm25_context, s.similarity_context, s.age_share, s.access_share,
                null)::mindful.recall_score
            from single s
            order by s.raised desc, (s.memory).id desc
            limit k
        );
        -- The arms look for statements first among all memories, which their indexes hold, then among statements alone.
        exit when narrow or filter.statements is not true or cardinality(ranked) >= least(k, 10)
            or (select t.memories from _mindful.memory_total() t) <= 40 + k + hidden;
        narrow := true;
        hidden := 0;
    end loop;
    return query select r.* from unnest(ranked) r;
end
$$;
comment on function _mindful.recall_ranked(text, vector, text, integer, recall_filter, jsonb) is
'The k best memories by score, boosts counted in, each text once, best first. A few that are not valid are made up for by as many candidates more; where they are many, the arms ask memory.';

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

create function _mindful.recall_reranked(query text, ranked recall_score[], options jsonb) returns recall_score[]
language plpgsql stable parallel restricted security invoker
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
language plpgsql stable parallel restricted security invoker rows 10
set search_path = pg_catalog, mindful, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
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

create function _mindful.chat_filter(session_id uuid) returns recall_filter
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    scope text := mindful.setting_get('recall_scope', session_id) #>> '{}';
begin
    return _mindful.recall_filter(null, null, case when scope = 'session' then session_id end, now(), true, null,
        case when scope not in ('all', 'session') then scope end);
end
$$;
comment on function _mindful.chat_filter(uuid) is
'Returns which memories a chat may be shown: statements, within the setting recall_scope of the session.';

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
language plpgsql stable parallel restricted security invoker rows 5
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
