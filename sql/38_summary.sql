create function _summary_text(state text[]) returns text
language plpython3u volatile parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.summary import summary_text
return summary_text(state)
$python$;
comment on function _summary_text(text[]) is 'Summarizes texts with the default generator.';

create function _summary(state text[]) returns text
language sql volatile parallel unsafe security invoker
begin atomic
    select case
        when pg_catalog.sum(pg_catalog.octet_length(s.content)) > 1048576
            then mindful._raise('54000', pg_catalog.format('the texts have %s bytes, more than 1048576',
                pg_catalog.sum(pg_catalog.octet_length(s.content))), 'Summarize groups of them, then the summaries.')::text
        else mindful._summary_text(pg_catalog.array_agg(s.content order by s.number) filter (where s.content is not null))
    end
    from pg_catalog.unnest(state) with ordinality s (content, number);
end;
comment on function _summary(text[]) is 'Summarizes the collected texts, of which NULLs are none, or raises 54000.';

create aggregate llm_summarize(content text) (
    sfunc = pg_catalog.array_append,
    stype = text[],
    initcond = '{}',
    finalfunc = _summary,
    parallel = unsafe
);
comment on aggregate llm_summarize(text) is
'Summarizes texts, in the order that ORDER BY within the call gives, with the default generator. What does not fit its context at once is summarized in parts, and the summaries in turn, until one is left. NULLs and empty texts are left out; no text gives NULL. Errors: 54000 (more than 1 MiB in all), 55000 (no default generator), 57014 (cancelled), 55P03 (no free slot).';

