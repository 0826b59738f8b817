-- Retention. A user forgets on purpose, and derived memories go too. Pruning is housekeeping: it deletes only what its
-- conditions name, so facts outlive the messages that they were drawn from.

insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('retention_message_days', 'integer', 0, 36500, '{global,user}', '0',
        'Age in days from which retention_run forgets messages, sessions without messages, and kept states that no call has continued. 0: never.'),
    ('retention_fact_days', 'integer', 0, 36500, '{global,user}', '0',
        'Age in days from which retention_run forgets facts. 0: never.'),
    ('retention_summary_days', 'integer', 0, 36500, '{global,user}', '0',
        'Age in days from which retention_run forgets summaries. 0: never.'),
    ('retention_document_days', 'integer', 0, 36500, '{global,user}', '0',
        'Age in days from which retention_run forgets documents. 0: never.'),
    ('retention_reflection_days', 'integer', 0, 36500, '{global,user}', '0',
        'Age in days from which retention_run forgets reflections. 0: never.'),
    ('retention_memories', 'integer', 0, 1000000000, '{global,user}', '0',
        'Number of memories, without messages, that retention_run keeps of a tenant. Those of the highest value stay. 0: all.'),
    ('retention_audit_days', 'integer', 0, 36500, '{global}', '0',
        'Age in days from which an administrator''s retention_run deletes generations, reviews, receipts and replaced settings. 0: never.'),
    ('retention_half_life_days', 'number', 0.01, 36500, '{global,user}', '30',
        'Idle time in days that halves the value of a memory of level data. It is 4 times as long for information, 16 times for knowledge, 64 times for wisdom.');

create function _mindful.memory_value(
    importance real, level text, created_at timestamptz, last_accessed_at timestamptz, half_life_days double precision
) returns double precision
language sql stable parallel safe security invoker
begin atomic
    select importance * _mindful.power(0.5, _mindful.half_lives(greatest(created_at, last_accessed_at), pg_catalog.now(),
        half_life_days * _mindful.power(4,
            pg_catalog.array_position(array['data', 'information', 'knowledge', 'wisdom'], level) - 1)));
end;
comment on function _mindful.memory_value(real, text, timestamptz, timestamptz, double precision) is
'Returns the value of a memory now: importance x 0.5 ^ (idle time / half-life of its level). Idle time begins when it was created or last shown (exponential forgetting, Ebbinghaus 1885).';

create function _mindful.memory_kept(kinds text[]) returns setof memory
language sql stable parallel safe security invoker
begin atomic
    select m.* from mindful.memory m
    where m.tenant = (select _mindful.tenant()) and m.kind = any (kinds)
        and not exists (
            select from mindful.attachment a where a.tenant = (select _mindful.tenant()) and a.source = m.source
        );
end;
comment on function _mindful.memory_kept(text[]) is
'Returns the tenant''s memories of some kinds, without those of attached tables.';

create type prune_detail as (
    id bigint, kind text, value double precision, created_at timestamptz, last_accessed_at timestamptz, reason text
);
comment on type prune_detail is
'A memory that memory_prune deletes, and the reason.';

create function memory_prune(
    older_than interval default null,
    unused_for interval default null,
    invalid_for interval default null,
    max_importance real default null,
    max_value real default null,
    max_count integer default null,
    kinds text[] default '{fact,summary,document,reflection}',
    dry_run boolean default false
) returns setof prune_detail
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_column
declare
    half_life double precision := mindful.setting_get('retention_half_life_days') #>> '{}';
    policy text := concat_ws(', ',
        'older than ' || older_than, 'unused for ' || unused_for, 'invalid for ' || invalid_for,
        'importance at most ' || max_importance, 'value at most ' || max_value,
        case when max_count is not null then format('not among the %s most valuable', max_count) end);
    unfit prune_detail[];
begin
    if dry_run is not true then
        perform _mindful.writable(), _mindful.lock('forget');
    end if;
    if policy = '' then
        perform _mindful.raise('22023', 'memory_prune has no condition',
            'Pass at least one of older_than, unused_for, invalid_for, max_importance, max_value and max_count.');
    elsif least(older_than, unused_for, invalid_for) < interval '0' or greatest(older_than, unused_for, invalid_for) > interval '1000 years'
        or max_count < 0 or 'NaN' in (max_importance, max_value)
    then
        perform _mindful.raise('22023', 'an argument of memory_prune is negative, longer than 1000 years, or NaN',
            'Pass numbers of at least 0, and intervals between 0 and 1000 years.');
    elsif _mindful.kinds_argument(kinds) is null then
        perform _mindful.raise('22023', 'kinds is null', 'Pass kinds out of fact, document, summary, reflection and message.');
    end if;
    unfit := array(
        select (r.id, r.kind, r.value, r.created_at, r.last_accessed_at, policy)::mindful.prune_detail
        from (
            select m.id, m.kind, m.importance, m.created_at, m.valid_to, a.last_accessed_at, v.value,
                row_number() over (order by v.value desc, m.created_at desc, m.id desc) as rank
            from _mindful.memory_kept(kinds) m
            left join mindful.memory_access a on a.tenant = (select _mindful.tenant()) and a.id = m.id
            cross join lateral _mindful.memory_value(m.importance, m.level, m.created_at, a.last_accessed_at, half_life) v (value)
        ) r
        where (older_than is null or r.created_at < now() - older_than)
            and (unused_for is null or greatest(r.created_at, r.last_accessed_at) < now() - unused_for)
            and (invalid_for is null or r.valid_to < now() - invalid_for)
            and (max_importance is null or r.importance <= max_importance)
            and (max_value is null or r.value <= max_value)
            and (max_count is null or r.rank > max_count)
        order by r.value, r.id
    );
    if dry_run is not true then
        perform _mindful.forget(array(select u.id from unnest(unfit) u), '{}', 'prune', false);
    end if;
    return query select * from unnest(unfit);
end
$$;
comment on function memory_prune(interval, interval, interval, real, real, integer, text[], boolean) is
'Deletes the memories that meet all given conditions, and returns them with the reason, least valuable first. With dry_run true, it only returns what it would delete.
Example: SELECT * FROM memory_prune(older_than => ''90 days'', max_importance => 0.3, dry_run => true);
Error 22023: no condition, or a value outside its range.';

create function _mindful.retention_settings() returns jsonb
language sql stable parallel safe security invoker
begin atomic
    select pg_catalog.jsonb_agg(
        pg_catalog.jsonb_build_object('key', f.key, 'value', f.value, 'scope', f.scope, 'changed_by', f.changed_by) order by f.key)
    from (
        select distinct on (n.key) n.key, n.value, n.scope, n.changed_by
        from (
            select distinct on (s.key, s.scope) s.key, s.value, s.scope, s.changed_by
            from mindful.setting s
            where s.tenant = any (array['', (select _mindful.tenant())]) and s.scope <> 'session' and s.key ~ '^retention_'
            order by s.key, s.scope, s.id desc
        ) n
        where n.value <> 'null'
        order by n.key, n.scope desc
    ) f
    where f.value <> '0' and f.key <> 'retention_audit_days';
end;
comment on function _mindful.retention_settings() is
'Returns the retention settings in force for the tenant, with the role that set them.';

create function _mindful.receipt_settings() returns trigger
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    new.settings := _mindful.retention_settings();
    return new;
end
$$;
comment on function _mindful.receipt_settings() is
'Adds the retention settings in force to a receipt.';
create trigger settings before insert on forget_receipt for each row
    when (new.scope = 'retention' and (pg_catalog.current_setting('row_security') = 'on' or not _mindful.is_restore())) execute function _mindful.receipt_settings();

create function _mindful.retention_count(key text, value jsonb, out tenants bigint, out rows bigint)
language plpgsql stable parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
set mindful.tenant = ''
as $$
declare
    bound integer := value #>> '{}';
    due timestamptz := now() - make_interval(days => bound);
begin
    if key = 'retention_audit_days' then
        select count(distinct r.tenant), count(*) into tenants, rows
        from (
            select g.tenant from mindful.generation g where g.created_at < due
            union all
            select v.tenant from mindful.review v where v.created_at < due
            union all
            select f.tenant from mindful.forget_receipt f where f.forgotten_at < due
        ) r;
        return;
    end if;
    select count(*) filter (where c.rows > 0), coalesce(sum(c.rows), 0) into tenants, rows
    from (
        select m.tenant,
            case key
                when 'retention_memories' then greatest(count(*) filter (where m.kind <> 'message') - bound, 0)
                else count(*) filter (where key = format('retention_%s_days', m.kind) and m.created_at < due)
            end as rows
        from mindful.memory m
        where not exists (select from mindful.attachment a where a.tenant = m.tenant and a.source = m.source)
            and coalesce((
                select s.value from mindful.setting s
                where s.tenant = m.tenant and s.scope = 'user' and s.key = retention_count.key order by s.id desc limit 1
            ), 'null') = 'null'
        group by m.tenant
    ) c;
end
$$;
comment on function _mindful.retention_count(text, jsonb) is
'Returns the number of rows and tenants from which a global retention setting would delete now: memories, or for retention_audit_days generations, reviews and receipts. Tenants with a setting of their own do not count. It runs with the owner''s rights; for administrators.';

create function _mindful.retention_check(key text, value jsonb, confirmed_rows bigint) returns void
language plpgsql stable parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    found record;
begin
    if value in ('null', '0') or not pg_has_role(current_user, 'mindful_admin', 'usage') then
        return;  -- The setting keeps all rows, or the policy refuses it.
    end if;
    select * into found from _mindful.retention_count(key, value);
    if confirmed_rows is null or confirmed_rows < found.rows then
        perform _mindful.raise('55000',
            format('setting %s to %s for all removes %s rows of %s tenants', key, value, found.rows, found.tenants),
            format('To confirm, pass confirmed_rows => %s.', found.rows));
    end if;
end
$$;
comment on function _mindful.retention_check(text, jsonb, bigint) is
'Raises 55000 if a global retention setting would delete more rows than confirmed_rows. The message has the numbers of rows and tenants.';

create function _mindful.retention_run_own() returns setof forget_count
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    message_days integer := mindful.setting_get('retention_message_days') #>> '{}';
    most integer := mindful.setting_get('retention_memories') #>> '{}';
    old_ids bigint[];
    empty_sessions uuid[] := '{}';
begin
    old_ids := array(
        select m.id
        from unnest('{message,fact,summary,document,reflection}'::text[]) k (kind)
        cross join lateral (select (mindful.setting_get(format('retention_%s_days', k.kind)) #>> '{}')::integer) s (days)
        cross join lateral _mindful.memory_kept(array[k.kind]) m
        where s.days > 0 and m.created_at < now() - make_interval(days => s.days)
    );
    if most > 0 then
        old_ids := array(select unnest(old_ids) union select p.id from mindful.memory_prune(max_count => most, dry_run => true) p);
    end if;
    if message_days > 0 then
        return query
        select null::bigint, 'kv_state', 'deleted', _mindful.delete('kv_state', jsonb_agg(to_jsonb(k)))
        from (
            select k.thread_id, k.model, k.first,
                max(k.used_at) over (partition by k.thread_id, k.model) < now() - make_interval(days => message_days) as is_old
            from mindful.kv_state k
            where k.tenant = (select _mindful.tenant())
        ) k
        where k.is_old
        having count(*) > 0;
        empty_sessions := array(
            select s.session_id from mindful.session s
            where s.tenant = (select _mindful.tenant()) and s.created_at < now() - make_interval(days => message_days)
                and not exists (
                    select from mindful.memory m
                    where m.tenant = (select _mindful.tenant()) and m.session_id = s.session_id
                        and m.turn > 0 and m.created_at >= now() - make_interval(days => message_days)
                )
        );
    end if;
    if cardinality(old_ids) + cardinality(empty_sessions) > 0 then
        perform _mindful.lock('forget');
        -- Memories that are not due stay without the session; its summaries go with it.
        update mindful.memory m set session_id = null
        where m.tenant = (select _mindful.tenant()) and m.session_id = any (empty_sessions) and m.kind <> 'summary'
            and not exists (select from unnest(old_ids) o (id) where o.id = m.id);
        old_ids := array(
            select unnest(old_ids)
            union
            select m.id from mindful.memory m
            where m.tenant = (select _mindful.tenant()) and m.session_id = any (empty_sessions)
        );
        return query select * from _mindful.forget(old_ids, empty_sessions, 'retention', false);
    end if;
end
$$;
comment on function _mindful.retention_run_own() is 'Runs retention for the tenant of the caller.';

create function _mindful.records_expire(owner text, due timestamptz) returns setof forget_count
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    deleted bigint;
begin
    delete from mindful.review r where r.tenant = owner and r.created_at < due;
    get diagnostics deleted = row_count;
    return query select null::bigint, 'review', 'deleted', deleted;
    delete from mindful.generation g where g.tenant = owner and g.created_at < due;
    get diagnostics deleted = row_count;
    return query select null::bigint, 'generation', 'deleted', deleted;
    delete from mindful.forget_receipt r where r.tenant = owner and r.forgotten_at < due;
    get diagnostics deleted = row_count;
    return query select null::bigint, 'forget_receipt', 'deleted', deleted;
    delete from mindful.setting s
    where s.tenant = owner and s.changed_at < due and exists (
        select from mindful.setting n
        where n.tenant = s.tenant and n.key = s.key and n.scope = s.scope and n.id > s.id
            and n.session_id is not distinct from s.session_id
    );
    get diagnostics deleted = row_count;
    return query select null::bigint, 'setting', 'deleted', deleted;
end
$$;
comment on function _mindful.records_expire(text, timestamptz) is
'Deletes a tenant''s records from before a time, and returns the number of rows by table. It keeps the latest value of each setting.';

create function _mindful.retention_run_all() returns setof forget_count
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
set mindful.tenant = ''
set lock_timeout = '1s'
as $$
declare
    due timestamptz := now() - make_interval(days => nullif((mindful.setting_get('retention_audit_days') #>> '{}')::integer, 0));
    forgotten mindful.forget_count[];
begin
    forgotten := array(
        select f
        from _mindful.tenants_run(array(select _mindful.memory_tenants() union select k.tenant from mindful.kv_state k), 'retention',
            'select jsonb_agg(r) from _mindful.retention_run_own() r') t,
            jsonb_populate_recordset(null::mindful.forget_count, t) f
    );
    forgotten := forgotten || array(
        select f
        from _mindful.tenants_run(
                array(
                    select r.tenant from mindful.review r where r.created_at < due
                    union
                    select g.tenant from mindful.generation g where g.created_at < due
                    union
                    select r.tenant from mindful.forget_receipt r where r.forgotten_at < due
                    union
                    select s.tenant from mindful.setting s where s.changed_at < due
                ), 'retention of records',
                format('select jsonb_agg(r) from _mindful.records_expire(current_setting(''mindful.tenant''), %L) r', due)) t,
            jsonb_populate_recordset(null::mindful.forget_count, t) f
    );
    return query
    select null::bigint, f.relation, f.action, sum(f.rows)::bigint
    from unnest(forgotten) f
    group by f.relation, f.action
    having sum(f.rows) > 0;
end
$$;
comment on function _mindful.retention_run_all() is
'Runs retention for each tenant by its own settings, then deletes records older than retention_audit_days. It runs with the owner''s rights: it takes no argument and follows the settings only. If one tenant fails, its changes are rolled back and a warning is raised.';

create function retention_run() returns setof forget_count
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform _mindful.writable();
    if pg_has_role(current_user, 'mindful_admin', 'usage') then
        return query select * from _mindful.retention_run_all();
    else
        return query select * from _mindful.retention_run_own();
    end if;
end
$$;
comment on function retention_run() is
'Deletes what the settings retention_* no longer keep, and returns the number of rows by table and action. A user''s call works for the own tenant, an administrator''s call for all tenants, by the settings of each. Rows of attached tables stay. Workers and worker_schedule call it every day.';
