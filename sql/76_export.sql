create function _sample_prompt(instruction text, input text) returns text
language sql immutable parallel safe security invoker
begin atomic
    select instruction || case when input = '' then '' else E'\n\n' || input end;
end;
comment on function _sample_prompt(text, text) is 'What the model is asked for a pair: the instruction, and the input below it.';

create function _sample_json(format text, instruction text, input text, output text) returns jsonb
language sql stable parallel safe security invoker
begin atomic
    select case format
        when 'alpaca' then pg_catalog.jsonb_build_object('instruction', instruction, 'input', input, 'output', output)
        when 'chat' then pg_catalog.jsonb_build_object('messages', pg_catalog.jsonb_build_array(
            pg_catalog.jsonb_build_object('role', 'user', 'content', mindful._sample_prompt(instruction, input)),
            pg_catalog.jsonb_build_object('role', 'assistant', 'content', output)))
        when 'sharegpt' then pg_catalog.jsonb_build_object('conversations', pg_catalog.jsonb_build_array(
            pg_catalog.jsonb_build_object('from', 'human', 'value', mindful._sample_prompt(instruction, input)),
            pg_catalog.jsonb_build_object('from', 'gpt', 'value', output)))
    end;
end;
comment on function _sample_json(text, text, text, text) is 'A pair in one of the formats.';

create function replay_export(run bigint, format text default 'alpaca', split text default null) returns setof jsonb
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    if format is null or format not in ('alpaca', 'chat', 'sharegpt') then
        perform mindful._raise('22023', format('format is %L', format), 'Formats are alpaca, chat and sharegpt.');
    elsif split is not null and split not in ('train', 'validation') then
        perform mindful._raise('22023', format('split is %L', split), 'Splits are train and validation; NULL is both.');
    elsif not exists (select from mindful.consolidation c
        where c.tenant = (select mindful._tenant()) and c.id = run and c.type = 'replay' and c.status = 'completed')
    then
        perform mindful._raise('42704', format('there is no completed replay run %s', coalesce(run::text, 'null')),
            'Your runs are in mindful.consolidation; make one with mindful.replay_run().');
    end if;
    return query
    select mindful._sample_json(format, s.instruction, s.input, s.output)
    from mindful.training_sample s
    where s.tenant = (select mindful._tenant()) and s.consolidation_id = run and s.refused = '{}'
        and (replay_export.split is null or s.split = replay_export.split)
    order by s.id;
end
$$;
comment on function replay_export(bigint, text, text) is
'The pairs that a replay run has kept, a JSON object each, in the order in which they were made: written one a line they are a JSONL file. Formats: alpaca (instruction, input, output), chat (messages with role and content), sharegpt (conversations with from and value). Split: train, validation, or both (NULL). Errors: 22023 (format, split), 42704 (no such run of yours that is completed).';
