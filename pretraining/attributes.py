"""Patterns whose foils exchange what is said of two things, or who has which of them."""

from __future__ import annotations

from .patterns import PAST, SIMPLE, Pattern, expand
from .swaps import SIDES

NEARNESS = "next to,beside,near,close to,not far from,alongside,touching,opposite,the same size as".split(",")
FRAMES = ["there {m.is} ", "we saw ", "I like ", "she bought ", "he described ", "they need ", "the picture shows "]
ATTRIBUTES = [
    Pattern(
        (
            "there {all.is} {p} {m.pl} and {q} {n.pl}{end}",
            "there {all.is} {q} {n.pl} and {p} {m.pl}{end}",
            "{start}there {all.is} {p} {m.pl} as well as {q} {n.pl}",
        ),
        "p q",
        tenses=SIMPLE,
    ),
    Pattern(
        expand("({saw}|{start}{saw}) {p} {m.pl} and {q} {n.pl}", "{saw} {q} {n.pl} and {p} {m.pl}{end}"),
        "p q",
        words={"saw": "we saw,she counted,he sold,the shop has,they found".split(",")},
    ),
    Pattern(
        (
            "the number of {m.pl}{end} {it.is} {p} and the number of {n.pl} {it.is} {q}",
            "there {all.is} {q} {n.pl} and {p} {m.pl}{end}",
            "there {all.is} {p} {m.pl} but {q} {n.pl}{end}",
        ),
        "p q",
        pools={"p q": "cardinal"},
        tenses=SIMPLE,
    ),
    Pattern(
        (
            "{m.with_x} {m.is} {by} {n.with_y}{end}",
            "{n.with_y} {n.is} {by} {m.with_x}{end}",
            "{start}{m.with_x} {m.is} {by} {n.with_y}",
            "{m} that {m.is} {x} {m.is} {by} {n} that {n.is} {y}{end}",
            "{n}, which {n.is} {y}, {n.is} {by} {m}, which {m.is} {x}{end}",
        ),
        "x y",
        words={"by": NEARNESS},
        tenses=SIMPLE,
        weight=2,
    ),
    Pattern(
        (
            "{frame}{m.with_x} {also} {n.with_y}{end}",
            "{frame}{n.with_y} {also} {m.with_x}{end}",
            "{frame}{m} that {m.is} {x} {also} {n} that {n.is} {y}{end}",
            "{frame}{n.with_y} {also} {m} that {m.is} {x}{end}",
        ),
        "x y",
        words={"frame": FRAMES, "also": ["and", "and", "as well as", "together with"]},
        tenses=SIMPLE,
        weight=3,
    ),
    Pattern(
        ("{m.with_x} {m.is} {near} {n.with_y}{end}", "{n.with_y} {n.is} {far} {m.with_x}{end}"),
        "x y",
        words={"near far": SIDES},
        tenses=SIMPLE,
    ),
    Pattern(
        (
            "{m} {m.is} {x} and {n} {n.is} {y}{end}",
            "{n} {n.is} {y} and {m} {m.is} {x}{end}",
            "there {m.is} {m.some_x} and {n.some_y}{end}",
            "{m}{end} {m.is} {x}, but {n} {n.is} {y}",
            "while {n} {n.is} {y}, {m} {m.is} {x}{end}",
        ),
        "x y",
        tenses=SIMPLE,
        weight=3,
    ),
    Pattern(
        (
            "{m.with_x} {m.v} {n.with_y}{end}",
            "{n.with_y} {n.v_en} by {m.with_x}{end}",
            "{start}{m.with_x} {m.v} {n.with_y}",
            "{m}, which {m.is} {x}, {m.v} {n.with_y}{end}",
            "{n.with_y} {n.v_en} by {m} that {m.is} {x}{end}",
        ),
        "x y",
        weight=2,
    ),
    Pattern(
        (
            "{m} {m.is} more {x} than {y}{end}",
            "{m} {m.is} less {y} than {x}{end}",
            "{m} {m.is} {x} rather than {y}{end}",
        ),
        "x y",
        tenses=SIMPLE,
        weight=0.5,
    ),
    Pattern(
        (
            "{m} {m.is} {x} at first and {y} later{end}",
            "{m} {m.is} {y} after having been {x}{end}",
            "{m} {m.is} {x} before becoming {y}{end}",
            "{start}{m} went from {x} to {y}",
        ),
        "x y",
        tenses=PAST,
        weight=0.5,
    ),
]

AND = ["and", "but", "while"]
DEEDS = {"a b": "someone", "m n": "object", "v": "deed"}
BINDINGS = [
    Pattern(
        (
            "{a} {a.v} {m.with_x}, {link} {b} {b.v} {n.with_y}{end}",
            "{b} {b.v} {n.with_y}, {link} {a} {a.v} {m.with_x}{end}",
            "{n.with_y} {n.v_en} by {b.o}, {link} {m.with_x} {m.v_en} by {a.o}{end}",
            "{m} that {a} {a.v} {m.is} {x}, {link} {n} that {b} {b.v} {n.is} {y}{end}",
        ),
        "x y",
        pools=DEEDS,
        words={"link": AND},
        weight=2,
    ),
    Pattern(
        (
            "{a} {a.v} a {x} {k}, {link} {b} {b.v} a {y} one{end}",
            "{b} {b.v} a {y} {k}, {link} {a} {a.v} a {x} one{end}",
            "the {k} that {a} {a.v} {it.is} {x}, {link} the one that {b} {b.v} {it.is} {y}{end}",
        ),
        "x y",
        pools={"a b": "someone", "v": "deed"},
        words={"link": AND},
    ),
    Pattern(
        (
            "{a} {a.v} {m}, {link} {b} {b.v} {n}{end}",
            "{n} {n.v_en} by {b.o}, {link} {m} {m.v_en} by {a.o}{end}",
            "{b} {b.v} {n}{end}, {link} {a} {a.v} {m}",
            "{it} {it.is} {n} that {b} {b.v}{end}, {link} {m} that {a} {a.v}",
            "{m} {m.v_en} by {a.o} {link} {n} by {b.o}{end}",
        ),
        "a b",
        pools=DEEDS,
        words={"link": AND},
        weight=2,
    ),
    Pattern(
        (
            "{a} {a.v} {m} {link} {b} {b.v} {n}{end}",
            "{n} {n.u} {b.o}{end} {link} {m} {m.u} {a.o}",
            "{m} {m.u} {a.o} {link} {n} {n.u} {b.o}{end}",
        ),
        "a b",
        pools={"a b": "someone", "m n": "object"},
        words={"link": AND, "v u": [("own", "belong to"), ("have", "belong to")]},
        tenses=SIMPLE,
    ),
    Pattern(
        (
            "{frame}{b.s} {n.bare_y} and {a.s} {m.bare_x}{end}",
            "{frame}{a.s} {m.bare_x} and {b.s} {n.bare_y}{end}",
            "{frame}{a.s} {m.noun}, which {m.is} {x}, and {b.s} {n.noun}, which {n.is} {y}{end}",
        ),
        "x y",
        pools={"a b": "someone", "m n": "object"},
        words={"frame": FRAMES[1:]},
        tenses=SIMPLE,
    ),
    Pattern(
        (
            "{a.s} {m.noun} {m.is} {x} {link} {b.s} {n.noun} {n.is} {y}{end}",
            "{b.s} {n.noun} {n.is} {y}{end} {link} {a.s} {m.noun} {m.is} {x}",
            "{b} {b.has} {n.some_y}{end} {link} {a} {a.has} {m.some_x}",
        ),
        "x y",
        pools={"a b": "someone", "m n": "object"},
        words={"link": AND},
        tenses=SIMPLE,
        weight=2,
    ),
    Pattern(
        (
            "{a.s} {k} {it.is} {x} {link} {b.s} {it.is} {y}{end}",
            "{b.s} {k} {it.is} {y} {link} {a.s} {it.is} {x}{end}",
            "{b} {b.has} a {y} {k} {link} {a} {a.has} a {x} one{end}",
        ),
        "x y",
        pools={"a b": "someone"},
        words={"link": AND},
        tenses=SIMPLE,
        weight=2,
    ),
    Pattern(
        (
            "{a} {a.v} {p} {m.pl} and {q} {n.pl}{end}",
            "{a} {a.v} {q} {n.pl} and {p} {m.pl}{end}",
            "{q} {n.pl} and {p} {m.pl} {all.v_en} by {a.o}{end}",
            "{a} {a.v} {q} {n.pl}, together with {p} {m.pl}{end}",
        ),
        "p q",
        pools={"m n": "object", "v": "deed"},
    ),
    Pattern(
        (
            "{a} {a.v} {p} {m.pl} {link} {b} {b.v} {q}{end}",
            "{b} {b.v} {q} {m.pl}{end} {link} {a} {a.v} {p}",
            "{start}{b} {b.v} {q} {m.pl} {link} {a} {a.v} {p}",
        ),
        "p q",
        pools={"a b": "someone", "m": "object", "v": "deed"},
        words={"link": AND},
    ),
]
KINDS = {"attributes": ATTRIBUTES, "bindings": BINDINGS}
