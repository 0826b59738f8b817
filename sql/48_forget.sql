-- What refers to a memory does so by a foreign key that cascades, or that sets itself NULL. Nothing else has to be done
-- for forgetting to reach it: the receipt's counts and the check are read from the catalog.

create table forget_receipt (
    tenant text not null default _tenant(),
    id bigint generated always as identity,
    scope text not null check (scope in ('ids', 'session', 'filter', 'everything', 'prune', 'retention')),
    forgotten_by text not null default current_user,
    forgotten_at timestamptz not null default now(),
    memory_ids bigint[] not null,
    salt text not null default gen_random_uuid()::text,
    hashes text[] not null,
    counts jsonb not null,
    mentions jsonb not null,
    primary key (tenant, id)
);
comment on table forget_receipt is 'What was forgotten when and by whom: ids, counts and hashes, no content.';
comment on column forget_receipt.hashes is 'Of each forgotten text the hash that _forget_hash gives with the salt; none for what was pruned.';
comment on column forget_receipt.counts is 'What memory_forget returned.';
comment on column forget_receipt.mentions is 'Rows that repeat forgotten words and were kept: relation, column, key, and the hash of the text.';
alter table forget_receipt enable row level security, force row level security;
create policy own on forget_receipt using (tenant = (select mindful._tenant())) with check (tenant = (select mindful._tenant()));
select pg_catalog.pg_extension_config_dump('mindful.forget_receipt', '');
select pg_catalog.pg_extension_config_dump('mindful.forget_receipt_id_seq', '');

create index memory_content_hash on memory (tenant, content_hash);
create index generation_memory_ids on generation using gin (memory_ids);
create index generation_parent on generation (tenant, parent_id) where parent_id is not null;

create function _generation_forget() returns trigger
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    update mindful.generation g
    set memory_ids = array(
            select s.id from unnest(g.memory_ids) with ordinality s (id, position)
            where s.id <> all (o.ids) order by s.position
        ),
        prompt_sha256 = ''
    from (select tenant, array_agg(id) as ids from old_rows group by tenant) o
    where g.tenant = o.tenant and g.memory_ids && o.ids;
    return null;
end
$$;
comment on function _generation_forget() is
'Takes deleted memories out of the record of what generators were shown, and the prompt''s hash with them, which could confirm a guess. With the owner''s rights, as users do not change records.';
create trigger generation_deleted after delete on memory referencing old table as old_rows
    for each statement when (pg_catalog.current_setting('row_security') = 'on') execute function _generation_forget();

create function _memory_ids(metadata jsonb) returns table (id text, value jsonb, number bigint)
language sql immutable parallel safe security invoker rows 3
begin atomic
    select s.value #>> '{}', s.value, s.number
    from pg_catalog.jsonb_array_elements(case pg_catalog.jsonb_typeof(metadata -> 'memory_ids')
        when 'array' then metadata -> 'memory_ids' else '[]' end) with ordinality s (value, number);
end;
comment on function _memory_ids(jsonb) is 'The memories that a reply was shown, as its metadata say.';

create function _forget_paths() returns table (relation text, action text, condition text)
language sql stable parallel safe security invoker
begin atomic
    with recursive reached as (
        select b.relation, 'deleted' as action, b.condition collate "C" as condition, array[b.relation] as path
        from (values
            ('mindful.memory'::pg_catalog.regclass, 't.id = any ($2)'),
            ('mindful.session'::pg_catalog.regclass, 't.session_id = any ($3)')
        ) b (relation, condition)
        union all
        select f.conrelid::pg_catalog.regclass, case f.confdeltype when 'n' then 'changed' else 'deleted' end,
            pg_catalog.format('t.%I in (select t.%I from %s t where t.tenant = $1 and %s)',
                c.attname, p.attname, r.relation::pg_catalog.text, r.condition),
            r.path || f.conrelid::pg_catalog.regclass
        from reached r
        join pg_catalog.pg_constraint f on f.confrelid = r.relation and f.contype = 'f' and f.confdeltype = any ('{c,n}'::"char"[])
        -- Keys are (tenant, what is referred to).
        join pg_catalog.pg_attribute c on c.attrelid = f.conrelid and c.attnum = f.conkey[2]
        join pg_catalog.pg_attribute p on p.attrelid = f.confrelid and p.attnum = f.confkey[2]
        where r.action = 'deleted' and f.conrelid::pg_catalog.regclass <> all (r.path)
    )
    select c.relname, r.action, r.condition
    from reached r
    join pg_catalog.pg_class c on c.oid = r.relation;
end;
comment on function _forget_paths() is
'Which rows foreign keys delete or change with memories ($2, of the tenant $1) and sessions ($3), as conditions on a row t.';

create type forget_count as (receipt_id bigint, relation text, action text, rows bigint);
comment on type forget_count is 'How many rows of a table were deleted, changed, kept, or mention what was forgotten.';

create function _forget_counts(ids bigint[], sessions uuid[]) returns setof forget_count
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    reached record;
    counted bigint;
begin
    for reached in
        select p.relation, p.action, string_agg(p.condition, ' or ') as condition,
            bool_or(p.relation in ('memory', 'session')) as is_root
        from mindful._forget_paths() p
        where cardinality(sessions) > 0 or p.condition not like '%$3%'
        group by p.relation, p.action
    loop
        execute format('select count(*) from mindful.%I t where t.tenant = $1 and (%s)', reached.relation, reached.condition)
        into counted using mindful._tenant(), ids, sessions;
        if counted > 0 or reached.is_root then
            return query select null::bigint, reached.relation, reached.action, counted;
        end if;
    end loop;
    return query
    select null::bigint, 'memory_term', 'deleted', count(*)
    from mindful.memory m, mindful._terms(m.content)
    where m.tenant = (select mindful._tenant()) and m.id = any (ids)
    union all
    select null::bigint, 'generation', 'changed', count(*)
    from mindful.generation g
    where g.tenant = (select mindful._tenant()) and g.memory_ids && ids
    having count(*) > 0
    union all
    select null::bigint, m.source, 'kept', count(*)
    from mindful.memory m
    join mindful.attachment a on a.tenant = m.tenant and a.source = m.source
    where m.tenant = (select mindful._tenant()) and m.id = any (ids)
    group by m.source;
end
$$;
comment on function _forget_counts(bigint[], uuid[]) is
'What deleting memories and sessions deletes and changes, table by table, and which attached tables still hold their rows.';

create function _forget_reach(ids bigint[]) returns bigint[]
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    frontier bigint[] := ids;
begin
    while cardinality(frontier) > 0 loop
        -- From here on nothing new can be drawn from them.
        perform from mindful.memory m
        where m.tenant = (select mindful._tenant()) and m.id = any (frontier)
        order by m.id for update;
        frontier := array(
            select n.id
            from (
                select m.superseded_by as id from mindful.memory m
                where m.tenant = (select mindful._tenant()) and m.id = any (frontier) and m.superseded_by is not null
                union
                select m.id from mindful.memory m
                where m.tenant = (select mindful._tenant()) and m.superseded_by = any (frontier)
                union
                select d.id
                from mindful.memory m
                join mindful.memory d on d.tenant = (select mindful._tenant()) and d.content_hash = m.content_hash
                    and d.kind <> 'message'
                where m.tenant = (select mindful._tenant()) and m.id = any (frontier)
                union
                select o.id
                from (
                    select distinct e.id from mindful.memory_evidence e
                    where e.tenant = (select mindful._tenant()) and e.source_id = any (frontier)
                ) e
                join mindful.memory d on d.tenant = (select mindful._tenant()) and d.id = e.id
                join mindful.memory_evidence o on o.tenant = (select mindful._tenant()) and o.id = e.id
                left join unnest(ids) g (id) on g.id = o.source_id
                group by o.id
                having bool_and(g.id is not null) or bool_or(d.kind = 'summary')
            ) n
            where not exists (select from unnest(ids) g (id) where g.id = n.id)
        );
        ids := ids || frontier;
    end loop;
    return ids;
end
$$;
comment on function _forget_reach(bigint[]) is
'Memories, and those that go with them: their other versions, their exact duplicates (messages excepted), the summaries that cover them, and what has no evidence but them. All of them are locked.';

create function _forget_replies(ids bigint[]) returns table (id bigint, session_id uuid)
language sql volatile parallel unsafe security invoker
begin atomic
    with gone as materialized (
        select i::text as id from pg_catalog.unnest(ids) i
    ),
    reply as materialized (
        select m.id, m.metadata from mindful.memory m
        where m.tenant = (select mindful._tenant()) and m.role = any (array['assistant', 'clarification'])
    ),
    showed as (
        select r.id, coalesce(pg_catalog.jsonb_agg(s.value order by s.number) filter (where g.id is null), '[]') as memory_ids
        from reply r
        cross join mindful._memory_ids(r.metadata) s
        left join gone g on g.id = s.id
        group by r.id
        having pg_catalog.count(g.id) > 0
    ),
    answered as (
        select r.id from reply r join gone g on g.id = r.metadata ->> 'reply_to'
    ),
    told as (
        select id, pg_catalog.jsonb_build_object('memory_ids', w.memory_ids) as memory_ids, a.id is not null as is_answer
        from showed w full join answered a using (id)
    )
    update mindful.memory m
    set metadata = (case when t.is_answer then m.metadata - 'reply_to' else m.metadata end)
        || case when t.memory_ids -> 'memory_ids' = 'null' then '{}' else t.memory_ids end
    from told t
    where m.tenant = (select mindful._tenant()) and m.id = t.id
    returning m.id, m.session_id;
end;
comment on function _forget_replies(bigint[]) is 'Takes memories out of what replies say that they were shown or answer, and returns those replies.';

create function _forget_delete(ids bigint[], sessions uuid[]) returns setof forget_count
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    showed uuid[] := array(
        select distinct m.session_id from mindful.memory m
        where m.tenant = (select mindful._tenant()) and m.id = any (ids) and m.session_id is not null
    );
    changed bigint;
    replies uuid[];
begin
    update mindful.session s set title = null
    where s.tenant = (select mindful._tenant()) and s.session_id = any (showed) and s.session_id <> all (sessions)
        and exists (
            select from mindful.memory m
            where m.tenant = (select mindful._tenant()) and m.id = any (ids) and m.session_id = s.session_id
                and starts_with(m.content, s.title)
        );
    get diagnostics changed = row_count;
    return query select null::bigint, 'session', 'changed', changed;
    for n in 1 .. cardinality(ids) by 10000 loop
        delete from mindful.memory m
        where m.tenant = (select mindful._tenant()) and m.id = any (ids[n:n + 9999]);
    end loop;
    delete from mindful.session s where s.tenant = (select mindful._tenant()) and s.session_id = any (sessions);
    select count(*), array_agg(distinct r.session_id) into changed, replies from mindful._forget_replies(ids) r;
    return query select null::bigint, 'memory', 'changed', changed;
    delete from mindful.kv_state k where k.tenant = (select mindful._tenant()) and k.session_id = any (showed || replies);
    get diagnostics changed = row_count;
    return query select null::bigint, 'kv_state', 'deleted', changed;
end
$$;
comment on function _forget_delete(bigint[], uuid[]) is
'Deletes memories and sessions, takes them out of the records of replies that were shown them and out of titles, and drops the kept states of conversations that showed them. Returns what the catalog does not tell.';

create function _forget(ids bigint[], sessions uuid[], scope text, dry_run boolean) returns setof forget_count
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_column
declare
    is_request boolean := scope not in ('prune', 'retention');
    salt text := gen_random_uuid();
    hashes text[] := '{}';
    runs text[] := '{}';
    mentions jsonb := '[]';
    counts jsonb;
    receipt_id bigint;
begin
    if is_request then
        hashes := array(
            select distinct mindful._forget_hash(salt, m.content)
            from mindful.memory m where m.tenant = (select mindful._tenant()) and m.id = any (_forget.ids)
        );
        runs := array(
            select distinct r.run
            from mindful.memory m, mindful._runs(m.content) r
            where m.tenant = (select mindful._tenant()) and m.id = any (_forget.ids) and r.is_longest
        );
    end if;
    counts := (select coalesce(jsonb_agg(to_jsonb(c) - 'receipt_id'), '[]') from mindful._forget_counts(ids, sessions) c)
        || (select coalesce(jsonb_agg(to_jsonb(c) - 'receipt_id'), '[]') from mindful._forget_delete(ids, sessions) c where c.rows > 0);
    if is_request then
        mentions := mindful._forget_mentions(runs, salt);
        counts := counts || (
            select coalesce(jsonb_agg(to_jsonb(c)), '[]')
            from (
                select m ->> 'relation' as relation, 'mention' as action, count(*) as rows
                from jsonb_array_elements(mentions) m group by 1
            ) c
        );
    end if;
    if dry_run then
        raise exception using errcode = 'MF001', message = 'mindful: a dry run ends here', detail = counts::text;
    end if;
    insert into mindful.forget_receipt (scope, memory_ids, salt, hashes, counts, mentions)
    values (scope, _forget.ids, salt, hashes, counts, mentions)
    returning id into receipt_id;
    return query select receipt_id, c.relation, c.action, c.rows
        from jsonb_to_recordset(counts) c (relation text, action text, rows bigint);
exception when sqlstate 'MF001' then
    get stacked diagnostics counts = pg_exception_detail;
    return query select null::bigint, c.relation, c.action, c.rows
        from jsonb_to_recordset(counts) c (relation text, action text, rows bigint);
end
$$;
comment on function _forget(bigint[], uuid[], text, boolean) is
'Deletes memories and sessions with all that hangs on them, and leaves a receipt. A dry run does all of it and undoes it, so it tells the truth.';

create function _forget_filter(filter jsonb) returns bigint[]
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    since timestamptz := mindful._time_argument('since of filter', filter ->> 'since');
    before timestamptz := mindful._time_argument('before of filter', filter ->> 'before');
begin
    perform from mindful._array_elements('filter', jsonb_build_array(filter),
        '{kind,role,source,content,metadata,since,before}');
    if filter = '{}' or filter -> 'metadata' = '{}' then
        perform mindful._raise('22023', 'filter or its metadata are empty', 'Use everything => true to forget all.');
    elsif filter ? 'content' then
        perform mindful._text_argument('content of filter', filter ->> 'content');
    end if;
    if filter ? 'kind' then
        perform mindful._kinds_argument(array[filter ->> 'kind']);
    end if;
    if filter ? 'role' then
        perform mindful._message_role('role of filter', filter ->> 'role');
    end if;
    return array(
        select m.id from mindful.memory m
        where m.tenant = (select mindful._tenant())
            and (filter -> 'kind' is null or m.kind = filter ->> 'kind')
            and (filter -> 'role' is null or m.role = filter ->> 'role')
            and (filter -> 'source' is null or m.source = filter ->> 'source')
            and (filter -> 'content' is null or strpos(lower(m.content), lower(filter ->> 'content')) > 0)
            and (filter -> 'metadata' is null or m.metadata @> mindful._metadata(filter -> 'metadata'))
            and (filter -> 'since' is null or m.created_at >= since)
            and (filter -> 'before' is null or m.created_at < before)
    );
end
$$;
comment on function _forget_filter(jsonb) is 'The tenant''s memories that a filter of memory_forget chooses.';

create function memory_forget(
    ids bigint[] default null,
    session_id uuid default null,
    filter jsonb default null,
    everything boolean default false,
    dry_run boolean default false
) returns setof forget_count
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_column
declare
    chosen bigint[];
    sessions uuid[] := '{}';
    scope text;
begin
    if num_nonnulls(memory_forget.ids, memory_forget.session_id, memory_forget.filter, nullif(everything, false)) <> 1 then
        perform mindful._raise('22023', 'nothing, or more than one thing, is named to be forgotten',
            'Give ids, a session_id, a filter, or everything => true.');
    elsif memory_forget.ids is not null then
        scope := 'ids';
        chosen := array(select distinct mindful._memory_argument('ids', i) from unnest(memory_forget.ids) i);
    elsif memory_forget.session_id is not null then
        scope := 'session';
        sessions := array[mindful._session_lock(memory_forget.session_id)];
        chosen := array(
            select m.id from mindful.memory m
            where m.tenant = (select mindful._tenant()) and m.session_id = memory_forget.session_id
        );
    elsif memory_forget.filter is not null then
        scope := 'filter';
        chosen := mindful._forget_filter(memory_forget.filter);
    else
        scope := 'everything';
        sessions := array(select s.session_id from mindful.session s where s.tenant = (select mindful._tenant()));
        chosen := array(select m.id from mindful.memory m where m.tenant = (select mindful._tenant()));
    end if;
    return query select * from mindful._forget(mindful._forget_reach(chosen), sessions, scope, coalesce(dry_run, false));
end
$$;
comment on function memory_forget(bigint[], uuid, jsonb, boolean, boolean) is
'Forgets memories for good: those with some ids, a session with all of its turns, those that pass a filter, or everything of the caller. A filter is an object of kind, role, source, content (a part of the text), metadata (contained), since and before (created_at); all that are given must hold. With them go their other versions, their exact duplicates (messages excepted), the summaries that cover them, what has no evidence but them, and every row that refers to one of them: embeddings, links, evidence, queue, reviews. Replies that were shown them no longer say so, titles taken from them are cleared, kept states of their conversations are dropped. Returns, and keeps as a receipt, the number of rows by table and action: deleted, changed, kept (an attached table still holds its rows), mention (rows that repeat their words, such as a reply, and stay: see memory_forget_check). A dry run does it all and undoes it. Not reached are backups, the write-ahead log, pages until VACUUM, and what a running connection has computed. All or nothing. Errors: 22004, 22023 (no or several choices, a bad filter), 42704 (no such memory or session of yours).';
