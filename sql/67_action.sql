insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('error_budget', 'number', 0, 0.99, '{global,user,session}', '0',
        'Which of the budgets that calibrate() was given answers are held to; 0 is the newest. Where it was not given this one, every answer is flagged.'),
    ('retrieve', 'boolean', null, null, '{global,user,session}', 'false',
        'Whether a flagged answer is made again with more memories in view, where those that were shown hold little of the question.'),
    ('retrieve_below', 'number', 0, 1, '{global,user,session}', '0.5',
        'Share of the question''s words, by rarity (the signal coverage), below which memories hold little of it.'),
    ('retrieve_memories', 'integer', 1, 50, '{global,user,session}', '10',
        'How many memories are shown at most when an answer is made again with more.'),
    ('retry', 'boolean', null, null, '{global,user,session}', 'false',
        'Whether a flagged answer is sampled four times more, and what most of the five say is taken: only for models that action_measure has shown to gain by it.'),
    ('retry_temperature', 'number', 0.05, 2, '{global,user,session}', '0.5',
        'The temperature of these samples; what was measured at another does not count.'),
    ('label_share', 'number', 0, 1, '{global,user,session}', '0.05',
        'Share of flagged answers, drawn at random, that label_queue puts first: a label of one stands for all that were not drawn.');

create table action_gain (
    tenant text not null default _tenant(),
    id bigint generated always as identity,
    action text not null check (action in ('retrieve', 'retry')),
    model text not null,
    temperature real,
    answers integer not null,
    changed integer not null,
    gained integer not null,
    lost integer not null,
    p_value double precision not null check (p_value between 0 and 1),
    helps boolean not null,
    made_by text not null default current_user,
    created_at timestamptz not null default clock_timestamp(),
    primary key (tenant, id),
    check (gained >= 0 and lost >= 0 and gained + lost <= changed and changed <= answers)
);
create index on action_gain (tenant, action, model, id) where action is not null;
comment on table action_gain is 'What a replay on labelled questions showed of another way to an answer; see action_measure. The newest counts.';
comment on column action_gain.temperature is 'The setting retry_temperature of the replay; NULL for retrieve.';
comment on column action_gain.answers is 'Flagged answers to gold questions, each with the answer by the other way.';
comment on column action_gain.changed is 'How many of them the other way would have replaced.';
comment on column action_gain.gained is 'Wrong answers that would have been replaced by right ones.';
comment on column action_gain.lost is 'Right answers that would have been replaced by wrong ones.';
comment on column action_gain.p_value is 'Probability of so many gains, or more, among gained + lost if either were as likely (exact sign test; McNemar 1947).';
comment on column action_gain.helps is 'p_value <= 0.1.';
alter table action_gain enable row level security, force row level security;
create policy own on action_gain using (tenant = (select mindful._tenant())) with check (tenant = (select mindful._tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.action_gain', '');
select pg_catalog.pg_extension_config_dump('mindful.action_gain_id_seq', '');

create function _action_gain_find(action text, model text, temperature real) returns table (helps boolean)
language sql stable parallel safe security invoker rows 1
begin atomic
    select g.helps
    from mindful.action_gain g
    where g.tenant = (select mindful._tenant()) and g.action = _action_gain_find.action
        and g.model = _action_gain_find.model and g.temperature is not distinct from _action_gain_find.temperature
    order by g.id desc
    limit 1;
end;
comment on function _action_gain_find(text, text, real) is 'Whether the newest replay showed that another way to an answer helps a model.';

create function _action_pending(action text, model text, answers integer)
returns table (
    decision_id bigint,
    gold_id bigint,
    question text,
    memories text[],
    with_memory boolean,
    signals jsonb,
    answer text,
    correct boolean
)
language sql stable parallel safe security invoker rows 100
begin atomic
    select d.id, g.id, g.question, g.memories, d.with_memory, d.signals, d.answer, l.correct
    from mindful.gold g
    join lateral (
        select f.*
        from mindful.decision f
        where f.tenant = g.tenant and f.gold_id = g.id and f.model = _action_pending.model and f.parent_id is null
        order by f.id desc
        limit 1
    ) d on d.action = 'flag'
    join mindful.latest_outcome l on l.tenant = d.tenant and l.decision_id = d.id
    where g.tenant = (select mindful._tenant())
        and not (_action_pending.action = 'retrieve' and pg_catalog.cardinality(g.memories) > 0)
    order by g.id desc
    limit _action_pending.answers;
end;
comment on function _action_pending(text, text, integer) is
'The newest gold questions to which a model''s first answer is flagged, for another way to be tried; with memories of their own nothing more can be recalled.';

create function action_measure(
    action text,
    model text default null,
    answers integer default 100,
    max_tokens integer default 64
) returns action_gain
language plpython3u volatile parallel unsafe security invoker cost 1000000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.measure import action_measure
return action_measure(action, model, answers, max_tokens)
$python$;
comment on function action_measure(text, text, integer, integer) is
'Tries another way to an answer (retrieve or retry, with the settings of these names) on the newest gold questions that a generator (NULL: the default one) was given by calibration_import and whose answers are flagged, grades what it gives, and says whether it gains: more wrong answers turned right than right ones wrong, by an exact sign test at 10%. The result is kept in action_gain, and llm_chat retries only where the newest one for the model and temperature says that it helps. The answers are kept in decision with their labels, so that calibrate() learns how far answers by this way can be trusted. Errors: 22004, 22023, 42704 (no such model), 55000 (no such questions), 57014 (cancelled).';

create view action_latency with (security_barrier = true) as
with recursive attempt as (
    select d.tenant, d.id, d.id as first_id, d.message_id, d.action, d.total_ms + coalesce(g.total_ms, 0) as ms,
        null::text as way, d.model, d.created_at
    from mindful.decision d
    left join mindful.generation g on g.tenant = d.tenant and g.id = d.generation_id
    where (d.tenant = (select mindful._tenant()) or (select mindful._reads_all())) and d.gold_id is null
        and not exists (
            select from mindful.decision p
            where p.tenant = d.tenant and p.id = d.parent_id and p.action <> 'clarify'
        )
    union all
    select d.tenant, d.id, a.first_id, d.message_id, d.action, d.total_ms,
        case when d.model like '% + retrieve' then 'retrieve' when d.model like '% + retry' then 'retry' else 'escalate' end,
        a.model, a.created_at
    from attempt a
    join mindful.decision d on d.tenant = a.tenant and d.parent_id = a.id
    where a.action <> 'clarify'
),
reply as (
    select a.tenant, a.model, a.created_at, sum(a.ms) as ms, min(a.action) filter (where a.message_id is not null) as action,
        coalesce(array_agg(a.way order by a.id) filter (where a.way is not null), '{}') as tried
    from attempt a
    group by a.tenant, a.first_id, a.model, a.created_at
)
select r.created_at::date as day, r.tenant, r.model, r.tried, r.action, count(*) as replies, avg(r.ms) as mean_ms,
    percentile_cont(0.5) within group (order by r.ms) as median_ms,
    percentile_cont(0.95) within group (order by r.ms) as p95_ms
from reply r
group by r.created_at::date, r.tenant, r.model, r.tried, r.action;
comment on view action_latency is
'How long replies took, in milliseconds, by day, tenant, model, the other ways that were tried in their order, and what was done in the end. For oneself, or for mindful_reader for all.';
