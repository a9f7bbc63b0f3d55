"""Templates of the test part."""

from __future__ import annotations

from ..generate import templates

ROLES = templates(
    """
    present [people=the a name kin; v=ongoing]: {a} often {v.s} {b} {place}. | {b} is often {v.done} by {a} {place}.
    past_perfect [people=the a name kin; plural]: {b} had been {v.done} by {a} {time}. | {a} had {v.done} {b} {time}.
    past_progressive [people=the a name kin; plural; v=ongoing]: {a} {was} {v.doing} {b} when {event}. |
        When {event}, {b} {was} being {v.done} by {a}.
    may_have [people=the a name kin; plural]: {a} may have {v.done} {b}. | {b} may have been {v.done} by {a}.
    going_to [people=the a name kin; plural]: {b} {is} going to be {v.done} by {a} {time}. |
        {a} {is} going to {v.base} {b} {time}.
    get [people=the a name kin; plural; v=harm]: {b} got {v.done} by {a} {place}. |
        It was {b} that {a} {v.past} {place}.
    cleft_object [people=the a name kin; plural]: It was {b} that {a} {v.past} {time}. | {time}, {a} {v.past} {b}.
    having [plural]: {a}, who had {v.done} {b}, {fled}. | Having {v.done} {b}, {a} {fled}.
    offer [people=the a name kin; plural]: {b} {was} offered {gift} by {a}. | {a} offered {gift} to {b}.
    receive [people=the a name kin; plural]: {a} sent {b} {gift}. | {b} received {gift} from {a}.
    teach [people=the a name kin; plural]: {a} taught {b} {subject} {place}. | {b} learned {subject} from {a} {place}.
    precede [people=the a name kin; plural]: {b} followed {a} into the {room}. | {a} preceded {b} into the {room}.
    parent [people=the name]: {a} is a parent of {b}. | {b} is a child of {a}.
    as_strong [plural]: {a} {is} not as {degree.pos} as {b}. | {b} {is} {degree.neg} than {a}.
    faster: {a} {pace.s} faster than {b}. | {b} {pace.s} more slowly than {a}.
    in_front [people=the a name kin; plural]: {a} stood in front of {b} {time}. | {b} {was} standing behind {a} {time}.
    the_one_whom: The one whom {a} {v.past} {time} was {b}. | {b} was the one {v.done} by {a} {time}.
    rather [swap=b c; people=the a name kin; plural]: {a} {v.past} {b} rather than {c}. |
        {b}, not {c}, {was} {v.done} by {a}.
    ask [people=the a name kin; plural]: {a} asked {b} to {task}. | {b} {was} asked by {a} to {task}.
    write [people=the a name kin; plural]: The {mail} to {b} was written by {a}. | {a} wrote the {mail} to {b}.
    pronoun_when [people=pronoun; plural]: When {a} {v.past} {b.him}, {b} {w.past} {a.him}. |
        When {b} {was} {v.done} by {a.him}, {a} {was} {w.done} by {b.him}.
    whether [people=the a name kin; plural]: They asked whether {a} had {v.done} {b}. |
        They asked whether {b} had been {v.done} by {a}.
    make [people=the a name kin; plural]: {a} made {b} {reaction.base} {time}. |
        {b} {reaction.past} {time} because of {a}.
    """,
    "a b",
)
ATTRIBUTES = templates(
    """
    under: The {x} {m} lies under the {y} {n}. | The {y} {n} lies on top of the {x} {m}.
    former: Of the {m} and the {n}, the former is {x} and the latter is {y}. | The {n} is {y}; the {m} is {x}.
    keep [swap=p q; m=animals; n=animals]: {a} keeps {p} {m.s} and {q} {n.s} in the {room}. |
        In the {room}, {a} has {q} {n.s} and {p} {m.s}.
    more [swap=m n]: There are more {m.s} than {n.s} in the {room}. | There are fewer {n.s} than {m.s} in the {room}.
    paint_counts [swap=p q; m=painted]: {a} painted {p} {m.s}, and {b} painted {q}. |
        {q} {m.s} were painted by {b}, and {p} by {a}.
    beside [swap=a b]: {a.poss} {m} lay beside {b.poss} {n}. | The {n} of {b} lay beside the {m} of {a}.
    wait [people=the; x=moods; y=moods]: The {x} {a.noun} waited for the {y} {b.noun} {place}. |
        The {b.noun} for whom the {x} {a.noun} waited {place} was {y}.
    paint [x=colors; y=colors; m=painted; n=painted]: {a} painted the {m} {x} and the {n} {y}. |
        The {n} was painted {y} and the {m} {x} by {a}.
    materials [x=materials; y=materials; m=cast; n=cast]: A {x} {m} and a {y} {n} were {place}. |
        A {m} made of {x} and a {n} made of {y} were {place}.
    of_two: Of these {m.s}, the {x} one is {a.poss} and the {y} one {b.poss}. |
        {b} has the {y} {m}, and {a} the {x} {m}.
    wearing [x=colors; y=colors; m=clothes; n=clothes]: {a} was wearing {x.a} {m}, and {b} was wearing {y.a} {n}. |
        {b.poss} {n} was {y}, and {a.poss} {m} was {x}.
    """,
    "x y",
)
NEGATION = templates(
    """
    is_not [d=states]: {a} says that the {d.noun} is not {d.neg}. | {a} says that the {d.noun} is {d.pos}. |
        {a} says that the {d.noun} is {d.neg}.
    anything_but [d=qualities]: {a} thought that the {d.noun} was anything but {d.pos}. |
        {a} thought that the {d.noun} was {d.neg}. | {a} thought that the {d.noun} was {d.pos}.
    never [d=habits]: {a} never {d.s}. | At no time does {a} {d.base}. | {a} always {d.s}.
    nothing: There was nothing in {a.poss} {case}. | {a.poss} {case} did not have anything in it. |
        There was something in {a.poss} {case}.
    not_all: Not all of the {group.s} {d.past}. | Some of the {group.s} did not {d.base}. |
        All of the {group.s} {d.past}.
    only: Only {a} {d.past}. | Nobody except {a} {d.past}. | Everybody except {a} {d.past}.
    lack: The {house} {site} lacks {part.a}. | The {house} {site} does not have {part.a}. |
        The {house} {site} has {part.a}.
    unable [skill=skills]: {a} is unable to {skill}. | {a} cannot {skill}. | {a} is able to {skill}.
    instead: {a} chose {m.a} instead of {n.a}. | {a} did not choose {n.a} but {m.a}. |
        {a} did not choose {m.a} but {n.a}.
    double: It is not the case that {a} did not {d.base}. | {a} did in fact {d.base}. |
        It is the case that {a} did not {d.base}.
    deny [d=crimes]: {a} denied having {d.done}. | {a} claimed not to have {d.done}. | {a} admitted having {d.done}.
    avoid [d=willed]: {a} avoided {d.doing}. | {a} chose not to {d.base}. | {a} insisted on {d.doing}.
    did_not [d=choices]: {time}, {a} did not {d.pos.base}. | {time}, {a} {d.neg.past}. | {time}, {a} {d.pos.past}.
    hardly: Hardly any of the {group.s} {d.past}. | Very few of the {group.s} {d.past}. |
        Nearly all of the {group.s} {d.past}.
    unlike_scope: {a} {d.past}, but {b} did not. | Unlike {b}, {a} {d.past}. | Unlike {a}, {b} {d.past}.
    """
)
TEMPLATES = {"roles": ROLES, "attributes": ATTRIBUTES, "negation": NEGATION}
