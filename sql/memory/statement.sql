-- A question that was asked before resembles the same question more than its answer does. A chat therefore recalls what was
-- stated, and leaves out messages that only ask.

create function _mindful.sentence_asks(sentence text) returns boolean
language plpgsql immutable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
set standard_conforming_strings = on
as $$
declare
    plain text := regexp_replace(lower(sentence), '[’`´]', '''', 'g');
    -- What opens a sentence and says nothing.
    body text := regexp_replace(plain,
        '^\W*((ok|okay|so|well|and|but|or|hey|hi|hello|please|sorry|thanks|now|then|also|just|again|actually|quick question|um+|uh+|hm+|oh|by the way|btw|remember|excuse me)\W+)*', '');
    is_marked boolean := sentence ~ '[?？؟]\W*$';
    -- "Remind me that ...", "Note: ..."
    quotes boolean;
begin
    if body = '' or plain ~ '^\W*(ok|okay|hi|hello|hey|thanks?|thank you|thx|cheers|great|cool|nice|good|perfect|bye|goodbye|yes|no|yeah|nope|sure|please|wow|lol|ha(ha)*|hm+|got it|i see|never mind|good (morning|afternoon|evening|night)|see you)(\W+\w+){0,2}\W*$' then
        return true;
    end if;
    -- A clause before the question that has a subject and something to say of it: "I moved to Graz, so where ...?"
    if is_marked and (
        body !~ '[,;:–—-]'
        or body ~ '^(who|whom|whose|what|which|when|where|why|how|if|is|are|am|was|were|do|does|did|can|could|would|should|will|may|might|tell|remind|give|show|help|let|for|in|on|at|about|of|with|to|from|any)\M'
        or body !~ '^((since|because|as|now that|given that|given|after|before|when|while|although|my|our|his|her|their)\W+)*(i|we|he|she|it|they|there|this|that|''s|\w+)(''\w+)?\W+(\w+''?\w*\W+){2,}[^,;:–—-]*[,;:–—-]+\s'
    ) then
        return true;
    end if;
    quotes := body ~ '\mthat(\W+\w+){3}|:\W*\w+\W+\w+';
    if body ~ ('\m(forgot|forget|forgotten|forgetting|wonder|wondering|curious|no idea|not sure|unsure|no clue|do you know|do you remember|'
            || '((do|did|does|ca|could|would|wo)(n''t| not)|cannot|can ?not|never|unable to|trying to|try to|want to|need to|like to|love to|have to|help me) '
            || '(quite |really |ever )?(know|remember|recall|find|find out|hear|see|check|tell|think of|look up|ask))\M'
            || '.{0,60}\m(who|whom|whose|what|which|when|where|why|how|if|whether|(name|number|date|code|password|pin|address|day|time|price|age|color|colour|birthday) of|about)\M')
    then
        return is_marked or not quotes;
    end if;
    return not is_marked and not quotes and (
        body ~ '^(is|are|am|was|were|do|does|did|can|could|would|should|shall|isn''t|aren''t|wasn''t|weren''t|don''t|doesn''t|didn''t|can''t|couldn''t|won''t|wouldn''t|shouldn''t|haven''t|hasn''t|any (idea|chance|clue|thoughts))\M'
        or body ~ '^(will|may|might|have|has|had)\W+(i|we|you|he|she|it|they|the|my|our|your|his|her|their|there|this|that|any)\M'
        or body ~ '^(tell|remind|give|show|help|explain|list|name(?!'')|find|describe|summari[sz]e|write|refresh|guess|check|search|translate|repeat|say|suggest|recommend|compare|look up|let me know|let me hear)\M'
        or body ~ '^(who|whom|whose|what|which|when|where|why|how)(''?s|''?re|''?d|''?ll)?\M'
            and body !~ '^(who|whom|whose|what|which|when|where|why|how)\W+(i|we|you|he|she|it|they|the|a|an|my|our|his|her|their|this|that|ever)\M'
    );
end
$$;
comment on function _mindful.sentence_asks(text) is
'Returns whether a sentence asks, requests or greets, and states nothing. It knows question marks of many scripts, and English forms without one.';

create function _mindful.asks(content text) returns boolean
language plpgsql immutable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
set standard_conforming_strings = on
as $$
begin
    return case when length(content) <= 1000 then (
        select bool_and(_mindful.sentence_asks(s.sentence))
        from regexp_split_to_table(content, '(?<=[.!?…。！？])\s+|\n+') s (sentence)
    ) else false end;
end
$$;
comment on function _mindful.asks(text) is
'Returns whether a text only asks: none of its sentences states anything. A text of more than 1000 characters is taken to state something.';

create function _mindful.is_reply(role text) returns boolean
language sql immutable parallel safe security invoker
begin atomic
    select coalesce(role in ('assistant', 'clarification'), false);
end;
comment on function _mindful.is_reply(text) is 'Returns whether a memory with this role holds the model''s own words.';
