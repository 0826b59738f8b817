"""Rows of tables that only many labels, or failures, would fill."""

from __future__ import annotations

import psycopg

_ROWS = (
    """insert into calibrator (model, with_memory, signal_tier,
        features, means, scales, weights, intercept, labels, wrong,
       metrics, last_outcome, adopted) values ('x', false, 0, '{}', '{}', '{}', '{}', 0, 30, 10, '{}', 1, true)""",
    """insert into threshold (calibrator_id, budget_kind, budget, delta, run, delta_spent, status, labels, reason)
       select id, 'answers', 0.1, 0.1, 1, 0.06, 'infeasible', 30, 'x' from calibrator""",
    """insert into action_gain (action, model, answers, changed, gained, lost, p_value, helps)
       values ('retrieve', 'x', 9, 4, 3, 1, 0.3125, false)""",
    """insert into embedding_job_failed (id, model, content_hash, attempts, error, enqueued_at)
       select id, model, content_hash, 5, 'lost', now() from embedding_job limit 1""",
)


def insert_rare(user: psycopg.Connection) -> None:
    """Put a row into each of them; one of the user's embedding jobs is to have failed."""
    for statement in _ROWS:
        assert user.execute(statement).rowcount == 1
