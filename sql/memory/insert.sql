create function _mindful.session_argument(name text, session_id text) returns uuid
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    id uuid;
begin
    begin
        id := session_id::uuid;
    exception when invalid_text_representation then
        null;
    end;
    if session_id is not null then
        perform from mindful.session s
        where s.tenant = (select _mindful.tenant()) and s.session_id = id
        for key share;
        if not found then
            perform _mindful.raise('42704', format('there is no session %s (%s)', left(session_id, 100), name),
                'session_list() returns your sessions; session_start() makes one.');
        end if;
    end if;
    return id;
end
$$;
comment on function _mindful.session_argument(text, text) is
'Returns the id of a session of the tenant, which stays until the transaction ends; NULL for NULL. Error 42704: the tenant has no such session.';

create function memory_insert_many(memories jsonb) returns setof bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    duplicates text := mindful.setting_get('memory_duplicates') #>> '{}';
    ids bigint[];
begin
    perform _mindful.writable();
    if jsonb_typeof(memories) = 'array' and memories @? '$[*].source_key' then
        perform _mindful.source_key_check(memories);
    end if;
    if jsonb_typeof(memories) = 'array' and memories @? '$[*].evidence[*]' then
        perform _mindful.memory_keep(_mindful.source_ids(memories, '$[*].evidence[*].source_id'));
    end if;
    ids := array(select _mindful.memory_insert_many(memories));
    if cardinality(ids) < jsonb_array_length(memories) then
        -- Another transaction has just committed one of them, which a new statement sees.
        perform _mindful.source_key_check(memories, ids);
        perform _mindful.raise('40001', 'another transaction inserted and deleted a source_key meanwhile', 'Run the transaction again.');
    end if;
    if duplicates = 'keep' then
        return query select unnest(ids);
    else
        return query select _mindful.memory_join(ids, duplicates = 'join_near');
    end if;
end
$$;
comment on function memory_insert_many(jsonb) is
'Stores memories, a JSON array of objects with the fields of memory_insert, and returns their ids in order. All are stored or none: an error names the element. Embeddings are computed in batches.
Example: SELECT memory_insert_many(''[{"content": "Ana likes tea."}, {"content": "Bob is 7.", "importance": 0.9}]'');
Errors: as memory_insert.';

create function _mindful.memory_insert_many(memories jsonb) returns setof bigint
language sql volatile parallel unsafe security invoker
begin atomic
    with element as materialized (
        select e.element, e.number, p.place,
            _mindful.time_argument('valid_from' || p.place, e.element ->> 'valid_from') as valid_from,
            _mindful.time_argument('valid_to' || p.place, e.element ->> 'valid_to') as valid_to
        from _mindful.array_elements('memories', memories,
            '{content,kind,metadata,source,source_key,importance,confidence,level,valid_from,valid_to,evidence,session_id}') e
        cross join lateral (
            select case when pg_catalog.jsonb_array_length(memories) = 1 then '' else ' of element ' || e.number end as place
        ) p
    ),
    inserted as (
        insert into mindful.memory (kind, content, metadata, source, source_key, importance, confidence, level,
            valid_from, valid_to, session_id)
        select _mindful.memory_kind(coalesce(e.element ->> 'kind', 'fact')),
            _mindful.text_argument('content' || e.place, e.element ->> 'content'),
            _mindful.metadata(e.element -> 'metadata'),
            _mindful.short_argument('source' || e.place, e.element ->> 'source'),
            _mindful.short_argument('source_key' || e.place, e.element ->> 'source_key'),
            coalesce(_mindful.share_argument('importance' || e.place, e.element -> 'importance'), 0.5),
            _mindful.share_argument('confidence' || e.place, e.element -> 'confidence'),
            coalesce(_mindful.level_argument('level' || e.place, e.element ->> 'level'), 'data'),
            e.valid_from,
            _mindful.valid_to_argument('valid_to' || e.place, e.valid_from, e.valid_to),
            _mindful.session_argument('session_id' || e.place, e.element ->> 'session_id')
        from element e
        order by e.number
        on conflict (tenant, source, source_key) where source is not null do nothing
        returning id
    ),
    -- Ids rise in the order of the elements.
    numbered as (
        select i.id, pg_catalog.row_number() over (order by i.id) as number from inserted i
    ),
    proved as (
        insert into mindful.memory_evidence (id, source_id, quote)
        select distinct n.id, v.source_id, v.quote
        from numbered n
        join element e on e.number = n.number,
            _mindful.evidence('evidence' || e.place, e.element -> 'evidence') v
    )
    select n.id from numbered n order by n.id;
end;
comment on function _mindful.memory_insert_many(jsonb) is
'Stores memories without joining duplicates. It skips a source and source_key that another transaction has just inserted.';

create function memory_insert(
    content text,
    kind text default 'fact',
    metadata jsonb default '{}',
    source text default null,
    source_key text default null,
    importance real default null,
    confidence real default null,
    level text default null,
    valid_from timestamptz default null,
    valid_to timestamptz default null,
    evidence jsonb default '[]',
    session_id uuid default null
) returns bigint
language sql volatile parallel unsafe security invoker
begin atomic
    select _mindful.writable();
    select mindful.memory_insert_many(pg_catalog.jsonb_build_array(pg_catalog.jsonb_build_object(
        'content', _mindful.text_argument('content', content), 'kind', _mindful.memory_kind(kind),
        'metadata', _mindful.metadata(metadata), 'source', _mindful.short_argument('source', source),
        'source_key', _mindful.short_argument('source_key', source_key), 'importance', importance, 'confidence', confidence,
        'level', _mindful.short_argument('level', level), 'valid_from', valid_from, 'valid_to', valid_to,
        'evidence', _mindful.json_argument('evidence', evidence), 'session_id', session_id)));
end;
comment on function memory_insert(text, text, jsonb, text, text, real, real, text, timestamptz, timestamptz, jsonb, uuid) is
'Stores a text as a memory and returns its id. kind is fact, document, summary or reflection. The memory is valid from valid_from until before valid_to; NULL is no limit.
Example: SELECT memory_insert(''Ana moved to Oslo.'', valid_from => ''2026-05-01'');
Errors: 22004, 22008, 22023, 23505 (source and source_key exist), 42704 (no such source_id or session), 54000 (more than 262144 bytes).';
