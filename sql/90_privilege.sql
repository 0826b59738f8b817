revoke all on schema mindful from public;
grant usage on schema mindful to mindful_user, mindful_reader, mindful_admin;
revoke execute on all routines in schema mindful from public;

-- Roles belong to the cluster: another database may have made the one a member of the other already.
do $do$
begin
    if not pg_catalog.pg_has_role('mindful_application', 'mindful_user', 'member') then
        grant mindful_user to mindful_application;
    end if;
end
$do$;

grant select on tenant_claim to mindful_user, mindful_reader, mindful_admin;
grant insert on tenant_claim to mindful_user, mindful_admin;

-- Earlier versions let users LOCK TABLE (see deletion).
revoke update, delete on all tables in schema mindful from mindful_user, mindful_admin;
grant select on model, model_tenant to mindful_user, mindful_admin;
grant insert, delete on model to mindful_admin;
-- What the weights hold, and that they were withdrawn, is not an administrator's to change.
grant update (source, options, licence, context_length, fallback, is_default, granted_to,
    prompt_format, max_sequence_length, specialisation, lora) on model to mindful_admin;
grant insert on model_tenant to mindful_admin;
-- Who registered a tool, and its definition, the server says.
grant select on tool to mindful_user, mindful_admin;
grant insert (tenant, name, function, description, json_schema, read_only, accepted) on tool to mindful_user, mindful_admin;
grant insert on deletion to mindful_admin;
grant select, insert on deletion, tenant_lock, session, memory, memory_access, memory_link, memory_evidence, memory_duplicate,
    attachment, embedding_job, embedding_job_failed, consolidation, memory_extraction, memory_statement, memory_entity to mindful_user;
revoke insert on memory_term, memory_count from mindful_user;
grant select on memory_term, memory_count to mindful_user;
select _update_grant(c.oid)
from pg_catalog.pg_class c
where c.relnamespace = 'mindful'::pg_catalog.regnamespace and c.relkind = 'r' and (
    c.relname = any (array['session', 'memory', 'memory_access', 'memory_link', 'memory_duplicate', 'attachment', 'embedding_job',
        'embedding_job_failed', 'consolidation', 'memory_extraction', 'training', 'training_sample'])
    or c.relname like 'memory\_embedding\_%'
);
-- Records of what happened are added to and read, never changed.
grant select, insert on generation, review, forget_receipt, calibrator, threshold, gold, decision, outcome,
    adaptation, action_gain to mindful_user;
grant select on latest_outcome, decision_log, label_queue to mindful_user;
grant select on reliability_curve, risk_coverage, signal_quality, decision_daily, signal_cost, action_latency
to mindful_user, mindful_reader;
-- A row that the server has not sealed is refused; when it was used, and whose it is, the server says.
grant select, insert (session_id, model, first, fingerprint, tokens, state, mac) on kv_state to mindful_user;
grant select on conversation, memory_overview, model_usage, confidence_daily, embedding_status to mindful_user;
grant select on document to mindful_user;
-- An import has to know new ids before it inserts what refers to them.
grant usage on sequence memory_id_seq to mindful_user;

-- Readers see figures of all tenants, and no table.
grant select on memory_overview, model_usage, confidence_daily, embedding_status to mindful_reader;

grant select on setting_definition, setting, active_setting to mindful_user, mindful_admin;
grant insert on setting to mindful_user, mindful_admin;

grant execute on all routines in schema mindful to mindful_user;
revoke execute on function
    model_register(text, text, text, text, jsonb, text[]),
    adapter_register(text, text, text, real, jsonb, text[], jsonb),
    adapter_share(text, text[]),
    _adapter_consents_check(text),
    _model_consents(text),
    _embedding_table_create(text, integer),
    memory_index_create(text, text),
    retention_run_all(),
    _retention_count(text, jsonb),
    _embedding_missing(text),
    _embedding_sweep_all(text),
    _job_run_all(integer, real),
    _job_retry_all(text),
    job_replica_set(boolean),
    _embedding_count_all(),
    slot_status(),
    _update_grant(regclass),
    _kv_state_evict()
from mindful_user;
grant execute on function
    model_register(text, text, text, text, jsonb, text[]),
    adapter_register(text, text, text, real, jsonb, text[], jsonb),
    adapter_share(text, text[]),
    _adapter_consents_check(text),
    _model_consents(text),
    _embedding_table_create(text, integer),
    memory_index_create(text, text),
    retention_run_all(),
    _embedding_missing(text),
    _embedding_sweep_all(text),
    _job_run_all(integer, real),
    _job_retry_all(text),
    job_replica_set(boolean),
    embedding_sweep(text),
    job_run(integer, real),
    job_retry(text),
    job_schedule(text),
    _cron_schedule(text, text, text),
    retention_work(),
    _integer_argument(text, integer, integer, integer),
    _embedding_table(text),
    model_default_set(text, boolean, text),
    _default_generator_set(text),
    _model_find(text, text),
    _model_serves(text, text[], integer, timestamptz),
    _model_consented(text),
    _default_base(text),
    _is_member(text[]),
    _raise(text, text, text),
    model_unload(text),
    mindful_status(),
    slot_status(),
    _tenant(),
    _time_is_readable(timestamptz),
    _is_restore(),
    _read_only_hint(),
    _writable(),
    _tenant_refuse(text, text),
    _tenant_required(),
    _tenant_claim(),
    _tenant_claimed(),
    setting_get(text, uuid),
    setting_set(text, jsonb, text, uuid, text, bigint),
    _retention_check(text, jsonb, bigint),
    _retention_count(text, jsonb),
    setting_undo(bigint),
    tool_register(text, regprocedure, text, jsonb, boolean, text),
    tool_unregister(text, text),
    _delete(text, jsonb, text),
    _tool_function(text),
    _tool_insert(text, text, text, jsonb, boolean, text),
    _tool_delete(text, text),
    _tool_role(),
    _setting_check(text, jsonb, text)
to mindful_admin;
grant execute on procedure job_worker(real, boolean) to mindful_admin;
grant execute on function _tenant(), _tenant_refuse(text, text), _raise(text, text, text), _reads_all(), _drift(bigint[], bigint[]), mindful_status(), _embedding_status(),
    _embedding_count_all()
to mindful_reader;

grant select, insert on training_sample, training_sample_memory to mindful_user;
-- What weights were made of stays known.
grant select, insert on training to mindful_user;
grant select, insert on training_memory to mindful_user;
grant select on general_question to mindful_user;
grant select on consolidation_summary to mindful_reader;
-- How a model is trained is one for all tenants.
revoke execute on function model_training_set(text, text, integer, text, jsonb) from mindful_user;
grant execute on function model_training_set(text, text, integer, text, jsonb) to mindful_admin;

-- On a table of its own, whoever may execute a trigger's function has it believe any rows.
do $do$
declare
    function regprocedure;
begin
    for function in
        select p.oid from pg_catalog.pg_proc p
        where p.pronamespace operator(pg_catalog.=) 'mindful'::pg_catalog.regnamespace
            and p.prorettype operator(pg_catalog.=) 'pg_catalog.trigger'::pg_catalog.regtype
    loop
        execute pg_catalog.format('revoke execute on function %s from mindful_user', function);
    end loop;
end
$do$;
