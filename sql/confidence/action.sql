insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('error_budget', 'number', 0, 0.99, '{global,user,session}', '0',
        'Error budget of answers, one that was passed to calibrate; 0 is the newest. If calibrate was not called with this budget, every answer is flagged.'),
    ('answer_above', 'number', 0, 1, '{global,user,session}', '1',
        'Probability from which an answer is given unflagged while no certified threshold applies. It is the user''s own and promises nothing. 1: none.'),
    ('chat_retrieve', 'boolean', null, null, '{global,user,session}', 'false',
        'Whether a flagged answer is generated again with more memories if the memories shown cover little of the question.'),
    ('chat_retrieve_below', 'number', 0, 1, '{global,user,session}', '0.5',
        'Coverage of the question below which chat_retrieve recalls more memories. Coverage is the share of its words in the memories shown, weighted by rarity.'),
    ('chat_retrieve_memories', 'integer', 1, 50, '{global,user,session}', '10',
        'Largest number of memories shown when chat_retrieve generates an answer again.'),
    ('chat_retry', 'boolean', null, null, '{global,user,session}', 'false',
        'Whether four more answers are sampled for a flagged answer, and the most frequent of the five is given. Only for models that action_evaluate has shown to gain.'),
    ('chat_retry_temperature', 'number', 0.05, 2, '{global,user,session}', '0.5',
        'Temperature of the samples of chat_retry. Results of action_evaluate count for their own temperature only.'),
    ('label_share', 'number', 0, 1, '{global,user,session}', '0.05',
        'Share of flagged answers, drawn at random, that label_queue lists first. Their labels stand for all flagged answers. Before a threshold is certified, more are drawn (decision.offered). 0: none.');

create table action_gain (
    tenant text not null default _mindful.tenant(),
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
comment on table action_gain is
'Results of action_evaluate: whether retrieve or retry improves a model''s answers. The newest row per action, model and temperature counts.';
comment on column action_gain.temperature is 'Value of the setting chat_retry_temperature; NULL for retrieve.';
comment on column action_gain.answers is 'Number of flagged answers to gold questions that were tried again.';
comment on column action_gain.changed is 'Number of them that the other answer would have replaced.';
comment on column action_gain.gained is 'Number of wrong answers that right ones would have replaced.';
comment on column action_gain.lost is 'Number of right answers that wrong ones would have replaced.';
comment on column action_gain.p_value is
'One-sided p-value of an exact sign test on gained and lost (McNemar 1947).';
comment on column action_gain.helps is 'p_value <= 0.1. llm_chat retries only if the newest row says so.';
alter table action_gain enable row level security, force row level security;
create policy own on action_gain using (tenant = (select _mindful.tenant())) with check (tenant = (select _mindful.tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.action_gain', '');
select pg_catalog.pg_extension_config_dump('mindful.action_gain_id_seq', '');

create function _mindful.action_gain_find(action text, model text, temperature real) returns table (helps boolean)
language sql stable parallel safe security invoker rows 1
begin atomic
    select g.helps
    from mindful.action_gain g
    where g.tenant = (select _mindful.tenant()) and g.action = action_gain_find.action
        and g.model = action_gain_find.model and g.temperature is not distinct from action_gain_find.temperature
    order by g.id desc
    limit 1;
end;
comment on function _mindful.action_gain_find(text, text, real) is
'Returns whether the newest action_evaluate showed that an action improves a model''s answers.';

create function _mindful.action_pending(action text, model text, max_answers integer)
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
        where f.tenant = g.tenant and f.gold_id = g.id and f.model = action_pending.model and f.parent_id is null
        order by f.id desc
        limit 1
    ) d on d.action = any (array['flag', 'uncalibrated'])
    join mindful.latest_outcome l on l.tenant = d.tenant and l.decision_id = d.id
    where g.tenant = (select _mindful.tenant())
        and not (action_pending.action = 'retrieve' and pg_catalog.cardinality(g.memories) > 0)
    order by g.id desc
    limit action_pending.max_answers;
end;
comment on function _mindful.action_pending(text, text, integer) is
'Returns the newest gold questions whose first answer by a model is flagged. retrieve leaves out questions with memories of their own, as recall cannot add to these.';

create function action_evaluate(
    action text,
    model text default null,
    max_answers integer default 100,
    max_tokens integer default 64
) returns action_gain
language plpython3u volatile parallel unsafe security invoker cost 1000000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.confidence.measure import action_evaluate
return action_evaluate(action, model, max_answers, max_tokens)
$python$;
comment on function action_evaluate(text, text, integer, integer) is
'Measures whether an action, retrieve or retry, improves the flagged answers of a generator (NULL: the default one) to its newest gold questions. The result is stored in action_gain. Errors: 22004, 22023, 42704 (no such model), 55000 (no flagged answers to gold questions), 57014 (cancelled). Example: select helps, gained, lost from action_evaluate(''retry'');';

create view action_latency with (security_barrier = true) as
with recursive attempt as (
    select d.tenant, d.id, d.id as first_id, d.message_id, d.action,
        coalesce(_mindful.figure(d.total_ms), 0) + coalesce(_mindful.figure(g.total_ms), 0) as ms,
        null::text as way, d.model, d.created_at
    from mindful.decision d
    left join mindful.generation g on g.tenant = d.tenant and g.id = d.generation_id
    where (d.tenant = (select _mindful.tenant()) or (select _mindful.reads_all())) and d.gold_id is null
        and not exists (
            select from mindful.decision p
            where p.tenant = d.tenant and p.id = d.parent_id and p.action <> 'clarify'
        )
    union all
    select d.tenant, d.id, a.first_id, d.message_id, d.action, coalesce(_mindful.figure(d.total_ms), 0),
        d.ways[cardinality(d.ways)],
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
'Latency of replies in milliseconds by day, tenant, model, the other ways that were tried, and the final action. Shows the caller''s tenant, to mindful_reader all tenants.';
