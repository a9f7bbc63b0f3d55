"""Words of the validation part."""

from __future__ import annotations

from ..grammar import deeds, nouns, opposite_deeds, opposites, verbs, words

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
    bake: a cake, the bread
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
    present/absent: referee, lawyer, mayor, violinist
    safe/dangerous: bridge, road, staircase
    quiet/noisy: office, street, beach
    occupied/vacant: seat, apartment, cabin
    fresh/stale: bread, cake, sandwich
    polite/rude: waiter, referee, cashier
    """
)
PLANS = verbs(
    """
    rescue, blame, praise, invite, greet, push, warn, hire, visit, thank, tickle, photograph, accuse, kick, interview,
    comfort, defend, chase, mock, arrest, interrupt, scold, trick, wake woke woken, nudge, threaten, recommend, bribe,
    insult
    """
)
POOLS = {
    "people": nouns(
        """lawyer, pilot, baker, nurse, potter, mayor, sailor, tailor, plumber, dentist, editor, banker, singer,
        tourist, grocer, janitor, senator, violinist, referee, cyclist, hunter, librarian, mechanic, monk, novelist,
        barber, florist, surgeon, translator, waiter, widow, architect, cashier, juggler, chemist, goalkeeper,
        beggar, archer, diplomat, gymnast"""
    ),
    "kin": nouns("cousin, uncle, landlord, colleague, roommate, aunt"),
    "names": words("Anna, Peter, Maria, Oscar, Helen, Victor, Laura, Simon, Julia, Felix, Nora, Hugo"),
    "plans": PLANS,
    "acts": PLANS
    + verbs(
        """betray, bite bit bitten, catch caught, overhear overheard, annoy, forgive forgave forgiven, abandon, shove,
        impress, ignore"""
    ),
    "place": words(
        """in the kitchen, at the station, near the bridge, in the park, behind the theater, outside the museum,
        on the beach, at the airport, in the harbor, on the balcony, in the courtroom, at the festival"""
    ),
    "time": words(
        """on Monday, at midnight, in the morning, after lunch, during the meeting, on Tuesday, before sunrise,
        during the concert, on Saturday, after the wedding, at dawn"""
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
    "venue": nouns("festival, museum, theater, airport, beach, bridge, park, station"),
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
        remember/forget forgot forgotten forgetting: the password, the wedding, the address, the lyrics, the melody
        accept/reject: the bribe, the proposal, the apology, the invitation, the contract, the award
        trust/distrust: the landlord, the mayor, the newspaper, the report
        notice/overlook: the entrance, the crack, the typo
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
