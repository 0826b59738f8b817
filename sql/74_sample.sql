alter table model
    add column prompt_format text check (prompt_format in ('alpaca', 'chatml')),
    add column max_sequence_length integer check (max_sequence_length between 16 and 1048576),
    add column specialisation text not null default 'general_reasoning'
        check (specialisation in ('general_reasoning', 'code_generation')),
    add column lora jsonb not null default '{}' check (jsonb_typeof(lora) = 'object');
comment on column model.prompt_format is 'How a training sample is laid out for the model; NULL: it is not to be trained.';
comment on column model.max_sequence_length is 'Tokens of a training sample at most; NULL is the context''s length.';
comment on column model.specialisation is 'What the model is for, which decides the forms of its training samples.';
comment on column model.lora is 'Parameters of LoRA training that are other than the command''s defaults: rank, alpha, dropout, epochs, learning_rate, batch.';

insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('training_consent', 'boolean', null, null, '{user}', 'false',
        'Whether what the user has told may become training samples.'),
    ('replay_level', 'text', null, null, '{global,user}', '"knowledge"', 'Least level of facts that become training samples.'),
    ('replay_confidence', 'number', 0, 1, '{global,user}', '0.7', 'Least confidence of facts that become training samples.'),
    ('replay_accesses', 'integer', 0, 1000000, '{global,user}', '0', 'Least uses of facts that become training samples.');

create table training_sample (
    tenant text not null default _tenant(),
    id bigint generated always as identity,
    consolidation_id bigint not null,
    model text not null,
    form text not null check (form in ('recall', 'answer', 'explain', 'factors', 'apply', 'decide', 'abstain')),
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
comment on column training_sample.form is 'recall: what is known, without a quote; answer, explain: what a quote says; factors: what is linked; apply: a wish about code; decide: between contradicting facts; abstain: from what is not known, or not said by a quote.';
create index on training_sample (tenant, consolidation_id) where consolidation_id is not null;
create index on training_sample (tenant, source_id) where source_id is not null;
comment on table training_sample is 'Instruction pairs made of facts, and those that were refused with the reasons why.';
comment on column training_sample.source_id is 'The fact that the pair is about.';
comment on column training_sample.neighbor_ids is 'Other facts that it tells of; with any of them forgotten the pair goes too.';
comment on column training_sample.split is 'By the sources of the fact: no text that is trained on has told anything of what is held out.';
comment on column training_sample.refused is 'Gates that the pair did not pass: no_consent, no_evidence, not_valid, confidence, volatile, secret, personal, duplicate, mixed_split (it would tell of held-out facts in training), not_code (a model of code does not learn it), too_long. The texts of secret and personal ones are not kept.';

create table training_sample_memory (
    tenant text not null default _tenant(),
    sample_id bigint not null,
    memory_id bigint not null,
    primary key (tenant, sample_id, memory_id),
    foreign key (tenant, sample_id) references training_sample (tenant, id) on delete cascade,
    foreign key (tenant, memory_id) references memory (tenant, id) on delete cascade
);
create index on training_sample_memory (tenant, memory_id) where memory_id is not null;
comment on table training_sample_memory is 'Every memory that a pair tells of.';

alter table training_sample enable row level security, force row level security;
create policy own on training_sample using (tenant = (select mindful._tenant())) with check (tenant = (select mindful._tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.training_sample', '');
alter table training_sample_memory enable row level security, force row level security;
create policy own on training_sample_memory using (tenant = (select mindful._tenant()))
    with check (tenant = (select mindful._tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.training_sample_memory', '');
select pg_catalog.pg_extension_config_dump('mindful.training_sample_id_seq', '');

create function _sample_memory_lost() returns trigger
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    delete from mindful.training_sample s using old_rows o where s.tenant = o.tenant and s.id = o.sample_id;
    return null;
end
$$;
comment on function _sample_memory_lost() is 'Forgets training samples that tell of a forgotten memory.';

create function _sample_lost() returns trigger
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
comment on function _sample_lost() is 'Counts withdrawn samples with their run.';

create trigger sample_lost after delete on training_sample referencing old table as old_rows
    for each statement when (pg_catalog.current_setting('row_security') = 'on' or not mindful._is_restore()) execute function _sample_lost();
create trigger sample_memory_lost after delete on training_sample_memory referencing old table as old_rows
    for each statement when (pg_catalog.current_setting('row_security') = 'on' or not mindful._is_restore()) execute function _sample_memory_lost();

create function model_training_set(
    name text,
    prompt_format text,
    max_sequence_length integer default null,
    specialisation text default 'general_reasoning',
    lora jsonb default '{}'
) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform mindful._writable();
    if prompt_format is not null and prompt_format not in ('alpaca', 'chatml') then
        perform mindful._raise('22023', format('prompt_format is %L', prompt_format), 'Formats are alpaca and chatml.');
    elsif specialisation is null or specialisation not in ('general_reasoning', 'code_generation') then
        perform mindful._raise('22023', format('specialisation is %L', specialisation), 'Specialisations are general_reasoning and code_generation.');
    elsif lora is null or jsonb_typeof(lora) <> 'object' or lora - '{rank,alpha,dropout,epochs,learning_rate,batch}'::text[] <> '{}'
        or exists (select from jsonb_each(lora) e where jsonb_typeof(e.value) <> 'number')
    then
        perform mindful._raise('22023', 'lora is no object of LoRA parameters', 'Parameters are the numbers rank, alpha, dropout, epochs, learning_rate and batch.');
    elsif max_sequence_length not between 16 and 1048576 then
        perform mindful._raise('22023', format('max_sequence_length is %s', max_sequence_length), 'It must be between 16 and 1048576.');
    end if;
    update mindful.model m
    set prompt_format = model_training_set.prompt_format, max_sequence_length = model_training_set.max_sequence_length,
        specialisation = model_training_set.specialisation, lora = model_training_set.lora
    where m.name = model_training_set.name and m.kind = 'generator';
    if not found then
        perform mindful._raise('42704', format('there is no generator %s', coalesce(quote_literal(name), 'null')),
            'The models that you may use are listed in mindful.model.');
    end if;
end
$$;
comment on function model_training_set(text, text, integer, text, jsonb) is
'Says how a generator is trained: the layout of its samples (alpaca, chatml; NULL: not at all), their most tokens (NULL: its context), what it is for (general_reasoning, code_generation), and LoRA parameters. For administrators. Errors: 22023, 42704.';

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
comment on type replay_detail is 'A run''s facts that passed its thresholds, the pairs made of them, the pairs refused by reason, and the facts below each threshold.';

create function _replay_filter(filter jsonb) returns jsonb
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    found_filter jsonb := jsonb_build_object('level', mindful.setting_get('replay_level'),
        'confidence', mindful.setting_get('replay_confidence'), 'accesses', mindful.setting_get('replay_accesses'),
        'facts', 1000, 'since', null) || coalesce(filter, '{}');
begin
    if jsonb_typeof(coalesce(filter, '{}')) <> 'object' or found_filter - '{level,confidence,accesses,facts,since}'::text[] <> '{}' then
        perform mindful._raise('22023', 'filter is no object of thresholds', 'They are level, confidence, accesses, facts (the most of them) and since.');
    elsif coalesce(found_filter ->> 'level', '') <> all (array['data', 'information', 'knowledge', 'wisdom']) then
        perform mindful._raise('22023', format('level is %L', found_filter ->> 'level'), 'Levels are data, information, knowledge and wisdom.');
    elsif jsonb_typeof(found_filter -> 'confidence') <> 'number' or jsonb_typeof(found_filter -> 'accesses') <> 'number'
        or jsonb_typeof(found_filter -> 'facts') <> 'number' or not (found_filter ->> 'facts')::numeric between 1 and 1000000
    then
        perform mindful._raise('22023', 'confidence, accesses and facts must be numbers', 'For example {"confidence": 0.8, "accesses": 1, "facts": 500}.');
    end if;
    perform mindful._time_argument('since', found_filter ->> 'since');
    return found_filter;
end
$$;
comment on function _replay_filter(jsonb) is 'Thresholds of a replay run, the settings'' where the filter gives none; raises 22023.';

create function _replay_facts(filter jsonb)
returns table (
    id bigint, subject text, relation text, object text, content text, confidence real, valid boolean, said date,
    superseded_by bigint, contradicted_by bigint, evidence jsonb, below text
)
language sql stable parallel safe security invoker
begin atomic
    select m.id, s.subject, s.relation, s.object, m.content, m.confidence,
        (m.valid_to is null or m.valid_to > pg_catalog.now()), m.valid_from::date, m.superseded_by,
        (select pg_catalog.min(l.source_id) from mindful.memory_link l
            where l.tenant = m.tenant and l.target_id = m.id and l.relation = 'contradicts'),
        (select pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object('source_id', e.source_id, 'quote', e.quote) order by e.source_id)
            from mindful.memory_evidence e where e.tenant = m.tenant and e.id = m.id),
        case
            when pg_catalog.array_position(array['data', 'information', 'knowledge', 'wisdom'], m.level)
                < pg_catalog.array_position(array['data', 'information', 'knowledge', 'wisdom'], filter ->> 'level') then 'level'
            when coalesce(m.confidence, 0) < (filter ->> 'confidence')::real then 'confidence'
            when coalesce(a.access_count, 0) < (filter ->> 'accesses')::numeric then 'accesses'
        end
    from mindful.memory_statement s
    join mindful.memory m on m.tenant = s.tenant and m.id = s.id
    left join mindful.memory_access a on a.tenant = m.tenant and a.id = m.id
    where s.tenant = (select mindful._tenant())
        and (filter ->> 'since' is null or m.created_at >= (filter ->> 'since')::timestamptz)
    order by coalesce(a.access_count, 0) desc, m.confidence desc, m.id;
end;
comment on function _replay_facts(jsonb) is 'Drawn facts, the most used and surest first, and the threshold that each is below, if any.';

create function _replay_neighbors(id bigint, most integer)
returns table (neighbor_id bigint, relation text, depth integer, content text)
language sql stable parallel safe security invoker
begin atomic
    with recursive walk (id, relation, depth, weight) as (
        select _replay_neighbors.id, null::text, 0, 1::double precision
        union all
        select n.id, n.relation, w.depth + 1, w.weight * n.weight
        from walk w,
            lateral (
                select case when l.source_id = w.id then l.target_id else l.source_id end as id, l.relation, l.weight
                from mindful.memory_link l
                where l.tenant = (select mindful._tenant()) and (l.source_id = w.id or l.target_id = w.id)
                    and l.relation <> 'contradicts'
                order by l.weight desc, 1 limit 8
            ) n
        where w.depth < 2
    ),
    nearest as (
        select distinct on (w.id) w.id, w.relation, w.depth, w.weight
        from walk w where w.id <> _replay_neighbors.id order by w.id, w.depth, w.weight desc
    )
    select n.id, n.relation, n.depth, m.content
    from nearest n
    join mindful.memory m on m.tenant = (select mindful._tenant()) and m.id = n.id
    where m.kind = 'fact' and (m.valid_to is null or m.valid_to > pg_catalog.now())
    order by n.depth, n.weight desc, n.id
    limit most;
end;
comment on function _replay_neighbors(bigint, integer) is 'Valid facts within two links of a fact, the nearest and most strongly linked first.';

create function _replay(run bigint, model text, thresholds jsonb) returns jsonb
language plpython3u volatile parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.sample import replay
return replay(run, model, thresholds)
$python$;
comment on function _replay(bigint, text, jsonb) is 'Writes the training samples of a run; returns counts.';

create function replay_run(model text, filter jsonb default '{}') returns replay_detail
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    thresholds jsonb := mindful._replay_filter(filter);
    trained mindful.model;
    run bigint;
    counts jsonb := '{}';
    failure text;
    closed mindful.consolidation;
begin
    perform mindful._writable();
    select m.* into trained from mindful.model m where m.name = replay_run.model and m.kind = 'generator';
    if not found then
        perform mindful._raise('42704', format('there is no generator %s', coalesce(quote_literal(model), 'null')),
            'The models that you may use are listed in mindful.model.');
    elsif trained.prompt_format is null then
        perform mindful._raise('55000', format('the model "%s" has no prompt format', model),
            format('Have an administrator say how it is trained: mindful.model_training_set(%L, ''chatml'').', model));
    end if;
    perform mindful._consolidation_lock();
    run := mindful._consolidation_open('replay', model, jsonb_strip_nulls(thresholds));
    begin
        counts := mindful._replay(run, model, thresholds);
    exception when others then  -- a cancel is not among them
        failure := sqlstate || ': ' || sqlerrm;
        counts := '{}';
    end;
    closed := mindful._consolidation_close(run, counts, failure, true);
    return (closed.id, closed.status, model, closed.memories_processed, closed.pairs_generated,
        closed.outputs -> 'refused', closed.outputs -> 'below', closed.error)::mindful.replay_detail;
end
$$;
comment on function replay_run(text, jsonb) is
'Makes instruction pairs for a generator of the caller''s facts that are of at least a level, a confidence and a number of uses (filter: {"level", "confidence", "accesses", "facts", "since"}; the settings replay_level, replay_confidence and replay_accesses where it gives none), in forms that fit the model''s specialisation. A pair is kept only if its evidence exists and is valid now, the user consents (setting training_consent), it holds no secret and no personal data, it is no duplicate, does not soon change, and fits max_sequence_length; what is refused is kept with the reasons. A run that finds no fact, or none that passes, is stored as failed and says which threshold refused how many. Errors: 22023 (filter), 42704 (no such generator), 55000 (no prompt format), 55P03 (a run is going on).';

create function model_training_get(run bigint) returns jsonb
language plpython3u stable parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.sample import model_training_get
return model_training_get(run)
$python$;
comment on function model_training_get(bigint) is
'What training on a replay run''s pairs needs to know of its model: model, source, sha256_base, prompt_format, max_sequence_length, specialisation, lora, system_prompt. Error 42704 (no such run of yours).';
