insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('quota_memories', 'integer', 0, 1000000000, '{global}', '0',
        'Largest number of memories of a tenant. 0: no limit.'),
    ('quota_mb', 'integer', 0, 1000000000, '{global}', '0',
        'Largest size in megabytes of content and metadata of a tenant''s memories. 0: no limit.'),
    ('quota_jobs', 'integer', 0, 1000000000, '{global}', '0',
        'Largest number of a tenant''s jobs in embedding_job. 0: no limit.');

create function _mindful.quota_memory() returns trigger
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    most bigint := mindful.setting_get('quota_memories') #>> '{}';
    most_mb bigint := mindful.setting_get('quota_mb') #>> '{}';
    found record;
begin
    -- The server's own work is for all tenants.
    if most = 0 and most_mb = 0 or not row_security_active(tg_relid) then
        return null;
    end if;
    select sum(c.memories) as memories, sum(c.bytes) / 1048576 as mb into found
    from mindful.memory_count c
    where c.tenant = (select _mindful.tenant());
    if tg_op = 'INSERT' and most > 0 and found.memories > most then
        perform _mindful.raise('53400', format('%s memories are more than quota_memories, %s', found.memories, most),
            'Forget some with memory_forget or memory_prune, or have an administrator raise the setting quota_memories.');
    elsif most_mb > 0 and found.mb > most_mb then
        if tg_op = 'UPDATE' then  -- What makes memories smaller is not refused.
            if (select sum(_mindful.memory_bytes(n.content, n.metadata)) from new_rows n)
                <= (select sum(_mindful.memory_bytes(o.content, o.metadata)) from old_rows o)
            then
                return null;
            end if;
        end if;
        perform _mindful.raise('53400', format('memories of %s MB are more than quota_mb, %s', round(found.mb, 3), most_mb),
            'Forget some with memory_forget or memory_prune, or have an administrator raise the setting quota_mb.');
    end if;
    return null;
end
$$;
comment on function _mindful.quota_memory() is 'Raises 53400 where a tenant''s memories exceed the settings quota_memories or quota_mb.';
-- After index_inserted and index_updated, which count: triggers fire by name.
create trigger quota_inserted after insert on memory
    for each statement when (pg_catalog.current_setting('row_security') = 'on' or not _mindful.is_restore()) execute function _mindful.quota_memory();
create trigger quota_updated after update on memory referencing old table as old_rows new table as new_rows
    for each statement when (pg_catalog.current_setting('row_security') = 'on' or not _mindful.is_restore()) execute function _mindful.quota_memory();

create function _mindful.quota_job() returns trigger
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
set enable_seqscan = off
as $$
declare
    most bigint := mindful.setting_get('quota_jobs') #>> '{}';
begin
    if most > 0 and row_security_active(tg_relid) and (
        select count(*) from (select from mindful.embedding_job j where j.tenant = (select _mindful.tenant()) limit most + 1) j
    ) > most then
        perform _mindful.raise('53400', format('more than %s embeddings wait, which is quota_jobs', most),
            'Wait until a worker has run, or have an administrator raise the setting quota_jobs.');
    end if;
    return null;
end
$$;
comment on function _mindful.quota_job() is 'Raises 53400 where more of a tenant''s jobs wait than the setting quota_jobs allows.';
create trigger quota_inserted after insert on embedding_job
    for each statement when (pg_catalog.current_setting('row_security') = 'on' or not _mindful.is_restore()) execute function _mindful.quota_job();
