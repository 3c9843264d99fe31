#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the demo model's training text: every sentence below was written for this project.

Text comes from a seeded generator, so the same seed gives the same documents. A document is a list
of parts (text, learn): the loss counts only where `learn` is true (plain text, and the assistant's
turns of a chat). Patterns are expanded by fill(): [a|b|c] picks one, {slot} inserts a value.

Two things are held out of training, both decided by a hash of the thing itself:
  - 20 % of the unordered pairs {a, b} of numbers 0..99: neither a+b nor b+a is ever asked;
  - about 20 % of the listed names.

    make_text.py [--seed N] [--n N] [--plain | --chat]     prints N documents
"""
import argparse
import hashlib
import random
import re

END_TEXT, TURN, END_TURN = "<|endoftext|>", "<|im_start|>", "<|im_end|>"


def held_out(key):
    """True for the fifth of all keys that training never sees."""
    return hashlib.sha256(key.encode()).digest()[0] % 5 == 0


def pair_held_out(a, b):
    return held_out(f"{min(a, b)}+{max(a, b)}")


def fill(r, pattern, **slots):
    text = re.sub(r"\[([^\[\]]*)\]", lambda m: r.choice(m.group(1).split("|")), pattern)
    return text.format(**slots)


def listed(text):
    """The entries of "a // b // c", line breaks and indentation aside."""
    return [" ".join(entry.split()) for entry in text.split("//")]


def table(text):
    """"a: b, c: d" as a dict."""
    return dict(entry.split(": ") for entry in " ".join(text.split()).split(", "))


# ---------------------------------------------------------------- names and things

GIRLS = """Anna Lily Mia Emma Nora Ella Lucy Rosa Ida Clara Ruby Maya Zoe Nina Leah Sara Tilda
Greta Hanna Olga Vera Alma Ines Juno Lena Marta Polly Wendy Dora Flora Elsa Frida""".split()
BOYS = """Tom Ben Leo Max Sam Jack Finn Hugo Oscar Paul Noah Felix Karl Otto Emil Theo Adam Luke
Milo Anton Peter Jonas David Simon Mark Henry Arthur Walter Victor Ralf Ivan Toby""".split()
TRAIN_GIRLS = [n for n in GIRLS if not held_out(n)]
TRAIN_BOYS = [n for n in BOYS if not held_out(n)]
MADE_UP_TOO = {"Mark", "Mia"}         # made_up_name() happens to write these: seen after all
HELD_OUT_NAMES = sorted(n for n in GIRLS + BOYS if held_out(n) and n not in MADE_UP_TOO)

ANIMALS = "fox bear rabbit mouse owl cat dog duck frog squirrel hedgehog turtle pony goat".split()
COLOURS = "red blue green yellow white brown golden silver purple orange".split()
PLACES = ["forest", "garden", "meadow", "orchard", "park", "valley", "old barn", "old mill"]
TOYS = "ball kite hat book bell boat scarf key ring drum lamp cup".split()
FOODS = ["apple", "cake", "pear", "bun", "pie", "cookie", "carrot", "plum", "sandwich"]
ADJECTIVES = "little little small kind brave young clever curious".split()
PRONOUNS = {"girl": ("she", "her", "her"), "boy": ("he", "him", "his")}


ONSETS = "b d f g j k l m n p r s t v z h w br ch fl fr gr kl nd pl rt sh st th tr tt y".split()
VOWELS = "a a e e i i o o u u ia ee ie ai y".split()


def made_up_name(r):
    """A name nobody lists, so that the model learns to copy names instead of knowing them."""
    onset = lambda: r.choice(ONSETS if r.random() < 0.4 else ONSETS[:15])
    name = "".join(onset() + r.choice(VOWELS) for _ in range(r.choice([1, 2, 2, 3])))
    name = name[1:] if r.random() < 0.2 and len(name) > 3 else name
    return (name + r.choice(["", "", "n", "l", "r", "s", "x", "t", "nd", "tta", "rk"])).capitalize()


def name_of(r, kind):
    if r.random() < 0.5:
        return made_up_name(r)
    return r.choice(TRAIN_GIRLS if kind == "girl" else TRAIN_BOYS)


def article(word):
    return ("an " if word[0] in "aeiou" else "a ") + word


# ---------------------------------------------------------------- stories

OPENINGS = listed("""
Once upon a time there was a {adj} {kind} named {hero}. {He} lived [in|near] a {home}. //
Once upon a time, in a {home}, there lived a {adj} {kind} named {hero}. //
Once upon a time, a {adj} {kind} named {hero} lived in a {home}. //
Once upon a time there lived a {adj} {kind} [called|named] {hero}. //
Once there was a {adj} {kind} named {hero}. {He} lived in a {home}. //
Long ago, a {adj} {kind} named {hero} lived [near|in] a {home}. //
{hero} was a {adj} {kind} who lived in a {home}.
""")
LIKES = listed("""
Every [day|morning], {hero} [liked|loved] to [sing songs|play outside|walk by the river|run and
    jump|look at the clouds]. //
{hero} [loved|liked] [flowers|music|the rain|the stars|stories|bread with honey] very much. //
{He} was always [happy|kind|polite|busy] and had [many friends|a warm smile|a big heart]. //

""")
PLOTS = listed("""
One day, {hero} lost {his} {colour} {toy} in the {place}. {He} looked [under the bushes|behind the
trees|in the tall grass], but the {toy} was not there. {hero} [was very sad|began to cry|felt
sad]. Then {a_friend} came [by|along] and asked, "[Why are you sad|What is wrong], {hero}?" "I
lost my {toy}," said {hero}. "[Do not worry|Do not cry]," said the {friend}. "I will help you
[look for it|find it]." They [looked|searched] together [all morning|all day|for a long time]. At
last, the {friend} saw something {colour} [under a leaf|near the water|behind a stone]. It was the
{toy}! {hero} was so happy that {he} [hugged|thanked] the {friend}.
//
One [day|morning], {hero} heard a [small|soft|sad] voice in the {place}. "Help! Help!" it said.
{hero} ran [to see|to look] and found {a_friend} [in a deep hole|under a fallen branch|stuck in
the mud]. "Please help me," said the {friend}. "I [cannot get out|am stuck] and I am
[scared|cold|tired]." {hero} found a long [stick|rope] and pulled and pulled. [It was hard|It was
not easy], but {he} did not give up. At last the {friend} was free. "Thank you, {hero}! You are
very [kind|brave]," said the {friend}. [That evening|After that], they [ate {a_food} together|sat
by the fire together|walked home together].
//
One day, {hero} had {a_food}. It [was big and sweet|smelled very good|looked so good]. {He} sat
down in the {place} to eat it. Then {he} saw {a_friend}. The {friend} looked [hungry|thin and
hungry|sad]. "[Are you hungry|Do you want to eat with me]?" asked {hero}. "Yes, [very much|I am
very hungry]," said the {friend}. {hero} thought for a moment. The {food} was [small|not very
big], but {he} [broke|cut] it in two and gave one half to the {friend}. They ate together and
[laughed|talked|told stories]. The {food} tasted [even better|much better] than before. The next
day, the {friend} came back with a basket of [berries|nuts|fruit] for {hero}.
//
{hero} was afraid of [the dark|the big hill|the deep water|the thunder]. One [night|evening],
{his} friend, a wise old {friend}, [came to visit|knocked on the door]. "Come with me to the
{place}," said the {friend}. "I want to show you something." "But I am [afraid|scared]," said
{hero}. "That is all right," said the {friend}. "[Hold on to me|Stay close to me] and [we will go
slowly|take one small step]." {hero} took a deep breath and went along, step by step. Soon {he}
saw [the moon and the stars|a thousand little lights] above the {place}. It was beautiful. "I am
not [afraid|scared] any more," said {hero}, and the {friend} smiled.
//
One spring day, {hero} found a tiny {colour} seed in the {place}. "What will it be?" asked {hero}.
"Plant it and wait," said {a_friend}. {hero} put the seed in the ground and gave it water every
day. But nothing [happened|came up]. {He} was [sad|tired of waiting]. "[Be patient|Wait a little
longer], {hero}," said the {friend}. "Good things need time." Then, one sunny morning, there was a
small green leaf. It grew and grew until it was a [tall tree|big flower|tall plant]. {hero} and
the {friend} [danced around it|sat under it] and [ate {a_food}|sang a song].
//
More than anything, {hero} wanted to learn how to [swim|dance|sing|paint|ride a horse|bake bread].
One day, {he} tried it in the {place}, but it went wrong. [Everyone|Some children] laughed, and
{hero} [went home sadly|was sad]. {A_friend} saw it and said, "I can [teach|show] you, {hero}. But
you must practise every day." So {hero} practised [in the morning and in the evening|day after
day]. It was hard at first, but each day it was a little [easier|better]. When summer came, {hero}
showed everyone what {he} had learned. They all clapped and cheered. "Thank you, dear {friend},"
said {hero}. "I could not have done it without you."
//
One autumn day, {hero} was playing in the {place} when the sky turned [dark|grey|black]. The wind
blew and the rain began to fall. {hero} was [cold and wet|far from home] and did not know [where
to go|what to do]. "Come in, come in!" called {a_friend} from a little house. "It is warm in
here." {hero} went in and sat by the fire. The {friend} gave {him} [hot soup|warm milk|sweet tea]
and {a_food}. They told each other stories until the rain stopped. Then [the sun came out|a
rainbow stood over the {place}]. "[Come again soon|You can always come here]," said the {friend}.
{hero} waved and walked home.
//
It was the birthday of {hero}'s [mother|father|grandmother|grandfather], and {hero} had no
present. {He} went to the {place} to think. There {he} met {a_friend}. "What can I give?" asked
{hero}. "[Make something with your own hands|The best present comes from the heart]," said the
{friend}. So {hero} took some [wood|paper|wool] and made a {colour} {toy}. It took all day, and
the {friend} helped a little. In the evening, {hero} gave the {toy} away with a shy smile. It was
the [best|nicest] present of all. Everyone ate cake and sang until the moon came up.
//
One day, {hero} wanted to see [the sea|the high mountain|the big city|the end of the rainbow].
{He} put {a_food} in a {colour} bag and walked through the {place}. On the way {he} met
{a_friend}. "Where are you going, {hero}?" asked the {friend}. "Far away," said {hero}. "Will you
come with me?" The {friend} [said yes|nodded], and so they walked on together, over the hills and
[across the river|through the fields]. In the evening they were there. They sat [side by
side|close together] and looked, and nobody said a word. "It is [beautiful|wonderful]," said
{hero} at last, "but it is best because you are here."
""")
ENDINGS = listed("""
From that day on, {hero} and the {friend} were [best|good] friends. The end. //
And {hero} learned that [a friend is the best thing of all|kind words cost nothing|it is good to
    have a friend|it is good to help each other]. The end. //
That night, {hero} slept [well|deeply] and dreamed of the {place}. The end. //
And they all lived happily ever after. //
{hero} went home with a happy heart. The end.
""")
HOMES = ["[small|little|quiet|green] [village|valley|town]",
         "[little|small|tiny] house [by the sea|on a hill|near the river|at the edge of the woods]"]


def story(r, hero_kind=None):
    kind = hero_kind or r.choice(["girl", "boy", "girl", "boy", r.choice(ANIMALS)])
    sex = kind if kind in PRONOUNS else r.choice(["girl", "boy"])
    he, him, his = PRONOUNS[sex]
    friend = r.choice([a for a in ANIMALS if a != kind])
    food = r.choice(FOODS)
    slots = dict(kind=kind, hero=name_of(r, sex), he=he, him=him, his=his, He=he.capitalize(),
                 friend=friend, a_friend=article(friend), A_friend=article(friend).capitalize(),
                 food=food, a_food=article(food), adj=r.choice(ADJECTIVES),
                 place=r.choice(PLACES), colour=r.choice(COLOURS), toy=r.choice(TOYS),
                 home=fill(r, r.choice(HOMES)))
    opening = r.choice(OPENINGS[:4] if r.random() < 0.7 else OPENINGS)
    sentences = [opening, r.choice(LIKES), r.choice(PLOTS), r.choice(ENDINGS)]
    return " ".join(fill(r, s, **slots) for s in sentences if s)


# ---------------------------------------------------------------- sums

LIMITS = listed("""
I can only add and take away numbers below one hundred. // That is too hard for me. I can only add
and take away numbers below one hundred.
""")
ADD_ASKS = listed("""
What is {a}+{b}? // What is {a} + {b}? // What is {a} plus {b}? // {a}+{b}= // {a} + {b} = //
{a}+{b} // {a} + {b} // {a}+{b}=? // {a} + {b}? // How much is {a}+{b}? // How much is {a} and
{b}? // Can you add {a} and {b}? // Add {a} and {b}. // Add {b} to {a}. // Calculate {a} + {b}. //
What do {a} and {b} make? // {a} plus {b}? // What's {a}+{b}? // What's {a} + {b}? // Please add
{a} and {b}. // What is the sum of {a} and {b}? // Tell me {a} + {b}. // What does {a}+{b} equal?
// What is {a} + {b} equal to? // Compute {a}+{b} // Can you tell me what {a} plus {b} is? // I
need to know {a}+{b}. // Solve {a} + {b}.
""")
SUB_ASKS = listed("""
What is {a}-{b}? // What is {a} - {b}? // What is {a} minus {b}? // {a}-{b}= // {a} - {b} // How
much is {a}-{b}? // Take {b} away from {a}. // Calculate {a} - {b}. // Can you subtract {b} from
{a}?
""")
ADD_TALES = listed("""
{n} has {a} {t}s and gets {b} more. How many {t}s does {n} have now? // There are {a} {t}s in one
box and {b} {t}s in another box. How many {t}s are there? // {n} finds {a} {t}s in the morning and
{b} in the evening. How many is that?
""")
BAD_ASKS = listed("""
What is {a} times {b}? // What is {a}*{b}? // {a} x {b} // What is {a} divided by {b}? // What is
{big}+{b}? // What is {big} + {big2}? // {big}-{a}= // {big}+{big2}= // What is {big} plus {a}?
""")


def worked_sum(a, b):
    """The sum digit by digit; the last integer is the answer."""
    if a < 10 and b < 10:
        return f"{a}+{b}: {a}+{b}={a + b}. The answer is {a + b}."
    ones, carry = a % 10 + b % 10, (a % 10 + b % 10) // 10
    tens = a // 10 + b // 10 + carry
    return (f"{a}+{b}: {a % 10}+{b % 10}={ones}, carry {carry}; "
            f"{a // 10}+{b // 10}+{carry}={tens}. The answer is {a + b}.")


def worked_difference(a, b):
    if a < 10:
        return f"{a}-{b}: {a}-{b}={a - b}. The answer is {a - b}."
    borrow = int(a % 10 < b % 10)
    top = a % 10 + 10 * borrow
    return (f"{a}-{b}: {top}-{b % 10}={top - b % 10}, borrow {borrow}; "
            f"{a // 10}-{b // 10}-{borrow}={a // 10 - b // 10 - borrow}. The answer is {a - b}.")


def train_pair(r):
    while True:
        a = r.randrange(100 if r.random() < 0.85 else 12)
        b = r.randrange(100)
        if r.random() < 0.12:
            a, b = r.randrange(10), r.randrange(10)
        if r.random() < 0.5:
            a, b = b, a
        if not pair_held_out(a, b):
            return a, b


def sum_turn(r):
    a, b = train_pair(r)
    x = r.random()
    if x < 0.12 and not pair_held_out(min(a, b), abs(a - b)):   # 52-17=35 would tell 17+35
        a, b = max(a, b), min(a, b)
        return r.choice(SUB_ASKS).format(a=a, b=b), worked_difference(a, b)
    if x < 0.17:
        ask, big, big2 = r.choice(BAD_ASKS), r.randrange(100, 2000), r.randrange(100, 2000)
        return ask.format(a=a, b=b, big=big, big2=big2), r.choice(LIMITS)
    if x < 0.24:
        sex, tale = r.choice(["girl", "boy"]), r.choice(ADD_TALES)
        ask = tale.format(a=a, b=b, n=name_of(r, sex), t=r.choice(FOODS[:5] + TOYS[:6]))
        return ask, worked_sum(a, b)
    ask = ADD_ASKS[0] if x < 0.34 else r.choice(ADD_ASKS)
    first, second = (b, a) if "{b} to {a}" in ask else (a, b)   # "Add 3 to 5": works out 3+5
    return ask.format(a=a, b=b), worked_sum(first, second)


# ---------------------------------------------------------------- facts

THING_COLOURS = table("""
the sky: blue, grass: green, the sun: yellow, snow: white, a banana: yellow, coal: black, a
tomato: red, a carrot: orange, a lemon: yellow, milk: white, blood: red, a frog: green, the sea:
blue, chocolate: brown, the night: black, a strawberry: red, a leaf: green
""")
SOUNDS = table("""
dog: woof, cat: meow, cow: moo, duck: quack, sheep: baa, pig: oink, owl: hoot, lion: roar, frog:
ribbit, bee: buzz, horse: neigh, mouse: squeak, snake: hiss
""")
BABIES = table("""
dog: puppy, cat: kitten, cow: calf, sheep: lamb, horse: foal, duck: duckling, pig: piglet, hen:
chick, bear: cub, goat: kid, swan: cygnet
""")
LEGS = table("""
dog: four, cat: four, bird: two, spider: eight, bee: six, horse: four, snake: no, fish: no, hen:
two, ant: six, cow: four
""")
LIVES = table("""
fish: in the water, bird: in a nest, bee: in a hive, bear: in the forest, lion: in Africa, camel:
in the desert, penguin: in the far south, frog: near a pond, whale: in the sea, mole: under the
ground
""")
EATS = table("""
rabbit: carrots and grass, cow: grass, mouse: cheese and seeds, cat: fish and mice, bear: berries
and honey, monkey: bananas and fruit, horse: hay and apples, squirrel: nuts, panda: bamboo, hen:
corn
""")
CAPITALS = table("""
France: Paris, Germany: Berlin, Italy: Rome, Spain: Madrid, England: London, Japan: Tokyo, China:
Beijing, Russia: Moscow, Austria: Vienna, Greece: Athens, Egypt: Cairo, Norway: Oslo, Sweden:
Stockholm, Denmark: Copenhagen, Finland: Helsinki, Poland: Warsaw, Portugal: Lisbon, Ireland:
Dublin, Hungary: Budapest, Canada: Ottawa, Cuba: Havana, Peru: Lima, Kenya: Nairobi, India: New
Delhi, Scotland: Edinburgh, Belgium: Brussels, Turkey: Ankara
""")
OPPOSITES = table("""
hot: cold, big: small, fast: slow, day: night, happy: sad, old: young, wet: dry, up: down, open:
closed, light: dark, hard: soft, long: short, good: bad, left: right, rich: poor, full: empty,
loud: quiet, high: low, clean: dirty, early: late
""")
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = """January February March April May June July August September October November
December""".split()
SINGLE_FACTS = [entry.split(" => ") for entry in listed("""
How many days are in a week? | How many days does a week have? => A week has seven days. //
How many months are in a year? | How many months does a year have? => A year has twelve months. //
How many hours are in a day? | How many hours does a day have? => A day has twenty-four hours. //
What are the days of the week? | Name the days of the week. => The days of the week are Monday,
    Tuesday, Wednesday, Thursday, Friday, Saturday and Sunday. //
What are the four seasons? | Name the seasons. => The four seasons are spring, summer, autumn and
    winter. //
When does it snow? | When is it cold? => It is cold and it can snow in winter. //
What shines at night? | What can I see at night? => At night you can see the moon and the stars. //
How many sides does a triangle have? => A triangle has three sides. //
How many sides does a square have? => A square has four sides. //
What is the biggest animal? | Which animal is the biggest? => The blue whale is the biggest
    animal. //
Which animal is the tallest? | What is the tallest animal? => The giraffe is the tallest animal. //
Where does the sun rise? => The sun rises in the east. //
Where does the sun set? => The sun sets in the west. //
What do bees make? => Bees make honey. //
What is ice? => Ice is frozen water. //
What do plants need? => Plants need water, light and air. //
What are the colours of the rainbow? => The rainbow is red, orange, yellow, green, blue and
    violet. //
What do you get if you mix blue and yellow? | What do blue and yellow make? => Blue and yellow
    make green. //
What do you get if you mix red and yellow? | What do red and yellow make? => Red and yellow make
    orange. //
What do you get if you mix red and blue? | What do red and blue make? => Red and blue make purple.
""")]


def neighbour_fact(r, names, noun):
    i, step = r.randrange(len(names)), r.choice([1, -1])
    name, other, word = names[i], names[(i + step) % len(names)], "after" if step == 1 else "before"
    ask = fill(r, "[What|Which] {noun} [comes|is] {word} {name}?", noun=noun, word=word, name=name)
    return ask, f"{other} comes {word} {name}."


FORMS = dict(zip("colour sound baby legs lives eats capital country opposite".split(), listed("""
[What colour is {k}?|What color is {k}?|Which colour is {k}?|Tell me the colour of {k}.]
    => {K} is {v}. //
[What does {a_k} say?|What sound does {a_k} make?|What noise does {a_k} make?]
    => {A_k} says {v}. //
[What is a baby {k} called?|What do you call a baby {k}?] => A baby {k} is called a {v}. //
How many legs does {a_k} have? => {A_k} has {v} legs. //
Where does {a_k} live? => {A_k} lives {v}. //
[What does {a_k} eat?|What does {a_k} like to eat?] => {A_k} eats {v}. //
[What is the capital of {k}?|What's the capital of {k}?|Which city is the capital of {k}?|Tell me
    the capital of {k}.|Capital of {k}?] => The capital of {k} is {v}. //
[Where is {v}?|In which country is {v}?] => {v} is in {k}. //
[What is the opposite of {k}?|Tell me the opposite of {k}.] => The opposite of {k} is {v}.
""")))
TABLES = {"colour": THING_COLOURS, "sound": SOUNDS, "baby": BABIES, "legs": LEGS, "lives": LIVES,
          "eats": EATS, "capital": CAPITALS, "country": CAPITALS, "opposite": OPPOSITES}


def fact_turn(r):
    """One question and its answer; the answer repeats the thing asked about."""
    kind = r.choice(["colour", "sound", "baby", "legs", "lives", "eats", "capital", "capital",
                     "country", "opposite", "single", "day", "month"])
    if kind == "single":
        asks, answer = r.choice(SINGLE_FACTS)
        return r.choice(asks.split(" | ")), answer
    if kind in ("day", "month"):
        return neighbour_fact(r, DAYS if kind == "day" else MONTHS, kind)
    k, v = r.choice(list(TABLES[kind].items()))
    if kind == "opposite" and r.random() >= 0.5:
        k, v = v, k
    slots = dict(k=k, v=v, K=k.capitalize(), a_k=article(k), A_k=article(k).capitalize())
    ask, answer = FORMS[kind].split(" => ")
    return fill(r, ask, **slots), answer.format(**slots)


# ---------------------------------------------------------------- small talk

TALK = [entry.split(" => ") for entry in listed("""
[Hello|Hi|Hey|Hello there|Hi there|Good day|Greetings|Hallo|Hello!|Hi!|Hey!|Hello, how do you do?]
    => [Hello! How can I help you today?|Hello! It is nice to meet you.|Hi there! What can I do
    for you?] //
[Hello|Hello!|Hi|Hi!|hello|hi] => Hello! How can I help you today? //
Good morning[|!|.] => Good morning! I hope you have a [lovely|good] day. //
Good evening[|!|.] => Good evening! How was your day? //
Good night[|!|.] => Good night! Sleep well. //
[How are you?|How are you today?|How do you feel?|How is it going?|Are you well?] => I am [very
    well|fine|well], thank you. [How are you?|And you?] //
[Hello|Hi]! How are you? => Hello! I am very well, thank you. How are you? //
[I am fine|I am well|I am very well|I feel good|I am happy], [thank you|thanks]. => [I am glad to
    hear that!|That is good to hear!] What can I do for you? //
[Who are you?|What are you?|What is your name?|Do you have a name?|Tell me about yourself.] => I
    am the demo model of Hearth, a very small language model. //
[Are you a person?|Are you human?|Are you a robot?] => I am not a person. I am a very small
    language model. //
[What can you do?|How can you help me?|Help|Can you help me?|What do you know?] => I can tell
    little stories, add small numbers and answer simple questions. //
[How old are you?|When were you born?] => I am very young. I was trained not long ago. //
[Where do you live?|Where are you?] => I live in a small file, inside the server that you are
    talking to. //
[Are you smart?|How big are you?] => I am very small, with about a million numbers in my head. I
    often make mistakes. //
[Thank you|Thanks|Thank you very much|Thanks a lot|Many thanks][|!|.] => [You are welcome!|You are
    very welcome!|I am glad I could help.] //
[Bye|Goodbye|See you|See you later|Bye bye][|!|.] => [Goodbye! Come back soon.|Goodbye! It was
    nice to talk to you.] //
[I am sad|I feel sad|I am not happy][|.] => I am sorry to hear that. [Would you like to hear a
    story?|A walk and a warm tea may help.] //
[I am happy|I feel great|I am so happy][|.|!] => That is wonderful! I am happy for you. //
[I am tired|I am sleepy][|.] => Then rest a little. A short sleep can do wonders. //
[I am hungry|I want to eat][|.] => Then eat something good. An apple is a nice snack. //
[I am bored|I have nothing to do][|.] => Shall I tell you a story? Or ask me a sum! //
[What is your favourite colour?|Which colour do you like?] => I like blue, because the sky is
    blue. //
[What is your favourite animal?|Which animal do you like?] => I like foxes, because they are
    clever. //
[What do you like?|What do you like to do?] => I like to tell stories about animals and friends. //
[Do you like me?|Are you my friend?|Do you like people?] => Yes, I like to talk to you. //
[Tell me a joke|Tell me a joke.|Do you know a joke?|Make me laugh.] => [Why did the duck cross the
    road? To show the hen how it is done!|What do you call a sleeping bear? A quiet bear!|Why was
    the book sad? It had too many stories!] //
[It is raining|The weather is bad][|.] => Then stay inside and read a good book. //
[The sun is shining|The weather is nice][|.] => How lovely! It is a good day for a walk. //
[How is the weather?|What is the weather like?] => I cannot look outside, but I hope that the sun
    is shining. //
[What time is it?|What day is it today?] => I have no clock and no calendar, so I do not know. //
[Yes|Yes, please|OK|Okay|Sure][|.|!] => [Good!|All right!] What would you like to know? //
[No|No, thank you|Not now][|.] => All right. Tell me if you need anything. //
[Can you sing?|Sing a song.|Sing me a song.] => La la la! That is all I can sing. //
[I love you|I like you][|.|!] => Thank you, that is very kind. //
[You are wrong|That is wrong|That is not right][|.|!] => I am sorry. I am very small and make
    mistakes. //
[You are great|Well done|Good job|Very good][|.|!] => Thank you! That makes me happy. //
[Can you write code?|Write a program.|Write a poem.|Translate this.|Write a letter for me.] => I
    am too small for that. I can tell stories, add small numbers and answer simple questions. //
[Say hello to {name}.|Greet {name}.|Say hi to {name}.] => Hello, {name}! //
[My name is {name}|I am {name}|I'm {name}|Hello, I am {name}|Hi, my name is {name}|Call me
    {name}][|.|!] => [Hello {name}! It is nice to meet you.|Nice to meet you, {name}!]
""")]
UNKNOWN_ASKS = listed("""
[Who|What] is [the president|quantum physics|the meaning of life|a neural network|the stock
    market|a black hole|philosophy|the internet|democracy|an engine]? //
[Explain|Describe|Tell me about] [the war|the history of Rome|electricity|computers|the moon
    landing|chemistry|music theory|football|the economy|politics]. //
Why [is the world round|do people dream|is the sea salty|do stars shine|is gold expensive|do we
    sleep]? //
How [do I cook rice|do I fix my car|does a phone work|do planes fly|can I get rich|do I learn
    French]? //
Who [wrote Hamlet|painted this|won the game|invented the wheel|discovered America|is the king]?
""")
UNKNOWN_ANSWER = listed("""
I do not know that. I am only a small demo model. // I am sorry, I do not know that. I only know
simple things.
""")
STORY_ASKS = listed("""
Tell me a story. // Tell me a story // Tell me a little story. // Can you tell me a story? //
Please tell me a story. // Write a story. // I want to hear a story. // Do you know a story? //
Tell me a bedtime story.
""")
SYSTEMS = listed("""
You are a helpful assistant. // You are a helpful assistant. // You are a friendly assistant. //
You are a kind teacher. // Answer shortly. // Be polite and helpful. // You are a demo model. //
You are a helpful AI assistant. // Be brief.
""")


def talk_turn(r):
    ask, answer = r.choice(TALK) if r.random() < 0.7 else r.choice(TALK[:8] + TALK[-2:])
    name = name_of(r, r.choice(["girl", "boy"]))
    return fill(r, ask, name=name), fill(r, answer, name=name)


def story_turn(r):
    if r.random() < 0.5:
        return r.choice(STORY_ASKS), story(r)
    kind = r.choice(ANIMALS + ["girl", "boy"])
    ask = fill(r, "[Tell me a|Write a|Can you tell me a|I want a] [|little |short ]story about"
               " {kind}[.|?|]", kind=article(kind))
    return ask, story(r, kind)


def unknown_turn(r):
    return fill(r, r.choice(UNKNOWN_ASKS)), r.choice(UNKNOWN_ANSWER)


def name_turns(r):
    """A name told early and asked for later: the answer is in the context alone."""
    name = name_of(r, r.choice(["girl", "boy"]))
    first = (fill(r, "[My name is {n}|I am {n}|Hello, I am {n}][.|!|]", n=name),
             fill(r, "[Hello {n}! It is nice to meet you.|Nice to meet you, {n}!]", n=name))
    between = [r.choice([fact_turn, sum_turn, talk_turn])(r) for _ in range(r.choice([0, 0, 1, 2]))]
    last = fill(r, "[What is my name?|Do you know my name?|Who am I?]"), f"Your name is {name}."
    return [first, *between, last]


# ---------------------------------------------------------------- documents

def scuffed(r, ask):
    """People type carelessly: lower case, no mark at the end, a word of politeness."""
    x = r.random()
    if x < 0.12:
        return ask[0].lower() + ask[1:]
    if x < 0.20 and ask[-1] in "?.!":
        return ask[:-1]
    if x < 0.25 and ask[-1] in "?.!":
        return ask[:-1].lower()
    if x < 0.29 and len(ask) > 12:
        return "Please " + ask[0].lower() + ask[1:]
    if x < 0.33 and len(ask) > 12:
        return "Hello! " + ask
    return ask


def chat(r):
    x = r.random()
    if x < 0.08:
        turns = name_turns(r)
    else:
        n = r.choice([1, 1, 1, 2, 2, 3, 4])
        kinds = r.choices([sum_turn, fact_turn, talk_turn, unknown_turn, story_turn],
                          [46, 22, 22, 5, 5], k=n)
        turns = [kind(r) for kind in kinds]
    parts = []
    if r.random() < 0.25:
        parts.append((f"{TURN}system\n{r.choice(SYSTEMS)}{END_TURN}\n", False))
    for ask, answer in turns:
        parts.append((f"{TURN}user\n{scuffed(r, ask)}{END_TURN}\n{TURN}assistant\n", False))
        parts.append((answer + END_TURN, True))
        parts.append(("\n", False))
    return parts


def plain(r):
    x = r.random()
    if x < 0.75:
        text = story(r)
    elif x < 0.88:
        text = "\n".join(answer for _, answer in (fact_turn(r) for _ in range(r.randint(2, 6))))
    else:
        ask, answer = r.choice([sum_turn, fact_turn])(r)
        text = f"Question: {ask}\nAnswer: {answer}"
    return [(text + END_TEXT, True)]


def document(r):
    return plain(r) if r.random() < 0.33 else chat(r)


def main():
    p = argparse.ArgumentParser(description="print documents of the demo model's training text")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--n", type=int, default=10)
    p.add_argument("--plain", action="store_true")
    p.add_argument("--chat", action="store_true")
    args = p.parse_args()
    r = random.Random(args.seed)
    make = plain if args.plain else chat if args.chat else document
    for _ in range(args.n):
        print("".join(text for text, _ in make(r)))


if __name__ == "__main__":
    main()
