create function _mindful.memory_tenants() returns setof text
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
comment on function _mindful.memory_tenants() is
'Returns the tenants of the memories that the caller can read, by a loose index scan.';

create function _mindful.embedder(model text) returns text
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    found_name text := (select f.name from _mindful.model_find('embedder', model) f);
begin
    if found_name is null and model is null then
        perform _mindful.raise('55000', 'there is no default embedder',
            'Register one with mindful.model_register(name, ''embedder'', provider, source).');
    elsif found_name is null then
        perform _mindful.raise('42704', format('there is no embedder %L', model),
            'The models that you may use are listed in mindful.model.');
    end if;
    return found_name;
end
$$;
comment on function _mindful.embedder(text) is 'The name of an embedder, the default one for NULL, or raises 55000 or 42704.';

create function _mindful.embedding_enqueue(model text) returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
set lock_timeout = '1s'
as $$
declare
    embedder text := _mindful.embedder(model);
    swept_tenant text;
    enqueued bigint;
    total bigint := 0;
begin
    for swept_tenant in select t from _mindful.memory_tenants() t loop
        begin
            perform _mindful.delete('embedding_job_failed', jsonb_agg(to_jsonb(f)), swept_tenant)
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
                on conflict do nothing', _mindful.embedding_table(embedder)) using embedder, swept_tenant;
            get diagnostics enqueued = row_count;
            total := total + enqueued;
        exception when lock_not_available then
            -- A tenant that has locked its own rows must not stop the search for other tenants.
            continue;
        end;
    end loop;
    if total > 0 then
        notify mindful_job;
    end if;
    return total;
end
$$;
comment on function _mindful.embedding_enqueue(text) is 'embedding_enqueue for the memories that the caller reaches.';

create function _mindful.embedding_sweep_all(model text) returns bigint
language sql volatile parallel unsafe security definer
set mindful.tenant = ''
begin atomic
    select _mindful.embedding_enqueue(model);
end;
comment on function _mindful.embedding_sweep_all(text) is 'embedding_enqueue for the memories of all tenants.';

create function embedding_enqueue(model text default null) returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform _mindful.writable();
    if pg_has_role(current_user, 'mindful_admin', 'usage') then
        return _mindful.embedding_sweep_all(model);
    end if;
    return _mindful.embedding_enqueue(model);
end
$$;
comment on function embedding_enqueue(text) is
'Queues memories whose text has no embedding by an embedder (NULL: the default), and returns the number of new jobs. A user''s call works for the own tenant, an administrator''s call for all tenants. Failed jobs stay: see embedding_retry. Errors: 42704 (no such embedder), 55000 (no default embedder).';

create function _mindful.embedding_missing(model text) returns table (memories bigint, missing bigint)
language plpgsql stable parallel safe security definer
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    return query execute format('
        select count(*), count(*) - count(e.id)
        from mindful.memory m
        left join mindful.%I e on e.tenant = m.tenant and e.id = m.id and e.content_hash = m.content_hash',
        _mindful.embedding_table(model));
end
$$;
comment on function _mindful.embedding_missing(text) is 'How many memories all tenants have, and how many of them an embedder has not embedded as they are.';

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
comment on type embedding_count is
'A row of embedding_status.';

create function _mindful.embedding_count() returns setof embedding_count
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
            _mindful.embedding_table(embedder)) using embedder;
    end loop;
end
$$;
comment on function _mindful.embedding_count() is 'The rows of embedding_status for the memories that the caller reaches.';

create function _mindful.embedding_count_all() returns setof embedding_count
language sql stable parallel safe security definer
begin atomic
    select * from _mindful.embedding_count();
end;
comment on function _mindful.embedding_count_all() is 'The rows of embedding_status for the memories of all tenants.';

create function _mindful.embedding_status() returns setof embedding_count
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    if _mindful.reads_all() then
        return query select * from _mindful.embedding_count_all();
    else
        return query select * from _mindful.embedding_count();
    end if;
end
$$;
comment on function _mindful.embedding_status() is 'The rows of embedding_status.';

create view embedding_status with (security_invoker = true) as
select s.tenant, s.model, s.embedded, s.missing, s.stale, s.queued, s.failed, s.oldest_wait
from _mindful.embedding_status() s;
comment on view embedding_status is
'Progress of each embedder by tenant: embedded (present text), missing, stale (earlier text), queued, failed, oldest_wait. It has the rows of the own tenant, for mindful_reader those of all. It counts all rows at each query.';

create function embedding_compare(query text, models text[] default null, k integer default 5)
returns table (model text, rank bigint, id bigint, similarity double precision, content text)
language plpgsql stable parallel unsafe security invoker rows 10
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_column
declare
    embedder text;
begin
    perform _mindful.text_argument('query', query), _mindful.integer_argument('k', k, 1, 1000);
    for embedder in
        select _mindful.embedder(n)
        from unnest(coalesce(models, array(select m.name from mindful.model m where m.kind = 'embedder' order by m.name))) n
    loop
        return query execute format('
            select $1, row_number() over (order by n.distance), n.id, 1 - n.distance, m.content
            from (
                select e.id, _mindful.distance(e.embedding, _mindful.vector($2)) as distance
                from mindful.%1$I e
                where e.tenant = %2$L
                order by _mindful.distance(e.embedding, _mindful.vector($2))
                limit $3
            ) n
            join mindful.memory m on m.tenant = %2$L and m.id = n.id
            order by 2', _mindful.embedding_table(embedder), _mindful.tenant())
        using embedder, mindful.llm_embed(query, embedder)::text, k;
    end loop;
end
$$;
comment on function embedding_compare(text, text[], integer) is
'Returns the k memories nearest to a query by each of several embedders (NULL: all that the caller may use).
similarity is the cosine similarity; values of different embedders are not comparable.
Example: SELECT model, array_agg(content ORDER BY rank) FROM embedding_compare(''Where is the key?'') GROUP BY model;
Errors: 22004, 22023, 42704 (no such embedder).';
