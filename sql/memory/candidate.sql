-- OFFSET 0 within LATERAL, below, makes the planner look each candidate up in an index. By its estimates, which are of all
-- tenants, it would choose a hash join over all memories of a tenant.

create type recall_filter as (kinds text[], metadata jsonb, session_id uuid, as_of timestamptz, statements boolean,
    source text, condition jsonpath, scope text, scope_sessions uuid[]);
comment on type recall_filter is
'Which memories may be recalled. NULL means any. statements leaves out questions and the model''s own replies. condition is a metadata filter with operators. scope_sessions are the sessions of the scope.';

create function _mindful.metadata_condition(path text, condition jsonb, depth integer default 1) returns text
language plpgsql immutable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    parts text[] := '{}';
    part text;
    name text;
    value jsonb;
    operator text;
begin
    if depth > 16 then
        perform _mindful.raise('54000', 'metadata has more than 16 levels', 'Use fewer levels of conditions.');
    elsif jsonb_typeof(condition) = 'array' then
        for value in select e from jsonb_array_elements(condition) e loop
            parts := parts || _mindful.metadata_condition(path, value, depth + 1);
        end loop;
    elsif jsonb_typeof(condition) <> 'object' then
        part := format('%s == %s', path, condition);
        -- A comparison of different types is unknown; here it is false, so that $not makes it true.
        return format('(%1$s && !((%1$s) is unknown))', part);
    else
        for name, value in select e.key, e.value from jsonb_each(condition) e loop
            operator := '{"$ne": "==", "$eq": "==", "$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}'::jsonb ->> name;
            if not starts_with(name, '$') then
                part := _mindful.metadata_condition(path || '.' || to_jsonb(name), value, depth + 1);
            elsif operator is not null and jsonb_typeof(value) not in ('object', 'array') then
                part := format('%s %s %s', path, operator, value);
                part := format('(%1$s && !((%1$s) is unknown))', part);
                part := case when name = '$ne' then '!' else '' end || part;
            elsif name in ('$and', '$or', '$in') and jsonb_typeof(value) = 'array' and value <> '[]' then
                part := (
                    select '(' || string_agg(_mindful.metadata_condition(path, e, depth + 1),
                        case name when '$and' then ' && ' else ' || ' end) || ')'
                    from jsonb_array_elements(value) e
                );
            elsif name = '$not' and jsonb_typeof(value) = 'object' then
                part := '!' || _mindful.metadata_condition(path, value, depth + 1);
            elsif name = '$exists' and jsonb_typeof(value) = 'boolean' then
                part := case when value::boolean then '' else '!' end || format('exists(%s)', path);
            else
                perform _mindful.raise('22023', format('metadata has %s with %s', to_jsonb(name), left(value::text, 100)),
                    'Operators are $eq, $ne, $gt, $gte, $lt and $lte with a value, $in, $and and $or with an array, $not with an object, and $exists with true or false.');
            end if;
            parts := parts || part;
        end loop;
    end if;
    return '(' || coalesce(nullif(array_to_string(parts, ' && '), ''), format('exists(%s)', path)) || ')';
end
$$;
comment on function _mindful.metadata_condition(text, jsonb, integer) is
'Translates a metadata filter into a jsonpath predicate on a path. Errors: 22023 (unknown operator, or one with a wrong value), 54000 (more than 16 levels).';

create function _mindful.recall_filter(
    kinds text[],
    metadata jsonb,
    session_id uuid,
    as_of timestamptz,
    statements boolean,
    source text default null,
    scope text default null
) returns recall_filter
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    checked jsonb := case when metadata is not null then _mindful.metadata(metadata) end;
    has_operators boolean := checked::text like '%"$%';
begin
    return row(
        _mindful.kinds_argument(kinds), case when not has_operators then checked end, session_id, as_of, statements,
        _mindful.short_argument('source', source),
        case when has_operators then _mindful.metadata_condition('$', checked)::jsonpath end,
        scope,
        case when scope is not null then array(
            select s.session_id from mindful.session s
            where s.tenant = (select _mindful.tenant()) and s.metadata ->> 'scope' = recall_filter.scope
        ) end
    )::mindful.recall_filter;
end
$$;
comment on function _mindful.recall_filter(text[], jsonb, uuid, timestamptz, boolean, text, text) is
'Returns a filter of memories from arguments. Errors: 22023 (unknown kind, bad metadata), 54000.';

create function _mindful.kinds_argument(kinds text[]) returns text[]
language sql stable parallel safe security invoker
begin atomic
    select case
        when kinds <@ array['message', 'fact', 'summary', 'document', 'reflection'] is false
            then array[_mindful.raise('22023', 'kinds is ' || kinds::text,
                'Kinds are message, fact, summary, document and reflection.')::text]
        else kinds
    end;
end;
comment on function _mindful.kinds_argument(text[]) is 'Returns kinds of memories, NULL for any, or raises 22023.';

create function _mindful.recall_admits(filter recall_filter, m memory) returns boolean
language sql immutable parallel safe security invoker
begin atomic
    select (filter.kinds is null or m.kind = any (filter.kinds))
        and (filter.metadata is null or m.metadata @> filter.metadata)
        and (filter.session_id is null or m.session_id = filter.session_id)
        and (filter.source is null or m.source = filter.source)
        and (filter.condition is null or m.metadata @@ filter.condition)
        and (filter.scope is null or m.metadata ->> 'scope' = filter.scope or m.session_id = any (filter.scope_sessions))
        and (filter.statements is not true or not m.asks and not _mindful.is_reply(m.role))
        and coalesce(m.valid_from <= filter.as_of, true)
        and coalesce(m.valid_to > filter.as_of, true);
end;
comment on function _mindful.recall_admits(recall_filter, memory) is
'Whether a memory passes a filter; valid is from valid_from until before valid_to.';

create function _mindful.recall_hidden(as_of timestamptz) returns integer
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
declare
    own_tenant text := _mindful.tenant();
begin
    return (
        select count(*) from (
            (select from mindful.memory m where m.tenant = own_tenant and m.valid_to <= as_of limit 101)
            union all
            (select from mindful.memory m where m.tenant = own_tenant and m.valid_from > as_of limit 101)
        ) h
    );
end
$$;
comment on function _mindful.recall_hidden(timestamptz) is 'How many memories are not valid at a time, counted up to about a hundred.';

-- The planner does not know how many memories a tenant has. It would read all ten million for a filter that a fifth pass,
-- and compare all memories of a small table with all embeddings. So LATERAL with OFFSET 0 says what is looked up for what.
create function _mindful.recall_nearest(embedding vector, embedder text, candidates integer, filter recall_filter, by_index boolean)
returns table (id bigint, similarity double precision)
language plpgsql stable parallel restricted security invoker rows 70
set search_path = pg_catalog, mindful, pg_temp
set hnsw.iterative_scan = 'relaxed_order'
set enable_seqscan = off
set hnsw.max_scan_tuples = 200000
as $$
begin
    -- The tenant as a constant: an index of its own is found by it.
    return query execute format('
        select n.id, 1 - n.distance
        from (
            select e.id, _mindful.distance(e.embedding, $1) %3$s as distance
            from ' || case
                when filter is null then 'mindful.%1$I e where e.tenant = %2$L'
                when by_index then 'mindful.%1$I e cross join lateral (
                    select from mindful.memory m where m.tenant = e.tenant and m.id = e.id and _mindful.recall_admits($3, m) offset 0
                ) m where e.tenant = %2$L'
                else 'mindful.memory m cross join lateral (
                    select e.id, e.embedding from mindful.%1$I e where e.tenant = m.tenant and e.id = m.id offset 0
                ) e where m.tenant = %2$L and _mindful.recall_admits($3, m)'
            end || '
            order by distance
            limit $2
        ) n', _mindful.embedding_table(embedder), _mindful.tenant(),
        case when not by_index then '+ 0' end)  -- no index gives this order
    using embedding, candidates, filter;
end
$$;
comment on function _mindful.recall_nearest(vector, text, integer, recall_filter, boolean) is
'The memories whose embeddings are nearest to the query''s, by cosine similarity. by_index: by the tenant''s HNSW index where it has one, which gives them nearly in order, and fewer than asked for if too few pass the filter before the scan ends: after 200,000 of them or at its limit of memory. Else exactly. The caller sets hnsw.ef_search.';

create function _mindful.recall_nearest_broad(embedding vector, embedder text, candidates integer, filter recall_filter)
returns table (id bigint, similarity double precision)
language plpgsql stable parallel restricted security invoker rows 70
set search_path = pg_catalog, mindful, pg_temp
set hnsw.ef_search = 300
as $$
begin
    return query select n.id, n.similarity from _mindful.recall_nearest(embedding, embedder, candidates, filter, true) n;
end
$$;
comment on function _mindful.recall_nearest_broad(vector, text, integer, recall_filter) is
'recall_nearest by the index with three times the breadth: more of the nearest are found in a large index, in more time.';

create function _mindful.recall_nearest_broadest(embedding vector, embedder text, candidates integer, filter recall_filter)
returns table (id bigint, similarity double precision)
language plpgsql stable parallel restricted security invoker rows 70
set search_path = pg_catalog, mindful, pg_temp
set hnsw.ef_search = 1000
as $$
begin
    return query select n.id, n.similarity from _mindful.recall_nearest(embedding, embedder, candidates, filter, true) n;
end
$$;
comment on function _mindful.recall_nearest_broadest(vector, text, integer, recall_filter) is
'recall_nearest by the index with ten times the breadth: more of the nearest are found in a large index, in more time.';

-- set_config() would choose the breadth in one function, but raises an error under a parallel plan.
create function _mindful.recall_dense(embedding vector, embedder text, candidates integer, filter recall_filter)
returns table (id bigint, similarity double precision)
language plpgsql stable parallel restricted security invoker rows 70
set search_path = pg_catalog, mindful, pg_temp
set plan_cache_mode = force_generic_plan
set hnsw.ef_search = 100
set enable_seqscan = off
as $$
declare
    own_tenant text := _mindful.tenant();
    -- NULL without an embedder or a tenant, which format() would refuse
    by_index boolean := to_regclass('mindful.' || quote_ident(_mindful.embedding_index(embedder, own_tenant))) is not null;
    total bigint := case when by_index then (select t.memories from _mindful.memory_total() t) end;
    ids bigint[];
    similarities double precision[];
begin
    if embedding is null then  -- full text alone, then
        return;
    elsif by_index and not (filter is null) then  -- exact distances take less for few memories
        by_index := total > 10000 and case
            when (filter).session_id is not null then 1000 < (select count(*) from (
                select from mindful.memory m where m.tenant = own_tenant and m.session_id = (filter).session_id
                order by m.turn limit 1001) m)
            when (filter).source is not null then 1000 < (select count(*) from (
                select from mindful.memory m where m.tenant = own_tenant and m.source = (filter).source
                order by m.source_key limit 1001) m)
            else true end;
    end if;
    if by_index and total > 2000000 then
        select array_agg(n.id), array_agg(n.similarity) into ids, similarities
        from _mindful.recall_nearest_broadest(embedding, embedder, candidates, filter) n;
    elsif by_index and total > 250000 then
        select array_agg(n.id), array_agg(n.similarity) into ids, similarities
        from _mindful.recall_nearest_broad(embedding, embedder, candidates, filter) n;
    else
        select array_agg(n.id), array_agg(n.similarity) into ids, similarities
        from _mindful.recall_nearest(embedding, embedder, candidates, filter, by_index or filter is null) n;
    end if;
    if by_index and not (filter is null) and coalesce(cardinality(ids), 0) < candidates then  -- few pass the filter
        select array_agg(n.id), array_agg(n.similarity) into ids, similarities
        from _mindful.recall_nearest(embedding, embedder, candidates, filter, false) n;
    end if;
    return query select n.id, n.similarity from unnest(ids, similarities) n (id, similarity);
end
$$;
comment on function _mindful.recall_dense(vector, text, integer, recall_filter) is
'The memories whose embeddings are nearest to the query''s. The tenant''s HNSW index is searched with hnsw.ef_search 100, with 300 for more than 250,000 memories and with 1000 for more than 2 million. Under a filter distances are exact without an index, for at most 10,000 memories or at most 1000 of the session or source, and if the index found too few. None if embedding is NULL.';

create function _mindful.recall_terms(query text)
returns table (lexeme text, holders bigint, idf double precision, mean_length double precision)
language plpgsql stable parallel safe security invoker rows 10
set search_path = pg_catalog, mindful, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
declare
    own_tenant text := _mindful.tenant();
begin
    return query
    select q.lexeme, holder.n, ln(1 + (total.memories - holder.n + 0.5::double precision) / (holder.n + 0.5::double precision)),
        total.mean_length
    from _mindful.terms(query) q
    cross join _mindful.memory_total() total
    cross join lateral (
        select 32 * count(*) as n from mindful.memory_term t
        where total.memories > 1000 and t.tenant = own_tenant and t.lexeme = q.lexeme and hashint8(t.id) & 31 = 0
    ) sampled
    cross join lateral (
        select count(*) as n from mindful.memory_term t
        where sampled.n < 1000 and t.tenant = own_tenant and t.lexeme = q.lexeme
    ) counted
    cross join lateral (select least(greatest(counted.n, sampled.n), total.memories::bigint) as n) holder
    where holder.n > 0
    order by holder.n, q.lexeme
    limit 100;
end
$$;
comment on function _mindful.recall_terms(text) is
'The lexemes of a query that the tenant''s memories hold, at most 100, the rarest first: in how many, counted up to about a thousand and estimated from one posting in 32 beyond; the inverse document frequency (that of Lucene); and the mean length of the tenant''s memories.';

-- The candidates: memories of the rarest lexemes, as many lexemes as have 1000 postings in all and at least one, and of
-- each the newest 20000 postings. The common lexemes are looked up for the candidates only.
create function _mindful.recall_lexical(query text, candidates integer, filter recall_filter)
returns table (id bigint, term bigint, idf double precision, frequency double precision)
language plpgsql stable parallel safe security invoker rows 200
set search_path = pg_catalog, mindful, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
declare
    own_tenant text := _mindful.tenant();
begin
    return query
    with term as materialized (
        select row_number() over rarest as term, t.lexeme, t.idf, t.mean_length,
            sum(t.holders) over rarest <= 1000 or row_number() over rarest = 1 as leads
        from _mindful.recall_terms(query) t
        window rarest as (order by t.holders, t.lexeme)
    ),
    posting as materialized (
        select p.id, t.term, t.idf, p.frequency / (0.6::double precision + 0.4::double precision * p.length / t.mean_length) as frequency
        from term t
        cross join lateral (
            select h.id, h.frequency, h.length
            from mindful.memory_term h
            where h.tenant = own_tenant and h.lexeme = t.lexeme and (filter is null or exists (
                select from mindful.memory m
                where m.tenant = own_tenant and m.id = h.id and _mindful.recall_admits(filter, m)
                offset 0
            ))
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
    select p.id, t.term, t.idf, p.frequency / (0.6::double precision + 0.4::double precision * p.length / t.mean_length)
    from best b
    cross join term t
    cross join lateral (
        select h.id, h.frequency, h.length from mindful.memory_term h
        where h.tenant = own_tenant and h.lexeme = t.lexeme and h.id = b.id
        offset 0
    ) p
    where not t.leads;
end
$$;
comment on function _mindful.recall_lexical(text, integer, recall_filter) is
'The postings of the memories that best match a query by Okapi BM25, k1 = 1.2 and b = 0.4 (Robertson and Zaragoza 2009), with frequencies divided by 1 - b + b x length / mean length. Candidates come from the rarest lexemes (MaxScore, Turtle and Flood 1995, without its guarantee). A lexeme counts at most 255 times in a text, as in tsvector.';
