create view confidence_daily with (security_barrier = true) as
with label as (
    select distinct on (d.tenant, d.generation_id) d.tenant, d.generation_id, o.correct
    from mindful.outcome o
    join mindful.decision d on d.tenant = o.tenant and d.id = o.decision_id
    where (o.tenant = (select _mindful.tenant()) or (select _mindful.reads_all())) and d.generation_id is not null
    order by d.tenant, d.generation_id, o.id desc
),
answer as (
    select g.created_at::date as day, g.tenant, g.model, g.confidence, g.completion_tokens, g.total_ms, l.correct,
        least(width_bucket(g.confidence, 0, 1, 10), 10) as bin
    from mindful.generation g
    left join label l on l.tenant = g.tenant and l.generation_id = g.id
    where g.tenant = (select _mindful.tenant()) or (select _mindful.reads_all())
),
daily as (
    select day, tenant, model, count(*) as generations, avg(confidence) as mean_confidence,
        percentile_cont(0.1) within group (order by confidence) as confidence_p10,
        percentile_cont(0.9) within group (order by confidence) as confidence_p90,
        avg(completion_tokens) as mean_tokens, avg(total_ms) as mean_ms,
        count(correct) as labels, count(*) filter (where not correct) as wrong
    from answer
    group by day, tenant, model
),
histogram as (
    select d.day, d.tenant, d.model, array_agg(b.now order by b.bin) as now, array_agg(b.before order by b.bin) as before
    from daily d
    join (
        select g.day, g.tenant, g.model, g.bin, g.now,
            coalesce(sum(g.now) over (
                partition by g.tenant, g.model, g.bin order by g.day
                range between interval '28 days' preceding and interval '1 day' preceding
            ), 0)::bigint as before
        from (
            select d.day, d.tenant, d.model, n.bin, coalesce(c.answers, 0) as now
            from daily d
            cross join generate_series(1, 10) n (bin)
            left join (
                select a.day, a.tenant, a.model, a.bin, count(*) as answers from answer a group by a.day, a.tenant, a.model, a.bin
            ) c on c.day = d.day and c.tenant = d.tenant and c.model = d.model and c.bin = n.bin
        ) g
    ) b on b.day = d.day and b.tenant = d.tenant and b.model = d.model
    group by d.day, d.tenant, d.model
)
select d.day, d.tenant, d.model, d.generations, d.mean_confidence, d.confidence_p10, d.confidence_p90,
    d.mean_tokens, d.mean_ms, d.labels, d.wrong, f.drift, f.drift_limit
from daily d
join histogram h on h.day = d.day and h.tenant = d.tenant and h.model = d.model,
    lateral _mindful.drift(h.before, h.now) f;
comment on view confidence_daily is
'Confidence of the generators by day, tenant and model, with cost (tokens, milliseconds), number of labels and number of wrong answers. drift compares the day''s confidence with that of the 28 days before; above drift_limit it is more than chance. Shows the caller''s tenant, to mindful_reader all tenants.';
create view decision_log with (security_invoker = true) as
select d.tenant, d.id as decision_id, d.parent_id, d.created_at, d.message_id, d.replaced_by_id, d.model, d.ways, d.second_model, d.with_memory, d.signal_tier,
    d.probability, d.threshold, d.action, d.reason, l.correct, l.grader, d.signals, w.weights, d.alternatives, d.signal_ms, d.total_ms,
    t.budget, t.budget_kind, t.delta, d.calibrator_id, d.threshold_id
from mindful.decision d
left join mindful.threshold t on t.tenant = d.tenant and t.id = d.threshold_id
left join mindful.latest_outcome l on l.tenant = d.tenant and l.decision_id = d.id
left join lateral (
    select jsonb_object_agg(f.name, round((f.weight * (coalesce((d.signals ->> f.name)::double precision, f.mean) - f.mean)
        / f.scale)::numeric, 4)) as weights
    from mindful.calibrator c,
        unnest(c.features, c.means, c.scales, c.weights) f (name, mean, scale, weight)
    where c.tenant = d.tenant and c.id = d.calibrator_id
) w on true;
comment on view decision_log is
'One row per decision with all that explains it: signals, what each adds to the log-odds of being right (weights), threshold, budget, alternatives and label.';

create view label_queue with (security_invoker = true) as
select d.tenant, d.message_id, d.id as decision_id, q.content as question, coalesce(d.answer, a.content) as answer,
    d.probability, d.threshold, d.action, d.created_at, d.offered, n.need, w.why
from mindful.decision d
join mindful.memory a on a.tenant = d.tenant and a.id = d.message_id and a.role = 'assistant'
left join mindful.memory q on q.tenant = a.tenant and q.id = _mindful.question_of(a.id)
cross join lateral (
    select case
        when d.offered then 'random'
        when d.calibrator_id is null then 'uncalibrated'
        when abs(d.probability - coalesce(d.threshold, 0.5)) < 0.1 then 'near'
        else 'any'
    end as need
) n
cross join lateral (
    select case n.need
        when 'random' then format('drawn at random: the label counts for %s flagged %s', round(1 / d.propensity), case when d.propensity > 2 / 3.0 then 'answer' else 'answers' end)
        when 'uncalibrated' then format('answers of %s %s memories are not calibrated yet and need labels',
            d.model, case when d.with_memory then 'with' else 'without' end)
        when 'near' then format('the probability %s is near the threshold %s', round(d.probability::numeric, 2),
            coalesce(round(d.threshold::numeric, 2)::text, '(none yet: 0.5)'))
        else 'low priority: the model is already calibrated here'
    end as why
) w
where d.signals <> '{}' and not exists (
    select from mindful.outcome o where o.tenant = d.tenant and o.decision_id = d.id
)
order by array_position(array['random', 'uncalibrated', 'near', 'any'], n.need),
    -- The order of the random ones must not depend on the probability, or their labels are no random sample.
    case when n.need <> 'random' then abs(d.probability - coalesce(d.threshold, 0.5)) end, d.id desc;
comment on view label_queue is
'Answers without a label, for answer_label, most needed first. need is random (drawn with the probability decision.propensity: only such labels are an unbiased sample of flagged answers), uncalibrated (no calibrator exists for this kind of answer), near (the probability is within 0.1 of the threshold) or any. why is the reason in words.';

create function _mindful.calibrated(c calibrator, signals jsonb) returns double precision
language sql immutable parallel safe security invoker
begin atomic
    select case
        when pg_catalog.cardinality(c.knots_x) = 0 then 1 / (1 + pg_catalog.exp(-greatest(least(g.score, 700), -700)))
        else greatest(0, least(1, coalesce((
            select k.y + (g.score - k.x) / nullif(k.next_x - k.x, 0) * (k.next_y - k.y)
            from (
                select f.x, f.y, pg_catalog.lead(f.x) over (order by f.place) as next_x,
                    pg_catalog.lead(f.y) over (order by f.place) as next_y
                from unnest(c.knots_x, c.knots_y) with ordinality e (x, y, place)
                cross join lateral (select _mindful.figure(e.x) as x, _mindful.figure(e.y) as y, e.place) f
            ) k
            where g.score >= k.x and g.score < k.next_x
            limit 1
        ), case when g.score < c.knots_x[1] then c.knots_y[1] else c.knots_y[pg_catalog.cardinality(c.knots_y)] end)))
    end
    from (
        select coalesce(_mindful.figure(c.intercept), 0) + coalesce(pg_catalog.sum(_mindful.figure(f.weight)
            * _mindful.figure(coalesce(_mindful.figure(calibrated.signals -> f.name), m.mean) - m.mean)
            / nullif(_mindful.figure(f.scale), 0)), 0) as score
        from unnest(c.features, c.means, c.scales, c.weights) f (name, mean, scale, weight)
        cross join lateral (select _mindful.figure(f.mean) as mean) m
    ) g;
end;
comment on function _mindful.calibrated(calibrator, jsonb) is
'Returns the probability that a calibrator gives to an answer''s signals, as mindful.confidence.calibrator computes it.';

-- These views contain figures only. They run with the owner's rights, so each filters by tenant.
create view label_probability with (security_barrier = true) as
select d.tenant, d.model, d.ways, d.second_model, d.with_memory, coalesce(c.signal_tier, d.signal_tier) as signal_tier,
    c.id as calibrator_id, coalesce(_mindful.calibrated(c.fitted, d.signals), d.probability) as probability,
    1 / greatest(d.propensity, 1e-9) as weight, l.correct,
    d.probability as first_probability
from mindful.decision d
join lateral (
    select o.correct from mindful.outcome o
    where o.tenant = d.tenant and o.decision_id = d.id order by o.id desc limit 1
) l on true
left join lateral (
    select n.id, n.signal_tier, n as fitted from mindful.calibrator n
    where n.tenant = d.tenant and n.model = d.model and n.ways = d.ways and n.second_model is not distinct from d.second_model
        and n.with_memory = d.with_memory and n.signal_tier <= d.signal_tier and n.adopted
    order by n.signal_tier desc, n.id desc limit 1
) c on true
where _mindful.is_answered(d.action, d.signals) and (d.tenant = (select _mindful.tenant()) or (select _mindful.reads_all()));
comment on view label_probability is
'Labeled answers with the probability that the calibrator in force gives them, of the highest tier whose signals they have. Labels of before a calibration are included. Without a calibrator it is the probability of the time. Calibrators were fitted to about half of these labels. first_probability is that of the time in any case. Shows the caller''s tenant, to mindful_reader all tenants.';

create view reliability_curve with (security_barrier = true) as
select s.tenant, s.model, s.ways, s.second_model, s.with_memory, s.signal_tier, s.bin, count(*) as answers,
    sum(s.probability * s.weight) / sum(s.weight) as mean_probability,
    sum(s.correct::integer * s.weight) / sum(s.weight) as share_right
from (
    select b.*, ntile(greatest(1, least(10, b.labels / 20))::integer)
        over (partition by b.tenant, b.model, b.ways, b.second_model, b.with_memory, b.signal_tier order by b.probability) as bin
    from (
        select j.tenant, j.model, j.ways, j.second_model, j.with_memory, j.signal_tier, j.probability, j.weight, j.correct,
            count(*) over (partition by j.tenant, j.model, j.ways, j.second_model, j.with_memory, j.signal_tier) as labels
        from mindful.label_probability j
        where j.calibrator_id is not null
    ) b
) s
group by s.tenant, s.model, s.ways, s.second_model, s.with_memory, s.signal_tier, s.bin;
comment on view reliability_curve is
'Labeled answers in up to ten bins of equal size by predicted probability, at least 20 answers each, by the calibrator in force. A calibrated model has mean_probability equal to share_right. Shows the caller''s tenant, to mindful_reader all tenants.';

create view risk_coverage with (security_barrier = true) as
select s.tenant, s.model, s.ways, s.second_model, s.with_memory, s.probability, s.weight / s.total as coverage, s.wrong / s.weight as risk
from (
    select d.tenant, d.model, d.ways, d.second_model, d.with_memory, d.probability, sum(d.weight) over ranked as weight,
        coalesce(sum(d.weight) filter (where not d.correct) over ranked, 0) as wrong,
        sum(d.weight) over (partition by d.tenant, d.model, d.ways, d.second_model, d.with_memory) as total
    from mindful.label_probability d
    window ranked as (partition by d.tenant, d.model, d.ways, d.second_model, d.with_memory order by d.probability desc)
) s;
comment on view risk_coverage is
'For each labeled answer, by the calibrator in force: the share of labeled answers with at least its probability (coverage), and the share of wrong ones among these (risk). Labels are weighted by 1 / propensity. Shows the caller''s tenant, to mindful_reader all tenants.';

create view roc_curve with (security_barrier = true) as
select s.tenant, s.model, s.ways, s.second_model, s.with_memory, s.probability, s.false_positives / s.negatives as false_positive_rate,
    s.true_positives / s.positives as true_positive_rate
from (
    select distinct d.tenant, d.model, d.ways, d.second_model, d.with_memory, d.probability,
        coalesce(sum(d.weight) filter (where not d.correct) over ranked, 0) as false_positives,
        coalesce(sum(d.weight) filter (where d.correct) over ranked, 0) as true_positives,
        sum(d.weight) filter (where not d.correct) over kind as negatives,
        sum(d.weight) filter (where d.correct) over kind as positives
    from mindful.label_probability d
    window kind as (partition by d.tenant, d.model, d.ways, d.second_model, d.with_memory),
        ranked as (kind order by d.probability desc)
) s
where s.negatives > 0 and s.positives > 0;
comment on view roc_curve is
'For each probability of labeled answers, by the calibrator in force: the shares of the wrong answers (false_positive_rate) and of the right ones (true_positive_rate) that have at least this probability. The area below the curve is the AUROC. Labels are weighted by 1 / propensity. Shows the caller''s tenant, to mindful_reader all tenants.';

create view signal_quality with (security_barrier = true) as
select s.tenant, s.model, s.ways, s.second_model, s.with_memory, s.signal, s.right_answers, s.wrong_answers, s.auroc,
    greatest(s.auroc - 1.96 * s.error, 0) as low, least(s.auroc + 1.96 * s.error, 1) as high
from (
    select r.tenant, r.model, r.ways, r.second_model, r.with_memory, r.signal, r.right_answers, r.wrong_answers, a.auroc,
        sqrt(greatest(a.auroc * (1 - a.auroc) + (n.right_answers - 1) * (a.auroc / (2 - a.auroc) - a.auroc ^ 2)
            + (n.wrong_answers - 1) * (2 * a.auroc ^ 2 / (1 + a.auroc) - a.auroc ^ 2), 0)
            / (n.right_answers * n.wrong_answers)) as error
    from (
        select v.tenant, v.model, v.ways, v.second_model, v.with_memory, v.signal, count(*) filter (where v.correct) as right_answers,
            count(*) filter (where not v.correct) as wrong_answers,
            sum(v.weight) filter (where v.correct) as right_weight,
            sum(v.weight) filter (where not v.correct) as wrong_weight,
            sum(v.weight ^ 2) filter (where v.correct) as right_squares,
            sum(v.weight ^ 2) filter (where not v.correct) as wrong_squares,
            sum(v.weight * (v.wrong_up_to - v.wrong_beside / 2)) filter (where v.correct) as outranked
        from (
            select d.tenant, d.model, d.ways, d.second_model, d.with_memory, e.key as signal, l.correct, w.weight,
                coalesce(sum(w.weight) filter (where not l.correct) over (
                    partition by d.tenant, d.model, d.ways, d.second_model, d.with_memory, e.key order by w.value), 0) as wrong_up_to,
                coalesce(sum(w.weight) filter (where not l.correct) over (
                    partition by d.tenant, d.model, d.ways, d.second_model, d.with_memory, e.key, w.value), 0) as wrong_beside
            from mindful.decision d
            join lateral (
                select o.correct from mindful.outcome o
                where o.tenant = d.tenant and o.decision_id = d.id order by o.id desc limit 1
            ) l on true,
                jsonb_each(d.signals) e,
                lateral (select 1 / greatest(d.propensity, 1e-9) as weight, _mindful.figure(e.value) as value) w
            where d.tenant = (select _mindful.tenant()) or (select _mindful.reads_all())
        ) v
        group by v.tenant, v.model, v.ways, v.second_model, v.with_memory, v.signal
    ) r
    cross join lateral (select r.outranked / (r.right_weight * r.wrong_weight) as auroc) a
    cross join lateral (
        select r.right_weight ^ 2 / r.right_squares as right_answers, r.wrong_weight ^ 2 / r.wrong_squares as wrong_answers
    ) n
) s
where s.auroc is not null;
comment on view signal_quality is
'AUROC of each signal alone: the probability that it ranks a right answer above a wrong one. 0.5 is chance; below 0.5 high values indicate wrong answers. low and high bound the 95% interval. Shows the caller''s tenant, to mindful_reader all tenants.';

create view decision_daily with (security_barrier = true) as
select d.created_at::date as day, d.tenant, d.model, d.ways, d.second_model, d.action, count(*) as decisions, avg(d.probability) as mean_probability,
    avg(_mindful.figure(d.total_ms)) as mean_ms, count(l.correct) as labels, count(*) filter (where not l.correct) as wrong, max(t.budget) as budget
from mindful.decision d
left join mindful.threshold t on t.tenant = d.tenant and t.id = d.threshold_id
left join lateral (
    select o.correct from mindful.outcome o
    where o.tenant = d.tenant and o.decision_id = d.id order by o.id desc limit 1
) l on true
where d.message_id is not null and (d.tenant = (select _mindful.tenant()) or (select _mindful.reads_all()))
group by d.created_at::date, d.tenant, d.model, d.ways, d.second_model, d.action;
comment on view decision_daily is
'Actions on the answers of chats by day, tenant and model, with the number of labels, the number of wrong answers and the error budget. mean_ms is the time of the decision without the generation of the answer. Shows the caller''s tenant, to mindful_reader all tenants.';

create view signal_cost with (security_barrier = true) as
select d.tenant, d.model, d.ways, d.second_model, e.key as kind, count(*) as answers, avg(_mindful.figure(e.value)) as mean_ms,
    percentile_cont(0.9) within group (order by _mindful.figure(e.value)) as ms_p90
from mindful.decision d, jsonb_each(case jsonb_typeof(d.signal_ms) when 'object' then d.signal_ms else '{}' end) e
where d.tenant = (select _mindful.tenant()) or (select _mindful.reads_all())
group by d.tenant, d.model, d.ways, d.second_model, e.key;
comment on view signal_cost is
'Cost of each kind of signal (see decision.signal_ms) in milliseconds per answer. Shows the caller''s tenant, to mindful_reader all tenants.';

create function _mindful.label_curves() returns jsonb
language sql stable parallel safe security invoker
begin atomic
    with ranked as (
        select d.model, d.ways, d.second_model, d.with_memory, d.first_probability as probability, d.weight, d.correct,
            pg_catalog.sum(d.weight) over up as above, coalesce(pg_catalog.sum(d.weight) filter (where not d.correct) over up, 0) as wrong_above,
            pg_catalog.sum(d.weight) over kind as total, coalesce(pg_catalog.sum(d.weight) filter (where not d.correct) over kind, 0) as wrong
        from mindful.label_probability d
        where d.tenant = (select _mindful.tenant())
        window kind as (partition by d.model, d.ways, d.second_model, d.with_memory), up as (kind order by d.first_probability desc)
    )
    select case when exists (select from ranked) then pg_catalog.jsonb_build_object(
        'reliability', (
            select pg_catalog.jsonb_agg(pg_catalog.to_jsonb(b) - 'bin' order by b.model, b.with_memory, b.bin)
            from (
                select r.model, r.ways, r.second_model, r.with_memory, 0 as signal_tier, pg_catalog.floor(least(r.probability, 0.999) * 10) as bin,
                    pg_catalog.count(*) as answers, pg_catalog.sum(r.probability * r.weight) / pg_catalog.sum(r.weight) as mean_probability,
                    pg_catalog.sum(r.correct::integer * r.weight) / pg_catalog.sum(r.weight) as share_right
                from ranked r
                group by r.model, r.ways, r.second_model, r.with_memory, pg_catalog.floor(least(r.probability, 0.999) * 10)
            ) b
        ),
        'risk', (
            select pg_catalog.jsonb_agg(pg_catalog.to_jsonb(p) - 'part' order by p.model, p.with_memory, p.coverage)
            from (
                select distinct on (r.model, r.ways, r.second_model, r.with_memory, pg_catalog.ceil(r.above / r.total * 100))
                    r.model, r.ways, r.second_model, r.with_memory, r.above / r.total as coverage, r.wrong_above / r.above as risk,
                    pg_catalog.ceil(r.above / r.total * 100) as part
                from ranked r
                order by r.model, r.ways, r.second_model, r.with_memory, pg_catalog.ceil(r.above / r.total * 100), r.above desc
            ) p
        ),
        'roc', (
            select pg_catalog.jsonb_agg(pg_catalog.to_jsonb(p) - 'part' order by p.model, p.with_memory, p.false_positive_rate, p.true_positive_rate)
            from (
                select distinct on (r.model, r.ways, r.second_model, r.with_memory, pg_catalog.ceil(r.wrong_above / r.wrong * 100))
                    r.model, r.ways, r.second_model, r.with_memory, r.wrong_above / r.wrong as false_positive_rate,
                    (r.above - r.wrong_above) / (r.total - r.wrong) as true_positive_rate, pg_catalog.ceil(r.wrong_above / r.wrong * 100) as part
                from ranked r
                where r.wrong > 0 and r.wrong < r.total
                order by r.model, r.ways, r.second_model, r.with_memory, pg_catalog.ceil(r.wrong_above / r.wrong * 100), r.above desc
            ) p
        )
    ) end;
end;
comment on function _mindful.label_curves() is
'Returns the curves of confidence_report (reliability, risk and roc) for the probabilities that labeled answers had at the time, before their labels. NULL without labels.';

-- JIT compilation of the queries takes ten times as long as their execution.
create function confidence_report() returns jsonb
language sql stable parallel safe security invoker set jit = off
begin atomic
    select pg_catalog.jsonb_build_object(
        'daily', (select pg_catalog.jsonb_agg(pg_catalog.to_jsonb(v) - 'tenant' order by v.day, v.model)
            from mindful.confidence_daily v where v.tenant = (select _mindful.tenant())),
        'decisions', (select pg_catalog.jsonb_agg(pg_catalog.to_jsonb(v) - 'tenant' order by v.day, v.model, v.action)
            from mindful.decision_daily v where v.tenant = (select _mindful.tenant())),
        'reliability', (select pg_catalog.jsonb_agg(pg_catalog.to_jsonb(v) - 'tenant' order by v.model, v.with_memory, v.signal_tier, v.bin)
            from mindful.reliability_curve v where v.tenant = (select _mindful.tenant())),
        'risk', (
            select pg_catalog.jsonb_agg(pg_catalog.to_jsonb(p) - 'part' order by p.model, p.with_memory, p.coverage)
            from (
                select distinct on (v.model, v.ways, v.second_model, v.with_memory, pg_catalog.ceil(v.coverage * 100))
                    v.model, v.ways, v.second_model, v.with_memory,
                    v.coverage, v.risk, pg_catalog.ceil(v.coverage * 100) as part
                from mindful.risk_coverage v
                where v.tenant = (select _mindful.tenant())
                order by v.model, v.ways, v.second_model, v.with_memory, pg_catalog.ceil(v.coverage * 100), v.coverage desc
            ) p
        ),
        'roc', (
            select pg_catalog.jsonb_agg(pg_catalog.to_jsonb(p) - 'part' order by p.model, p.with_memory, p.false_positive_rate, p.true_positive_rate)
            from (
                select distinct on (v.model, v.ways, v.second_model, v.with_memory, pg_catalog.ceil(v.false_positive_rate * 100))
                    v.model, v.ways, v.second_model, v.with_memory,
                    v.false_positive_rate, v.true_positive_rate, pg_catalog.ceil(v.false_positive_rate * 100) as part
                from mindful.roc_curve v
                where v.tenant = (select _mindful.tenant())
                order by v.model, v.ways, v.second_model, v.with_memory, pg_catalog.ceil(v.false_positive_rate * 100), v.true_positive_rate desc
            ) p
        ),
        'before', (select _mindful.label_curves()),
        'signals', (select pg_catalog.jsonb_agg(pg_catalog.to_jsonb(v) - 'tenant' order by v.model, v.with_memory, v.auroc desc)
            from mindful.signal_quality v where v.tenant = (select _mindful.tenant())),
        'costs', (select pg_catalog.jsonb_agg(pg_catalog.to_jsonb(v) - 'tenant' order by v.model, v.kind)
            from mindful.signal_cost v where v.tenant = (select _mindful.tenant())),
        'thresholds', (
            select pg_catalog.jsonb_agg(pg_catalog.to_jsonb(t) - 'tenant' || pg_catalog.jsonb_build_object('model', c.model, 'ways', c.ways, 'second_model', c.second_model,
                'with_memory', c.with_memory, 'signal_tier', c.signal_tier) order by t.id)
            from mindful.threshold t
            join mindful.calibrator c on c.tenant = t.tenant and c.id = t.calibrator_id
            where t.tenant = (select _mindful.tenant())
        ),
        'tunings', (
            select pg_catalog.jsonb_agg(pg_catalog.to_jsonb(a) - 'tenant' order by a.id)
            from mindful.tuning a where a.tenant = (select _mindful.tenant()) and a.candidate is not null
        )
    );
end;
comment on function confidence_report() is
'Returns the views of confidence for the caller''s tenant as one JSON object: daily, decisions, reliability, risk, roc, before, signals, costs, thresholds and tunings. An empty list is null. The command mindful report draws it. Example: select confidence_report() -> ''thresholds'';';
