create table memory_evidence (
    tenant text not null default _mindful.tenant(),
    id bigint not null,
    source_id bigint not null,
    quote text not null check (quote <> '' and octet_length(quote) <= 2000),
    created_at timestamptz not null default now(),
    primary key (tenant, id, source_id, quote),
    foreign key (tenant, id) references memory (tenant, id) on delete cascade,
    foreign key (tenant, source_id) references memory (tenant, id) on delete cascade,
    check (id <> source_id)
);
create index on memory_evidence (tenant, source_id) where source_id is not null;
comment on table memory_evidence is
'Evidence of memories: the memories that they were drawn from, with a quote. A quote is deleted when its source no longer contains it.';
alter table memory_evidence enable row level security, force row level security;
create policy own on memory_evidence using (tenant = (select _mindful.tenant())) with check (tenant = (select _mindful.tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.memory_evidence', '');

create function _mindful.evidence_outdated() returns trigger
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
set mindful.tenant = ''
set enable_hashjoin = off
set enable_mergejoin = off
set enable_seqscan = off
as $$
begin
    -- What a lost quote changes ends up here again.
    if exists (select from old_rows o, _mindful.memory_changed(o.tenant, o.id, o.content)) then
        delete from mindful.memory_evidence e
        using (
            select o.tenant, o.id, _mindful.squeeze(n.content) as content
            from old_rows o, _mindful.memory_changed(o.tenant, o.id, o.content) n
            offset 0
        ) source
        where e.tenant = source.tenant and e.source_id = source.id
            and strpos(source.content, _mindful.squeeze(e.quote)) = 0;
    end if;
    return null;
end
$$;
comment on function _mindful.evidence_outdated() is
'Deletes quotes that their sources no longer contain, after rows of attached tables or parts of documents have changed.';
create trigger evidence_outdated after update on memory referencing old table as old_rows
    for each statement when (pg_catalog.current_setting('row_security') = 'on' or not _mindful.is_restore()) execute function _mindful.evidence_outdated();

create function _mindful.squeeze(content text) returns text
language sql immutable strict parallel safe security invoker
begin atomic
    select pg_catalog.btrim(pg_catalog.regexp_replace(content, '\s+', ' ', 'g'));
end;
comment on function _mindful.squeeze(text) is 'A text with every run of white space as one blank.';

create function _mindful.quote_argument(name text, source_id bigint, quote text) returns text
language sql stable parallel safe security invoker
begin atomic
    select case
        when a.id is null then null  -- which it never is: unasked for, an empty table's rows would not be looked up
        when pg_catalog.octet_length(a.quote) > 2000
            then _mindful.raise('54000', pg_catalog.format('%s has %s bytes, more than 2000', name, pg_catalog.octet_length(a.quote)),
                'Quote a shorter part of the source.')::text
        when pg_catalog.strpos(
            (select _mindful.squeeze(m.content) from mindful.memory m where m.tenant = (select _mindful.tenant()) and m.id = a.id),
            a.quote) > 0 then a.quote
        else _mindful.raise('22023', pg_catalog.format('memory %2$s does not contain %1$s', name, source_id),
            'Copy the quote from the content of the source. Only white space may differ.')::text
    end
    from (
        select _mindful.squeeze(_mindful.text_argument(name, quote_argument.quote)) as quote,
            _mindful.memory_argument('source_id of ' || name, source_id) as id
    ) a;
end;
comment on function _mindful.quote_argument(text, bigint, text) is
'Returns a quote that stands in the source''s text, with runs of white space as one blank, or raises 22004, 22023, 42704 (no such source of the tenant''s) or 54000.';

create function _mindful.evidence(name text, evidence jsonb) returns table (source_id bigint, quote text)
language sql stable parallel safe security invoker rows 3
begin atomic
    select s.source_id,
        _mindful.quote_argument(pg_catalog.format('quote %s of %s', e.number, name), s.source_id, e.element ->> 'quote')
    from _mindful.array_elements(name, coalesce(nullif(evidence, 'null'), '[]'), '{source_id,quote}') e,
        lateral (
            select case
                when e.element ->> 'source_id' ~ '^[0-9]{1,18}$' then (e.element ->> 'source_id')::bigint
                else _mindful.raise('22023', pg_catalog.format('source_id of quote %s of %s is %s', e.number, name,
                    coalesce(e.element ->> 'source_id', 'null')), 'Give the id of a memory.')::text::bigint
            end as source_id
        ) s;
end;
comment on function _mindful.evidence(text, jsonb) is
'The source ids and quotes of an array of {source_id, quote}; raises 22004, 22023 or 42704, naming the quote.';

create function _mindful.source_ids(evidence jsonb, path jsonpath) returns bigint[]
language sql immutable parallel safe security invoker
begin atomic
    select array(
        select (q.source_id #>> '{}')::bigint
        from pg_catalog.jsonb_path_query(evidence, path) q (source_id)
        where q.source_id #>> '{}' ~ '^[0-9]{1,18}$'
    );
end;
comment on function _mindful.source_ids(jsonb, jsonpath) is 'Returns the ids at a path of evidence; what is no id is left out.';

create function memory_evidence_insert(id bigint, source_id bigint, quote text) returns boolean
language sql volatile parallel unsafe security invoker
begin atomic
    select _mindful.writable();
    select _mindful.memory_keep(array[id, source_id]);
    with proved as (
        insert into mindful.memory_evidence (id, source_id, quote)
        select _mindful.memory_argument('id', id),
            case
                when id = source_id
                    then _mindful.raise('22023', pg_catalog.format('memory %s cannot be evidence of itself', id),
                        'Pass the id of the memory that it was drawn from as source_id.')::text::bigint
                else source_id
            end,
            _mindful.quote_argument('quote', source_id, quote)
        on conflict do nothing
        returning 1
    )
    select exists (select from proved);
end;
comment on function memory_evidence_insert(bigint, bigint, text) is
'Adds evidence to a memory: a quote from the text of another memory, the source. Returns false if it exists already.
Runs of white space in the quote count as one blank.
Example: SELECT memory_evidence_insert(17, 5, ''I moved to Oslo'');
Errors: 22004, 22023 (the source does not contain the quote, or is the memory itself), 42704 (the tenant has no such memory), 54000 (more than 2000 bytes).';
