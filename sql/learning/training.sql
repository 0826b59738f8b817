insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('training_gain', 'number', 0, 1, '{global,user}', '0.02',
        'Smallest gain of an adapter over its base, in F1 of words on held-out pairs, that makes it active.'),
    ('training_margin', 'number', 0, 1, '{global,user}', '0.05',
        'Largest loss of accuracy on general questions with which an adapter becomes active.');

create table training (
    tenant text not null default _mindful.tenant(),
    id bigint generated always as identity,
    consolidation_id bigint not null,
    base text not null,
    adapter text,
    status text not null default 'running' check (status in ('running', 'completed', 'failed')),
    dataset_sha256 text not null,
    samples integer not null,
    parameters jsonb not null default '{}',
    base_figures jsonb,
    adapter_figures jsonb,
    verdict text,
    error text,
    created_at timestamptz not null default clock_timestamp(),
    finished_at timestamptz,
    primary key (tenant, id),
    foreign key (tenant, consolidation_id) references consolidation (tenant, id),
    check ((status = 'failed') = (error is not null))
);
create index on training (tenant, consolidation_id) where consolidation_id is not null;
comment on table training is 'Trainings of adapters on replay runs, with the figures of base and adapter.';
comment on column training.dataset_sha256 is
'SHA-256 of the pairs as replay_export returns them in the format alpaca, one per line.';
comment on column training.verdict is 'Why the adapter became the tenant''s default generator, or why not.';

-- No foreign key to memory: the row must outlive a forgotten memory.
create table training_memory (
    tenant text not null default _mindful.tenant(),
    training_id bigint not null,
    memory_id bigint not null,
    primary key (tenant, memory_id, training_id),
    foreign key (tenant, training_id) references training (tenant, id) on delete cascade
);
create index on training_memory (tenant, training_id) where training_id is not null;
alter table model_tenant add constraint model_tenant_training foreign key (tenant, training_id) references training (tenant, id);
create index on model_tenant (tenant, training_id) where training_id is not null;
comment on table training_memory is
'Memories that adapters were trained on, and the sources of facts. Rows stay if the memory is forgotten.';

create table general_question (
    id integer primary key,
    question text not null,
    answer text not null
);
comment on table general_question is
'Fixed questions of general knowledge, to measure what training makes a model forget. An answer is right if it contains this text in any case.';
alter table general_question enable row level security, force row level security;
create policy read on general_question for select using (true);
insert into general_question (id, question, answer)
select row_number() over (), q.question, q.answer
from (values
    ('What is the capital of France?', 'Paris'), ('What is the capital of Japan?', 'Tokyo'), ('What is the capital of Italy?', 'Rome'),
    ('What is the capital of Germany?', 'Berlin'), ('What is the capital of Spain?', 'Madrid'), ('What is the capital of Egypt?', 'Cairo'),
    ('What is the capital of England?', 'London'), ('What is the capital of Russia?', 'Moscow'), ('What is the capital of China?', 'Beijing'),
    ('What is the capital of Greece?', 'Athens'), ('Which planet is closest to the sun?', 'Mercury'),
    ('Which planet is the largest in the solar system?', 'Jupiter'), ('Which planet is known as the red planet?', 'Mars'),
    ('What is the chemical formula of water?', 'H2O'), ('What gas do plants take in from the air?', 'carbon dioxide'),
    ('Who wrote Romeo and Juliet?', 'Shakespeare'), ('Who painted the Mona Lisa?', 'Leonardo'), ('Who developed the theory of relativity?', 'Einstein'),
    ('What is the largest ocean on Earth?', 'Pacific'), ('What is the longest river in Africa?', 'Nile'),
    ('What is the highest mountain on Earth?', 'Everest'), ('How many days are there in a week?', 'seven'), ('How many legs does a spider have?', 'eight'),
    ('What is the opposite of hot?', 'cold'), ('What is the opposite of up?', 'down'), ('Which animal is known as the king of the jungle?', 'lion'),
    ('What do bees make?', 'honey'), ('What is frozen water called?', 'ice'), ('Which language is spoken in Brazil?', 'Portuguese'),
    ('Which language is spoken in Mexico?', 'Spanish'), ('In which continent is Kenya?', 'Africa'), ('In which continent is India?', 'Asia'),
    ('In which country is the Eiffel Tower?', 'France'), ('In which country are the pyramids of Giza?', 'Egypt'),
    ('What is the first month of the year?', 'January'), ('What is the last month of the year?', 'December'),
    ('What color is the sky on a clear day?', 'blue'), ('What color is grass?', 'green'), ('What do we call a baby dog?', 'puppy'),
    ('What is the name of the star at the center of our solar system?', 'Sun')
) q (question, answer);

alter table training enable row level security, force row level security;
create policy own on training using (tenant = (select _mindful.tenant())) with check (tenant = (select _mindful.tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.training', '');
alter table training_memory enable row level security, force row level security;
create policy own on training_memory using (tenant = (select _mindful.tenant())) with check (tenant = (select _mindful.tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.training_memory', '');
select pg_catalog.pg_extension_config_dump('mindful.training_id_seq', '');

create function _mindful.text_f1(answer text, expected text) returns double precision
language sql stable parallel safe security invoker
begin atomic
    with given as (
        select w.word, pg_catalog.count(*) as n from pg_catalog.regexp_split_to_table(pg_catalog.lower(answer), '[^a-z0-9]+') w (word)
        where w.word <> '' group by w.word
    ),
    wanted as (
        select w.word, pg_catalog.count(*) as n from pg_catalog.regexp_split_to_table(pg_catalog.lower(expected), '[^a-z0-9]+') w (word)
        where w.word <> '' group by w.word
    )
    select coalesce(2.0 * (select pg_catalog.sum(least(g.n, w.n)) from given g join wanted w using (word))
        / nullif((select pg_catalog.sum(n) from given) + (select pg_catalog.sum(n) from wanted), 0), 0)::double precision;
end;
comment on function _mindful.text_f1(text, text) is
'Returns the F1 of the words of an answer against the expected text, as in SQuAD (Rajpurkar et al. 2016), but without the removal of articles.';

create function _mindful.is_abstention(answer text) returns boolean
language sql immutable parallel safe security invoker
begin atomic
    select answer ~* '\m(do not|don''t) know\M';
end;
comment on function _mindful.is_abstention(text) is 'Returns whether an answer says that it does not know.';

create function training_evaluate(run bigint, model text default null) returns jsonb
language plpgsql volatile parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    pairs mindful.training_sample[];
    questions mindful.general_question[];
    taught text[];
    answers text[];
    general text[];
    recalled text[];
begin
    perform _mindful.writable();
    perform mindful.replay_export(run);
    pairs := array(select s from mindful.training_sample s
        where s.tenant = (select _mindful.tenant()) and s.consolidation_id = run and s.refused = '{}' and s.split = 'validation'
        order by s.id);
    taught := array(select distinct s.instruction from mindful.training_sample s
        where s.tenant = (select _mindful.tenant()) and s.consolidation_id = run and s.refused = '{}' and s.split = 'train' and s.form = 'recall'
        order by 1);
    questions := array(select q from mindful.general_question q order by q.id);
    answers := mindful.llm_generate_many(array(select _mindful.sample_prompt(p.instruction, p.input) from unnest(pairs) p), model => training_evaluate.model, max_tokens => 64);
    recalled := mindful.llm_generate_many(taught, model => training_evaluate.model, max_tokens => 64);
    general := mindful.llm_generate_many(array(select q.question from unnest(questions) q), model => training_evaluate.model, max_tokens => 32);
    return (
        with answered as (
            select p.form, _mindful.text_f1(a.answer, p.output) as f1, _mindful.is_abstention(a.answer) as abstained
            from unnest(pairs) with ordinality p
            join unnest(answers) with ordinality a (answer, at) on a.at = p.ordinality
        )
        select jsonb_build_object('held_out_f1', round(avg(f1)::numeric, 4), 'held_out', count(*),
            'by_form', (select jsonb_object_agg(f.form, f.f1) from (select form, round(avg(f1)::numeric, 4) as f1 from answered group by form) f),
            'abstained_unanswerable', round(avg(abstained::integer) filter (where form = 'abstain'), 4),
            'abstained_answerable', round(avg(abstained::integer) filter (where form <> 'abstain'), 4))
        from answered
    ) || (
        select jsonb_build_object('taught_f1', round(avg(best.f1)::numeric, 4), 'taught', count(*))
        from unnest(recalled) with ordinality a (answer, at),
            lateral (
                select max(_mindful.text_f1(a.answer, s.output)) as f1 from mindful.training_sample s
                where s.tenant = (select _mindful.tenant()) and s.consolidation_id = run and s.refused = '{}' and s.split = 'train'
                    and s.form = 'recall' and s.instruction = taught[a.at]
            ) best
    ) || (
        select jsonb_build_object('general_accuracy', round(avg((strpos(lower(a.answer), lower(q.answer)) > 0)::integer), 4), 'general', count(*),
            'abstained_general', round(avg(_mindful.is_abstention(a.answer)::integer), 4))
        from unnest(questions) with ordinality q
        join unnest(general) with ordinality a (answer, at) on a.at = q.ordinality
    );
end
$$;
comment on function training_evaluate(bigint, text) is
'Measures a generator on the held-out pairs of a replay run, on its taught questions and on general questions, by greedy answers. NULL is the default generator. Errors: 42704 (no such run or model), 55P03 (no free slot), 57014 (cancelled). Example: select training_evaluate(3, ''smollm2-135m-instruct'') -> ''held_out_f1'';';

create function _mindful.replay_hash(run bigint) returns text
language sql stable parallel safe security invoker
begin atomic
    select pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(coalesce(pg_catalog.string_agg(e.line::text, E'\n'), ''), 'UTF8')), 'hex')
    from mindful.replay_export(run) e (line);
end;
comment on function _mindful.replay_hash(bigint) is
'Returns the SHA-256 of the lines that replay_export returns in the format alpaca, joined by line feeds. A training refuses a dataset whose run has another hash by then. Error 42704.';

create function _mindful.training_start(run bigint, dataset_sha256 text, parameters jsonb default '{}') returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    started bigint;
begin
    perform _mindful.writable();
    if dataset_sha256 is distinct from _mindful.replay_hash(run) then
        perform _mindful.raise('55000', format('the pairs of run %s are no longer those of the dataset', run),
            'A memory was forgotten since the export. Export the run again.');
    end if;
    insert into mindful.training (consolidation_id, base, dataset_sha256, samples, parameters)
    select c.id, c.model, training_start.dataset_sha256,
        (select count(*) from mindful.training_sample s
            where s.tenant = c.tenant and s.consolidation_id = c.id and s.refused = '{}' and s.split = 'train'),
        training_start.parameters
    from mindful.consolidation c
    where c.tenant = (select _mindful.tenant()) and c.id = run
    returning id into started;
    insert into mindful.training_memory (training_id, memory_id)
    select started, x.memory_id
    from mindful.training_sample s
    join mindful.training_sample_memory x on x.tenant = s.tenant and x.sample_id = s.id
    where s.tenant = (select _mindful.tenant()) and s.consolidation_id = run and s.refused = '{}' and s.split = 'train'
    union
    select started, e.source_id
    from mindful.training_sample s
    join mindful.training_sample_memory x on x.tenant = s.tenant and x.sample_id = s.id
    join mindful.memory_evidence e on e.tenant = x.tenant and e.id = x.memory_id
    where s.tenant = (select _mindful.tenant()) and s.consolidation_id = run and s.refused = '{}' and s.split = 'train';
    return started;
end
$$;
comment on function _mindful.training_start(bigint, text, jsonb) is
'Records a training on a replay run''s pairs, and returns its id. Errors: 42704 (no such run), 55000 (the pairs have changed since the export).';

create type _mindful.training_detail as (verdict text, active boolean, base_figures jsonb, adapter_figures jsonb);
comment on type _mindful.training_detail is
'Result of a training: the verdict, whether the adapter became the tenant''s default generator, and the figures of both.';

-- The adapter becomes the default if it gains at least training_gain on held-out pairs and loses at most training_margin
-- on general questions. An administrator must have registered it for the training.
create function _mindful.training_finish(id bigint, adapter text) returns _mindful.training_detail
language plpgsql volatile parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    trained mindful.training;
    of_base jsonb;
    of_adapter jsonb;
    gain numeric;
    loss numeric;
    kept boolean;
    outcome text;
begin
    perform _mindful.writable();
    select t.* into trained from mindful.training t
    where t.tenant = (select _mindful.tenant()) and t.id = training_finish.id;
    if trained.status = 'completed' and trained.adapter = training_finish.adapter then
        -- By a command that was killed meanwhile.
        return (trained.verdict, starts_with(trained.verdict, 'active'), trained.base_figures, trained.adapter_figures)::_mindful.training_detail;
    elsif trained.status is distinct from 'running' then
        perform _mindful.raise('42704', format('there is no running training %s', coalesce(id::text, 'null')), 'List the tenant''s trainings in mindful.training.');
    elsif not exists (
        select from mindful.model_tenant t where t.tenant = trained.tenant and t.model = adapter and t.training_id = trained.id
    ) then
        perform _mindful.raise('42704', format('training %s has no adapter %s', id, coalesce(quote_literal(adapter), 'null')),
            format('Ask an administrator to register its file: mindful.adapter_register(name, %L, source, trained_on => %L).',
                trained.base, jsonb_build_object(trained.tenant, trained.id)));
    elsif _mindful.replay_hash(trained.consolidation_id) <> trained.dataset_sha256 then
        perform _mindful.raise('55000', format('the pairs of run %s are no longer those of training %s', trained.consolidation_id, id),
            'Export the run again, and train anew.');
    end if;
    of_base := mindful.training_evaluate(trained.consolidation_id, trained.base);
    of_adapter := mindful.training_evaluate(trained.consolidation_id, adapter);
    gain := (of_adapter ->> 'held_out_f1')::numeric - (of_base ->> 'held_out_f1')::numeric;
    loss := (of_base ->> 'general_accuracy')::numeric - (of_adapter ->> 'general_accuracy')::numeric;
    kept := coalesce(gain >= (mindful.setting_get('training_gain') #>> '{}')::numeric
        and loss <= (mindful.setting_get('training_margin') #>> '{}')::numeric, false);
    outcome := case
        when gain is null or loss is null then 'not active: the run has no held-out pairs'
        else format('%s: %s F1 on held-out pairs, %s of general accuracy', case when kept then 'active' else 'not active' end,
            to_char(gain, 'SG0.0000'), to_char(-loss, 'SG0.0000'))
    end;
    update mindful.training t
    set status = 'completed', adapter = training_finish.adapter, base_figures = of_base,
        adapter_figures = of_adapter, verdict = outcome, finished_at = clock_timestamp()
    where t.tenant = trained.tenant and t.id = trained.id and t.status = 'running';
    if not found then
        return _mindful.training_finish(id, adapter);
    end if;
    if kept then
        perform mindful.adapter_activate(adapter);
    end if;
    return (outcome, kept, of_base, of_adapter)::_mindful.training_detail;
end
$$;
comment on function _mindful.training_finish(bigint, text) is
'Measures the base and the adapter of a training, decides whether the adapter becomes the tenant''s default generator, and returns the verdict and the figures. A training that was completed with this adapter returns them again. Errors: 42704 (no such training or adapter), 55000 (the pairs have changed; the adapter was withdrawn), 55P03 (no free slot), 57014 (cancelled).';

create function _mindful.training_running(id bigint) returns boolean
language sql stable parallel safe security invoker
begin atomic
    select exists (
        select from mindful.training t
        where t.tenant = (select _mindful.tenant()) and t.id = training_running.id and t.status = 'running'
    );
end;
comment on function _mindful.training_running(bigint) is
'Whether the tenant has such a training and it has neither been completed nor failed.';

create function _mindful.training_fail(id bigint, error text) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform _mindful.writable();
    update mindful.training t set status = 'failed', error = coalesce(training_fail.error, 'unknown'), finished_at = clock_timestamp()
    where t.tenant = (select _mindful.tenant()) and t.id = training_fail.id and t.status = 'running';
    if not found then
        perform _mindful.raise('42704', format('there is no running training %s', coalesce(id::text, 'null')), 'List the tenant''s trainings in mindful.training.');
    end if;
end
$$;
comment on function _mindful.training_fail(bigint, text) is
'Records that a training has failed, and why. Error 42704.';

create function adapter_activate(adapter text) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform _mindful.writable();
    perform from mindful.training t
    where t.tenant = (select _mindful.tenant()) and t.adapter = adapter_activate.adapter and t.status = 'completed';
    if not found then
        perform _mindful.raise('42704', format('no training of the tenant has made %s', coalesce(quote_literal(adapter), 'null')), 'List the tenant''s trainings in mindful.training.');
    end if;
    perform mindful.model_default_set(adapter, scope => 'user');
end
$$;
comment on function adapter_activate(text) is
'Makes an adapter of a completed training of the tenant its default generator. Errors: 42704 (no such training), 55000 (the adapter was withdrawn).';

create function adapter_rollback(base text) returns text
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    rolled text;
begin
    perform _mindful.writable();
    select m.name into rolled
    from _mindful.model_find('generator', null) f
    join mindful.model m on m.name = f.name and m.base = adapter_rollback.base;
    if not found then
        perform _mindful.raise('42704', format('no adapter of %s is active', coalesce(quote_literal(base), 'null')), 'The setting default_generator is the tenant''s own default.');
    end if;
    perform mindful.model_default_set(base, scope => 'user');
    return rolled;
end
$$;
comment on function adapter_rollback(text) is
'Makes a base the tenant''s default generator again instead of an adapter of it, and returns the adapter''s name. The adapter stays registered. Error 42704 (no adapter of the base is active). Example: select adapter_rollback(''smollm2-135m-instruct'');';

create function adapters_trained_on(memory_id bigint)
returns table (training_id bigint, adapter text, base text, active boolean, forgotten boolean, withdrawn boolean)
language sql stable parallel safe security invoker
begin atomic
    select t.id, coalesce(t.adapter, a.model), t.base,
        coalesce(t.adapter, a.model) is not distinct from (select f.name from _mindful.model_find('generator', null) f),
        not exists (select from mindful.memory m where m.tenant = t.tenant and m.id = x.memory_id),
        exists (select from mindful.model m where m.name = a.model and m.withdrawn_at is not null)
    from mindful.training_memory x
    join mindful.training t on t.tenant = x.tenant and t.id = x.training_id
    left join mindful.model_tenant a on a.tenant = t.tenant and a.training_id = t.id
    where x.tenant = (select _mindful.tenant()) and x.memory_id = adapters_trained_on.memory_id
    order by t.id, a.model;
end;
comment on function adapters_trained_on(bigint) is
'Returns the adapters that were trained on a memory, even if it was forgotten. active: it is the tenant''s default generator. forgotten: the memory was forgotten. withdrawn: the adapter serves no tenant any more.';

create function _mindful.adapter_withdraw() returns trigger
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    if exists (select from mindful.trained_weights) then
        update mindful.trained_weights w set withdrawn_at = clock_timestamp()
        where w.withdrawn_at is null and (w.tenant, w.training_id) in (
            select x.tenant, x.training_id
            from mindful.training_memory x join old_rows o on o.tenant = x.tenant and o.id = x.memory_id
            where _mindful.setting_of(x.tenant, 'adapter_on_forget') = '"withdraw"'
        );
        update mindful.model m set withdrawn_at = clock_timestamp()
        where m.withdrawn_at is null and m.trained_on > 0
            and m.sha256 in (select w.sha256 from mindful.trained_weights w where w.withdrawn_at is not null);
    end if;
    return null;
end
$$;
comment on function _mindful.adapter_withdraw() is
'Withdraws adapters trained on deleted memories, and models with the same file under other names. It runs with the owner''s rights, as users may not change models.';
create trigger adapter_withdraw after delete on memory referencing old table as old_rows
    for each statement when (pg_catalog.current_setting('row_security') = 'on' or not _mindful.is_restore()) execute function _mindful.adapter_withdraw();

create function _mindful.model_tenant_check() returns trigger
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    wrong record;
begin
    select n.model, t.base into wrong
    from new_rows n
    join mindful.training t on t.tenant = n.tenant and t.id = n.training_id
    join mindful.model m on m.name = n.model
    where m.base is distinct from t.base;
    if found then
        perform _mindful.raise('22023', format('the training was one of "%s", which is not the base of "%s"', wrong.base, wrong.model),
            'Give the training that made the adapter.');
    end if;
    select m.name into wrong
    from (select distinct r.model from new_rows r) n
    join mindful.model m on m.name = n.model
    join mindful.trained_weights w on w.sha256 = m.sha256
    group by m.name
    having bool_or(w.withdrawn_at is not null) or array_agg(distinct w.tenant order by w.tenant)
        <> array(select t.tenant from mindful.model_tenant t where t.model = m.name order by t.tenant)
    limit 1;
    if found then
        perform _mindful.raise('42710', format('the file of "%s" is that of an adapter that was trained on other tenants'' texts, or was withdrawn',
            wrong.name), 'Use mindful.adapter_share to have an adapter serve others.');
    end if;
    -- A concurrent deletion of one of these texts waits for this lock, then withdraws the adapter.
    perform from mindful.memory m
    where (m.tenant, m.id) in (
        select x.tenant, x.memory_id
        from new_rows n
        join mindful.training_memory x on x.tenant = n.tenant and x.training_id = n.training_id
        where _mindful.setting_of(n.tenant, 'adapter_on_forget') = '"withdraw"'
    )
    order by m.id for key share;
    select n.training_id into wrong
    from new_rows n
    join mindful.training_memory x on x.tenant = n.tenant and x.training_id = n.training_id
    where _mindful.setting_of(n.tenant, 'adapter_on_forget') = '"withdraw"'
        and not exists (select from mindful.memory m where m.tenant = x.tenant and m.id = x.memory_id)
    limit 1;
    if found then
        perform _mindful.raise('55000', format('a text of training %s was forgotten', wrong.training_id),
            'Export the run again, train anew, and delete the adapter''s file.');
    end if;
    insert into mindful.trained_weights (tenant, training_id, sha256)
    select n.tenant, n.training_id, m.sha256 from new_rows n join mindful.model m on m.name = n.model
    on conflict do nothing;
    return null;
end
$$;
comment on function _mindful.model_tenant_check() is
'Refuses an adapter whose base is not that of its training, whose file belongs to other tenants'' adapters, or whose training used a text that was forgotten since. Stores the hash of accepted files. It runs with the owner''s rights, as administrators may not read tenants'' rows.';
create trigger checked after insert on model_tenant referencing new table as new_rows
    for each statement when (pg_catalog.current_setting('row_security') = 'on' or not _mindful.is_restore()) execute function _mindful.model_tenant_check();

create function _mindful.forget_adapters(ids bigint[]) returns jsonb
language sql stable parallel safe security invoker
begin atomic
    select coalesce(pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object('adapter', m.name, 'file', m.source,
        'action', case when m.withdrawn_at is null then 'kept' else 'withdrawn' end) order by m.name), '[]')
    from mindful.model m
    where m.name in (
        select t.model
        from mindful.model_tenant t
        join mindful.training_memory x on x.tenant = t.tenant and x.training_id = t.training_id
        where t.tenant = (select _mindful.tenant()) and x.memory_id = any (ids)
    );
end;
comment on function _mindful.forget_adapters(bigint[]) is
'Returns the adapters that were trained on some of the tenant''s memories, with their files, and whether they were withdrawn or kept.';
