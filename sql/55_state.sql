insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('state_tenant_mb', 'integer', 0, 1048576, '{global}', '256', 'How many megabytes of kept states a tenant may have.'),
    ('state_total_mb', 'integer', 0, 1048576, '{global}', '1024',
        'How many megabytes of kept states all tenants may have together; those that have most lose theirs first.');

-- A cache: UNLOGGED, so a crash empties it and standbys never see it, and no part of a dump. Parts are only added while
-- a conversation goes on, never rewritten, so little of it is ever dead; what is dead, is large.
create unlogged table kv_state (
    tenant text not null default _tenant(),
    session_id uuid not null,
    model text not null,
    first integer not null check (first >= 0),
    fingerprint text not null,
    tokens integer[] not null,
    state bytea not null,
    mac bytea not null,
    used_at timestamptz not null default clock_timestamp(),
    primary key (tenant, session_id, model, first),
    foreign key (tenant, session_id) references session on delete cascade
) with (
    autovacuum_vacuum_scale_factor = 0.1,
    toast.autovacuum_vacuum_scale_factor = 0.1,
    toast.autovacuum_vacuum_cost_delay = 0
);
-- Halves of floats: pglz finds nothing in them.
alter table kv_state alter column state set storage external;

comment on table kv_state is 'What generators computed of conversations, part by part, so that any connection goes on without evaluating them again. A cache: deleting rows costs time, never an answer.';
comment on column kv_state.first is 'Position in the prompt of the part''s first token, from 0.';
comment on column kv_state.fingerprint is 'Hash of all that the state depends on beside the tokens: the model''s file, its context''s settings, llama.cpp.';
comment on column kv_state.tokens is 'The tokens of this part, which a prompt must have at this position.';
comment on column kv_state.state is 'Keys and values of the tokens, as llama.cpp writes and reads them.';
comment on column kv_state.mac is 'HMAC-SHA256 of the row by a key that only the server''s processes have: llama.cpp trusts the bytes it is given, so nothing else may be given to it.';
comment on column kv_state.used_at is 'When the conversation last added this part; the conversation whose newest part is oldest leaves first.';

alter table kv_state enable row level security, force row level security;
create policy own on kv_state using (tenant = (select mindful._tenant())) with check (tenant = (select mindful._tenant_claimed()));

create function _kv_state_limits(out enabled boolean, out tenant_bytes bigint, out total_bytes bigint)
language sql stable parallel safe security invoker
begin atomic
    select true, 1048576 * (mindful.setting_get('state_tenant_mb') #>> '{}')::bigint,
        1048576 * (mindful.setting_get('state_total_mb') #>> '{}')::bigint;
end;
comment on function _kv_state_limits() is
'Whether states of conversations are kept, and how many bytes of them for a tenant and for all.';

create function _kv_state_parts(session_id uuid, model text, fingerprint text)
returns table (first integer, tokens integer[])
language plpgsql stable parallel restricted security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_column
begin
    -- A standby cannot so much as plan a query on an unlogged table.
    if not pg_is_in_recovery() and (select l.enabled from mindful._kv_state_limits() l) then
        return query
        select k.first, k.tokens
        from mindful.kv_state k
        where k.tenant = (select mindful._tenant()) and k.session_id = _kv_state_parts.session_id
            and k.model = _kv_state_parts.model and k.fingerprint = _kv_state_parts.fingerprint
        order by k.first;
    end if;
end
$$;
comment on function _kv_state_parts(uuid, text, text) is 'Which tokens of a conversation a state is kept of, part by part; none on a standby.';

create function _kv_state_read(session_id uuid, model text, first integer)
returns table (tenant text, state bytea, mac bytea)
language plpgsql stable parallel restricted security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_column
begin
    return query
    select k.tenant, k.state, k.mac
    from mindful.kv_state k
    where k.tenant = (select mindful._tenant()) and k.session_id = _kv_state_read.session_id
        and k.model = _kv_state_read.model and k.first = _kv_state_read.first;
end
$$;
comment on function _kv_state_read(uuid, text, integer) is 'The state of one part of a conversation, and whose it is.';

create function _kv_state_write(
    session_id uuid,
    model text,
    first integer,
    fingerprint text,
    tokens integer[],
    state bytea,
    mac bytea
) returns boolean
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_column
begin
    perform mindful._delete('kv_state', jsonb_agg(to_jsonb(k)))
    from (
        select k.session_id, k.model, k.first from mindful.kv_state k
        where k.tenant = (select mindful._tenant()) and k.session_id = _kv_state_write.session_id
            and k.model = _kv_state_write.model
            and (k.first >= _kv_state_write.first or k.fingerprint <> _kv_state_write.fingerprint)
    ) k;
    insert into mindful.kv_state (session_id, model, first, fingerprint, tokens, state, mac)
    values (_kv_state_write.session_id, _kv_state_write.model, _kv_state_write.first,
        _kv_state_write.fingerprint, _kv_state_write.tokens, _kv_state_write.state, _kv_state_write.mac);
    return true;
exception
    -- A full disk or a lock's time-out must not cost the reply. A cancel is not among `others`.
    when others then
        raise warning using message = format('mindful: the state of session %s is not kept: %s', session_id, sqlerrm),
            hint = 'The conversation goes on, more slowly on its next connection.';
        return false;
end
$$;
comment on function _kv_state_write(uuid, text, integer, text, integer[], bytea, bytea) is
'Keeps the state of one part of a conversation in place of all from its position on, and tells whether it did; a failure is a warning.';

create function _kv_state_evict() returns bigint
language sql volatile parallel unsafe security definer
begin atomic
    with conversation as (
        select k.tenant, k.session_id, k.model, pg_catalog.max(k.used_at) as used_at,
            -- A row without a state costs, too.
            pg_catalog.sum(pg_catalog.octet_length(k.state) + pg_catalog.pg_column_size(k.tokens) + 500) as bytes
        from mindful.kv_state k
        group by k.tenant, k.session_id, k.model
    ),
    running as (
        select c.*,
            pg_catalog.sum(c.bytes) over (partition by c.tenant order by c.used_at desc, c.session_id, c.model) as tenant_bytes
        from conversation c
    ),
    -- A tenant that has little loses nothing to one that adds much.
    filled as (
        select r.*, pg_catalog.sum(r.bytes) over (order by r.tenant_bytes, r.tenant, r.session_id, r.model) as total_bytes
        from running r
    ),
    -- Rows that a running transaction adds to or removes are its business.
    evicted as (
        select k.tenant, k.session_id, k.model, k.first
        from filled r
        cross join mindful._kv_state_limits() l
        join mindful.kv_state k on k.tenant = r.tenant and k.session_id = r.session_id and k.model = r.model
        where r.tenant_bytes > l.tenant_bytes or r.total_bytes > l.total_bytes
        for update of k skip locked
    ),
    deleted as (
        delete from mindful.kv_state k
        using evicted e
        where k.tenant = e.tenant and k.session_id = e.session_id and k.model = e.model and k.first = e.first
        returning 1
    )
    select pg_catalog.count(*) from deleted;
end;
comment on function _kv_state_evict() is
'Deletes the states of a tenant''s conversations that were used longest ago, as far as they exceed its limit, and as far as all exceed theirs, of those tenants that have most; returns the number of parts. It runs with the owner''s rights, as the limit of all concerns every tenant.';

create function _kv_state_inserted() returns trigger
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
set mindful.tenant = ''
as $$
begin
    perform mindful._kv_state_evict();
    return null;
end
$$;
comment on function _kv_state_inserted() is 'Keeps the limits of kept states, whoever adds to them.';
create trigger kv_state_inserted after insert on kv_state for each statement execute function _kv_state_inserted();

create function _session_shown_from(session_id uuid, model text) returns integer
language sql stable parallel safe security invoker
begin atomic
    select case
        when pg_catalog.jsonb_typeof(m.metadata -> 'shown_from') = 'number'
            and (m.metadata -> 'shown_from')::numeric between 1 and 2147483647
            then (m.metadata -> 'shown_from')::integer
    end
    from mindful.memory m
    where m.tenant = (select mindful._tenant()) and m.session_id = _session_shown_from.session_id
        and m.turn > 0 and m.role = 'assistant' and m.metadata ->> 'model' = _session_shown_from.model
    order by m.turn desc
    limit 1;
end;
comment on function _session_shown_from(uuid, text) is
'The first turn that a model was shown for its last reply in a session; NULL if that is not known.';
