"""Templates of the validation part."""

from __future__ import annotations

from ..generate import templates

ROLES = templates(
    """
    past [people=the a name kin; plural]: {a} {v.past} {b} {place}. | {b} {was} {v.done} by {a} {place}.
    future [people=the a name kin; plural; v=plans]: {a} will {v.base} {b} {time}. |
        {b} will be {v.done} by {a} {time}.
    perfect [people=the a name kin; plural]: {b} {has} been {v.done} by {a}. | {a} {has} {v.done} {b}.
    progressive [v=plans]: {a} {is} {v.doing} {b} {place}. | {b} {is} being {v.done} by {a} {place}.
    must [v=plans]: {time}, {b} must be {v.done} by {a}. | {time}, {a} must {v.base} {b}.
    cleft [people=the a name kin; plural]: It was {a} who {v.past} {b} {time}. | {b} {was} {v.done} by {a} {time}.
    which_one: The one who {v.past} {b} {place} was {a}. | {place}, {b} was {v.done} by {a}.
    relative [plural]: {b}, whom {a} {v.past}, {ended}. | {b}, who {was} {v.done} by {a}, {ended}.
    give [people=the a name kin; plural]: {a} will give {b} {gift} {time}. | {a} will give {gift} to {b} {time}.
    lend [people=the a name kin; plural]: {a} lent {gift} to {b} {time}. | {b} borrowed {gift} from {a} {time}.
    sell [people=the a name kin; plural]: {b} bought {goods} from {a} {place}. | {a} sold {goods} to {b} {place}.
    defeat [plural]: {a} defeated {b} in {game} {time}. | {b} lost to {a} in {game} {time}.
    sides [people=the a name kin; plural]: {a} sat to the left of {b} {place}. | {b} sat to the right of {a} {place}.
    arrive [plural]: {a} arrived {place} before {b}. | {b} arrived {place} after {a}.
    taller [plural]: {a} {is} much taller than {b}. | {b} {is} much shorter than {a}.
    richer [plural]: {b} {was} once poorer than {a}. | {a} {was} once richer than {b}.
    patient [mood=traits]: {a} is more {mood} than {b}. | {b} is less {mood} than {a}.
    pronoun [people=pronoun; plural]: {a} {v.past} {b.him} {place}, and {b} {w.past} {a.him}. |
        {b} {was} {v.done} by {a.him} {place}, and {a} {was} {w.done} by {b.him}.
    everyone_knows [people=the a name kin; plural]: Everyone knows that {a} {v.past} {b}. |
        Everyone knows that {b} {was} {v.done} by {a}.
    question [people=the a name kin; plural]: Did {a} {v.base} {b} {time}? | {was} {b} {v.done} by {a} {time}?
    want [v=plans]: {a} wants to {v.base} {b}. | What {a} wants is to {v.base} {b}.
    """,
    "a b",
)
ATTRIBUTES = templates(
    """
    next_to: The {x} {m} is next to the {y} {n}. | Next to the {y} {n} is the {m}, which is {x}.
    there_is: There is {x.a} {m} and {y.a} {n} in the {room}. | The {room} contains {y.a} {n} and {x.a} {m}.
    counts [swap=p q; m=animals; n=animals]: {p} {m.s} and {q} {n.s} were {place}. |
        There were {q} {n.s} and {p} {m.s} {place}.
    buy [swap=p q]: {a} bought {p} {m.s} and {q} {n.s}. | {a} bought {q} {n.s} as well as {p} {m.s}.
    poss: {a.poss} {m} is {x}, and {b.poss} is {y}. | {b.poss} {m} is {y}, while {a.poss} is {x}.
    owners [swap=a b]: {a} owns the {m}, and {b} owns the {n}. | The {n} belongs to {b}, and the {m} belongs to {a}.
    people [people=the; x=moods; y=moods]: The {x} {a.noun} {v.past} the {y} {b.noun}. |
        The {b.noun} whom the {x} {a.noun} {v.past} was {y}.
    unlike: The {m} is {x}, but the {n} is {y}. | Unlike the {n}, which is {y}, the {m} is {x}.
    carry: {a} carried the {x} {m}, and {b} carried the {y} {n}. |
        The {y} {n} was carried by {b}, and the {x} {m} by {a}.
    the_one: The {m} that {a} bought is {x}, and the one that {b} bought is {y}. |
        {b} bought {y.a} {m}, and {a} bought {x.a} one.
    clothes [people=the; x=colors; y=colors; m=clothes; n=clothes]:
        The {a.noun} in the {x} {m} greeted the {b.noun} in the {y} {n}. |
        The {b.noun} in the {y} {n} was greeted by the {a.noun} in the {x} {m}.
    """,
    "x y",
)
NEGATION = templates(
    """
    was_not [d=transient]: The {d.noun} was not {d.pos} {time}. | The {d.noun} was {d.neg} {time}. |
        The {d.noun} was {d.pos} {time}.
    according [d=states]: According to {a}, the {d.noun} is {d.neg}. | According to {a}, the {d.noun} is not {d.pos}. |
        According to {a}, the {d.noun} is not {d.neg}.
    nobody: Nobody {d.past} {time}. | Not a single person {d.past} {time}. | Somebody {d.past} {time}.
    everyone [d=choices]: Everyone {place} {d.pos.past}. | Nobody {place} {d.neg.past}. |
        Everyone {place} {d.neg.past}.
    fail [d=attempts]: {a} failed to {d.base}. | {a} did not {d.base}. | {a} managed to {d.base}.
    without: {a} went to the {venue} without {gift}. | {a} went to the {venue} but did not bring {gift}. |
        {a} went to the {venue} with {gift}.
    neither [d=attempts]: Neither {a} nor {b} {d.past}. | Both {a} and {b} failed to {d.base}. |
        Both {a} and {b} managed to {d.base}.
    and_not: {a} and not {b} {d.past}. | It was not {b} but {a} who {d.past}. | It was not {a} but {b} who {d.past}.
    no_longer [d=habits]: {a} no longer {d.s}. | {a} has stopped {d.doing}. | {a} still {d.s}.
    no_stuff: There is no {stuff} in the {vessel} in the {room}. | The {vessel} in the {room} contains no {stuff}. |
        The {vessel} in the {room} contains some {stuff}.
    false: It is false that {a} {d.past}. | {a} did not {d.base}. | It is true that {a} {d.past}.
    none [d=attempts]: None of the {group.s} {d.past} {time}. | All of the {group.s} failed to {d.base} {time}. |
        None of the {group.s} failed to {d.base} {time}.
    unless [d=willed]: Unless {a} {d.s}, {outcome}. | If {a} does not {d.base}, {outcome}. | If {a} {d.s}, {outcome}.
    refuse [d=willed]: {a} refused to {d.base} {time}. | {a} would not {d.base} {time}. |
        {a} did not refuse to {d.base} {time}.
    """
)
TEMPLATES = {"roles": ROLES, "attributes": ATTRIBUTES, "negation": NEGATION}
