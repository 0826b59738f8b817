-- What a database of 0.2.0 needs to be as one of 0.3.0.

alter table deletion drop constraint deletion_relation_check;
alter table deletion add constraint deletion_relation_check check (relation in ('session', 'memory', 'memory_link', 'memory_evidence', 'attachment',
    'embedding_job', 'embedding_job_failed', 'tool', 'kv_state', 'cached_result', 'classifier',
        'setting_definition'));

drop function llm_classify(text, text[], text, text, boolean);
-- include sql/generate/label.sql llm_classify
drop function llm_classify_many(text[], text[], text, text, boolean);
-- include sql/generate/label.sql llm_classify_many
-- include sql/generate/label.sql llm_if
-- include sql/generate/label.sql llm_if_many
-- include sql/generate/rerank.sql llm_rank
-- include sql/generate/aggregate.sql
-- include sql/generate/each.sql
-- include sql/generate/cache.sql
-- include sql/generate/classifier.sql
-- include sql/memory/derived.sql
-- include sql/conversation/session.sql _mindful.message_parts
-- include sql/conversation/session.sql message_insert_many
-- include sql/conversation/session.sql message_insert
-- include sql/conversation/session.sql _mindful.notice_removed
-- include sql/conversation/session.sql _mindful.session_find
-- include sql/conversation/session.sql session_continue
-- Settings of tenants' own, and all sampling arguments in every generating call.
alter table setting drop constraint setting_key_fkey;
alter table tuning drop constraint tuning_key_fkey;
alter table setting_definition
    drop constraint setting_definition_pkey,
    add column tenant text not null default '',
    add primary key (tenant, key),
    add check ((tenant <> '') = (key ~ '^[a-z][a-z0-9_]*\.[a-z][a-z0-9_]*$')),
    add check (tenant = '' or length(key) <= 100 and scopes = '{user,session}'
        and octet_length(coalesce(prompt, '') || description || initial::text || coalesce(choices::text, '')) <= 16384);
comment on table setting_definition is 'The settings that exist: type, range, scopes and initial value. Tenants add their own by setting_define.';
comment on column setting_definition.key is 'Name of the setting. Those that tenants define have a dot in it, as in app.units.';
comment on column setting_definition.tenant is 'Tenant that defined the setting; empty for the settings of the extension, which all tenants have.';
drop policy read on setting_definition;
create policy read on setting_definition for select using (tenant = '' or tenant = (select _mindful.tenant()));
create policy own on setting_definition using (tenant = (select _mindful.tenant()))
    with check (tenant = (select _mindful.tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.setting_definition', 'where tenant <> ''''');
-- include sql/core/setting.sql setting_get
-- include sql/core/setting.sql _mindful.settings
-- include sql/core/setting.sql _mindful.setting_check
drop function setting_set(text, jsonb, text, uuid, text, bigint);
-- include sql/core/setting.sql _mindful.setting_value
-- include sql/core/setting.sql _mindful.setting_scope
-- include sql/core/setting.sql setting_set
-- include sql/core/setting.sql setting_reset
-- include sql/core/setting.sql _mindful.setting_undefined
create trigger undefined after delete on setting_definition for each row execute function _mindful.setting_undefined();
-- include sql/core/setting.sql setting_define
-- include sql/core/setting.sql setting_undefine
-- include sql/core/setting.sql active_setting
-- include sql/models/adapter.sql _mindful.setting_of
-- include sql/learning/consolidation.sql _mindful.memory_promote
-- include sql/memory/recall.sql _mindful.recall_options
-- include sql/conversation/assistant.sql _mindful.assistant_change
-- include sql/conversation/context.sql _mindful.session_read
-- include sql/conversation/recap.sql _mindful.recap_missing
drop function llm_stream(text, text, integer, real, integer, text, text[], boolean, jsonb, text);
drop function llm_generate(text, text, integer, real, integer, text, text[], boolean, jsonb, text);
drop function llm_generate_detail(text, text, integer, real, integer, text, text[], boolean, jsonb, text);
drop function llm_generate_stream(text, text, integer, real, integer, text, text[], boolean, jsonb, text);
drop function llm_generate_many(text[], text, integer, real, integer, text, text[], boolean, jsonb, text);
-- include sql/generate/llm.sql llm_generate
-- include sql/generate/llm.sql llm_generate_detail
-- include sql/generate/llm.sql llm_generate_stream
-- include sql/generate/llm.sql llm_stream
-- include sql/generate/batch.sql llm_generate_many
drop function llm_chat(text, uuid, text, integer, real, integer, integer);
drop function llm_chat_detail(text, uuid, text, integer, real, integer, integer);
drop function llm_chat_stream(text, uuid, text, integer, real, integer, integer);
-- include sql/chat/chat.sql llm_chat
-- include sql/chat/chat.sql llm_chat_detail
-- include sql/chat/chat.sql llm_chat_stream

-- Recall by source, scope and conditions on metadata.
alter type recall_filter add attribute source text, add attribute condition jsonpath, add attribute scope text,
    add attribute scope_sessions uuid[];
comment on type recall_filter is
'Which memories may be recalled. NULL means any. statements leaves out questions and the model''s own replies. condition is a metadata filter with operators. scope_sessions are the sessions of the scope.';
alter type recalled_memory add attribute source_key text;
comment on column recalled_memory.score is
'Weighted sum of the arms, each scaled to at most 1, plus the prior of a message (settings recall_prior_...), times the boosts (recall_boost_...).';
comment on column recalled_memory.source_key is
'Key of the memory within its source: of a row of an attached table, its primary key. Parts of a long row have the same.';
drop function memory_recall(text, integer, text[], jsonb, uuid, timestamptz, integer, real, boolean, boolean);
-- include sql/memory/statement.sql _mindful.is_reply
-- include sql/memory/candidate.sql _mindful.metadata_condition
-- include sql/memory/candidate.sql _mindful.recall_filter
-- include sql/memory/candidate.sql _mindful.recall_admits
-- include sql/models/registry.sql _mindful.embedding_index
-- include sql/memory/embedding.sql _mindful.distance
-- include sql/memory/candidate.sql _mindful.recall_nearest
-- include sql/memory/candidate.sql _mindful.recall_nearest_broad
-- include sql/memory/candidate.sql _mindful.recall_nearest_broadest
-- include sql/memory/candidate.sql _mindful.recall_dense
-- include sql/memory/score.sql _mindful.ends_asking
-- include sql/conversation/correction.sql _mindful.said_next
-- include sql/conversation/correction.sql _mindful.said_before
-- include sql/memory/score.sql _mindful.recall_prior
-- include sql/memory/score.sql _mindful.memory_places
-- include sql/memory/score.sql _mindful.recall_scores
-- include sql/memory/score.sql _mindful.recall_ranked
-- include sql/memory/recall.sql _mindful.scope_argument
-- include sql/memory/recall.sql _mindful.chat_filter
drop function _mindful.core_memory();
-- include sql/conversation/context.sql _mindful.core_memory
drop function _mindful.lesson(bigint[]);
-- include sql/conversation/lesson.sql _mindful.lesson
-- include sql/conversation/bearing.sql
-- include sql/memory/recall.sql _mindful.memory_recall
-- include sql/memory/recall.sql memory_recall
-- include sql/memory/list.sql memory_list
-- include sql/memory/forget_reach.sql _mindful.forget_recaps
-- include sql/memory/forget.sql _mindful.forget_delete

-- Facts bound to a session.
drop function memory_insert(text, text, jsonb, text, text, real, real, text, timestamptz, timestamptz, jsonb);
-- include sql/memory/argument.sql _mindful.memory_keep
-- include sql/memory/link.sql memory_link_insert
-- include sql/memory/evidence.sql _mindful.source_ids
-- include sql/memory/evidence.sql memory_evidence_insert
-- include sql/memory/update.sql memory_update
-- include sql/memory/forget.sql memory_forget
-- include sql/memory/retention.sql memory_prune
-- include sql/memory/document.sql document_delete
-- include sql/memory/insert.sql _mindful.session_argument
-- include sql/memory/insert.sql _mindful.memory_insert_many
-- include sql/memory/insert.sql memory_insert_many
-- include sql/memory/insert.sql memory_insert

-- Attached tables: metadata, tenants, and rows in parts.
alter table attachment add column metadata text, add column row_tenant text;
comment on column attachment.metadata is 'The SQL expression over a row that gives its memory''s metadata; NULL: none.';
comment on column attachment.row_tenant is 'The SQL expression over a row that gives its memory''s tenant; NULL: the tenant that attached the table.';
create table attachment_tenant (
    tenant text not null default _mindful.tenant(),
    relation regclass not null,
    row_tenant text not null,
    primary key (tenant, relation, row_tenant),
    foreign key (tenant, relation) references attachment on delete cascade
);
comment on table attachment_tenant is 'Tenants that have had memories of rows of an attached table with an expression for the tenant.';
alter table attachment_tenant enable row level security, force row level security;
create policy own on attachment_tenant using (tenant = (select _mindful.tenant()))
    with check (tenant = (select _mindful.tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.attachment_tenant', '');
drop function memory_attach(regclass, text, text);
drop function _mindful.attachment_write(text, text[], text[]);
-- include sql/memory/attach.sql _mindful.attachment_parts
-- include sql/memory/attach.sql _mindful.attachment_delete
-- include sql/memory/attach.sql _mindful.row_parts
-- include sql/memory/attach.sql _mindful.attachment_write
-- include sql/memory/attach.sql _mindful.attachment_expression
-- include sql/memory/attach.sql _mindful.attachment_check
-- include sql/memory/attach.sql _mindful.attachment_key
-- include sql/memory/attach.sql _mindful.attachment_batches
-- include sql/memory/attach.sql _mindful.attachment_trigger_create
-- include sql/memory/attach.sql memory_attach
-- include sql/memory/attach.sql _mindful.attachment_tenant_insert
-- include sql/memory/attach.sql _mindful.attachment_clear
-- include sql/memory/attach.sql memory_detach

-- Replay and training.
alter table model drop constraint model_specialization_check;
alter table model add constraint model_specialization_check
    check (btrim(specialization) <> '' and octet_length(specialization) <= 128);
comment on column model.specialization is
'Purpose of the model, such as general_reasoning. With code_generation its training samples are about code; other names choose the general forms.';
comment on column model.lora is
'LoRA parameters that replace the defaults of mindful train: rank, alpha, dropout, epochs, learning_rate, batch, target_modules.';
comment on column training_sample.refused is
'Gates that the pair failed: no_consent, no_evidence, not_valid, confidence, volatile, secret, personal, duplicate, second_output (an accepted pair has the same instruction and input), mixed_split (it would put held-out facts into training), not_code (not for a code model), too_long. Texts of secret and personal pairs are not stored.';
-- include sql/learning/sample.sql _mindful.lora_argument
-- include sql/learning/sample.sql training_configure
alter table training_sample drop constraint training_sample_form_check;
alter table training_sample add constraint training_sample_form_check
    check (form in ('recall', 'answer', 'explain', 'factors', 'apply', 'decide', 'abstain', 'link'));
comment on column training_sample.form is
'recall: a question answered without a quote. answer, explain: a question about a quote. factors: linked facts. link: a link that grew or faded. apply: a preference about code. decide: contradicting facts. abstain: a question without a known answer.';
alter table memory_link add column weight_first real;
comment on column memory_link.weight_first is 'Weight of the link when it was made; NULL: its weight has not changed.';
-- include sql/memory/link.sql _mindful.link_weighed
create trigger weighed before update of weight on memory_link
    for each row when (old.weight is distinct from new.weight) execute function _mindful.link_weighed();
drop function _mindful.replay_facts(jsonb);
-- include sql/learning/sample.sql _mindful.replay_filter
-- include sql/learning/sample.sql _mindful.replay_facts
-- include sql/learning/sample.sql _mindful.replay_links
drop function _mindful.replay_hash(bigint);
drop function replay_export(bigint, text, text);
-- include sql/learning/export.sql replay_export
-- include sql/learning/training.sql _mindful.replay_hash
-- include sql/learning/export.sql _mindful.replay_export_record
-- include sql/learning/sample.sql replay_night

-- include sql/core/bound_check.sql

-- confidence: thresholds stay until labels speak against them, and say which answers they were tested on
alter table calibrator
    add column unit text not null default 'source' check (unit in ('source', 'question')),
    add column origin text not null default 'labels' check (origin in ('labels', 'shipped'));
alter table threshold
    add column more_labels integer,
    add column after bigint[],
    add column last_outcome bigint,
    add column repeats bigint,
    add foreign key (tenant, repeats) references threshold;
alter table decision add column after bigint[] not null default '{}';
alter table decision drop constraint decision_action_check;
alter table decision add constraint decision_action_check check (action in ('answer', 'retrieve', 'retry', 'escalate', 'clarify', 'flag', 'abstain', 'uncalibrated'));
create index on decision (tenant, threshold_id, id) where threshold_id is not null;
alter type calibration_detail
    add attribute budget double precision,
    add attribute delta_spent double precision,
    add attribute more_labels integer,
    add attribute ladder jsonb;
-- thresholds of later stages were tested on all answers, so they apply where nothing was certified before them
update threshold t set after = '{}'
from calibrator c
where c.tenant = t.tenant and c.id = t.calibrator_id and (c.signal_tier > 0 or c.ways <> '{}');
drop function _mindful.calibrator_find(text, text[], text, boolean, integer, double precision);
drop function _mindful.tuning_signals(text, integer);
drop function _mindful.label_count(text, text[], text, boolean);
drop function _mindful.labelled(text, text[], text, boolean, integer);
-- include sql/confidence/calibrator.sql _mindful.calibrator_find
-- include sql/confidence/outcome.sql _mindful.is_answered
-- include sql/confidence/outcome.sql _mindful.labeled
-- include sql/confidence/outcome.sql _mindful.label_count
-- include sql/confidence/tune.sql _mindful.tuning_signals
-- include sql/confidence/outcome.sql _mindful.threshold_evidence
-- include sql/confidence/outcome.sql _mindful.threshold_watch
-- include sql/confidence/outcome.sql answer_label
-- include sql/confidence/calibration.sql calibrate
comment on column calibrator.unit is
'What is drawn independently, and never split between the fit and the test. source: a session, or a source of gold questions. question: a session, or a gold question, as there are fewer than 20 sources.';
comment on column threshold.run is
'Sequence number of the test of this budget. Test k may fail with probability delta (1 / k^2 - 1 / (k + 1)^2), so that all tests together fail with probability delta. A call of calibrate that makes no test has no new number.';
comment on column threshold.delta_spent is
'The part of delta that the test spent. 0: no test was made, as no result could have certified a threshold.';
comment on column threshold.more_labels is
'Estimate of the further labels of the test until a threshold passes. NULL: no number is foreseen, as too many of the most probable answers are wrong.';
comment on column threshold.after is
'Thresholds that flagged the answers of the test before: those of lower tiers and of earlier attempts. It applies to such answers only. NULL: any.';
comment on column threshold.last_outcome is 'Id of the newest label of the test. After an alarm, only newer labels are tested.';
comment on column threshold.repeats is 'The threshold that this row repeats, because calibrate was called for its budget again.';
comment on table threshold is
'Probabilities from which answers are given unflagged, with the budget that each keeps. Of the rows of a calibrator, a budget and the same thresholds before, the newest that is not infeasible is in force.';
comment on column decision.after is 'Thresholds that this answer, or earlier attempts at the reply, did not reach before.';
comment on column decision.signal_ms is
'Cost of each kind of signal in milliseconds: free, question (similarity to the question), brief (the model''s brief answer), second (the fallback''s answer), samples.';
comment on column gold.source is
'Name of a group, such as one conversation. With 20 groups or more, none is split between fitting and testing. With fewer, each question is a group of its own.';
comment on column threshold.status is
'certified: a threshold passed the test. infeasible: none did. tightened: labels showed too many wrong answers among those given, at answer_label or calibrate.';
comment on column calibrator.origin is
'labels: fitted to labels of the tenant. shipped: a ranking of the package for this model and prompt form, with the base rate of the tenant''s labels. All labels can test its thresholds.';
comment on column calibrator.labels is 'Number of labeled answers in the fit. For a shipped ranking, those of the package.';
comment on column decision.action is
'answer: given without a flag. flag: given with a flag, or not chosen. uncalibrated: given, but answers of its kind have no calibrator yet, so its probability promises nothing. retrieve, retry, escalate: another attempt replaced this answer, or this attempt replaced another and reached its threshold. clarify: a question was asked back. abstain: the answer was withheld.';
comment on column decision.probability is
'Probability that the answer is right, by the calibrator: of answers with this probability, about this share is right. Without a calibrator it comes from the ranking that the package ships for the model, with the base rate of the tenant''s labels. If none is shipped, it is (right + 1) / (labels + 2), the same for every answer (Laplace''s rule of succession).';
-- include sql/confidence/action.sql _mindful.action_pending
-- core: tenants are switched in one place
-- include sql/core/tenant.sql _mindful.tenant_switch
-- include sql/core/lock.sql _mindful.tenants_run
-- include sql/memory/posting.sql _mindful.index_rebuild
-- include sql/memory/index.sql _mindful.index_rebuild_all
-- include sql/memory/queue.sql _mindful.job_store
-- include sql/conversation/state.sql _mindful.kv_state_thread
-- include sql/memory/retention.sql _mindful.records_expire
-- include sql/memory/retention.sql _mindful.retention_run_own
-- include sql/memory/retention.sql _mindful.retention_run_all
-- include sql/learning/schedule.sql _mindful.consolidation_work
-- include sql/learning/schedule.sql _mindful.tuning_work

-- confidence: figures by the calibrator in force
-- include sql/confidence/report.sql label_queue
comment on column decision.offered is
'Whether the answer was drawn at random for a label: of flagged ones the share of the setting label_share; before a threshold is certified all with a probability from 0.3 on, and a quarter of the others.';
-- include sql/core/bound.sql _mindful.figure
-- include sql/confidence/report.sql _mindful.calibrated
-- include sql/confidence/report.sql label_queue
-- include sql/confidence/report.sql label_probability
-- include sql/confidence/report.sql reliability_curve
-- include sql/confidence/report.sql risk_coverage
-- include sql/confidence/report.sql roc_curve
-- include sql/confidence/report.sql signal_quality
-- include sql/confidence/report.sql decision_daily
-- include sql/confidence/report.sql signal_cost
-- include sql/confidence/action.sql action_latency
-- include sql/confidence/report.sql _mindful.label_curves
-- include sql/confidence/report.sql confidence_report

-- confidence: rankings for models that the package ships none for
-- include sql/confidence/survey.sql

-- core: locks that wait for little, and claims that no roll back takes away
-- include sql/core/lock.sql _mindful.lock_briefly
alter table tenant_claim drop constraint tenant_claim_pkey, add column claim bigint not null default 0,
    add primary key (tenant, claim);
comment on column tenant_claim.claim is
'0, or a random number if another transaction claimed the same name at the same time and could still roll back.';
-- include sql/core/tenant.sql _mindful.tenant
-- include sql/core/tenant.sql _mindful.tenant_claim
-- include sql/core/key.sql _mindful.key_tenant
-- include sql/core/key.sql _mindful.minute_rest
-- include sql/core/key.sql key_use
-- include sql/conversation/tool.sql _mindful.tool_function
-- include sql/models/registry.sql _mindful.model_lock
-- include sql/models/registry.sql _mindful.model_deleted
-- include sql/models/registry.sql _mindful.model_unused
-- include sql/models/registry.sql model_unregister
-- include sql/models/registry.sql model_fallback_set
-- include sql/memory/queue.sql embedding_replica_set
do $do$
declare
    attached regprocedure;
    pinned text;
begin
    for attached in
        select p.oid from pg_catalog.pg_proc p
        where p.proname ~ '^remember_[0-9a-f]{32}$' and exists (
            select from pg_catalog.pg_depend d join pg_catalog.pg_extension e on e.oid = d.refobjid
            where d.classid = 'pg_proc'::regclass and d.objid = p.oid and d.refclassid = 'pg_extension'::regclass
                and d.deptype = 'x' and e.extname = 'mindful')
    loop
        foreach pinned in array array['array_nulls = on', 'quote_all_identifiers = off', 'standard_conforming_strings = on',
            'transform_null_equals = off', 'xmlbinary = ''base64''', 'xmloption = ''content''', 'gin_fuzzy_search_limit = 0',
            'default_text_search_config from current', 'lc_monetary from current', 'lc_numeric from current',
            'lc_time from current', 'timezone_abbreviations from current']
        loop
            execute pg_catalog.format('alter function %s set ', attached) || pinned;
        end loop;
    end loop;
end
$do$;

-- Where models run, and how.
-- include sql/memory/embedding.sql _mindful.embedding_table_create
-- include sql/memory/index.sql memory_index_create
comment on column model.options is
'Options of the provider: context_length (tokens), threads (default 1) and repack (default false; true copies Q4 weights into a faster layout in the memory of each connection). A generator also has the following. system_prompt: the default system prompt. layout: a text with {memories} and {message} that places recalled memories in the message. example (default true): whether a question with a memory and its answer comes before a message with memories, from which small models learn to answer. template: a Jinja chat template instead of the file''s. stop: an array of texts that end every answer. prompt_lookup (0 to 32, default 0): number of tokens that are guessed at once at temperature 0 if the answer repeats earlier text; answers stay the same, and copying gets faster (15 is a good value).';
-- include sql/generate/llm.sql model_usage

-- What runs Python, or an exception block, is PARALLEL UNSAFE.
-- include sql/generate/each.sql _mindful.llm_embed_each
-- include sql/memory/recall.sql _mindful.recall_reranked
-- include sql/memory/sweep.sql embedding_compare
-- include sql/memory/duplicate.sql _mindful.memory_near
-- include sql/generate/llm.sql llm_embed
-- include sql/generate/each.sql llm_embed_many
-- include sql/generate/llm.sql llm_embed_many
-- include sql/generate/rerank.sql llm_rerank
-- include sql/generate/llm.sql llm_token_count
-- include sql/models/status.sql mindful_status
-- include sql/core/slot.sql slot_status
-- include sql/memory/transfer.sql _mindful.import_check
-- include sql/memory/transfer.sql _mindful.import_rule
-- include sql/memory/forget.sql _mindful.forget_filter

-- Fewer plans that are made anew in each statement.
-- include sql/core/tenant.sql _mindful.writable
-- include sql/memory/argument.sql _mindful.metadata
-- include sql/memory/argument.sql _mindful.time_argument
-- include sql/memory/argument.sql _mindful.moment_argument
-- include sql/memory/statement.sql _mindful.sentence_asks
-- include sql/memory/statement.sql _mindful.asks
-- include sql/conversation/context.sql _mindful.memory_shown
-- include sql/core/tenant.sql _mindful.read_only_hint
-- include sql/models/adapter.sql _mindful.model_find
-- include sql/memory/candidate.sql _mindful.recall_hidden
-- include sql/memory/candidate.sql _mindful.recall_terms
-- include sql/memory/candidate.sql _mindful.recall_lexical

-- Metadata that callers supply, ids in imported metadata, and counts of many rows.
-- include sql/memory/forget.sql _mindful.memory_id
-- include sql/confidence/review.sql _mindful.question_of
-- include sql/confidence/review.sql _mindful.review_subject
-- include sql/conversation/clarification.sql _mindful.clarification
-- include sql/memory/transfer.sql _mindful.import_refer
-- include sql/memory/transfer.sql _mindful.import_metadata
-- include sql/memory/transfer.sql _mindful.import_memories
-- include sql/memory/posting.sql _mindful.memory_count_merged
-- include sql/memory/posting.sql _mindful.memory_count_add

-- include sql/learning/consolidation.sql _mindful.evidence_lost
-- include sql/learning/consolidation.sql memory_consolidate
-- include sql/learning/consolidation.sql _mindful.consolidation_summary_refresh
-- include sql/learning/sample.sql _mindful.sample_memory_lost

-- include sql/learning/training.sql _mindful.training_finish
-- include sql/learning/training.sql _mindful.training_running

-- settings
-- comments

-- Keep these last. They grant what all functions and tables above need: no grant has to be written for them.
-- include sql/core/privilege.sql
revoke execute on function _mindful.statistics_remove() from public, mindful_user, mindful_admin;
select _mindful.statistics_remove();

-- include sql/core/plan.sql
