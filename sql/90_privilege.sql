revoke all on schema mindful from public;
grant usage on schema mindful to mindful_user, mindful_reader, mindful_admin;
revoke execute on all functions in schema mindful from public;

grant select on model to mindful_user, mindful_admin;
grant insert, update, delete on model to mindful_admin;
grant select, insert, update, delete on session, memory, memory_term, memory_count, memory_access, memory_link,
    memory_evidence, attachment to mindful_user;
-- Records of what happened are added to and read, never changed.
grant select, insert on generation, review, calibrator, threshold, gold, decision, outcome to mindful_user;
grant select on latest_outcome, decision_log, label_queue to mindful_user;
grant select on reliability_curve, risk_coverage, signal_quality to mindful_user, mindful_reader;
-- A row that the server has not sealed is refused, so its tenant may do with the cache what it likes.
grant select, insert, delete on kv_state to mindful_user;
grant select on conversation, memory_overview, model_usage, confidence_daily to mindful_user;

-- Readers see figures of all tenants, and no table.
grant select on memory_overview, model_usage, confidence_daily to mindful_reader;

grant select on setting_definition, setting, active_setting to mindful_user, mindful_admin;
grant insert on setting to mindful_user, mindful_admin;

grant execute on all functions in schema mindful to mindful_user;
revoke execute on function
    model_register(text, text, text, text, jsonb, text[]),
    model_default_set(text),
    _embedding_table_create(text, integer),
    memory_index_create(text, text)
from mindful_user;
grant execute on function
    model_register(text, text, text, text, jsonb, text[]),
    model_default_set(text),
    _embedding_table_create(text, integer),
    memory_index_create(text, text),
    _embedding_table(text),
    _model_find(text, text),
    _raise(text, text, text),
    model_unload(text),
    mindful_status(),
    _tenant(),
    setting_get(text, uuid),
    setting_set(text, jsonb, text, uuid, text),
    _setting_check(text, jsonb, text)
to mindful_admin;
grant execute on function _tenant(), _reads_all(), mindful_status() to mindful_reader;
