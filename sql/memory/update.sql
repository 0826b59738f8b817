create function _mindful.memory_updatable(id bigint) returns memory
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    found_memory mindful.memory;
begin
    select m.* into found_memory
    from mindful.memory m
    where m.tenant = (select _mindful.tenant()) and m.id = _mindful.memory_argument('id', memory_updatable.id)
    for no key update;
    if not found then  -- deleted while this waited for its lock
        perform _mindful.memory_argument('id', id);
    elsif found_memory.kind = 'message' then
        perform _mindful.raise('42809', format('memory %s is a message, which is never rewritten', id),
            'What was said stays as it was said; insert a fact that has it as evidence.');
    elsif found_memory.superseded_by is not null then
        perform _mindful.raise('55000', format('memory %s was superseded by memory %s', id, found_memory.superseded_by),
            format('Update memory %s, or the last one of memory_history(%s).', found_memory.superseded_by, id));
    elsif exists (
        select from mindful.attachment a
        where a.tenant = (select _mindful.tenant()) and a.source = found_memory.source
    ) then
        perform _mindful.raise('55000', format('memory %s is a row of %s', id, found_memory.source),
            'Change the row: its memory follows.');
    end if;
    return found_memory;
end
$$;
comment on function _mindful.memory_updatable(bigint) is 'Locks and returns a memory that can be superseded, or raises 22004, 42704, 42809 or 55000.';

create function memory_update(
    id bigint,
    content text,
    metadata jsonb default null,
    importance real default null,
    confidence real default null,
    level text default null,
    valid_from timestamptz default null,
    valid_to timestamptz default null,
    evidence jsonb default '[]'
) returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_column
declare
    is_writable constant boolean := _mindful.writable();
    old mindful.memory := _mindful.memory_updatable(memory_update.id);
    since timestamptz := coalesce(_mindful.range_argument('valid_from', memory_update.valid_from), now());
    until timestamptz := coalesce(_mindful.range_argument('valid_to', memory_update.valid_to), case when old.valid_to > since then old.valid_to end);
    new_id bigint;
begin
    -- A key stands for what is true of its source now: the new version takes it over.
    if old.source_key is not null then
        update mindful.memory m set source_key = null where m.tenant = old.tenant and m.id = old.id;
    end if;
    insert into mindful.memory (kind, content, metadata, session_id, source, source_key, importance, confidence, level,
        valid_from, valid_to)
    values (
        old.kind,
        _mindful.text_argument('content', memory_update.content),
        case when memory_update.metadata is null then old.metadata else _mindful.metadata(memory_update.metadata) end,
        old.session_id, old.source, old.source_key,
        coalesce(_mindful.share_argument('importance', to_jsonb(memory_update.importance)), old.importance),
        _mindful.share_argument('confidence', to_jsonb(memory_update.confidence)),
        coalesce(_mindful.level_argument('level', memory_update.level), old.level),
        since,
        _mindful.valid_to_argument('valid_to', since, until)
    )
    returning id into new_id;
    with recursive earlier as (
        select old.id as id
        union
        select m.id from earlier e join mindful.memory m on m.tenant = old.tenant and m.superseded_by = e.id
    )
    update mindful.memory m
    set superseded_by = coalesce(m.superseded_by, new_id), valid_to = greatest(m.valid_from, least(m.valid_to, since)),
        valid_to_given = case when m.id = old.id then m.valid_to else m.valid_to_given end
    from earlier e
    where m.tenant = old.tenant and m.id = e.id and (m.id = old.id or coalesce(m.valid_to > since, true));
    perform _mindful.memory_keep(_mindful.source_ids(memory_update.evidence, '$[*].source_id') || array(
        select unnest(array[l.source_id, l.target_id]) from mindful.memory_link l
        where l.tenant = old.tenant and (l.source_id = old.id or l.target_id = old.id)
    ));
    insert into mindful.memory_evidence (id, source_id, quote)
    select distinct new_id, v.source_id, v.quote from _mindful.evidence('evidence', memory_update.evidence) v;
    insert into mindful.memory_link (source_id, target_id, relation, weight)
    select new_id, l.target_id, l.relation, l.weight from mindful.memory_link l
    where l.tenant = old.tenant and l.source_id = old.id
    union all
    select l.source_id, new_id, l.relation, l.weight from mindful.memory_link l
    where l.tenant = old.tenant and l.target_id = old.id;
    return new_id;
end
$$;
comment on function memory_update(bigint, text, jsonb, real, real, text, timestamptz, timestamptz, jsonb) is
'Replaces a memory by a new version, and returns the id of the new version. The old version stays, valid until before valid_from (NULL: now). NULL arguments keep metadata, importance, level and a valid_to in the future.
Example: SELECT memory_update(17, ''Ana moved to Bergen.'');
Errors: 22004, 22023, 42704 (no such memory), 42809 (a message), 54000, 55000 (superseded already, or an attached row).';

create type memory_version as (
    id bigint,
    content text,
    importance real,
    confidence real,
    level text,
    valid_from timestamptz,
    valid_to timestamptz,
    superseded_by bigint,
    created_at timestamptz
);
comment on type memory_version is
'A version of a memory and the time of its validity.';

create function memory_history(id bigint) returns setof memory_version
language sql stable parallel safe security invoker
begin atomic
    with recursive version as (
        select _mindful.memory_argument('id', memory_history.id) as id
        union
        select n.id
        from version v
        cross join lateral (
            select m.superseded_by as id
            from mindful.memory m
            where m.tenant = (select _mindful.tenant()) and m.id = v.id and m.superseded_by is not null
            union all
            select m.id
            from mindful.memory m
            where m.tenant = (select _mindful.tenant()) and m.superseded_by = v.id
        ) n
    )
    select m.id, m.content, m.importance, m.confidence, m.level, m.valid_from, m.valid_to, m.superseded_by, m.created_at
    from version v
    join mindful.memory m on m.tenant = (select _mindful.tenant()) and m.id = v.id
    order by m.id;
end;
comment on function memory_history(bigint) is
'Returns all versions of a memory, oldest first, by the id of any version.
The last version has superseded_by NULL. Errors: 22004, 42704 (the tenant has no such memory).';
