"""Patterns of negation: their foils say the opposite."""

from __future__ import annotations

from .patterns import PAST, SIMPLE, Pattern, expand

DEGREES = ["", "", "", "", "really ", "very ", "quite ", "so ", "clearly ", "always ", "often "]
MODALS = "will,would,can,could,should,must,might".split(",")
ADJECTIVES = {"x y": "opposites"}
ANTONYMS = [
    Pattern(
        (
            *["{c} {c.is} {degree}{x}{end}"] * 3,
            *expand(
                "{c} {c.is}( not |n't ){degree}{y}{end}", "{c} {c.is} (in no way|by no means|anything but) {y}{end}"
            ),
            "it is not true that {c} {c.is} {y}{end}",
            "{start}{c} {c.is} {degree}{x}",
            "{start}{c} {c.is} not {degree}{y}",
        ),
        "x y",
        pools=ADJECTIVES,
        words={"degree": DEGREES},
        tenses=SIMPLE,
        weight=4,
    ),
    Pattern(
        (
            *["{c} {c.v} {degree}{x}{end}"] * 2,
            *expand("{c} {c.do}( not |n't ){v.base} {degree}{y}{end}"),
            "{c} never {c.v} {degree}{y}{end}",
        ),
        "x y",
        pools=ADJECTIVES,
        words={"v": "seem,look,stay,become,remain,sound,appear,prove".split(","), "degree": DEGREES[:8]},
        tenses=SIMPLE,
        weight=2,
    ),
    Pattern(
        (
            *["{c} {may} be {x}{end}"] * 2,
            "{c} {may} not be {y}{end}",
            "{start}{c} {may} not be {y}",
            "{c} {may} hardly be {y}{end}",
        ),
        "x y",
        pools=ADJECTIVES,
        words={"may": ["will", "would", "must", "should"]},
    ),
    Pattern(
        ("{c} {c.has} been {x}{end}", "{c} {c.has} not been {y}{end}", "{c} {c.has} never been {y}{end}"),
        "x y",
        pools=ADJECTIVES,
        tenses={"perfect": 2, "pluperfect": 1},
    ),
    Pattern(
        (
            "{a} {a.v} a {x} {k}{end}",
            "{a} {a.v} a {k} that {it.is} {x}{end}",
            "{a} {a.v} a {k} that {it.is} not {y}{end}",
            "a {k} that {it.is} not {y} {it.v_en} by {a.o}{end}",
        ),
        "x y",
        pools=ADJECTIVES | {"v": "deed"},
        tenses=SIMPLE,
        weight=2,
    ),
    Pattern(
        (
            "{a} {a.v} {c.o} {x}{end}",
            "{c} {c.v_en} {x} by {a.o}{end}",
            *expand("{a} {a.do}( not |n't ){v.base} {c.o} {y}{end}"),
        ),
        "x y",
        pools=ADJECTIVES,
        words={"v": "find,consider,call,keep,think,believe".split(",")},
        tenses=SIMPLE,
    ),
    Pattern(
        (
            "{c} {c.is} {x} and not {y}{end}",
            "{c} {c.is} not {y} but {x}{end}",
            "far from being {y}, {c} {c.is} {x}{end}",
        ),
        "x y",
        pools=ADJECTIVES,
        tenses=SIMPLE,
    ),
]
VERBS = {"v u": "opposite verbs"}
OPPOSITE_VERBS = [
    Pattern(
        (
            *["{a} {a.v} {c.o}{end}"] * 2,
            *expand("{a} {a.do}( not |n't ){u.base} {c.o}{end}"),
            "{c} {c.v_en} by {a.o}{end}",
            "{c} {c.is} not {u.done} by {a.o}{end}",
        ),
        "v u",
        pools=VERBS,
        tenses=SIMPLE,
        weight=3,
    ),
    Pattern(
        (
            *["{a} {may} {v.base} {c.o}{end}"] * 2,
            "{a} {may} not {u.base} {c.o}{end}",
            "{a} {may} never {u.base} {c.o}{end}",
        ),
        "v u",
        pools=VERBS,
        words={"may": MODALS},
    ),
    Pattern(
        (
            "{a} {a.is} {v.doing} {c.o}{end}",
            "{a} {a.is} not {u.doing} {c.o}{end}",
            "{c} {c.is} being {v.done} by {a.o}{end}",
        ),
        "v u",
        pools=VERBS,
        tenses={"progressive": 1, "past progressive": 1},
    ),
]
VERB_NEGATION = [
    Pattern(
        (
            *expand("{a} {a.do}( not |n't ){v.base} {c.o}{end}"),
            "{a} never {a.v} {c.o}{end}",
            "{c} {c.is} not {v.done} by {a.o}{end}",
            "{c} {c.is} never {v.done} by {a.o}{end}",
            *expand("it is (false|wrong|untrue|a lie|not true|not the case) that {a} {a.v} {c.o}{end}"),
            "{start}{a} {a.do} not {v.base} {c.o}",
        ),
        other=(
            "{a} {a.v} {c.o}{end}",
            "{c} {c.v_en} by {a.o}{end}",
            *expand("it is (true|right|correct|a fact|the case) that {a} {a.v} {c.o}{end}"),
            "{start}{a} {a.v} {c.o}",
        ),
        tenses=SIMPLE,
        weight=3,
    ),
    Pattern(
        expand("{a} {may} (not|never) {v.base} {c.o}{end}", "{c} {may} (not|never) be {v.done} by {a.o}{end}"),
        other=("{a} {may} {v.base} {c.o}{end}", "{c} {may} be {v.done} by {a.o}{end}"),
        words={"may": MODALS},
    ),
    Pattern(
        expand(
            "{a} {a.has}( not|n't| never) {v.done} {c.o}{end}", "{c} {c.has} (not|never) been {v.done} by {a.o}{end}"
        ),
        other=("{a} {a.has} {v.done} {c.o}{end}", "{c} {c.has} been {v.done} by {a.o}{end}"),
        tenses={"perfect": 2, "pluperfect": 1},
    ),
    Pattern(
        expand("{a} {a.is}( not|n't) {v.doing} {c.o}{end}", "{c} {c.is} not being {v.done} by {a.o}{end}"),
        other=("{a} {a.is} {v.doing} {c.o}{end}", "{c} {c.is} being {v.done} by {a.o}{end}"),
        tenses={"progressive": 1, "past progressive": 1},
    ),
    Pattern(
        expand("{a} (left|went away|came back|stayed) without {v.doing} {c.o}{end}"),
        other=("{a} left after {v.doing} {c.o}{end}", "{a} went away having {v.done} {c.o}{end}"),
        weight=0.5,
    ),
]
QUANTIFIERS = [
    Pattern(
        expand(
            "(nobody|no one|not a single person) {it.v} {c.o}{end}",
            "{c} {c.is} not {v.done} by (anyone|anybody){end}",
            "there {it.is} nobody who {it.v} {c.o}{end}",
        ),
        other=expand("(somebody|someone) {it.v} {c.o}{end}", "{c} {c.v_en} by (somebody|someone){end}"),
        tenses=SIMPLE,
    ),
    Pattern(
        ("none of the {g.pl} {v.past} {c.o}{end}", "no {g} {v.past} {c.o}{end}", "not one {g} {v.past} {c.o}{end}"),
        other=(
            "some {g.pl} {v.past} {c.o}{end}",
            "several {g.pl} {v.past} {c.o}{end}",
            "a few of the {g.pl} {v.past} {c.o}{end}",
        ),
        tenses=PAST,
    ),
    Pattern(
        expand("(all the {g.pl}|every {g}|each of the {g.pl}|every single {g}) {v.past} {c.o}{end}"),
        other=expand("(not all the {g.pl}|only some of the {g.pl}|not every {g}) {v.past} {c.o}{end}"),
        tenses=PAST,
    ),
    Pattern(
        expand("(most|the majority|more than half) of the {g.pl} {v.past} {c.o}{end}"),
        other=expand("(few|a minority|less than half) of the {g.pl} {v.past} {c.o}{end}"),
        tenses=PAST,
    ),
    Pattern(
        (
            "the {g} never {v.past} {c.o}{end}",
            "the {g} did not {v.base} {c.o} at any time{end}",
            "at no time did the {g} {v.base} {c.o}{end}",
        ),
        other=("the {g} always {v.past} {c.o}{end}", "the {g} {v.past} {c.o} every time{end}"),
        tenses=PAST,
    ),
    Pattern(
        expand("the {g} (rarely|seldom|hardly ever|almost never) {v.past} {c.o}{end}"),
        other=expand("the {g} (frequently|often|very often|regularly) {v.past} {c.o}{end}"),
        tenses=PAST,
    ),
    Pattern(
        ("{a} came without {t}{end}", "{a} did not have {t}{end}", "{a} had no {t.noun}{end}", "{a} lacked {t}{end}"),
        other=("{a} came with {t}{end}", "{a} had {t}{end}", "{a} brought {t}{end}"),
    ),
    Pattern(
        expand(
            "{a} {v.past}{end} without {t}",
            "{a} {v.past}{end} but did not have {t}",
            "{a}, who had no {t.noun}, {v.past}{end}",
            "{a} {v.past}{end} and (took no {t.noun}|lacked {t})",
            "{a} did not take {t} and {v.past}{end}",
        ),
        other=expand(
            "{a} {v.past}{end} with {t}",
            "{a} {v.past}{end} and did have {t}",
            "{a}, who had {t}, {v.past}{end}",
            "{a} {v.past}{end} and took {t}",
            "{a} took {t} and {v.past}{end}",
        ),
        pools={"a": "someone"},
        words={"v": "go,come,leave,return,travel,walk,work,sleep,drive,stay,live,run,swim,arrive".split(",")},
    ),
    Pattern(
        (
            "only {a} {a.v} {c.o}{end}",
            "nobody except {a.o} {it.v} {c.o}{end}",
            "{a} {a.is} the only one who {it.v} {c.o}{end}",
        ),
        other=expand("(everybody|everyone) (except|but) {a.o} {it.v} {c.o}{end}"),
        pools={"a": "individual"},
        tenses=PAST,
    ),
]
NOT_DONE = expand(
    "{a} (failed|refused|declined|neglected|forgot|omitted|did not manage|came too late) to {v.base} {c.o}{end}",
    "{a} did(n't| not) {v.base} {c.o}{end}",
    "{a} (avoided|stopped short of) {v.doing} {c.o}{end}",
    "{a} never {v.past} {c.o}{end}",
)
DONE = expand(
    "{a} (managed|remembered|agreed|did not fail|did not forget|did not neglect) to {v.base} {c.o}{end}",
    "{a} did {v.base} {c.o}{end}",
    "{a} (succeeded in|ended up|insisted on) {v.doing} {c.o}{end}",
    "{a} {v.past} {c.o}{end}",
)
IMPLICATIVES = [
    Pattern(NOT_DONE, other=DONE, tenses=PAST, wrapped=True),
    Pattern(
        (
            *expand(
                "{a} (stopped|gave up|quit) {v.doing} {c.o}{end}",
                "{a} {a.do} not {v.base} {c.o} any (more|longer){end}",
            ),
            "{a} no longer {a.v} {c.o}{end}",
            "{a} ceased to {v.base} {c.o}{end}",
        ),
        other=(
            "{a} still {a.v} {c.o}{end}",
            "{a} kept {v.doing} {c.o}{end}",
            "{a} continued to {v.base} {c.o}{end}",
            "{a} went on {v.doing} {c.o}{end}",
            "{a} {a.do} not stop {v.doing} {c.o}{end}",
            "{a} {a.v} {c.o} as before{end}",
        ),
        tenses={"present": 1},
        wrapped=True,
    ),
    Pattern(
        expand("{a} (started|began) {v.doing} {c.o}{end}", "{a} began to {v.base} {c.o}{end}"),
        other=expand("{a} did not (start|begin) {v.doing} {c.o}{end}", "{a} never began to {v.base} {c.o}{end}"),
        wrapped=True,
        weight=0.5,
    ),
    Pattern(
        expand(
            "{b} (prevented|stopped|kept) {a.o} from {v.doing} {c.o}{end}",
            "{b} did not (let {a.o}|allow {a.o} to) {v.base} {c.o}{end}",
        ),
        other=expand("{b} let {a.o} {v.base} {c.o}{end}", "{b} (allowed|helped) {a.o} to {v.base} {c.o}{end}"),
        wrapped=True,
        weight=0.5,
    ),
]
NEITHER = (
    "neither {a} nor {b} {v.past} {c.o}{end}",
    "{a} did not {v.base} {c.o}{end}, and {b} did not either",
    "both {a} and {b} did not {v.base} {c.o}{end}",
    "{c} {c.is} {v.done} neither by {a.o} nor by {b.o}{end}",
    "both {a} and {b} failed to {v.base} {c.o}{end}",
    "{a} and {b} never {v.past} {c.o}{end}",
)
BOTH = (
    "both {a} and {b} {v.past} {c.o}{end}",
    "{c} {c.is} {v.done} by both {a.o} and {b.o}{end}",
    "{a} {v.past} {c.o}{end}, and so did {b}",
    "{a} as well as {b} managed to {v.base} {c.o}{end}",
    "not only {a} but also {b} {v.past} {c.o}{end}",
)
ONLY_ONE = (
    "{a} but not {b} {v.past} {c.o}{end}",
    "{a} {v.past} {c.o}{end}, but {b} did not",
    "{b} did not {v.base} {c.o}{end}, but {a} did",
    "it was {a} and not {b} who {v.past} {c.o}{end}",
    "not {b} but {a} {v.past} {c.o}{end}",
    "{c} {c.is} {v.done} by {a.o}, not by {b.o}{end}",
    "{a}, unlike {b.o}, {v.past} {c.o}{end}",
    "instead of {b.o}, {a} {v.past} {c.o}{end}",
)
PEOPLE = {"a b": "someone"}
BOTH_OR_NEITHER = [
    Pattern(NEITHER, other=BOTH, pools=PEOPLE, tenses=PAST, weight=2),
    Pattern(ONLY_ONE, "a b", pools=PEOPLE, tenses=PAST, weight=1.5),
    Pattern(
        expand(
            "(none|not one|not a single one) of the {g.pl} {v.past} {c.o}{end}",
            "(all of the|all the) {g.pl} failed to {v.base} {c.o}{end}",
            "the {g.pl} all refused to {v.base} {c.o}{end}",
        ),
        other=expand(
            "none of the {g.pl} failed to {v.base} {c.o}{end}",
            "(all of the {g.pl}|every one of the {g.pl}|the {g.pl} all) {v.past} {c.o}{end}",
        ),
        tenses=PAST,
    ),
    Pattern(
        (
            "{a} {v.past} {m} but not {n}{end}",
            "{a} {v.past} {m} instead of {n}{end}",
            "{a} did not {v.base} {n}{end} but {m}",
        ),
        "m n",
        pools={"m n": "object", "v": "deed"},
        tenses=PAST,
        weight=0.5,
    ),
]
THEN = "{d} {may} {w.base} {c.o}"
CONDITIONS = [
    Pattern(
        (
            f"unless {{a}} {{a.v}} {{b.o}}, {THEN}",
            f"if {{a}} {{a.do}} not {{v.base}} {{b.o}}, {THEN}",
            f"{THEN} unless {{a}} {{a.v}} {{b.o}}",
            f"{THEN} if {{a}} {{a.do}} not {{v.base}} {{b.o}}",
        ),
        other=(
            f"unless {{a}} {{a.do}} not {{v.base}} {{b.o}}, {THEN}",
            f"if {{a}} {{a.v}} {{b.o}}, {THEN}",
            f"{THEN} unless {{a}} {{a.do}} not {{v.base}} {{b.o}}",
            f"{THEN} if {{a}} {{a.v}} {{b.o}}",
        ),
        pools={"a d": "someone", "b": "either"},
        words={"may": MODALS},
        tenses={"present": 1},
    ),
]
KINDS = {
    "antonyms": ANTONYMS,
    "opposite_verbs": OPPOSITE_VERBS,
    "verb_negation": VERB_NEGATION,
    "quantifiers": QUANTIFIERS,
    "implicatives": IMPLICATIVES,
    "both": BOTH_OR_NEITHER,
    "conditions": CONDITIONS,
}
