"""Statements in which a model is at work for seconds, by the path that they take."""

from typing import LiteralString

AT_WORK: dict[str, LiteralString] = {
    "decode": "select llm_generate('Write a very long story about the sea.', max_tokens => 1500)",
    "prefill": "select llm_generate(repeat('word and other ', 600), max_tokens => 1)",
    "stream": "select count(*) from (select llm_stream('Write a very long story.', max_tokens => 1500)) s",
    "chat": "select llm_chat('Write a very long story about the sea.', max_tokens => 1500)",
    "chat stream": "select count(*) from (select llm_chat_stream('Write a long story.', max_tokens => 1500)) s",
    "embed": "select llm_embed_many(array_agg('words about the thing ' || i)) from generate_series(1, 4000) i",
    "embed rows": "select count(llm_embed('words about the thing ' || i)) from generate_series(1, 4000) i",
    "classify": "select count(*) from llm_classify_many(array(select 'words about the thing ' || i"
    " from generate_series(1, 4000) i), '{good,bad}')",
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
