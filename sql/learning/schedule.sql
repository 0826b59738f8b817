insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('consolidation_after', 'integer', 0, 10000, '{global,user}', '50',
        'Number of unread messages and documents among the newest memories that requests a run. A worker makes the run. 0 disables requests.');

create function _mindful.consolidation_ask() returns trigger
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    enough integer := (mindful.setting_get('consolidation_after') #>> '{}')::integer;
    unread bigint;
begin
    if enough = 0 or exists (select from mindful.consolidation c
        where c.tenant = (select _mindful.tenant()) and c.type = 'extract' and c.status in ('pending', 'running'))
    then
        return null;
    end if;
    select count(*) into unread
    from (
        select m.id, m.kind, m.role from mindful.memory m
        where m.tenant = (select _mindful.tenant()) order by m.id desc limit 2 * enough
    ) m
    left join mindful.memory_extraction x on x.tenant = (select _mindful.tenant()) and x.id = m.id
    where x.id is null and (m.kind = 'document' or m.kind = 'message' and m.role = 'user');
    -- If another transaction is requesting the run, this one does not wait for it.
    if unread >= enough and _mindful.lock_try('consolidation_ask') then
        insert into mindful.consolidation (type) values ('extract') on conflict do nothing;
        notify mindful_job;
    end if;
    return null;
end
$$;
comment on function _mindful.consolidation_ask() is
'Adds a pending run if enough of the newest memories are unread, and notifies workers on the channel mindful_job.';

create trigger consolidation_ask after insert on memory
    for each statement when (pg_catalog.current_setting('row_security') = 'on' or not _mindful.is_restore()) execute function _mindful.consolidation_ask();

create function _mindful.consolidation_work(all_unread boolean, max_tenants integer) returns integer
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    runs integer;
begin
    runs := (
        select count(*)
        from _mindful.tenants_run(array(
            select d.tenant from (
                select c.tenant, min(c.created_at) as since from mindful.consolidation c
                where c.type = 'extract' and c.status in ('pending', 'running') group by c.tenant
                union all
                select m.tenant, max(m.created_at) from mindful.memory m
                left join mindful.memory_extraction x on x.tenant = m.tenant and x.id = m.id
                where all_unread and m.kind in ('message', 'document') and (x.id is null or x.content_hash <> m.content_hash)
                group by m.tenant
            ) d
            group by d.tenant order by min(d.since) limit max_tenants
        ), 'consolidation', 'select to_jsonb(mindful.memory_consolidate())', 'consolidation')
    );
    if all_unread then
        perform _mindful.tenants_run(array(
            select n.tenant from (
                select distinct on (s.tenant) s.tenant, s.value from mindful.setting s
                where s.key = 'replay_nightly' and s.scope = 'user' order by s.tenant, s.id desc
            ) n
            where n.value = 'true' order by 1 limit max_tenants
        ), 'replay', 'select to_jsonb(count(*)) from mindful.replay_night()', 'replay');
    end if;
    return runs;
end
$$;
comment on function _mindful.consolidation_work(boolean, integer) is
'Runs memory_consolidate for each tenant whose rows the current role may read and that is due, with all_unread also replay_night for those with the setting replay_nightly; returns the number of runs. A failure for one tenant is a warning.';

create function _mindful.consolidation_run_all(all_unread boolean, max_tenants integer) returns integer
language sql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
set mindful.tenant = ''
set lock_timeout = '1s'
as $$
    select _mindful.consolidation_work(all_unread, max_tenants);
$$;
comment on function _mindful.consolidation_run_all(boolean, integer) is
'Runs memory_consolidate for all tenants that are due. It runs with the owner''s rights and returns a count only; for administrators.';

create function consolidation_run(all_unread boolean default false, max_tenants integer default 10) returns integer
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform _mindful.writable();
    perform _mindful.integer_argument('max_tenants', max_tenants, 1, 100000);
    if pg_has_role(current_user, 'mindful_admin', 'usage') then
        return _mindful.consolidation_run_all(coalesce(all_unread, false), max_tenants);
    end if;
    return _mindful.consolidation_work(coalesce(all_unread, false), max_tenants);
end
$$;
comment on function consolidation_run(boolean, integer) is
'Runs memory_consolidate for all tenants that are due if an administrator calls it, else for the caller''s tenant if it is due, and returns the number of runs. At most max_tenants (1 to 100000) tenants are read, the longest waiting first. A failure for one tenant is a warning. Error 22023 (max_tenants). Example: select consolidation_run(all_unread => true);';

create function consolidation_schedule(schedule text default '30 2 * * *') returns boolean
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform _mindful.writable();
    perform _mindful.cron_schedule('mindful_consolidation', case when schedule is not null then '*/5 * * * *' end,
        'select mindful.consolidation_run()');
    return _mindful.cron_schedule('mindful_consolidation_nightly', schedule,
        'select mindful.consolidation_run(all_unread => true, max_tenants => 100000)');
end
$$;
comment on function consolidation_schedule(text) is
'Schedules consolidation_run with pg_cron as the calling role, and returns whether it is scheduled. Requested runs start every five minutes; all unread texts are read at the schedule, the five fields of crontab. NULL removes both jobs. Errors: 55000 (pg_cron is not installed), 42501 (no right to the schema cron). Example: select consolidation_schedule(''30 2 * * *'');';

create function _mindful.tuning_work(max_tenants integer) returns integer
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    return (
        select count(*)
        from _mindful.tenants_run(array(
            select o.tenant
            from mindful.outcome o
            left join (select a.tenant, max(a.last_outcome) as seen from mindful.tuning a group by a.tenant) a on a.tenant = o.tenant
            where o.id > coalesce(a.seen, 0)
            group by o.tenant having count(*) >= 30
            order by min(o.id) limit max_tenants
        ), 'confidence_tune', 'select to_jsonb(mindful.confidence_tune())', 'tuning')
    );
end
$$;
comment on function _mindful.tuning_work(integer) is
'Runs confidence_tune for each tenant whose rows the current role may read and that has 30 new labels; returns the number of tenants. A failure for one tenant is a warning.';

create function _mindful.tuning_run_all(max_tenants integer) returns integer
language sql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
set mindful.tenant = ''
set lock_timeout = '1s'
as $$
    select _mindful.tuning_work(max_tenants);
$$;
comment on function _mindful.tuning_run_all(integer) is
'Runs confidence_tune for all tenants that have 30 new labels. It runs with the owner''s rights and returns a count only; for administrators.';

create function tuning_run(max_tenants integer default 10) returns integer
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform _mindful.writable();
    perform _mindful.integer_argument('max_tenants', max_tenants, 1, 100000);
    if pg_has_role(current_user, 'mindful_admin', 'usage') then
        return _mindful.tuning_run_all(max_tenants);
    end if;
    return _mindful.tuning_work(max_tenants);
end
$$;
comment on function tuning_run(integer) is
'Runs confidence_tune for all tenants that are due if an administrator calls it, else for the caller''s tenant if it is due. A tenant is due if it has at least 30 labels newer than its last confidence_tune. At most max_tenants (1 to 100000) tenants are tuned. Returns their number. A failure for one tenant is a warning. Error 22023 (max_tenants).';

create function tuning_schedule(schedule text default '30 3 * * *') returns boolean
language sql volatile parallel unsafe security invoker
begin atomic
    select _mindful.writable();
    select _mindful.cron_schedule('mindful_tuning', schedule, 'select mindful.tuning_run(max_tenants => 100000)');
end;
comment on function tuning_schedule(text) is
'Schedules tuning_run with pg_cron as the calling role, and returns whether it is scheduled. The schedule has the five fields of crontab; NULL removes the job. Errors: 55000 (pg_cron is not installed), 42501 (no right to the schema cron). Example: select tuning_schedule(''30 3 * * *'');';
