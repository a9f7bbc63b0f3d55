"""Templates of the validation part."""

from __future__ import annotations

from ..generate import Template

PASSIVE = {"people": "the a name kin", "plural": True}
ROLES = [
    Template("past", "{a} {v.past} {b} {place}.", "{b} {was} {v.done} by {a} {place}.", swap="a b", **PASSIVE),
    Template(
        "future",
        "{a} will {v.base} {b} {time}.",
        "{b} will be {v.done} by {a} {time}.",
        swap="a b",
        **PASSIVE,
        pools={"v": "plans"},
    ),
    Template("perfect", "{b} {has} been {v.done} by {a}.", "{a} {has} {v.done} {b}.", swap="a b", **PASSIVE),
    Template(
        "progressive",
        "{a} {is} {v.doing} {b} {place}.",
        "{b} {is} being {v.done} by {a} {place}.",
        swap="a b",
        pools={"v": "plans"},
    ),
    Template(
        "must",
        "{time}, {b} must be {v.done} by {a}.",
        "{time}, {a} must {v.base} {b}.",
        swap="a b",
        pools={"v": "plans"},
    ),
    Template(
        "cleft", "It was {a} who {v.past} {b} {time}.", "{b} {was} {v.done} by {a} {time}.", swap="a b", **PASSIVE
    ),
    Template(
        "which_one",
        "The one who {v.past} {b} {place} was {a}.",
        "{place}, {b} was {v.done} by {a}.",
        swap="a b",
    ),
    Template(
        "relative",
        "{b}, whom {a} {v.past}, {ended}.",
        "{b}, who {was} {v.done} by {a}, {ended}.",
        swap="a b",
        plural=True,
    ),
    Template("give", "{a} will give {b} {gift} {time}.", "{a} will give {gift} to {b} {time}.", swap="a b", **PASSIVE),
    Template("lend", "{a} lent {gift} to {b} {time}.", "{b} borrowed {gift} from {a} {time}.", swap="a b", **PASSIVE),
    Template(
        "sell", "{b} bought {goods} from {a} {place}.", "{a} sold {goods} to {b} {place}.", swap="a b", **PASSIVE
    ),
    Template(
        "defeat", "{a} defeated {b} in {game} {time}.", "{b} lost to {a} in {game} {time}.", swap="a b", plural=True
    ),
    Template(
        "sides", "{a} sat to the left of {b} {place}.", "{b} sat to the right of {a} {place}.", swap="a b", **PASSIVE
    ),
    Template("arrive", "{a} arrived {place} before {b}.", "{b} arrived {place} after {a}.", swap="a b", plural=True),
    Template("taller", "{a} {is} much taller than {b}.", "{b} {is} much shorter than {a}.", swap="a b", plural=True),
    Template("richer", "{b} {was} once poorer than {a}.", "{a} {was} once richer than {b}.", swap="a b", plural=True),
    Template(
        "patient", "{a} is more {mood} than {b}.", "{b} is less {mood} than {a}.", swap="a b", pools={"mood": "traits"}
    ),
    Template(
        "pronoun",
        "{a} {v.past} {b.him} {place}, and {b} {w.past} {a.him}.",
        "{b} {was} {v.done} by {a.him} {place}, and {a} {was} {w.done} by {b.him}.",
        swap="a b",
        people="pronoun",
        plural=True,
    ),
    Template(
        "everyone_knows",
        "Everyone knows that {a} {v.past} {b}.",
        "Everyone knows that {b} {was} {v.done} by {a}.",
        swap="a b",
        **PASSIVE,
    ),
    Template("question", "Did {a} {v.base} {b} {time}?", "{was} {b} {v.done} by {a} {time}?", swap="a b", **PASSIVE),
    Template(
        "want", "{a} wants to {v.base} {b}.", "What {a} wants is to {v.base} {b}.", swap="a b", pools={"v": "plans"}
    ),
]
ATTRIBUTES = [
    Template(
        "next_to",
        "The {x} {m} is next to the {y} {n}.",
        "Next to the {y} {n} is the {m}, which is {x}.",
        swap="x y",
    ),
    Template(
        "there_is",
        "There is {x.a} {m} and {y.a} {n} in the {room}.",
        "The {room} contains {y.a} {n} and {x.a} {m}.",
        swap="x y",
    ),
    Template(
        "counts",
        "{p} {m.s} and {q} {n.s} were {place}.",
        "There were {q} {n.s} and {p} {m.s} {place}.",
        swap="p q",
        pools={"m": "animals", "n": "animals"},
    ),
    Template("buy", "{a} bought {p} {m.s} and {q} {n.s}.", "{a} bought {q} {n.s} as well as {p} {m.s}.", swap="p q"),
    Template(
        "poss", "{a.poss} {m} is {x}, and {b.poss} is {y}.", "{b.poss} {m} is {y}, while {a.poss} is {x}.", swap="x y"
    ),
    Template(
        "owners",
        "{a} owns the {m}, and {b} owns the {n}.",
        "The {n} belongs to {b}, and the {m} belongs to {a}.",
        swap="a b",
    ),
    Template(
        "people",
        "The {x} {a.noun} {v.past} the {y} {b.noun}.",
        "The {b.noun} whom the {x} {a.noun} {v.past} was {y}.",
        swap="x y",
        people="the",
        pools={"x": "moods", "y": "moods"},
    ),
    Template(
        "unlike", "The {m} is {x}, but the {n} is {y}.", "Unlike the {n}, which is {y}, the {m} is {x}.", swap="x y"
    ),
    Template(
        "carry",
        "{a} carried the {x} {m}, and {b} carried the {y} {n}.",
        "The {y} {n} was carried by {b}, and the {x} {m} by {a}.",
        swap="x y",
    ),
    Template(
        "the_one",
        "The {m} that {a} bought is {x}, and the one that {b} bought is {y}.",
        "{b} bought {y.a} {m}, and {a} bought {x.a} one.",
        swap="x y",
    ),
    Template(
        "clothes",
        "The {a.noun} in the {x} {m} greeted the {b.noun} in the {y} {n}.",
        "The {b.noun} in the {y} {n} was greeted by the {a.noun} in the {x} {m}.",
        swap="x y",
        people="the",
        pools={"x": "colors", "y": "colors", "m": "clothes", "n": "clothes"},
    ),
]
NEGATION = [
    Template(
        "was_not",
        "The {d.noun} was not {d.pos} {time}.",
        "The {d.noun} was {d.neg} {time}.",
        "The {d.noun} was {d.pos} {time}.",
        pools={"d": "transient"},
    ),
    Template(
        "according",
        "According to {a}, the {d.noun} is {d.neg}.",
        "According to {a}, the {d.noun} is not {d.pos}.",
        "According to {a}, the {d.noun} is not {d.neg}.",
        pools={"d": "states"},
    ),
    Template("nobody", "Nobody {d.past} {time}.", "Not a single person {d.past} {time}.", "Somebody {d.past} {time}."),
    Template(
        "everyone",
        "Everyone {place} {d.pos.past}.",
        "Nobody {place} {d.neg.past}.",
        "Everyone {place} {d.neg.past}.",
        pools={"d": "choices"},
    ),
    Template(
        "fail", "{a} failed to {d.base}.", "{a} did not {d.base}.", "{a} managed to {d.base}.", pools={"d": "attempts"}
    ),
    Template(
        "without",
        "{a} went to the {venue} without {gift}.",
        "{a} went to the {venue} but did not bring {gift}.",
        "{a} went to the {venue} with {gift}.",
    ),
    Template(
        "neither",
        "Neither {a} nor {b} {d.past}.",
        "Both {a} and {b} failed to {d.base}.",
        "Both {a} and {b} managed to {d.base}.",
        pools={"d": "attempts"},
    ),
    Template(
        "and_not",
        "{a} and not {b} {d.past}.",
        "It was not {b} but {a} who {d.past}.",
        "It was not {a} but {b} who {d.past}.",
    ),
    Template(
        "no_longer", "{a} no longer {d.s}.", "{a} has stopped {d.doing}.", "{a} still {d.s}.", pools={"d": "habits"}
    ),
    Template(
        "no_stuff",
        "There is no {stuff} in the {vessel} in the {room}.",
        "The {vessel} in the {room} contains no {stuff}.",
        "The {vessel} in the {room} contains some {stuff}.",
    ),
    Template("false", "It is false that {a} {d.past}.", "{a} did not {d.base}.", "It is true that {a} {d.past}."),
    Template(
        "none",
        "None of the {group.s} {d.past} {time}.",
        "All of the {group.s} failed to {d.base} {time}.",
        "None of the {group.s} failed to {d.base} {time}.",
        pools={"d": "attempts"},
    ),
    Template(
        "unless",
        "Unless {a} {d.s}, {outcome}.",
        "If {a} does not {d.base}, {outcome}.",
        "If {a} {d.s}, {outcome}.",
        pools={"d": "willed"},
    ),
    Template(
        "refuse",
        "{a} refused to {d.base} {time}.",
        "{a} would not {d.base} {time}.",
        "{a} did not refuse to {d.base} {time}.",
        pools={"d": "willed"},
    ),
]
TEMPLATES = {"roles": ROLES, "attributes": ATTRIBUTES, "negation": NEGATION}
