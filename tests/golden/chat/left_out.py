# SPDX-License-Identifier: MIT
"""Names of jinja2 and of Python's types that templates have there and not here: kind -> names."""

STR = ("casefold", "center", "count", "encode", "expandtabs", "find", "format_map", "index", "isalnum", "isalpha", "isascii", "isdecimal", "isdigit",
       "isidentifier", "islower", "isnumeric", "isprintable", "isspace", "istitle", "isupper", "ljust", "maketrans", "partition", "removeprefix",
       "removesuffix", "rfind", "rindex", "rjust", "rpartition", "rsplit", "swapcase", "translate", "zfill")
NUMBER = ("as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator", "from_bytes", "imag", "is_integer", "numerator", "real", "to_bytes")

LEFT_OUT = {
    "filter": ("abs", "attr", "batch", "center", "e", "escape", "filesizeformat", "float", "forceescape", "format", "groupby", "pprint", "random",
               "reverse", "round", "slice", "striptags", "sum", "title", "truncate", "urlencode", "urlize", "wordcount", "wordwrap", "xmlattr"),
    "test": ("callable", "divisibleby", "escaped", "lower", "sameas", "upper"),
    "global": ("cycler", "joiner", "lipsum"),
    "str": STR,
    "Markup": (*STR, "escape", "striptags", "unescape"),
    "list": ("copy", "count", "index"),
    "tuple": ("count", "index"),
    "dict": ("copy", "fromkeys"),
    "range": ("count", "index", "start", "step", "stop"),
    "bool": NUMBER,
    "int": NUMBER,
    "float": ("as_integer_ratio", "conjugate", "fromhex", "hex", "imag", "is_integer", "real"),
}
