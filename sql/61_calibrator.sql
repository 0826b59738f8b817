create table calibrator (
    tenant text not null default _tenant(),
    id bigint generated always as identity,
    model text not null,
    with_memory boolean not null,
    tier integer not null check (tier between 0 and 3),
    features text[] not null,
    means double precision[] not null,
    scales double precision[] not null,
    weights double precision[] not null,
    intercept double precision not null,
    knots_x double precision[] not null default '{}',
    knots_y double precision[] not null default '{}',
    labels integer not null check (labels > 0),
    wrong integer not null check (wrong between 0 and labels),
    metrics jsonb not null,
    last_outcome bigint not null,
    supersedes bigint,
    adopted boolean not null,
    made_by text not null default current_user,
    created_at timestamptz not null default clock_timestamp(),
    primary key (tenant, id),
    foreign key (tenant, supersedes) references calibrator,
    check (cardinality(means) = cardinality(features) and cardinality(scales) = cardinality(features)
        and cardinality(weights) = cardinality(features) and cardinality(knots_x) = cardinality(knots_y))
);
create index on calibrator (tenant, model, with_memory, tier, id) where model is not null;
comment on table calibrator is
'Fitted numbers that turn an answer''s signals into the probability that it is right: g = intercept + sum of weights x (signal - mean) / scale, probability = 1 / (1 + exp(-g)), or by linear interpolation between the knots where there are any. Calibrators are added, never changed; the newest adopted one of its model, tier and kind of prompt is in force.';
comment on column calibrator.with_memory is 'Whether it is for answers with memories in the prompt: evidence raises a model''s confidence, whether it helps or not.';
comment on column calibrator.tier is 'Which signals it reads: 0 those that cost nothing, 1 also how near the answer is to the question (an embedding), 2 also the answer of a second model, the model''s fallback, 3 also four sampled answers.';
comment on column calibrator.features is 'Names of signals, as in decision.signals; a missing one counts as its mean.';
comment on column calibrator.labels is 'Labelled answers that it was fitted to.';
comment on column calibrator.metrics is 'How well it does on answers that it was not fitted to (cross-validation), each figure with the bounds of its 95% interval.';
comment on column calibrator.last_outcome is 'The newest label when it was made.';
comment on column calibrator.supersedes is 'The calibrator that was in force when this one was made.';
comment on column calibrator.adopted is 'Whether it was put in force: only if its log-loss on the newest labels was lower than that of the one it would supersede.';

create table threshold (
    tenant text not null default _tenant(),
    id bigint generated always as identity,
    calibrator_id bigint not null,
    budget_kind text not null check (budget_kind in ('answers', 'questions')),
    budget double precision not null check (budget > 0 and budget < 1),
    delta double precision not null check (delta > 0 and delta < 1),
    run integer not null check (run > 0),
    delta_spent double precision not null check (delta_spent between 0 and delta),
    value double precision,
    status text not null check (status in ('certified', 'infeasible', 'tightened')),
    labels integer not null,
    answered integer,
    wrong integer,
    bound double precision,
    reason text not null,
    supersedes bigint,
    made_by text not null default current_user,
    created_at timestamptz not null default clock_timestamp(),
    primary key (tenant, id),
    foreign key (tenant, calibrator_id) references calibrator,
    foreign key (tenant, supersedes) references threshold,
    check ((value is null) = (bound is null))
);
create index on threshold (tenant, calibrator_id, id) where calibrator_id is not null;
comment on table threshold is
'Probabilities from which on answers are given unflagged, with what was promised. The newest of its calibrator and budget is in force.';
comment on column threshold.budget_kind is
'answers: at most this share of the answers given is wrong, with probability 1 - delta. questions: at most this share of all questions gets a wrong answer, in the mean.';
comment on column threshold.run is 'The how-manieth test of this promise it was: run k may fail with probability 6 delta / (pi k)^2, so that all together fail with delta.';
comment on column threshold.value is 'NULL: none could be certified, and every answer is flagged.';
comment on column threshold.labels is 'Labelled answers that it was tested on; none of them had a part in the fit.';
comment on column threshold.answered is 'How many of them have at least this probability.';
comment on column threshold.wrong is 'How many of those are wrong.';
comment on column threshold.bound is 'Upper bound of the share that the budget limits.';
comment on column threshold.status is 'tightened: too many errors among answers served were noticed, see review_label.';

alter table calibrator enable row level security, force row level security;
create policy own on calibrator using (tenant = (select mindful._tenant())) with check (tenant = (select mindful._tenant_claimed()));
alter table threshold enable row level security, force row level security;
create policy own on threshold using (tenant = (select mindful._tenant())) with check (tenant = (select mindful._tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.calibrator', '');
select pg_catalog.pg_extension_config_dump('mindful.calibrator_id_seq', '');
select pg_catalog.pg_extension_config_dump('mindful.threshold', '');
select pg_catalog.pg_extension_config_dump('mindful.threshold_id_seq', '');

create function _calibrator_find(model text, with_memory boolean, tier integer, budget double precision)
returns table (
    id bigint,
    features text[],
    means double precision[],
    scales double precision[],
    weights double precision[],
    intercept double precision,
    knots_x double precision[],
    knots_y double precision[],
    threshold_id bigint,
    threshold double precision,
    status text,
    reason text
)
language sql stable parallel safe security invoker rows 1
begin atomic
    select c.id, c.features, c.means, c.scales, c.weights, c.intercept, c.knots_x, c.knots_y, t.id, t.value, t.status, t.reason
    from (
        select c.*
        from mindful.calibrator c
        where c.tenant = (select mindful._tenant()) and c.model = _calibrator_find.model
            and c.with_memory = _calibrator_find.with_memory and c.tier = _calibrator_find.tier and c.adopted
        order by c.id desc
        limit 1
    ) c
    left join lateral (
        select t.*
        from mindful.threshold t
        where t.tenant = (select mindful._tenant()) and t.calibrator_id = c.id
            and t.budget = coalesce(nullif(_calibrator_find.budget, 0), (
                select n.budget from mindful.threshold n
                where n.tenant = (select mindful._tenant()) and n.calibrator_id = c.id and n.status <> 'tightened'
                order by n.id desc
                limit 1
            ))
        order by t.id desc
        limit 1
    ) t on true;
end;
comment on function _calibrator_find(text, boolean, integer, double precision) is
'The calibrator in force for a model''s answers, with or without memories in the prompt, and its threshold for a budget; 0 is the newest that calibrate() was given.';
