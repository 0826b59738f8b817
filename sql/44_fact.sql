-- Kept apart from memory: what is recalled often is not rewritten as often.
create table memory_access (
    tenant text not null default _tenant(),
    id bigint not null,
    access_count bigint not null default 1 check (access_count > 0),
    last_accessed_at timestamptz not null default now(),
    primary key (tenant, id),
    foreign key (tenant, id) references memory on delete cascade
);
comment on table memory_access is 'How often a memory was shown to a model or marked as used, and when last.';

create table memory_evidence (
    tenant text not null default _tenant(),
    id bigint not null,
    source_id bigint not null,
    quote text not null check (quote <> '' and octet_length(quote) <= 2000),
    created_at timestamptz not null default now(),
    primary key (tenant, id, source_id, quote),
    foreign key (tenant, id) references memory (tenant, id) on delete cascade,
    foreign key (tenant, source_id) references memory (tenant, id) on delete cascade,
    check (id <> source_id)
);
create index on memory_evidence (tenant, source_id) where source_id is not null;
comment on table memory_evidence is 'What a memory rests on: the memories it was drawn from, and the words that say so, for as long as they do.';

alter table memory_access enable row level security, force row level security;
create policy own on memory_access using (tenant = (select mindful._tenant())) with check (tenant = (select mindful._tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.memory_access', '');
alter table memory_evidence enable row level security, force row level security;
create policy own on memory_evidence using (tenant = (select mindful._tenant())) with check (tenant = (select mindful._tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.memory_evidence', '');

create function _evidence_outdated() returns trigger
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
set mindful.tenant = ''
set enable_hashjoin = off
set enable_mergejoin = off
set enable_seqscan = off
as $$
begin
    -- What a lost quote changes ends up here again.
    if exists (select from old_rows o, mindful._memory_changed(o.tenant, o.id, o.content)) then
        delete from mindful.memory_evidence e
        using (
            select o.tenant, o.id, mindful._squeeze(n.content) as content
            from old_rows o, mindful._memory_changed(o.tenant, o.id, o.content) n
            offset 0
        ) source
        where e.tenant = source.tenant and e.source_id = source.id
            and strpos(source.content, mindful._squeeze(e.quote)) = 0;
    end if;
    return null;
end
$$;
comment on function _evidence_outdated() is
'Takes back quotes that their sources no longer hold, as the rows of an attached table and the parts of a document change.';
create trigger evidence_outdated after update on memory referencing old table as old_rows
    for each statement when (pg_catalog.current_setting('row_security') = 'on' or not mindful._is_restore()) execute function _evidence_outdated();

create function _memory_argument(name text, id bigint) returns bigint
language sql stable parallel safe security invoker
begin atomic
    select case
        when id is null then mindful._raise('22004', name || ' is null', 'Give the id of a memory.')::text::bigint
        when exists (select from mindful.memory m where m.tenant = (select mindful._tenant()) and m.id = _memory_argument.id)
            then id
        else mindful._raise('42704', pg_catalog.format('there is no memory %s (%s)', id, name),
            'Your own memories are in mindful.memory.')::text::bigint
    end;
end;
comment on function _memory_argument(text, bigint) is 'Returns the id of one of the tenant''s memories, or raises 22004 or 42704.';

create function _share_argument(name text, value jsonb) returns real
language sql stable parallel safe security invoker
begin atomic
    select case
        when pg_catalog.jsonb_typeof(value) = 'null' then null
        when pg_catalog.jsonb_typeof(value) <> 'number' or not value::numeric between 0 and 1
            then mindful._raise('22023', pg_catalog.format('%s is %s', name, value), 'It must be a number from 0 to 1.')::text::real
        else mindful._real(value::numeric(40, 39))
    end;
end;
comment on function _share_argument(text, jsonb) is 'Returns a number from 0 to 1, NULL for none, or raises 22023.';

create function _level_argument(name text, level text) returns text
language sql stable parallel safe security invoker
begin atomic
    select case
        when level is null or level = any (array['data', 'information', 'knowledge', 'wisdom']) then level
        else mindful._raise('22023', pg_catalog.format('%s is %L', name, level),
            'Levels are data, information, knowledge and wisdom.')::text
    end;
end;
comment on function _level_argument(text, text) is 'Returns a level, NULL for none, or raises 22023.';

create function _time_argument(name text, value text) returns timestamptz
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    moment timestamptz;
begin
    begin
        moment := value::timestamptz;
    exception when invalid_datetime_format or datetime_field_overflow then
        perform mindful._raise('22023', format('%s is %L', name, value), 'Give a time such as 2026-01-31 12:00+00.');
    end;
    return mindful._range_argument(name, moment);
end
$$;
comment on function _time_argument(text, text) is 'Returns a time, NULL for none, or raises 22008 (outside the years 1 to 9999) or 22023 (not a time).';

create function _moment_argument(name text, value text) returns timestamptz
language sql stable parallel safe security invoker
begin atomic
    select case
        when not pg_catalog.isfinite(m.moment)
            then mindful._raise('22023', pg_catalog.format('%s is %s', name, value), 'Give the time at which it was.')::text::timestamptz
        else m.moment
    end
    from (select mindful._time_argument(name, value) as moment) m;
end;
comment on function _moment_argument(text, text) is 'Returns a finite time, NULL for none, or raises 22008 or 22023.';

create function _valid_to_argument(name text, valid_from timestamptz, valid_to timestamptz) returns timestamptz
language sql stable parallel safe security invoker
begin atomic
    select case
        when valid_from >= valid_to then mindful._raise('22023',
            pg_catalog.format('%s is %s, not after valid_from, %s', name, valid_to, valid_from),
            'What is true from one time until another ends after it begins.')::text::timestamptz
        else valid_to
    end;
end;
comment on function _valid_to_argument(text, timestamptz, timestamptz) is 'Returns the end of a validity, or raises 22023 if it is not after the beginning.';

create function _squeeze(content text) returns text
language sql immutable strict parallel safe security invoker
begin atomic
    select pg_catalog.btrim(pg_catalog.regexp_replace(content, '\s+', ' ', 'g'));
end;
comment on function _squeeze(text) is 'A text with every run of white space as one blank.';

create function _quote_argument(name text, source_id bigint, quote text) returns text
language sql stable parallel safe security invoker
begin atomic
    select case
        when a.id is null then null  -- which it never is: unasked for, an empty table's rows would not be looked up
        when pg_catalog.octet_length(a.quote) > 2000
            then mindful._raise('54000', pg_catalog.format('%s has %s bytes, more than 2000', name, pg_catalog.octet_length(a.quote)),
                'Quote the words that say it, and no others.')::text
        when pg_catalog.strpos(
            (select mindful._squeeze(m.content) from mindful.memory m where m.tenant = (select mindful._tenant()) and m.id = a.id),
            a.quote) > 0 then a.quote
        else mindful._raise('22023', pg_catalog.format('%s does not stand in memory %s', name, source_id),
            'Quote the words of the source as they are; only white space may differ.')::text
    end
    from (
        select mindful._squeeze(mindful._text_argument(name, _quote_argument.quote)) as quote,
            mindful._memory_argument('source_id of ' || name, source_id) as id
    ) a;
end;
comment on function _quote_argument(text, bigint, text) is
'Returns a quote that stands in the source''s text, with runs of white space as one blank, or raises 22004, 22023, 42704 (no such source of the tenant''s) or 54000.';

create function _evidence(name text, evidence jsonb) returns table (source_id bigint, quote text)
language sql stable parallel safe security invoker rows 3
begin atomic
    select s.source_id,
        mindful._quote_argument(pg_catalog.format('quote %s of %s', e.number, name), s.source_id, e.element ->> 'quote')
    from mindful._array_elements(name, coalesce(nullif(evidence, 'null'), '[]'), '{source_id,quote}') e,
        lateral (
            select case
                when e.element ->> 'source_id' ~ '^[0-9]{1,18}$' then (e.element ->> 'source_id')::bigint
                else mindful._raise('22023', pg_catalog.format('source_id of quote %s of %s is %s', e.number, name,
                    coalesce(e.element ->> 'source_id', 'null')), 'Give the id of a memory.')::text::bigint
            end as source_id
        ) s;
end;
comment on function _evidence(text, jsonb) is
'The source ids and quotes of an array of {source_id, quote}; raises 22004, 22023 or 42704, naming the quote.';

create function _memory_insert_many(memories jsonb) returns setof bigint
language sql volatile parallel unsafe security invoker
begin atomic
    with element as materialized (
        select e.element, e.number, 'of element ' || e.number as place,
            mindful._time_argument('valid_from of element ' || e.number, e.element ->> 'valid_from') as valid_from,
            mindful._time_argument('valid_to of element ' || e.number, e.element ->> 'valid_to') as valid_to
        from mindful._array_elements('memories', memories,
            '{content,kind,metadata,source,source_key,importance,confidence,level,valid_from,valid_to,evidence}') e
    ),
    inserted as (
        insert into mindful.memory (kind, content, metadata, source, source_key, importance, confidence, level,
            valid_from, valid_to)
        select mindful._memory_kind(coalesce(e.element ->> 'kind', 'fact')),
            mindful._text_argument('content ' || e.place, e.element ->> 'content'),
            mindful._metadata(e.element -> 'metadata'),
            mindful._short_argument('source ' || e.place, e.element ->> 'source'),
            mindful._short_argument('source_key ' || e.place, e.element ->> 'source_key'),
            coalesce(mindful._share_argument('importance ' || e.place, e.element -> 'importance'), 0.5),
            mindful._share_argument('confidence ' || e.place, e.element -> 'confidence'),
            coalesce(mindful._level_argument('level ' || e.place, e.element ->> 'level'), 'data'),
            e.valid_from,
            mindful._valid_to_argument('valid_to ' || e.place, e.valid_from, e.valid_to)
        from element e
        order by e.number
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
            mindful._evidence('evidence ' || e.place, e.element -> 'evidence') v
    )
    select n.id from numbered n order by n.id;
end;
comment on function _memory_insert_many(jsonb) is
'Stores memories, duplicates or not; see memory_insert_many.';

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
    evidence jsonb default '[]'
) returns bigint
language sql volatile parallel unsafe security invoker
begin atomic
    select mindful._writable();
    select mindful.memory_insert_many(pg_catalog.jsonb_build_array(pg_catalog.jsonb_build_object(
        'content', mindful._text_argument('content', content), 'kind', mindful._memory_kind(kind),
        'metadata', mindful._metadata(metadata), 'source', mindful._short_argument('source', source),
        'source_key', mindful._short_argument('source_key', source_key), 'importance', importance, 'confidence', confidence,
        'level', mindful._short_argument('level', level), 'valid_from', valid_from, 'valid_to', valid_to,
        'evidence', mindful._json_argument('evidence', evidence))));
end;
comment on function memory_insert(text, text, jsonb, text, text, real, real, text, timestamptz, timestamptz, jsonb) is
'Remembers a text and returns its id. Kinds: fact, document, summary, reflection (messages come by message_insert). Importance (NULL: 0.5) and confidence are from 0 to 1; levels are data (NULL), information, knowledge, wisdom; it is true from valid_from until before valid_to, NULL being for ever. Evidence is an array of {"source_id", "quote"} as in memory_evidence_insert. It is indexed and, if there is a default embedder, embedded in the same transaction. Errors: 22004 (NULL), 22023 (empty text, unknown kind or level, out of range, a quote that its source does not hold), 42704 (no such source of yours), 54000 (over 262144 bytes), 23505 (source and source_key taken).';

create function memory_evidence_insert(id bigint, source_id bigint, quote text) returns boolean
language sql volatile parallel unsafe security invoker
begin atomic
    select mindful._writable();
    with proved as (
        insert into mindful.memory_evidence (id, source_id, quote)
        select mindful._memory_argument('id', id),
            case
                when id = source_id
                    then mindful._raise('22023', pg_catalog.format('memory %s is no evidence of itself', id),
                        'Quote the memory that it was drawn from.')::text::bigint
                else source_id
            end,
            mindful._quote_argument('quote', source_id, quote)
        on conflict do nothing
        returning 1
    )
    select exists (select from proved);
end;
comment on function memory_evidence_insert(bigint, bigint, text) is
'Says what a memory rests on: words that stand in the text of another memory, the source; runs of white space count as one blank. Returns whether that is new. Errors: 22004, 22023 (the source does not hold the quote), 42704 (no such memory of yours).';

create function _memory_updatable(id bigint) returns memory
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    found_memory mindful.memory;
begin
    select m.* into found_memory
    from mindful.memory m
    where m.tenant = (select mindful._tenant()) and m.id = mindful._memory_argument('id', _memory_updatable.id)
    for no key update;
    if not found then  -- deleted while this waited for its lock
        perform mindful._memory_argument('id', id);
    elsif found_memory.kind = 'message' then
        perform mindful._raise('42809', format('memory %s is a message, which is never rewritten', id),
            'What was said stays as it was said; insert a fact that has it as evidence.');
    elsif found_memory.superseded_by is not null then
        perform mindful._raise('55000', format('memory %s was superseded by memory %s', id, found_memory.superseded_by),
            format('Update memory %s, or the last one of memory_history(%s).', found_memory.superseded_by, id));
    elsif exists (
        select from mindful.attachment a
        where a.tenant = (select mindful._tenant()) and a.source = found_memory.source
    ) then
        perform mindful._raise('55000', format('memory %s is a row of %s', id, found_memory.source),
            'Change the row: its memory follows.');
    end if;
    return found_memory;
end
$$;
comment on function _memory_updatable(bigint) is 'Locks and returns a memory that can be superseded, or raises 22004, 42704, 42809 or 55000.';

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
    is_writable constant boolean := mindful._writable();
    old mindful.memory := mindful._memory_updatable(memory_update.id);
    since timestamptz := coalesce(mindful._range_argument('valid_from', memory_update.valid_from), now());
    until timestamptz := coalesce(mindful._range_argument('valid_to', memory_update.valid_to), case when old.valid_to > since then old.valid_to end);
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
        mindful._text_argument('content', memory_update.content),
        case when memory_update.metadata is null then old.metadata else mindful._metadata(memory_update.metadata) end,
        old.session_id, old.source, old.source_key,
        coalesce(mindful._share_argument('importance', to_jsonb(memory_update.importance)), old.importance),
        mindful._share_argument('confidence', to_jsonb(memory_update.confidence)),
        coalesce(mindful._level_argument('level', memory_update.level), old.level),
        since,
        mindful._valid_to_argument('valid_to', since, until)
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
    insert into mindful.memory_evidence (id, source_id, quote)
    select distinct new_id, v.source_id, v.quote from mindful._evidence('evidence', memory_update.evidence) v;
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
'Supersedes a memory by a new text, and returns the new memory''s id; the old one is kept as it was, true until before valid_from (NULL: now) and pointing at the new one; older versions end then at the latest, too. The new one has its kind, session, source, source_key (which the old one gives up) and links, and, where they are NULL here, its metadata, importance, level and the end of its validity if that is still ahead. Confidence and evidence are of a text, so they are not carried over. A valid_from of -infinity says that the old one was never true. Of two updates of a memory at once one wins, the other fails with 55000. Errors: 22004, 22023, 42704 (no such memory of yours), 42809 (a message, which is never rewritten), 55000 (superseded already; a row of an attached table), 54000.';

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
comment on type memory_version is 'What a memory said, and when that was true.';

create function memory_history(id bigint) returns setof memory_version
language sql stable parallel safe security invoker
begin atomic
    with recursive version as (
        select mindful._memory_argument('id', memory_history.id) as id
        union
        select n.id
        from version v
        cross join lateral (
            select m.superseded_by as id
            from mindful.memory m
            where m.tenant = (select mindful._tenant()) and m.id = v.id and m.superseded_by is not null
            union all
            select m.id
            from mindful.memory m
            where m.tenant = (select mindful._tenant()) and m.superseded_by = v.id
        ) n
    )
    select m.id, m.content, m.importance, m.confidence, m.level, m.valid_from, m.valid_to, m.superseded_by, m.created_at
    from version v
    join mindful.memory m on m.tenant = (select mindful._tenant()) and m.id = v.id
    order by m.id;
end;
comment on function memory_history(bigint) is
'All versions of a memory, whichever of them is named, oldest first; the one that no other superseded is the last. Errors: 22004, 42704 (no such memory of yours).';
