"""Patterns whose foils exchange two phrases: who does what to whom, who is more, where, when."""

from __future__ import annotations

from itertools import permutations

from .patterns import PAST, SIMPLE, Pattern, expand

ACTIVE = "{a} {a.v} {b.o}{end}"
PASSIVE = "{b} {b.v_en} by {a.o}{end}"
PLAIN = (ACTIVE, PASSIVE, "{b} {b.v_en}{end} by {a.o}", "{start}{a} {a.v} {b.o}", "{start}{b} {b.v_en} by {a.o}")
CLEFT = (
    "{it} {it.is} {a} who {a.v} {b.o}{end}",
    "{it} {it.is} {b} that {a} {a.v}{end}",
    "{it} {it.is} by {a.o} that {b} {b.v_en}{end}",
    "{a.one} who {a.v} {b.o}{end} {a.is} {a}",
    "{b.one} whom {a} {a.v}{end} {b.is} {b}",
    "{b.one} who {b.v_en} by {a.o}{end} {b.is} {b}",
)
WITH_PREPOSITION = (
    "look at,laugh at,shout at,wait for,talk to,point at,wave at,smile at,rely on,listen to,yell at,stare at,"
    "bump into,spy on,vote for,care for,deal with,pray for,run into,depend on,whistle at,search for,lie to,"
    "shoot at,speak to"
).split(",")
ROLES = [
    Pattern(PLAIN, "a b", wrapped=True, weight=5),
    Pattern((*PLAIN, *CLEFT), "a b", wrapped=True, weight=4),
    Pattern((*PLAIN, *CLEFT), "a b", words={"v": WITH_PREPOSITION}, wrapped=True),
    Pattern(
        ("{a} {a.v} {b.o}{end} and then {a.w} {c.o}", "{b} {b.v_en} by {a.o}{end}, who then {a.w} {c.o}"),
        "a b",
        pools={"a b": "someone"},
        tenses=PAST,
    ),
]

GIVING = "give,send,show,offer,sell,lend,hand,teach,bring,pass,write,pay,read,throw,mail,serve,award,promise".split(
    ","
)
MAKING = "build,cook,draw,paint,make,find,fetch,order,design,bake,prepare,steal".split(",")
EXCHANGES = [
    ("buy", "from", "sell", "to"),
    ("borrow", "from", "lend", "to"),
    ("receive", "from", "send", "to"),
    ("get", "from", "give", "to"),
    ("rent", "from", "lease", "to"),
    ("inherit", "from", "leave", "to"),
    ("purchase", "from", "sell", "to"),
    ("take", "from", "hand", "to"),
    ("win", "from", "lose", "to"),
    ("accept", "from", "offer", "to"),
    ("hire", "from", "rent", "to"),
    ("obtain", "from", "supply", "to"),
]
CONVERSES = [
    ("defeat", "lose to"),
    ("beat", "lose to"),
    ("precede", "follow"),
    ("follow", "come before"),
    ("precede", "come after"),
    ("employ", "work for"),
    ("hire", "start working for"),
    ("own", "belong to"),
    ("outlive", "die before"),
    ("outrun", "run slower than"),
    ("chase", "flee from"),
    ("please", "like"),
    ("frighten", "fear"),
    ("lead", "follow"),
    ("host", "stay with"),
    ("teach", "learn from"),
    ("overtake", "fall behind"),
    ("feed", "get food from"),
    ("impress", "admire"),
    ("outnumber", "be fewer than"),
    ("influence", "be under the influence of"),
    ("command", "take orders from"),
    ("inform", "hear from"),
    ("amuse", "laugh at"),
]
RELATIONS = [
    ("parent", "child"),
    ("teacher", "student"),
    ("boss", "employee"),
    ("doctor", "patient"),
    ("uncle", "nephew"),
    ("host", "guest"),
    ("mentor", "apprentice"),
    ("master", "servant"),
    ("predecessor", "successor"),
    ("ancestor", "descendant"),
    ("lender", "debtor"),
    ("supplier", "customer"),
]
TRANSFER = (
    "{a} {a.v} {b.o} {t}{end}",
    "{a} {a.v} {t} to {b.o}{end}",
    "{t} {t.v_en} to {b.o} by {a.o}{end}",
    "{b} {b.v_en} {t} by {a.o}{end}",
    "{it} {it.is} {b.o} that {a} {a.v} {t} to{end}",
    "{start}{a} {a.v} {t} to {b.o}",
)
CONVERSE = [
    Pattern(TRANSFER, "a b", words={"v": GIVING}, wrapped=True, weight=3),
    Pattern(
        ("{a} {a.v} {b.o} {t}{end}", "{a} {a.v} {t} for {b.o}{end}", "{t} {t.v_en} for {b.o} by {a.o}{end}"),
        "a b",
        words={"v": MAKING},
    ),
    Pattern(
        (
            "{a} {a.v} {t} {out} {b.o}{end}",
            "{b} {b.u} {t} {to} {a.o}{end}",
            "{b} {b.u} {a.o} {t}{end}",
            "{t} {t.u_en} {to} {a.o} by {b.o}{end}",
            "{start}{t} {t.v_en} by {a.o} {out} {b.o}",
        ),
        "a b",
        words={"v out u to": EXCHANGES},
        wrapped=True,
        weight=3,
    ),
    Pattern(
        (ACTIVE, PASSIVE, "{b} {b.u} {a.o}{end}", "{start}{b} {b.u} {a.o}"),
        "a b",
        words={"v u": CONVERSES},
        wrapped=True,
        weight=3,
    ),
    Pattern(
        (
            "{a} {a.is} the {r} of {b.o}{end}",
            "{b} {b.is} the {l} of {a.o}{end}",
            "{a} {a.is} {b.s} {r}{end}",
            "{b} {b.is} {a.s} {l}{end}",
        ),
        "a b",
        pools={"a b": "individual"},
        words={"r l": [*RELATIONS, *((b, a) for a, b in RELATIONS)]},
        tenses=SIMPLE,
    ),
]

COMPARATIVES = [
    tuple(pair.split("/"))
    for pair in (
        "taller/shorter,older/younger,bigger/smaller,faster/slower,richer/poorer,stronger/weaker,heavier/lighter,"
        "happier/sadder,louder/quieter,smarter/dumber,warmer/colder,longer/shorter,better/worse,higher/lower,"
        "wider/narrower,cheaper/more expensive,braver/more cowardly,cleaner/dirtier,nearer/farther,thicker/thinner,"
        "deeper/shallower,hotter/cooler,softer/harder,brighter/darker,safer/more dangerous,kinder/crueler"
    ).split(",")
]
PLACES = [
    ("above", "below"),
    ("in front of", "behind"),
    ("to the left of", "to the right of"),
    ("on top of", "underneath"),
    ("ahead of", "behind"),
    ("over", "under"),
    ("north of", "south of"),
    ("east of", "west of"),
    ("upstairs from", "downstairs from"),
    ("upstream from", "downstream from"),
]
SIDES = [*PLACES, *((b, a) for a, b in PLACES)]
DEGREES = [*COMPARATIVES, *((b, a) for a, b in COMPARATIVES)]
POSTURES = ["", "", "", "standing ", "sitting ", "waiting "]
COMPARED = (
    "{a} {a.is} {more} than {b}{end}",
    "{b} {b.is} {less} than {a}{end}",
    "compared with {b.o}, {a} {a.is} {more}{end}",
    "{start}{b} {b.is} {less} than {a}",
)
PLACED = ("{a} {a.is} {posture}{near} {b.o}{end}", "{b} {b.is} {posture}{far} {a.o}{end}")
COMPARISONS = [
    Pattern(COMPARED, "a b", words={"more less": DEGREES}, tenses=SIMPLE, wrapped=True),
    Pattern(COMPARED, "a b", pools={"a b": "thing"}, words={"more less": DEGREES}, tenses=SIMPLE),
    Pattern(
        (*COMPARED, "{b} {b.is} {so} {x} as {a}{end}"),
        "a b",
        pools={"x": "long adjective"},
        words={"more less so": [("more {x}", "less {x}", "not as"), ("more {x}", "less {x}", "not nearly as")]},
        tenses=SIMPLE,
        wrapped=True,
    ),
    Pattern(PLACED, "a b", words={"near far": SIDES, "posture": POSTURES}, tenses=SIMPLE, wrapped=True),
    Pattern(
        (*(form.replace("{posture}", "") for form in PLACED), "{near} {b.o}{end} {a.is} {a}"),
        "a b",
        pools={"a b": "thing"},
        words={"near far": SIDES},
        tenses=SIMPLE,
        wrapped=True,
    ),
    Pattern(
        (
            "{a} {a.v} {c.o} before {b} {b.do}{end}",
            "{b} {b.v} {c.o} after {a} {a.do}{end}",
            "{b} {b.do} not {v.base} {c.o}{end} until {a} {a.do}",
        ),
        "a b",
        tenses=PAST,
        wrapped=True,
    ),
]

RELATIVES = [
    Pattern(
        ("{a} whom {b} {b.v}{end}", "{a} who {a.v_en} by {b.o}{end}", "{a} that {b} {b.v}{end}"),
        "a b",
        pools={"a b": "someone"},
    ),
    Pattern(
        ("{a} who {a.v} {b.o} {a.w} us{end}", "{a} by whom {b} {b.v_en} {a.w} us{end}"),
        "a b",
        pools={"a b": "someone"},
    ),
    Pattern(
        (
            "{a}, who {a.v} {b.o}, {a.w} {c.o}{end}",
            "{a}, by whom {b} {b.v_en}, {a.w} {c.o}{end}",
            "{c} {c.w_en} by {a.o}, who {a.v} {b.o}{end}",
        ),
        other=(
            "{a}, whom {b} {b.v}, {a.w} {c.o}{end}",
            "{a}, who {a.v_en} by {b.o}, {a.w} {c.o}{end}",
            "{c} {c.w_en} by {a.o}, whom {b} {b.v}{end}",
        ),
        pools={"a b": "someone"},
    ),
    Pattern(
        ("we {saw} {a.o} {v.doing} {b.o}{end}", "we {saw} {b.o} being {v.done} by {a.o}{end}"),
        "a b",
        words={"saw": "saw,noticed,filmed,watched,remember,imagined".split(",")},
    ),
]

QUESTIONS = [
    Pattern(("{a.do} {a} {v.base} {b.o}{end}?", "{b.is} {b} {v.done} by {a.o}{end}?"), "a b", tenses=SIMPLE),
    Pattern(
        ("{may} {a} {v.base} {b.o}{end}?", "{may} {b} be {v.done} by {a.o}{end}?"),
        "a b",
        words={"may": "will,can,should,could,would,must,might".split(",")},
    ),
    Pattern(
        ("{a.has} {a} {v.done} {b.o}{end}?", "{b.has} {b} been {v.done} by {a.o}{end}?"),
        "a b",
        tenses={"perfect": 2, "pluperfect": 1},
    ),
    Pattern(
        ("{why} {a.do} {a} {v.base} {b.o}{end}?", "{why} {b.is} {b} {v.done} by {a.o}{end}?"),
        "a b",
        words={"why": "why,when,where,how".split(",")},
        tenses=SIMPLE,
    ),
    Pattern(
        ("{ask} {a} {a.v} {b.o}{end}", "{ask} {b} {b.v_en} by {a.o}{end}"),
        "a b",
        words={"ask": "I wonder whether,nobody knows why,we asked if,tell me when,I forgot how".split(",")},
    ),
]

TWO_CLAUSES = expand("({a} {a.v} {b.o}{end}|{b} {b.v_en} by {a.o}{end}){link}({b} {b.w} {a.o}|{a} {a.w_en} by {b.o})")
LINKS = [", and ", ", but ", " because ", " before ", " after ", ", so ", " while ", " although ", ", and later "]
PRONOUNS = [
    Pattern(TWO_CLAUSES, "a b", pools=pools, words={"link": LINKS})
    for pools in ({"a": "pronoun", "b": "someone"}, {"b": "pronoun", "a": "someone"})
]

INTRANSITIVE = (
    "come,leave,finish,die,sleep,win,speak,sing,wake,eat,return,stop,start,begin,jump,drive,play,work,pay,answer,enter"
).split(",")
EVENTS = [
    Pattern(
        (
            "{a} {a.v}{end} before {b}",
            "{b} {b.v}{end} after {a}",
            "first {a} {a.v}{end}, then {b}",
            "{a} {a.v} earlier than {b}{end}",
            "{b} {b.v} later than {a}{end}",
        ),
        "a b",
        pools={"a b": "someone"},
        words={"v": INTRANSITIVE},
        tenses=PAST,
        wrapped=True,
    ),
    *(
        Pattern(
            (
                "{a} {a.v} before {b} {b.w}{end}",
                "{b} {b.w} after {a} {a.v}{end}",
                "after {a} {a.v}, {b} {b.w}{end}",
                "before {b} {b.w}, {a} {a.v}{end}",
                "first {a} {a.v}, then {b} {b.w}{end}",
            ),
            swap,
            words={"v w": list(permutations(INTRANSITIVE, 2))},
            tenses=SIMPLE,
            wrapped=True,
        )
        for swap in ("a b", "v w")
    ),
]

KINDS = {
    "roles": ROLES,
    "converses": CONVERSE,
    "comparisons": COMPARISONS,
    "relatives": RELATIVES,
    "questions": QUESTIONS,
    "pronouns": PRONOUNS,
    "events": EVENTS,
}
