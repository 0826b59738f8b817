insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('result_cache', 'boolean', null, null, '{global,user}', 'false',
        'Whether answers of deterministic calls (temperature 0 or a seed) of llm_generate, llm_extract, llm_classify, llm_if, llm_aggregate and their _many forms are kept and returned again.'),
    ('result_cache_mb', 'integer', 0, 1048576, '{global}', '16',
        'Largest size in megabytes of a tenant''s kept answers. The least recently used are deleted first.');

-- A cache: it is UNLOGGED, so a crash empties it, standbys do not have it, and dumps leave it out.
create unlogged table cached_result (
    tenant text not null default _mindful.tenant(),
    key text not null check (octet_length(key) = 64),
    result text not null,
    used_at timestamptz not null default clock_timestamp(),
    primary key (tenant, key)
);
comment on table cached_result is
'Answers of deterministic calls, if the setting result_cache is true. A cache: deleting rows costs time, never an answer. Forgetting any memory empties the tenant''s.';
comment on column cached_result.key is 'SHA-256 of the model, its options, the prompt''s tokens and the sampling.';
comment on column cached_result.used_at is 'Time of the last use, to the hour.';
alter table cached_result enable row level security, force row level security;
create policy own on cached_result using (tenant = (select _mindful.tenant()))
    with check (tenant = (select _mindful.tenant_claimed()));

create function _mindful.cached_results(keys text[]) returns table (key text, result text)
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_column
begin
    -- On a standby, planning a query on an unlogged table is an error.
    if pg_is_in_recovery() then
        return;
    end if;
    if current_setting('transaction_read_only') = 'off' then
        update mindful.cached_result c set used_at = clock_timestamp()
        where c.tenant = (select _mindful.tenant()) and c.key = any (keys)
            and c.used_at < clock_timestamp() - interval '1 hour';
    end if;
    return query
    select c.key, c.result from mindful.cached_result c
    where c.tenant = (select _mindful.tenant()) and c.key = any (keys);
end
$$;
comment on function _mindful.cached_results(text[]) is
'Returns the kept answers of calls, and notes their use. It returns no rows on a standby.';

create function _mindful.cached_result_insert(keys text[], results text[]) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    if pg_is_in_recovery() or current_setting('transaction_read_only') = 'on' then
        return;
    end if;
    insert into mindful.cached_result (key, result)
    select r.key, r.result from unnest(keys, results) r (key, result)
    on conflict do nothing;
    perform _mindful.delete('cached_result', jsonb_agg(jsonb_build_object('key', o.key)))
    from (
        -- A row without an answer costs, too.
        select c.key, sum(octet_length(c.result) + 200) over (order by c.used_at desc, c.key) as bytes
        from mindful.cached_result c
        where c.tenant = (select _mindful.tenant())
    ) o
    where o.bytes > 1048576 * (mindful.setting_get('result_cache_mb') #>> '{}')::bigint;
end
$$;
comment on function _mindful.cached_result_insert(text[], text[]) is
'Keeps answers, and deletes the least recently used ones above result_cache_mb. It does nothing in a read-only transaction.';

create function result_cache_clear() returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform _mindful.writable();
    return (
        select _mindful.delete('cached_result', jsonb_agg(jsonb_build_object('key', c.key)))
        from mindful.cached_result c
        where c.tenant = (select _mindful.tenant())
    );
end
$$;
comment on function result_cache_clear() is
'Deletes the tenant''s kept answers (setting result_cache) and returns their number. Deleting or changing a memory does the same; call this after deleting texts that are in other tables only. Errors: 25006 (read-only transaction), 55000 (no tenant is set). Example: select result_cache_clear();';
