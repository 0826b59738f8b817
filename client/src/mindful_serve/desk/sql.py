"""What the desk reads: one statement for a view."""

from typing import LiteralString

# A reader's views have the rows of all tenants.
_TENANT: LiteralString = "coalesce(nullif(current_setting('mindful.tenant', true), ''), current_user)"

# A reply with what was decided about it, or a user's message.
_TURNS: LiteralString = """
    select t.id, t.role, t.content, t.created_at, t.metadata ->> 'model' as model,
        case when jsonb_typeof(t.metadata -> 'memory_ids') = 'array'
            then jsonb_array_length(t.metadata -> 'memory_ids') else 0 end as memories,
        coalesce(d.action, t.metadata ->> 'action') as action, d.probability, d.threshold, d.reason,
        d.calibrator_id is not null as is_calibrated, case when jsonb_typeof(t.metadata -> 'confidence') = 'number'
            then (t.metadata ->> 'confidence')::float end as confidence,
        d.id is not null as can_be_labeled, o.correct, o.note
    from mindful.memory t
    left join lateral (
        select d.* from mindful.decision d where d.tenant = t.tenant and d.message_id = t.id order by d.id desc limit 1
    ) d on true
    left join lateral (
        select o.* from mindful.outcome o where o.tenant = d.tenant and o.decision_id = d.id order by o.id desc limit 1
    ) o on true
"""

CHAT: LiteralString = f"""
    select s.title, g.names as models, l.sessions, t.turns
    from (select array_agg(m.name order by m.is_default desc, m.name) as names
        from mindful.model m where m.kind = 'generator' and m.withdrawn_at is null) g
    cross join (select coalesce(jsonb_agg(to_jsonb(l)), '[]') as sessions
        from mindful.session_list(max_count => 50) l) l
    left join mindful.session s on s.session_id = %(session_id)s::uuid
    left join lateral (
        select jsonb_agg(to_jsonb(t) order by t.id) as turns
        from (
            {_TURNS}
            where t.tenant = s.tenant and t.session_id = s.session_id
                and t.role in ('user', 'assistant', 'clarification')
            order by t.turn desc
            limit 200
        ) t
    ) t on true
"""

TURN: LiteralString = f"""
    {_TURNS}
    where t.id = %(id)s and t.role in ('assistant', 'clarification')
"""

LAST_TURN: LiteralString = f"""
    {_TURNS}
    where t.session_id = %(session_id)s and t.role in ('assistant', 'clarification')
    order by t.turn desc
    limit 1
"""

# The memories that a reply was shown, as recall scores them for its question today.
SHOWN: LiteralString = """
    select m.id, m.content, m.kind, m.role, m.created_at, m.session_id, r.score, r.similarity, r.bm25, r.bm25_context,
        r.similarity_context, r.recency, r.importance, r.access
    from mindful.memory a
    cross join lateral jsonb_array_elements_text(
        case when jsonb_typeof(a.metadata -> 'memory_ids') = 'array' then a.metadata -> 'memory_ids' end
    ) with ordinality s (id, place)
    join mindful.memory m on m.tenant = a.tenant and m.id = _mindful.memory_id(s.id)
    left join lateral (
        select q.content from mindful.memory q
        where q.tenant = a.tenant and q.session_id = a.session_id and q.turn < a.turn and q.role = 'user'
        order by q.turn desc
        limit 1
    ) q on true
    left join lateral mindful.memory_recall(q.content, k => 100) r on r.id = m.id
    where a.id = %(id)s
    order by s.place
"""

LIST: LiteralString = """
    select m.id, m.content, m.kind, m.role, m.source, m.created_at, m.session_id, m.importance
    from mindful.memory_list(kinds => %(kinds)s, before_id => %(before)s, max_count => 25) m
"""

RECALL: LiteralString = """
    select m.* from mindful.memory_recall(%(query)s, k => 25, kinds => %(kinds)s) m
"""

MEMORY: LiteralString = """
    select m.id, m.content, m.kind, m.role, m.source, m.created_at, m.session_id, m.importance
    from mindful.memory_get(%(id)s) m
"""

INSERT: LiteralString = "select mindful.memory_insert(%(content)s) as id"

CORRECT: LiteralString = "select mindful.memory_update(%(id)s, %(content)s) as id"

FORGET: LiteralString = """
    select f.receipt_id, f.relation, f.action, f.rows
    from mindful.memory_forget(ids => array[%(id)s::bigint], dry_run => %(dry_run)s) f
"""

FOUND: LiteralString = (
    "select f.relation, f.finding from mindful.memory_forget_check(receipt_id => %(receipt_id)s) f"
)

QUEUE: LiteralString = """
    select q.message_id, q.question, q.answer, q.probability, q.threshold, q.action, q.why, q.created_at,
        count(*) over () as waiting
    from mindful.label_queue q
    limit 1 offset %(skip)s
"""

LABEL: LiteralString = "select mindful.answer_label(%(id)s, %(correct)s, %(note)s) as id"

REPORT: LiteralString = "select mindful.confidence_report() as report"

STATUS: LiteralString = f"""
    select (
        select jsonb_agg(to_jsonb(m) order by m.kind desc, m.name) from (
            select m.name, m.kind, m.provider, m.is_default, m.dims, m.context_length, u.calls, u.mean_ms, u.wait_ms
            from mindful.model m
            left join lateral (
                select count(*) as calls, avg(g.total_ms) as mean_ms, max(g.slot_wait_ms) as wait_ms
                from mindful.generation g
                where g.model = m.name and g.created_at > now() - interval '1 day'
            ) u on m.kind = 'generator'
            where m.withdrawn_at is null
        ) m
    ) as models, (
        select jsonb_agg(
            to_jsonb(e) || jsonb_build_object('wait_s', extract(epoch from e.oldest_wait)) order by e.model
        )
        from mindful.embedding_status e where e.tenant = {_TENANT}
    ) as embeddings, (
        select jsonb_agg(to_jsonb(f)) from (
            select f.model, f.error, count(*) as jobs, max(f.failed_at) as failed_at
            from mindful.embedding_job_failed f
            group by f.model, f.error
            order by count(*) desc
            limit 5
        ) f
    ) as failures, (
        select jsonb_agg(to_jsonb(o) order by o.kind) from mindful.memory_overview o where o.tenant = {_TENANT}
    ) as memories, (
        select max(g.slot_wait_ms) from mindful.generation g where g.created_at > now() - interval '1 hour'
    ) as slot_wait_ms,
    has_function_privilege('mindful.slot_status()', 'execute') as sees_slots,
    (select x.extversion from pg_catalog.pg_extension x where x.extname = 'mindful') as version
"""

SLOTS: LiteralString = "select s.slot, s.pid from mindful.slot_status() s"

RETRY: LiteralString = "select mindful.embedding_retry() as jobs"
