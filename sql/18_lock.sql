-- Any role may take advisory locks, whatever their keys, and pg_locks shows those that are held. So a lock is a row here
-- that is being inserted: whoever inserts the same key waits until the transaction ends, and no role reaches another
-- tenant's keys. The row is deleted as soon as it is there, so no key is ever seen, and a transaction may take it again.
create unlogged table tenant_lock (
    tenant text not null default _tenant(),
    task text not null check (octet_length(task) <= 200),
    primary key (tenant, task)
);
comment on table tenant_lock is 'What a transaction keeps others of its tenant from doing until it ends; empty to every reader.';
alter table tenant_lock enable row level security, force row level security;
create policy own on tenant_lock using (tenant = (select mindful._tenant())) with check (tenant = (select mindful._tenant_claimed()));

create function _lock_run() returns trigger
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    delete from mindful.tenant_lock l where l.tenant = new.tenant and l.task = new.task;
    return null;
end
$$;
comment on function _lock_run() is 'Deletes a lock''s row. It runs with the owner''s rights, as no role may delete from a table.';
create trigger lock_run after insert on tenant_lock for each row execute function _lock_run();

create function _lock(task text) returns void
language sql volatile parallel unsafe security invoker
begin atomic
    insert into mindful.tenant_lock (task) values (task);
end;
comment on function _lock(text) is 'Waits until no other transaction of the tenant does this, and keeps others from it until this one ends.';

create function _lock_try(task text) returns boolean
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
set lock_timeout = '20ms'
as $$
begin
    perform mindful._lock(task);
    return true;
exception when lock_not_available then
    return false;
end
$$;
comment on function _lock_try(text) is 'Like _lock, but returns false where another transaction of the tenant does this.';
