# SPDX-License-Identifier: MIT
"""The environment that chat templates are rendered in by transformers, put together from jinja2.

Imported by the generators beside it and by differential.py. Needs jinja2 >= 3.1; transformers itself
is not needed. The clock stands at 2025-03-09 14:05:06.
"""
import json
from datetime import datetime

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = datetime(2025, 3, 9, 14, 5, 6)


class Generation(Extension):
    """{% generation %}: a call block around a function that hands its body through."""

    tags = {"generation"}

    def parse(self, parser):
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_hand_through")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(lineno)

    def _hand_through(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def strftime_now(format):
    return NOW.strftime(format)


class Dict:
    """dict() and dict.fromkeys(), and nothing else of the class."""

    def __call__(self, *args, **kwargs):
        return dict(*args, **kwargs)

    def fromkeys(self, *args, **kwargs):
        return dict.fromkeys(*args, **kwargs)


def make_environment():
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    env.globals["dict"] = Dict()
    return env


def render(source, context):
    """{"text": ...} or {"error": ...}, the way the goldens have it."""
    try:
        text = make_environment().from_string(source).render(**context)
        text.encode("utf-8")
        return {"text": text}
    except Exception as error:  # whatever the template did wrong
        return {"error": f"{type(error).__name__}: {error}"}
