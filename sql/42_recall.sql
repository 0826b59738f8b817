insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('recall_weight_bm25', 'number', 0, 1, '{global,user}', '0',
        'Weight of a memory''s own words in memory_recall.'),
    ('recall_weight_bm25_context', 'number', 0, 1, '{global,user}', '0.6',
        'Weight of a memory''s words together with those of the turns before and after it.'),
    ('recall_weight_similarity', 'number', 0, 1, '{global,user}', '0.4',
        'Weight of a memory''s own meaning.'),
    ('recall_weight_similarity_context', 'number', 0, 1, '{global,user}', '0.1',
        'Weight of the meaning of the turns before and after a memory.'),
    ('recall_neighbour_share', 'number', 0, 1, '{global,user}', '0.5',
        'How much a word in the turn before or after counts beside one in the turn itself.'),
    ('recall_boost_recency', 'number', 0, 0.1, '{global,user}', '0.04',
        'By which share the score of a memory made just now is raised.'),
    ('recall_boost_importance', 'number', 0, 0.1, '{global,user}', '0.04',
        'By which share the score of a memory of importance 1 is raised, and of importance 0 lowered.'),
    ('recall_boost_access', 'number', 0, 0.1, '{global,user}', '0.02',
        'Towards which share the score of a memory is raised that is used again and again.'),
    ('recall_half_life_days', 'number', 0.01, 36500, '{global,user}', '30',
        'After how many days the boost by recency is half as large.');

-- OFFSET 0 within LATERAL, below, makes of a join a look-up in an index for each candidate. Estimates, which are of all
-- tenants, made of it a hash join over all of a tenant's memories.

create type recall_filter as (kinds text[], metadata jsonb, session_id uuid, as_of timestamptz);
comment on type recall_filter is 'Which memories may be recalled: NULL is any kind, metadata, session or time of validity.';

create function _recall_admits(filter recall_filter, m memory) returns boolean
language sql immutable parallel safe security invoker
begin atomic
    select (filter.kinds is null or m.kind = any (filter.kinds))
        and (filter.metadata is null or m.metadata @> filter.metadata)
        and (filter.session_id is null or m.session_id = filter.session_id)
        and coalesce(m.valid_from <= filter.as_of, true)
        and coalesce(m.valid_to > filter.as_of, true);
end;
comment on function _recall_admits(recall_filter, memory) is
'Whether a memory passes a filter; valid is from valid_from until before valid_to.';

create function _recall_options() returns jsonb
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    return (
        select jsonb_object_agg(d.key, coalesce(own.value, everyones.value, d.initial))
        from mindful.setting_definition d
        left join lateral (
            select nullif(s.value, 'null') as value from mindful.setting s
            where s.tenant = (select mindful._tenant()) and s.key = d.key and s.scope = 'user'
            order by s.id desc limit 1
        ) own on true
        left join lateral (
            select nullif(s.value, 'null') as value from mindful.setting s
            where s.tenant = '' and s.key = d.key and s.scope = 'global'
            order by s.id desc limit 1
        ) everyones on true
        where d.key >= 'recall_' and d.key < 'recall`'
    );
end
$$;
comment on function _recall_options() is 'The settings recall_... in force, as setting_get gives them, by one plan that the session keeps.';

create function _recall_dense(embedding vector, embedder text, candidates integer, filter recall_filter)
returns table (id bigint, similarity double precision)
language plpgsql stable parallel restricted security invoker rows 70
set search_path = pg_catalog, mindful, pg_temp
set hnsw.iterative_scan = 'strict_order'
set hnsw.max_scan_tuples = 200000
set jit = off
as $$
declare
    vector_schema text := (select extnamespace::regnamespace from pg_extension where extname = 'vector');
begin
    if embedding is null then  -- full text alone, then
        return;
    end if;
    -- The tenant as a constant: an index of its own is found by it. Memory is read only where it decides.
    return query execute format('
        select e.id, 1 - (e.embedding operator(%1$s.<=>) $1)
        from mindful.%2$I e %4$s
        where e.tenant = %3$L
        order by e.embedding operator(%1$s.<=>) $1
        limit $2', vector_schema, mindful._embedding_table(embedder), mindful._tenant(),
        case when not filter is null then
            'join mindful.memory m on m.tenant = e.tenant and m.id = e.id and mindful._recall_admits($3, m)'
        end)
    using embedding, candidates, filter;
end
$$;
comment on function _recall_dense(vector, text, integer, recall_filter) is
'The memories whose embeddings are nearest to the query''s, by cosine similarity: exactly, or by the tenant''s HNSW index where it has one.';

create function _recall_terms(query text)
returns table (lexeme text, holders bigint, idf double precision, mean_length double precision)
language plpgsql stable parallel safe security invoker rows 10
set search_path = pg_catalog, mindful, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
begin
    return query
    select q.lexeme, holder.n, ln(1 + (total.memories - holder.n + 0.5::double precision) / (holder.n + 0.5::double precision)),
        total.mean_length
    from mindful._terms(query) q
    cross join mindful._memory_total() total
    cross join lateral (
        select 32 * count(*) as n from mindful.memory_term t
        where t.tenant = (select mindful._tenant()) and t.lexeme = q.lexeme and hashint8(t.id) & 31 = 0
    ) sampled
    cross join lateral (
        select count(*) as n from mindful.memory_term t
        where sampled.n < 1000 and t.tenant = (select mindful._tenant()) and t.lexeme = q.lexeme
    ) counted
    cross join lateral (select least(greatest(counted.n, sampled.n), total.memories::bigint) as n) holder
    where holder.n > 0
    order by holder.n, q.lexeme
    limit 100;
end
$$;
comment on function _recall_terms(text) is
'The lexemes of a query that the tenant''s memories hold, at most 100, the rarest first: in how many, counted up to about a thousand and estimated from one posting in 32 beyond; the inverse document frequency (that of Lucene); and the mean length of the tenant''s memories.';

create function _recall_lexical(query text, candidates integer, filter recall_filter)
returns table (id bigint, term bigint, idf double precision, frequency double precision)
language plpgsql stable parallel safe security invoker rows 200
set search_path = pg_catalog, mindful, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
begin
    return query
    with term as materialized (
        select row_number() over rarest as term, t.lexeme, t.idf, t.mean_length,
            sum(t.holders) over rarest <= 2000 or row_number() over rarest = 1 as leads
        from mindful._recall_terms(query) t
        window rarest as (order by t.holders, t.lexeme)
    ),
    posting as materialized (
        select p.id, t.term, t.idf, p.frequency / (0.6::double precision + 0.4 * p.length / t.mean_length) as frequency
        from term t
        cross join lateral (
            select h.id, h.frequency, h.length
            from mindful.memory_term h
            left join lateral (
                select true as admitted from mindful.memory m
                where not filter is null and m.tenant = (select mindful._tenant()) and m.id = h.id
                    and mindful._recall_admits(filter, m)
                offset 0
            ) f on true
            where h.tenant = (select mindful._tenant()) and h.lexeme = t.lexeme and (filter is null or f.admitted)
            order by h.id desc
            limit 20000
        ) p
        where t.leads
    ),
    best as materialized (
        select p.id
        from posting p
        group by p.id
        order by sum(p.idf * p.frequency / (p.frequency + 1.2)) desc, p.id desc
        limit candidates
    )
    select p.id, p.term, p.idf, p.frequency
    from best b join posting p on p.id = b.id
    union all
    select p.id, t.term, t.idf, p.frequency / (0.6::double precision + 0.4 * p.length / t.mean_length)
    from best b
    cross join term t
    cross join lateral (
        select h.id, h.frequency, h.length from mindful.memory_term h
        where h.tenant = (select mindful._tenant()) and h.lexeme = t.lexeme and h.id = b.id
        offset 0
    ) p
    where not t.leads;
end
$$;
comment on function _recall_lexical(text, integer, recall_filter) is
'The postings of the memories that best match a query by Okapi BM25, k1 = 1.2 and b = 0.4 (Robertson and Zaragoza 2009), with frequencies divided by 1 - b + b x length / mean length. Candidates come from the rarest lexemes, as many as have 2000 postings in all and at least one (MaxScore, Turtle and Flood 1995, without its guarantee), and from the newest 20000 of a lexeme''s; the common ones are looked up for the candidates. A lexeme counts at most 255 times in a text, as in tsvector.';

create function _recall_scores(
    query text,
    embedding vector,
    embedder text,
    candidates integer,
    pool integer,
    filter recall_filter,
    options jsonb
)
returns table (
    id bigint,
    score double precision,
    bm25 double precision,
    bm25_context double precision,
    similarity double precision,
    similarity_context double precision
)
language plpgsql stable parallel restricted security invoker rows 30
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
    neighbour_share double precision := options ->> 'recall_neighbour_share';
begin
    return query
    with dense as materialized (
        select d.id, d.similarity,
            1 - (max(d.similarity) over () - d.similarity)
                / greatest(max(d.similarity) over () - min(d.similarity) over (), 0.1) as share
        from mindful._recall_dense(embedding, embedder, candidates, filter) d
    ),
    posting as materialized (
        select l.* from mindful._recall_lexical(query, candidates, filter) l
    ),
    lexical as materialized (
        select p.id, sum(p.idf * 2.2 * p.frequency / (p.frequency + 1.2)) as bm25
        from posting p
        group by p.id
    ),
    -- A place is a turn of a session, or a memory outside of any.
    found as materialized (
        select m.id, m.session_id, m.turn, case when m.turn is null then m.id end as alone
        from (select d.id from dense d union select l.id from lexical l) c
        cross join lateral (
            select m.id, m.session_id, m.turn from mindful.memory m
            where m.tenant = (select mindful._tenant()) and m.id = c.id
            offset 0
        ) m
    ),
    near as materialized (
        select f.id, f.session_id, f.turn + s.step as turn, f.alone, s.step <> 0 as beside
        from found f
        join (values (0), (-1), (1)) s (step) on s.step = 0 or f.turn is not null
    ),
    term as (
        select n.session_id, n.turn, n.alone, p.idf,
            sum(p.frequency * case when n.beside then neighbour_share else 1 end) as frequency
        from posting p join near n using (id)
        group by n.session_id, n.turn, n.alone, p.term, p.idf
    ),
    part as (
        select t.session_id, t.turn, t.alone, t.idf * 2.2 * t.frequency / (t.frequency + 1.2) as bm25_context,
            0::double precision as bm25, 0::double precision as share, 0::double precision as share_context
        from term t
        union all
        select n.session_id, n.turn, n.alone, 0, l.bm25, 0, 0
        from lexical l join near n using (id) where not n.beside
        union all
        select n.session_id, n.turn, n.alone, 0, 0, case when n.beside then 0 else d.share end, case when n.beside then d.share else 0 end
        from dense d join near n using (id)
    ),
    place as (
        select p.session_id, p.turn, p.alone, sum(p.bm25) as bm25, sum(p.bm25_context) as bm25_context,
            sum(p.share) as share, sum(p.share_context) as share_context
        from part p
        group by p.session_id, p.turn, p.alone
    ),
    best as materialized (
        select p.*,
            weight_bm25 * coalesce(p.bm25 / nullif(max(p.bm25) over (), 0), 0)
            + weight_bm25_context * coalesce(p.bm25_context / nullif(max(p.bm25_context) over (), 0), 0)
            + weight_similarity * p.share
            + weight_similarity_context * p.share_context as score
        from place p
        order by score desc
        limit pool
    ),
    placed as (
        select b.alone as id, b.* from best b where b.alone is not null
        union all
        select m.id, b.*
        from best b
        cross join lateral (
            select m.id from mindful.memory m
            where m.tenant = (select mindful._tenant()) and m.session_id = b.session_id and m.turn = b.turn
            offset 0
        ) m
    )
    select p.id, p.score, nullif(p.bm25, 0), nullif(p.bm25_context, 0), d.similarity, p.share_context
    from placed p left join dense d using (id);
end
$$;
comment on function _recall_scores(text, vector, text, integer, integer, recall_filter, jsonb) is
'The memories with the best weighted sums of what the arms found, boosts not counted. bm25_context is BM25 of a turn and those before and after it as fields of one text (BM25F), whose words count by recall_neighbour_share. Similarities are scaled to [0, 1] over the candidates, or to less where they are all within 0.1; similarity_context is the sum of the scaled similarities of the turns before and after it. Candidates alone are seen, so a neighbour that no arm found adds nothing.';

create function _memory_recall(
    query text,
    embedding vector,
    embedder text,
    k integer,
    filter recall_filter,
    options jsonb
)
returns table (
    id bigint,
    score double precision,
    bm25 double precision,
    bm25_context double precision,
    similarity double precision,
    similarity_context double precision,
    recency double precision,
    importance double precision,
    access double precision
)
language plpgsql stable parallel restricted security invoker rows 10
set search_path = pg_catalog, mindful, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
    half_life_days double precision := options ->> 'recall_half_life_days';
    recency_boost double precision := options ->> 'recall_boost_recency';
    importance_boost double precision := options ->> 'recall_boost_importance';
    access_boost double precision := options ->> 'recall_boost_access';
    narrow boolean := filter.kinds is not null or filter.metadata is not null or filter.session_id is not null;
    hidden integer := (
        select count(*) from (
            (select from mindful.memory m where m.tenant = (select mindful._tenant()) and m.valid_to <= filter.as_of limit 101)
            union all
            (select from mindful.memory m where m.tenant = (select mindful._tenant()) and m.valid_from > filter.as_of limit 101)
        ) h
    );
begin
    -- A few that are not valid are made up for by as many candidates more; asking memory about each costs more.
    if hidden > 100 then
        narrow := true;
    end if;
    if narrow then
        hidden := 0;
    end if;
    return query
    with boosted as (
        select s.*, m.content_hash,
            power(0.5, greatest(extract(epoch from filter.as_of - m.created_at)::double precision, 0)
                / (86400 * half_life_days)) as recency,
            m.importance::double precision as importance,
            coalesce(a.access_count / (a.access_count + 5.0::double precision), 0) as access
        from mindful._recall_scores(query, embedding, embedder, 50 + 2 * k + hidden, 20 + 2 * k + hidden,
            case when narrow then filter end, options) s
        cross join lateral (
            select m.content_hash, m.created_at, m.importance from mindful.memory m
            where m.tenant = (select mindful._tenant()) and m.id = s.id and mindful._recall_admits(filter, m)
            offset 0
        ) m
        left join lateral (
            select a.access_count from mindful.memory_access a
            where a.tenant = (select mindful._tenant()) and a.id = s.id
            offset 0
        ) a on true
    ),
    scored as (
        select b.*, b.score * (1 + greatest(-0.1, least(0.1,
            recency_boost * b.recency + importance_boost * (2 * b.importance - 1) + access_boost * b.access))) as final
        from boosted b
    ),
    single as (
        select distinct on (s.content_hash) s.* from scored s order by s.content_hash, s.final desc, s.id desc
    )
    select s.id, s.final, s.bm25, s.bm25_context, s.similarity, s.similarity_context, s.recency, s.importance, s.access
    from single s
    order by s.final desc, s.id desc
    limit k;
end
$$;
comment on function _memory_recall(text, vector, text, integer, recall_filter, jsonb) is
'memory_recall for a query that is embedded already: ids and scores.';

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
    access double precision
);
comment on type recalled_memory is 'A memory that matches a query, with every component of its score.';
comment on column recalled_memory.score is 'The weighted sum of the arms, each scaled to at most 1, raised or lowered by at most a tenth; the weights and boosts are settings.';
comment on column recalled_memory.similarity is 'Cosine similarity of the embeddings; NULL where it was not among the nearest.';
comment on column recalled_memory.bm25 is 'Okapi BM25 of the memory''s own words; NULL where none of the query''s was found in it.';
comment on column recalled_memory.bm25_context is 'BM25 of the words of a turn and those beside it; NULL where none of the query''s was found in them.';
comment on column recalled_memory.similarity_context is 'The scaled similarities of the turns before and after, added.';
comment on column recalled_memory.recency is 'From 1, just made, halved every recall_half_life_days.';
comment on column recalled_memory.access is 'n / (n + 5) of a memory that was used n times.';

create function memory_recall(
    query text,
    k integer default 5,
    kinds text[] default null,
    metadata jsonb default null,
    session_id uuid default null,
    as_of timestamptz default now(),
    max_tokens integer default null
) returns setof recalled_memory
language plpgsql stable parallel restricted security invoker rows 5
set search_path = pg_catalog, mindful, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    asked text := mindful._text_argument('query', query);
    wanted integer := mindful._integer_argument('k', k, 1, 1000);
    budget integer := case when max_tokens is not null then mindful._integer_argument('max_tokens', max_tokens, 1, 2147483647) end;
    filter mindful.recall_filter := row(kinds, metadata, session_id, coalesce(as_of, now()));
    embedder text := (select f.name from mindful._model_find('embedder', null) f);
begin
    return query
    with shown as (
        select m.id, m.content, m.kind, r.score, r.similarity, r.bm25, m.metadata, m.session_id, m.turn, m.role, m.source,
            m.created_at, r.bm25_context, r.similarity_context, r.recency, r.importance, r.access,
            sum(ceil(char_length(m.content) / 4.0)) over (order by r.score desc, r.id desc) as tokens
        from mindful._memory_recall(asked,
            case when embedder is not null then mindful.llm_embed(asked, embedder) end, embedder, wanted, filter, mindful._recall_options()) r
        cross join lateral (
            select m.* from mindful.memory m
            where m.tenant = (select mindful._tenant()) and m.id = r.id
            offset 0
        ) m
    )
    select s.id, s.content, s.kind, s.score, s.similarity, s.bm25, s.metadata, s.session_id, s.turn, s.role, s.source,
        s.created_at, s.bm25_context, s.similarity_context, s.recency, s.importance, s.access
    from shown s
    where budget is null or s.tokens <= budget
    order by s.score desc, s.id desc;
end
$$;
comment on function memory_recall(text, integer, text[], jsonb, uuid, timestamptz, integer) is
'The k memories that best match a query in meaning and in words, those of the turns beside them counted in, best first. kinds, metadata (an object that theirs contains) and session_id say which are asked for; valid at as_of, from valid_from until before valid_to, they are all. max_tokens ends the list before it has more, a token taken for four characters: counting them would load the generator. Memories with the same text come once. No model but the embedder runs; works in read-only transactions. Errors: 22004 (NULL), 22023 (empty query, k outside 1 to 1000, max_tokens below 1).';
