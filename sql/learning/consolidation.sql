insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('consolidation_extractor', 'text', null, null, '{global,user}', '"rule"',
        'Extractor of facts: rule (without a model) or model (the default generator).'),
    ('consolidation_memories', 'integer', 1, 1000000, '{global,user}', '1000',
        'Largest number of texts that one call of memory_consolidate reads.'),
    ('knowledge_evidence', 'integer', 1, 1000, '{global,user}', '2', 'Number of sources that makes information knowledge.'),
    ('knowledge_accesses', 'integer', 1, 1000000, '{global,user}', '3', 'Number of accesses that makes information knowledge.'),
    ('knowledge_confidence', 'number', 0, 1, '{global,user}', '0.8', 'Lowest confidence of knowledge.'),
    ('wisdom_evidence', 'integer', 1, 1000, '{global,user}', '4', 'Number of sources that wisdom needs.'),
    ('wisdom_accesses', 'integer', 1, 1000000, '{global,user}', '8', 'Number of accesses that wisdom needs.'),
    ('wisdom_confidence', 'number', 0, 1, '{global,user}', '0.95', 'Lowest confidence of wisdom.'),
    ('consolidation_decay_after_days', 'integer', 1, 36500, '{global,user}', '30', 'Days without an access after which an extracted fact loses importance.'),
    ('consolidation_decay_half_life_days', 'integer', 1, 36500, '{global,user}', '90', 'Days in which the importance of an unused fact halves.');

create table consolidation (
    tenant text not null default _mindful.tenant(),
    id bigint generated always as identity,
    type text not null check (type in ('extract', 'replay')),
    status text not null default 'pending' check (status in ('pending', 'running', 'completed', 'failed')),
    model text,
    request jsonb not null default '{}',
    memories_processed integer not null default 0,
    pairs_generated integer not null default 0,
    outputs jsonb not null default '{}',
    error text,
    created_at timestamptz not null default clock_timestamp(),
    finished_at timestamptz,
    withdrawn integer not null default 0,
    primary key (tenant, id),
    check ((status in ('completed', 'failed')) = (finished_at is not null)),
    check ((status = 'failed') = (error is not null))
);
create unique index consolidation_open on consolidation (tenant, type) where status in ('pending', 'running');
comment on table consolidation is
'Runs that extract facts from texts (extract) or make training samples from facts (replay). A run that reached a limit or lost its connection has the status running; the next call continues it.';
comment on column consolidation.model is
'The generator that extracted facts, or that samples are for; NULL for rules.';
comment on column consolidation.request is 'Arguments of the run.';
comment on column consolidation.withdrawn is
'Number of samples deleted because a memory was forgotten. Exports made before are no longer valid.';
comment on column consolidation.outputs is 'Counts of results, and of rejected facts by reason.';

-- A watermark would miss rows: ids are assigned before rows are committed.
create table memory_extraction (
    tenant text not null default _mindful.tenant(),
    id bigint not null,
    content_hash text not null,
    extractor text not null check (extractor in ('rule', 'model')),
    consolidation_id bigint not null,
    facts integer not null,
    primary key (tenant, id),
    foreign key (tenant, id) references memory (tenant, id) on delete cascade,
    foreign key (tenant, consolidation_id) references consolidation (tenant, id) on delete cascade
);
create index on memory_extraction (tenant, consolidation_id) where consolidation_id is not null;
comment on table memory_extraction is
'Texts that were read for facts, with the hash of the text that was read. A changed text is read again.';

create table memory_statement (
    tenant text not null default _mindful.tenant(),
    id bigint not null,
    subject text not null,
    relation text not null,
    object text not null,
    extractor text not null check (extractor in ('rule', 'model')),
    model text,
    prior real not null check (prior between 0 and 1),
    consolidation_id bigint not null,
    primary key (tenant, id),
    foreign key (tenant, id) references memory (tenant, id) on delete cascade,
    foreign key (tenant, consolidation_id) references consolidation (tenant, id) on delete cascade
);
create index on memory_statement (tenant, subject, relation) where subject is not null;
create index on memory_statement (tenant, consolidation_id) where consolidation_id is not null;
comment on table memory_statement is 'Extracted facts as subject, relation and object, and the extractor.';
comment on column memory_statement.prior is
'Confidence with one source. With n sources it is 1 - (1 - prior) * 0.5 ^ (n - 1), at most 0.99.';

create table memory_entity (
    tenant text not null default _mindful.tenant(),
    entity text not null,
    id bigint not null,
    primary key (tenant, entity, id),
    foreign key (tenant, id) references memory (tenant, id) on delete cascade
);
create index on memory_entity (tenant, id) where id is not null;
comment on table memory_entity is 'Names of persons and things that facts are about, in lower case.';

alter table consolidation enable row level security, force row level security;
create policy own on consolidation using (tenant = (select _mindful.tenant())) with check (tenant = (select _mindful.tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.consolidation', '');
alter table memory_extraction enable row level security, force row level security;
create policy own on memory_extraction using (tenant = (select _mindful.tenant()))
    with check (tenant = (select _mindful.tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.memory_extraction', '');
alter table memory_statement enable row level security, force row level security;
create policy own on memory_statement using (tenant = (select _mindful.tenant()))
    with check (tenant = (select _mindful.tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.memory_statement', '');
alter table memory_entity enable row level security, force row level security;
create policy own on memory_entity using (tenant = (select _mindful.tenant())) with check (tenant = (select _mindful.tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.memory_entity', '');
select pg_catalog.pg_extension_config_dump('mindful.consolidation_id_seq', '');

create function _mindful.evidence_lost() returns trigger
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    -- Each deleted memory deletes its quotes, mostly none.
    if current_setting('mindful.pruning', true) = 'on' or not exists (select from old_rows) then
        return null;
    end if;
    delete from mindful.memory m
    using old_rows o
    where m.tenant = o.tenant and m.id = o.id and not m.stated
        and exists (select from mindful.memory_statement s where s.tenant = o.tenant and s.id = o.id)
        and not exists (select from mindful.memory_evidence e where e.tenant = o.tenant and e.id = o.id);
    update mindful.memory m
    set confidence = _mindful.evidence_confidence(m.tenant, m.id)
    from (select distinct tenant, id from old_rows) o
    join mindful.memory_statement s on s.tenant = o.tenant and s.id = o.id
    where m.tenant = o.tenant and m.id = o.id;
    return null;
end
$$;
comment on function _mindful.evidence_lost() is
'Deletes extracted facts whose sources were all forgotten, and lowers the confidence of facts that lost some. Facts stay if their sources are pruned.';

create function _mindful.evidence_confidence(tenant text, id bigint) returns real
language sql stable parallel safe security invoker
begin atomic
    select least(0.99, 1 - (1 - s.prior) * _mindful.power(0.5, greatest(e.sources, 1) - 1))::real
    from mindful.memory_statement s,
        lateral (
            select pg_catalog.count(distinct v.source_id) as sources
            from mindful.memory_evidence v
            where v.tenant = s.tenant and v.id = s.id
        ) e
    where s.tenant = evidence_confidence.tenant and s.id = evidence_confidence.id;
end;
comment on function _mindful.evidence_confidence(text, bigint) is
'Returns the confidence of a fact by the number of its sources n: 1 - (1 - prior) * 0.5 ^ (n - 1), at most 0.99.';

create trigger evidence_lost after delete on memory_evidence referencing old table as old_rows
    for each statement when (pg_catalog.current_setting('row_security') = 'on' or not _mindful.is_restore()) execute function _mindful.evidence_lost();

-- Only a populated view can be refreshed concurrently. It has no row-level security, so only readers may select from it.
create function _mindful.outcome_count(outputs jsonb, name text) returns bigint
language sql immutable parallel safe security invoker
begin atomic
    select case
        when pg_catalog.jsonb_typeof(outputs -> name) = 'number' and (outputs -> name)::numeric between 0 and 1000000000
            then (outputs -> name)::bigint
    end;
end;
comment on function _mindful.outcome_count(jsonb, text) is
'Returns a count from a run''s outputs, NULL if it is not a number. Tenants may write any value, and one must not break a view of all tenants.';

create materialized view consolidation_summary as
select tenant, created_at::date as day, type, status, coalesce(left(model, 100), '') as model, count(*) as runs,
    sum(memories_processed) as memories_processed, sum(pairs_generated) as pairs_generated,
    sum(_mindful.outcome_count(outputs, 'facts')) as facts, sum(_mindful.outcome_count(outputs, 'contradicted')) as contradicted,
    max(finished_at) as last_finished_at
from consolidation
group by tenant, created_at::date, type, status, coalesce(left(model, 100), '');
create unique index on consolidation_summary (tenant, day, type, status, model);
comment on materialized view consolidation_summary is
'Runs of all tenants by day, type, status and model, for mindful_reader. Refreshed at the end of a run unless another run is refreshing it.';

create function _mindful.consolidation_summary_refresh() returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
set lock_timeout = '200ms'
set quote_all_identifiers = off  -- with it, REFRESH CONCURRENTLY writes a name that PostgreSQL cannot read
as $$
begin
    refresh materialized view concurrently mindful.consolidation_summary;
exception
    when lock_not_available then
        null;
    when program_limit_exceeded then  -- a tenant's name is too long for the index
        raise warning 'mindful: consolidation_summary could not be brought up to date: %', sqlstate;
end
$$;
comment on function _mindful.consolidation_summary_refresh() is
'Refreshes consolidation_summary unless another run is refreshing it.';

create type consolidation_detail as (
    id bigint,
    status text,
    extractor text,
    memories_processed integer,
    remaining bigint,
    facts integer,
    strengthened integer,
    refined integer,
    contradicted integer,
    links integer,
    promoted integer,
    decayed integer,
    rejected jsonb,
    error text
);
comment on type consolidation_detail is
'Result of memory_consolidate: counts of texts read, of results, of rejected facts by reason, and of texts left.';

create function _mindful.consolidation_pending(since timestamptz, kinds text[] default '{message,document}')
returns table (id bigint)
language sql stable parallel safe security invoker
begin atomic
    select m.id
    from mindful.memory m
    left join mindful.memory_extraction x on x.tenant = m.tenant and x.id = m.id
    where m.tenant = (select _mindful.tenant()) and m.kind = any (kinds)
        and (since is null or m.created_at >= since)
        and (x.id is null or x.content_hash <> m.content_hash)
    order by m.created_at, m.id;
end;
comment on function _mindful.consolidation_pending(timestamptz, text[]) is
'Returns messages and documents whose current text was not read for facts, oldest first.';

create function _mindful.consolidation_lock() returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    if not _mindful.lock_try('consolidation') then
        perform _mindful.raise('55P03', 'a run is active for this tenant', 'Wait until it ends; see mindful.consolidation.');
    end if;
end
$$;
comment on function _mindful.consolidation_lock() is
'Takes the tenant''s lock for one run at a time until the transaction ends; error 55P03.';

create function _mindful.consolidation_open(type text, model text, request jsonb) returns bigint
language sql volatile parallel unsafe security invoker
begin atomic
    insert into mindful.consolidation (type, status, model, request)
    values (type, 'running', model, request)
    on conflict (tenant, type) where status in ('pending', 'running')
        do update set status = 'running', model = excluded.model, request = excluded.request
    returning id;
end;
comment on function _mindful.consolidation_open(text, text, jsonb) is
'Returns the id of the open run of a type, or starts one.';

create function _mindful.counts_add(counts jsonb, more jsonb) returns jsonb
language sql immutable parallel safe security invoker
begin atomic
    select coalesce(pg_catalog.jsonb_object_agg(key, case
        when pg_catalog.jsonb_typeof(coalesce(a.value, b.value)) = 'object'
            then (select coalesce(pg_catalog.jsonb_object_agg(inner_key, coalesce(c.value::bigint, 0) + coalesce(d.value::bigint, 0)), '{}')
                from pg_catalog.jsonb_each_text(coalesce(a.value, '{}')) c (inner_key, value)
                full join pg_catalog.jsonb_each_text(coalesce(b.value, '{}')) d (inner_key, value) using (inner_key))
        else pg_catalog.to_jsonb(coalesce((a.value #>> '{}')::bigint, 0) + coalesce((b.value #>> '{}')::bigint, 0))
    end), '{}')
    from pg_catalog.jsonb_each(counts) a (key, value)
    full join pg_catalog.jsonb_each(more) b (key, value) using (key);
end;
comment on function _mindful.counts_add(jsonb, jsonb) is 'Adds two objects of counts, which may hold objects of counts, key by key.';

create function _mindful.consolidate(run bigint, since timestamptz, extractor text, model text, memories integer, seconds integer)
returns jsonb
language plpython3u volatile parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.learning.consolidation import consolidate
return consolidate(run, since, extractor, model, memories, seconds)
$python$;
comment on function _mindful.consolidate(bigint, timestamptz, text, text, integer, integer) is
'Extracts facts from texts, inserts new ones, strengthens existing ones, ends contradicted ones and links them; returns counts.';

create function _mindful.link_strengthen(since timestamptz) returns bigint
language sql volatile parallel unsafe security invoker
begin atomic
    with used as (
        update mindful.memory_link l
        set weight = l.weight + (1 - l.weight) * 0.1
        from mindful.memory_access a, mindful.memory_access b
        where l.tenant = (select _mindful.tenant()) and l.weight < 0.999
            and a.tenant = l.tenant and a.id = l.source_id and a.last_accessed_at > since
            and b.tenant = l.tenant and b.id = l.target_id and b.last_accessed_at > since
        returning 1
    )
    select pg_catalog.count(*) from used;
end;
comment on function _mindful.link_strengthen(timestamptz) is
'Raises the weight w of links by (1 - w) / 10 if both ends were accessed since a time.';

create function _mindful.memory_decay(days integer) returns bigint
language sql volatile parallel unsafe security invoker
begin atomic
    with faded as (
        update mindful.memory m
        set importance = greatest(0.05, m.importance * _mindful.power(0.5, days / (mindful.setting_get('consolidation_decay_half_life_days') #>> '{}')::double precision))
        from mindful.memory_statement s
        left join mindful.memory_access a on a.tenant = s.tenant and a.id = s.id
        where days > 0 and s.tenant = (select _mindful.tenant()) and m.tenant = s.tenant and m.id = s.id and m.importance > 0.05
            and greatest(a.last_accessed_at, m.created_at)
                < pg_catalog.now() - pg_catalog.make_interval(days => (mindful.setting_get('consolidation_decay_after_days') #>> '{}')::integer)
        returning 1
    )
    select pg_catalog.count(*) from faded;
end;
comment on function _mindful.memory_decay(integer) is
'Lowers the importance of extracted facts without an access for consolidation_decay_after_days, to 0.05 at least; the half-life is consolidation_decay_half_life_days.';

create function _mindful.memory_promote() returns bigint
language sql volatile parallel unsafe security invoker
begin atomic
    -- What is materialized is computed once: plans that expect a row would compute it for each of the others.
    with threshold as materialized (
        select pg_catalog.jsonb_object_agg(d.key, mindful.setting_get(d.key)) as t
        from mindful.setting_definition d
        where d.tenant = '' and d.key like any (array['knowledge\_%', 'wisdom\_%'])
    ),
    measured as (
        select m.id, m.level, m.confidence, coalesce(a.access_count, 0) as accesses,
            (select pg_catalog.count(distinct e.source_id) from mindful.memory_evidence e
                where e.tenant = m.tenant and e.id = m.id) as sources
        from mindful.memory_statement s
        join mindful.memory m on m.tenant = s.tenant and m.id = s.id
        left join mindful.memory_access a on a.tenant = m.tenant and a.id = m.id
        where s.tenant = (select _mindful.tenant()) and (m.valid_to is null or m.valid_to > pg_catalog.now())
    ),
    earned as materialized (
        select id, level as held, case
            when sources >= (t ->> 'wisdom_evidence')::integer and accesses >= (t ->> 'wisdom_accesses')::integer
                and confidence >= (t ->> 'wisdom_confidence')::real then 'wisdom'
            when (sources >= (t ->> 'knowledge_evidence')::integer or accesses >= (t ->> 'knowledge_accesses')::integer)
                and confidence >= (t ->> 'knowledge_confidence')::real then 'knowledge'
            when sources > 0 then 'information'
            else 'data'
        end as level
        from measured, threshold
    ),
    promoted as (
        update mindful.memory m set level = e.level
        from earned e
        where m.tenant = (select _mindful.tenant()) and m.id = e.id
            and pg_catalog.array_position(array['data', 'information', 'knowledge', 'wisdom'], e.level)
                > pg_catalog.array_position(array['data', 'information', 'knowledge', 'wisdom'], e.held)
        returning 1
    )
    select pg_catalog.count(*) from promoted;
end;
comment on function _mindful.memory_promote() is
'Raises valid extracted facts to the highest level whose conditions they meet. information: one source. knowledge: knowledge_evidence sources or knowledge_accesses uses, and knowledge_confidence. wisdom: wisdom_evidence, wisdom_accesses and wisdom_confidence. No level is lowered.';

create function _mindful.consolidation_finish(run bigint) returns jsonb
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    last timestamptz;
    faded timestamptz;
begin
    select max(c.finished_at), max(c.finished_at) filter (where c.outputs ? 'days_decayed') into last, faded
    from mindful.consolidation c
    where c.tenant = (select _mindful.tenant()) and c.type = 'extract' and c.status = 'completed' and c.id <> run;
    return jsonb_build_object(
        'links_strengthened', _mindful.link_strengthen(coalesce(last, '-infinity')),
        'decayed', _mindful.memory_decay(floor(extract(epoch from now() - faded) / 86400)::integer),
        'promoted', _mindful.memory_promote())
        || case when faded is null or now() - faded >= interval '1 day'
            then jsonb_build_object('days_decayed', coalesce(floor(extract(epoch from now() - faded) / 86400), 0))
            else '{}' end;
end
$$;
comment on function _mindful.consolidation_finish(bigint) is
'Strengthens used links, lowers the importance of unused facts and promotes facts, when all texts are read. Decay counts whole days since the last one.';

create function _mindful.consolidation_close(run bigint, counts jsonb, failure text, done boolean) returns consolidation
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    closed mindful.consolidation;
begin
    update mindful.consolidation c
    set status = case when failure is not null then 'failed' when done then 'completed' else 'running' end,
        memories_processed = c.memories_processed + coalesce((counts ->> 'memories_processed')::integer, 0),
        pairs_generated = c.pairs_generated + coalesce((counts ->> 'pairs_generated')::integer, 0),
        outputs = _mindful.counts_add(c.outputs, counts - '{memories_processed,pairs_generated}'::text[]),
        error = failure,
        finished_at = case when done or failure is not null then clock_timestamp() end
    where c.tenant = (select _mindful.tenant()) and c.id = run
    returning c.* into closed;
    if closed.finished_at is not null then
        -- Any role may listen, so the payload contains neither tenant nor content.
        perform _mindful.consolidation_summary_refresh();
        perform pg_notify('mindful_consolidation', jsonb_build_object('id', closed.id, 'status', closed.status)::text);
    end if;
    return closed;
end
$$;
comment on function _mindful.consolidation_close(bigint, jsonb, text, boolean) is
'Adds a call''s counts to its run. If the run is done or failed, ends it and notifies the channel mindful_consolidation.';

create function memory_consolidate(
    since timestamptz default null,
    limits jsonb default '{}',
    extractor text default null,
    model text default null
) returns consolidation_detail
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    is_writable constant boolean := _mindful.writable();
    chosen text := coalesce(extractor, mindful.setting_get('consolidation_extractor') #>> '{}');
    texts integer := _mindful.limit(limits, 'memories', (mindful.setting_get('consolidation_memories') #>> '{}')::integer, 1000000);
    seconds integer := _mindful.limit(limits, 'seconds', null, 86400);
    run bigint;
    counts jsonb := '{}';
    remaining bigint;
    failure text;
    closed mindful.consolidation;
begin
    if chosen not in ('rule', 'model') then
        perform _mindful.raise('22023', format('extractor is %L', chosen), 'Pass rule or model.');
    elsif chosen = 'rule' and model is not null then
        perform _mindful.raise('22023', format('model is %L, and the extractor is rule, which needs none', left(model, 100)),
            'Pass extractor => ''model'' too, or no model.');
    end if;
    perform _mindful.range_argument('since', since);
    perform _mindful.consolidation_lock();
    run := _mindful.consolidation_open('extract', model, jsonb_strip_nulls(jsonb_build_object('since', since, 'limits', limits, 'extractor', chosen)));
    begin
        counts := _mindful.consolidate(run, since, chosen, model, texts, seconds);
        remaining := (select count(*) from _mindful.consolidation_pending(since));
        if remaining = 0 then
            counts := counts || _mindful.consolidation_finish(run);
        end if;
    exception when feature_not_supported then  -- a library is missing: no run of this server can succeed
        raise;
    when others then  -- a cancel is not among them
        failure := sqlstate || ': ' || sqlerrm;
        counts := '{}';
    end;
    closed := _mindful.consolidation_close(run, counts, failure, remaining = 0);
    return (closed.id, closed.status, chosen, closed.memories_processed,
        coalesce(remaining, (select count(*) from _mindful.consolidation_pending(since))),
        (closed.outputs ->> 'facts')::integer, (closed.outputs ->> 'strengthened')::integer,
        (closed.outputs ->> 'refined')::integer, (closed.outputs ->> 'contradicted')::integer,
        (closed.outputs ->> 'links')::integer, (closed.outputs ->> 'promoted')::integer,
        (closed.outputs ->> 'decayed')::integer, closed.outputs -> 'rejected', closed.error)::mindful.consolidation_detail;
end
$$;
comment on function memory_consolidate(timestamptz, jsonb, text, text) is
'Extracts facts from messages and documents that were not read yet, oldest first, and returns the counts. A failed run is stored with its error and returned. Errors: 22008 (since is outside the years 1 to 9999), 22023 (limits, extractor, or a model for the extractor rule), 55P03 (a run is active). Example: select status, facts, remaining from memory_consolidate(limits => ''{"memories": 500}'');';

create function _mindful.limit(limits jsonb, key text, initial integer, high integer) returns integer
language plpgsql immutable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    if limits is null or jsonb_typeof(limits) <> 'object' or limits - '{memories,seconds}'::text[] <> '{}' then
        perform _mindful.raise('22023', 'limits is not an object with memories and seconds', 'Pass limits such as {"memories": 500, "seconds": 60}.');
    elsif not limits ? key then
        return initial;
    elsif jsonb_typeof(limits -> key) <> 'number' or (limits ->> key)::numeric not between 1 and high
        or (limits ->> key)::numeric % 1 <> 0
    then
        perform _mindful.raise('22023', format('limit %s is %s', key, limits -> key), format('Pass a whole number between 1 and %s.', high));
    end if;
    return (limits ->> key)::numeric::integer;
end
$$;
comment on function _mindful.limit(jsonb, text, integer, integer) is
'Returns one of the limits of a run, or raises 22023.';
