-- Advisory locks are unsuitable: any role may take any key, and pg_locks shows the keys. Here a lock is an uncommitted
-- insertion of a row: a second insertion of its key waits until the first transaction ends, and row-level security keeps
-- tenants apart. A trigger deletes the row at once, so no key is visible and a transaction may take the lock again.
create unlogged table tenant_lock (
    tenant text not null default _mindful.tenant(),
    task text not null check (octet_length(task) <= 200),
    primary key (tenant, task)
);
comment on table tenant_lock is
'Locks of a tenant, held until the end of the transaction that inserts the row. The table looks empty to every reader.';
alter table tenant_lock enable row level security, force row level security;
create policy own on tenant_lock using (tenant = (select _mindful.tenant())) with check (tenant = (select _mindful.tenant_claimed()));

create function _mindful.lock_run() returns trigger
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    delete from mindful.tenant_lock l where l.tenant = new.tenant and l.task = new.task;
    return null;
end
$$;
comment on function _mindful.lock_run() is
'Deletes a lock''s row. It runs with the owner''s rights, because no role may delete from a table.';
create trigger lock_run after insert on tenant_lock for each row execute function _mindful.lock_run();

create function _mindful.lock(task text) returns void
language sql volatile parallel unsafe security invoker
begin atomic
    insert into mindful.tenant_lock (task) values (task);
end;
comment on function _mindful.lock(text) is
'Takes the tenant''s lock for a task until the transaction ends, and waits while another transaction holds it.';

create function _mindful.lock_try(task text) returns boolean
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
set lock_timeout = '20ms'
as $$
begin
    perform _mindful.lock(task);
    return true;
exception when lock_not_available then
    return false;
end
$$;
comment on function _mindful.lock_try(text) is
'Takes a lock as _mindful.lock does, and returns false if another transaction holds it for more than 20 ms.';

create function _mindful.lock_briefly(what text, command text) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
set lock_timeout = '100ms'
as $$
declare
    give_up timestamptz := clock_timestamp() + interval '5 seconds';
begin
    loop
        begin
            execute command;
            return;
        exception when lock_not_available then
            if clock_timestamp() > give_up then
                perform _mindful.raise('55P03', format('another transaction uses %s', what),
                    'Wait for open transactions to end, or end them (see pg_stat_activity), and try again.');
            end if;
        end;
        perform pg_sleep(0.2);
    end loop;
end
$$;
comment on function _mindful.lock_briefly(text, text) is
'Executes a command that takes locks, such as LOCK TABLE. All later statements of other transactions queue behind a lock that waits, so it waits for 100 ms at a time and leaves the queue for 200 ms. Error 55P03: a lock was not available for 5 seconds.';

create function _mindful.tenants_run(tenants text[], what text, command text, task text default null) returns setof jsonb
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    outer_tenant text := _mindful.tenant_switch('');
    next_tenant text;
    result jsonb;
begin
    foreach next_tenant in array tenants loop
        begin
            perform _mindful.tenant_switch(next_tenant);
            if task is null or _mindful.lock_try(task) then
                execute command into result;
                return next result;
            end if;
        exception when others then  -- A cancel is not among them. One tenant's error must not stop the others.
            raise warning 'mindful: % of tenant % failed: %', what, next_tenant, sqlerrm;
        end;
    end loop;
    perform _mindful.tenant_switch(outer_tenant);
end
$$;
comment on function _mindful.tenants_run(text[], text, text, text) is
'Runs a command as each tenant and returns the jsonb that each command returns. A failure is rolled back and raises a warning, which names the work (what). With a task, tenants whose lock for it another transaction holds are left out.';
