# SPDX-License-Identifier: MIT
"""Names of jinja2 and of Python's types that templates have there and not here: kind -> names."""

NUMBER = ("as_integer_ratio", "bit_count", "from_bytes", "to_bytes")

LEFT_OUT = {
    "filter": ("pprint", "random", "striptags", "urlize"),
    "test": (),
    "global": ("lipsum",),
    "str": ("encode",),
    "Markup": ("encode", "escape", "striptags", "unescape"),
    "list": (),
    "tuple": (),
    "dict": (),
    "range": (),
    "bool": NUMBER,
    "int": NUMBER,
    "float": ("as_integer_ratio", "fromhex", "hex"),
}
