create table calibrator (
    tenant text not null default _mindful.tenant(),
    id bigint generated always as identity,
    model text not null,
    ways text[] not null default '{}' check (ways <@ '{retrieve,retry,escalate}'),
    second_model text,
    with_memory boolean not null,
    signal_tier integer not null check (signal_tier between 0 and 3),
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
    unit text not null default 'source' check (unit in ('source', 'question')),
    origin text not null default 'labels' check (origin in ('labels', 'shipped')),
    primary key (tenant, id),
    foreign key (tenant, supersedes) references calibrator,
    check ((second_model is not null) = ('escalate' = any (ways))),
    check (cardinality(means) = cardinality(features) and cardinality(scales) = cardinality(features)
        and cardinality(weights) = cardinality(features) and cardinality(knots_x) = cardinality(knots_y))
);
create index on calibrator (tenant, model, with_memory, signal_tier, id) where model is not null;
comment on table calibrator is
'Fitted numbers that turn an answer''s signals into the probability that it is right. With g = intercept + sum of weights x (signal - mean) / scale, the probability is 1 / (1 + exp(-g)), or, if there are knots, a linear interpolation between them. Rows are added, never changed. The newest adopted row of its model, ways, kind of prompt and tier is in force.';
comment on column calibrator.model is 'The generator that was asked first.';
comment on column calibrator.ways is 'Ways by which the answers were made, see decision.ways.';
comment on column calibrator.second_model is 'The generator that answered after an escalation, see decision.second_model.';
comment on column calibrator.with_memory is
'Whether the answers had memories in the prompt. Memories raise a model''s confidence even if they do not help.';
comment on column calibrator.signal_tier is
'The signals it reads. 0: those that cost no further call; 1: also the similarity of answer and question and a review by the model; 2: also the answer of the model''s fallback; 3: also four sampled answers.';
comment on column calibrator.unit is
'What is drawn independently, and never split between the fit and the test. source: a session, or a source of gold questions. question: a session, or a gold question, as there are fewer than 20 sources.';
comment on column calibrator.origin is
'labels: fitted to labels of the tenant. shipped: a ranking of the package for this model and prompt form, with the base rate of the tenant''s labels. All labels can test its thresholds.';
comment on column calibrator.features is
'Names of signals, as in decision.signals. A missing signal counts as its mean.';
comment on column calibrator.labels is 'Number of labeled answers in the fit. For a shipped ranking, those of the package.';
comment on column calibrator.metrics is
'Figures on answers that were not fitted to (cross-validation), each with the bounds of its 95% interval.';
comment on column calibrator.last_outcome is 'Id of the newest label at the time of the fit.';
comment on column calibrator.supersedes is 'The calibrator that was in force at the time of the fit.';
comment on column calibrator.adopted is
'Whether it was put in force. It is only if its log-loss on the newest labels is lower than that of the calibrator it would replace.';

create table threshold (
    tenant text not null default _mindful.tenant(),
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
    more_labels integer,
    after bigint[],
    last_outcome bigint,
    repeats bigint,
    primary key (tenant, id),
    foreign key (tenant, calibrator_id) references calibrator,
    foreign key (tenant, supersedes) references threshold,
    foreign key (tenant, repeats) references threshold,
    check ((value is null) = (bound is null))
);
create index on threshold (tenant, calibrator_id, id) where calibrator_id is not null;
comment on table threshold is
'Probabilities from which answers are given unflagged, with the budget that each keeps. Of the rows of a calibrator, a budget and the same thresholds before, the newest that is not infeasible is in force.';
comment on column threshold.budget_kind is
'answers: at most this share of the answers given is wrong, with probability 1 - delta. questions: at most this share of all questions gets a wrong answer, in the mean.';
comment on column threshold.run is
'Sequence number of the test of this budget. Test k may fail with probability delta (1 / k^2 - 1 / (k + 1)^2), so that all tests together fail with probability delta. A call of calibrate that makes no test has no new number.';
comment on column threshold.delta_spent is
'The part of delta that the test spent. 0: no test was made, as no result could have certified a threshold.';
comment on column threshold.value is 'NULL: no threshold was certified, and every answer is flagged.';
comment on column threshold.labels is 'Number of labeled answers in the test; none of them is in the fit.';
comment on column threshold.answered is 'Number of these answers with at least this probability.';
comment on column threshold.wrong is 'Number of wrong answers among the answered.';
comment on column threshold.bound is 'Upper bound of the share that the budget limits.';
comment on column threshold.more_labels is
'Estimate of the further labels of the test until a threshold passes. NULL: no number is foreseen, as too many of the most probable answers are wrong.';
comment on column threshold.after is
'Thresholds that flagged the answers of the test before: those of lower tiers and of earlier attempts. It applies to such answers only. NULL: any.';
comment on column threshold.last_outcome is 'Id of the newest label of the test. After an alarm, only newer labels are tested.';
comment on column threshold.repeats is 'The threshold that this row repeats, because calibrate was called for its budget again.';
comment on column threshold.status is
'certified: a threshold passed the test. infeasible: none did. tightened: labels showed too many wrong answers among those given, at answer_label or calibrate.';

alter table calibrator enable row level security, force row level security;
create policy own on calibrator using (tenant = (select _mindful.tenant())) with check (tenant = (select _mindful.tenant_claimed()));
alter table threshold enable row level security, force row level security;
create policy own on threshold using (tenant = (select _mindful.tenant())) with check (tenant = (select _mindful.tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.calibrator', '');
select pg_catalog.pg_extension_config_dump('mindful.calibrator_id_seq', '');
select pg_catalog.pg_extension_config_dump('mindful.threshold', '');
select pg_catalog.pg_extension_config_dump('mindful.threshold_id_seq', '');

create function _mindful.calibrator_find(
    model text,
    ways text[],
    second_model text,
    with_memory boolean,
    signal_tier integer,
    budget double precision,
    after bigint[]
)
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
    select c.id, c.features, c.means, c.scales, c.weights, c.intercept, c.knots_x, c.knots_y, coalesce(t.repeats, t.id), t.value, t.status, t.reason
    from (
        select c.*
        from mindful.calibrator c
        where c.tenant = (select _mindful.tenant()) and c.model = calibrator_find.model
            and c.ways = calibrator_find.ways and c.second_model is not distinct from calibrator_find.second_model
            and c.with_memory = calibrator_find.with_memory and c.signal_tier = calibrator_find.signal_tier and c.adopted
        order by c.id desc
        limit 1
    ) c
    left join lateral (
        select t.*
        from mindful.threshold t
        where t.tenant = (select _mindful.tenant()) and t.calibrator_id = c.id
            and t.budget = coalesce(nullif(calibrator_find.budget, 0), (
                select n.budget from mindful.threshold n
                where n.tenant = (select _mindful.tenant()) and n.calibrator_id = c.id and n.status <> 'tightened'
                order by n.id desc
                limit 1
            ))
            and (t.after is null or t.after = calibrator_find.after)
        order by t.status = 'infeasible', t.id desc
        limit 1
    ) t on true;
end;
comment on function _mindful.calibrator_find(text, text[], text, boolean, integer, double precision, bigint[]) is
'Returns the calibrator in force for a model''s answers and its threshold for a budget. Budget 0 is the one most recently passed to calibrate. after are the thresholds that flagged the answer before.';
