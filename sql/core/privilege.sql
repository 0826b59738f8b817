revoke all on schema mindful, _mindful from public;
grant usage on schema mindful, _mindful to mindful_user, mindful_reader, mindful_admin;
revoke execute on all routines in schema mindful, _mindful from public;

grant select on tenant_claim to mindful_user, mindful_reader, mindful_admin;
grant insert on tenant_claim to mindful_user, mindful_admin;

-- Version 0.1.0 granted privileges that allow LOCK TABLE (see deletion).
revoke update, delete on all tables in schema mindful from mindful_user, mindful_admin;
grant select on model, model_tenant, trained_weights to mindful_user, mindful_admin;
grant insert, delete on model to mindful_admin;
-- Administrators may not change trained_on and withdrawn_at.
grant update (source, options, license, context_length, fallback, is_default, granted_to,
    prompt_format, max_sequence_length, specialization, lora) on model to mindful_admin;
grant insert on model_tenant to mindful_admin;
-- The server sets who registered a tool, and its definition.
grant select on tool to mindful_user, mindful_admin;
grant insert (tenant, name, function, description, json_schema, read_only, accepted) on tool to mindful_user, mindful_admin;
grant insert on deletion to mindful_admin;
grant select, insert on deletion, index_rebuild, tenant_lock, session, memory, memory_access, memory_link, memory_evidence, memory_duplicate,
    attachment, embedding_job, embedding_job_failed, consolidation, memory_extraction, memory_statement, memory_entity to mindful_user;
revoke insert on memory_term, memory_count from mindful_user;
grant select on memory_term, memory_count to mindful_user;
select _mindful.update_grant(c.oid)
from pg_catalog.pg_class c
where c.relnamespace = 'mindful'::pg_catalog.regnamespace and c.relkind = 'r' and (
    c.relname = any (array['session', 'memory', 'memory_access', 'memory_link', 'memory_duplicate', 'attachment', 'embedding_job',
        'embedding_job_failed', 'consolidation', 'memory_extraction', 'training', 'training_sample'])
    or c.relname like 'memory\_embedding\_%'
);
-- Logs: rows are inserted and read, never updated.
grant select, insert on generation, review, forget_receipt, calibrator, threshold, gold, decision, outcome,
    tuning, action_gain to mindful_user;
grant select on latest_outcome, decision_log, label_queue to mindful_user;
grant select on label_probability, reliability_curve, risk_coverage, roc_curve, signal_quality, decision_daily, signal_cost, action_latency
to mindful_user, mindful_reader;
grant select (tenant, id, name, scopes, requests_per_minute, expires_at, revoked_at, last_used_at, created_by, created_at),
    insert (tenant, name, hash, scopes, requests_per_minute, expires_at), update (revoked_at) on api_key to mindful_user, mindful_admin;
-- The server refuses rows without its seal, and sets the tenant and the time of use.
grant select, insert (session_id, list_id, model, first, fingerprint, tokens, state, mac) on kv_state to mindful_user;
grant select, insert (key, result), update (used_at) on cached_result to mindful_user;
grant select, insert on classifier, classifier_example, attachment_tenant to mindful_user;
grant select on conversation, memory_overview, model_usage, confidence_daily, embedding_status to mindful_user;
grant select on document to mindful_user;
-- An import needs the new ids before it inserts rows that refer to them.
grant usage on sequence memory_id_seq to mindful_user;

-- mindful_reader reads views with figures of all tenants, and no table.
grant select on memory_overview, model_usage, confidence_daily, embedding_status to mindful_reader;

grant select on setting_definition, setting, active_setting to mindful_user, mindful_admin;
grant insert on setting to mindful_user, mindful_admin;
grant insert, update (low, high, initial, description, choices, prompt) on setting_definition to mindful_user;

grant execute on all routines in schema mindful, _mindful to mindful_user;
revoke execute on procedure model_calibrate(text, jsonb, integer) from mindful_user;
revoke execute on function key_use(text) from mindful_user;
grant execute on function key_use(text) to mindful_application;
revoke execute on function _mindful.embedding_count_all(), _mindful.update_grant(regclass), _mindful.kv_state_evict(),
    _mindful.records_expire(text, timestamptz)
from mindful_user;
-- What only administrators call.
do $do$
declare
    routine regprocedure;
begin
    foreach routine in array array[
        'model_register(text, text, text, text, jsonb, text[])',
        'model_unregister(text)',
        '_mindful.model_unused(text)',
        '_mindful.model_lock(text)',
        'model_fallback_set(text, text)',
        'model_serve(text, text, text)',
        'adapter_register(text, text, text, real, jsonb, text[], jsonb)',
        'adapter_share(text, text[])',
        '_mindful.adapter_consents_check(text)',
        '_mindful.model_consents(text)',
        '_mindful.embedding_table_create(text, integer)',
        'memory_index_create(text, text)',
        '_mindful.retention_run_all()',
        '_mindful.index_rebuild_all()',
        '_mindful.retention_count(text, jsonb)',
        '_mindful.embedding_missing(text)',
        '_mindful.embedding_sweep_all(text)',
        '_mindful.job_run_all(integer, real)',
        '_mindful.job_retry_all(text)',
        '_mindful.consolidation_run_all(boolean, integer)',
        '_mindful.tuning_run_all(integer)',
        '_mindful.model_calibrate_some(text, jsonb, integer, integer)',
        'embedding_replica_set(boolean)',
        'slot_status()'
    ]::regprocedure[] loop
        execute pg_catalog.format('revoke execute on function %s from mindful_user', routine);
        execute pg_catalog.format('grant execute on function %s to mindful_admin', routine);
    end loop;
end
$do$;
grant execute on function
    embedding_enqueue(text),
    embedding_run(integer, real),
    embedding_retry(text),
    worker_schedule(text),
    consolidation_run(boolean, integer),
    consolidation_schedule(text),
    tuning_run(integer),
    tuning_schedule(text),
    _mindful.cron_schedule(text, text, text),
    retention_run(),
    memory_index_rebuild(),
    _mindful.integer_argument(text, integer, integer, integer),
    _mindful.range_argument(text, timestamptz),
    _mindful.embedding_table(text),
    model_default_set(text, boolean, text),
    _mindful.default_generator_set(text),
    _mindful.model_find(text, text),
    _mindful.model_serves(text, text[], integer, timestamptz),
    _mindful.model_consented(text),
    _mindful.default_base(text),
    _mindful.is_member(text[]),
    _mindful.tenant_roles(text),
    _mindful.raise(text, text, text),
    _mindful.lock_briefly(text, text),
    key_create(text, text, text[], integer, timestamptz),
    key_list(),
    key_revoke(uuid),
    _mindful.key_hash(text),
    _mindful.key_tenant(text),
    _mindful.text_argument(text, text),
    _mindful.short_argument(text, text),
    model_unload(text),
    mindful_status(),
    _mindful.tenant(),
    _mindful.time_is_readable(timestamptz),
    _mindful.is_restore(),
    _mindful.read_only_hint(),
    _mindful.writable(),
    _mindful.tenant_refuse(text, text),
    _mindful.tenant_required(),
    _mindful.tenant_claim(),
    _mindful.tenant_claimed(),
    setting_get(text, uuid),
    _mindful.setting_scope(text, text),
    setting_set(text, anycompatible, text, uuid, text, bigint),
    _mindful.setting_value(text, text),
    setting_reset(text, text, uuid, text),
    _mindful.retention_check(text, jsonb, bigint),
    setting_undo(bigint),
    tool_register(text, regprocedure, text, jsonb, boolean, text),
    tool_unregister(text, text),
    _mindful.delete(text, jsonb, text),
    _mindful.tool_function(text),
    _mindful.tool_insert(text, text, text, jsonb, boolean, text),
    _mindful.tool_delete(text, text),
    _mindful.tool_role(),
    _mindful.setting_check(text, jsonb, text)
to mindful_admin;
grant execute on procedure worker_run(real, boolean) to mindful_admin;
-- Rankings serve all tenants, so only administrators make them.
grant select on model_answer, model_ranking, model_calibration to mindful_user, mindful_admin;
grant insert on model_answer, model_ranking to mindful_admin;
grant execute on procedure model_calibrate(text, jsonb, integer) to mindful_admin;
grant execute on function _mindful.tenant(), _mindful.tenant_refuse(text, text), _mindful.raise(text, text, text), _mindful.reads_all(), _mindful.drift(bigint[], bigint[]), _mindful.calibrated(calibrator, jsonb), _mindful.figure(double precision), _mindful.figure(jsonb), mindful_status(), _mindful.embedding_status(),
    _mindful.embedding_count_all(), _mindful.is_answered(text, jsonb)
to mindful_reader;

grant select, insert on training_sample, training_sample_memory to mindful_user;
-- The record of the texts that weights were trained on is permanent.
grant select, insert on training to mindful_user;
grant select, insert on training_memory to mindful_user;
grant select on general_question to mindful_user;
grant select on consolidation_summary to mindful_reader;
-- The parameters of training are the same for all tenants.
revoke execute on function training_configure(text, text, integer, text, jsonb) from mindful_user;
grant execute on function training_configure(text, text, integer, text, jsonb), _mindful.lora_argument(jsonb) to mindful_admin;

-- A role that may execute a trigger function could call it from a table of its own with any rows.
do $do$
declare
    function regprocedure;
begin
    for function in
        select p.oid from pg_catalog.pg_proc p
        where p.pronamespace operator(pg_catalog.=) any (array['mindful'::pg_catalog.regnamespace, '_mindful'::pg_catalog.regnamespace])
            and p.prorettype operator(pg_catalog.=) 'pg_catalog.trigger'::pg_catalog.regtype
    loop
        execute pg_catalog.format('revoke execute on function %s from mindful_user', function);
    end loop;
end
$do$;
