-- What is kept for how long. Forgetting is somebody's wish; pruning is housekeeping: it takes only what it names, and
-- facts outlive the turns they were drawn from.

insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('retention_message_days', 'integer', 0, 36500, '{global,user}', '0',
        'After how many days retention_run forgets messages, and sessions without any; 0 is never.'),
    ('retention_fact_days', 'integer', 0, 36500, '{global,user}', '0',
        'After how many days retention_run forgets facts; 0 is never.'),
    ('retention_summary_days', 'integer', 0, 36500, '{global,user}', '0',
        'After how many days retention_run forgets summaries; 0 is never.'),
    ('retention_document_days', 'integer', 0, 36500, '{global,user}', '0',
        'After how many days retention_run forgets documents; 0 is never.'),
    ('retention_reflection_days', 'integer', 0, 36500, '{global,user}', '0',
        'After how many days retention_run forgets reflections; 0 is never.'),
    ('retention_memories', 'integer', 0, 1000000000, '{global,user}', '0',
        'How many memories, messages not counted, retention_run keeps of a tenant, the most valuable; 0 is all.'),
    ('retention_audit_days', 'integer', 0, 36500, '{global}', '0',
        'After how many days retention_run_all deletes generations, reviews, receipts of forgetting and settings that others replaced; 0 is never.'),
    ('memory_half_life_days', 'number', 0.01, 36500, '{global,user}', '30',
        'After how many idle days a memory of level data is worth half; 4 times as many for information, 16 for knowledge, 64 for wisdom.');

create function _memory_value(
    importance real, level text, created_at timestamptz, last_accessed_at timestamptz, half_life_days double precision
) returns double precision
language sql stable parallel safe security invoker
begin atomic
    select importance * mindful._power(0.5, mindful._half_lives(greatest(created_at, last_accessed_at), pg_catalog.now(),
        half_life_days * mindful._power(4,
            pg_catalog.array_position(array['data', 'information', 'knowledge', 'wisdom'], level) - 1)));
end;
comment on function _memory_value(real, text, timestamptz, timestamptz, double precision) is
'What a memory is worth now: importance x 0.5 ^ (idle time / half-life of its level), idle since it was made or last shown (exponential forgetting, Ebbinghaus 1885).';

create function _memory_kept(kinds text[]) returns setof memory
language sql stable parallel safe security invoker
begin atomic
    select m.* from mindful.memory m
    where m.tenant = (select mindful._tenant()) and m.kind = any (kinds)
        and not exists (
            select from mindful.attachment a where a.tenant = (select mindful._tenant()) and a.source = m.source
        );
end;
comment on function _memory_kept(text[]) is 'The tenant''s memories of some kinds, without those that follow an attached table''s rows.';

create type prune_detail as (
    id bigint, kind text, value double precision, created_at timestamptz, last_accessed_at timestamptz, reason text
);
comment on type prune_detail is 'A memory that a policy does not keep, and why.';

create function memory_prune(
    older_than interval default null,
    unused_for interval default null,
    invalid_for interval default null,
    max_importance real default null,
    max_value real default null,
    keep integer default null,
    kinds text[] default '{fact,summary,document,reflection}',
    dry_run boolean default true
) returns setof prune_detail
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_column
declare
    half_life double precision := mindful.setting_get('memory_half_life_days') #>> '{}';
    policy text := concat_ws(', ',
        'older than ' || older_than, 'unused for ' || unused_for, 'invalid for ' || invalid_for,
        'importance at most ' || max_importance, 'value at most ' || max_value,
        case when keep is not null then format('not among the %s most valuable', keep) end);
    unfit prune_detail[];
begin
    if not dry_run then
        perform mindful._writable();
    end if;
    if policy = '' then
        perform mindful._raise('22023', 'no policy is given', 'Give at least one of older_than, unused_for, invalid_for, max_importance, max_value and keep.');
    elsif least(older_than, unused_for, invalid_for) < interval '0' or greatest(older_than, unused_for, invalid_for) > interval '1000 years'
        or keep < 0 or 'NaN' in (max_importance, max_value)
    then
        perform mindful._raise('22023', 'a bound is negative, more than 1000 years, or not a number',
            'Give numbers from 0 up, and times from 0 to 1000 years.');
    elsif mindful._kinds_argument(kinds) is null then
        perform mindful._raise('22023', 'kinds is null', 'Kinds are fact, document, summary, reflection and, if it must be, message.');
    end if;
    unfit := array(
        select (r.id, r.kind, r.value, r.created_at, r.last_accessed_at, policy)::mindful.prune_detail
        from (
            select m.id, m.kind, m.importance, m.created_at, m.valid_to, a.last_accessed_at, v.value,
                row_number() over (order by v.value desc, m.created_at desc, m.id desc) as rank
            from mindful._memory_kept(kinds) m
            left join mindful.memory_access a on a.tenant = (select mindful._tenant()) and a.id = m.id
            cross join lateral mindful._memory_value(m.importance, m.level, m.created_at, a.last_accessed_at, half_life) v (value)
        ) r
        where (older_than is null or r.created_at < now() - older_than)
            and (unused_for is null or greatest(r.created_at, r.last_accessed_at) < now() - unused_for)
            and (invalid_for is null or r.valid_to < now() - invalid_for)
            and (max_importance is null or r.importance <= max_importance)
            and (max_value is null or r.value <= max_value)
            and (keep is null or r.rank > keep)
        order by r.value, r.id
    );
    if not coalesce(dry_run, true) then
        perform mindful._forget(array(select u.id from unnest(unfit) u), '{}', 'prune', false);
    end if;
    return query select * from unnest(unfit);
end
$$;
comment on function memory_prune(interval, interval, interval, real, real, integer, text[], boolean) is
'Forgets what a policy does not keep, and returns it with the reason, least valuable first; with dry_run, which it has by default, it only returns it. All that is given must hold: older_than (age), unused_for (time since it was made or shown), invalid_for (time since valid_to passed), max_importance, max_value (importance x 0.5 ^ (idle time / half-life), see the setting memory_half_life_days), keep (all but so many, the most valuable of these kinds). Messages only where kinds says so. Facts stay when the turns they were drawn from go, without that evidence. Rows of attached tables are not touched. The receipt is in forget_receipt. Error 22023: no policy, or a bad one.';

create function _retention_settings() returns jsonb
language sql stable parallel safe security invoker
begin atomic
    select pg_catalog.jsonb_agg(
        pg_catalog.jsonb_build_object('key', f.key, 'value', f.value, 'scope', f.scope, 'changed_by', f.changed_by) order by f.key)
    from (
        select distinct on (n.key) n.key, n.value, n.scope, n.changed_by
        from (
            select distinct on (s.key, s.scope) s.key, s.value, s.scope, s.changed_by
            from mindful.setting s
            where s.tenant = any (array['', (select mindful._tenant())]) and s.scope <> 'session' and s.key ~ '^retention_'
            order by s.key, s.scope, s.id desc
        ) n
        where n.value <> 'null'
        order by n.key, n.scope desc
    ) f
    where f.value <> '0' and f.key <> 'retention_audit_days';
end;
comment on function _retention_settings() is 'The retention settings in force for the tenant, the tenant''s own before those of all, with who set them.';

create function _receipt_settings() returns trigger
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    new.settings := mindful._retention_settings();
    return new;
end
$$;
comment on function _receipt_settings() is 'Writes into a receipt of retention whose settings asked for it.';
create trigger settings before insert on forget_receipt for each row
    when (new.scope = 'retention' and (pg_catalog.current_setting('row_security') = 'on' or not mindful._is_restore())) execute function _receipt_settings();

create function _retention_count(key text, value jsonb, out tenants bigint, out rows bigint)
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
                where s.tenant = m.tenant and s.scope = 'user' and s.key = _retention_count.key order by s.id desc limit 1
            ), 'null') = 'null'
        group by m.tenant
    ) c;
end
$$;
comment on function _retention_count(text, jsonb) is
'How many rows of how many tenants a retention setting of scope global would remove now: memories, and of retention_audit_days generations, reviews and receipts. Tenants with a setting of their own are left out. It counts all tenants'' rows, so it runs with the owner''s rights; for administrators.';

create function _retention_check(key text, value jsonb, confirmed_rows bigint) returns void
language plpgsql stable parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    found record;
begin
    if value in ('null', '0') or not pg_has_role(current_user, 'mindful_admin', 'usage') then
        return;  -- keeps all, or is refused by the policy
    end if;
    select * into found from mindful._retention_count(key, value);
    if confirmed_rows is null or confirmed_rows < found.rows then
        perform mindful._raise('55000',
            format('setting %s to %s for all removes %s rows of %s tenants', key, value, found.rows, found.tenants),
            format('Look at it again, then pass confirmed_rows => %s.', found.rows));
    end if;
end
$$;
comment on function _retention_check(text, jsonb, bigint) is
'Raises 55000 where a retention setting of scope global would remove more rows than were confirmed; says how many rows of how many tenants.';

create function retention_run() returns setof forget_count
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    message_days integer := mindful.setting_get('retention_message_days') #>> '{}';
    most integer := mindful.setting_get('retention_memories') #>> '{}';
    old_ids bigint[];
    empty_sessions uuid[] := '{}';
begin
    perform mindful._writable();
    old_ids := array(
        select m.id
        from unnest('{message,fact,summary,document,reflection}'::text[]) k (kind)
        cross join lateral (select (mindful.setting_get(format('retention_%s_days', k.kind)) #>> '{}')::integer) s (days)
        cross join lateral mindful._memory_kept(array[k.kind]) m
        where s.days > 0 and m.created_at < now() - make_interval(days => s.days)
    );
    if most > 0 then
        old_ids := array(select unnest(old_ids) union select p.id from mindful.memory_prune(keep => most) p);
    end if;
    if message_days > 0 then
        empty_sessions := array(
            select s.session_id from mindful.session s
            where s.tenant = (select mindful._tenant()) and s.created_at < now() - make_interval(days => message_days)
                and not exists (
                    select from mindful.memory m
                    where m.tenant = (select mindful._tenant()) and m.session_id = s.session_id
                        and m.turn > 0 and m.created_at >= now() - make_interval(days => message_days)
                )
        );
    end if;
    if cardinality(old_ids) + cardinality(empty_sessions) > 0 then
        -- What is not due outlives its session; summaries are of the session.
        update mindful.memory m set session_id = null
        where m.tenant = (select mindful._tenant()) and m.session_id = any (empty_sessions) and m.kind <> 'summary'
            and not exists (select from unnest(old_ids) o (id) where o.id = m.id);
        old_ids := array(
            select unnest(old_ids)
            union
            select m.id from mindful.memory m
            where m.tenant = (select mindful._tenant()) and m.session_id = any (empty_sessions)
        );
        return query select * from mindful._forget(old_ids, empty_sessions, 'retention', false);
    end if;
end
$$;
comment on function retention_run() is
'Forgets what the settings retention_... no longer keep of the caller''s memories, and returns the receipt as memory_forget does; nothing where nothing is due. Rows of attached tables are not touched.';

create function retention_run_all() returns setof forget_count
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
set mindful.tenant = ''
as $$
declare
    due timestamptz := now() - make_interval(days => nullif((mindful.setting_get('retention_audit_days') #>> '{}')::integer, 0));
    owner_of_rows text;
    forgotten mindful.forget_count[] := '{}';
    deleted bigint;
begin
    perform mindful._writable();
    for owner_of_rows in
        with recursive owner as (
            (select m.tenant from mindful.memory m order by m.tenant limit 1)
            union all
            select (select m.tenant from mindful.memory m where m.tenant > o.tenant order by m.tenant limit 1)
            from owner o where o.tenant is not null
        )
        select o.tenant from owner o where o.tenant is not null
    loop
        begin
            perform set_config('mindful.tenant', owner_of_rows, true);
            forgotten := forgotten || array(select r from mindful.retention_run() r);
        exception when others then  -- which a cancel is not; nobody keeps what others have from being forgotten
            raise warning 'mindful: retention of tenant % failed: %', owner_of_rows, sqlerrm;
        end;
    end loop;
    delete from mindful.review r where r.created_at < due;
    get diagnostics deleted = row_count;
    forgotten := forgotten || (null, 'review', 'deleted', deleted)::mindful.forget_count;
    delete from mindful.generation g where g.created_at < due;
    get diagnostics deleted = row_count;
    forgotten := forgotten || (null, 'generation', 'deleted', deleted)::mindful.forget_count;
    delete from mindful.forget_receipt r where r.forgotten_at < due;
    get diagnostics deleted = row_count;
    forgotten := forgotten || (null, 'forget_receipt', 'deleted', deleted)::mindful.forget_count;
    delete from mindful.setting s
    where s.changed_at < due and exists (
        select from mindful.setting n
        where n.tenant = s.tenant and n.key = s.key and n.scope = s.scope and n.id > s.id
            and n.session_id is not distinct from s.session_id
    );
    get diagnostics deleted = row_count;
    forgotten := forgotten || (null, 'setting', 'deleted', deleted)::mindful.forget_count;
    return query
    select null::bigint, f.relation, f.action, sum(f.rows)::bigint
    from unnest(forgotten) f
    group by f.relation, f.action
    having sum(f.rows) > 0;
end
$$;
comment on function retention_run_all() is
'Runs retention_run for every tenant, by his own settings, and deletes records that are older than the setting retention_audit_days; returns how many rows of which tables. What fails for one tenant is a warning, and undone for him alone. It takes no argument and does nothing but what the settings say, so it may run with the owner''s rights; for administrators and schedulers.';

create function retention_work() returns setof forget_count
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform mindful._writable();
    if pg_has_role(current_user, 'mindful_admin', 'usage') then
        return query select * from mindful.retention_run_all();
    else
        return query select * from mindful.retention_run();
    end if;
end
$$;
comment on function retention_work() is
'What workers and job_schedule run every day: retention_run_all for administrators, retention_run for others.';
