-- A row refers to a memory by a foreign key with ON DELETE CASCADE or SET NULL. So forgetting reaches it without further code:
-- counts and checks come from the catalog.

create table forget_receipt (
    tenant text not null default _mindful.tenant(),
    id bigint generated always as identity,
    scope text not null check (scope in ('ids', 'session', 'filter', 'everything', 'document', 'prune', 'retention')),
    forgotten_by text not null default current_user,
    forgotten_at timestamptz not null default now(),
    memory_ids bigint[] not null,
    salt text not null default gen_random_uuid()::text,
    hashes text[] not null,
    counts jsonb not null,
    mentions jsonb not null,
    settings jsonb,
    adapters jsonb not null default '[]',
    primary key (tenant, id)
);
comment on table forget_receipt is
'Receipts of deletions: when, by whom, ids, counts and hashes, without content.';
comment on column forget_receipt.hashes is
'Hashes of the deleted texts by forget_hash with the salt; empty after pruning.';
comment on column forget_receipt.counts is
'The counts that memory_forget returned.';
comment on column forget_receipt.adapters is 'Adapters that were trained on forgotten texts: name, action (withdrawn: it serves no tenant any more; kept, by the setting adapter_on_forget) and the file on the server, which an administrator has to delete.';
comment on column forget_receipt.mentions is 'Rows that repeat forgotten words and were kept: relation, column, key, and the hash of the text.';
comment on column forget_receipt.settings is 'Of scope retention: the settings that asked for it, each with key, value, scope (global: for all tenants) and changed_by.';
alter table forget_receipt enable row level security, force row level security;
create policy own on forget_receipt using (tenant = (select _mindful.tenant())) with check (tenant = (select _mindful.tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.forget_receipt', '');
select pg_catalog.pg_extension_config_dump('mindful.forget_receipt_id_seq', '');

create index memory_content_hash on memory (tenant, content_hash) where content_hash is not null;
create index generation_memory_ids on generation using gin (memory_ids);
create index generation_parent on generation (tenant, parent_id) where parent_id is not null;

create function _mindful.generation_forget() returns trigger
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
comment on function _mindful.generation_forget() is
'Removes deleted memories from generation.memory_ids, and the prompt''s hash, which could confirm a guess. It runs with the owner''s rights, because users cannot change the records.';
create trigger generation_deleted after delete on memory referencing old table as old_rows
    for each statement when (pg_catalog.current_setting('row_security') = 'on' or not _mindful.is_restore()) execute function _mindful.generation_forget();

create function _mindful.memory_ids(metadata jsonb) returns table (id text, value jsonb, number bigint)
language sql immutable parallel safe security invoker rows 3
begin atomic
    select s.value #>> '{}', s.value, s.number
    from pg_catalog.jsonb_array_elements(case pg_catalog.jsonb_typeof(metadata -> 'memory_ids')
        when 'array' then metadata -> 'memory_ids' else '[]' end) with ordinality s (value, number);
end;
comment on function _mindful.memory_ids(jsonb) is 'The memories that a reply was shown, as its metadata say.';

create function _mindful.memory_id(value text) returns bigint
language sql immutable parallel safe security invoker
begin atomic
    select case when value ~ '^[0-9]{1,18}$' then value::bigint end;
end;
comment on function _mindful.memory_id(text) is
'Returns the id that a value of metadata names; NULL if it is another text, as callers supply metadata.';

create function _mindful.forget_paths() returns table (relation text, action text, condition text, depth integer, column_name text)
language sql stable parallel safe security invoker
begin atomic
    with recursive reached as (
        select b.relation, b.action, b.condition collate "C" as condition, array[b.relation] as path, null::name as column_name
        from (values
            ('mindful.memory'::pg_catalog.regclass, 'deleted', 't.id = any ($2)'),
            ('mindful.session'::pg_catalog.regclass, 'deleted', 't.session_id = any ($3)'),
            ('mindful.generation'::pg_catalog.regclass, 'changed', 't.memory_ids && $2'),
            -- Triggers delete these rows: a record is older than its reply, and a sample has several memories.
            ('mindful.generation'::pg_catalog.regclass, 'deleted', '$4 and t.id in (select t.generation_id from mindful.decision t where t.tenant = $1 and (t.message_id = any ($2) or t.replaced_by_id = any ($2)))'),
            (pg_catalog.to_regclass('mindful.training_sample'), 'deleted', 't.id in (select t.sample_id from mindful.training_sample_memory t where t.tenant = $1 and t.memory_id = any ($2))')
        ) b (relation, action, condition)
        union all
        select f.conrelid::pg_catalog.regclass, case f.confdeltype when 'n' then 'changed' else 'deleted' end,
            pg_catalog.format('t.%I in (select t.%I from %s t where t.tenant = $1 and %s)',
                c.attname, p.attname, r.relation::pg_catalog.text, r.condition),
            r.path || f.conrelid::pg_catalog.regclass, c.attname
        from reached r
        join pg_catalog.pg_constraint f on f.confrelid = r.relation and f.contype = 'f' and f.confdeltype = any ('{c,n}'::"char"[])
        -- Keys are (tenant, what is referred to).
        join pg_catalog.pg_attribute c on c.attrelid = f.conrelid and c.attnum = f.conkey[2]
        join pg_catalog.pg_attribute p on p.attrelid = f.confrelid and p.attnum = f.confkey[2]
        where r.action = 'deleted' and (f.conrelid::pg_catalog.regclass <> all (r.path) or f.confdeltype = 'n')
    )
    select c.relname, r.action, r.condition, pg_catalog.cardinality(r.path), r.column_name
    from reached r
    join pg_catalog.pg_class c on c.oid = r.relation;
end;
comment on function _mindful.forget_paths() is
'Conditions on a row t that deleting memories and sessions deletes or changes. $1 is the tenant, $2 the memories, $3 the sessions, and $4 the answers that are forgotten, not pruned. Where a foreign key leads to the table, its distance in tables and the column.';

create function _mindful.forget_replicated() returns trigger
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    ids bigint[] := '{}';
    sessions uuid[] := '{}';
    reached record;
begin
    if tg_table_name = 'memory' then
        ids := array[old.id];
        delete from mindful.memory_term t
        using _mindful.terms(old.content, old.language) d
        where t.tenant = old.tenant and t.lexeme = d.lexeme and t.id = old.id;
    else
        sessions := array[old.session_id];
    end if;
    for reached in
        select format(case p.action when 'deleted' then 'delete from mindful.%1$I t where t.tenant = $1 and %2$s'
            else 'update mindful.%1$I t set %3$I = null where t.tenant = $1 and %2$s' end,
            p.relation, p.condition, p.column_name) as statement
        from _mindful.forget_paths() p
        where (p.depth > 1 or p.relation = 'training_sample')
            and p.condition like case tg_table_name when 'memory' then '%$2%' else '%$3%' end
        order by p.depth desc, p.action
    loop
        execute reached.statement using old.tenant, ids, sessions, true;
    end loop;
    return old;
end
$$;
comment on function _mindful.forget_replicated() is
'Deletes on a subscriber what foreign keys would delete with a memory or session: a subscription''s worker fires neither them nor triggers by statement, and vectors, queue and posting rows that were computed there would stay.';
create trigger forget_replicated before delete on memory for each row execute function _mindful.forget_replicated();
create trigger forget_replicated before delete on session for each row execute function _mindful.forget_replicated();
alter table memory enable replica trigger forget_replicated;
alter table session enable replica trigger forget_replicated;

create type forget_count as (receipt_id bigint, relation text, action text, rows bigint);
comment on type forget_count is
'Number of rows of a table by action: deleted, changed, kept, mention, withdrawn.';

create function _mindful.forget_delete(ids bigint[], sessions uuid[], wished boolean) returns setof forget_count
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    showed uuid[] := array(
        select distinct m.session_id from mindful.memory m
        where m.tenant = (select _mindful.tenant()) and m.id = any (ids) and m.session_id is not null
    );
    believed jsonb := (
        select jsonb_object_agg(m.id, m.confidence)
        from mindful.memory_evidence e
        join mindful.memory m on m.tenant = (select _mindful.tenant()) and m.id = e.id
        where e.tenant = (select _mindful.tenant()) and e.source_id = any (ids)
    );
    counted bigint;
    changed bigint[];
    replies uuid[];
begin
    update mindful.session s set title = null
    from (
        select m.session_id, m.content from mindful.memory m
        where m.tenant = (select _mindful.tenant()) and m.id = any (ids)
        offset 0
    ) m
    where s.tenant = (select _mindful.tenant()) and s.session_id = any (showed) and s.session_id <> all (sessions)
        and s.session_id = m.session_id and starts_with(m.content, s.title);
    get diagnostics counted = row_count;
    return query select null::bigint, 'session', 'changed', counted;
    changed := array(select _mindful.forget_heirs(ids, wished));
    for n in 1 .. cardinality(ids) by 10000 loop
        perform _mindful.memory_delete(ids[n:n + 9999]);
    end loop;
    perform _mindful.delete('session', jsonb_agg(jsonb_build_object('session_id', s))) from unnest(sessions) s;
    select changed || array_agg(r.id), array_agg(distinct r.session_id) into changed, replies from _mindful.forget_replies(ids) r;
    return query
    select null::bigint, 'memory', 'changed', count(*)
    from (
        select unnest(changed)
        union
        select m.id from jsonb_each(believed) b
        join mindful.memory m on m.tenant = (select _mindful.tenant()) and m.id = b.key::bigint
        where m.confidence is distinct from (b.value #>> '{}')::real
    ) c;
    return query
    select null::bigint, 'kv_state', 'deleted', _mindful.delete('kv_state', jsonb_agg(to_jsonb(k)))
    from (
        select k.thread_id, k.model, k.first from mindful.kv_state k
        where k.tenant = (select _mindful.tenant()) and (k.list_id is not null or k.session_id = any (showed || replies))
    ) k;
end
$$;
comment on function _mindful.forget_delete(bigint[], uuid[], boolean) is
'Deletes memories and sessions, and removes them from titles and from the metadata of replies that used them. It drops the kept states of conversations that showed them, and of all lists of messages, whose contents are not recorded. Returns the counts that the catalog does not give.';

create function _mindful.forget(ids bigint[], sessions uuid[], scope text, dry_run boolean) returns setof forget_count
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_column
declare
    wished boolean := scope not in ('prune', 'retention');
    is_searched boolean := wished and scope <> 'document';
    salt text := gen_random_uuid();
    language text := _mindful.recall_language();
    hashes text[] := '{}';
    runs text[] := '{}';
    copies text[] := '{}';
    mentions jsonb := '[]';
    adapters jsonb;
    counts jsonb;
    receipt_id bigint;
begin
    if not wished then
        ids := ids || array(select _mindful.forget_recaps(ids) except select unnest(ids));
    end if;
    if is_searched then
        select coalesce(array_agg(distinct _mindful.forget_hash(salt, m.content)), '{}'),
            coalesce(array_agg(distinct m.content_hash), '{}')
        into hashes, copies
        from mindful.memory m where m.tenant = (select _mindful.tenant()) and m.id = any (forget.ids);
        runs := array(
            select distinct r.run
            from mindful.memory m, _mindful.runs(m.content, language) r
            where m.tenant = (select _mindful.tenant()) and m.id = any (forget.ids) and r.is_longest
        );
    end if;
    perform set_config('mindful.pruning', case when wished then '' else 'on' end, true);
    counts := (select coalesce(jsonb_agg(to_jsonb(c) - 'receipt_id'), '[]') from _mindful.forget_counts(ids, sessions, wished) c)
        || (select coalesce(jsonb_agg(to_jsonb(c) - 'receipt_id'), '[]') from _mindful.forget_delete(ids, sessions, wished) c where c.rows > 0);
    perform set_config('mindful.pruning', '', true);
    adapters := _mindful.forget_adapters(ids);
    counts := counts || (
        select coalesce(jsonb_agg(to_jsonb(c)), '[]')
        from (
            select 'model' as relation, a ->> 'action' as action, count(*) as rows from jsonb_array_elements(adapters) a group by 2
        ) c
    );
    if is_searched then
        mentions := _mindful.forget_mentions(runs, copies, salt, language);
        counts := counts || (
            select coalesce(jsonb_agg(to_jsonb(c)), '[]')
            from (
                select m ->> 'relation' as relation, 'mention' as action, count(*) as rows
                from jsonb_array_elements(mentions) m group by 1
            ) c
        );
    end if;
    counts := (
        select jsonb_agg(to_jsonb(c))
        from (
            select c.relation, c.action, sum(c.rows) as rows
            from jsonb_to_recordset(counts) c (relation text, action text, rows bigint)
            group by c.relation, c.action
        ) c
    );
    if dry_run then
        raise exception using errcode = 'MF001', message = 'mindful: a dry run ends here', detail = counts::text;
    end if;
    insert into mindful.forget_receipt (scope, memory_ids, salt, hashes, counts, mentions, adapters)
    values (scope, forget.ids, salt, hashes, counts, mentions, adapters)
    returning id into receipt_id;
    return query select receipt_id, c.relation, c.action, c.rows
        from jsonb_to_recordset(counts) c (relation text, action text, rows bigint);
exception when sqlstate 'MF001' then
    get stacked diagnostics counts = pg_exception_detail;
    return query select null::bigint, c.relation, c.action, c.rows
        from jsonb_to_recordset(counts) c (relation text, action text, rows bigint);
end
$$;
comment on function _mindful.forget(bigint[], uuid[], text, boolean) is
'Deletes memories and sessions with all rows that refer to them, and writes a receipt. A dry run executes the deletion and rolls it back, so the counts are exact.';

create function _mindful.forget_filter(filter jsonb) returns bigint[]
language plpgsql stable parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    since timestamptz := _mindful.time_argument('since of filter', filter ->> 'since');
    before timestamptz := _mindful.time_argument('before of filter', filter ->> 'before');
    -- Within the query the planner would evaluate the error of a generic plan, whose arguments it does not know.
    contained jsonb := _mindful.metadata(filter -> 'metadata');
begin
    perform from _mindful.array_elements('filter', jsonb_build_array(filter),
        '{kind,role,source,content,metadata,since,before}');
    if filter = '{}' or filter -> 'metadata' = '{}' then
        perform _mindful.raise('22023', 'filter or its metadata are empty', 'Use everything => true to forget all.');
    elsif filter ? 'content' then
        perform _mindful.text_argument('content of filter', filter ->> 'content');
    end if;
    if filter ? 'kind' then
        perform _mindful.kinds_argument(array[filter ->> 'kind']);
    end if;
    if filter ? 'role' then
        perform _mindful.message_role('role of filter', filter ->> 'role');
    end if;
    return array(
        select m.id from mindful.memory m
        where m.tenant = (select _mindful.tenant())
            and (filter -> 'kind' is null or m.kind = filter ->> 'kind')
            and (filter -> 'role' is null or m.role = filter ->> 'role')
            and (filter -> 'source' is null or m.source = filter ->> 'source')
            and (filter -> 'content' is null or strpos(lower(m.content), lower(filter ->> 'content')) > 0)
            and (filter -> 'metadata' is null or m.metadata @> contained)
            and (filter -> 'since' is null or m.created_at >= since)
            and (filter -> 'before' is null or m.created_at < before)
    );
end
$$;
comment on function _mindful.forget_filter(jsonb) is
'Returns the ids of the tenants memories that pass a filter of memory_forget.';

create function memory_forget(
    ids bigint[] default null,
    session_id uuid default null,
    filter jsonb default null,
    everything boolean default false,
    dry_run boolean default false,
    copies boolean default false
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
    perform _mindful.writable();
    if num_nonnulls(memory_forget.ids, memory_forget.session_id, memory_forget.filter, nullif(everything, false)) <> 1 then
        perform _mindful.raise('22023', 'nothing, or more than one thing, is named to be forgotten',
            'Give ids, a session_id, a filter, or everything => true.');
    end if;
    -- Forgetting reaches other sessions and memories, in no order that two transactions could share.
    perform _mindful.lock('forget');
    if memory_forget.ids is not null then
        scope := 'ids';
        chosen := array(select distinct _mindful.memory_argument('ids', i) from unnest(memory_forget.ids) i);
    elsif memory_forget.session_id is not null then
        scope := 'session';
        sessions := array[_mindful.session_lock(memory_forget.session_id)];
        chosen := array(
            select m.id from mindful.memory m
            where m.tenant = (select _mindful.tenant()) and m.session_id = memory_forget.session_id
        );
    elsif memory_forget.filter is not null then
        scope := 'filter';
        chosen := _mindful.forget_filter(memory_forget.filter);
    else
        scope := 'everything';
        sessions := array(select s.session_id from mindful.session s where s.tenant = (select _mindful.tenant()));
        chosen := array(select m.id from mindful.memory m where m.tenant = (select _mindful.tenant()));
    end if;
    return query select * from _mindful.forget(
        _mindful.forget_reach(chosen, scope = 'ids', coalesce(copies, false)), sessions, scope, coalesce(dry_run, false));
end
$$;
comment on function memory_forget(bigint[], uuid, jsonb, boolean, boolean, boolean) is
'Deletes memories and all rows that refer to them, and returns the number of rows by table and action. Pass exactly one of ids, session_id, filter and everything => true. With dry_run true, the counts are exact and nothing is deleted. Errors: 22004, 22008, 22023, 42704.
Example: SELECT * FROM memory_forget(filter => ''{"content": "safe", "kind": "fact"}'', dry_run => true);';
