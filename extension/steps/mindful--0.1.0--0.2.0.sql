\echo Use "ALTER EXTENSION mindful UPDATE TO '0.2.0'" to load this file. \quit

-- tenant
-- include sql/10_tenant.sql _tenant_refuse
-- include sql/10_tenant.sql _tenant
create table tenant_claim (
    tenant text primary key,
    by_role boolean not null
);
alter table tenant_claim enable row level security, force row level security;
create policy own on tenant_claim
    using (tenant = current_user::text or tenant = pg_catalog.current_setting('mindful.tenant', true)
        and pg_catalog.pg_has_role(current_user, 'mindful_application', 'usage'))
    with check (tenant = (select mindful._tenant()) and by_role = (tenant = current_user::text));
select pg_catalog.pg_extension_config_dump('mindful.tenant_claim', '');
comment on table tenant_claim is
'Tenants that have written, so that a role made or renamed later gets no rows of an application''s tenant of its name, nor an application those of a former role.';
comment on column tenant_claim.by_role is 'Whether the tenant is a role; else an application names it.';
-- include sql/10_tenant.sql _tenant_required
-- include sql/10_tenant.sql _tenant_claim
-- include sql/10_tenant.sql _tenant_claimed
-- include sql/10_tenant.sql tenant_set
-- include sql/10_tenant.sql _is_restore
-- include sql/10_tenant.sql _read_only_hint
-- include sql/10_tenant.sql _raise
-- include sql/10_tenant.sql _short_argument
-- include sql/10_tenant.sql _json_argument
-- include sql/10_tenant.sql _text_argument
-- include sql/10_tenant.sql _writable
insert into tenant_claim (tenant, by_role)
select t.tenant, exists (select from pg_catalog.pg_roles r where r.rolname operator(pg_catalog.=) t.tenant)
from (select tenant from memory union select tenant from session union select tenant from generation) t;
do $do$
declare
    changed record;
begin
    for changed in
        select p.polname, p.polrelid::regclass as relation,
            pg_catalog.regexp_replace(pg_catalog.pg_get_expr(p.polwithcheck, p.polrelid), '_tenant\M', '_tenant_claimed', 'g') as expression
        from pg_catalog.pg_policy p
        join pg_catalog.pg_class c on c.oid operator(pg_catalog.=) p.polrelid
        where c.relnamespace operator(pg_catalog.=) 'mindful'::regnamespace and c.relname operator(pg_catalog.<>) 'tenant_claim'
            and pg_catalog.pg_get_expr(p.polwithcheck, p.polrelid) operator(pg_catalog.~) '_tenant\(\)'
    loop
        execute pg_catalog.format('alter policy %I on %s with check (%s)', changed.polname, changed.relation, changed.expression);
    end loop;
end
$do$;

-- include sql/12_bound.sql
-- include sql/15_setting.sql

-- include sql/17_deletion.sql
-- include sql/18_lock.sql

-- model
alter table model add column base text references model, add constraint model_base check (base is null or kind = 'generator');
create index model_base on model (base) where base is not null;
comment on column model.base is 'The generator that this one, an adapter, changes; NULL for a model in its own right.';

drop function _model_find(text, text);
drop policy use on model;
-- include sql/21_adapter.sql
drop function model_default_set(text);
-- include sql/20_model.sql model_default_set
comment on column model.options is 'Options of the provider: context_length, threads (default 1), and of a generator also system_prompt, layout, a text with {memories} and {message} that says how recalled memories stand with a message, template, a Jinja chat template in place of the file''s, stop, texts that end every answer, and prompt_lookup (default 0, at most 32): how many tokens are guessed at once, at temperature 0, where an answer repeats what stands before; it changes no answer, and is faster where texts are copied (15 is a good choice).';

-- include sql/25_slot.sql

-- llm
alter table generation add column slot_wait_ms real not null default 0;
comment on column generation.slot_wait_ms is 'How long the call waited for a slot (see the setting model_slots), before and while it ran.';

drop function
    llm_generate(text, text, integer, real, integer, text, text[], boolean),
    llm_generate_detail(text, text, integer, real, integer, text, text[], boolean),
    llm_stream(text, text, integer, real, integer, text, text[], boolean);
-- include sql/30_llm.sql llm_generate
-- include sql/30_llm.sql llm_generate_detail
-- include sql/30_llm.sql llm_stream

insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('model_keep', 'boolean', null, null, '{global,user}', 'true',
        'Whether a connection keeps the models that it has loaded when a transaction ends; where not, it gives their memory back then, and loads them again when it needs them.');

-- include sql/31_rerank.sql
-- include sql/32_structure.sql
-- include sql/34_label.sql
-- include sql/36_batch.sql
-- include sql/38_summary.sql

-- memory
alter table memory
    add column importance real not null default 0.5 check (importance between 0 and 1),
    add column confidence real check (confidence between 0 and 1),
    add column level text not null default 'data' check (level in ('data', 'information', 'knowledge', 'wisdom')),
    add column valid_from timestamptz,
    add column valid_to timestamptz,
    add column superseded_by bigint,
    add column valid_to_given timestamptz,
    add column stated boolean not null default false,
    add constraint memory_validity check (valid_from <= valid_to),
    add constraint memory_superseded_by foreign key (tenant, superseded_by) references memory (tenant, id)
        on delete set null (superseded_by);
alter table memory drop constraint memory_tenant_session_id_turn_key, drop constraint memory_tenant_source_source_key_key;
create unique index memory_turn on memory (tenant, session_id, turn) where session_id is not null;
create unique index memory_source on memory (tenant, source, source_key) where source is not null;
create index memory_superseded_by on memory (tenant, superseded_by) where superseded_by is not null;
comment on column memory.importance is 'From 0 to 1; what is known of no memory is 0.5.';
comment on column memory.confidence is 'Probability that it is true; NULL if nobody has said.';
comment on column memory.valid_from is 'Since when it is true; NULL is since ever.';
comment on column memory.valid_to is 'Until when it was true; NULL is until now.';
comment on column memory.superseded_by is 'The memory that took its place.';
comment on column memory.valid_to_given is 'What valid_to was before the memory was superseded; forgetting what took its place puts it back.';
comment on column memory.stated is 'Whether a memory with evidence was remembered without any as well, so that it outlives the evidence.';
create index memory_valid_from on memory (tenant, valid_from) where valid_from is not null;
create index memory_valid_to on memory (tenant, valid_to) where valid_to is not null;
create index memory_term_sample on memory_term (tenant, lexeme) where hashint8(id) & 31 = 0;
alter table memory drop constraint memory_role_check;
alter table memory add constraint memory_role_check check (role in ('system', 'user', 'assistant', 'tool', 'clarification'));
comment on column memory.role is 'Whose words a message holds; clarification: the assistant asked back.';
comment on column memory.source_key is 'Which part of the source this is: a chunk''s hash, a row''s primary key.';

drop trigger embed_inserted on memory;
drop trigger embed_updated on memory;
drop trigger index_updated on memory;
drop trigger index_inserted on memory;
drop trigger index_deleted on memory;
create trigger index_inserted after insert on memory referencing new table as new_rows
    for each statement when (pg_catalog.current_setting('row_security') = 'on' or not mindful._is_restore()) execute function _memory_index();
create trigger index_updated after update on memory referencing old table as old_rows new table as new_rows
    for each statement when (pg_catalog.current_setting('row_security') = 'on' or not mindful._is_restore()) execute function _memory_index();
create trigger index_deleted after delete on memory referencing old table as old_rows
    for each statement when (pg_catalog.current_setting('row_security') = 'on' or not mindful._is_restore()) execute function _memory_index();

-- include sql/40_memory.sql _metadata
-- include sql/40_memory.sql _memory_changed
alter table memory_count add column bytes bigint not null default 0;
comment on column memory_count.bytes is 'Bytes of the memories'' content and metadata.';
drop function _memory_count_add(text, bigint, numeric);
-- include sql/40_memory.sql _memory_count_add
-- include sql/40_memory.sql _memory_bytes
-- include sql/40_memory.sql _memory_index
update memory_count c set bytes = m.bytes
from (select tenant, sum(_memory_bytes(content, metadata)) as bytes from memory group by tenant) m
where c.tenant = m.tenant and c.shard = (select min(f.shard) from memory_count f where f.tenant = c.tenant);
-- include sql/40_memory.sql _embedding_table_create
-- include sql/40_memory.sql memory_index_create

alter function _array_elements(text, jsonb, text[]) rows 10;

drop function memory_insert(text, text, jsonb, text, text);
drop function memory_insert_many(jsonb);

drop function memory_recall(text, integer, text[]);
drop function _memory_lexical(text, integer, text[]);
drop function _memory_nearest(text, integer, text[]);

-- include sql/41_arm.sql
-- include sql/42_recall.sql
-- include sql/43_embedding.sql
-- include sql/44_duplicate.sql
-- include sql/44_fact.sql
-- include sql/44_link.sql
-- include sql/45_access.sql

-- attachment
alter table attachment drop constraint attachment_mode_check;
alter table attachment add constraint attachment_mode_check check (mode in ('sync', 'async'));
comment on column attachment.mode is 'Whether rows are embedded within the statement that writes them (sync) or later, by a worker (async).';
-- include sql/45_attachment.sql _attachment_delete
-- include sql/45_attachment.sql _attachment_write
-- include sql/45_attachment.sql memory_attach
-- include sql/45_attachment.sql memory_detach

-- include sql/46_job.sql
-- include sql/47_document.sql
-- include sql/48_forget.sql
-- include sql/48_forget_check.sql
-- include sql/48_prune.sql
-- include sql/49_transfer.sql

-- chat
alter type chat_detail add attribute probability real, add attribute reason text, add attribute decision_id bigint;
-- include sql/50_chat.sql llm_chat
-- include sql/50_chat.sql llm_chat_detail
-- include sql/50_chat.sql llm_chat_stream
-- include sql/50_chat.sql session_start
-- include sql/50_chat.sql _message_role
-- include sql/50_chat.sql message_insert_many
-- include sql/50_chat.sql message_insert
drop function _message_role(text, bigint);
-- include sql/50_chat.sql _session_turns

drop function session_context(uuid, text, text, integer, integer);
-- include sql/51_context.sql
-- include sql/52_recap.sql
-- include sql/53_assistant.sql
-- include sql/54_tool.sql
-- include sql/55_state.sql
-- include sql/56_quota.sql

-- review
drop index review_tenant_message_id_idx;
create index on review (tenant, message_id) where message_id is not null;
comment on column review.score is 'p(true) / (p(true) + p(false)) of what follows the answer, against the same of an empty one; not calibrated.';
comment on column review.signals is 'log_odds of true against false, log_odds_content_free of the same for an empty answer, prompt_tokens of the review and cached_tokens among them, which were not evaluated again.';
drop function _review_subject(bigint);
-- include sql/60_review.sql _question_of
-- include sql/60_review.sql _review_subject
-- include sql/60_review.sql _review_turns
-- include sql/60_review.sql self_review

-- include sql/61_calibrator.sql
-- include sql/62_decision.sql
-- include sql/63_outcome.sql
-- include sql/64_calibration.sql
-- include sql/65_adapt.sql
-- include sql/66_lesson.sql
-- include sql/67_action.sql
-- include sql/68_clarification.sql

-- view
-- include sql/70_view.sql conversation
-- include sql/70_view.sql model_usage
-- include sql/70_view.sql confidence_daily

-- include sql/71_confidence.sql
-- include sql/72_consolidation.sql
-- include sql/74_sample.sql
-- include sql/76_export.sql
-- include sql/78_training.sql
-- include sql/79_schedule.sql
-- include sql/85_bound_check.sql
revoke update on model from mindful_admin;
-- include sql/90_privilege.sql
-- include sql/92_statistics.sql
-- include sql/94_plan.sql
