"""Words and templates of the test part, which have nothing in common with those of the validation part."""

from __future__ import annotations

from .generate import Template
from .grammar import Pair, deeds, nouns, opposite_deeds, opposites, verbs, words

WILLED = deeds(
    """
    write wrote written: the letter, a poem
    cross: the desert, the border
    build built: a raft, a hut
    light lit: the candle, the fire
    dig dug dug digging: a hole, a tunnel
    tell told: a joke, the truth
    pay paid: the rent, the fine
    watch: the film, the eclipse
    study: Latin, algebra
    apologize: to the guests, for the mistake
    water: the roses
    """
)
POOLS = {
    "people": nouns(
        """doctor, farmer, teacher, soldier, engineer, actor, butcher, carpenter, gardener, journalist, king, prince,
        thief thieves, priest, poet, miner, fisherman fishermen, electrician, detective, dancer, colonel, ambassador,
        biologist, chef, shepherd, student, boxer, astronaut, professor, drummer, blacksmith, nun, witness, butler,
        sheriff, tenant, pharmacist, sculptor, wrestler, magician"""
    ),
    "kin": nouns("nephew, secretary, coach, sister, brother, grandfather"),
    "names": words("Emma, David, Sarah, Robert, Alice, Martin, Clara, Thomas, Irene, George, Linda, Paul"),
    "acts": verbs(
        """help, criticize, attack, call, surprise, punish, support, frighten, amuse, question, offend, protect,
        injure,
        see saw seen, hit hit hit hitting, feed fed, mislead misled, fire, pursue, cheat, congratulate, persuade,
        distract, pinch, reward, imitate, encourage, summon, welcome, strike struck, outwit outwitted outwitted
        outwitting, hurt hurt, dismiss, test, applaud, rebuke, ridicule, consult, hug hugged hugged hugging"""
    ),
    "place": words(
        """in the garden, at the market, in the corridor, beside the river, on the ferry, behind the church,
        in the library, at the hotel, in the village, near the fountain, on the stairs, at the harvest"""
    ),
    "time": words(
        """on Friday, at noon, in the evening, during the storm, before dinner, in October, on Sunday, in winter,
        during the rehearsal, after the funeral, on Thursday"""
    ),
    "gift": words(
        "a watch, a rose, a medal, an egg, a candle, a diamond, a cigar, a pear, an orange, a glove, a bracelet"
    ),
    "mail": nouns("letter, postcard, email, telegram, memo, note"),
    "subject": words("Latin, algebra, yoga, geometry, Greek, karate, calligraphy, astronomy, ballet"),
    "event": words(
        """the gong sounded, the train departed, the tent collapsed, the storm broke out, the bus exploded,
        the snow melted"""
    ),
    "fled": words(
        """burst into tears, fell silent, hurried away, moved to Paris, lit a candle, hid in the cellar, fainted,
        shrugged, wept, drank some tea"""
    ),
    "reaction": verbs("laugh, cry, tremble, blush, sneeze, faint, scream, yawn"),
    "pace": verbs("walk, type, paddle, ski, learn, knit knitted knitted knitting, dance"),
    "task": words(
        """hurry, keep the secret, hold the rope, tell the truth, feed the horses, write a poem, move the piano,
        study algebra, pay the rent, dig a hole"""
    ),
    "degree": [
        Pair(*pair.split("/"))
        for pair in "strong/stronger clever/cleverer loud/louder lazy/lazier kind/kinder proud/prouder".split()
    ],
    "things": nouns(
        """cup, shelf shelves, bucket, kite, guitar, mirror, vase, ladder, suitcase, clock, bench benches, envelope,
        scarf scarves, tent, piano, pillow, wallet, helmet, desk, notebook, trumpet, fan"""
    ),
    "looks": words(
        "blue, white, black, orange, pink, tiny, filthy, ancient, modern, stained, elegant, striped, expensive, new"
    ),
    "colors": words("blue, white, black, orange, pink, brown, turquoise, beige, violet"),
    "moods": words(
        """nervous, cheerful, blind, drunk, honest, hungry, shy, plump, French, elderly, blond, wounded, muscular,
        sleepy"""
    ),
    "numbers": words("three, five, eight, ten, twelve, twenty"),
    "room": nouns("garden, corridor, library, cellar, bedroom, lobby, workshop, stable, chapel"),
    "animals": nouns("cat, horse, cow, pig, hen, frog, turtle, elephant, wolf wolves, owl"),
    "clothes": nouns("suit, cap, robe, raincoat, vest, hoodie, tie, cape, scarf scarves"),
    "materials": words("glass, steel, bamboo, copper, marble, porcelain, bronze, clay"),
    "cast": nouns("cup, shelf shelves, bucket, mirror, vase, clock, bench, desk, lantern, tray"),
    "states": opposites(
        """
        alive/dead: fish, snake, turtle, owl
        locked/unlocked: cellar, suitcase, cupboard
        clean/dirty: cup, mirror, pillow
        correct/wrong: date, spelling, translation
        cheap/expensive: hotel, guitar, wine
        smooth/rough: surface, sea, stone
        tight/loose: belt, knot, screw
        healthy/sick: child, horse, farmer, king
        sober/drunk: soldier, butler, actor
        deep/shallow: lake, pool, river
        thick/thin: wall, ice, book
        straight/crooked: line, nail, pole
        honest/dishonest: butler, witness, sheriff
        ripe/unripe: pear, banana, tomato
        interesting/boring: film, lecture, book
        common/rare: bird, disease, flower
        genuine/fake: passport, diamond
        easy/difficult: exam, task
        wide/narrow: path, tunnel, valley
        obligatory/optional: course, helmet
        accidental/deliberate: fire, mistake
        complete/incomplete: list, collection
        generous/stingy: king, tenant
        brave/cowardly: soldier, prince
        wild/tame: elephant, wolf
        fertile/barren: field, valley
        """
    ),
    "deeds": WILLED
    + deeds(
        """
        steal stole stolen: the diamond, the wallet
        break broke broken: the vase, the mirror
        escape: from the tunnel, from prison
        recall: the date
        """
    ),
    "willed": WILLED,
    "crimes": deeds(
        """
        steal stole stolen: the diamond, the wallet, the horse
        break broke broken: the vase, the mirror
        burn: the letter, the list
        forge: the passport, the document
        cheat: in the exam
        scratch: the piano, the statue of the king
        poison: the fish, the wine
        hide hid hidden: the wallet, the key
        """
    ),
    "skills": words(
        """walk, sew, dance, ski, hear the bell, pay the rent, cross the desert, escape from prison, breathe,
        light the fire, decipher the letter, recall the date, hold the rope, lift the piano"""
    ),
    "habits": deeds(
        """
        drink drank drunk: tea, beer, wine
        lock: the cellar, the suitcase
        tell told: jokes, the truth
        travel: by train, by bus
        work: on Sundays, at the market
        dance: in the corridor
        use: the elevator, a compass
        pay paid: the rent, in cash
        shave: before dinner
        pray: in church
        sleep slept: in a tent
        """
    ),
    "choices": opposite_deeds(
        """
        pass/flunk: the exam, the course
        keep kept/break broke broken: the vow, the oath
        allow/forbid forbade forbidden forbidding: the march, the experiment
        attend/miss: the lecture, the funeral, the rehearsal
        reveal/conceal: the truth, the mistake, the secret
        obey/defy: the order, the king
        hit hit hit hitting/miss: the target
        approve/veto: the plan, the budget
        """
    ),
    "group": nouns("soldier, student, farmer, dancer, actor, miner, boxer, nun, witness, poet, wrestler, drummer"),
    "house": nouns("hotel, church, palace, school, hut, factory, castle"),
    "part": nouns("chimney, elevator, garden, fireplace, sauna, terrace, cellar"),
    "case": nouns("suitcase, envelope, wallet, cup, vase, cupboard, trunk, bucket, helmet, pocket"),
    "also": verbs(
        """send sent, offer, receive, teach taught, learn, precede, follow, ask, make made, stand stood, hang hung,
        lie lay lain
        lying, keep kept, paint, wear, wait, choose chose chosen, lack, say, deny, claim,
        admit admitted admitted admitting, avoid, insist,
        hide hid hidden hiding, write wrote written, inherit, sound, depart, collapse, explode, melt, weep wept,
        flee fled, shrug shrugged shrugged shrugging,
        burst burst, fall fell fallen, hurry, light lit, drink drank drunk, hear heard, pay paid, sew sewed sewn,
        breathe, decipher, recall,
        hold held, lift, feed fed, move, tell told, study, dig dug dug digging"""
    ),
    "rest": words(
        "faster, slowly, parent, child, children, front, time, top, case, fact, former, latter, able, unable"
    ),
}

PASSIVE = {"people": "the a name kin", "plural": True}
ROLES = [
    Template(
        "present",
        "{a} often {v.s} {b} {place}.",
        "{b} is often {v.done} by {a} {place}.",
        swap="a b",
        people="the a name kin",
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
        "get", "{b} got {v.done} by {a} {place}.", "It was {b} that {a} {v.past} {place}.", swap="a b", **PASSIVE
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
    Template("in_front", "{a} stood in front of {b} {place}.", "{b} stood behind {a} {place}.", swap="a b", **PASSIVE),
    Template(
        "the_one_whom",
        "The one whom {a} {v.past} {time} was {b}.",
        "{b} was the one {v.done} by {a} {time}.",
        swap="a b",
    ),
    Template("but", "{a} {v.past} {b} but {w.past} {c}.", "{a} {w.past} {c} but {v.past} {b}.", swap="b c", **PASSIVE),
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
        "In the {room}, {a} keeps {q} {n.s} and {p} {m.s}.",
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
        pools={"x": "colors", "y": "colors"},
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
        "The {d.noun} {place} was anything but {d.pos}.",
        "The {d.noun} {place} was very {d.neg}.",
        "The {d.noun} {place} was very {d.pos}.",
        pools={"d": "states"},
    ),
    Template("never", "{a} never {d.s}.", "At no time does {a} {d.base}.", "{a} always {d.s}.", pools={"d": "habits"}),
    Template(
        "nothing",
        "There was nothing in the {case} that {a} had hidden.",
        "The {case} that {a} had hidden did not have anything in it.",
        "There was something in the {case} that {a} had hidden.",
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
        "The {house} {place} lacks {part.a}.",
        "The {house} {place} does not have {part.a}.",
        "The {house} {place} has {part.a}.",
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
