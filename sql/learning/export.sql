create function _mindful.sample_prompt(instruction text, input text) returns text
language sql immutable parallel safe security invoker
begin atomic
    select instruction || case when input = '' then '' else E'\n\n' || input end;
end;
comment on function _mindful.sample_prompt(text, text) is
'Returns the prompt of a pair: the instruction, and the input below it.';

create function _mindful.sample_json(format text, instruction text, input text, output text) returns jsonb
language sql stable parallel safe security invoker
begin atomic
    select case format
        when 'alpaca' then pg_catalog.jsonb_build_object('instruction', instruction, 'input', input, 'output', output)
        when 'chat' then pg_catalog.jsonb_build_object('messages', pg_catalog.jsonb_build_array(
            pg_catalog.jsonb_build_object('role', 'user', 'content', _mindful.sample_prompt(instruction, input)),
            pg_catalog.jsonb_build_object('role', 'assistant', 'content', output)))
        when 'sharegpt' then pg_catalog.jsonb_build_object('conversations', pg_catalog.jsonb_build_array(
            pg_catalog.jsonb_build_object('from', 'human', 'value', _mindful.sample_prompt(instruction, input)),
            pg_catalog.jsonb_build_object('from', 'gpt', 'value', output)))
    end;
end;
comment on function _mindful.sample_json(text, text, text, text) is 'Returns a pair as JSON in an export format.';

create function replay_export(run bigint, format text default 'alpaca', split text default null, meta boolean default false)
returns setof jsonb
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    if format is null or format not in ('alpaca', 'chat', 'sharegpt') then
        perform _mindful.raise('22023', format('format is %L', format), 'Pass alpaca, chat or sharegpt.');
    elsif split is not null and split not in ('train', 'validation') then
        perform _mindful.raise('22023', format('split is %L', split), 'Pass train, validation, or NULL for both.');
    elsif not exists (select from mindful.consolidation c
        where c.tenant = (select _mindful.tenant()) and c.id = run and c.type = 'replay' and c.status = 'completed')
    then
        perform _mindful.raise('42704', format('there is no completed replay run %s', coalesce(run::text, 'null')),
            'List the tenant''s runs in mindful.consolidation, or create one with mindful.replay_run().');
    end if;
    return query
    select _mindful.sample_json(format, s.instruction, s.input, s.output) || case when meta then jsonb_build_object(
        'meta', jsonb_build_object('run', run, 'form', s.form, 'split', s.split, 'level', m.level, 'confidence', s.confidence,
            'source_id', s.source_id, 'neighbor_ids', s.neighbor_ids, 'created_at', s.created_at),
        'target_models', jsonb_build_array(s.model)) else '{}' end
    from mindful.training_sample s
    join mindful.memory m on m.tenant = s.tenant and m.id = s.source_id
    where s.tenant = (select _mindful.tenant()) and s.consolidation_id = run and s.refused = '{}'
        and (replay_export.split is null or s.split = replay_export.split)
    order by s.id;
end
$$;
comment on function replay_export(bigint, text, text, boolean) is
'Returns the accepted pairs of a completed replay run, one JSON object per row, in the order of their creation. format is alpaca, chat or sharegpt. split is train, validation or NULL (both). Errors: 22023 (format, split), 42704 (no such completed run of the tenant). Example: select replay_export(3, ''chat'', ''train'');';

create function _mindful.replay_export_record(run bigint, files jsonb) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform _mindful.writable();
    if files is null or jsonb_typeof(files) <> 'array' or octet_length(files::text) > 65536 then
        perform _mindful.raise('22023', 'files is not an array of at most 65536 bytes',
            'Pass an array such as [{"file": "pairs.jsonl", "pairs": 12, "sha256": "..."}].');
    end if;
    update mindful.consolidation c
    set outputs = c.outputs || jsonb_build_object('files', files, 'exported_at', _mindful.time_text(clock_timestamp()))
    where c.tenant = (select _mindful.tenant()) and c.id = run and c.type = 'replay' and c.status = 'completed';
    if not found then
        perform _mindful.raise('42704', format('there is no completed replay run %s', coalesce(run::text, 'null')),
            'List the tenant''s runs in mindful.consolidation.');
    end if;
end
$$;
comment on function _mindful.replay_export_record(bigint, jsonb) is
'Records in consolidation.outputs the files that a replay run was exported to. mindful replay night calls it. Errors: 22023 (files), 42704 (no such completed run of the tenant).';
