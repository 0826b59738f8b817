create view decision_log with (security_invoker = true) as
select d.tenant, d.id as decision_id, d.parent_id, d.created_at, d.message_id, d.instead_id, d.model, d.with_memory, d.tier,
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
'Why each answer was given, flagged, tried again in another way, asked back about or withheld: its signals, what each added to its log-odds of being right (weights), the threshold and the budget that it keeps, the alternatives, and whether it was right.';

create view label_queue with (security_invoker = true) as
select d.tenant, d.message_id, d.id as decision_id, q.content as question, coalesce(d.answer, a.content) as answer,
    d.probability, d.threshold, d.action, d.created_at, d.offered, n.need, w.why
from mindful.decision d
join mindful.memory a on a.tenant = d.tenant and a.id = d.message_id and a.role = 'assistant'
left join mindful.memory q on q.tenant = a.tenant and q.id = mindful._question_of(a.id)
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
        when 'random' then format('drawn at random: its label stands for %s flagged answers', round(1 / d.propensity))
        when 'uncalibrated' then format('answers of %s %s memories are not calibrated: each label brings that nearer',
            d.model, case when d.with_memory then 'with' else 'without' end)
        when 'near' then format('its probability, %s, is near the threshold, %s', round(d.probability::numeric, 2),
            coalesce(round(d.threshold::numeric, 2)::text, 'of which there is none yet: that is, near 0.5'))
        else 'a label of it tells little that is new'
    end as why
) w
where not exists (
    select from mindful.outcome o where o.tenant = d.tenant and o.decision_id = d.id
)
order by array_position(array['random', 'uncalibrated', 'near', 'any'], n.need),
    abs(d.probability - coalesce(d.threshold, 0.5)), d.id desc;
comment on view label_queue is
'Answers without a label, for review_label, those first that most need one, and why: random, drawn with the probability of the setting label_share, as only such labels tell without bias how flagged answers do; uncalibrated, of a kind that has no calibrator yet; near, of a probability within 0.1 of the threshold, where a label teaches most; any.';

-- As the views for BI: figures alone, with the owner's rights, and the rows chosen here.
create view reliability_curve with (security_barrier = true) as
select s.tenant, s.model, s.with_memory, s.tier, s.bin, count(*) as answers,
    sum(s.probability * s.weight) / sum(s.weight) as mean_probability,
    sum(s.correct::integer * s.weight) / sum(s.weight) as share_right
from (
    select b.*, ntile(greatest(1, least(10, b.labels / 20))::integer)
        over (partition by b.tenant, b.model, b.with_memory, b.tier order by b.probability) as bin
    from (
        select d.tenant, d.model, d.with_memory, d.tier, d.probability, 1 / d.propensity as weight, l.correct,
            count(*) over (partition by d.tenant, d.model, d.with_memory, d.tier) as labels
        from mindful.decision d
        join lateral (
            select o.correct from mindful.outcome o
            where o.tenant = d.tenant and o.decision_id = d.id order by o.id desc limit 1
        ) l on true
        where d.calibrator_id is not null
            and (d.tenant = (select mindful._tenant()) or (select mindful._reads_all()))
    ) b
) s
group by s.tenant, s.model, s.with_memory, s.tier, s.bin;
comment on view reliability_curve is
'Labelled answers in bins of equal size, at most ten and of 20 answers at least, by the probability that they were given: on the diagonal, mean_probability and share_right are the same. Both are means weighted by 1 / propensity (Horvitz and Thompson 1952; Hajek 1971). For oneself, or for mindful_reader for all.';

create view risk_coverage with (security_barrier = true) as
select s.tenant, s.model, s.with_memory, s.probability, s.weight / s.total as coverage, s.wrong / s.weight as risk
from (
    select d.tenant, d.model, d.with_memory, d.probability, sum(1 / d.propensity) over ranked as weight,
        coalesce(sum(1 / d.propensity) filter (where not l.correct) over ranked, 0) as wrong,
        sum(1 / d.propensity) over (partition by d.tenant, d.model, d.with_memory) as total
    from mindful.decision d
    join lateral (
        select o.correct from mindful.outcome o
        where o.tenant = d.tenant and o.decision_id = d.id order by o.id desc limit 1
    ) l on true
    where d.tenant = (select mindful._tenant()) or (select mindful._reads_all())
    window ranked as (partition by d.tenant, d.model, d.with_memory order by d.probability desc)
) s;
comment on view risk_coverage is
'For each labelled answer: which share of all labelled answers has at least its probability (coverage), and which share of those is wrong (risk), each label weighted by 1 / propensity. For oneself, or for mindful_reader for all.';

create view signal_quality with (security_barrier = true) as
select s.tenant, s.model, s.with_memory, s.signal, s.right_answers, s.wrong_answers, s.auroc,
    greatest(s.auroc - 1.96 * s.error, 0) as low, least(s.auroc + 1.96 * s.error, 1) as high
from (
    select r.tenant, r.model, r.with_memory, r.signal, r.right_answers, r.wrong_answers, a.auroc,
        sqrt((a.auroc * (1 - a.auroc) + (n.right_answers - 1) * (a.auroc / (2 - a.auroc) - a.auroc ^ 2)
            + (n.wrong_answers - 1) * (2 * a.auroc ^ 2 / (1 + a.auroc) - a.auroc ^ 2))
            / (n.right_answers * n.wrong_answers)) as error
    from (
        select v.tenant, v.model, v.with_memory, v.signal, count(*) filter (where v.correct) as right_answers,
            count(*) filter (where not v.correct) as wrong_answers,
            sum(v.weight) filter (where v.correct) as right_weight,
            sum(v.weight) filter (where not v.correct) as wrong_weight,
            sum(v.weight ^ 2) filter (where v.correct) as right_squares,
            sum(v.weight ^ 2) filter (where not v.correct) as wrong_squares,
            sum(v.weight * (v.wrong_up_to - v.wrong_beside / 2)) filter (where v.correct) as outranked
        from (
            select d.tenant, d.model, d.with_memory, e.key as signal, l.correct, 1 / d.propensity as weight,
                coalesce(sum(1 / d.propensity) filter (where not l.correct) over (
                    partition by d.tenant, d.model, d.with_memory, e.key order by e.value::double precision), 0) as wrong_up_to,
                coalesce(sum(1 / d.propensity) filter (where not l.correct) over (
                    partition by d.tenant, d.model, d.with_memory, e.key, e.value::double precision), 0) as wrong_beside
            from mindful.decision d
            join lateral (
                select o.correct from mindful.outcome o
                where o.tenant = d.tenant and o.decision_id = d.id order by o.id desc limit 1
            ) l on true,
                jsonb_each_text(d.signals) e
            where d.tenant = (select mindful._tenant()) or (select mindful._reads_all())
        ) v
        group by v.tenant, v.model, v.with_memory, v.signal
    ) r
    cross join lateral (select r.outranked / (r.right_weight * r.wrong_weight) as auroc) a
    cross join lateral (
        select r.right_weight ^ 2 / r.right_squares as right_answers, r.wrong_weight ^ 2 / r.wrong_squares as wrong_answers
    ) n
) s
where s.auroc is not null;
comment on view signal_quality is
'How well each signal alone ranks right answers above wrong ones: AUROC (0.5 is chance; below, high values are a bad sign), each pair of a right and a wrong answer weighted by the product of their 1 / propensity (Horvitz and Thompson 1952), with the bounds of its 95% interval (Hanley and McNeil 1982, for as many answers as the weights are worth: sum ^ 2 / sum of squares, Kish 1965). For oneself, or for mindful_reader for all.';

create view decision_daily with (security_barrier = true) as
select d.created_at::date as day, d.tenant, d.model, d.action, count(*) as decisions, avg(d.probability) as mean_probability,
    avg(d.total_ms) as mean_ms, count(l.correct) as labels, count(*) filter (where not l.correct) as wrong, max(t.budget) as budget
from mindful.decision d
left join mindful.threshold t on t.tenant = d.tenant and t.id = d.threshold_id
left join lateral (
    select o.correct from mindful.outcome o
    where o.tenant = d.tenant and o.decision_id = d.id order by o.id desc limit 1
) l on true
where d.message_id is not null and (d.tenant = (select mindful._tenant()) or (select mindful._reads_all()))
group by d.created_at::date, d.tenant, d.model, d.action;
comment on view decision_daily is
'What was done with the answers of chats, by day, tenant, model and action, how many were labelled and wrong, and the budget that they were held to: for oneself, or for mindful_reader for all. Milliseconds are those of deciding, the answer''s own aside.';

create view signal_cost with (security_barrier = true) as
select d.tenant, d.model, e.key as kind, count(*) as answers, avg(e.value::double precision) as mean_ms,
    percentile_cont(0.9) within group (order by e.value::double precision) as ms_p90
from mindful.decision d, jsonb_each_text(d.signal_ms) e
where d.tenant = (select mindful._tenant()) or (select mindful._reads_all())
group by d.tenant, d.model, e.key;
comment on view signal_cost is
'What each kind of signal (see decision.signal_ms) cost an answer, in milliseconds: for oneself, or for mindful_reader for all.';

-- Compiling eight queries takes ten times as long as running them.
create function confidence_report() returns jsonb
language sql stable parallel safe security invoker set jit = off
begin atomic
    select pg_catalog.jsonb_build_object(
        'daily', (select pg_catalog.jsonb_agg(pg_catalog.to_jsonb(v) - 'tenant' order by v.day, v.model)
            from mindful.confidence_daily v where v.tenant = (select mindful._tenant())),
        'decisions', (select pg_catalog.jsonb_agg(pg_catalog.to_jsonb(v) - 'tenant' order by v.day, v.model, v.action)
            from mindful.decision_daily v where v.tenant = (select mindful._tenant())),
        'reliability', (select pg_catalog.jsonb_agg(pg_catalog.to_jsonb(v) - 'tenant' order by v.model, v.with_memory, v.tier, v.bin)
            from mindful.reliability_curve v where v.tenant = (select mindful._tenant())),
        'risk', (
            select pg_catalog.jsonb_agg(pg_catalog.to_jsonb(p) - 'part' order by p.model, p.with_memory, p.coverage)
            from (
                select distinct on (v.model, v.with_memory, pg_catalog.ceil(v.coverage * 100)) v.model, v.with_memory,
                    v.coverage, v.risk, pg_catalog.ceil(v.coverage * 100) as part
                from mindful.risk_coverage v
                where v.tenant = (select mindful._tenant())
                order by v.model, v.with_memory, pg_catalog.ceil(v.coverage * 100), v.coverage desc
            ) p
        ),
        'signals', (select pg_catalog.jsonb_agg(pg_catalog.to_jsonb(v) - 'tenant' order by v.model, v.with_memory, v.auroc desc)
            from mindful.signal_quality v where v.tenant = (select mindful._tenant())),
        'costs', (select pg_catalog.jsonb_agg(pg_catalog.to_jsonb(v) - 'tenant' order by v.model, v.kind)
            from mindful.signal_cost v where v.tenant = (select mindful._tenant())),
        'thresholds', (
            select pg_catalog.jsonb_agg(pg_catalog.to_jsonb(t) - 'tenant' || pg_catalog.jsonb_build_object('model', c.model,
                'with_memory', c.with_memory, 'tier', c.tier) order by t.id)
            from mindful.threshold t
            join mindful.calibrator c on c.tenant = t.tenant and c.id = t.calibrator_id
            where t.tenant = (select mindful._tenant())
        ),
        'adaptations', (
            select pg_catalog.jsonb_agg(pg_catalog.to_jsonb(a) - 'tenant' order by a.id)
            from mindful.adaptation a where a.tenant = (select mindful._tenant()) and a.candidate is not null
        )
    );
end;
comment on function confidence_report() is
'What the views of confidence say of the caller''s answers, as one document: daily, decisions, reliability, risk (a point for each per cent of coverage), signals, costs, thresholds, which tell alarms by the status tightened, and adaptations. A list that has nothing is null. The command mindful report draws it.';
