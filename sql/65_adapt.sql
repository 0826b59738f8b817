create table adaptation (
    tenant text not null default _tenant(),
    id bigint generated always as identity,
    model text not null,
    key text not null references setting_definition,
    held jsonb not null,
    candidate jsonb,
    adopted boolean not null,
    change_id bigint,
    reason text not null,
    evidence jsonb not null,
    last_outcome bigint not null,
    made_by text not null default current_user,
    created_at timestamptz not null default clock_timestamp(),
    primary key (tenant, id),
    foreign key (tenant, change_id) references setting,
    check (adopted = (change_id is not null))
);
create index on adaptation (tenant, model, key, id) where model is not null;
comment on table adaptation is 'What confidence_adapt tried: a value chosen on older labels, held to newer ones beside the value in force.';
comment on column adaptation.held is 'The value that was in force.';
comment on column adaptation.candidate is 'The value that did best on the older labels; NULL where the one in force did.';
comment on column adaptation.change_id is 'The change of the setting, for setting_undo.';
comment on column adaptation.evidence is 'recent: confidence, error, tokens, time and drift of the last days. chosen: how each value did on the older labels; tested: how the two did on the newer; score is the share of right answers, or minus the log-loss of the probability for confidence_tier, tokens and ms what an answer cost.';
comment on column adaptation.last_outcome is 'The newest label that was there: the next test is on newer ones.';
alter table adaptation enable row level security, force row level security;
create policy own on adaptation using (tenant = (select mindful._tenant())) with check (tenant = (select mindful._tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.adaptation', '');
select pg_catalog.pg_extension_config_dump('mindful.adaptation_id_seq', '');

create function _drift(reference bigint[], recent bigint[]) returns table (drift double precision, drift_limit double precision)
language sql immutable parallel safe security invoker rows 1
begin atomic
    select pg_catalog.sum((b.now - b.before) * pg_catalog.ln(b.now / b.before)),
        21.67 * (1.0 / pg_catalog.max(b.recent) + 1.0 / pg_catalog.max(b.reference))::double precision
    from (
        select (c.before + 0.5)::double precision / (t.reference + 5) as before, (c.now + 0.5)::double precision / (t.recent + 5) as now,
            t.reference, t.recent
        from (
            select pg_catalog.sum(s.before) as reference, pg_catalog.sum(s.now) as recent
            from unnest(_drift.reference, _drift.recent) s (before, now)
        ) t,
            unnest(_drift.reference, _drift.recent) c (before, now)
        where t.reference > 0 and t.recent > 0
    ) b;
end;
comment on function _drift(bigint[], bigint[]) is
'How far one histogram of ten bins is from another: the population stability index, sum of (q - p) ln(q / p) (Siddiqi 2006, Credit Risk Scorecards), half an answer added to each bin; by convention more than 0.25 is a change to act on. Beside it what it exceeds by chance once in a hundred times: the 99% quantile of chi-squared with 9 degrees of freedom times 1/n + 1/m (Yurdakul and Naranjo 2020, Statistical properties of the population stability index). NULL of no answers.';

create function _confidence_recent(model text, days integer) returns jsonb
language sql stable parallel safe security invoker
begin atomic
    with answer as (
        select g.id, g.created_at >= pg_catalog.now() - pg_catalog.make_interval(days => _confidence_recent.days) as recent,
            g.confidence, g.completion_tokens, g.total_ms
        from mindful.generation g
        where g.tenant = (select mindful._tenant()) and g.model = _confidence_recent.model
            and g.created_at >= pg_catalog.now() - pg_catalog.make_interval(days => 5 * _confidence_recent.days)
    ),
    histogram as (
        select pg_catalog.array_agg(b.before order by b.bin) as before, pg_catalog.array_agg(b.now order by b.bin) as now
        from (
            select n.bin, pg_catalog.count(a.id) filter (where not a.recent) as before,
                pg_catalog.count(a.id) filter (where a.recent) as now
            from pg_catalog.generate_series(1, 10) n (bin)
            left join answer a on least(pg_catalog.width_bucket(a.confidence, 0, 1, 10), 10) = n.bin
            group by n.bin
        ) b
    ),
    label as (
        select pg_catalog.count(*) as labels, pg_catalog.avg((not l.correct)::integer) as error,
            pg_catalog.avg(d.probability) as probability
        from mindful.decision d
        join answer a on a.id = d.generation_id and a.recent
        join mindful.latest_outcome l on l.tenant = d.tenant and l.decision_id = d.id
        where d.tenant = (select mindful._tenant())
    )
    select pg_catalog.jsonb_build_object(
        'days', _confidence_recent.days, 'answers', r.answers, 'confidence', r.confidence, 'tokens', r.tokens, 'ms', r.ms,
        'labels', l.labels, 'error', pg_catalog.round(l.error, 4), 'probability', pg_catalog.round(l.probability::numeric, 4),
        'drift', pg_catalog.round(f.drift::numeric, 4), 'drift_limit', pg_catalog.round(f.drift_limit::numeric, 4))
    from (
        select pg_catalog.count(*) as answers, pg_catalog.round(pg_catalog.avg(a.confidence)::numeric, 4) as confidence,
            pg_catalog.round(pg_catalog.avg(a.completion_tokens), 1) as tokens,
            pg_catalog.round(pg_catalog.avg(a.total_ms)::numeric, 1) as ms
        from answer a where a.recent
    ) r,
        label l, histogram h, lateral mindful._drift(h.before, h.now) f;
end;
comment on function _confidence_recent(text, integer) is
'A model''s answers of the last days: how many, mean confidence, tokens and milliseconds, and of those with a label the share of wrong ones and the mean probability that they were given; drift compares their confidence with that of four times as many days before (see _drift).';

create function _adaptation_gold(model text)
returns table (outcome_id bigint, question text, answers text[], memories text[], source text)
language sql stable parallel safe security invoker rows 1000
begin atomic
    select f.outcome_id, f.question, f.answers, f.memories, f.source
    from (
        select distinct on (g.question) l.outcome_id, g.question, g.answers, g.memories, g.source
        from mindful.gold g
        join mindful.decision d on d.tenant = g.tenant and d.gold_id = g.id and d.model = _adaptation_gold.model
        join mindful.latest_outcome l on l.tenant = d.tenant and l.decision_id = d.id
        where g.tenant = (select mindful._tenant()) and pg_catalog.cardinality(g.answers) > 0
        order by g.question, l.outcome_id
    ) f
    order by f.outcome_id;
end;
comment on function _adaptation_gold(text) is
'The gold questions that have an answer and that a model was asked, each once, at its first label: what was chosen by is never tested on.';

create function _adaptation_signals(model text, tier integer)
returns table (
    outcome_id bigint,
    signals jsonb,
    signal_ms jsonb,
    with_memory boolean,
    correct boolean,
    propensity double precision,
    source text
)
language sql stable parallel safe security invoker rows 1000
begin atomic
    select l.outcome_id, l.signals, d.signal_ms, d.with_memory, l.correct, l.propensity, l.source
    from (values (false), (true)) m (with_memory),
        mindful._labelled(_adaptation_signals.model, m.with_memory, _adaptation_signals.tier) l
    join mindful.decision d on d.tenant = (select mindful._tenant()) and d.id = l.decision_id
    order by l.outcome_id;
end;
comment on function _adaptation_signals(text, integer) is 'Labelled answers whose signals were gathered up to a tier, oldest label first.';

create function _adaptation_chain(model text)
returns table (outcome_id bigint, first_correct boolean, chain_correct boolean, first_ms double precision, chain_ms double precision)
language sql stable parallel safe security invoker rows 1000
begin atomic
    select greatest(l.outcome_id, c.outcome_id), l.correct,
        case when s.action = any (array['answer', 'escalate']) then c.correct else l.correct end,
        0::double precision, coalesce((d.signal_ms ->> 'second')::double precision, 0)
    from mindful.decision d
    join mindful.latest_outcome l on l.tenant = d.tenant and l.decision_id = d.id
    join mindful.decision s on s.tenant = d.tenant and s.parent_id = d.id
    join mindful.latest_outcome c on c.tenant = s.tenant and c.decision_id = s.id
    where d.tenant = (select mindful._tenant()) and d.model = _adaptation_chain.model
        and pg_catalog.starts_with(s.model, _adaptation_chain.model || ' > ')
    order by 1;
end;
comment on function _adaptation_chain(text) is
'Answers that were not sure enough and that the fallback answered too: whether the first was right, and whether what escalation would have shown was, as was decided before the labels were known.';

create function _adaptation_held(key text) returns table (value jsonb, by_hand boolean)
language sql stable parallel safe security invoker rows 1
begin atomic
    select mindful.setting_get(_adaptation_held.key), coalesce((
        select not pg_catalog.starts_with(s.changed_by, 'confidence_adapt for ')
            and (s.value <> 'null' or s.reason ~ '^undo of change [0-9]+$')
        from mindful.setting s
        where s.tenant = (select mindful._tenant()) and s.key = _adaptation_held.key and s.scope = 'user'
        order by s.id desc limit 1
    ), false);
end;
comment on function _adaptation_held(text) is
'The value in force of a setting, and whether its user has chosen it, or taken an adaptation back: then it is left alone, until he sets it to a JSON null.';

create function _adaptation_change(key text, value jsonb, reason text) returns bigint
language sql volatile parallel unsafe security invoker
begin atomic
    insert into mindful.setting (scope, key, value, reason, changed_by)
    values ('user', _adaptation_change.key, _adaptation_change.value, _adaptation_change.reason,
        'confidence_adapt for ' || current_user)
    returning id;
end;
comment on function _adaptation_change(text, jsonb, text) is 'Changes a setting of the caller, for the reason that is its evidence, and returns the change''s id.';

create type adaptation_detail as (
    key text,
    held jsonb,
    candidate jsonb,
    adopted boolean,
    change_id bigint,
    reason text,
    evidence jsonb
);
comment on type adaptation_detail is 'What confidence_adapt made of one setting; see the table adaptation.';

create function confidence_adapt(model text default null, questions integer default 100, max_tokens integer default 64)
returns setof adaptation_detail
language plpython3u volatile parallel unsafe security invoker cost 1000000 rows 4
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.adapt import confidence_adapt
return confidence_adapt(model, questions, max_tokens)
$python$;
comment on function confidence_adapt(text, integer, integer) is
'Chooses settings of the caller by what they would have done on labelled questions: chat_temperature and chat_memories by answering the gold questions again (at most so many of the older and so many of the newer, answers of at most max_tokens tokens), confidence_tier by how well each tier''s signals tell right answers from wrong ones, escalate by the fallback''s labelled answers. The value that does best on the older labels is adopted only if it does better than the one in force on labels newer than those, by a paired randomization test at 5% (Fisher 1935); of either there must be 30, and a test is on labels newer than those of the one before. What was changed, by which evidence, is in setting (the reason) and in adaptation, with what an answer costs and recent figures; setting_undo(change_id) takes it back. A setting that the caller has set by hand, or taken back, is left alone. One row a setting. NULL is the default generator. Errors: 22004, 22023, 42704 (no such model), 57014 (cancelled), 0A000 (scikit-learn not installed).';
