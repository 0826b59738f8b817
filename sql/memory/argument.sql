create function _mindful.memory_kind(kind text) returns text
language sql stable parallel safe security invoker
begin atomic
    select case
        when kind = any (array['fact', 'document', 'summary', 'reflection']) then kind
        else _mindful.raise('22023', pg_catalog.format('kind is %s', coalesce(pg_catalog.quote_literal(kind), 'null')),
            'Pass fact, document, summary or reflection. Use message_insert for messages.')::text
    end;
end;
comment on function _mindful.memory_kind(text) is
'Returns a kind that memory_insert accepts, or raises 22023.';

create function _mindful.metadata(metadata jsonb) returns jsonb
language sql stable parallel safe security invoker
begin atomic
    select case
        when metadata is null then '{}'::jsonb
        when pg_catalog.pg_column_size(metadata) > 262144
            then _mindful.raise('54000', pg_catalog.format('metadata has %s bytes, more than 262144', pg_catalog.pg_column_size(metadata)),
                'Store long texts as memories of their own.')::text::jsonb
        -- Other programs, Python among them, do not read what jsonb holds.
        when pg_catalog.length(metadata::text) > 250 and (
            metadata::text ~ '[^"0-9][0-9]{250}' or pg_catalog.jsonb_path_exists(metadata, 'strict $.**{200}')
        ) then _mindful.raise('54000', 'metadata has a number of more than 250 digits, or more than 200 levels',
            'Store such a number as a string, and flatten what is nested.')::text::jsonb
        when pg_catalog.jsonb_typeof(metadata) = 'object' then metadata
        else _mindful.raise('22023', 'metadata is not a JSON object', 'Pass an object, such as {"topic": "travel"}.')::text::jsonb
    end;
end;
comment on function _mindful.metadata(jsonb) is
'Returns metadata if it is a JSON object ({} for NULL), or raises 22023 or 54000.';

create function _mindful.array_elements(name text, value jsonb, fields text[])
returns table (element jsonb, number bigint)
-- With PostgreSQL's default estimate of 1000 rows, queries over two of these are compiled by JIT, which takes 1.4 s.
language plpgsql stable parallel safe security invoker rows 10
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    unknown text;
begin
    if value is null then
        perform _mindful.raise('22004', name || ' is null', 'Pass a JSON array of objects.');
    elsif jsonb_typeof(value) <> 'array' then
        perform _mindful.raise('22023', name || ' is not a JSON array', 'Pass a JSON array of objects.');
    end if;
    for element, number in select e.value, e.ordinality from jsonb_array_elements(value) with ordinality e loop
        if jsonb_typeof(element) <> 'object' then
            perform _mindful.raise('22023', format('element %s of %s is not a JSON object', number, name),
                'Fields are ' || array_to_string(fields, ', ') || '.');
        end if;
        select k into unknown from jsonb_object_keys(element) k where k <> all (fields) limit 1;
        if found then
            perform _mindful.raise('22023', format('element %s of %s has an unknown field "%s"', number, name, unknown),
                'Fields are ' || array_to_string(fields, ', ') || '.');
        end if;
        return next;
    end loop;
end
$$;
comment on function _mindful.array_elements(text, jsonb, text[]) is
'Returns the objects of a JSON array, numbered from 1. Raises 22004 or 22023 with the number of an element that is not an object or has an unknown field.';

create function _mindful.memory_total() returns table (memories double precision, mean_length double precision)
language sql stable parallel safe security invoker
begin atomic
    select coalesce(pg_catalog.sum(c.memories), 0)::double precision,
        (pg_catalog.sum(c.lexemes) / nullif(pg_catalog.sum(c.memories), 0))::double precision
    from mindful.memory_count c
    where c.tenant = (select _mindful.tenant());
end;
comment on function _mindful.memory_total() is
'Returns the number of the tenant''s memories and their mean number of lexemes.';

create function _mindful.memory_argument(name text, id bigint) returns bigint
language sql stable parallel safe security invoker
begin atomic
    select case
        when id is null then _mindful.raise('22004', name || ' is null', 'Pass the id of a memory.')::text::bigint
        when exists (select from mindful.memory m where m.tenant = (select _mindful.tenant()) and m.id = memory_argument.id)
            then id
        else _mindful.raise('42704', pg_catalog.format('there is no memory %s (%s)', id, name),
            'The memories of your tenant are in mindful.memory; memory_list() returns them.')::text::bigint
    end;
end;
comment on function _mindful.memory_argument(text, bigint) is 'Returns the id of one of the tenant''s memories, or raises 22004 or 42704.';

create function _mindful.memory_keep(ids bigint[]) returns setof bigint
language plpgsql volatile parallel unsafe security invoker rows 10
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    -- In the order in which memory_forget locks them.
    return query
    select m.id from mindful.memory m
    where m.tenant = (select _mindful.tenant()) and m.id = any (ids)
    order by m.id for key share;
end
$$;
comment on function _mindful.memory_keep(bigint[]) is
'Keeps memories from being deleted until the transaction ends, and returns the ids of those that exist. It waits for a deletion that has begun. Writers call it before they store rows that refer to memories; else a deletion meanwhile is an error of a foreign key.';

create function _mindful.share_argument(name text, value jsonb) returns real
language sql stable parallel safe security invoker
begin atomic
    select case
        when pg_catalog.jsonb_typeof(value) = 'null' then null
        when pg_catalog.jsonb_typeof(value) <> 'number' or not value::numeric between 0 and 1
            then _mindful.raise('22023', pg_catalog.format('%s is %s', name, value), 'Pass a number from 0 to 1.')::text::real
        else _mindful.real(value::numeric(40, 39))
    end;
end;
comment on function _mindful.share_argument(text, jsonb) is 'Returns a number from 0 to 1, NULL for none, or raises 22023.';

create function _mindful.level_argument(name text, level text) returns text
language sql stable parallel safe security invoker
begin atomic
    select case
        when level is null or level = any (array['data', 'information', 'knowledge', 'wisdom']) then level
        else _mindful.raise('22023', pg_catalog.format('%s is %L', name, level),
            'Pass data, information, knowledge or wisdom.')::text
    end;
end;
comment on function _mindful.level_argument(text, text) is 'Returns a level, NULL for none, or raises 22023.';

create function _mindful.time_argument(name text, value text) returns timestamptz
language plpgsql stable parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    moment timestamptz;
begin
    if value is null then
        return null;
    end if;
    begin
        moment := value::timestamptz;
    exception when invalid_datetime_format or datetime_field_overflow then
        perform _mindful.raise('22023', format('%s is %L', name, value), 'Pass a time such as 2026-01-31 12:00+00.');
    end;
    return _mindful.range_argument(name, moment);
end
$$;
comment on function _mindful.time_argument(text, text) is 'Returns a time, NULL for none, or raises 22008 (outside the years 1 to 9999) or 22023 (not a time).';

create function _mindful.moment_argument(name text, value text) returns timestamptz
language plpgsql stable parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    moment timestamptz := _mindful.time_argument(name, value);
begin
    if not isfinite(moment) then
        perform _mindful.raise('22023', format('%s is %s', name, value), 'Pass a finite time.');
    end if;
    return moment;
end
$$;
comment on function _mindful.moment_argument(text, text) is 'Returns a finite time, NULL for none, or raises 22008 or 22023.';

create function _mindful.valid_to_argument(name text, valid_from timestamptz, valid_to timestamptz) returns timestamptz
language sql stable parallel safe security invoker
begin atomic
    select case
        when valid_from >= valid_to then _mindful.raise('22023',
            pg_catalog.format('%s is %s, not after valid_from, %s', name, valid_to, valid_from),
            'Pass a valid_to after valid_from.')::text::timestamptz
        else valid_to
    end;
end;
comment on function _mindful.valid_to_argument(text, timestamptz, timestamptz) is 'Returns the end of a validity, or raises 22023 if it is not after the beginning.';
