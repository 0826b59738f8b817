create function _mindful.memory_embeddings(id bigint) returns jsonb
language plpgsql stable parallel restricted security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    model text;
    found text;
    embeddings jsonb := '{}';
begin
    for model in select m.name from mindful.model m where m.kind = 'embedder' order by m.name loop
        execute format('select e.embedding::text from mindful.%I e where e.tenant = $1 and e.id = $2
            and e.content_hash = (select m.content_hash from mindful.memory m where m.tenant = $1 and m.id = $2)',
            _mindful.embedding_table(model))
        into found using _mindful.tenant(), id;
        if found is not null then
            embeddings := embeddings || jsonb_build_object(model, found::jsonb);
        end if;
    end loop;
    return embeddings;
end
$$;
comment on function _mindful.memory_embeddings(bigint) is
'Returns the embeddings of a memorys present text by model.';

create function memory_export(
    kinds text[] default null,
    session_id uuid default null,
    source text default null,
    embeddings boolean default false
) returns setof jsonb
language sql stable parallel unsafe security invoker rows 1000
begin atomic
    with chosen as not materialized (
        select m.id
        from mindful.memory m
        where m.tenant = (select _mindful.tenant())
            and (kinds is null or m.kind = any (kinds))
            and (memory_export.session_id is null or m.session_id = memory_export.session_id)
            and (memory_export.source is null or m.source = memory_export.source)
    )
    select pg_catalog.jsonb_build_object('type', 'export', 'models', case when memory_export.embeddings then (
        select pg_catalog.jsonb_object_agg(m.name, m.sha256) from mindful.model m where m.kind = 'embedder') end)
    where kinds is null or _mindful.kinds_argument(kinds) is not null
    union all
    select pg_catalog.to_jsonb(s) - 'tenant' || '{"type": "session"}'
    from mindful.session s
    where s.tenant = (select _mindful.tenant())
        and (kinds is null and memory_export.session_id is null and memory_export.source is null
            or exists (select from mindful.memory m join chosen c on c.id = m.id
                where m.tenant = s.tenant and m.session_id = s.session_id))
    union all
    (
        select pg_catalog.to_jsonb(m) - '{tenant,content_hash,language}'::text[] || '{"type": "memory"}' || case
            when memory_export.embeddings then pg_catalog.jsonb_build_object('embeddings', _mindful.memory_embeddings(m.id))
            else '{}'::jsonb
        end
        from mindful.memory m join chosen c on c.id = m.id
        where m.tenant = (select _mindful.tenant())
        order by m.id
    )
    union all
    select pg_catalog.to_jsonb(l) - 'tenant' || '{"type": "link"}'
    from mindful.memory_link l join chosen s on s.id = l.source_id join chosen t on t.id = l.target_id
    where l.tenant = (select _mindful.tenant())
    union all
    select pg_catalog.to_jsonb(e) - 'tenant' || '{"type": "evidence"}'
    from mindful.memory_evidence e join chosen c on c.id = e.id join chosen s on s.id = e.source_id
    where e.tenant = (select _mindful.tenant())
    union all
    select pg_catalog.to_jsonb(a) - 'tenant' || '{"type": "access"}'
    from mindful.memory_access a join chosen c on c.id = a.id
    where a.tenant = (select _mindful.tenant());
end;
comment on function memory_export(text[], uuid, text, boolean) is
'Returns the tenant''s memories and the rows that refer to them as JSON objects, which memory_import reads. Use a cursor or COPY to read many rows.
Example: COPY (SELECT memory_export(kinds => ''{fact}'')) TO STDOUT;
Error 22023: an unknown kind.';

create function _mindful.import_problem(type text, line jsonb) returns text
language sql stable parallel safe security invoker
begin atomic
    select case
        when pg_catalog.jsonb_typeof(line) is distinct from 'object' then 'is not a JSON object'
        when type is null or type <> all (array['export', 'session', 'memory', 'link', 'evidence', 'access'])
            then 'has an unknown type'
        when type = 'session' and line ->> 'session_id' is null then 'has no session_id'
        when type = any (array['memory', 'evidence', 'access']) and line ->> 'id' is null then 'has no id'
        when type = 'memory' and coalesce(pg_catalog.btrim(line ->> 'content', E' \t\n\r'), '') = '' then 'has no content'
        when type = 'memory' and pg_catalog.octet_length(line ->> 'content') > 262144 then 'has a content of more than 262144 bytes'
        when type = 'link' and (line ->> 'source_id' is null or line ->> 'target_id' is null) then 'has no source_id or target_id'
        when type = 'evidence' and (line ->> 'source_id' is null or line ->> 'quote' is null) then 'has no source_id or quote'
    end;
end;
comment on function _mindful.import_problem(text, jsonb) is
'Returns what is wrong with the shape of a line; NULL if nothing.';

create function _mindful.import_fail(number bigint, problem text) returns void
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform _mindful.raise('22023', format('line %s %s', number, problem),
        'Nothing was imported. Pass lines as memory_export returns them.');
end
$$;
comment on function _mindful.import_fail(bigint, text) is 'Raises the error of a line that cannot be imported.';

create function _mindful.import_defaults(relation regclass) returns jsonb
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    defaults jsonb;
begin
    execute (
        select format('select jsonb_build_object(%s)',
            string_agg(format('%L, %s', a.attname, pg_get_expr(d.adbin, d.adrelid)), ', '))
        from pg_attribute a
        join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
        where a.attrelid = relation and a.attgenerated = '' and a.attidentity = ''
    ) into defaults;
    return defaults;
end
$$;
comment on function _mindful.import_defaults(regclass) is
'Returns the defaults of the columns of a table.';

create function _mindful.import_rule(relation regclass) returns text
language sql stable parallel safe security invoker
begin atomic
    select pg_catalog.format('select c.problem from jsonb_populate_record(null::%s, $1) r, lateral (values %s) c (problem, holds)
        where not c.holds limit 1', relation,
        pg_catalog.string_agg(pg_catalog.format('(%L, %s)', c.problem, c.condition), ', '))
    from (
        select 'has no ' || a.attname as problem, pg_catalog.format('r.%I is not null', a.attname) as condition
        from pg_catalog.pg_attribute a
        where a.attrelid = relation and a.attnum > 0 and not a.attisdropped and a.attnotnull
            and a.attgenerated = '' and a.attidentity = ''
        union all
        select 'breaks the rule ' || k.conname, pg_catalog.pg_get_expr(k.conbin, k.conrelid)
        from pg_catalog.pg_constraint k
        where k.conrelid = relation and k.contype = 'c'
    ) c;
end;
comment on function _mindful.import_rule(regclass) is
'A query that reads a JSON object, $1, as a row of a table, and gives the first CHECK or NOT NULL constraint that it breaks.';

create function _mindful.import_check(lines text, document jsonb) returns void
language plpgsql stable parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    tables jsonb := '{"session": "session", "memory": "memory", "link": "memory_link", "evidence": "memory_evidence", "access": "memory_access"}';
    defaults jsonb;
    rules jsonb;
    number bigint;
    line jsonb;
    problem text;
begin
    select jsonb_object_agg(t.key, _mindful.import_defaults(('mindful.' || t.value)::regclass)),
        jsonb_object_agg(t.key, _mindful.import_rule(('mindful.' || t.value)::regclass))
    into defaults, rules
    from jsonb_each_text(tables) t;
    begin
        for number, line in execute lines using document loop
            problem := _mindful.import_problem(line ->> 'type', line);
            if problem is null and rules ? (line ->> 'type') then
                execute rules ->> (line ->> 'type') into problem using defaults -> (line ->> 'type') || line;
            end if;
            exit when problem is not null;
        end loop;
    exception
        when data_exception then
            problem := 'cannot be read: ' || sqlerrm;
    end;
    if problem is not null then
        perform _mindful.import_fail(number, problem);
    end if;
end
$$;
comment on function _mindful.import_check(text, jsonb) is
'Raises 22023 with the number of the first line that is not a valid row of its table. lines is a query of number and line, which may read document as $1.';

create function _mindful.import_refer(lines text, document jsonb, ids bigint[]) returns void
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    number bigint;
    problem text;
begin
    execute format($query$
        with line as (%s)
        select l.number, 'repeats the id of another memory of the file'
        from (
            select l.number, row_number() over (partition by l.line ->> 'id' order by l.number) as occurrence
            from line l where l.line ->> 'type' = 'memory'
        ) l
        where l.occurrence > 1
        union all
        select l.number, format('refers to memory %%s, which is not in the file', r.id)
        from line l, lateral (values ('id'), ('source_id'), ('target_id')) k (key),
            lateral (
                select case when k.key = any (case l.line ->> 'type' when 'link' then '{source_id,target_id}'::text[]
                    when 'evidence' then '{id,source_id}' when 'access' then '{id}' end) then (l.line ->> k.key)::bigint end
            ) r (id)
        where r.id is not null
            and not exists (select from unnest($2) i (id) where i.id = r.id)
        union all
        select l.number, format('refers to session %%s, which is neither in the file nor in the database', l.line ->> 'session_id')
        from line l
        where l.line ->> 'type' = 'memory' and l.line ->> 'session_id' is not null
            and not exists (select from mindful.session s
                where s.tenant = (select _mindful.tenant()) and s.session_id = (l.line ->> 'session_id')::uuid)
        union all
        select l.number, format('has an embedding by %%2$s that is not an array of %%1$s numbers', m.dims, m.name)
        from line l
        join line x on x.line ->> 'type' = 'export'
        join mindful.model m on m.kind = 'embedder' and x.line -> 'models' ->> m.name = m.sha256
        where l.line ->> 'type' = 'memory' and l.line -> 'embeddings' ? m.name and case
            when jsonb_typeof(l.line -> 'embeddings' -> m.name) is distinct from 'array' then true
            else jsonb_array_length(l.line -> 'embeddings' -> m.name) <> m.dims
                or jsonb_path_exists(l.line -> 'embeddings' -> m.name, '$[*] ? (@.type() <> "number")')
        end
        limit 1$query$, lines)
    into number, problem using document, ids;
    if number is not null then
        perform _mindful.import_fail(number, problem);
    end if;
end
$$;
comment on function _mindful.import_refer(text, jsonb, bigint[]) is
'Raises 22023 with the number of a line that refers to a memory or session outside the file and the database, or whose embedding has the wrong number of dimensions. ids are the ids of the memories in the file.';

create type memory_origin as (
    number bigint,
    old_id bigint,
    known_id bigint,
    differs boolean
);
comment on type memory_origin is
'A memory of a file: number of its line, its id in the file, the id of the tenant''s memory that matches it, and whether their texts differ.';

create function _mindful.import_match(lines text, document jsonb) returns setof memory_origin
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    return query execute format($query$
        with given as (
            select l.number, (l.line ->> 'id')::bigint as id, md5(l.line ->> 'content') as hash, r.kind, r.created_at,
                r.session_id, r.turn, r.source, r.source_key,
                row_number() over (partition by r.kind, r.created_at, md5(l.line ->> 'content') order by l.number) as occurrence
            from (%s) l, jsonb_populate_record(null::mindful.memory, $2 || l.line) r
            where l.line ->> 'type' = 'memory'
        ),
        known as (
            select m.id, m.content_hash, m.kind, m.created_at,
                row_number() over (partition by m.kind, m.created_at, m.content_hash order by m.id) as occurrence
            from mindful.memory m
            where m.tenant = (select _mindful.tenant()) and m.turn is null and (m.source is null or m.source_key is null)
        )
        select g.number, g.id, coalesce(t.id, s.id, k.id), coalesce(t.content_hash <> g.hash, s.content_hash <> g.hash, false)
        from given g
        left join mindful.memory t on t.tenant = (select _mindful.tenant()) and t.session_id = g.session_id and t.turn = g.turn
        left join mindful.memory s on s.tenant = (select _mindful.tenant()) and s.source = g.source and s.source_key = g.source_key
        left join known k on g.turn is null and (g.source is null or g.source_key is null)
            and k.kind = g.kind and k.created_at = g.created_at and k.content_hash = g.hash and k.occurrence = g.occurrence
        order by g.number$query$, lines)
    using document, _mindful.import_defaults('mindful.memory');
end
$$;
comment on function _mindful.import_match(text, jsonb) is
'Pairs the memories of a file with those of the tenant. Messages match by session and turn, parts of a source by source and source_key. Others match by kind, created_at and text, the n-th of the file with the n-th of the database.';

create function _mindful.import_metadata(metadata jsonb, reply_to bigint, memory_ids jsonb) returns jsonb
language sql immutable parallel safe security invoker
begin atomic
    select case when _mindful.memory_id(metadata ->> 'reply_to') is null then metadata else metadata - 'reply_to' end
        || case when reply_to is null then '{}' else pg_catalog.jsonb_build_object('reply_to', reply_to) end
        || case pg_catalog.jsonb_typeof(metadata -> 'memory_ids')
            when 'array' then pg_catalog.jsonb_build_object('memory_ids', coalesce(memory_ids, '[]')) else '{}' end;
end;
comment on function _mindful.import_metadata(jsonb, bigint, jsonb) is
'Returns the metadata of a reply of a file with the new ids of its question and of the memories in its prompt. Ids of memories outside the file are removed.';

create function _mindful.import_memories(lines text, document jsonb, old_ids bigint[], new_ids bigint[], known boolean[]) returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    columns text[] := (
        select array_agg(quote_ident(a.attname) order by a.attnum) from pg_attribute a
        where a.attrelid = 'mindful.memory'::regclass and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
    );
    model text;
    embedded text := '';
    inserted bigint;
begin
    -- One statement inserts memories and embeddings. So the trigger that embeds new memories skips these.
    for model in execute format('select distinct m.name from mindful.model m, (%s) l
        where m.kind = ''embedder'' and l.line ->> ''type'' = ''export'' and l.line -> ''models'' ->> m.name = m.sha256', lines) using document
    loop
        embedded := embedded || format($query$,
            %I as (
                insert into mindful.%I (tenant, id, embedding, content_hash)
                select _mindful.tenant(), n.id, _mindful.vector(n.line -> 'embeddings' ->> %L), md5(n.line ->> 'content')
                from new n where n.line -> 'embeddings' ? %L
            )$query$, 'by ' || model, _mindful.embedding_table(model), model, model);
    end loop;
    execute format($query$
        with shown as (
            select l.number, jsonb_agg(i.id order by s.number) as ids
            from (%1$s) l, _mindful.memory_ids(l.line -> 'metadata') s, unnest($2, $3) i (old_id, id)
            where l.line ->> 'type' = 'memory' and i.old_id = _mindful.memory_id(s.id)
            group by l.number
        ),
        new as materialized (
            select i.id, l.line, $5 || (l.line - 'language') || jsonb_build_object('tenant', _mindful.tenant(), 'id', i.id, 'superseded_by', s.id)
                || case when l.line ->> 'role' in ('assistant', 'clarification') and jsonb_typeof(l.line -> 'metadata') = 'object'
                    then jsonb_build_object('metadata', _mindful.import_metadata(l.line -> 'metadata', q.id, w.ids))
                    else '{}'
                end as row
            from (%1$s) l
            join unnest($2, $3, $4) i (old_id, id, known) on l.line ->> 'type' = 'memory' and i.old_id = (l.line ->> 'id')::bigint
            left join unnest($2, $3) s (old_id, id) on s.old_id = (l.line ->> 'superseded_by')::bigint
            left join unnest($2, $3) q (old_id, id) on q.old_id = _mindful.memory_id(l.line -> 'metadata' ->> 'reply_to')
            left join shown w on w.number = l.number
            where not i.known
        )%2$s, inserted as (
            insert into mindful.memory (%3$s) overriding system value
            select r.%4$s from new n, jsonb_populate_record(null::mindful.memory, n.row) r order by n.id
            returning 1
        )
        select count(*) from inserted$query$,
        lines, embedded, array_to_string(columns, ', '), array_to_string(columns, ', r.'))
    into inserted using document, old_ids, new_ids, known, _mindful.import_defaults('mindful.memory');
    return inserted;
end
$$;
comment on function _mindful.import_memories(text, jsonb, bigint[], bigint[], boolean[]) is
'Inserts the memories of a file that the tenant does not have, under new ids, and returns their number. superseded_by, and the ids in the metadata of replies, become the new ones. Embeddings are inserted if the model of that name has the same sha256 here.';

create function _mindful.import_rows(
    relation regclass,
    type text,
    keys text[],
    lines text,
    document jsonb,
    old_ids bigint[] default '{}',
    new_ids bigint[] default '{}'
) returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    inserted bigint;
begin
    execute (
        select format($query$
            insert into %s
            select r.*
            from (%s) l %s,
                jsonb_populate_record(null::%s, $4 || l.line || jsonb_build_object('tenant', _mindful.tenant()%s)) r
            where l.line ->> 'type' = %L
            on conflict do nothing$query$,
            relation, lines,
            string_agg(format('join unnest($2, $3) %I (old_id, id) on %I.old_id = (l.line ->> %L)::bigint', k.key, k.key, k.key), ' '),
            relation, string_agg(format(', %L, %I.id', k.key, k.key), ''), type)
        from unnest(keys) k (key)
    ) using document, old_ids, new_ids, _mindful.import_defaults(relation);
    get diagnostics inserted = row_count;
    return inserted;
end
$$;
comment on function _mindful.import_rows(regclass, text, text[], text, jsonb, bigint[], bigint[]) is
'Inserts the lines of a type into its table and returns the number of new rows. The columns that keys names get new ids for old ones.';

create type import_change as (
    sessions bigint,
    memories bigint,
    kept bigint,
    links bigint,
    evidence bigint,
    accesses bigint
);
comment on type import_change is 'Number of rows that an import added, by type. kept is the number of memories that existed already.';

create function _mindful.import(lines text, document jsonb) returns import_change
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    number bigint;
    old_ids bigint[];
    new_ids bigint[];
    known boolean[];
    sessions bigint;
    memories bigint;
begin
    perform _mindful.import_check(lines, document);
    sessions := _mindful.import_rows('mindful.session', 'session', '{}', lines, document);
    select min(m.number) filter (where m.differs), array_agg(m.old_id), array_agg(m.known_id), array_agg(m.known_id is not null)
    into number, old_ids, new_ids, known
    from _mindful.import_match(lines, document) m;
    if number is not null then
        perform _mindful.import_fail(number, 'differs from the memory that has its session_id and turn, or its source and source_key');
    end if;
    perform _mindful.import_refer(lines, document, old_ids);
    select array_agg(coalesce(i.id, nextval('mindful.memory_id_seq')) order by i.n) into new_ids
    from unnest(new_ids) with ordinality i (id, n);
    memories := _mindful.import_memories(lines, document, old_ids, new_ids, known);
    return (
        sessions, memories, coalesce(cardinality(old_ids), 0) - memories,
        _mindful.import_rows('mindful.memory_link', 'link', '{source_id,target_id}', lines, document, old_ids, new_ids),
        _mindful.import_rows('mindful.memory_evidence', 'evidence', '{id,source_id}', lines, document, old_ids, new_ids),
        _mindful.import_rows('mindful.memory_access', 'access', '{id}', lines, document, old_ids, new_ids)
    )::mindful.import_change;
end
$$;
comment on function _mindful.import(text, jsonb) is
'Imports the lines of a query of number and line, which may read document as $1. See memory_import.';

create function memory_import(lines jsonb) returns import_change
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform _mindful.writable();
    if lines is null then
        perform _mindful.raise('22004', 'lines is null', 'Pass a JSON array of the objects that memory_export returns.');
    elsif jsonb_typeof(lines) <> 'array' then
        perform _mindful.raise('22023', format('lines is a JSON %s, not an array', jsonb_typeof(lines)),
            'Pass a JSON array of the objects that memory_export returns.');
    end if;
    return _mindful.import('select e.number, e.line from jsonb_array_elements($1) with ordinality e (line, number)', lines);
end
$$;
comment on function memory_import(jsonb) is
'Imports a JSON array of the objects that memory_export returns, and returns the number of new rows by type. Rows that exist already are kept, so a second import adds nothing. All or nothing is imported.
Example: SELECT * FROM memory_import((SELECT jsonb_agg(line) FROM memory_export() line));
Errors: 22004, 22023 (with the number of the first invalid element).';

create function _mindful.memory_import(lines regclass) returns mindful.import_change
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    line_column name;
begin
    perform _mindful.writable();
    if lines is null then
        perform _mindful.raise('22004', 'lines is null', 'Pass a table that has one column, of type jsonb.');
    end if;
    select min(a.attname::text) into line_column
    from pg_attribute a join pg_class c on c.oid = a.attrelid
    where a.attrelid = lines and a.attnum > 0 and not a.attisdropped and c.relkind = 'r'
    having count(*) = 1 and bool_and(a.atttypid = 'jsonb'::regtype);
    if line_column is null then
        perform _mindful.raise('42809', format('%s is not a table with one column of type jsonb', lines),
            'Create one with CREATE TEMP TABLE t (line jsonb), and COPY the lines into it.');
    end if;
    return _mindful.import(
        format('select row_number() over (order by t.ctid) as number, t.%I as line from %s t', line_column, lines), null);
end
$$;
comment on function _mindful.memory_import(regclass) is
'memory_import of the rows of a table with one column of type jsonb. The command "mindful import" copies its file there. Errors: 22004, 22023, 42809 (not such a table).';
