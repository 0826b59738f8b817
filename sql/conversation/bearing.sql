insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('chat_unknown', 'boolean', null, null, '{global,user,session}', 'true',
        'Whether a chat answers that it does not know, with the nearest memory as a quote, if no memory answers a question about the user''s own matters.');

create function _mindful.words_beyond(query text, ids bigint[]) returns table (id bigint, lacked text, held text)
language plpgsql stable parallel safe security invoker rows 10
set search_path = pg_catalog, mindful, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    language regconfig := _mindful.language(_mindful.recall_language());
begin
    return query
    with word as materialized (
        select w.place, w.word, tsvector_to_array(to_tsvector(language, w.word)) as lexemes
        from regexp_split_to_table(query, '[[:space:]]+') with ordinality w (word, place)
    ), held as materialized (
        select distinct t.id, w.place
        from word w
        cross join unnest(w.lexemes) l (lexeme)
        cross join unnest(ids) i (id)
        cross join lateral (
            -- OFFSET 0 looks each pair up by its key.
            select t.id from mindful.memory_term t
            where t.tenant = (select _mindful.tenant()) and t.lexeme = l.lexeme and t.id = i.id
            offset 0
        ) t
    )
    select i.id, coalesce(string_agg(w.word, ' ' order by w.place) filter (where h.id is null), ''),
        coalesce(string_agg(w.word, ' ' order by w.place) filter (where h.id is not null), '')
    from unnest(ids) i (id)
    cross join word w
    left join held h on h.id = i.id and h.place = w.place
    where w.lexemes <> '{}'
    group by i.id;
end
$$;
comment on function _mindful.words_beyond(text, bigint[]) is
'Returns for each memory the words of a query that it lacks and those that it has, without stop words, in their order. A query of stop words alone gives no rows.';

create function _mindful.words_lacking(query text, ids bigint[], contents text[])
returns table (id bigint, lacked text, held text)
language plpgsql stable parallel safe security invoker rows 10
set search_path = pg_catalog, mindful, pg_temp
set jit = off
as $$
#variable_conflict use_column
declare
    language regconfig := _mindful.language(_mindful.recall_language());
begin
    return query
    with word as materialized (
        select w.place, w.word, tsvector_to_array(to_tsvector(language, w.word)) as lexemes
        from regexp_split_to_table(query, '[[:space:]]+') with ordinality w (word, place)
    ), note as materialized (
        select n.id, tsvector_to_array(to_tsvector(language, n.content)) as lexemes
        from unnest(ids, contents) n (id, content)
    )
    select n.id, coalesce(string_agg(w.word, ' ' order by w.place) filter (where not w.lexemes && n.lexemes), ''),
        coalesce(string_agg(w.word, ' ' order by w.place) filter (where w.lexemes && n.lexemes), '')
    from note n
    cross join word w
    where w.lexemes <> '{}'
    group by n.id;
end
$$;
comment on function _mindful.words_lacking(text, bigint[], text[]) is
'Does the same as words_beyond for texts that are not stored, each with an id.';

-- A halfvec is not cast to vector implicitly, and the operator of a query would not be found wherever pgvector is installed.
create function _mindful.similarity(embedding vector, query vector) returns double precision
language sql immutable parallel safe security invoker
begin atomic
    select 1 - (embedding <=> query);
end;
comment on function _mindful.similarity(vector, vector) is 'Returns the cosine similarity of an embedding and the vector of a query.';

create function _mindful.similarity(embedding halfvec, query vector) returns double precision
language sql immutable parallel safe security invoker
begin atomic
    select 1 - (embedding <=> query::halfvec);
end;
comment on function _mindful.similarity(halfvec, vector) is
'Returns the cosine similarity of an embedding and the vector of a query, in half precision.';

create function _mindful.stated_by_user(pattern text, most integer, session_id uuid) returns table (id bigint, content text, kind text, role text, created_at timestamptz)
language sql stable parallel safe security invoker rows 50
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
begin atomic
    -- The primary key is read backward, so the newest rows come without a sort of all.
    select n.id, (n.m).content, (n.m).kind, (n.m).role, (n.m).created_at
    from (
        select m.id, m from mindful.memory m
        where m.tenant = (select _mindful.tenant()) and (m.kind = 'fact' or m.kind = 'message' and m.role = 'user')
        order by m.id desc
        limit 100000
    ) n
    where pg_catalog.length((n.m).content) <= 1000 and (n.m).content ~ pattern
        and _mindful.recall_admits((select _mindful.chat_filter(stated_by_user.session_id)), n.m)
    order by n.id desc
    limit most;
end;
comment on function _mindful.stated_by_user(text, integer, uuid) is
'Returns the newest statements of the user that a regular expression matches: facts, and messages that state something. As recall for a chat does, it returns those within the setting recall_scope of the session. It reads the newest 100,000.';
