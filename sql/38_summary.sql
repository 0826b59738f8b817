create function _summary_add(state text[], content text) returns text[]
language sql immutable parallel restricted security invoker
begin atomic
    select case when content is null then state else pg_catalog.array_append(state, content) end;
end;
comment on function _summary_add(text[], text) is 'Collects the texts of llm_summarize, without NULLs.';

create function _summary(state text[]) returns text
language plpython3u volatile parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.summary import summary
return summary(state)
$python$;
comment on function _summary(text[]) is 'Summarizes the collected texts with the default generator.';

create aggregate llm_summarize(content text) (
    sfunc = _summary_add,
    stype = text[],
    initcond = '{}',
    finalfunc = _summary,
    parallel = unsafe
);
comment on aggregate llm_summarize(text) is
'Summarizes texts, in the order that ORDER BY within the call gives, with the default generator. What does not fit its context at once is summarized in parts, and the summaries in turn, until one is left. NULLs and empty texts are left out; no text gives NULL. Errors: 55000 (no default generator), 57014 (cancelled), 55P03 (no free slot).';

