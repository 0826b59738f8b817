alter table model
    add column prompt_format text check (prompt_format in ('alpaca', 'chat')),
    add column max_sequence_length integer check (max_sequence_length between 16 and 1048576),
    add column specialization text not null default 'general_reasoning'
        check (btrim(specialization) <> '' and octet_length(specialization) <= 128),
    add column lora jsonb not null default '{}' check (jsonb_typeof(lora) = 'object');
comment on column model.prompt_format is
'Layout of training prompts: alpaca, or chat (the model''s own chat template). NULL: the model is not trained.';
comment on column model.max_sequence_length is
'Largest number of tokens of a training sample; NULL is the context length.';
comment on column model.specialization is
'Purpose of the model, such as general_reasoning. With code_generation its training samples are about code; other names choose the general forms.';
comment on column model.lora is
'LoRA parameters that replace the defaults of mindful train: rank, alpha, dropout, epochs, learning_rate, batch, target_modules.';

insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('training_consent', 'boolean', null, null, '{user}', 'false',
        'Whether texts of the user may become training samples.'),
    ('replay_level', 'text', null, null, '{global,user}', '"data"', 'Lowest level of facts that become training samples.'),
    ('replay_confidence', 'number', 0, 1, '{global,user}', '0.7', 'Lowest confidence of facts that become training samples.'),
    ('replay_accesses', 'integer', 0, 1000000, '{global,user}', '0', 'Smallest number of accesses of facts that become training samples.');

create table training_sample (
    tenant text not null default _mindful.tenant(),
    id bigint generated always as identity,
    consolidation_id bigint not null,
    model text not null,
    form text not null check (form in ('recall', 'answer', 'explain', 'factors', 'apply', 'decide', 'abstain', 'link')),
    instruction text,
    input text,
    output text,
    source_id bigint not null,
    neighbor_ids bigint[] not null default '{}',
    confidence real not null,
    split text not null check (split in ('train', 'validation')),
    refused text[] not null default '{}',
    created_at timestamptz not null default now(),
    primary key (tenant, id),
    foreign key (tenant, consolidation_id) references consolidation (tenant, id) on delete cascade,
    foreign key (tenant, source_id) references memory (tenant, id) on delete cascade,
    check (refused <> '{}' or instruction is not null and output is not null)
);
comment on column training_sample.form is
'recall: a question answered without a quote. answer, explain: a question about a quote. factors: linked facts. link: a link that grew or faded. apply: a preference about code. decide: contradicting facts. abstain: a question without a known answer.';
create index on training_sample (tenant, consolidation_id) where consolidation_id is not null;
create index on training_sample (tenant, source_id) where source_id is not null;
comment on table training_sample is
'Instruction pairs made from facts: accepted ones, and refused ones with the reasons.';
comment on column training_sample.source_id is 'The fact that the pair is about.';
comment on column training_sample.neighbor_ids is
'Other facts in the pair. If one of them is forgotten, the pair is deleted.';
comment on column training_sample.split is
'train or validation, by the sources of the fact. No source has facts in both.';
comment on column training_sample.refused is
'Gates that the pair failed: no_consent, no_evidence, not_valid, confidence, volatile, secret, personal, duplicate, second_output (an accepted pair has the same instruction and input), mixed_split (it would put held-out facts into training), not_code (not for a code model), too_long. Texts of secret and personal pairs are not stored.';

create table training_sample_memory (
    tenant text not null default _mindful.tenant(),
    sample_id bigint not null,
    memory_id bigint not null,
    primary key (tenant, sample_id, memory_id),
    foreign key (tenant, sample_id) references training_sample (tenant, id) on delete cascade,
    foreign key (tenant, memory_id) references memory (tenant, id) on delete cascade
);
create index on training_sample_memory (tenant, memory_id) where memory_id is not null;
comment on table training_sample_memory is 'All memories that a pair was made from.';

alter table training_sample enable row level security, force row level security;
create policy own on training_sample using (tenant = (select _mindful.tenant())) with check (tenant = (select _mindful.tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.training_sample', '');
alter table training_sample_memory enable row level security, force row level security;
create policy own on training_sample_memory using (tenant = (select _mindful.tenant()))
    with check (tenant = (select _mindful.tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.training_sample_memory', '');
select pg_catalog.pg_extension_config_dump('mindful.training_sample_id_seq', '');

create function _mindful.sample_memory_lost() returns trigger
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    if exists (select from old_rows) then  -- Each deleted memory comes here, mostly with none.
        delete from mindful.training_sample s using old_rows o where s.tenant = o.tenant and s.id = o.sample_id;
    end if;
    return null;
end
$$;
comment on function _mindful.sample_memory_lost() is 'Deletes training samples made from a forgotten memory.';

create function _mindful.sample_lost() returns trigger
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    update mindful.consolidation c set withdrawn = c.withdrawn + o.samples
    from (select tenant, consolidation_id, count(*) as samples from old_rows where refused = '{}' group by 1, 2) o
    where c.tenant = o.tenant and c.id = o.consolidation_id;
    return null;
end
$$;
comment on function _mindful.sample_lost() is 'Counts deleted samples in consolidation.withdrawn of their run.';

create trigger sample_lost after delete on training_sample referencing old table as old_rows
    for each statement when (pg_catalog.current_setting('row_security') = 'on' or not _mindful.is_restore()) execute function _mindful.sample_lost();
create trigger sample_memory_lost after delete on training_sample_memory referencing old table as old_rows
    for each statement when (pg_catalog.current_setting('row_security') = 'on' or not _mindful.is_restore()) execute function _mindful.sample_memory_lost();

create function _mindful.lora_argument(lora jsonb) returns jsonb
language plpgsql immutable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    names jsonb := '{"r": "rank", "lora_alpha": "alpha", "lora_dropout": "dropout", "num_train_epochs": "epochs",
        "per_device_train_batch_size": "batch"}';
    checked jsonb := '{}';
    name text;
    value jsonb;
begin
    if lora is null or jsonb_typeof(lora) <> 'object' then
        perform _mindful.raise('22023', 'lora is not an object', 'Pass an object such as {"r": 8, "lora_alpha": 16}.');
    end if;
    for name, value in select coalesce(names ->> e.key, e.key), e.value from jsonb_each(lora) e loop
        if name = any ('{rank,alpha,dropout,epochs,learning_rate,batch}') and jsonb_typeof(value) = 'number' then
            null;
        elsif name = 'target_modules' and jsonb_typeof(value) = 'array' and value <> '[]'
            and value <@ '["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]'
        then
            null;
        else
            perform _mindful.raise('22023', format('lora has %s with %s', to_jsonb(name), left(value::text, 100)),
                'Pass numbers rank (r), alpha (lora_alpha), dropout (lora_dropout), epochs (num_train_epochs), learning_rate and batch (per_device_train_batch_size), and target_modules, an array of q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj and down_proj.');
        end if;
        if checked ? name then
            perform _mindful.raise('22023', format('lora has %s twice', to_jsonb(name)), 'Pass it under one name.');
        end if;
        checked := checked || jsonb_build_object(name, value);
    end loop;
    return checked;
end
$$;
comment on function _mindful.lora_argument(jsonb) is
'Returns LoRA parameters under their names in mindful: r becomes rank, lora_alpha alpha, lora_dropout dropout, num_train_epochs epochs, per_device_train_batch_size batch. Error 22023: another name or a wrong value.';

create function training_configure(
    name text,
    prompt_format text,
    max_sequence_length integer default null,
    specialization text default 'general_reasoning',
    lora jsonb default '{}'
) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    parameters jsonb;
begin
    perform _mindful.writable();
    parameters := _mindful.lora_argument(lora);
    if prompt_format is not null and prompt_format not in ('alpaca', 'chat') then
        perform _mindful.raise('22023', format('prompt_format is %L', prompt_format), 'Pass alpaca or chat.');
    elsif coalesce(btrim(specialization), '') = '' or octet_length(specialization) > 128 then
        perform _mindful.raise('22023', format('specialization is %L', left(specialization, 200)),
            'Pass a name of at most 128 bytes, such as general_reasoning or code_generation.');
    elsif max_sequence_length not between 16 and 1048576 then
        perform _mindful.raise('22023', format('max_sequence_length is %s', max_sequence_length), 'Pass max_sequence_length between 16 and 1048576.');
    end if;
    update mindful.model m
    set prompt_format = training_configure.prompt_format, max_sequence_length = training_configure.max_sequence_length,
        specialization = training_configure.specialization, lora = parameters
    where m.name = training_configure.name and m.kind = 'generator';
    if not found then
        perform _mindful.raise('42704', format('there is no generator %s', coalesce(quote_literal(name), 'null')),
            'The models that you may use are listed in mindful.model.');
    end if;
end
$$;
comment on function training_configure(text, text, integer, text, jsonb) is
'Sets how a generator is trained. For administrators. prompt_format is alpaca, chat or NULL (it is not trained). Errors: 22023, 42704 (no such generator). Example: select training_configure(''smollm2-135m-instruct'', ''chat'', lora => ''{"r": 8, "target_modules": ["q_proj", "v_proj"]}'');';

create type replay_detail as (
    id bigint,
    status text,
    model text,
    facts integer,
    accepted integer,
    refused jsonb,
    below jsonb,
    error text
);
comment on type replay_detail is
'Result of replay_run: facts above the thresholds, accepted pairs, refused pairs by reason, and facts below each threshold.';

create function _mindful.replay_filter(filter jsonb) returns jsonb
language plpgsql stable parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    found_filter jsonb := jsonb_build_object('level', mindful.setting_get('replay_level'),
        'confidence', mindful.setting_get('replay_confidence'), 'accesses', mindful.setting_get('replay_accesses'),
        'facts', 1000, 'since', null, 'again', false) || coalesce(filter, '{}');
    bound record;
begin
    if jsonb_typeof(coalesce(filter, '{}')) <> 'object' or found_filter - '{level,confidence,accesses,facts,since,again}'::text[] <> '{}' then
        perform _mindful.raise('22023', 'filter is not an object of thresholds', 'Pass an object with some of level, confidence, accesses, facts, since and again.');
    elsif coalesce(found_filter ->> 'level', '') <> all (array['data', 'information', 'knowledge', 'wisdom']) then
        perform _mindful.raise('22023', format('level is %L', found_filter ->> 'level'), 'Pass data, information, knowledge or wisdom.');
    end if;
    for bound in
        select b.*, case jsonb_typeof(found_filter -> b.key) when 'number' then (found_filter ->> b.key)::numeric end as value
        from (values ('confidence', '', 0, 1), ('accesses', '', 0, 1000000000), ('facts', 'whole ', 1, 1000000)) b (key, whole, low, high)
    loop
        if bound.value is null or bound.value not between bound.low and bound.high or bound.whole <> '' and bound.value % 1 <> 0 then
            perform _mindful.raise('22023', format('%s is %s', bound.key, left((found_filter -> bound.key)::text, 100)),
                format('Pass a %snumber from %s to %s.', bound.whole, bound.low, bound.high));
        end if;
    end loop;
    if jsonb_typeof(found_filter -> 'again') <> 'boolean' then
        perform _mindful.raise('22023', 'again is not true or false', 'Pass {"again": true} to use facts of earlier runs again.');
    end if;
    perform _mindful.time_argument('since', found_filter ->> 'since');
    return found_filter;
end
$$;
comment on function _mindful.replay_filter(jsonb) is
'Returns the thresholds of a replay run, from the filter or the settings, or raises 22023.';

create function _mindful.replay_facts(filter jsonb, model text)
returns table (
    id bigint, subject text, relation text, object text, content text, confidence real, valid boolean, said date,
    superseded_by bigint, contradicted_by bigint, evidence jsonb, below text, curated boolean, question text, level text
)
language sql stable parallel safe security invoker
begin atomic
    select m.id, s.subject, s.relation, s.object, m.content, coalesce(m.confidence, 1),
        (m.valid_from is null or m.valid_from <= pg_catalog.now()) and (m.valid_to is null or m.valid_to > pg_catalog.now()),
        coalesce(m.valid_from, m.created_at)::date, m.superseded_by,
        (select pg_catalog.min(l.source_id) from mindful.memory_link l
            where l.tenant = m.tenant and l.target_id = m.id and l.relation = 'contradicts'),
        (select pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object('source_id', e.source_id, 'quote', e.quote) order by e.source_id)
            from mindful.memory_evidence e where e.tenant = m.tenant and e.id = m.id),
        case
            when pg_catalog.array_position(array['data', 'information', 'knowledge', 'wisdom'], m.level)
                < pg_catalog.array_position(array['data', 'information', 'knowledge', 'wisdom'], filter ->> 'level') then 'level'
            when coalesce(m.confidence, 1) < (filter ->> 'confidence')::real then 'confidence'
            when coalesce(a.access_count, 0) < (filter ->> 'accesses')::numeric then 'accesses'
        end,
        s.id is null,
        case when pg_catalog.jsonb_typeof(m.metadata -> 'question') = 'string' then m.metadata ->> 'question' end,
        m.level
    from mindful.memory m
    left join mindful.memory_statement s on s.tenant = m.tenant and s.id = m.id
    left join mindful.memory_access a on a.tenant = m.tenant and a.id = m.id
    where m.tenant = (select _mindful.tenant()) and m.kind = any (array['fact', 'reflection'])
        and (filter ->> 'since' is null or m.created_at >= (filter ->> 'since')::timestamptz)
        and ((filter -> 'again')::boolean or not exists (
            select from mindful.training_sample t
            where t.tenant = m.tenant and t.source_id = m.id and t.model = replay_facts.model and t.refused = '{}'
        ))
    order by pg_catalog.array_position(array['wisdom', 'knowledge', 'information', 'data'], m.level),
        coalesce(a.access_count, 0) desc, coalesce(m.confidence, 1) desc, m.id;
end;
comment on function _mindful.replay_facts(jsonb, text) is
'Returns facts, wisdom first, within a level the most used and most confident first, with the threshold that each is below. curated: people or applications wrote it. Without again, facts that the model has samples of are left out.';

create function _mindful.replay_links(ids bigint[])
returns table (source_id bigint, target_id bigint, relation text, weight_first real, weight real)
language sql stable parallel safe security invoker
begin atomic
    select l.source_id, l.target_id, l.relation, l.weight_first, l.weight
    from mindful.memory_link l
    where l.tenant = (select _mindful.tenant()) and l.source_id = any (ids) and l.target_id = any (ids)
        and pg_catalog.abs(l.weight - l.weight_first) >= 0.05::real
    order by pg_catalog.abs(l.weight - l.weight_first) desc, 1, 2, 3
    limit 1000;
end;
comment on function _mindful.replay_links(bigint[]) is
'Returns links between facts whose weight has changed by at least 0.05 since they were made, at most 1000.';

create function _mindful.replay_neighbors(id bigint, most integer)
returns table (neighbor_id bigint, relation text, depth integer, content text)
language sql stable parallel safe security invoker
begin atomic
    with recursive walk (id, relation, depth, weight) as (
        select replay_neighbors.id, null::text, 0, 1::double precision
        union all
        select n.id, n.relation, w.depth + 1, w.weight * n.weight
        from walk w,
            lateral (
                select case when l.source_id = w.id then l.target_id else l.source_id end as id, l.relation, l.weight
                from mindful.memory_link l
                where l.tenant = (select _mindful.tenant()) and (l.source_id = w.id or l.target_id = w.id)
                    and l.relation <> 'contradicts'
                order by l.weight desc, 1 limit 8
            ) n
        where w.depth < 2
    ),
    nearest as (
        select distinct on (w.id) w.id, w.relation, w.depth, w.weight
        from walk w where w.id <> replay_neighbors.id order by w.id, w.depth, w.weight desc
    )
    select n.id, n.relation, n.depth, m.content
    from nearest n
    join mindful.memory m on m.tenant = (select _mindful.tenant()) and m.id = n.id
    where m.kind = 'fact' and (m.valid_to is null or m.valid_to > pg_catalog.now())
    order by n.depth, n.weight desc, n.id
    limit most;
end;
comment on function _mindful.replay_neighbors(bigint, integer) is
'Returns valid facts within two links of a fact, the nearest and most strongly linked first.';

create function _mindful.replay(run bigint, model text, thresholds jsonb) returns jsonb
language plpython3u volatile parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.learning.sample import replay
return replay(run, model, thresholds)
$python$;
comment on function _mindful.replay(bigint, text, jsonb) is
'Inserts the training samples of a run and returns counts.';

create function replay_run(model text, filter jsonb default '{}') returns replay_detail
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    thresholds jsonb := _mindful.replay_filter(filter);
    trained mindful.model;
    run bigint;
    counts jsonb := '{}';
    failure text;
    closed mindful.consolidation;
begin
    perform _mindful.writable();
    select m.* into trained from mindful.model m where m.name = replay_run.model and m.kind = 'generator';
    if not found then
        perform _mindful.raise('42704', format('there is no generator %s', coalesce(quote_literal(model), 'null')),
            'The models that you may use are listed in mindful.model.');
    elsif trained.prompt_format is null then
        perform _mindful.raise('55000', format('the model "%s" has no prompt format', model),
            format('Ask an administrator to call mindful.training_configure(%L, ''chat'').', model));
    end if;
    perform _mindful.consolidation_lock();
    run := _mindful.consolidation_open('replay', model, jsonb_strip_nulls(thresholds));
    begin
        counts := _mindful.replay(run, model, thresholds);
    exception when feature_not_supported then  -- a library is missing: no run of this server can succeed
        raise;
    when others then  -- a cancel is not among them
        failure := sqlstate || ': ' || sqlerrm;
        counts := '{}';
    end;
    closed := _mindful.consolidation_close(run, counts, failure, true);
    return (closed.id, closed.status, model, closed.memories_processed, closed.pairs_generated,
        closed.outputs -> 'refused', closed.outputs -> 'below', closed.error)::mindful.replay_detail;
end
$$;
comment on function replay_run(text, jsonb) is
'Makes instruction pairs for a generator from the tenant''s best facts, and returns counts. Refused pairs are stored with the reasons. Errors: 22023 (filter), 42704 (no such generator), 55000 (the model has no prompt format), 55P03 (a run is active). Example: select id, accepted, refused from replay_run(''smollm2-135m-instruct'', ''{"level": "information"}'');';

insert into setting_definition (key, type, scopes, initial, description) values
    ('replay_nightly', 'boolean', '{user}', 'false',
        'Whether the nightly run makes training samples from new facts, for each model with a prompt format.');

create function replay_night() returns setof replay_detail
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    trained text;
begin
    perform _mindful.writable();
    for trained in
        select m.name from mindful.model m where m.kind = 'generator' and m.prompt_format is not null order by m.name
    loop
        if exists (select from _mindful.replay_facts(_mindful.replay_filter('{}'), trained) f where f.below is null) then
            return query select r.* from mindful.replay_run(trained) r;
        end if;
    end loop;
end
$$;
comment on function replay_night() is
'Calls replay_run for each model with a prompt format that has new facts. The nightly run of consolidation_schedule does so for tenants with the setting replay_nightly. Errors as replay_run.';

create function _mindful.training_model(run bigint) returns jsonb
language plpython3u stable parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.learning.sample import training_model
return training_model(run)
$python$;
comment on function _mindful.training_model(bigint) is
'Returns what a training needs of the model of a replay run: model, source, sha256_base, prompt_format, max_sequence_length, specialization, lora, system_prompt. Error 42704 (no such run of the tenant).';
