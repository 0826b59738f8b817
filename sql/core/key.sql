create table api_key (
    tenant text not null default _mindful.tenant(),
    id uuid not null default pg_catalog.gen_random_uuid(),
    name text not null,
    hash bytea not null unique check (pg_catalog.octet_length(hash) = 32),
    scopes text[] not null check (scopes <@ array['chat', 'embed', 'memory']),
    requests_per_minute integer check (requests_per_minute > 0),
    expires_at timestamptz,
    revoked_at timestamptz,
    last_used_at timestamptz,
    created_by text not null default current_user,
    created_at timestamptz not null default now(),
    primary key (tenant, id)
);
comment on table api_key is 'Keys of the service: a request that shows a key acts for the key''s tenant. The key itself is not stored.';
comment on column api_key.hash is 'SHA-256 of the key, which has 256 random bits, so that no slow hash is needed.';
comment on column api_key.scopes is 'What the key may do: chat (answers that keep nothing), embed (embeddings and reranking), memory (answers that recall and store).';
comment on column api_key.requests_per_minute is 'How many requests the key may make in a minute; NULL: no limit.';
comment on column api_key.last_used_at is 'When the key was last used, to the minute.';
alter table api_key enable row level security, force row level security;
create policy own on api_key using (tenant = (select _mindful.tenant()))
    with check (tenant = (select _mindful.tenant_claimed()));
create policy administer on api_key to mindful_admin using (true) with check (true);
-- A key that is revoked stays revoked.
create policy revoke on api_key as restrictive for update using (revoked_at is null) with check (revoked_at is not null);
select pg_catalog.pg_extension_config_dump('mindful.api_key', '');

-- A cache: UNLOGGED, so counting a request waits for no disk.
create unlogged table api_key_use (
    tenant text not null,
    id uuid not null,
    minute timestamptz not null,
    requests integer not null,
    primary key (tenant, id),
    foreign key (tenant, id) references api_key on delete cascade
) with (fillfactor = 50);
comment on table api_key_use is 'How many requests each key made in its last minute.';
alter table api_key_use enable row level security, force row level security;
create policy own on api_key_use using (tenant = (select _mindful.tenant()))
    with check (tenant = (select _mindful.tenant_claimed()));

create function _mindful.key_hash(key text) returns bytea
language sql immutable parallel safe security invoker
begin atomic
    select pg_catalog.sha256(pg_catalog.convert_to(key, 'UTF8'));
end;
comment on function _mindful.key_hash(text) is 'Returns the SHA-256 of a key.';

create function _mindful.key_tenant(tenant text) returns text
language plpgsql stable parallel restricted security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_variable
begin
    tenant := coalesce(tenant, _mindful.tenant_required());
    if tenant <> _mindful.tenant() and not pg_has_role(current_user, 'mindful_admin', 'usage') then
        perform _mindful.raise('42501', format('role %s cannot make keys of the tenant %L', current_user, tenant),
            'A member of mindful_admin makes keys of all tenants.');
    elsif tenant = '' or octet_length(tenant) > 1024 or left(tenant, 3) = 'pg_' or to_regrole(quote_ident(tenant)) is not null then
        perform _mindful.raise('22023', format('tenant is %L, which is empty, too long or the name of a role', tenant),
            'Use a name that no role has, such as customer-7.');
    end if;
    return tenant;
end
$$;
comment on function _mindful.key_tenant(text) is
'Returns the tenant that a new key acts for (NULL: the caller''s own); 42501 where the caller may not make its keys, 22023 where it is a role.';

create function key_create(
    name text,
    tenant text default null,
    scopes text[] default '{chat,embed,memory}',
    requests_per_minute integer default 600,
    expires_at timestamptz default null
) returns text
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_variable
declare
    secret text := 'mk-' || encode(sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8')), 'hex');
begin
    perform _mindful.writable();
    if scopes is null or not scopes <@ array['chat', 'embed', 'memory'] or array_position(scopes, null) is not null then
        perform _mindful.raise('22023', case when scopes is null then 'scopes is null' else 'scopes holds what is not a scope' end,
            'Scopes are chat, embed and memory.');
    end if;
    if requests_per_minute is not null then
        perform _mindful.integer_argument('requests_per_minute', requests_per_minute, 1, 1000000);
    end if;
    expires_at := _mindful.range_argument('expires_at', expires_at);
    insert into mindful.api_key (tenant, name, hash, scopes, requests_per_minute, expires_at)
    values (_mindful.key_tenant(tenant), _mindful.short_argument('name', _mindful.text_argument('name', name)),
        _mindful.key_hash(secret), scopes, requests_per_minute, expires_at);
    return secret;
end
$$;
comment on function key_create(text, text, text[], integer, timestamptz) is
'Makes a key of the service for a tenant (NULL: the caller''s own) and returns it. The key cannot be shown again. Scopes: chat, embed and memory. requests_per_minute NULL: no limit. Errors: 22004, 22008 (expires_at), 22023, 42501 (another tenant), 54000 (name over 1024 bytes). Example: select key_create(''notebook'', ''customer-7'');';

create function key_list()
returns table (
    id uuid,
    tenant text,
    name text,
    scopes text[],
    requests_per_minute integer,
    expires_at timestamptz,
    revoked_at timestamptz,
    last_used_at timestamptz,
    created_by text,
    created_at timestamptz
)
language sql stable parallel safe security invoker
begin atomic
    select k.id, k.tenant, k.name, k.scopes, k.requests_per_minute, k.expires_at, k.revoked_at, k.last_used_at,
        k.created_by, k.created_at
    from mindful.api_key k
    order by k.created_at, k.id;
end;
comment on function key_list() is 'Lists the keys of the caller''s tenant; for a member of mindful_admin those of all tenants.';

create function key_revoke(id uuid) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform _mindful.writable();
    update mindful.api_key k set revoked_at = now() where k.id = key_revoke.id and k.revoked_at is null;
    if not found and not exists (select from mindful.api_key k where k.id = key_revoke.id) then
        perform _mindful.raise('42704', format('there is no key %s', coalesce(id::text, 'null')), 'key_list() lists your keys.');
    end if;
end
$$;
comment on function key_revoke(uuid) is 'Ends a key of the caller''s tenant, or for a member of mindful_admin of any tenant: the next request that shows it is refused. Error 42704: no such key of the caller''s.';

create function _mindful.minute_rest(moment timestamptz) returns integer
language sql stable parallel safe security invoker
begin atomic
    select pg_catalog.ceil(60 - extract(second from moment))::integer;
end;
comment on function _mindful.minute_rest(timestamptz) is 'Returns the seconds until the next minute begins, rounded up: 1 to 60.';

create function key_use(key text)
returns table (tenant text, id uuid, scopes text[], wait_s integer)
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
set mindful.tenant = ''
as $$
#variable_conflict use_column
declare
    shown mindful.api_key;
    used integer;
    moment constant timestamptz := clock_timestamp();
begin
    select k.* into shown from mindful.api_key k
    where k.hash = _mindful.key_hash(key) and k.revoked_at is null and (k.expires_at is null or k.expires_at > now());
    if shown.id is null then
        perform _mindful.raise('28000', 'the key is unknown, expired or revoked', 'Make one with key_create().');
    end if;
    if not pg_is_in_recovery() and current_setting('transaction_read_only') = 'off' then
        insert into mindful.api_key_use as u (tenant, id, minute, requests)
        values (shown.tenant, shown.id, date_trunc('minute', moment), 1)
        on conflict (tenant, id) do update
        set requests = case when u.minute = excluded.minute then u.requests + 1 else 1 end, minute = excluded.minute
        returning u.requests into used;
        if shown.last_used_at is null or shown.last_used_at < now() - interval '1 minute' then
            update mindful.api_key k set last_used_at = now()
            where k.tenant = shown.tenant and k.id = shown.id
                and exists (select from mindful.api_key l where l.tenant = k.tenant and l.id = k.id for no key update skip locked);
        end if;
    end if;
    return query
    select shown.tenant, shown.id, shown.scopes,
        case when used > shown.requests_per_minute
            then _mindful.minute_rest(moment) else 0 end;
end
$$;
comment on function key_use(text) is
'Returns the tenant and the scopes of a key, and how many seconds to wait where its requests of this minute are spent (else 0); counts the request. For members of mindful_application. It runs with the owner''s rights, as the tenant is not known before. Error 28000: the key is unknown, expired or revoked.';
