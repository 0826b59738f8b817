-- Weights can reproduce their training texts. Therefore an adapter serves only the tenants whose texts it was trained on,
-- unless all of them consent to more.

alter table model
    add column trained_on integer not null default 0,
    add column withdrawn_at timestamptz,
    add constraint model_trained_on check (trained_on >= 0 and (trained_on = 0 or base is not null)),
    add constraint model_withdrawn check (withdrawn_at is null or trained_on > 0);
comment on column model.granted_to is
'Roles whose members see and use the model. An adapter with trained_on above 0 serves them only while each of its tenants consents.';
comment on column model.trained_on is
'Number of tenants whose texts the adapter was trained on (see model_tenant). 0: no tenant''s texts, registered for granted_to.';
comment on column model.withdrawn_at is
'Time when a training text of the adapter was deleted. A withdrawn adapter serves no tenant.';

insert into setting_definition (key, type, low, high, scopes, initial, description, choices) values
    ('default_generator', 'text', null, 40, '{user}', '""',
        'Default generator of the tenant, set by model_default_set. If it is empty or the tenant may not use it, the global default applies.', null),
    ('training_share', 'boolean', null, null, '{user}', 'false',
        'Whether an administrator may share adapters trained on the user''s texts with other tenants. See also training_consent.', null),
    ('adapter_on_forget', 'text', null, null, '{global,user}', '"withdraw"',
        'Action for adapters trained on a text that is deleted: withdraw (they serve no tenant any more) or keep.', '{withdraw,keep}');

create table model_tenant (
    tenant text not null,
    model text not null references model on delete cascade,
    training_id bigint not null,
    primary key (tenant, model)
);
create index on model_tenant (model);
comment on table model_tenant is 'Tenants whose texts an adapter was trained on, with the id of their training.';
alter table model_tenant enable row level security, force row level security;
create policy own on model_tenant for select using (tenant = (select _mindful.tenant()));
create policy administer on model_tenant to mindful_admin using (true) with check (true);
select pg_catalog.pg_extension_config_dump('mindful.model_tenant', '');

-- No foreign keys: rows must outlive the adapter and the training.
create table trained_weights (
    tenant text not null,
    training_id bigint not null,
    sha256 text not null,
    withdrawn_at timestamptz,
    primary key (tenant, training_id, sha256)
);
create index on trained_weights (sha256);
comment on table trained_weights is
'SHA-256 of every adapter file registered as trained on a tenant''s texts. Rows stay after the adapter is deleted, so that its file is recognized.';
comment on column trained_weights.withdrawn_at is
'Time when a text of the training was deleted. The file is then refused under any name.';
alter table trained_weights enable row level security, force row level security;
create policy own on trained_weights for select using (tenant = (select _mindful.tenant()));
create policy administer on trained_weights for select to mindful_admin using (true);
select pg_catalog.pg_extension_config_dump('mindful.trained_weights', '');

create function _mindful.setting_of(tenant text, key text) returns jsonb
language sql stable parallel safe security invoker
begin atomic
    select coalesce(
        (
            select s.value
            from (
                select distinct on (c.scope) c.scope, c.value
                from mindful.setting c
                where c.key = setting_of.key and c.tenant = any (array['', setting_of.tenant]) and c.scope <> 'session'
                order by c.scope, c.id desc
            ) s
            where s.value <> 'null'
            order by s.scope desc
            limit 1
        ),
        (select d.initial from mindful.setting_definition d where d.key = setting_of.key and d.tenant = '')
    );
end;
comment on function _mindful.setting_of(text, text) is
'Returns a tenant''s value of a setting outside sessions, as far as the caller may read that tenant''s settings.';

create function _mindful.model_consents(model text) returns table (tenant text, consents boolean)
language sql stable parallel safe security definer
begin atomic
    select t.tenant, 'true' = all (array[_mindful.setting_of(t.tenant, 'training_consent'), _mindful.setting_of(t.tenant, 'training_share')])
    from mindful.model_tenant t
    where t.model = model_consents.model
    order by t.tenant;
end;
comment on function _mindful.model_consents(text) is
'Returns the tenants whose texts an adapter was trained on, and whether each consents to training and sharing. It runs with the owner''s rights, because administrators cannot read tenants'' settings. For administrators.';

create function _mindful.model_consented(model text) returns boolean
language sql stable parallel safe security definer
begin atomic
    select coalesce(pg_catalog.bool_and(c.consents), false) from _mindful.model_consents(model) c;
end;
comment on function _mindful.model_consented(text) is
'Returns whether every tenant whose texts an adapter was trained on consents to sharing it. It runs with the owner''s rights and names no tenant.';

create function _mindful.tenant_roles(tenant text) returns setof oid
language sql stable parallel safe security invoker rows 1
begin atomic
    select a.oid from pg_catalog.pg_roles a
    where case
        when pg_catalog.to_regrole(pg_catalog.quote_ident(tenant_roles.tenant)) is not null then a.rolname = tenant_roles.tenant
        else not a.rolsuper and pg_catalog.pg_has_role(a.oid, 'mindful_application', 'usage')
    end;
end;
comment on function _mindful.tenant_roles(text) is
'Returns the roles that act for a tenant: the role of its name, else all members of mindful_application.';

create function _mindful.is_member(roles text[]) returns boolean
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    -- A superuser, who is a member of every role, acts for a tenant here: the tenant's rights count.
    if (select c.rolsuper from pg_roles c where c.rolname = current_user) and _mindful.tenant() <> current_user then
        return exists (
            select from _mindful.tenant_roles(_mindful.tenant()) t (role), unnest(roles) r (name)
            where pg_has_role(t.role, to_regrole(quote_ident(r.name))::oid, 'usage')
        );
    end if;
    return exists (
        select from unnest(roles) r (name) where pg_has_role(to_regrole(quote_ident(r.name))::oid, 'usage')
    );
end
$$;
comment on function _mindful.is_member(text[]) is
'Returns whether the current role is a member of one of these roles. If a superuser acts for another tenant, the roles of the tenant are checked instead.';

create function _mindful.model_serves(name text, granted_to text[], trained_on integer, withdrawn_at timestamptz) returns boolean
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    is_trainer boolean;
begin
    if trained_on = 0 then
        return _mindful.is_member(granted_to || '{mindful_admin}'::text[]);
    end if;
    is_trainer := exists (
        select from mindful.model_tenant t where t.tenant = (select _mindful.tenant()) and t.model = model_serves.name
    );
    return is_trainer and trained_on = 1
        or (is_trainer or withdrawn_at is null and _mindful.is_member(granted_to)) and _mindful.model_consented(name);
end
$$;
comment on function _mindful.model_serves(text, text[], integer, timestamptz) is
'Returns whether the current tenant may use a model. One of three must hold. The model holds no tenant''s texts and is granted to the role. It was trained on this tenant''s texts, and all other tenants in it consent. It is shared with the role, not withdrawn, and all tenants in it consent.';

create policy use on model for select using (_mindful.model_serves(name, granted_to, trained_on, withdrawn_at));

create function _mindful.model_check() returns trigger
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    if new.trained_on = 0 and exists (select from mindful.trained_weights w where w.sha256 = new.sha256) then
        perform _mindful.raise('42710', format('the file of "%s" is an adapter trained on tenants'' texts', new.name),
            'Use mindful.adapter_share to let an adapter serve other tenants.');
    end if;
    return new;
end
$$;
comment on function _mindful.model_check() is
'Refuses the file of a trained adapter, present or deleted, if it is registered without trained_on. It would serve tenants without consent.';
create trigger checked before insert on model for each row
    when (pg_catalog.current_setting('row_security') = 'on' or not _mindful.is_restore()) execute function _mindful.model_check();

create function _mindful.default_base(kind text) returns text
language plpgsql stable parallel safe security definer
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    return (select m.base from mindful.model m where m.kind = default_base.kind and m.is_default);
end
$$;
comment on function _mindful.default_base(text) is
'Returns the base of the adapter that is the global default. The base serves tenants that may not use the adapter. It runs with the owner''s rights, because these tenants cannot see the adapter.';

create function _mindful.model_find(wanted_kind text, wanted text)
returns table (name text, kind text, provider text, source text, sha256 text, options jsonb, adapter text)
language plpgsql stable parallel safe security invoker rows 1
set search_path = pg_catalog, mindful, pg_temp
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    own_default text := case when wanted is null and wanted_kind = 'generator' then mindful.setting_get('default_generator') #>> '{}' end;
    global_base text := case when wanted is null and wanted_kind = 'generator' then _mindful.default_base(wanted_kind) end;
begin
    return query
    select m.name, m.kind, m.provider, coalesce(b.source, m.source), m.sha256, coalesce(b.options, '{}') || m.options,
        case when b.name is not null then m.source end
    from mindful.model m
    -- The policy checks the rights to each row that a plan reads, so the base is looked up by its name.
    left join lateral (select b.name, b.source, b.options from mindful.model b where b.name = m.base offset 0) b on true
    where m.kind = wanted_kind
        and (m.base is null or b.name is not null)
        and m.withdrawn_at is null
        -- Administrators see all models, but use only models that serve them.
        and _mindful.model_serves(m.name, m.granted_to, m.trained_on, m.withdrawn_at)
        and case when wanted is not null then m.name = wanted else m.is_default or m.name = own_default or m.name = global_base end
    order by m.name = own_default desc nulls last, m.is_default desc
    limit 1;
end
$$;
comment on function _mindful.model_find(text, text) is
'Returns the named model, or the default one of its kind, if it serves the caller. The default is the tenant''s own, else the global one, else the base of that one. An adapter is returned with the base''s source and the options of both; the caller must be allowed to use the base too.';

create function _mindful.default_generator_set(name text) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    if exists (select from mindful.model m where m.name = default_generator_set.name and m.withdrawn_at is not null) then
        perform _mindful.raise('55000', format('adapter "%s" was withdrawn because a text of its training was deleted', name),
            'Train a new adapter or use its base.');
    elsif not exists (select from _mindful.model_find('generator', name)) then
        perform _mindful.raise('22023', format('model "%s" is not a generator that you may use', name),
            'Pass a generator. The table mindful.model lists the models that you may use.');
    end if;
    perform mindful.setting_set('default_generator', to_jsonb(name));
end
$$;
comment on function _mindful.default_generator_set(text) is
'Makes a generator the tenant''s own default. Errors: 22023 (not a generator that the tenant may use), 55000 (withdrawn).';

create function adapter_register(
    name text,
    base text,
    source text,
    scale real default 1,
    options jsonb default '{}',
    granted_to text[] default null,
    trained_on jsonb default null
) returns text
language plpython3u volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.models.registry import adapter_register
return adapter_register(name, base, source, scale, options, granted_to, trained_on)
$python$;
comment on function adapter_register(text, text, text, real, jsonb, text[], jsonb) is
'Registers a LoRA adapter (a GGUF file) of a llama_cpp generator as a generator, and returns its name. For administrators. Pass either granted_to or trained_on. Errors: 22004, 22023, 23503, 42704, 42710, 55000, 58P01, XX001. Example: select adapter_register(''gemma-ana'', ''gemma'', ''/srv/models/ana.gguf'', trained_on => ''{"ana": 3}'');';

create function _mindful.adapter_consents_check(adapter text) returns text[]
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    chosen mindful.model;
    tenants text[];
    refusing text[];
begin
    select m.* into chosen from mindful.model m where m.name = adapter and m.trained_on > 0;
    if not found then
        perform _mindful.raise('42704', format('there is no trained adapter %s', coalesce(quote_literal(adapter), 'null')),
            'The table mindful.model_tenant lists the adapters trained on tenants'' texts.');
    elsif chosen.withdrawn_at is not null then
        perform _mindful.raise('55000', format('adapter "%s" was withdrawn because a text of its training was deleted', adapter),
            'Train a new adapter or use its base.');
    end if;
    select array_agg(c.tenant), coalesce(array_agg(c.tenant) filter (where not c.consents), '{}') into tenants, refusing
    from _mindful.model_consents(adapter) c;
    if cardinality(refusing) > 0 or tenants is null then
        raise exception using errcode = '55000',
            message = format('mindful: adapter "%s" is trained on texts of tenants that do not consent to sharing it', adapter),
            detail = format('Tenants of the training: %s. Tenants that do not consent: %s.',
                coalesce(array_to_string(tenants, ', '), 'unknown tenants'), array_to_string(refusing, ', ')),
            hint = 'Each of these tenants must set training_consent and training_share to true with setting_set.';
    end if;
    return tenants;
end
$$;
comment on function _mindful.adapter_consents_check(text) is
'Returns the tenants whose texts a trained adapter holds. Errors: 42704 (no such adapter), 55000 (withdrawn, or tenants do not consent; the detail names them).';

create function adapter_share(adapter text, granted_to text[]) returns text[]
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    tenants text[];
    unknown text;
begin
    perform _mindful.writable();
    if granted_to is null then
        perform _mindful.raise('22004', 'granted_to is null', 'Pass roles, such as ''{mindful_user}'' for all users, or ''{}'' to stop sharing.');
    end if;
    select r.name into unknown from unnest(granted_to) r (name) where to_regrole(quote_ident(r.name)) is null;
    if found then
        perform _mindful.raise('42704', format('there is no role %s', coalesce(quote_literal(unknown), 'null')), 'Pass names of existing roles.');
    elsif granted_to <> '{}' then
        tenants := _mindful.adapter_consents_check(adapter);
    else
        tenants := array(select t.tenant from mindful.model_tenant t where t.model = adapter order by t.tenant);
    end if;
    update mindful.model m set granted_to = adapter_share.granted_to where m.name = adapter and m.trained_on > 0;
    if not found then
        perform _mindful.raise('42704', format('there is no trained adapter %s', coalesce(quote_literal(adapter), 'null')),
            'The table mindful.model_tenant lists the adapters trained on tenants'' texts.');
    end if;
    return tenants;
end
$$;
comment on function adapter_share(text, text[]) is
'Shares an adapter trained on tenants'' texts with the members of roles, and returns these tenants. For administrators. Each tenant must consent (settings training_consent and training_share). An empty array stops sharing. Errors: 22004, 42704 (no such adapter or role), 55000 (withdrawn, or no consent). Example: select adapter_share(''team-style'', ''{mindful_user}'');';
