create function llm_rerank(query text, contents text[], model text default null, limit_ms integer default null) returns real[]
language plpython3u stable parallel unsafe security invoker cost 1000000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.generate.rerank import llm_rerank
return llm_rerank(query, contents, model, limit_ms)
$python$;
comment on function llm_rerank(text, text[], text, integer) is
'Scores how well each text answers a query with a reranker (NULL: the default one). Scores are in the order of the texts, on the model''s own scale; higher is better. A NULL text gives NULL. Errors: 22023 (empty text, limit_ms below 1), 42704, 54000 (over 262144 bytes), 55000 (no default reranker). Example: select llm_rerank(''capital of France'', ''{Paris is the capital.,Rome is old.}'');';

create function llm_rank(query text, contents text[], model text default null)
returns table (number integer, content text, score real)
language plpython3u stable parallel unsafe security invoker cost 1000000 rows 100
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.generate.rerank import llm_rank
return llm_rank(query, contents, model)
$python$;
comment on function llm_rank(text, text[], text) is
'Orders texts by how well they answer a query, best first. number is the position in contents, from 1. model is a reranker or a generator; NULL is the default reranker, or without one the default generator. Errors: 0A000 (behind a server), 22023, 42704, 54000, 55000, 55P03, 57014. Example: select content, score from llm_rank(''capital of France'', ''{Paris is the capital.,Rome is old.}'');';
