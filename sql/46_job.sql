insert into setting_definition (key, type, low, high, scopes, initial, description, choices) values
    ('embedding_mode', 'text', null, null, '{global,user}', '"sync"',
        'When memories are embedded: sync is within the statement that writes them, async later, by a worker.', '{sync,async}'),
    ('job_attempts', 'integer', 1, 100, '{global}', '5',
        'How often an embedding is tried before its job becomes a dead letter.', null),
    ('job_retry_s', 'integer', 0, 3600, '{global}', '10',
        'How many seconds after its first failure a job is tried again; twice as many after each further one, up to 3600.', null);

-- The text's hash is part of the key: a changed text makes a job of its own, and its writer never waits for a worker
-- that has the old one.
create table embedding_job (
    tenant text not null default _tenant(),
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
comment on table embedding_job is 'Memories that wait to be embedded. A worker holds a job by its row lock, which ends with the worker.';
comment on column embedding_job.content_hash is 'The text that is to be embedded; a job whose memory has another one by now is dropped.';
comment on column embedding_job.attempts is 'How often it failed. A cancelled worker is no failure.';

create table embedding_job_failed (
    tenant text not null default _tenant(),
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
comment on table embedding_job_failed is 'Dead letters: jobs that failed as often as the setting job_attempts allows. job_retry() puts them back.';

-- Whoever may not use a model cannot have the server run it either.
alter table embedding_job enable row level security, force row level security;
create policy own on embedding_job using (tenant = (select mindful._tenant()))
    with check (tenant = (select mindful._tenant_claimed()) and model in (select m.name from mindful.model m where m.kind = 'embedder'));
select pg_catalog.pg_extension_config_dump('mindful.embedding_job', '');
alter table embedding_job_failed enable row level security, force row level security;
create policy own on embedding_job_failed using (tenant = (select mindful._tenant()))
    with check (tenant = (select mindful._tenant_claimed()) and model in (select m.name from mindful.model m where m.kind = 'embedder'));
select pg_catalog.pg_extension_config_dump('mindful.embedding_job_failed', '');

create function _embedding_mode() returns text
language sql stable parallel safe security invoker
begin atomic
    select coalesce(
        nullif(pg_catalog.current_setting('mindful.embedding_mode', true), ''),
        mindful.setting_get('embedding_mode') #>> '{}'
    );
end;
comment on function _embedding_mode() is
'When what is written now is to be embedded: as the attached table that it comes from says, else the setting embedding_mode.';

create function _memory_enqueue() returns trigger
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    embedder text := (select f.name from mindful._model_find('embedder', null) f);
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
            on conflict do nothing', mindful._embedding_table(embedder)) using embedder;
    end if;
    get diagnostics enqueued = row_count;
    if enqueued > 0 then
        notify mindful_job;
    end if;
    return null;
end
$$;
comment on function _memory_enqueue() is
'Enqueues the new and changed rows of a statement, and tells the workers that listen on the channel mindful_job.';

-- pg_dump's scripts turn row_security off: restored rows come with their embeddings.
create trigger embed_inserted after insert on memory referencing new table as new_rows for each statement
    when ((pg_catalog.current_setting('row_security') = 'on' or not mindful._is_restore()) and mindful._embedding_mode() <> 'async')
    execute function _memory_embed();
create trigger embed_updated after update on memory referencing new table as new_rows for each statement
    when ((pg_catalog.current_setting('row_security') = 'on' or not mindful._is_restore()) and mindful._embedding_mode() <> 'async')
    execute function _memory_embed();
create trigger enqueue_inserted after insert on memory referencing new table as new_rows for each statement
    when ((pg_catalog.current_setting('row_security') = 'on' or not mindful._is_restore()) and mindful._embedding_mode() = 'async')
    execute function _memory_enqueue();
create trigger enqueue_updated after update on memory referencing new table as new_rows for each statement
    when ((pg_catalog.current_setting('row_security') = 'on' or not mindful._is_restore()) and mindful._embedding_mode() = 'async')
    execute function _memory_enqueue();
-- By row, because a subscription's worker fires no other triggers.
create trigger enqueue_replicated after insert or update of content on memory for each row
    when (pg_catalog.current_setting('row_security') = 'on' or not mindful._is_restore())
    execute function _memory_enqueue();
alter table memory disable trigger enqueue_replicated;

create function job_replica_set(enabled boolean default true) returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform mindful._writable();
    if enabled is null then
        perform mindful._raise('22004', 'enabled is null', 'Give true or false.');
    elsif enabled then
        alter table mindful.memory enable replica trigger enqueue_replicated;
    else
        alter table mindful.memory disable trigger enqueue_replicated;
    end if;
end
$$;
comment on function job_replica_set(boolean) is
'Says whether memories that logical replication, or a session with session_replication_role = replica, writes here are enqueued as they come; embedding_sweep() finds them in any case. No model runs in a subscription''s worker. It is off at first, and a restored dump has it off. For administrators. Error 22004: NULL.';

create function _job_take(max_jobs integer)
returns table (tenant text, id bigint, model text, content_hash text, content text)
language sql volatile parallel unsafe security invoker
begin atomic
    -- Tenants are found one by one through the index, and share a batch: nobody waits behind another's million.
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
comment on function _job_take(integer) is
'Locks jobs that are due until the transaction ends, of all tenants that the caller reaches in equal shares, and returns them with their texts; NULL is that of a memory which has another text by now.';

create function _job_store(
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
    outer_tenant text := coalesce(current_setting('mindful.tenant', true), '');
begin
    -- A memory that somebody is changing now is left out: waiting for him could end in a deadlock.
    execute format('
        with current as (
            select m.tenant, m.id, mindful._vector(k.embedding) as embedding, m.content_hash
            from rows from (unnest($2), unnest($3), unnest($4)) k (id, content_hash, embedding)
            join mindful.memory m on m.tenant = $1 and m.id = k.id and m.content_hash = k.content_hash
            for share of m skip locked
        )
        insert into mindful.%I (tenant, id, embedding, content_hash)
        select tenant, id, embedding, content_hash from current
        on conflict (tenant, id) do update set embedding = excluded.embedding, content_hash = excluded.content_hash',
        mindful._embedding_table(model)) using tenant, ids, hashes, embeddings;
    get diagnostics stored = row_count;
    perform set_config('mindful.tenant', tenant, true);  -- whose settings hold
    if mindful.setting_get('memory_duplicates') = '"join_near"'
        and model = (select f.name from mindful._model_find('embedder', null) f)
    then
        perform mindful._memory_supersede(ids);
    end if;
    perform set_config('mindful.tenant', outer_tenant, true);
exception when others then  -- which a cancel is not
    error := sqlerrm;
end
$$;
comment on function _job_store(text, text, bigint[], text[], text[]) is
'Stores embeddings of memories of one tenant, as far as they still have the texts of these hashes. Returns how many, or the error for which none is stored.';

create function _job_settle(model text, tenants text[], ids bigint[], hashes text[]) returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    settled bigint;
begin
    execute format('
        select coalesce(sum(d.deleted), 0)
        from (
            select mindful._delete(''embedding_job'', jsonb_agg(to_jsonb(j) - ''tenant''), j.tenant) as deleted
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
        ) d', mindful._embedding_table(model)) using model, tenants, ids, hashes into settled;
    update mindful.embedding_job j set run_after = clock_timestamp() + interval '1 second'
    from rows from (unnest(tenants), unnest(ids), unnest(hashes)) k (tenant, id, content_hash)
    where j.tenant = k.tenant and j.id = k.id and j.model = _job_settle.model and j.content_hash = k.content_hash;
    return settled;
end
$$;
comment on function _job_settle(text, text[], bigint[], text[]) is
'Removes jobs that are done, or whose text is gone, and returns how many; the memories of the others are being changed, and are looked at a second later.';

create function _job_fail(model text, tenant text, ids bigint[], hashes text[], error text) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
set lock_timeout = '100ms'
as $$
#variable_conflict use_column
declare
    most integer := mindful.setting_get('job_attempts') #>> '{}';
    retry_s integer := mindful.setting_get('job_retry_s') #>> '{}';
    died bigint;
begin
    update mindful.embedding_job j
    set attempts = j.attempts + 1, last_error = left(error, 1000),
        run_after = clock_timestamp() + make_interval(secs => least(retry_s * 2.0 ^ least(j.attempts, 30), 3600))
    from rows from (unnest(ids), unnest(hashes)) k (id, content_hash)
    where j.tenant = _job_fail.tenant and j.id = k.id and j.model = _job_fail.model and j.content_hash = k.content_hash;
    with dead as (
        insert into mindful.embedding_job_failed (tenant, id, model, content_hash, attempts, error, enqueued_at)
        select j.tenant, j.id, j.model, j.content_hash, j.attempts, j.last_error, j.enqueued_at
        from rows from (unnest(ids), unnest(hashes)) k (id, content_hash)
        join mindful.embedding_job j on j.tenant = _job_fail.tenant and j.id = k.id and j.model = _job_fail.model
            and j.content_hash = k.content_hash and j.attempts >= most
        on conflict (tenant, id, model, content_hash) do update
            set attempts = excluded.attempts, error = excluded.error, failed_at = excluded.failed_at
        returning id, model, content_hash
    )
    select mindful._delete('embedding_job', jsonb_agg(to_jsonb(d)), _job_fail.tenant) into died from dead d;
exception when lock_not_available then
    -- A tenant that holds a dead letter of his own delays nobody but himself.
    update mindful.embedding_job j set run_after = clock_timestamp() + interval '1 hour', last_error = left(error, 1000)
    from rows from (unnest(ids), unnest(hashes)) k (id, content_hash)
    where j.tenant = _job_fail.tenant and j.id = k.id and j.model = _job_fail.model and j.content_hash = k.content_hash;
end
$$;
comment on function _job_fail(text, text, bigint[], text[], text) is
'Counts an attempt of jobs of one tenant: they are tried again later and later, and at last become dead letters.';

create type job_outcome as (
    embedded integer,
    dropped integer,
    failed integer
);
comment on type job_outcome is 'What a worker did: embeddings stored, jobs there was nothing left to do for, attempts that failed.';

create function _job_run_own(max_jobs integer, max_seconds real) returns job_outcome
language plpython3u volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.job import job_run_own
return job_run_own(max_jobs, max_seconds)
$python$;
comment on function _job_run_own(integer, real) is 'job_run for the caller''s own jobs.';

create function _job_run_all(max_jobs integer, max_seconds real) returns job_outcome
language plpython3u volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.job import job_run_all
return job_run_all(max_jobs, max_seconds)
$python$;
comment on function _job_run_all(integer, real) is
'job_run for the jobs of all tenants. It runs as the extension''s owner, above row-level security, but tells nothing of what it reads.';

create function job_run(max_jobs integer default 1000, max_seconds real default 60) returns job_outcome
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform mindful._writable();
    perform mindful._integer_argument('max_jobs', max_jobs, 1, 1000000);
    if max_seconds is null then
        perform mindful._raise('22004', 'max_seconds is null', 'Give a number of seconds.');
    elsif not max_seconds between 0 and 86400 then
        perform mindful._raise('22023', format('max_seconds is %s', max_seconds), 'It must be between 0 and 86400.');
    elsif pg_has_role(current_user, 'mindful_admin', 'usage') then
        return mindful._job_run_all(max_jobs, max_seconds);
    end if;
    return mindful._job_run_own(max_jobs, max_seconds);
end
$$;
comment on function job_run(integer, real) is
'Embeds memories that wait in embedding_job, up to max_jobs of them or until max_seconds have passed (a batch that has begun is ended), and returns what was done: embedded, dropped (the text was embedded already, or has changed), failed. An administrator''s call works for all tenants in equal shares, a user''s for himself. All is done in the caller''s transaction: job_worker commits in between. Any number of workers may run at once; the jobs of one that is killed go to the next. A text that fails does not keep others of its batch from being embedded; it is tried again after job_retry_s seconds, each time twice as late, and after job_attempts attempts becomes a dead letter. Errors: 22004, 22023.';

create procedure job_worker(max_seconds real default 60, idle boolean default false)
language plpython3u security invoker
as $python$
from mindful.job import job_worker
return job_worker(max_seconds, idle)
$python$;
comment on procedure job_worker(real, boolean) is
'Runs job_run() batch by batch, each in a transaction of its own, until no job is due or max_seconds have passed; with idle it waits for jobs all that time. Call it outside of any transaction. Errors: 22004, 22023, 55000 (within a transaction).';

create function _job_retry(model text) returns bigint
language sql volatile parallel unsafe security invoker
begin atomic
    with back as materialized (
        select f.tenant, f.id, f.model, f.content_hash from mindful.embedding_job_failed f
        where _job_retry.model is null or f.model = _job_retry.model
        for update
    ),
    enqueued as (
        insert into mindful.embedding_job (tenant, id, model, content_hash)
        select b.tenant, b.id, b.model, b.content_hash from back b
        on conflict do nothing
    )
    select coalesce(pg_catalog.sum(d.deleted), 0)::bigint
    from (
        select mindful._delete('embedding_job_failed', pg_catalog.jsonb_agg(pg_catalog.to_jsonb(b) - 'tenant'), b.tenant) as deleted
        from back b group by b.tenant
    ) d;
end;
comment on function _job_retry(text) is 'Puts the dead letters that the caller reaches back into the queue.';

create function _job_retry_all(model text) returns bigint
language sql volatile parallel unsafe security definer
begin atomic
    select mindful._job_retry(model);
end;
comment on function _job_retry_all(text) is 'Puts the dead letters of all tenants back into the queue.';

create function job_retry(model text default null) returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform mindful._writable();
    if model is not null then
        perform mindful._embedder(model);
    end if;
    if pg_has_role(current_user, 'mindful_admin', 'usage') then
        return mindful._job_retry_all(model);
    end if;
    return mindful._job_retry(model);
end
$$;
comment on function job_retry(text) is
'Puts dead letters (embedding_job_failed), those of one model or of all (NULL), back into the queue, with no attempt counted, and returns how many: the caller''s own, or an administrator''s call those of all tenants. Error 42704: there is no such embedder.';

create function _cron_schedule(job text, schedule text, command text) returns boolean
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    if not exists (select from pg_extension e where e.extname = 'pg_cron') then
        perform mindful._raise('55000', 'the extension pg_cron is not installed in this database',
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
comment on function _cron_schedule(text, text, text) is
'Has pg_cron run a command at a schedule (crontab''s five fields; NULL: no longer), as the calling role, and returns whether it does now. Errors: 55000 (no pg_cron), 42501 (no right to the schema cron).';

create function job_schedule(schedule text default '* * * * *') returns boolean
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform mindful._writable();
    -- Never idle: while a job runs, pg_cron's launcher answers no barrier, and every DROP DATABASE waits for it.
    perform mindful._cron_schedule('mindful_worker', schedule, 'call mindful.job_worker(max_seconds => 55)');
    perform mindful._cron_schedule('mindful_sweep', case when schedule is not null then '17 * * * *' end,
        'select mindful.embedding_sweep()');
    return mindful._cron_schedule('mindful_retention', case when schedule is not null then '47 4 * * *' end,
        'select mindful.retention_work()');
end
$$;
comment on function job_schedule(text) is
'Has pg_cron run a worker at a schedule (crontab''s five fields; NULL ends it), each until nothing is left or for 55 seconds, a sweep every hour, and retention_work every day, as the calling role: an administrator''s works for all tenants. Returns whether they are scheduled now. Errors: 55000 (no pg_cron), 42501 (no right to the schema cron).';
