create table tuning (
    tenant text not null default _mindful.tenant(),
    id bigint generated always as identity,
    model text not null,
    key text not null,
    current_value jsonb not null,
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
create index on tuning (tenant, model, key, id) where model is not null;
comment on table tuning is
'Results of confidence_tune: a value chosen on older labels and tested on newer ones against the current value.';
comment on column tuning.current_value is 'The value in force during the test.';
comment on column tuning.candidate is 'The value that did best on the older labels; NULL if the current value did.';
comment on column tuning.change_id is 'Id of the change of the setting, for setting_undo.';
comment on column tuning.evidence is
'recent: confidence, error, tokens, time and drift of the last days. chosen: figures of each value on the older labels. tested: figures of both values on the newer labels. score is the share of right answers; for signal_tier it is minus the log-loss of the probability. tokens and ms are the cost of an answer.';
comment on column tuning.last_outcome is 'Id of the newest label at the time. The next test uses newer ones.';
alter table tuning enable row level security, force row level security;
create policy own on tuning using (tenant = (select _mindful.tenant())) with check (tenant = (select _mindful.tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.tuning', '');
select pg_catalog.pg_extension_config_dump('mindful.tuning_id_seq', '');

-- drift_limit: the 99% quantile of chi-squared with 9 degrees of freedom times 1/n + 1/m (Yurdakul and Naranjo 2020).
create function _mindful.drift(reference bigint[], recent bigint[]) returns table (drift double precision, drift_limit double precision)
language sql immutable parallel safe security invoker rows 1
begin atomic
    select pg_catalog.sum((b.now - b.before) * pg_catalog.ln(b.now / b.before)),
        21.67 * (1.0 / pg_catalog.max(b.recent) + 1.0 / pg_catalog.max(b.reference))::double precision
    from (
        select (c.before + 0.5)::double precision / (t.reference + 5) as before, (c.now + 0.5)::double precision / (t.recent + 5) as now,
            t.reference, t.recent
        from (
            select pg_catalog.sum(s.before) as reference, pg_catalog.sum(s.now) as recent
            from unnest(drift.reference, drift.recent) s (before, now)
        ) t,
            unnest(drift.reference, drift.recent) c (before, now)
        where t.reference > 0 and t.recent > 0
    ) b;
end;
comment on function _mindful.drift(bigint[], bigint[]) is
'Returns the population stability index of two histograms of ten bins, sum of (q - p) ln(q / p), with half an answer added to each bin (Siddiqi 2006, Credit Risk Scorecards). By convention more than 0.25 is a change to act on. drift_limit is exceeded by chance once in a hundred times. NULL if a histogram is empty.';

create function _mindful.confidence_recent(model text, days integer) returns jsonb
language sql stable parallel safe security invoker
begin atomic
    with answer as (
        select g.id, g.created_at >= pg_catalog.now() - pg_catalog.make_interval(days => confidence_recent.days) as recent,
            g.confidence, g.completion_tokens, g.total_ms
        from mindful.generation g
        where g.tenant = (select _mindful.tenant()) and g.model = confidence_recent.model
            and g.created_at >= pg_catalog.now() - pg_catalog.make_interval(days => 5 * confidence_recent.days)
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
        where d.tenant = (select _mindful.tenant())
    )
    select pg_catalog.jsonb_build_object(
        'days', confidence_recent.days, 'answers', r.answers, 'confidence', r.confidence, 'tokens', r.tokens, 'ms', r.ms,
        'labels', l.labels, 'error', pg_catalog.round(l.error, 4), 'probability', pg_catalog.round(l.probability::numeric, 4),
        'drift', pg_catalog.round(f.drift::numeric, 4), 'drift_limit', pg_catalog.round(f.drift_limit::numeric, 4))
    from (
        select pg_catalog.count(*) as answers, pg_catalog.round(pg_catalog.avg(a.confidence)::numeric, 4) as confidence,
            pg_catalog.round(pg_catalog.avg(a.completion_tokens), 1) as tokens,
            pg_catalog.round(pg_catalog.avg(a.total_ms)::numeric, 1) as ms
        from answer a where a.recent
    ) r,
        label l, histogram h, lateral _mindful.drift(h.before, h.now) f;
end;
comment on function _mindful.confidence_recent(text, integer) is
'Returns figures of a model''s answers of the last days: number, mean confidence, tokens and milliseconds; of labeled answers the share of wrong ones and the mean probability. drift compares their confidence with that of four times as many days before.';

create function _mindful.tuning_gold(model text)
returns table (outcome_id bigint, question text, answers text[], memories text[], source text)
language sql stable parallel safe security invoker rows 1000
begin atomic
    select f.outcome_id, f.question, f.answers, f.memories, f.source
    from (
        select distinct on (g.question) l.outcome_id, g.question, g.answers, g.memories, g.source
        from mindful.gold g
        join mindful.decision d on d.tenant = g.tenant and d.gold_id = g.id and d.model = tuning_gold.model and d.ways = '{}'
        join mindful.latest_outcome l on l.tenant = d.tenant and l.decision_id = d.id
        where g.tenant = (select _mindful.tenant()) and pg_catalog.cardinality(g.answers) > 0
        order by g.question, l.outcome_id
    ) f
    order by f.outcome_id;
end;
comment on function _mindful.tuning_gold(text) is
'Returns the gold questions with an answer that a model was asked, each once, ordered by its first label. So no question is both chosen by and tested on.';

create function _mindful.tuning_signals(model text, signal_tier integer)
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
        _mindful.labeled(tuning_signals.model, '{}', null, m.with_memory, tuning_signals.signal_tier) l
    join mindful.decision d on d.tenant = (select _mindful.tenant()) and d.id = l.decision_id
    order by l.outcome_id;
end;
comment on function _mindful.tuning_signals(text, integer) is
'Returns labeled first answers with signals up to a tier, oldest label first.';

create function _mindful.tuning_chain(model text)
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
    where d.tenant = (select _mindful.tenant()) and d.model = tuning_chain.model and d.ways = '{}'
        and s.model = d.model and s.ways = '{escalate}'
    order by 1;
end;
comment on function _mindful.tuning_chain(text) is
'Returns flagged answers that the fallback answered too: whether the first answer is right, and whether the answer that escalation would have given is. The decisions were made before the labels.';

create function _mindful.tuning_current(key text) returns table (value jsonb, by_hand boolean)
language sql stable parallel safe security invoker rows 1
begin atomic
    select mindful.setting_get(tuning_current.key), coalesce((
        select not pg_catalog.starts_with(s.changed_by, 'confidence_tune for ')
            and (s.value <> 'null' or s.reason ~ '^undo of change [0-9]+$')
        from mindful.setting s
        where s.tenant = (select _mindful.tenant()) and s.key = tuning_current.key and s.scope = 'user'
        order by s.id desc limit 1
    ), false);
end;
comment on function _mindful.tuning_current(text) is
'Returns the current value of a setting, and whether its user set it or undid a tuning by hand. confidence_tune does not change such a setting until the user sets it to a JSON null.';

create function _mindful.tuning_change(key text, value jsonb, reason text) returns bigint
language sql volatile parallel unsafe security invoker
begin atomic
    insert into mindful.setting (scope, key, value, reason, changed_by)
    values ('user', tuning_change.key, tuning_change.value, tuning_change.reason,
        'confidence_tune for ' || current_user)
    returning id;
end;
comment on function _mindful.tuning_change(text, jsonb, text) is 'Changes a setting of the caller, with the evidence as its reason, and returns the id of the change.';

create type tuning_detail as (
    key text,
    current_value jsonb,
    candidate jsonb,
    adopted boolean,
    change_id bigint,
    reason text,
    evidence jsonb
);
comment on type tuning_detail is 'Result of confidence_tune for one setting; see the table tuning.';

create function confidence_tune(model text default null, max_questions integer default 100, max_tokens integer default 64)
returns setof tuning_detail
language plpython3u volatile parallel unsafe security invoker cost 1000000 rows 4
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.confidence.tune import confidence_tune
return confidence_tune(model, max_questions, max_tokens)
$python$;
comment on function confidence_tune(text, integer, integer) is
'Tries other values of the caller''s settings on labeled questions, adopts values that do better on newer labels, and returns a row for each setting. NULL is the default generator. setting_undo(change_id) undoes a change. Errors: 22004, 22023, 42704 (no such model), 57014 (cancelled). Example: select key, current_value, candidate, adopted, reason from confidence_tune();';
