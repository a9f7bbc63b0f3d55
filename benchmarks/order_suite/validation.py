"""Words and templates of the validation part."""

from __future__ import annotations

from .generate import Template
from .grammar import deeds, nouns, opposite_deeds, opposites, verbs, words

ATTEMPTS = deeds(
    """
    find found: the entrance, the recipe, the owner
    repair: the roof, the bicycle, the kettle
    climb: the tower, the fence
    swim swam swum swimming: across the bay, to the island
    catch caught: the ball, the last tram
    solve: the puzzle, the riddle
    """
)
WILLED = deeds(
    """
    read read read: the report, the novel
    sign: the contract, the petition
    bake: a cake, some bread
    answer: the phone, the critics
    sweep swept: the kitchen, the attic
    join: the orchestra, the navy
    wash: the towels, the dishes
    complain: about the noise, about the soup
    """
)
TRANSIENT = opposites(
    """
    open/closed: door, gate, museum, drawer, window
    wet/dry: towel, floor, jacket, carpet
    awake/asleep: nurse, janitor, monk, parrot
    visible/invisible: entrance, island
    full/empty: bottle, theater, drawer, basket
    safe/dangerous: bridge, road, staircase
    quiet/noisy: office, street, beach
    occupied/vacant: seat, apartment, cabin
    fresh/stale: bread, cake, sandwich
    polite/rude: waiter, referee, cashier
    """
)
POOLS = {
    "people": nouns(
        """lawyer, pilot, baker, nurse, potter, mayor, sailor, tailor, plumber, dentist, editor, banker, singer,
        tourist, grocer, janitor, senator, violinist, referee, cyclist, hunter, librarian, mechanic, monk, novelist,
        barber, florist, surgeon, translator, waiter, widow, architect, cashier, juggler, chemist, goalkeeper,
        beggar, archer, diplomat, gymnast"""
    ),
    "kin": nouns("cousin, uncle, landlord, boss, roommate, aunt"),
    "names": words("Anna, Peter, Maria, Oscar, Helen, Victor, Laura, Simon, Julia, Felix, Nora, Hugo"),
    "acts": verbs(
        """rescue, blame, praise, insult, invite, greet, push, ignore, warn, hire, visit, thank, betray, tickle,
        photograph, accuse, kick, interview, comfort, defend, chase, bite bit bitten, catch caught, overhear overheard,
        mock, arrest, interrupt, scold, trick, wake woke woken, nudge, threaten, annoy, recommend, forgive forgave
        forgiven, shove, bribe, abandon"""
    ),
    "place": words(
        """in the kitchen, at the station, near the bridge, in the park, behind the theater, outside the museum,
        on the beach, at the airport, in the harbor, on the balcony, in the courtroom, at the festival"""
    ),
    "time": words(
        """on Monday, at midnight, in the morning, after lunch, during the meeting, on Tuesday, before sunrise,
        during the concert, in August, after the wedding, at dawn"""
    ),
    "gift": words(
        """a ring, an apple, a sandwich, a map, a necklace, an umbrella, a pencil, a blanket, a ticket, a coin,
        a lemon"""
    ),
    "goods": words("a tractor, a violin, a sofa, a boat, a camera, a carpet, a wagon, a typewriter, a tapestry"),
    "game": words("chess, tennis, poker, badminton, the final"),
    "ended": words(
        """went home, smiled, disappeared, turned pale, knelt down, began to whistle, took a taxi, tasted some soup,
        ran away, started to sing"""
    ),
    "things": nouns(
        """box, chair, table, lamp, bottle, bowl, basket, bag, drum, stool, toy, plate, teapot, pencil, kettle,
        toothbrush, umbrella, sofa, bicycle, rug, hat, spoon"""
    ),
    "looks": words(
        """red, green, yellow, purple, gray, golden, huge, shiny, antique, dusty, damaged, ugly, gorgeous, handmade,
        spotless"""
    ),
    "colors": words("red, green, yellow, purple, gray, golden, crimson"),
    "moods": words(
        "tired, angry, bald, lonely, jealous, curious, thirsty, famous, clumsy, Italian, young, slim, bearded, retired"
    ),
    "numbers": words("two, four, six, seven, nine, eleven"),
    "traits": words("patient, careful, ambitious, talkative, superstitious, popular, modest"),
    "room": nouns("kitchen, attic, office, garage, hall, studio, shed, cabin"),
    "animals": nouns("dog, goat, duck, parrot, lizard, donkey, rabbit, swan, camel, monkey"),
    "clothes": nouns("coat, hat, sweater, jacket, dress, uniform, shirt, apron"),
    "transient": TRANSIENT,
    "states": TRANSIENT
    + opposites(
        """
        guilty/innocent: banker, senator, sailor, widow
        true/false: story, statement, report
        sharp/blunt: knife, pencil, razor
        public/private: meeting, beach, road
        neutral/biased: report, referee, newspaper
        permanent/temporary: staircase, bridge, job
        simple/complicated: rule, puzzle, recipe
        married/single: pilot, plumber, librarian, cyclist
        legal/illegal: contract, weapon
        important/trivial: message, rule, remark
        transparent/opaque: screen, bottle, window
        """
    ),
    "deeds": ATTEMPTS + WILLED,
    "attempts": ATTEMPTS,
    "willed": WILLED,
    "habits": deeds(
        """
        smoke: cigars, in bed
        play: the flute, tennis
        eat ate eaten: meat, garlic
        drive drove driven: a taxi, to the office
        carry: a pistol, a backpack
        live: in Italy, near the harbor
        collect: coins, stamps
        trust: horoscopes
        snore: at night
        breed bred: parrots, rabbits
        """
    ),
    "choices": opposite_deeds(
        """
        remember/forget forgot forgotten forgetting: the password, the wedding, the address, the lyrics
        win won won winning/lose lost lost losing: the match, the bet, the election, the lawsuit
        accept/reject: the bribe, the proposal, the apology, the invitation, the contract, the award
        """
    ),
    "group": nouns("sailor, tourist, violinist, gymnast, waiter, monk, hunter, cyclist, diplomat, archer, juggler"),
    "stuff": words("milk, flour, sugar, oil, sand, pepper, rice, vinegar, salt, coffee"),
    "vessel": nouns("bottle, bowl, kettle, jug, jar, barrel, pan, bag, tub"),
    "outcome": words(
        """the wedding will be canceled, the party will end, the team will celebrate, the boat will sink,
        the landlord will object, the neighbors will protest, the theater will close"""
    ),
    "also": verbs(
        """give gave given, lend lent, borrow, buy bought, sell sold, defeat, lose lost, want, know knew known, own,
        belong, arrive, contain, carry, go went gone, smile, disappear, turn, sit sat sat sitting,
        begin began begun beginning, whistle, take took taken, taste, run ran run running, sing sang sung, start,
        fail, manage, refuse, agree, stop stopped stopped stopping, leave left left, bring brought, cancel, end,
        celebrate, sink sank sunk, close, speak spoke spoken, protest, object, kneel knelt"""
    ),
    "rest": words(
        "single, tall, taller, short, shorter, old, older, rich, richer, poor, poorer, left, right, according, person"
    ),
}

PASSIVE = {"people": "the a name kin", "plural": True}
ROLES = [
    Template("past", "{a} {v.past} {b} {place}.", "{b} {was} {v.done} by {a} {place}.", swap="a b", **PASSIVE),
    Template("future", "{a} will {v.base} {b} {time}.", "{b} will be {v.done} by {a} {time}.", swap="a b", **PASSIVE),
    Template("perfect", "{b} {has} been {v.done} by {a}.", "{a} {has} {v.done} {b}.", swap="a b", **PASSIVE),
    Template("progressive", "{a} {is} {v.doing} {b} {place}.", "{b} {is} being {v.done} by {a} {place}.", swap="a b"),
    Template("must", "{time}, {b} must be {v.done} by {a}.", "{time}, {a} must {v.base} {b}.", swap="a b"),
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
    Template("want", "{a} wants to {v.base} {b}.", "What {a} wants is to {v.base} {b}.", swap="a b"),
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
        "{place} were {q} {n.s} and {p} {m.s}.",
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
        "The {a.noun} in the {x} {m} spoke with the {b.noun} in the {y} {n}.",
        "The {b.noun} in the {y} {n} spoke with the {a.noun} in the {x} {m}.",
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
        "{a} went {place} without {gift}.",
        "{a} went {place} but did not bring {gift}.",
        "{a} went {place} with {gift}.",
    ),
    Template(
        "neither",
        "Neither {a} nor {b} {d.past}.",
        "{a} did not {d.base}, and {b} did not either.",
        "Both {a} and {b} {d.past}.",
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
        "There is no {stuff} in the {vessel} {place}.",
        "The {vessel} {place} contains no {stuff}.",
        "There is some {stuff} in the {vessel} {place}.",
    ),
    Template("false", "It is false that {a} {d.past}.", "{a} did not {d.base}.", "It is true that {a} {d.past}."),
    Template(
        "none",
        "None of the {group.s} {d.past} {time}.",
        "Not one of the {group.s} {d.past} {time}.",
        "Most of the {group.s} {d.past} {time}.",
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
        "{a} agreed to {d.base} {time}.",
        pools={"d": "willed"},
    ),
]
TEMPLATES = {"roles": ROLES, "attributes": ATTRIBUTES, "negation": NEGATION}
