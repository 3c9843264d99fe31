#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""JSON of a small model under everyday schemas: how many answers parse and fit, and how many tokens they take.

    tests/bench/json_answers.py --model DIR_OR_FILE [--tokens 16,32,64,128,400] [--temperatures 0,0.8] [--option=--json-whitespace=any]

Answers whose shortest form has more tokens than max_tokens are counted apart. Needs jsonschema from PyPI.
"""
import argparse
import json
import os
import statistics
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from accept_filter import Accept  # noqa: E402
from hearth_server import Hearth  # noqa: E402


def thing(required, **properties):
    return {"type": "object", "properties": properties, "required": required.split()}


TEXT, WHOLE, NUMBER, YES = ({"type": t} for t in ("string", "integer", "number", "boolean"))
TEXTS = {"type": "array", "items": TEXT}


def texts(**bounds):
    return dict(TEXTS, **bounds)


# name -> what is asked, the schema
QUESTIONS = {
    "book": ("Describe a famous book.", thing("title author year", title=TEXT, author=TEXT, year=WHOLE)),
    "person": ("Invent a person.", thing("name age email", name=TEXT, age={"type": "integer", "minimum": 0, "maximum": 120},
                                         email={"type": "string", "format": "email"})),
    "recipe": ("Give a recipe for pancakes.", thing("name ingredients steps", name=TEXT, ingredients=TEXTS, steps=TEXTS)),
    "weather": ("What is the weather like in Oslo in May?", thing("city celsius sky", city=TEXT, celsius=NUMBER,
                                                                 sky={"enum": ["clear", "cloudy", "rain", "snow"]})),
    "colors": ("List colors of the rainbow.", {"type": "array", "items": TEXT, "minItems": 3}),
    "feeling": ("I love this phone, but the battery is weak. How does that sound?",
                thing("label score", label={"enum": ["positive", "negative", "mixed"]}, score={"type": "number", "minimum": 0, "maximum": 1})),
    "address": ("Write an address in Paris.", thing("street city country", street=TEXT, city=TEXT, zip=TEXT, country=TEXT)),
    "event": ("Plan a birthday party.", thing("what day guests", what=TEXT, day={"type": "string", "format": "date"}, guests=TEXTS, place=TEXT)),
    "menu": ("Write the menu of a small cafe.", {"type": "array", "minItems": 1, "items": thing("dish price", dish=TEXT, price=NUMBER)}),
    "folders": ("Draw up the folders of a project.", {"$ref": "#/$defs/folder", "$defs": {"folder": thing(
        "name children", name=TEXT, children={"type": "array", "items": {"$ref": "#/$defs/folder"}})}}),
    "quiz": ("Make a question for a quiz about animals.", thing("question options answer", question=TEXT,
                                                               options=texts(minItems=4, maxItems=4), answer=WHOLE)),
    "film": ("Describe a film.", thing("title genres rating", title=TEXT, genres={"type": "array", "items": {
        "enum": ["drama", "comedy", "action", "horror"]}, "uniqueItems": True}, rating=NUMBER, seen=YES)),
    "contact": ("Who is to be called in an emergency?", thing("name phone", name=TEXT, phone={"type": "string", "pattern": "^\\+[0-9]{6,14}$"})),
    "order": ("A customer orders two pens and a notebook.", thing("customer items", customer=TEXT, items={
        "type": "array", "items": thing("name count", name=TEXT, count={"type": "integer", "minimum": 1}), "minItems": 1})),
    "summary": ("Summarise the story of Cinderella.", thing("summary keywords", summary=TEXT, keywords=texts(maxItems=8))),
    "steps": ("How do I change a tire?", thing("steps", steps={"type": "array", "items": thing("number text", number=WHOLE, text=TEXT)})),
    "config": ("Write the configuration of a web server.", thing("host port tls", host=TEXT, port={
        "type": "integer", "minimum": 1, "maximum": 65535}, tls=YES, paths={"type": "object", "additionalProperties": TEXT})),
    "words": ("Translate hello into five languages.", {"type": "object", "additionalProperties": TEXT, "minProperties": 3}),
    "animal": ("Pick an animal and describe it.", {"anyOf": [thing("kind lives_in", kind={"const": "fish"}, lives_in=TEXT),
                                                              thing("kind legs", kind={"const": "mammal"}, legs=WHOLE, name=TEXT)]}),
    "ticket": ("My screen stays black since this morning.", thing("title severity tags", title={"type": "string", "maxLength": 60}, severity={
        "enum": ["low", "medium", "high"]}, tags=TEXTS, reported={"type": "string", "format": "date-time"}, resolved=YES)),
}


def fits(schema, text):
    import jsonschema
    try:
        jsonschema.validate(json.loads(text), schema, format_checker=jsonschema.FormatChecker())
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


def ask(server, name, max_tokens, temperature, **fields):
    """The text, the reason and the usage of one answer."""
    question, schema = QUESTIONS[name]
    body = {"messages": [{"role": "user", "content": f"{question} Answer in JSON."}], "max_tokens": max_tokens, "seed": 1,
            "temperature": temperature, "response_format": {"type": "json_schema", "json_schema": {"name": name, "schema": schema}}, **fields}
    status, _, answer = server.post("/v1/chat/completions", body, timeout=600)
    assert status == 200, answer
    choice = answer["choices"][0]
    return choice["message"]["content"] or "", choice["finish_reason"], answer["usage"]


def least_tokens(model):
    """Of the shortest answer to each question; {} where the filter cannot read the model's tokenizer."""
    if not os.path.isdir(model):
        return {}
    with Accept(model) as accept:
        return {name: accept.ask(schema=schema, texts=[""], shortest=True, whitespace="style",
                                 disable_additional_properties=True)["shortest"][0][2] for name, (_, schema) in QUESTIONS.items()}


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--model", required=True)
    p.add_argument("--tokenizer", help="directory with the tokenizer of the model, if that is a file")
    p.add_argument("--tokens", default="16,32,64,128,400")
    p.add_argument("--temperatures", default="0,0.8")
    p.add_argument("--option", action="append", default=[], help="of the server")
    p.add_argument("--show", action="store_true", help="print the answers")
    a = p.parse_args()
    least = least_tokens(a.tokenizer or a.model)
    with Hearth("--model", a.model, *a.option) as server:
        for temperature in map(float, a.temperatures.split(",")):
            for max_tokens in map(int, a.tokens.split(",")):
                good = cut = short = 0
                ended = []
                for name, (_, schema) in QUESTIONS.items():
                    text, reason, usage = ask(server, name, max_tokens, temperature)
                    right = fits(schema, text)
                    if a.show:
                        print(f"  {name}: {reason} {usage.get('completion_tokens_details', {})} {text}")
                    if max_tokens < least.get(name, 0):
                        short += 1
                        continue
                    good, cut = good + right, cut + (not right)
                    if reason == "stop":
                        ended.append(usage["completion_tokens"])
                mean = f"{statistics.mean(ended):.1f}" if ended else "-"
                print(f"temperature {temperature:g}, max_tokens {max_tokens}: {good} of {good + cut} fit, {short} have no room; "
                      f"{len(ended)} ended by themselves, {mean} tokens each", flush=True)


if __name__ == "__main__":
    main()
