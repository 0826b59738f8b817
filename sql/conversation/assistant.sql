insert into setting_definition (key, type, high, scopes, initial, description, choices, prompt) values
    ('assistant_tone', 'text', null, '{global,user,session}', 'null', 'Tone of answers.',
        '{formal,informal,friendly,neutral}', 'Answer in a %s tone.'),
    ('answer_length', 'text', null, '{global,user,session}', 'null', 'Length of answers.',
        '{short,long}', 'Give %s answers.'),
    ('answer_language', 'text', null, '{global,user,session}', 'null', 'Language of answers.',
        '{Arabic,Chinese,Czech,Danish,Dutch,English,Finnish,French,German,Greek,Hebrew,Hindi,Hungarian,Indonesian,Italian,Japanese,Korean,Norwegian,Persian,Polish,Portuguese,Romanian,Russian,Spanish,Swedish,Thai,Turkish,Ukrainian,Vietnamese}',
        'Answer in %s.'),
    ('assistant_voice', 'text', 200, '{global,user,session}', 'null',
        'Voice and style of answers, such as: a pirate; dry and precise.',
        null, 'Answer in this voice and style: %s.'),
    ('user_name', 'text', 60, '{user,session}', 'null', 'Name by which the assistant addresses the user.', null, 'The user is called %s.');
insert into setting_definition (key, type, scopes, initial, description) values
    ('assistant_changes', 'boolean', '{global,user,session}', 'true',
        'Whether the assistant may change settings that have a prompt when a message asks for it.');

alter table setting add column message_id bigint,
    add foreign key (tenant, message_id) references memory on delete cascade,
    add foreign key (tenant, session_id) references session on delete cascade;
create index on setting (tenant, message_id) where message_id is not null;
create index on setting (tenant, session_id) where session_id is not null;
comment on column setting.message_id is 'The message that asked for it: a change is forgotten with it.';

create function _mindful.assistant_change(key text, value jsonb, scope text, session_id uuid, reason text, message_id bigint) returns void
language sql volatile parallel unsafe security invoker
begin atomic
    insert into mindful.setting (scope, session_id, key, value, reason, message_id, changed_by)
    select assistant_change.scope, case when assistant_change.scope = 'session' then assistant_change.session_id end,
        d.key, assistant_change.value, assistant_change.reason, assistant_change.message_id, 'assistant for ' || current_user
    from mindful.setting_definition d
    where d.key = assistant_change.key and d.tenant = any (array['', (select _mindful.tenant())]) and d.prompt is not null
        and assistant_change.scope = any (array['user', 'session']);
end;
comment on function _mindful.assistant_change(text, jsonb, text, uuid, text, bigint) is
'Changes a setting at the request of a user''s message, whose words become the reason. Only settings with a prompt can be changed.';

create function setting_undo(change_id bigint) returns jsonb
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    undone mindful.setting;
    newer bigint;
begin
    perform _mindful.writable();
    select s.* into undone from mindful.setting s
    where s.tenant = any (array['', (select _mindful.tenant())]) and s.id = change_id;
    if not found then
        perform _mindful.raise('42704', format('there is no change %s of a setting', coalesce(change_id::text, 'null')),
            'Changes are listed in mindful.setting.');
    end if;
    select max(s.id) into newer from mindful.setting s
    where s.tenant = undone.tenant and s.key = undone.key and s.scope = undone.scope
        and s.session_id is not distinct from undone.session_id;
    if newer > undone.id then
        perform _mindful.raise('55000', format('setting %s was changed again by change %s', undone.key, newer),
            format('Undo that first, or set it with setting_set(%L, ...).', undone.key));
    end if;
    return mindful.setting_set(
        undone.key,
        coalesce(
            (
                select s.value from mindful.setting s
                where s.tenant = undone.tenant and s.key = undone.key and s.scope = undone.scope
                    and s.session_id is not distinct from undone.session_id and s.id < undone.id
                order by s.id desc limit 1
            ),
            'null'
        ),
        undone.scope, undone.session_id, format('undo of change %s', undone.id)
    );
end
$$;
comment on function setting_undo(bigint) is
'Restores the value that a setting had in its scope before the change with this id, and returns the value now in force.
The undo is a change too and can be undone. Errors: 42704 (the tenant has no such change), 55000 (a later change exists), 42501 (scope global needs mindful_admin).';
