create function _mindful.summary_text(state text[]) returns text
language plpython3u volatile parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.generate.summary import summary_text
return summary_text(state)
$python$;
comment on function _mindful.summary_text(text[]) is 'Summarizes texts with the default generator.';

create function _mindful.summary(state text[]) returns text
language sql volatile parallel unsafe security invoker
begin atomic
    select case
        when pg_catalog.sum(pg_catalog.octet_length(s.content)) > 1048576
            then _mindful.raise('54000', pg_catalog.format('the texts have %s bytes, more than 1048576',
                pg_catalog.sum(pg_catalog.octet_length(s.content))), 'Summarize groups of texts, then the summaries.')::text
        else _mindful.summary_text(pg_catalog.array_agg(s.content order by s.number) filter (where s.content is not null))
    end
    from pg_catalog.unnest(state) with ordinality s (content, number);
end;
comment on function _mindful.summary(text[]) is
'Summarizes the texts that llm_summarize collected, without NULLs. Error 54000: they have more than 1048576 bytes.';

create aggregate llm_summarize(content text) (
    sfunc = pg_catalog.array_append,
    stype = text[],
    initcond = '{}',
    finalfunc = _mindful.summary,
    parallel = unsafe
);
comment on aggregate llm_summarize(text) is
'Aggregates texts into a summary by the default generator, in the order of ORDER BY within the call. NULLs and empty texts are ignored; without texts the result is NULL. Errors: 54000 (more than 1 MiB in total), 55000 (no default generator), 55P03 (no free slot), 57014 (cancelled). Example: select llm_summarize(content order by id) from memory where created_at > now() - interval ''7 days'';';
