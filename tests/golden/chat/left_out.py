# SPDX-License-Identifier: MIT
"""Names of jinja2 and of Python's types that templates have there and not here: kind -> names."""

STR = ("casefold", "center", "encode", "expandtabs", "format_map", "isascii", "isdecimal", "isidentifier", "isnumeric", "isprintable",
       "istitle", "ljust", "maketrans", "partition", "rjust", "rpartition", "rsplit", "swapcase", "translate", "zfill")
NUMBER = ("as_integer_ratio", "bit_count", "from_bytes", "to_bytes")

LEFT_OUT = {
    "filter": ("center", "filesizeformat", "pprint", "random", "striptags", "urlencode", "urlize", "wordwrap", "xmlattr"),
    "test": (),
    "global": ("cycler", "lipsum"),
    "str": STR,
    "Markup": (*STR, "escape", "striptags", "unescape"),
    "list": (),
    "tuple": (),
    "dict": (),
    "range": (),
    "bool": NUMBER,
    "int": NUMBER,
    "float": ("as_integer_ratio", "fromhex", "hex"),
}
