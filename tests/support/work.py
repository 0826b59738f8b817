"""Statements in which a model is at work for seconds, by the path that they take."""

from typing import LiteralString

import psycopg

AT_WORK: dict[str, LiteralString] = {
    "decode": "select llm_generate('Write a very long story about the sea.', max_tokens => 1500)",
    "prefill": "select llm_generate(repeat('word and other ', 600), max_tokens => 1)",
    "stream": "select count(*) from (select llm_generate_stream('Write a very long story.', max_tokens => 1500)) s",
    "chat": "select llm_chat('Write a very long story about the sea.', max_tokens => 1500)",
    "chat stream": "select count(*) from (select llm_chat_stream('Write a long story.', max_tokens => 1500)) s",
    "embed": "select llm_embed_many(array_agg('words about the thing ' || i)) from generate_series(1, 4000) i",
    "embed rows": "select count(llm_embed('words about the thing ' || i)) from generate_series(1, 4000) i",
    "classify": "select count(*) from unnest(llm_classify_many(array(select 'words about the thing ' || i"
    " from generate_series(1, 4000) i), '{good,bad}'))",
    "classify rows": "select count(llm_classify('the thing ' || i, '{good,bad}')) from generate_series(1, 4000) i",
    "if": "select llm_if_many(array(select 'words about the thing ' || i from generate_series(1, 4000) i), 'It is.')",
    "many": "select llm_generate_many(array(select 'Write a very long story about ' || i"
    " from generate_series(1, 64) i), max_tokens => 500)",
    "extract": 'select llm_extract(\'Tell a story.\', \'{"type": "array", "items": {"type": "string"},'
    ' "minItems": 400}\', max_tokens => 1500)',
    "extract many": "select llm_extract_many(array(select 'Tell of ' || i from generate_series(1, 64) i),"
    ' \'{"type": "array", "items": {"type": "string"}, "minItems": 400}\', max_tokens => 500)',
    "summarize": "select llm_summarize(repeat('The ship sails on the sea. ', 200)) from generate_series(1, 20)",
    "insert": "select memory_insert_many(jsonb_agg(jsonb_build_object('content', 'words about the thing ' || i)))"
    " from generate_series(1, 4000) i",
}

ON_ROWS: dict[str, LiteralString] = {
    "recall": "select count(*) from generate_series(1, 200) g, memory_recall('Oslo ' || g, 3)",
    "document": "select document_insert(repeat('The ship sails on the sea to Oslo. ', 3000), 'bench')",
    "self review": "select self_review(m.id) from generate_series(1, 50),"
    " (select min(id) as id from memory where role = 'assistant' and metadata ->> 'bench' = 'yes') m",
    "consolidate": "select memory_consolidate()",
    "calibrate": "select calibrate(error_budget => 0.2) from generate_series(1, 20)",
    "forget": """select memory_forget(filter => '{"metadata": {"bench": "yes"}}')""",
}
"""The same of what works on rows, those that insert_rows makes."""


def insert_rows(connection: psycopg.Connection) -> None:
    """Insert memories, a conversation and labels."""
    connection.execute(
        """select memory_insert_many(jsonb_agg(jsonb_build_object(
               'content', 'Person ' || i || ' lives in Oslo and sails ship ' || i * 7 || '.',
               'metadata', jsonb_build_object('bench', 'yes'))))
           from generate_series(1, 400) i"""
    )
    connection.execute(
        """select message_insert_many(session_start(), jsonb_agg(jsonb_build_object(
               'role', (array['user', 'assistant'])[1 + (i + 1) % 2],
               'content', 'My friend ' || i || ' lives in Bergen and likes tea.',
               'metadata', jsonb_build_object('bench', 'yes')) order by i))
           from generate_series(1, 60) i"""
    )
    connection.execute(
        """with decided as (
               insert into decision (model, with_memory, signal_tier, signals, probability, action, reason)
               select (select name from model where is_default and kind = 'generator'), false, 0,
                   jsonb_build_object('logprob_sum', ln(n + 0.5) - ln(1500 - n + 0.5), 'log_tokens', 1),
                   0.5, 'flag', 'x'
               from generate_series(1, 1500) n order by n
               returning id, (signals ->> 'logprob_sum')::float8 as signal)
           insert into outcome (decision_id, correct, grader)
           select id, random() < 1 / (1 + exp(-2 * signal)), 'rule' from decided order by id"""
    )
