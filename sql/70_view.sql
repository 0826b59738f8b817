create view conversation with (security_invoker = true) as
select m.tenant, m.session_id, s.title, m.turn, m.role, m.content, m.id as message_id, m.created_at,
    case when jsonb_typeof(m.metadata -> 'confidence') = 'number' and (m.metadata -> 'confidence')::numeric between 0 and 1
        then mindful._real((m.metadata -> 'confidence')::numeric(40, 39)) end as confidence,
    m.metadata ->> 'model' as model
from mindful.memory m
join mindful.session s on s.tenant = m.tenant and s.session_id = m.session_id
where m.kind = 'message';
comment on view conversation is 'The caller''s conversations, message by message; order by session_id, turn.';

-- The views for BI read with their owner's rights and choose the rows themselves. As invoker's views they would need
-- policies that show readers all rows of the tables, and whoever is reader and user at once could read contents by them.
create view memory_overview with (security_barrier = true) as
select tenant, kind, count(*) as memories, min(created_at) as first_at, max(created_at) as last_at
from mindful.memory
where tenant = (select mindful._tenant()) or (select mindful._reads_all())
group by tenant, kind;
comment on view memory_overview is 'How many memories there are, by tenant and kind: one''s own, or for mindful_reader all.';

create view model_usage with (security_barrier = true) as
select created_at::date as day, tenant, model, role, count(*) as generations, sum(prompt_tokens) as prompt_tokens,
    sum(cached_tokens) as cached_tokens, sum(completion_tokens) as completion_tokens,
    avg(first_token_ms) as mean_first_token_ms, avg(total_ms) as mean_total_ms,
    count(*) filter (where finish_reason = 'length') as cut_by_length,
    count(*) filter (where finish_reason = 'stop') as ended, avg(slot_wait_ms) as mean_slot_wait_ms,
    max(slot_wait_ms) as max_slot_wait_ms
from mindful.generation
where tenant = (select mindful._tenant()) or (select mindful._reads_all())
group by created_at::date, tenant, model, role;
comment on view model_usage is 'What generators did, by day, tenant, model and role: for oneself, or for mindful_reader for all. Answers ended of themselves or were cut by length; times are in milliseconds, waiting for a slot among them.';

create view confidence_daily with (security_barrier = true) as
with label as (
    select distinct on (d.tenant, d.generation_id) d.tenant, d.generation_id, o.correct
    from mindful.outcome o
    join mindful.decision d on d.tenant = o.tenant and d.id = o.decision_id
    where (o.tenant = (select mindful._tenant()) or (select mindful._reads_all())) and d.generation_id is not null
    order by d.tenant, d.generation_id, o.id desc
),
answer as (
    select g.created_at::date as day, g.tenant, g.model, g.confidence, g.completion_tokens, g.total_ms, l.correct,
        least(width_bucket(g.confidence, 0, 1, 10), 10) as bin
    from mindful.generation g
    left join label l on l.tenant = g.tenant and l.generation_id = g.id
    where g.tenant = (select mindful._tenant()) or (select mindful._reads_all())
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
    lateral mindful._drift(h.before, h.now) f;
comment on view confidence_daily is 'How sure the generators were, what their answers cost (tokens, milliseconds) and how many were labelled and wrong, by day, tenant and model: for oneself, or for mindful_reader for all. Drift compares the day''s confidence with that of the 28 days before; above drift_limit it is more than chance (see _drift).';
