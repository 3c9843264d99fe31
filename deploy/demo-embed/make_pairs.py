#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the training pairs (question, passage) of demo-embed and demo-rerank: every text is this project's own.

Most pairs come from the paragraphs of the pages and of the headers' comments: a heading, a sentence cut
out of the paragraph, or some of its words in the form of a question, with other words for some of them. The others
are facts of the demo model (../demo/make_text.py) and sentences made of the word lists below.

The questions of docs/search/questions.jsonl, which measure the models, are not among them.

    make_pairs.py [--seed N] [--n N]     prints N pairs
"""
import argparse
import collections
import glob
import json
import math
import os
import random
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path += [os.path.join(HERE, "..", "demo"), os.path.join(ROOT, "docs", "search")]
import make_text  # noqa: E402
from paragraphs import of_page, plain  # noqa: E402

PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "docs/*.md", "docs/internals/*.md",
         "deploy/demo/README.md")
HEADERS = ("base/*.h", "engine/**/*.h", "tokenizer/**/*.h", "server/**/*.h")

# Words of one line can stand for each other.
SYNONYMS = [line.split(", ") for line in """
allow, permit, let, accept
answer, reply, response, result
ask, request, query
begin, start, commence, launch
big, large, huge, great
biggest, largest, greatest, maximum, most
buy, purchase, get
car, automobile, vehicle
change, modify, alter, edit, replace
child, kid, boy, girl
choose, pick, select
client, user, caller
close, shut, end
cold, chilly, freezing, icy
computer, machine, server, host
cost, price, expense
create, make, produce, generate
delete, remove, erase, purge
doctor, physician, medic
download, fetch, pull
error, fault, failure, mistake, problem
fast, quick, rapid, speedy
fewest, smallest, least, minimum
file, document, page
find, locate, search, discover
folder, directory, path
give, provide, supply, offer
happy, glad, cheerful, joyful
hard, difficult, tough
help, assist, support
hot, warm, heated
house, home, building
install, deploy, add
interrupted, stopped, aborted
key, password, secret, credential
kitten, cat
lawyer, attorney
limit, bound, cap, restriction
list, show, print, display
load, open, read
long, lengthy
lots, many, much
lower, reduce, decrease, shrink
meal, dinner, food, lunch
measure, benchmark, time
memory, RAM
money, cash, funds
movie, film
need, require, must
option, setting, flag, parameter
people, persons, humans
phone, telephone, mobile
prevent, avoid, forbid, block
processor, CPU, core
puppy, dog
quiet, silent, calm
refuse, reject, deny, decline
restart, reboot
run, execute, serve
sad, unhappy, sorrowful
save, store, keep
send, post, transmit
ship, boat, vessel
shop, store, market
sick, ill, unwell
sleep, rest, nap
slow, sluggish
small, little, tiny
sofa, couch
speed, throughput, performance
stone, rock
stop, quit, halt, terminate
street, road
talk, speak, chat
teacher, tutor, instructor
test, check, verify, try
text, words, string
throw, toss
tired, weary, sleepy
train, railway
trip, journey, travel, tour
turn off, disable, switch off
turn on, enable, switch on
use, apply, employ
wait, queue, pause
walk, stroll, hike
way, method, manner
woods, forest, trees
work, job, task
wrong, bad, incorrect
""".strip().split("\n")]

# Words of one line belong to one subject.
SUBJECTS = [line.split(" ") for line in """
animal dog cat horse cow sheep lion tiger bear wolf fox rabbit mouse elephant monkey zoo farm pet fur paw tail
bird owl eagle duck swan hen chick parrot sparrow feather wing nest egg beak fly
sea ocean fish whale shark boat ship wave beach sand island sail harbour swim water
weather rain snow wind storm cloud sun thunder fog ice frost sky umbrella degrees forecast
food bread cheese butter soup rice pasta tomato potato onion salt pepper cook kitchen oven recipe eat dish
fruit apple pear banana cherry plum lemon orange grape berry strawberry sweet juice
drink water tea coffee milk wine beer cup glass bottle thirsty
sweets cake sugar chocolate cookie honey pie bake dessert flour
garden flower rose tree leaf seed grass plant soil grow spring root
city street bridge tower museum capital square tram station building park mayor
country France Germany Italy Spain England Japan China Paris Berlin Rome Madrid London border nation
travel train plane airport ticket hotel suitcase passport journey holiday map tourist
car road driver wheel engine petrol brake traffic garage motor tyre
bicycle bike pedal ride helmet path cycling
house door window roof wall room garden stairs rent floor bed chair table
school teacher pupil lesson book pencil exam class homework learn university student
music song piano guitar violin drum singer concert melody orchestra dance band
sport football goal team match player ball race tennis win coach stadium
health doctor nurse hospital medicine pain fever illness patient heart blood tooth
body head hand arm leg foot eye ear nose mouth back skin
money bank loan price pay coin tax salary budget bill account interest buy sell
law court judge crime police thief prison lawyer guilty trial
war soldier army weapon battle peace enemy general fight king
history king queen castle knight century empire ancient emperor
family mother father brother sister son daughter uncle aunt grandmother wedding baby
feeling happy sad angry afraid love joy fear hope laugh cry smile
time day night week month year hour minute clock morning evening calendar Monday
season spring summer autumn winter warm cold months
space star moon planet sun rocket earth astronaut telescope galaxy orbit
science physics chemistry atom energy light experiment theory laboratory electron
mathematics number sum add subtract multiply divide triangle square equation count
computer processor memory disk keyboard screen program software bug code compiler server
network internet port address packet connection socket proxy request client web browser
language word sentence grammar letter translate English French German speak alphabet
book story author novel poem library read chapter page fairy tale
art paint painting colour brush picture drawing museum sculpture
clothes shirt coat shoe hat scarf dress sock wear trousers
colour red blue green yellow white black brown purple
work office job boss worker factory meeting wage hire career
tool hammer nail saw screw drill wood repair fix
""".strip().split("\n")]

QUESTIONS = ["{}", "{}", "{}?", "what is {}?", "how does {} work?", "what about {}?", "how do I {}?", "how can I get {}?",
             "where is {}?", "when is {}?", "why {}?", "what happens with {}?", "which {}?", "how many {}?", "is {} possible?",
             "can I {}?", "does it have {}?", "tell me about {}", "{} explained", "how much {}?", "what does {} do?",
             "where are {} kept?", "who may {}?"]
LINKS = ("the and with for of in on to a is has was this that very then there our its some many her his near after before "
         "because while also often sometimes").split()
STOP = set(LINKS) | set("""be are by as it an or at from not no but if so which what who when where how do does can may
must i you we they he she one two other others than into out up only all each any more most them their these those such
will would been were had have""".split())


def paragraphs_of_header(text):
    """(what the comment stands before, comment)."""
    for comment in re.finditer(r"/\*(.*?)\*/\s*([^\n]*)", text, re.S):
        words = " ".join(re.sub(r"^\s*\*", "", comment.group(1), flags=re.M).split())
        yield " ".join(re.findall(r"[a-z]{3,}", comment.group(2)))[:60], words


def load_paragraphs():
    """(heading, paragraph) of the pages, and of the headers."""
    found = []
    for patterns, reader in ((PAGES, of_page), (HEADERS, paragraphs_of_header)):
        texts = []
        for path in sorted(p for pattern in patterns for p in glob.glob(os.path.join(ROOT, pattern), recursive=True)):
            with open(path, encoding="utf-8") as f:
                texts += [(plain(h), plain(p)) for h, p in reader(f.read())]
        found.append([(h, p) for h, p in texts if len(p.split()) >= 8])
    return found


class Pairs:
    """Draws pairs by a seeded generator."""

    def __init__(self, seed):
        self.r = random.Random(seed)
        self.pages, self.comments = load_paragraphs()
        self.paragraphs = self.pages + self.comments
        counts = collections.Counter(w for _, p in self.paragraphs for w in set(self.words(p)))
        self.rarity = {w: math.log(len(self.paragraphs) / n) for w, n in counts.items()}
        self.synonyms = {w: line for line in SYNONYMS for w in line}
        self.vocabulary = sorted(w for w, n in counts.items() if n >= 2 and len(w) > 2) + sorted(
            {w.lower() for line in SUBJECTS + SYNONYMS for w in line})

    @staticmethod
    def words(text):
        return re.findall(r"[a-z0-9]+", text.lower())

    def other_word(self, word, p):
        """Another word for it, or another form of it, with probability p."""
        r = self.r
        if r.random() >= p:
            return word
        if word in self.synonyms:
            return r.choice(self.synonyms[word])
        if len(word) > 4 and word.isalpha():
            return word[:-1] if word.endswith("s") else word + "s"
        return word

    def as_question(self, words):
        return self.r.choice(QUESTIONS).format(" ".join(words))

    def from_paragraph(self):
        r = self.r
        heading, text = r.choice(self.pages if r.random() < 0.7 else self.comments)
        sentences = re.split(r"(?<=[.:;]) +", text)
        kind = r.random()
        if kind < 0.12 and heading:
            return heading, text
        if kind < 0.3 and len(sentences) > 1:
            i = r.randrange(len(sentences))
            if len(sentences[i].split()) >= 4:
                rest = sentences[:i] + sentences[i + 1:] if r.random() < 0.5 else sentences
                return sentences[i], " ".join(rest)
        words = [w for w in self.words(r.choice(sentences) if r.random() < 0.7 else text) if w not in STOP]
        if len(words) < 2:
            return heading or text, text
        weights = [0.3 + self.rarity.get(w, 3) for w in words]
        places = {r.choices(range(len(words)), weights)[0] for _ in range(r.randint(2, 6))}
        chosen = [self.other_word(words[i], 0.2) for i in sorted(places)]
        if heading and r.random() < 0.2:
            chosen += self.words(heading)
        if r.random() < 0.3:
            r.shuffle(chosen)
        return self.as_question(chosen), text

    def from_lists(self):
        """A passage of words of one subject or of any words; the question has some of them, or others for them."""
        r = self.r
        if r.random() < 0.5:
            line = r.sample(r.choice(SUBJECTS), 6)
            asked, told = line[:r.randint(1, 3)], line[2:]
        elif r.random() < 0.5:
            lines = r.sample(SYNONYMS, 5)
            told = [r.choice(line) for line in lines]
            asked = [r.choice(line) for line in lines[:r.randint(2, 4)]]
        else:
            told = [r.choice(self.vocabulary) for _ in range(r.randint(4, 12))]
            asked = [self.other_word(w, 0.3) for w in r.sample(told, r.randint(2, min(4, len(told))))]
        r.shuffle(asked)
        r.shuffle(told)
        passage = " ".join(w for word in told for w in r.sample(LINKS, r.randint(0, 2)) + [word])
        return self.as_question(asked), passage.capitalize() + "."

    def pair(self):
        kind = self.r.random()
        if kind < 0.65:
            return self.from_paragraph()
        return make_text.fact_turn(self.r) if kind < 0.72 else self.from_lists()


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--seed", type=int, default=2026)
    args.add_argument("--n", type=int, default=20)
    args = args.parse_args()
    pairs = Pairs(args.seed)
    print(f"{len(pairs.paragraphs)} paragraphs, {sum(len(p) for _, p in pairs.paragraphs)} characters", file=sys.stderr)
    for _ in range(args.n):
        print(json.dumps(pairs.pair()))


if __name__ == "__main__":
    main()
