-- Numbers and times near the limits of their types. PostgreSQL raises an error when a product underflows, and its
-- timestamps have years that clients cannot read.

create function _mindful.power(base double precision, exponent double precision) returns double precision
language sql immutable parallel safe security invoker
begin atomic
    select pg_catalog.power(base, least(exponent, case when base > 0 and base < 1 then -70 / pg_catalog.ln(base) end));
end;
comment on function _mindful.power(double precision, double precision) is
'Returns base ^ exponent. For a base below 1 the result is at least exp(-70), about 4e-31, because power() raises 22003 on underflow.';

create function _mindful.half_lives(since timestamptz, until timestamptz, half_life_days double precision) returns double precision
language sql stable parallel safe security invoker
begin atomic
    select greatest(0, pg_catalog.date_part('epoch', until) - pg_catalog.date_part('epoch', since)) / 86400 / half_life_days;
end;
comment on function _mindful.half_lives(timestamptz, timestamptz, double precision) is
'Returns the number of half-lives from since to until, 0 if until is earlier. until may be infinite.';

create function _mindful.time_is_readable(moment timestamptz) returns boolean
language sql immutable parallel safe security invoker
begin atomic
    select moment >= '0001-01-02 00:00:00+00' and moment < '9999-12-31 00:00:00+00';
end;
comment on function _mindful.time_is_readable(timestamptz) is
'Returns whether a time is in the years 1 to 9999 in every time zone. Python and ISO 8601 cannot write other years.';

create function _mindful.range_argument(name text, moment timestamptz) returns timestamptz
language sql stable parallel safe security invoker
begin atomic
    select case
        when pg_catalog.isfinite(moment) and not _mindful.time_is_readable(moment)
            then _mindful.raise('22008', pg_catalog.format('%s is %s', name, moment),
                'Pass a time between 0001-01-02 and 9999-12-30, or infinity.')::text::timestamptz
        else moment
    end;
end;
comment on function _mindful.range_argument(text, timestamptz) is
'Returns the time if it is in the years 1 to 9999, infinite or NULL. Error 22008: any other time.';

create function _mindful.real(value double precision) returns real
language sql immutable parallel safe security invoker
begin atomic
    select case when pg_catalog.abs(value) < 1e-30 then 0 else value end::real;
end;
comment on function _mindful.real(double precision) is
'Converts a number to real. Numbers with an absolute value below 1e-30 become 0, because the cast raises 22003 for them.';

create function _mindful.figure(value double precision) returns double precision
language sql immutable parallel safe security invoker
begin atomic
    select case
        when pg_catalog.abs(value) between 1e-30 and 1e30 then value
        when pg_catalog.abs(value) < 1e-30 then 0
    end;
end;
comment on function _mindful.figure(double precision) is
'Returns a number whose sums, squares and products neither overflow nor underflow: 0 below 1e-30, NULL above 1e30. Views of all tenants read columns by it, because tenants may write any number and one must not break a view of all tenants.';

create function _mindful.figure(value jsonb) returns double precision
language sql immutable parallel safe security invoker
begin atomic
    select case when pg_catalog.jsonb_typeof(value) = 'number' then
        case
            when pg_catalog.abs(value::numeric) between 1e-30 and 1e30 then value::double precision
            when pg_catalog.abs(value::numeric) < 1e-30 then 0
        end
    end;
end;
comment on function _mindful.figure(jsonb) is 'Returns the number that a JSON value is, as of a column; NULL if it is not a number.';

create function _mindful.time_text(moment timestamptz) returns text
language sql stable parallel safe security invoker
begin atomic
    select pg_catalog.to_json(
        least(greatest(moment, '0001-01-02 00:00:00+00'), '9999-12-30 00:00:00+00')) #>> '{}'
    where moment is not null;
end;
comment on function _mindful.time_text(timestamptz) is
'Returns a time in ISO 8601; NULL gives NULL. A time outside the years 1 to 9999 is moved to the nearest of these years.';
