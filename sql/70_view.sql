create view conversation with (security_invoker = true) as
select m.tenant, m.session_id, s.title, m.turn, m.role, m.content, m.id as message_id, m.created_at,
    case jsonb_typeof(m.metadata -> 'confidence') when 'number' then (m.metadata -> 'confidence')::real end as confidence,
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
select created_at::date as day, tenant, model, count(*) as generations, avg(confidence) as mean_confidence,
    percentile_cont(0.1) within group (order by confidence) as confidence_p10,
    percentile_cont(0.9) within group (order by confidence) as confidence_p90
from mindful.generation
where tenant = (select mindful._tenant()) or (select mindful._reads_all())
group by created_at::date, tenant, model;
comment on view confidence_daily is 'How sure the generators were, by day, tenant and model: for oneself, or for mindful_reader for all.';

