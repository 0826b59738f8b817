"""Vocabulary of the extraction rules."""

from __future__ import annotations

from mindful.core.pattern import CAPITAL, IGNORECASE, linear

PLACE = rf"(?:the )?{CAPITAL}[\w'&.-]*(?:(?: of| and| the| de|,)? {CAPITAL}[\w'&.-]*){{0,4}}"
"""A name of a place, a company or a person."""

KIN = (
    "mother|father|mom|mum|dad|parents|brothers?|sisters?|siblings?|sons?|daughters?|kids?|children|child|baby|twins|"
    "wife|husband|spouse|partner|fianc\u00e9e?|fiancee?|girlfriend|boyfriend|grandma|grandpa|grandmother|grandfather|granny|"
    "grandparents|grandkids?|grandson|granddaughter|aunt|uncle|cousins?|nieces?|nephews?|boss|roommate|neighbours?|neighbors?"
)
PETS = "dogs?|cats?|pupp(?:y|ies)|pups?|kittens?|hamsters?|rabbits?|parrots?|turtles?|snakes?|horses?|ponies|guinea pigs?|goldfish|fish|birds?|pets?"
OWNED = "car|bike|bicycle|motorcycle|truck|boat|house|apartment|flat|cottage|cabin|garden|guitar|piano|violin|drone|camera|blog|channel|shop|store|studio|degree"
GAINS = "promotion|internship|scholarship|medal|trophy|award|certificate|tattoo|job offer|raise|licen[sc]e|passport|deal|endorsement"
NUMBERS = "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|[1-9][0-9]?"
OCCUPATIONS = (
    "accountant|actor|actress|analyst|animator|architect|artist|astronaut|athlete|attorney|author|baker|barber|barista|bartender|"
    "biologist|blogger|bookkeeper|builder|butcher|carpenter|cashier|chef|chemist|clerk|coach|composer|consultant|cook|counselor|"
    "dancer|dentist|designer|developer|director|doctor|driver|economist|editor|electrician|engineer|entrepreneur|farmer|"
    "firefighter|florist|gardener|geologist|hairdresser|historian|illustrator|instructor|interpreter|journalist|judge|lawyer|"
    "lecturer|librarian|manager|mechanic|midwife|model|musician|nurse|nutritionist|optician|painter|paramedic|pharmacist|"
    "photographer|physician|physicist|pilot|plumber|poet|policeman|police officer|politician|potter|professor|programmer|"
    "psychologist|receptionist|reporter|researcher|sailor|scientist|sculptor|secretary|singer|social worker|soldier|"
    "software engineer|student|surgeon|tailor|teacher|technician|therapist|trainer|translator|veterinarian|vet|veteran|waiter|"
    "waitress|writer|yoga teacher"
)
ADVERBS = (
    "really|absolutely|just|also|still|always|truly|definitely|totally|especially|particularly|usually|often|sometimes|currently|"
    "now|recently|finally|actually|even|even just|both|all|personally|mostly|mainly|originally|already|kinda|kind of|"
    "super|genuinely|simply|so|pretty|lately|once|never again"
)
EVENTS = (
    "went (?:to|on|for|camping|hiking|swimming|skiing|fishing|surfing|running|biking|snowboarding|kayaking|diving)|visited|"
    "attended|joined|signed up for|enrolled in|graduated from|started|began|took up|quit|retired from|moved (?:from|into)|"
    "bought|adopted|sold|built|painted|wrote|published|finished|completed|won|participated in|took part in|competed in|"
    "volunteered (?:at|for|with)|donated|hosted|organi[sz]ed|launched|opened|created|designed|recorded|performed (?:at|in)|"
    "applied (?:to|for)|was promoted to|got promoted to|was hired (?:as|by)|got accepted (?:to|into)|got (?:back from|into)|came back from|passed|failed|"
    "broke|injured|hurt|lost|adopted|planted|baked|cooked|grilled|read|watched|celebrated|received|"
    "travell?ed to|drove to|flew to|hiked|camped|climbed|ran|met|learned|learnt|taught|toured|interviewed (?:at|for|with)|"
    "ran into|set up|got hooked on|beat|reached|earned|scored"
)
"""Verbs of single events in the past."""

IDLE = "try|think|look|do|hav|feel|get|go|mean|want|keep|mak|wait|see|hear|be|miss|hop|wonder|say|tell|talk|struggl"
"""Beginnings of verbs for activities that carry no fact."""
ACTIVITIES = (
    "learning|taking|training for|practicing|teaching|volunteering (?:at|for|with)|coaching|saving for|saving up for|writing|reading|"
    "building|developing|working on|playing|studying for|attending|renovating|preparing for|designing|organizing|running for"
)

STOPS = linear(
    r"\?|\b(?:if|would|could|should|might|maybe|perhaps|wish|used to|never mind|almost|nearly|supposed|as if|"
    r"imagine|pretend|suppose|kidding|joking)\b|'d\b",
    IGNORECASE,
)
"""Words of clauses that are no plain statement."""

VAGUE = linear(
    r"^(?:it|its|that|this|them|those|these|you|your|yours|him|his|her|hers|he|she|they|their|how|what|when|where|why|who|"
    r"the (?:idea|way|thought|fact|feeling|same|sound|best|one|first|whole|process|result|look|vibe|energy|details?|"
    r"colou?rs|view|support|message|concept|rest|other|others|lot|good|most)|to|be|being|seeing|hearing|knowing|having|"
    r"ever|as usual|one|ones|some|something|anything|everything|nothing|everyone|all|any|both|so|too|more|most|much|many|such|each|every|"
    r"again|back|there|here|not|no|like|just|really|that's|have|need|miss|say|tell|talk|look at|keep in|try|check|see|"
    r"know|think|share|do (?:it|that|this|my|better)|make (?:it|sure|a difference)|get (?:it|back|that|there|into)|"
    r"let|thank|ask|give|go|come|head|stay|chat|admit|mention|be|catch|the other|sense|an? (?:few|lot|bit|good|great|new one|"
    r"tough|hard|blast|ton|bunch|similar|different|wonderful|amazing|fun|nice|big|real|whole|step|chance|challenge|while))\b"
    r"|\b(?:it|that|this|them|those|these|you|your|yours|him|her|one|ones|there|here|stuff|thing|things|something|"
    r"anything|everything|someone|somewhere|other|others|such|same|what|how)$"
    r"|\b(?:to|in|of|with|for|at) that\b"
    r"|\b(?:you|your|yours|yourself|this|these|those|here|he|she|his|her|him|it|its|them|their|theirs|they|me)\b",
    IGNORECASE,
)
"""Objects that mean nothing outside their conversation."""
