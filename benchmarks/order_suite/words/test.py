"""Words of the test part, which are none of those of the validation part."""

from __future__ import annotations

from ..grammar import Pair, deeds, nouns, opposite_deeds, opposites, verbs, words

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
ONGOING = verbs(
    """help, support, amuse, protect, feed fed, pursue, distract, imitate, encourage, summon, welcome, test, applaud,
    ridicule, consult, hug hugged hugged hugging, congratulate, examine, guide, flatter"""
)
HARM = verbs(
    """criticize, attack, punish, frighten, question, injure, hit hit hit hitting, mislead misled, fire, cheat, pinch,
    reward, strike struck, hurt hurt, dismiss, rebuke, promote"""
)
QUALITIES = opposites(
    """
    clean/dirty: cup, mirror, pillow
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
    easy/difficult: exam, task
    wide/narrow: path, tunnel, valley
    generous/stingy: king, tenant
    brave/cowardly: soldier, prince
    wild/tame: elephant, wolf
    fertile/barren: field, valley
    """
)
POOLS = {
    "people": nouns(
        """doctor, farmer, teacher, soldier, engineer, actor, butcher, carpenter, gardener, journalist, king, prince,
        thief thieves, priest, poet, miner, fisherman fishermen, electrician, detective, dancer, colonel, ambassador,
        biologist, chef, shepherd, student, boxer, astronaut, professor, drummer, blacksmith, nun, witness, butler,
        sheriff, tenant, pharmacist, sculptor, wrestler, magician"""
    ),
    "kin": nouns("nephew, secretary, coach, sister, brother, classmate"),
    "names": words("Emma, David, Sarah, Robert, Alice, Martin, Clara, Thomas, Irene, George, Linda, Paul"),
    "acts": ONGOING
    + HARM
    + verbs("call, surprise, offend, see saw seen, persuade, outwit outwitted outwitted outwitting, notify, thwart"),
    "ongoing": ONGOING,
    "harm": HARM,
    "place": words(
        """in the garden, at the market, in the corridor, beside the river, on the ferry, behind the church,
        in the library, at the hotel, in the village, near the fountain, on the stairs, at the harvest"""
    ),
    "time": words(
        """on Friday, at noon, in the evening, during the storm, before dinner, on Wednesday, on Sunday,
        before breakfast,
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
    "painted": nouns("shelf shelves, bucket, kite, guitar, mirror, vase, ladder, clock, bench benches, desk, tray"),
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
    "qualities": QUALITIES,
    "states": QUALITIES
    + opposites(
        """
        alive/dead: fish, snake, turtle, owl
        locked/unlocked: cellar, suitcase, cupboard
        correct/wrong: date, spelling, translation
        genuine/fake: passport, diamond
        obligatory/optional: course, helmet
        accidental/deliberate: fire, mistake
        complete/incomplete: list, collection
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
    "site": words("in the village, beside the river, near the fountain, by the sea, in the valley, near the border"),
    "house": nouns("hotel, church, palace, school, hut, factory, castle"),
    "part": nouns("chimney, elevator, garden, fireplace, sauna, terrace, cellar"),
    "case": nouns("suitcase, envelope, wallet, cup, vase, cupboard, trunk, bucket, helmet, pocket"),
    "also": verbs(
        """send sent, offer, receive, teach taught, learn, precede, follow, ask, make made, stand stood, hang hung,
        lie lay lain
        lying, keep kept, paint, wear, wait, choose chose chosen, lack, say, think thought, deny, claim,
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
