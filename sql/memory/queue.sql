insert into setting_definition (key, type, low, high, scopes, initial, description, choices) values
    ('embedding_mode', 'text', null, null, '{global,user}', '"sync"',
        'Time at which memories are embedded. sync: within the statement that writes them. async: later, by a worker.', '{sync,async}'),
    ('embedding_attempts', 'integer', 1, 100, '{global}', '5',
        'Number of failed attempts after which an embedding job moves to embedding_job_failed.', null),
    ('embedding_retry_s', 'integer', 0, 3600, '{global}', '10',
        'Delay in seconds of an embedding job after its first failure. It doubles with each further failure, up to 3600.', null);

-- The text's hash is part of the key: a changed text makes a job of its own, and its writer never waits for a worker
-- that has the old one.
create table embedding_job (
    tenant text not null default _mindful.tenant(),
    id bigint not null,
    model text not null references model on delete cascade,
    content_hash text not null,
    attempts integer not null default 0 check (attempts >= 0),
    run_after timestamptz not null default now(),
    enqueued_at timestamptz not null default now(),
    last_error text,
    primary key (tenant, id, model, content_hash),
    foreign key (tenant, id) references memory on delete cascade
);
create index on embedding_job (tenant, run_after) where run_after is not null;
comment on table embedding_job is
'Memories that wait for an embedding. A worker locks the rows of its jobs; the locks end with its transaction.';
comment on column embedding_job.content_hash is 'The text that is to be embedded; a job whose memory has another one by now is dropped.';
comment on column embedding_job.attempts is
'Number of failed attempts. A cancelled worker does not count.';

create table embedding_job_failed (
    tenant text not null default _mindful.tenant(),
    id bigint not null,
    model text not null references model on delete cascade,
    content_hash text not null,
    attempts integer not null,
    error text not null,
    enqueued_at timestamptz not null,
    failed_at timestamptz not null default now(),
    primary key (tenant, id, model, content_hash),
    foreign key (tenant, id) references memory on delete cascade
);
comment on table embedding_job_failed is 'Dead letters: jobs that failed as often as the setting embedding_attempts allows. embedding_retry() puts them back.';

-- A role that may not use a model cannot queue jobs for it.
alter table embedding_job enable row level security, force row level security;
create policy own on embedding_job using (tenant = (select _mindful.tenant()))
    with check (tenant = (select _mindful.tenant_claimed()) and model in (select m.name from mindful.model m where m.kind = 'embedder'));
select pg_catalog.pg_extension_config_dump('mindful.embedding_job', '');
alter table embedding_job_failed enable row level security, force row level security;
create policy own on embedding_job_failed using (tenant = (select _mindful.tenant()))
    with check (tenant = (select _mindful.tenant_claimed()) and model in (select m.name from mindful.model m where m.kind = 'embedder'));
select pg_catalog.pg_extension_config_dump('mindful.embedding_job_failed', '');

create function _mindful.embedding_mode() returns text
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    return coalesce(
        nullif(current_setting('mindful.embedding_mode', true), ''),
        mindful.setting_get('embedding_mode') #>> '{}'
    );
end
$$;
comment on function _mindful.embedding_mode() is
'When what is written now is to be embedded: as the attached table that it comes from says, else the setting embedding_mode.';

create function _mindful.memory_enqueue() returns trigger
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    embedder text := (select f.name from _mindful.model_find('embedder', null) f);
    enqueued bigint;
begin
    if embedder is null then
        return null;
    elsif tg_level = 'ROW' then
        insert into mindful.embedding_job (tenant, id, model, content_hash)
        values (new.tenant, new.id, embedder, new.content_hash)
        on conflict do nothing;
    else
        execute format('
            insert into mindful.embedding_job (tenant, id, model, content_hash)
            select n.tenant, n.id, $1, n.content_hash
            from new_rows n
            where not exists (
                select from mindful.%I e
                where e.tenant = n.tenant and e.id = n.id and e.content_hash = n.content_hash
            )
            on conflict do nothing', _mindful.embedding_table(embedder)) using embedder;
    end if;
    get diagnostics enqueued = row_count;
    if enqueued > 0 then
        notify mindful_job;
    end if;
    return null;
end
$$;
comment on function _mindful.memory_enqueue() is
'Enqueues the new and changed rows of a statement, and notifies workers on the channel mindful_job.';

-- pg_dump's scripts turn row_security off: restored rows come with their embeddings.
create trigger embed_inserted after insert on memory referencing new table as new_rows for each statement
    when ((pg_catalog.current_setting('row_security') = 'on' or not _mindful.is_restore()) and _mindful.embedding_mode() <> 'async')
    execute function _mindful.memory_embed();
create trigger embed_updated after update on memory referencing new table as new_rows for each statement
    when ((pg_catalog.current_setting('row_security') = 'on' or not _mindful.is_restore()) and _mindful.embedding_mode() <> 'async')
    execute function _mindful.memory_embed();
create trigger enqueue_inserted after insert on memory referencing new table as new_rows for each statement
    when ((pg_catalog.current_setting('row_security') = 'on' or not _mindful.is_restore()) and _mindful.embedding_mode() = 'async')
    execute function _mindful.memory_enqueue();
create trigger enqueue_updated after update on memory referencing new table as new_rows for each statement
    when ((pg_catalog.current_setting('row_security') = 'on' or not _mindful.is_restore()) and _mindful.embedding_mode() = 'async')
    execute function _mindful.memory_enqueue();
-- By row, because a subscription's worker fires no other triggers.
create trigger enqueue_replicated after insert or update of content on memory for each row
    when (pg_catalog.current_setting('row_security') = 'on' or not _mindful.is_restore())
    execute function _mindful.memory_enqueue();
alter table memory disable trigger enqueue_replicated;

create function embedding_replica_set(enabled boolean default true) returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform _mindful.writable();
    if enabled is null then
        perform _mindful.raise('22004', 'enabled is null', 'Give true or false.');
    end if;
    perform _mindful.lock_briefly('the memories', 'lock table mindful.memory in share row exclusive mode');
    if enabled then
        alter table mindful.memory enable replica trigger enqueue_replicated;
    else
        alter table mindful.memory disable trigger enqueue_replicated;
    end if;
end
$$;
comment on function embedding_replica_set(boolean) is
'Sets whether memories written by logical replication, or with session_replication_role = replica, are queued at once.
embedding_enqueue finds them in any case. Subscription workers never run a model. It is off initially, and after a restore. For administrators. Errors: 22004 (NULL), 55P03 (open transactions write memories).';

create function _mindful.job_take(max_jobs integer)
returns table (tenant text, id bigint, model text, content_hash text, content text)
language sql volatile parallel unsafe security invoker
begin atomic
    -- A loose index scan finds the tenants. They share a batch, so no tenant waits behind a million jobs of another.
    with recursive queued as (
        (select j.tenant from mindful.embedding_job j order by j.tenant limit 1)
        union all
        select (select j.tenant from mindful.embedding_job j where j.tenant > q.tenant order by j.tenant limit 1)
        from queued q
        where q.tenant is not null
    ),
    due as materialized (
        select q.tenant, greatest(1, max_jobs / pg_catalog.count(*) over ()) as share
        from queued q
        where exists (
            select from mindful.embedding_job j
            where j.tenant = q.tenant and j.run_after <= (select pg_catalog.clock_timestamp())
        )
        order by pg_catalog.random()
        limit max_jobs
    )
    select j.tenant, j.id, j.model, j.content_hash, j.content
    from due d
    cross join lateral (
        select j.tenant, j.id, j.model, j.content_hash, case when m.content_hash = j.content_hash then m.content end as content
        from mindful.embedding_job j
        join mindful.memory m on m.tenant = j.tenant and m.id = j.id
        where j.tenant = d.tenant and j.run_after <= (select pg_catalog.clock_timestamp())
        order by j.run_after
        limit d.share
        -- The memory too, though its text may change: who deletes it waits for the job's end, not across it.
        for update of j skip locked
        for key share of m skip locked
    ) j;
end;
comment on function _mindful.job_take(integer) is
'Locks due jobs until the transaction ends, and returns them with their texts. All tenants that the caller reaches have equal shares. The text is NULL if the memory has another one by now.';

create function _mindful.job_store(
    model text,
    tenant text,
    ids bigint[],
    hashes text[],
    embeddings text[],
    out stored integer,
    out error text
)
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
set lock_timeout = '100ms'
as $$
declare
    outer_tenant text;
begin
    -- Memories that another transaction is changing are skipped: waiting could end in a deadlock.
    execute format('
        with current as (
            select m.tenant, m.id, _mindful.vector(k.embedding) as embedding, m.content_hash
            from rows from (unnest($2), unnest($3), unnest($4)) k (id, content_hash, embedding)
            join mindful.memory m on m.tenant = $1 and m.id = k.id and m.content_hash = k.content_hash
            for share of m skip locked
        )
        insert into mindful.%I (tenant, id, embedding, content_hash)
        select tenant, id, embedding, content_hash from current
        on conflict (tenant, id) do update set embedding = excluded.embedding, content_hash = excluded.content_hash',
        _mindful.embedding_table(model)) using tenant, ids, hashes, embeddings;
    get diagnostics stored = row_count;
    outer_tenant := _mindful.tenant_switch(tenant);  -- whose settings hold
    if mindful.setting_get('memory_duplicates') = '"join_near"'
        and model = (select f.name from _mindful.model_find('embedder', null) f)
    then
        perform _mindful.memory_supersede(ids);
    end if;
    perform _mindful.tenant_switch(outer_tenant);
exception when others then  -- which a cancel is not
    error := sqlerrm;
end
$$;
comment on function _mindful.job_store(text, text, bigint[], text[], text[]) is
'Stores embeddings of memories of one tenant, as far as they still have the texts of these hashes. Returns how many, or the error for which none is stored.';

create function _mindful.job_settle(model text, tenants text[], ids bigint[], hashes text[]) returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    settled bigint;
begin
    execute format('
        select coalesce(sum(d.deleted), 0)
        from (
            select _mindful.delete(''embedding_job'', jsonb_agg(to_jsonb(j) - ''tenant''), j.tenant) as deleted
            from (
                select j.tenant, j.id, j.model, j.content_hash
                from rows from (unnest($2), unnest($3), unnest($4)) k (tenant, id, content_hash)
                join mindful.embedding_job j on j.tenant = k.tenant and j.id = k.id and j.model = $1
                    and j.content_hash = k.content_hash
                where exists (select from mindful.%I e
                        where e.tenant = k.tenant and e.id = k.id and e.content_hash = k.content_hash)
                    or not exists (select from mindful.memory m
                        where m.tenant = k.tenant and m.id = k.id and m.content_hash = k.content_hash)
                for update of j
            ) j
            group by j.tenant
        ) d', _mindful.embedding_table(model)) using model, tenants, ids, hashes into settled;
    update mindful.embedding_job j set run_after = clock_timestamp() + interval '1 second'
    from rows from (unnest(tenants), unnest(ids), unnest(hashes)) k (tenant, id, content_hash)
    where j.tenant = k.tenant and j.id = k.id and j.model = job_settle.model and j.content_hash = k.content_hash;
    return settled;
end
$$;
comment on function _mindful.job_settle(text, text[], bigint[], text[]) is
'Removes jobs that are done or whose text is gone, and returns their number. The memories of the others are being changed, so these jobs are due a second later.';

create function _mindful.job_fail(model text, tenant text, ids bigint[], hashes text[], error text) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
set lock_timeout = '100ms'
as $$
#variable_conflict use_column
declare
    most integer := mindful.setting_get('embedding_attempts') #>> '{}';
    retry_s integer := mindful.setting_get('embedding_retry_s') #>> '{}';
    died bigint;
begin
    update mindful.embedding_job j
    set attempts = j.attempts + 1, last_error = left(error, 1000),
        run_after = clock_timestamp() + make_interval(secs => least(retry_s * 2.0 ^ least(j.attempts, 30), 3600))
    from rows from (unnest(ids), unnest(hashes)) k (id, content_hash)
    where j.tenant = job_fail.tenant and j.id = k.id and j.model = job_fail.model and j.content_hash = k.content_hash;
    with dead as (
        insert into mindful.embedding_job_failed (tenant, id, model, content_hash, attempts, error, enqueued_at)
        select j.tenant, j.id, j.model, j.content_hash, j.attempts, j.last_error, j.enqueued_at
        from rows from (unnest(ids), unnest(hashes)) k (id, content_hash)
        join mindful.embedding_job j on j.tenant = job_fail.tenant and j.id = k.id and j.model = job_fail.model
            and j.content_hash = k.content_hash and j.attempts >= most
        on conflict (tenant, id, model, content_hash) do update
            set attempts = excluded.attempts, error = excluded.error, failed_at = excluded.failed_at
        returning id, model, content_hash
    )
    select _mindful.delete('embedding_job', jsonb_agg(to_jsonb(d)), job_fail.tenant) into died from dead d;
exception when lock_not_available then
    -- A tenant that has locked its own failed jobs delays its own jobs only.
    update mindful.embedding_job j set run_after = clock_timestamp() + interval '1 hour', last_error = left(error, 1000)
    from rows from (unnest(ids), unnest(hashes)) k (id, content_hash)
    where j.tenant = job_fail.tenant and j.id = k.id and j.model = job_fail.model and j.content_hash = k.content_hash;
end
$$;
comment on function _mindful.job_fail(text, text, bigint[], text[], text) is
'Counts an attempt of jobs of one tenant: they are tried again later and later, and at last become dead letters.';

create type embedding_outcome as (
    embedded integer,
    dropped integer,
    failed integer
);
comment on type embedding_outcome is
'Work of a worker: embeddings stored, jobs dropped, attempts that failed.';

create function _mindful.job_run_own(max_jobs integer, max_seconds real) returns embedding_outcome
language plpython3u volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.memory.queue import job_run_own
return job_run_own(max_jobs, max_seconds)
$python$;
comment on function _mindful.job_run_own(integer, real) is 'embedding_run for the caller''s own jobs.';

create function _mindful.job_run_all(max_jobs integer, max_seconds real) returns embedding_outcome
language plpython3u volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
set mindful.tenant = ''
as $python$
from mindful.memory.queue import job_run_all
return job_run_all(max_jobs, max_seconds)
$python$;
comment on function _mindful.job_run_all(integer, real) is
'Runs embedding_run for the jobs of all tenants, as the extension''s owner, who bypasses row-level security. It returns counts only.';

create function embedding_run(max_jobs integer default 1000, max_seconds real default 60) returns embedding_outcome
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform _mindful.writable();
    perform _mindful.integer_argument('max_jobs', max_jobs, 1, 1000000);
    if max_seconds is null then
        perform _mindful.raise('22004', 'max_seconds is null', 'Give a number of seconds.');
    elsif not max_seconds between 0 and 86400 then
        perform _mindful.raise('22023', format('max_seconds is %s', max_seconds), 'It must be between 0 and 86400.');
    elsif pg_has_role(current_user, 'mindful_admin', 'usage') then
        return _mindful.job_run_all(max_jobs, max_seconds);
    end if;
    return _mindful.job_run_own(max_jobs, max_seconds);
end
$$;
comment on function embedding_run(integer, real) is
'Computes embeddings of waiting memories, at most max_jobs or until max_seconds have passed, and returns the counts. A user''s call works for the own tenant, an administrator''s call for all tenants in equal shares. All work is in the caller''s transaction; worker_run commits after each batch. Any number of workers may run.
Errors: 22004, 22023.';

create procedure worker_run(max_seconds real default 60, idle boolean default false)
language plpython3u security invoker
as $python$
from mindful.memory.queue import worker_run
return worker_run(max_seconds, idle)
$python$;
comment on procedure worker_run(real, boolean) is
'Calls embedding_run batch by batch, each in its own transaction, until no job is due or max_seconds have passed.
With idle true, it waits for new jobs until max_seconds have passed. Call it outside of a transaction. Errors: 22004, 22023, 55000 (within a transaction).';

create function _mindful.embedding_retry(model text) returns bigint
language sql volatile parallel unsafe security invoker
begin atomic
    with back as materialized (
        select f.tenant, f.id, f.model, f.content_hash from mindful.embedding_job_failed f
        where embedding_retry.model is null or f.model = embedding_retry.model
        for update skip locked
    ),
    enqueued as (
        insert into mindful.embedding_job (tenant, id, model, content_hash)
        select b.tenant, b.id, b.model, b.content_hash from back b
        on conflict do nothing
    )
    select coalesce(pg_catalog.sum(d.deleted), 0)::bigint
    from (
        select _mindful.delete('embedding_job_failed', pg_catalog.jsonb_agg(pg_catalog.to_jsonb(b) - 'tenant'), b.tenant) as deleted
        from back b group by b.tenant
    ) d;
end;
comment on function _mindful.embedding_retry(text) is 'Puts the dead letters that the caller reaches back into the queue.';

create function _mindful.job_retry_all(model text) returns bigint
language sql volatile parallel unsafe security definer
set mindful.tenant = ''
begin atomic
    select _mindful.embedding_retry(model);
end;
comment on function _mindful.job_retry_all(text) is 'Puts the dead letters of all tenants back into the queue.';

create function embedding_retry(model text default null) returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform _mindful.writable();
    if model is not null then
        perform _mindful.embedder(model);
    end if;
    if pg_has_role(current_user, 'mindful_admin', 'usage') then
        return _mindful.job_retry_all(model);
    end if;
    return _mindful.embedding_retry(model);
end
$$;
comment on function embedding_retry(text) is
'Moves jobs from embedding_job_failed back into the queue, without attempts, and returns their number.
model: only jobs of this embedder (NULL: all). A user''s call works for the own tenant, an administrator''s call for all tenants. Error 42704: no such embedder.';

create function _mindful.cron_schedule(job text, schedule text, command text) returns boolean
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    if not exists (select from pg_extension e where e.extname = 'pg_cron') then
        perform _mindful.raise('55000', 'the extension pg_cron is not installed in this database',
            'Install it, or run the worker: mindful worker.');
    end if;
    if exists (select from cron.job j where j.jobname = job and j.username = current_user) then
        perform cron.unschedule(job);
    end if;
    if schedule is not null then
        perform cron.schedule(job, schedule, command);
    end if;
    return schedule is not null;
end
$$;
comment on function _mindful.cron_schedule(text, text, text) is
'Has pg_cron run a command at a schedule (crontab''s five fields; NULL: no longer), as the calling role, and returns whether it does now. Errors: 55000 (no pg_cron), 42501 (no right to the schema cron).';

create function worker_schedule(schedule text default '* * * * *') returns boolean
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform _mindful.writable();
    -- Never idle: while a job runs, pg_cron's launcher answers no barrier, and every DROP DATABASE waits for it.
    perform _mindful.cron_schedule('mindful_worker', schedule, 'call mindful.worker_run(max_seconds => 55)');
    perform _mindful.cron_schedule('mindful_sweep', case when schedule is not null then '17 * * * *' end,
        'select mindful.embedding_enqueue()');
    return _mindful.cron_schedule('mindful_retention', case when schedule is not null then '47 4 * * *' end,
        'select mindful.retention_run()');
end
$$;
comment on function worker_schedule(text) is
'Has pg_cron run workers as the calling role, and returns whether they are scheduled now.
schedule: five fields of crontab; NULL ends it. Each run of the worker ends after 55 seconds at the latest. embedding_enqueue runs every hour, retention_run every day. If an administrator calls it, they work for all tenants. Errors: 55000 (no pg_cron), 42501 (no privilege on the schema cron).';
