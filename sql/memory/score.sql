insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('recall_weight_bm25', 'number', 0, 1, '{global,user}', '0',
        'Weight of a memory''s own words (BM25) in memory_recall.'),
    ('recall_weight_bm25_context', 'number', 0, 1, '{global,user}', '0.65',
        'Weight of a memory''s words together with those of the two turns before and after it.'),
    ('recall_weight_similarity', 'number', 0, 1, '{global,user}', '0.25',
        'Weight of the similarity of a memory''s own embedding to that of the query.'),
    ('recall_weight_similarity_context', 'number', 0, 1, '{global,user}', '0.3',
        'Weight of the similarities of the two turns before and after a memory.'),
    ('recall_neighbor_share', 'number', 0, 1, '{global,user}', '0.5',
        'Weight of the turn before or after a memory, relative to the memory itself. Two turns away, the square of it.'),
    ('recall_boost_recency', 'number', 0, 1, '{global,user}', '0.04',
        'Relative rise of the score of a memory made just now. Above 0.1, new memories pass much better matches.'),
    ('recall_boost_importance', 'number', 0, 0.1, '{global,user}', '0.04',
        'Relative rise of the score at importance 1, and fall at importance 0. At 0.5 the score stays.'),
    ('recall_boost_access', 'number', 0, 0.1, '{global,user}', '0.02',
        'Upper limit of the relative rise of the score by accesses. A memory with n accesses gets n / (n + 5) of it.'),
    ('recall_half_life_days', 'number', 0.01, 36500, '{global,user}', '30',
        'Age in days at which the boost by recency is half as large.'),
    ('recall_rerank_ms', 'integer', 1, 600000, '{global,user}', '2000',
        'Time limit of a reranker in memory_recall, in milliseconds. After it, the order without the reranker holds.');
insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('recall_neighbor_length', 'integer', 1, 262144, '{global,user}', '400',
        'Length in bytes above which a turn counts less for the turns beside it. A turn of n times this length counts 1/n.'),
    ('recall_neighbor_question', 'number', 0, 4, '{global,user}', '1',
        'Relative rise of the weight of a turn that ends with a question mark, for the turn after it.'),
    ('recall_prior_question', 'number', 0, 1, '{global,user}', '0.17',
        'Deduction from the score of a message that ends with a question mark.'),
    ('recall_prior_length', 'number', 0, 1, '{global,user}', '0.08',
        'Rise of the score of a message each time its length grows e-fold, between 20 and 400 characters.'),
    ('recall_prior_speaker', 'number', 0, 1, '{global,user}', '0.1',
        'Rise of the score of a message if the query names its speaker.'),
    ('recall_prior_reply', 'number', 0, 1, '{global,user}', '0.5',
        'Largest deduction from the score of a long reply of the assistant. 0 up to 600 characters, all of it from 1630 on.'),
    ('recall_scope', 'text', null, 1024, '{global,user,session}', '"all"',
        'Memories that chats and memory_recall may use. all: every memory. session: in a chat, those of its session. Another text: those with this "scope" in their metadata or in that of their session.');

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

create function _mindful.ends_asking(content text) returns boolean
language sql immutable parallel safe security invoker
begin atomic
    select pg_catalog.octet_length(content) < 10000
        and pg_catalog.strpos(content, '?') > 0  -- The rest steps through all characters.
        and pg_catalog.right(pg_catalog.rtrim(content, E' \t\r\n"'')'), 1) = '?';
end;
comment on function _mindful.ends_asking(text) is
'Returns whether a text of less than 10000 bytes ends with a question mark, before quotes and parentheses.';

create function _mindful.recall_prior(m memory, named text[], options jsonb) returns double precision
language sql immutable parallel safe security invoker
begin atomic
    select case when m.kind = 'message' then
        (options ->> 'recall_prior_length')::double precision
            * least(greatest(pg_catalog.ln(greatest(1, pg_catalog.char_length(m.content)) / 90::double precision), -1.5), 1.5)
        + case when pg_catalog.lower(coalesce(m.metadata ->> 'speaker',
            substring(pg_catalog.left(m.content, 80) from '^([[:upper:]]\w*)(?: said,|:)'))) = any (named)
            then (options ->> 'recall_prior_speaker')::double precision else 0 end
        - case when _mindful.ends_asking(m.content) then (options ->> 'recall_prior_question')::double precision else 0 end
        - case when m.role = 'assistant' then (options ->> 'recall_prior_reply')::double precision
            * least(greatest(pg_catalog.ln(greatest(1, pg_catalog.char_length(m.content)) / 600::double precision), 0), 1)
            -- An abstention has the words of its question around it, and says nothing.
            + case when m.content ^@ 'I do not know' and pg_catalog.octet_length(m.content) < 1000 then 1 else 0 end else 0 end
    else 0 end;
end;
comment on function _mindful.recall_prior(memory, text[], jsonb) is
'Returns the part of a message''s score that depends on the query''s names only (lower case). Long statements get more than short ones and questions, long replies of an assistant less, and its "I do not know" least. The speaker is metadata "speaker", or a name at the beginning, as in "Ana: ..." and "Ana said, ...". Other memories get 0.';

-- Pages cost nothing in its plan: memory_pkey has fewer than memory_turn, and would be taken to read all of a tenant.
create function _mindful.memory_places(session_ids uuid[], places bigint[])
returns table (place_number bigint, memory memory)
language plpgsql stable parallel safe security invoker rows 50
set search_path = pg_catalog, mindful, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set random_page_cost = 0
as $$
declare
    own_tenant text := _mindful.tenant();
begin
    return query
    select p.n, f.memory
    from unnest(session_ids, places) with ordinality p (session_id, place, n)
    cross join lateral (
        select m::mindful.memory as memory from mindful.memory m
        where m.tenant = own_tenant and p.session_id is null and m.id = p.place
        union all
        select m from mindful.memory m
        where m.tenant = own_tenant and m.session_id = p.session_id and m.turn = p.place
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
            case s.step when 0 then 1 when 1 then s.share * m.share * m.share_after else s.share * m.share end as share
        from (select d.id from dense d union select l.id from posting l) c
        cross join lateral (
            select m.id, m.session_id, m.turn, least(1, neighbor_length / octet_length(m.content)) as share,
                case when _mindful.ends_asking(m.content) then 1 + neighbor_question else 1 end as share_after
            from mindful.memory m
            where m.tenant = (select _mindful.tenant()) and m.id = c.id
                and (filter.statements is not true or not m.asks and not _mindful.is_reply(m.role))
            offset 0
        ) m
        join (values (0, 1), (-1, neighbor_share), (1, neighbor_share), (-2, _mindful.power(neighbor_share, 2)), (2, _mindful.power(neighbor_share, 2)))
            s (step, share) on s.step = 0 or m.turn is not null
    ),
    term as (
        select n.session_id, n.place, max(p.idf) as idf, sum(case when n.beside then 0 else p.frequency end) as own,
            sum(n.share * p.frequency) as context
        from posting p join near n using (id)
        group by n.session_id, n.place, p.term
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
        from (select s.* from scored s order by s.score desc limit pool) s
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
as $$
declare
    half_life_days double precision := options ->> 'recall_half_life_days';
    named text[] := regexp_split_to_array(lower(left(query, 10000)), '[^[:word:]]+');
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
