create function llm_rerank(query text, contents text[], model text default null, limit_ms integer default null) returns real[]
language plpython3u stable parallel restricted security invoker cost 1000000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.rerank import llm_rerank
return llm_rerank(query, contents, model, limit_ms)
$python$;
comment on function llm_rerank(text, text[], text, integer) is
'How well each text answers a query, by a reranker (NULL: the default one), which reads both together: a score a text, in their order, the higher the better, on the model''s own scale. NULL for NULL, and for what limit_ms milliseconds did not suffice for; NULL query or array gives NULL. Errors: 22023 (empty query or text, limit_ms below 1), 42704 (no such model), 55000 (no default reranker), 54000 (query or text over 262144 bytes).';
