-- Weights hold what they were trained on: an adapter belongs to the tenants whose texts are in it.

alter table model
    add column trained_on integer not null default 0,
    add column withdrawn_at timestamptz,
    add constraint model_trained_on check (trained_on >= 0 and (trained_on = 0 or base is not null)),
    add constraint model_withdrawn check (withdrawn_at is null or trained_on > 0);
comment on column model.granted_to is 'Roles whose members see and use the model; of an adapter with trained_on above 0 only as long as each of its tenants consents.';
comment on column model.trained_on is 'Number of tenants whose texts the adapter was trained on (see model_tenant); 0: an administrator registered it for granted_to.';
comment on column model.withdrawn_at is 'When a text that the adapter was trained on was forgotten; since then it serves no tenant.';

insert into setting_definition (key, type, low, high, scopes, initial, description, choices) values
    ('default_generator', 'text', null, 40, '{user}', '""',
        'Name of the generator that calls use that name none; empty, or a generator that the user may not use: the default of all. Set by model_default_set.', null),
    ('training_share', 'boolean', null, null, '{user}', 'false',
        'Whether adapters that were trained on the user''s texts may serve other tenants, where an administrator shares them; see also training_consent.', null),
    ('adapter_on_forget', 'text', null, null, '{global,user}', '"withdraw"',
        'What happens to adapters that were trained on a text when it is deleted: withdraw (they serve no longer) or keep.', '{withdraw,keep}');

create table model_tenant (
    tenant text not null,
    model text not null references model on delete cascade,
    training_id bigint not null,
    primary key (tenant, model)
);
create index on model_tenant (model);
comment on table model_tenant is 'The tenants whose texts an adapter was trained on, and by which of their trainings.';
alter table model_tenant enable row level security, force row level security;
create policy own on model_tenant for select using (tenant = (select mindful._tenant()));
create policy administer on model_tenant to mindful_admin using (true) with check (true);
select pg_catalog.pg_extension_config_dump('mindful.model_tenant', '');

create function _setting_of(tenant text, key text) returns jsonb
language sql stable parallel safe security invoker
begin atomic
    select coalesce(
        (
            select s.value
            from (
                select distinct on (c.scope) c.scope, c.value
                from mindful.setting c
                where c.key = _setting_of.key and c.tenant = any (array['', _setting_of.tenant]) and c.scope <> 'session'
                order by c.scope, c.id desc
            ) s
            where s.value <> 'null'
            order by s.scope desc
            limit 1
        ),
        (select d.initial from mindful.setting_definition d where d.key = _setting_of.key)
    );
end;
comment on function _setting_of(text, text) is 'A tenant''s value of a setting outside sessions, as far as the caller sees that tenant''s settings.';

create function _model_consents(model text) returns table (tenant text, consents boolean)
language sql stable parallel safe security definer
begin atomic
    select t.tenant, 'true' = all (array[mindful._setting_of(t.tenant, 'training_consent'), mindful._setting_of(t.tenant, 'training_share')])
    from mindful.model_tenant t
    where t.model = _model_consents.model
    order by t.tenant;
end;
comment on function _model_consents(text) is
'The tenants whose texts an adapter was trained on, and whether each consents now to training and to sharing. With the owner''s rights, as administrators read no tenant''s settings; for administrators.';

create function _model_consented(model text) returns boolean
language sql stable parallel safe security definer
begin atomic
    select coalesce(pg_catalog.bool_and(c.consents), false) from mindful._model_consents(model) c;
end;
comment on function _model_consented(text) is
'Whether every tenant whose texts an adapter was trained on consents now to its serving others. With the owner''s rights; it names no tenant.';

create function _is_member(roles text[]) returns boolean
language sql stable parallel safe security invoker
begin atomic
    select exists (
        select from pg_catalog.unnest(roles) r (name)
        where pg_catalog.pg_has_role(pg_catalog.to_regrole(pg_catalog.quote_ident(r.name))::oid, 'usage')
    );
end;
comment on function _is_member(text[]) is 'Whether the current role is a member of one of some roles.';

create function _model_serves(name text, granted_to text[], trained_on integer, withdrawn_at timestamptz) returns boolean
language sql stable parallel safe security invoker
begin atomic
    with member as (
        select exists (
            select from mindful.model_tenant t where t.tenant = (select mindful._tenant()) and t.model = _model_serves.name
        ) as is_trainer
    )
    select case
        when _model_serves.trained_on = 0 then mindful._is_member(_model_serves.granted_to || '{mindful_admin}'::text[])
        when m.is_trainer and _model_serves.trained_on = 1 then true
        else (m.is_trainer or _model_serves.withdrawn_at is null and mindful._is_member(_model_serves.granted_to))
            and mindful._model_consented(_model_serves.name)
    end
    from member m;
end;
comment on function _model_serves(text, text[], integer, timestamptz) is
'Whether a model is the current tenant''s to see: it is granted to the role; or it was trained on texts of this tenant, and those of others in it consent; or it was shared, and all in it consent.';

create policy use on model for select using (mindful._model_serves(name, granted_to, trained_on, withdrawn_at));

create function _model_check() returns trigger
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    adapter text := (
        select m.name from mindful.model m
        where m.sha256 = new.sha256 and m.trained_on > 0 and new.trained_on = 0
        order by m.name limit 1
    );
begin
    if adapter is not null then
        perform mindful._raise('42710', format('the file is that of the adapter "%s", which was trained on tenants'' texts', adapter),
            'Use mindful.adapter_share to have an adapter serve others.');
    end if;
    return new;
end
$$;
comment on function _model_check() is
'Refuses the weights of a trained adapter under another name as weights of nobody, however they are entered: these would serve without consent.';
create trigger checked before insert on model for each row
    when (pg_catalog.current_setting('row_security') = 'on' or not mindful._is_restore()) execute function _model_check();

create function _default_base(kind text) returns text
language sql stable parallel safe security definer
begin atomic
    select m.base from mindful.model m where m.kind = _default_base.kind and m.is_default;
end;
comment on function _default_base(text) is
'The base of the adapter that is the default of all: it serves those that may not use the adapter. With the owner''s rights, as these do not see the adapter.';

create function _model_find(kind text, name text)
returns table (name text, kind text, provider text, source text, sha256 text, options jsonb, adapter text)
language sql stable parallel safe security invoker
begin atomic
    with own as materialized (
        select mindful.setting_get('default_generator') #>> '{}' as name
    )
    select m.name, m.kind, m.provider, coalesce(b.source, m.source), m.sha256, coalesce(b.options, '{}') || m.options,
        case when b.name is not null then m.source end
    from mindful.model m
    cross join own o
    left join mindful.model b on b.name = m.base
    where m.kind = _model_find.kind
        and (m.base is null or b.name is not null)
        and m.withdrawn_at is null
        -- Administrators see all models, and use those that serve them.
        and mindful._model_serves(m.name, m.granted_to, m.trained_on, m.withdrawn_at)
        and case
            when _model_find.name is not null then m.name = _model_find.name
            else m.is_default or m.name = o.name or m.name = mindful._default_base(_model_find.kind)
        end
    order by m.name = o.name desc, m.is_default desc
    limit 1;
end;
comment on function _model_find(text, text) is
'The named model, or the default one of its kind (the tenant''s own, else that of all, else its base), if it serves the caller; of an adapter the base''s source, which the caller must be allowed to use too, and the options of both.';

create function _default_generator_set(name text) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    if exists (select from mindful.model m where m.name = _default_generator_set.name and m.withdrawn_at is not null) then
        perform mindful._raise('55000', format('adapter "%s" was withdrawn: a text that it was trained on was forgotten', name),
            'Train an adapter anew, or use its base.');
    elsif not exists (select from mindful._model_find('generator', name)) then
        perform mindful._raise('22023', format('model "%s" is not a generator that serves you', name),
            'Only a generator can be a tenant''s own default; those that you may use are listed in mindful.model.');
    end if;
    perform mindful.setting_set('default_generator', to_jsonb(name));
end
$$;
comment on function _default_generator_set(text) is 'Makes a generator the tenant''s own default, or raises 22023 or 55000.';

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
from mindful.model import adapter_register
return adapter_register(name, base, source, scale, options, granted_to, trained_on)
$python$;
comment on function adapter_register(text, text, text, real, jsonb, text[], jsonb) is
'Registers a LoRA adapter (a GGUF file) of a generator of llama_cpp as a generator of its own: name it as the model of a call, or make it a default with model_default_set; naming the base takes it back. Give one of granted_to, the roles that it serves, for weights that hold no tenant''s texts; and trained_on, an object of tenants and their trainings ({"ana": 3}), for an adapter made by mindful: it serves these tenants alone, and with several of them only if each consents (settings training_consent, training_share). The source is an absolute path on the server; the file is loaded once with its base, and its hash is kept, so that one that was changed is refused. Scale says how strongly it is applied: 1 as it was trained, 0 not at all. Options: system_prompt, layout and prompt_lookup, where they are to be other than the base''s. A tenant that uses it must be allowed to use the base too. For administrators (mindful_admin). Errors: 22004, 22023 (bad argument, no possible base), 23503 (no such training), 42704 (no such base), 42710 (name taken, or the file is that of a trained adapter), 55000 (a text of the training was forgotten), 58P01 (no GGUF file that the server can read), XX001 (file damaged, or not made for this base).';

create function _adapter_consents_check(adapter text) returns text[]
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
        perform mindful._raise('42704', format('there is no trained adapter %s', coalesce(quote_literal(adapter), 'null')),
            'Adapters that were trained on tenants'' texts are in mindful.model_tenant.');
    elsif chosen.withdrawn_at is not null then
        perform mindful._raise('55000', format('adapter "%s" was withdrawn: a text that it was trained on was forgotten', adapter),
            'Train an adapter anew, or use its base.');
    end if;
    select array_agg(c.tenant), coalesce(array_agg(c.tenant) filter (where not c.consents), '{}') into tenants, refusing
    from mindful._model_consents(adapter) c;
    if cardinality(refusing) > 0 or tenants is null then
        raise exception using errcode = '55000',
            message = format('mindful: adapter "%s" holds texts of tenants that do not consent to sharing it', adapter),
            detail = format('It was trained on texts of %s; without consent: %s.',
                coalesce(array_to_string(tenants, ', '), 'unknown tenants'), array_to_string(refusing, ', ')),
            hint = 'Each of them has to set training_consent and training_share to true with setting_set.';
    end if;
    return tenants;
end
$$;
comment on function _adapter_consents_check(text) is 'Returns the tenants whose texts a trained adapter holds; raises 42704, or 55000 with the tenants that do not consent.';

create function adapter_share(adapter text, granted_to text[]) returns text[]
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    tenants text[];
    unknown text;
begin
    perform mindful._writable();
    if granted_to is null then
        perform mindful._raise('22004', 'granted_to is null', 'Give roles, such as ''{mindful_user}'' for all users, or ''{}'' to take it back.');
    end if;
    select r.name into unknown from unnest(granted_to) r (name) where to_regrole(quote_ident(r.name)) is null;
    if found then
        perform mindful._raise('42704', format('there is no role %s', coalesce(quote_literal(unknown), 'null')), 'Give names of roles.');
    elsif granted_to <> '{}' then
        tenants := mindful._adapter_consents_check(adapter);
    else
        tenants := array(select t.tenant from mindful.model_tenant t where t.model = adapter order by t.tenant);
    end if;
    update mindful.model m set granted_to = adapter_share.granted_to where m.name = adapter and m.trained_on > 0;
    if not found then
        perform mindful._raise('42704', format('there is no trained adapter %s', coalesce(quote_literal(adapter), 'null')),
            'Adapters that were trained on tenants'' texts are in mindful.model_tenant.');
    end if;
    return tenants;
end
$$;
comment on function adapter_share(text, text[]) is
'Offers an adapter that was trained on tenants'' texts to members of roles too, and returns those tenants. Each of them must consent (settings training_consent and training_share); if one takes its consent back, or forgets a text of the training, the adapter no longer serves others. An empty array takes the offer back. For administrators. Errors: 22004, 42704 (no such adapter or role), 55000 (a tenant does not consent: the detail lists all and those; withdrawn).';
