-- Advisory locks, because the server frees them whatever becomes of a connection, queues waiters in order, and lets
-- them sleep. The class is this number; the slots are 1 .. n.
create function _slot_class() returns integer
language sql immutable parallel safe security invoker
begin atomic
    select 1835626093;
end;
comment on function _slot_class() is 'The class of the advisory locks that are slots for running a model ("mind" in ASCII).';

create function _slot_count(cores integer) returns integer
language sql stable parallel safe security invoker
begin atomic
    select coalesce(nullif((mindful.setting_get('model_slots') #>> '{}')::integer, 0), cores);
end;
comment on function _slot_count(integer) is 'As many slots as the setting model_slots says, or else as there are cores.';

create function _slot_take(cores integer) returns integer
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
set lock_timeout = 0
as $$
declare
    slots integer := mindful._slot_count(cores);
    -- Waiters spread over the slots by process number.
    slot integer := 1 + pg_backend_pid() % slots;
    wait_ms text := mindful.setting_get('model_slot_wait_ms') #>> '{}';
begin
    for candidate in 1 .. slots loop
        if pg_try_advisory_lock(mindful._slot_class(), candidate) then
            return candidate;
        end if;
    end loop;
    perform set_config('lock_timeout', wait_ms, true);
    perform pg_advisory_lock(mindful._slot_class(), slot);
    return slot;
exception when lock_not_available then
    raise exception using errcode = '55P03',
        message = format('mindful: all %s slots for running a model were busy for %s ms', slots, wait_ms),
        hint = 'Try again; or have an administrator raise the settings model_slots or model_slot_wait_ms.';
end
$$;
comment on function _slot_take(integer) is
'Takes one of the slots for running a model, as many as the setting model_slots says or else there are cores, waiting in line as long as the setting model_slot_wait_ms allows; error 55P03 then.';

create function _slot_more(cores integer, own integer) returns integer[]
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    slots integer := mindful._slot_count(cores);
begin
    return array(
        select s from generate_series(1, slots) s where s <> own and pg_try_advisory_lock(mindful._slot_class(), s)
    );
end
$$;
comment on function _slot_more(integer, integer) is
'Takes the slots that are free beside one''s own, for a batch that computes with a thread for each.';
