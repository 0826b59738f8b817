insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('consolidation_after', 'integer', 0, 10000, '{global,user}', '50',
        'So many unread messages and documents among the newest memories ask for a run, which a worker makes; 0 is never.');

create function _consolidation_ask() returns trigger
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    enough integer := (mindful.setting_get('consolidation_after') #>> '{}')::integer;
    unread bigint;
begin
    if enough = 0 or exists (select from mindful.consolidation c
        where c.tenant = (select mindful._tenant()) and c.type = 'extract' and c.status in ('pending', 'running'))
    then
        return null;
    end if;
    select count(*) into unread
    from (
        select m.id, m.kind, m.role from mindful.memory m
        where m.tenant = (select mindful._tenant()) order by m.id desc limit 2 * enough
    ) m
    left join mindful.memory_extraction x on x.tenant = (select mindful._tenant()) and x.id = m.id
    where x.id is null and (m.kind = 'document' or m.kind = 'message' and m.role = 'user');
    -- Whoever comes second leaves it to the first, and does not wait for him.
    if unread >= enough and mindful._lock_try('consolidation_ask') then
        insert into mindful.consolidation (type) values ('extract') on conflict do nothing;
        notify mindful_job;
    end if;
    return null;
end
$$;
comment on function _consolidation_ask() is
'Asks for a run, which is then pending, when enough of the newest memories are unread; workers that listen on mindful_job hear of it.';

create trigger consolidation_ask after insert on memory
    for each statement when (pg_catalog.current_setting('row_security') = 'on' or not mindful._is_restore()) execute function _consolidation_ask();

create function consolidation_work(everyone boolean default false, tenants integer default 10) returns integer
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    outer_tenant text := coalesce(current_setting('mindful.tenant', true), '');
    due text;
    runs integer := 0;
begin
    perform mindful._writable();
    perform mindful._integer_argument('tenants', tenants, 1, 100000);
    for due in
        select d.tenant from (
            select c.tenant, min(c.created_at) as since from mindful.consolidation c
            where c.type = 'extract' and c.status in ('pending', 'running') group by c.tenant
            union all
            select m.tenant, max(m.created_at) from mindful.memory m
            left join mindful.memory_extraction x on x.tenant = m.tenant and x.id = m.id
            where everyone and m.kind in ('message', 'document') and (x.id is null or x.content_hash <> m.content_hash)
            group by m.tenant
        ) d
        group by d.tenant order by min(d.since) limit consolidation_work.tenants
    loop
        perform set_config('mindful.tenant', due, true);
        if mindful._lock_try('consolidation') then
            perform mindful.memory_consolidate();
            runs := runs + 1;
        end if;
    end loop;
    perform set_config('mindful.tenant', outer_tenant, true);
    return runs;
end
$$;
comment on function consolidation_work(boolean, integer) is
'Makes or goes on with the runs that are asked for, or, for everyone, with those of all tenants that have something unread, a tenant after the other, as far as the caller reaches them: a superuser all, others their own. Returns how many; what one call reads of a tenant, the setting consolidation_memories bounds. Error 22023.';

create function consolidation_schedule(schedule text default '30 2 * * *') returns boolean
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform mindful._writable();
    perform mindful._cron_schedule('mindful_consolidation', case when schedule is not null then '*/5 * * * *' end,
        'select mindful.consolidation_work()');
    return mindful._cron_schedule('mindful_consolidation_nightly', schedule,
        'select mindful.consolidation_work(everyone => true, tenants => 100000)');
end
$$;
comment on function consolidation_schedule(text) is
'Has pg_cron read for facts every five minutes where that is asked for, and everything at a schedule (crontab''s five fields; NULL ends both), as the calling role. Returns whether it is scheduled now. Errors: 55000 (no pg_cron), 42501 (no right to the schema cron).';

create function adaptation_work(tenants integer default 10) returns integer
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    outer_tenant text := coalesce(current_setting('mindful.tenant', true), '');
    due text;
    runs integer := 0;
begin
    perform mindful._writable();
    perform mindful._integer_argument('tenants', tenants, 1, 100000);
    for due in
        select o.tenant
        from mindful.outcome o
        left join (select a.tenant, max(a.last_outcome) as seen from mindful.adaptation a group by a.tenant) a on a.tenant = o.tenant
        where o.id > coalesce(a.seen, 0)
        group by o.tenant having count(*) >= 30
        order by min(o.id) limit adaptation_work.tenants
    loop
        perform set_config('mindful.tenant', due, true);
        if mindful._lock_try('adaptation') then
            perform mindful.confidence_adapt();
            runs := runs + 1;
        end if;
    end loop;
    perform set_config('mindful.tenant', outer_tenant, true);
    return runs;
end
$$;
comment on function adaptation_work(integer) is
'Runs confidence_adapt for tenants that have 30 labels newer than at its last run, a tenant after the other, as far as the caller reaches them: a superuser all, others their own. Returns how many. Error 22023.';

create function adaptation_schedule(schedule text default '30 3 * * *') returns boolean
language sql volatile parallel unsafe security invoker
begin atomic
    select mindful._writable();
    select mindful._cron_schedule('mindful_adaptation', schedule, 'select mindful.adaptation_work(tenants => 100000)');
end;
comment on function adaptation_schedule(text) is
'Has pg_cron run adaptation_work for everybody at a schedule (crontab''s five fields; NULL ends it), as the calling role. Returns whether it is scheduled now. Errors: 55000 (no pg_cron), 42501 (no right to the schema cron).';
