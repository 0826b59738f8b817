-- Numbers and times at the edges of their types: PostgreSQL raises errors where a product underflows, and has years that
-- clients cannot read.

create function _power(base double precision, exponent double precision) returns double precision
language sql immutable parallel safe security invoker
begin atomic
    select pg_catalog.power(base, least(exponent, case when base > 0 and base < 1 then -70 / pg_catalog.ln(base) end));
end;
comment on function _power(double precision, double precision) is
'base ^ exponent; with a base below 1 at least exp(-70), about 4e-31, because power() raises 22003 where a result underflows.';

create function _half_lives(since timestamptz, until timestamptz, half_life_days double precision) returns double precision
language sql immutable parallel safe security invoker
begin atomic
    select greatest(0, pg_catalog.date_part('epoch', until) - pg_catalog.date_part('epoch', since)) / 86400 / half_life_days;
end;
comment on function _half_lives(timestamptz, timestamptz, double precision) is
'The number of half-lives from one time to another, 0 if the other is earlier; until may be infinite.';

create function _time_is_readable(moment timestamptz) returns boolean
language sql immutable parallel safe security invoker
begin atomic
    select moment >= '0001-01-02 00:00:00+00' and moment < '9999-12-31 00:00:00+00';
end;
comment on function _time_is_readable(timestamptz) is
'Whether a time is in the years 1 to 9999 of every time zone, which Python and ISO 8601 can write.';

create function _range_argument(name text, moment timestamptz) returns timestamptz
language sql stable parallel safe security invoker
begin atomic
    select case
        when pg_catalog.isfinite(moment) and not mindful._time_is_readable(moment)
            then mindful._raise('22008', pg_catalog.format('%s is %s', name, moment),
                'Give a time between 0001-01-02 and 9999-12-30, or infinity.')::text::timestamptz
        else moment
    end;
end;
comment on function _range_argument(text, timestamptz) is
'Returns a time of the years 1 to 9999, an infinite one or NULL, or raises 22008.';

create function _real(value double precision) returns real
language sql immutable parallel safe security invoker
begin atomic
    select case when pg_catalog.abs(value) < 1e-30 then 0 else value end::real;
end;
comment on function _real(double precision) is
'A number as real, 0 where it is nearer to 0 than 1e-30: the cast raises 22003 there.';

create function _time_text(moment timestamptz) returns text
language sql stable parallel safe security invoker
begin atomic
    select pg_catalog.to_json(
        least(greatest(moment, '0001-01-02 00:00:00+00'), '9999-12-30 00:00:00+00')) #>> '{}'
    where moment is not null;
end;
comment on function _time_text(timestamptz) is
'A time in ISO 8601, NULL for none; outside the years 1 to 9999 the nearest time that Python can read.';
