create function _memory_tenants() returns setof text
language sql stable parallel safe security invoker
begin atomic
    with recursive found as (
        (select m.tenant from mindful.memory m order by m.tenant limit 1)
        union all
        select (select m.tenant from mindful.memory m where m.tenant > f.tenant order by m.tenant limit 1)
        from found f
        where f.tenant is not null
    )
    select f.tenant from found f where f.tenant is not null;
end;
comment on function _memory_tenants() is 'The tenants of the memories that the caller reaches, found one by one through the index.';

create function _embedder(model text) returns text
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    found_name text := (select f.name from mindful._model_find('embedder', model) f);
begin
    if found_name is null and model is null then
        perform mindful._raise('55000', 'there is no default embedder',
            'Register one with mindful.model_register(name, ''embedder'', provider, source).');
    elsif found_name is null then
        perform mindful._raise('42704', format('there is no embedder %L', model),
            'The models that you may use are listed in mindful.model.');
    end if;
    return found_name;
end
$$;
comment on function _embedder(text) is 'The name of an embedder, the default one for NULL, or raises 55000 or 42704.';

create function _embedding_sweep(model text) returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
set lock_timeout = '1s'
as $$
declare
    embedder text := mindful._embedder(model);
    swept_tenant text;
    enqueued bigint;
    total bigint := 0;
begin
    for swept_tenant in select t from mindful._memory_tenants() t loop
        begin
            perform mindful._delete('embedding_job_failed', jsonb_agg(to_jsonb(f)), swept_tenant)
            from (
                select f.id, f.model, f.content_hash
                from mindful.embedding_job_failed f
                join mindful.memory m on m.tenant = f.tenant and m.id = f.id and m.content_hash <> f.content_hash
                where f.tenant = swept_tenant
                for update of f
            ) f;
            execute format('
                insert into mindful.embedding_job (tenant, id, model, content_hash)
                select m.tenant, m.id, $1, m.content_hash
                from mindful.memory m
                where m.tenant = $2
                    and not exists (select from mindful.%I e
                        where e.tenant = $2 and e.id = m.id and e.content_hash = m.content_hash)
                    and not exists (select from mindful.embedding_job_failed f
                        where f.tenant = $2 and f.id = m.id and f.model = $1 and f.content_hash = m.content_hash)
                on conflict do nothing', mindful._embedding_table(embedder)) using embedder, swept_tenant;
            get diagnostics enqueued = row_count;
            total := total + enqueued;
        exception when lock_not_available then
            -- Who holds rows of his own keeps nobody else's from being found.
            continue;
        end;
    end loop;
    if total > 0 then
        notify mindful_job;
    end if;
    return total;
end
$$;
comment on function _embedding_sweep(text) is 'embedding_sweep for the memories that the caller reaches.';

create function _embedding_sweep_all(model text) returns bigint
language sql volatile parallel unsafe security definer
begin atomic
    select mindful._embedding_sweep(model);
end;
comment on function _embedding_sweep_all(text) is 'embedding_sweep for the memories of all tenants.';

create function embedding_sweep(model text default null) returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform mindful._writable();
    if pg_has_role(current_user, 'mindful_admin', 'usage') then
        return mindful._embedding_sweep_all(model);
    end if;
    return mindful._embedding_sweep(model);
end
$$;
comment on function embedding_sweep(text) is
'Enqueues the memories that have no embedding by an embedder (NULL: the default one), or one of an earlier text, and returns how many were new to the queue: the caller''s own, or an administrator''s call those of all tenants. So it finds what was restored, replicated, written with row_security off or before there was an embedder, and it fills a new embedder beside the one in use. Dead letters are left alone: see job_retry. Errors: 42704 (no such embedder), 55000 (no default embedder).';

create function _embedding_missing(model text) returns table (memories bigint, missing bigint)
language plpgsql stable parallel safe security definer
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    return query execute format('
        select count(*), count(*) - count(e.id)
        from mindful.memory m
        left join mindful.%I e on e.tenant = m.tenant and e.id = m.id and e.content_hash = m.content_hash',
        mindful._embedding_table(model));
end
$$;
comment on function _embedding_missing(text) is 'How many memories all tenants have, and how many of them an embedder has not embedded as they are.';

create type embedding_count as (
    tenant text,
    model text,
    embedded bigint,
    missing bigint,
    stale bigint,
    queued bigint,
    failed bigint,
    oldest_wait interval
);
comment on type embedding_count is 'A row of embedding_status.';

create function _embedding_count() returns setof embedding_count
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    embedder text;
begin
    for embedder in select m.name from mindful.model m where m.kind = 'embedder' order by m.name loop
        return query execute format('
            with counted as (
                select m.tenant, count(*) filter (where e.content_hash = m.content_hash) as embedded,
                    count(*) filter (where e.id is null) as missing,
                    count(*) filter (where e.content_hash <> m.content_hash) as stale
                from mindful.memory m
                left join mindful.%I e on e.tenant = m.tenant and e.id = m.id
                group by m.tenant
            ),
            waiting as (
                select j.tenant, count(*) as queued, min(j.enqueued_at) as since
                from mindful.embedding_job j where j.model = $1 group by j.tenant
            ),
            dead as (
                select f.tenant, count(*) as failed
                from mindful.embedding_job_failed f where f.model = $1 group by f.tenant
            )
            select c.tenant, $1, c.embedded, c.missing, c.stale, coalesce(w.queued, 0), coalesce(d.failed, 0),
                clock_timestamp() - w.since
            from counted c left join waiting w on w.tenant = c.tenant left join dead d on d.tenant = c.tenant',
            mindful._embedding_table(embedder)) using embedder;
    end loop;
end
$$;
comment on function _embedding_count() is 'The rows of embedding_status for the memories that the caller reaches.';

create function _embedding_count_all() returns setof embedding_count
language sql stable parallel safe security definer
begin atomic
    select * from mindful._embedding_count();
end;
comment on function _embedding_count_all() is 'The rows of embedding_status for the memories of all tenants.';

create function _embedding_status() returns setof embedding_count
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    if mindful._reads_all() then
        return query select * from mindful._embedding_count_all();
    else
        return query select * from mindful._embedding_count();
    end if;
end
$$;
comment on function _embedding_status() is 'The rows of embedding_status.';

create view embedding_status with (security_invoker = true) as
select s.tenant, s.model, s.embedded, s.missing, s.stale, s.queued, s.failed, s.oldest_wait
from mindful._embedding_status() s;
comment on view embedding_status is
'How far each embedder has come, by tenant: memories embedded as they are, not embedded, or embedded by an earlier text, jobs that wait and since when the oldest does, and dead letters; for oneself, or for mindful_reader for all. It counts all rows each time.';

create function embedding_compare(query text, models text[] default null, k integer default 5)
returns table (model text, rank bigint, id bigint, similarity double precision, content text)
language plpgsql stable parallel restricted security invoker rows 10
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_column
declare
    vector_schema text := (select extnamespace::regnamespace from pg_extension where extname = 'vector');
    embedder text;
begin
    perform mindful._text_argument('query', query), mindful._integer_argument('k', k, 1, 1000);
    for embedder in
        select mindful._embedder(n)
        from unnest(coalesce(models, array(select m.name from mindful.model m where m.kind = 'embedder' order by m.name))) n
    loop
        return query execute format('
            select $1, row_number() over (order by n.distance), n.id, 1 - n.distance, m.content
            from (
                select e.id, e.embedding operator(%1$s.<=>) $2::%1$s.vector as distance
                from mindful.%2$I e
                where e.tenant = %3$L
                order by e.embedding operator(%1$s.<=>) $2::%1$s.vector
                limit $3
            ) n
            join mindful.memory m on m.tenant = %3$L and m.id = n.id
            order by 2', vector_schema, mindful._embedding_table(embedder), mindful._tenant())
        using embedder, mindful.llm_embed(query, embedder)::text, k;
    end loop;
end
$$;
comment on function embedding_compare(text, text[], integer) is
'The k memories nearest to a query in each of the named embedders'' spaces (NULL: all that the caller may use), with rank and cosine similarity; similarities of different embedders are not on one scale. SELECT model, array_agg(content ORDER BY rank) FROM embedding_compare(''...'') GROUP BY model shows them side by side. Errors: 22004, 22023, 42704 (no such embedder).';
