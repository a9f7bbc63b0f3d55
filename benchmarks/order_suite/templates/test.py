"""Templates of the test part."""

from __future__ import annotations

from ..generate import Template

PASSIVE = {"people": "the a name kin", "plural": True}
ROLES = [
    Template(
        "present",
        "{a} often {v.s} {b} {place}.",
        "{b} is often {v.done} by {a} {place}.",
        swap="a b",
        people="the a name kin",
        pools={"v": "ongoing"},
    ),
    Template(
        "past_perfect", "{b} had been {v.done} by {a} {time}.", "{a} had {v.done} {b} {time}.", swap="a b", **PASSIVE
    ),
    Template(
        "past_progressive",
        "{a} {was} {v.doing} {b} when {event}.",
        "When {event}, {b} {was} being {v.done} by {a}.",
        swap="a b",
        **PASSIVE,
        pools={"v": "ongoing"},
    ),
    Template("may_have", "{a} may have {v.done} {b}.", "{b} may have been {v.done} by {a}.", swap="a b", **PASSIVE),
    Template(
        "going_to",
        "{b} {is} going to be {v.done} by {a} {time}.",
        "{a} {is} going to {v.base} {b} {time}.",
        swap="a b",
        **PASSIVE,
    ),
    Template(
        "get",
        "{b} got {v.done} by {a} {place}.",
        "It was {b} that {a} {v.past} {place}.",
        swap="a b",
        **PASSIVE,
        pools={"v": "harm"},
    ),
    Template(
        "cleft_object", "It was {b} that {a} {v.past} {time}.", "{time}, {a} {v.past} {b}.", swap="a b", **PASSIVE
    ),
    Template(
        "having", "{a}, who had {v.done} {b}, {fled}.", "Having {v.done} {b}, {a} {fled}.", swap="a b", plural=True
    ),
    Template("offer", "{b} {was} offered {gift} by {a}.", "{a} offered {gift} to {b}.", swap="a b", **PASSIVE),
    Template("receive", "{a} sent {b} {gift}.", "{b} received {gift} from {a}.", swap="a b", **PASSIVE),
    Template(
        "teach", "{a} taught {b} {subject} {place}.", "{b} learned {subject} from {a} {place}.", swap="a b", **PASSIVE
    ),
    Template(
        "precede", "{b} followed {a} into the {room}.", "{a} preceded {b} into the {room}.", swap="a b", **PASSIVE
    ),
    Template("parent", "{a} is a parent of {b}.", "{b} is a child of {a}.", swap="a b", people="the name"),
    Template(
        "as_strong", "{a} {is} not as {degree.pos} as {b}.", "{b} {is} {degree.neg} than {a}.", swap="a b", plural=True
    ),
    Template("faster", "{a} {pace.s} faster than {b}.", "{b} {pace.s} more slowly than {a}.", swap="a b"),
    Template(
        "in_front", "{a} stood in front of {b} {time}.", "{b} {was} standing behind {a} {time}.", swap="a b", **PASSIVE
    ),
    Template(
        "the_one_whom",
        "The one whom {a} {v.past} {time} was {b}.",
        "{b} was the one {v.done} by {a} {time}.",
        swap="a b",
    ),
    Template(
        "rather", "{a} {v.past} {b} rather than {c}.", "{b}, not {c}, {was} {v.done} by {a}.", swap="b c", **PASSIVE
    ),
    Template("ask", "{a} asked {b} to {task}.", "{b} {was} asked by {a} to {task}.", swap="a b", **PASSIVE),
    Template("write", "The {mail} to {b} was written by {a}.", "{a} wrote the {mail} to {b}.", swap="a b", **PASSIVE),
    Template(
        "pronoun_when",
        "When {a} {v.past} {b.him}, {b} {w.past} {a.him}.",
        "When {b} {was} {v.done} by {a.him}, {a} {was} {w.done} by {b.him}.",
        swap="a b",
        people="pronoun",
        plural=True,
    ),
    Template(
        "whether",
        "They asked whether {a} had {v.done} {b}.",
        "They asked whether {b} had been {v.done} by {a}.",
        swap="a b",
        **PASSIVE,
    ),
    Template(
        "make",
        "{a} made {b} {reaction.base} {time}.",
        "{b} {reaction.past} {time} because of {a}.",
        swap="a b",
        **PASSIVE,
    ),
]
ATTRIBUTES = [
    Template("under", "The {x} {m} lies under the {y} {n}.", "The {y} {n} lies on top of the {x} {m}.", swap="x y"),
    Template(
        "former",
        "Of the {m} and the {n}, the former is {x} and the latter is {y}.",
        "The {n} is {y}; the {m} is {x}.",
        swap="x y",
    ),
    Template(
        "keep",
        "{a} keeps {p} {m.s} and {q} {n.s} in the {room}.",
        "In the {room}, {a} has {q} {n.s} and {p} {m.s}.",
        swap="p q",
        pools={"m": "animals", "n": "animals"},
    ),
    Template(
        "more",
        "There are more {m.s} than {n.s} in the {room}.",
        "There are fewer {n.s} than {m.s} in the {room}.",
        swap="m n",
    ),
    Template(
        "paint_counts",
        "{a} painted {p} {m.s}, and {b} painted {q}.",
        "{q} {m.s} were painted by {b}, and {p} by {a}.",
        swap="p q",
        pools={"m": "painted"},
    ),
    Template(
        "beside", "{a.poss} {m} lay beside {b.poss} {n}.", "The {n} of {b} lay beside the {m} of {a}.", swap="a b"
    ),
    Template(
        "wait",
        "The {x} {a.noun} waited for the {y} {b.noun} {place}.",
        "The {b.noun} for whom the {x} {a.noun} waited {place} was {y}.",
        swap="x y",
        people="the",
        pools={"x": "moods", "y": "moods"},
    ),
    Template(
        "paint",
        "{a} painted the {m} {x} and the {n} {y}.",
        "The {n} was painted {y} and the {m} {x} by {a}.",
        swap="x y",
        pools={"x": "colors", "y": "colors", "m": "painted", "n": "painted"},
    ),
    Template(
        "materials",
        "A {x} {m} and a {y} {n} were {place}.",
        "A {m} made of {x} and a {n} made of {y} were {place}.",
        swap="x y",
        pools=dict(x="materials", y="materials", m="cast", n="cast"),
    ),
    Template(
        "of_two",
        "Of these {m.s}, the {x} one is {a.poss} and the {y} one {b.poss}.",
        "{b} has the {y} {m}, and {a} the {x} {m}.",
        swap="x y",
    ),
    Template(
        "wearing",
        "{a} was wearing {x.a} {m}, and {b} was wearing {y.a} {n}.",
        "{b.poss} {n} was {y}, and {a.poss} {m} was {x}.",
        swap="x y",
        pools={"x": "colors", "y": "colors", "m": "clothes", "n": "clothes"},
    ),
]
NEGATION = [
    Template(
        "is_not",
        "{a} says that the {d.noun} is not {d.neg}.",
        "{a} says that the {d.noun} is {d.pos}.",
        "{a} says that the {d.noun} is {d.neg}.",
        pools={"d": "states"},
    ),
    Template(
        "anything_but",
        "{a} thought that the {d.noun} was anything but {d.pos}.",
        "{a} thought that the {d.noun} was {d.neg}.",
        "{a} thought that the {d.noun} was {d.pos}.",
        pools={"d": "qualities"},
    ),
    Template("never", "{a} never {d.s}.", "At no time does {a} {d.base}.", "{a} always {d.s}.", pools={"d": "habits"}),
    Template(
        "nothing",
        "There was nothing in {a.poss} {case}.",
        "{a.poss} {case} did not have anything in it.",
        "There was something in {a.poss} {case}.",
    ),
    Template(
        "not_all",
        "Not all of the {group.s} {d.past}.",
        "Some of the {group.s} did not {d.base}.",
        "All of the {group.s} {d.past}.",
    ),
    Template("only", "Only {a} {d.past}.", "Nobody except {a} {d.past}.", "Everybody except {a} {d.past}."),
    Template(
        "lack",
        "The {house} {site} lacks {part.a}.",
        "The {house} {site} does not have {part.a}.",
        "The {house} {site} has {part.a}.",
    ),
    Template(
        "unable",
        "{a} is unable to {skill}.",
        "{a} cannot {skill}.",
        "{a} is able to {skill}.",
        pools={"skill": "skills"},
    ),
    Template(
        "instead",
        "{a} chose {m.a} instead of {n.a}.",
        "{a} did not choose {n.a} but {m.a}.",
        "{a} did not choose {m.a} but {n.a}.",
    ),
    Template(
        "double",
        "It is not the case that {a} did not {d.base}.",
        "{a} did in fact {d.base}.",
        "It is the case that {a} did not {d.base}.",
    ),
    Template(
        "deny",
        "{a} denied having {d.done}.",
        "{a} claimed not to have {d.done}.",
        "{a} admitted having {d.done}.",
        pools={"d": "crimes"},
    ),
    Template(
        "avoid",
        "{a} avoided {d.doing}.",
        "{a} chose not to {d.base}.",
        "{a} insisted on {d.doing}.",
        pools={"d": "willed"},
    ),
    Template(
        "did_not",
        "{time}, {a} did not {d.pos.base}.",
        "{time}, {a} {d.neg.past}.",
        "{time}, {a} {d.pos.past}.",
        pools={"d": "choices"},
    ),
    Template(
        "hardly",
        "Hardly any of the {group.s} {d.past}.",
        "Very few of the {group.s} {d.past}.",
        "Nearly all of the {group.s} {d.past}.",
    ),
    Template(
        "unlike_scope", "{a} {d.past}, but {b} did not.", "Unlike {b}, {a} {d.past}.", "Unlike {a}, {b} {d.past}."
    ),
]
TEMPLATES = {"roles": ROLES, "attributes": ATTRIBUTES, "negation": NEGATION}
