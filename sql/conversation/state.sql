insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('state_tenant_mb', 'integer', 0, 1048576, '{global}', '256',
        'Largest size in megabytes of a tenant''s kept states.'),
    ('state_total_mb', 'integer', 0, 1048576, '{global}', '1024',
        'Largest size in megabytes of the kept states of all tenants. Above it, tenants with the most bytes lose states first.');

-- A cache: it is UNLOGGED, so a crash empties it, standbys do not have it, and dumps leave it out. Parts are added, never
-- rewritten: dead rows are few, but large.
create unlogged table kv_state (
    tenant text not null default _mindful.tenant(),
    session_id uuid,
    list_id uuid,
    thread_id uuid not null generated always as (coalesce(session_id, list_id)) stored,
    model text not null,
    first integer not null check (first >= 0),
    fingerprint text not null,
    tokens integer[] not null,
    state bytea not null,
    mac bytea not null,
    used_at timestamptz not null default clock_timestamp(),
    primary key (tenant, thread_id, model, first),
    foreign key (tenant, session_id) references session on delete cascade
) with (
    autovacuum_vacuum_scale_factor = 0.1,
    toast.autovacuum_vacuum_scale_factor = 0.1,
    toast.autovacuum_vacuum_cost_delay = 0
);
-- pglz does not compress half-precision floats.
alter table kv_state alter column state set storage external;
create index kv_state_session on kv_state (tenant, session_id) where session_id is not null;

comment on table kv_state is 'What generators computed of conversations, part by part, so that any connection goes on without evaluating them again. A cache: deleting rows costs time, never an answer.';
comment on column kv_state.session_id is 'The session whose state this is; NULL for a conversation that its client resends as a whole (llm_complete).';
comment on column kv_state.list_id is 'A random id of a conversation that its client resends as a whole; NULL for a session.';
comment on column kv_state.thread_id is 'The one of session_id and list_id that is not NULL.';
comment on column kv_state.first is 'Position in the prompt of the part''s first token, from 0.';
comment on column kv_state.fingerprint is
'Hash of all that the state depends on beside the tokens: the model file, the context settings and the version of llama.cpp.';
comment on column kv_state.tokens is 'The tokens of this part, which a prompt must have at this position.';
comment on column kv_state.state is 'Keys and values of the tokens, as llama.cpp writes and reads them.';
comment on column kv_state.mac is
'HMAC-SHA256 of the row by a key that only the server''s processes have. llama.cpp trusts the bytes that it loads, so a state without a valid HMAC is not loaded.';
comment on column kv_state.used_at is
'When the session last added this part. Eviction begins with the session whose newest part is oldest.';

alter table kv_state enable row level security, force row level security;
create policy own on kv_state using (tenant = (select _mindful.tenant())) with check (tenant = (select _mindful.tenant_claimed()));

create function _mindful.kv_state_limits(out enabled boolean, out tenant_bytes bigint, out total_bytes bigint)
language sql stable parallel safe security invoker
begin atomic
    select true, 1048576 * (mindful.setting_get('state_tenant_mb') #>> '{}')::bigint,
        1048576 * (mindful.setting_get('state_total_mb') #>> '{}')::bigint;
end;
comment on function _mindful.kv_state_limits() is
'Returns whether states are stored, and their largest size in bytes per tenant and in all.';

create function _mindful.kv_state_parts(thread_id uuid, model text, fingerprint text)
returns table (first integer, tokens integer[])
language plpgsql stable parallel restricted security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_column
begin
    -- On a standby, planning a query on an unlogged table is an error.
    if not pg_is_in_recovery() and (select l.enabled from _mindful.kv_state_limits() l) then
        return query
        select k.first, k.tokens
        from mindful.kv_state k
        where k.tenant = (select _mindful.tenant()) and k.thread_id = kv_state_parts.thread_id
            and k.model = kv_state_parts.model and k.fingerprint = kv_state_parts.fingerprint
        order by k.first;
    end if;
end
$$;
comment on function _mindful.kv_state_parts(uuid, text, text) is
'Returns the tokens of the stored state of a session, part by part; nothing on a standby.';

create function _mindful.kv_state_thread(tokens integer[], model text, fingerprint text)
returns table (thread_id uuid, is_whole boolean)
language plpgsql stable parallel restricted security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_column
begin
    if not pg_is_in_recovery() and (select l.enabled from _mindful.kv_state_limits() l) then
        return query
        select c.thread_id, c.matched = c.kept
        from (
            select p.thread_id, max(p.last) as kept, max(p.used_at) as used_at,
                coalesce(max(p.last) filter (where p.is_like), 0) as matched
            from (
                select k.thread_id, k.first + cardinality(k.tokens) as last, k.used_at,
                    bool_and(k.tokens = kv_state_thread.tokens[k.first + 1:k.first + cardinality(k.tokens)])
                        over (partition by k.thread_id order by k.first) as is_like
                from mindful.kv_state k
                where k.tenant = (select _mindful.tenant()) and k.list_id is not null
                    and k.model = kv_state_thread.model and k.fingerprint = kv_state_thread.fingerprint
                    and k.first < 1000000000
            ) p
            group by p.thread_id
        ) c
        where c.matched > 0
        order by c.matched desc, c.matched = c.kept desc, c.used_at desc
        limit 1;
    end if;
end
$$;
comment on function _mindful.kv_state_thread(integer[], text, text) is
'Returns the resent conversation with the longest kept beginning of these tokens, and whether nothing else is kept of it.';

create function _mindful.kv_state_read(thread_id uuid, model text, first integer)
returns table (tenant text, state bytea, mac bytea)
language plpgsql stable parallel restricted security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_column
begin
    return query
    select k.tenant, k.state, k.mac
    from mindful.kv_state k
    where k.tenant = (select _mindful.tenant()) and k.thread_id = kv_state_read.thread_id
        and k.model = kv_state_read.model and k.first = kv_state_read.first;
end
$$;
comment on function _mindful.kv_state_read(uuid, text, integer) is
'Returns the state of one part of a session, with its tenant.';

create function _mindful.kv_state_write(
    session_id uuid,
    list_id uuid,
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
    perform _mindful.delete('kv_state', jsonb_agg(to_jsonb(k)))
    from (
        select k.thread_id, k.model, k.first from mindful.kv_state k
        where k.tenant = (select _mindful.tenant()) and k.thread_id = coalesce(kv_state_write.session_id, kv_state_write.list_id)
            and k.model = kv_state_write.model
            and (k.first >= kv_state_write.first or k.fingerprint <> kv_state_write.fingerprint)
    ) k;
    insert into mindful.kv_state (session_id, list_id, model, first, fingerprint, tokens, state, mac)
    values (kv_state_write.session_id, kv_state_write.list_id, kv_state_write.model, kv_state_write.first,
        kv_state_write.fingerprint, kv_state_write.tokens, kv_state_write.state, kv_state_write.mac);
    return true;
exception
    -- A full disk or a lock timeout must not lose the reply. `others` excludes cancels.
    when others then
        raise warning using message = format('mindful: the state of conversation %s is not kept: %s',
            coalesce(kv_state_write.session_id, kv_state_write.list_id), sqlerrm),
            hint = 'The conversation goes on, more slowly on its next connection.';
        return false;
end
$$;
comment on function _mindful.kv_state_write(uuid, uuid, text, integer, text, integer[], bytea, bytea) is
'Stores the state of one part of a conversation, and returns whether it did. It replaces all states from its position on. A failure is a warning.';

create function _mindful.kv_state_evict() returns bigint
language sql volatile parallel unsafe security definer
begin atomic
    with conversation as (
        select k.tenant, k.thread_id, k.model, pg_catalog.max(k.used_at) as used_at,
            -- A row without a state costs, too.
            pg_catalog.sum(pg_catalog.octet_length(k.state) + pg_catalog.pg_column_size(k.tokens) + 500) as bytes
        from mindful.kv_state k
        group by k.tenant, k.thread_id, k.model
    ),
    running as (
        select c.*,
            pg_catalog.sum(c.bytes) over (partition by c.tenant order by c.used_at desc, c.thread_id, c.model) as tenant_bytes
        from conversation c
    ),
    -- A tenant with few bytes loses nothing to a tenant with many.
    filled as (
        select r.*, pg_catalog.sum(r.bytes) over (order by r.tenant_bytes, r.tenant, r.thread_id, r.model) as total_bytes
        from running r
    ),
    -- Rows that another transaction has locked are skipped.
    evicted as (
        select k.tenant, k.thread_id, k.model, k.first
        from filled r
        cross join _mindful.kv_state_limits() l
        join mindful.kv_state k on k.tenant = r.tenant and k.thread_id = r.thread_id and k.model = r.model
        where r.tenant_bytes > l.tenant_bytes or r.total_bytes > l.total_bytes
        for update of k skip locked
    ),
    deleted as (
        delete from mindful.kv_state k
        using evicted e
        where k.tenant = e.tenant and k.thread_id = e.thread_id and k.model = e.model and k.first = e.first
        returning 1
    )
    select pg_catalog.count(*) from deleted;
end;
comment on function _mindful.kv_state_evict() is
'Deletes states above the limits, and returns the number of parts. Above the limit of a tenant, its least recently used sessions lose theirs; above the limit of all, the tenants with most. It runs with the owner''s rights, because the limit of all concerns every tenant.';

create function _mindful.kv_state_inserted() returns trigger
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
set mindful.tenant = ''
as $$
begin
    perform _mindful.kv_state_evict();
    return null;
end
$$;
comment on function _mindful.kv_state_inserted() is
'Enforces the limits of states after each insert.';
create trigger kv_state_inserted after insert on kv_state for each statement execute function _mindful.kv_state_inserted();
