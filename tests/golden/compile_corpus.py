# SPDX-License-Identifier: MIT
"""Schemas, expressions and grammars that are expensive to compile: harmless ones that must be compiled, and hostile
ones, each made for a loop of the compiler. Requests of `hearth-filter accept`. Standard library only."""
import json
import string

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def words(n, length=5):
    """n different words of letters, in no order."""
    out, x = [], 12345
    while len(out) < n:
        x = (x * 1103515245 + 12345) % (1 << 31)
        out.append("".join(LETTERS[(x >> 3 * i) % 26] for i in range(length)))
    return sorted(set(out), key=out.index)


def colliding_names(n):
    """Names whose FNV-1a hashes have 16 equal lowest bits, and so share a bucket in any table of a power of two."""
    prime, mask, alphabet = 0x0193, 0xFFFF, string.ascii_lowercase + string.digits
    inverse = pow(prime, -1, mask + 1)
    behind = {0: ""}  # state -> the text that leads from it to 0
    for _ in range(4):
        behind = {(state * inverse & mask) ^ ord(c): c + text for state, text in behind.items() for c in alphabet}
    names = []
    for i in range(n * 8):
        prefix, state = f"k{i}x", 2166136261 & mask
        for c in prefix:
            state = (state ^ ord(c)) * prime & mask
        if state in behind:
            names.append(prefix + behind[state])
    return names[:n]


def named(keys, schema):
    return {"type": "object", "properties": {key: schema for key in keys}}


def chain(n, **last):
    """dependentSchemas in which each key demands the next one."""
    return {"dependentSchemas": {f"k{i}": dict({"required": [f"k{i + 1}"]}, **last) for i in range(n)}}


def harmless():
    """name, the steps that it may take, request: each answers 200."""
    many = "|".join(words(400))
    yield "400 words found in a text", 600000, {"regex": f".*({many}).*"}
    yield "400 words found in a string", 350000, {"schema": {"type": "string", "pattern": many}}
    yield "400 words in a row", 150000, {"regex": f"(({many}) )*({many})"}
    yield "1,000 numbered words", 120000, {"regex": f".*({'|'.join(f'item-{i}' for i in range(1000))}).*"}
    yield "pattern and length", 3600, {"schema": {
        "type": "string", "pattern": "^[A-Z][a-z]+( [A-Z][a-z]+)*$", "minLength": 3, "maxLength": 200}}
    yield "letters of all languages", 90000, {"schema": {"type": "string",
                                                         "pattern": r"^\p{L}[\p{L}\p{M}\p{N}_'-]{0,63}$"}}
    yield "look-aheads of an e-mail address, and its format", 130000, {"schema": {
        "type": "string", "format": "email", "pattern": r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@"
        r"([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$"}}
    yield "look-aheads of a password", 20000, {"schema": {
        "type": "string", "pattern": r"^(?=.*[a-z])(?=.*[A-Z])(?=.*\d)(?=.*[@$!%*?&])[A-Za-z\d@$!%*?&]{8,}$"}}
    yield "enum of 5,000", 300000, {"schema": {"enum": words(5000, 6)}}
    yield "object of 1,000 keys", 60000, {"schema": named(words(1000), {"type": "string"})}
    yield "500 definitions", 50000, {"schema": {"$defs": {w: {"type": "integer"} for w in words(500)},
                                                "properties": {w: {"$ref": f"#/$defs/{w}"} for w in words(500)}}}
    yield "oneOf of 60 kinds", 400000, {"schema": {"oneOf": [
        {"properties": {"kind": {"const": w}, w: {"type": "integer"}}, "required": ["kind"]} for w in words(60)]}}
    yield "30 dependent schemas", 80000, {"schema": chain(30)}
    yield "tuple of 3,000", 180000, {"schema": {"prefixItems": [{"type": "integer"}] * 3000}}
    yield "keys by pattern", 12000, {"schema": {"properties": {w: {} for w in words(200)},
                                                "patternProperties": {"^x-": {"type": "string"}, "[0-9]$": {}}}}
    yield "9,000 keys and a pattern", 2000000, {"schema": {"properties": {w * 8: {} for w in words(9000)},
                                                           "patternProperties": {"^[a-z]*[a-y]$": {}}}}
    yield "grammar of 300 rules", 250000, {"grammar": "root ::= " + " | ".join(
        f"r{i}" for i in range(300)) + "\n" + "\n".join(
            f'r{i} ::= "{w}" [0-9]+ ("," r{(i + 1) % 300})?' for i, w in enumerate(words(300)))}


def hostile_expressions():
    skips = "".join(f"[^{c}]?" for c in LETTERS[:12])
    yield "sets of thousands of states", {"regex": f"^((({skips}){{450}})*|[^]*a[^]{{12}})$"}
    yield "the same as a pattern", {"schema": {"type": "string", "pattern": f"^((({skips}){{450}})*|[^]*a[^]{{12}})$"}}
    some = words(60)
    yield "look-aheads in each alternative", {"regex": "|".join(f"(?!.*{w})(?=.*{w[::-1]})[a-z]*" for w in some)}
    yield "look-aheads in a row", {"schema": {"pattern": "^" + "".join(f"(?!.*{w}.*{w})" for w in some) + "[a-z]+$"}}
    yield "options that look ahead", {"regex": "(?:(?=ab)a)?" * 1300 + "b"}
    yield "look-aheads to many classes", {"regex": "".join(f"(?:(?![{c}{d}])[^{c}])?" for c in LETTERS for d in "01234")}
    yield "look-aheads inside each other", {"regex": "(?=a" * 90 + "b" + ")" * 90 + "a*b"}
    yield "patterns that are left out", {"schema": {"properties": {w: {"pattern": f"(?<={w})"} for w in words(6000)}}}
    yield "patterns of one string that are left out", {"schema": {"allOf": [{"pattern": f"(?<={w})"} for w in words(900)]}}
    yield "chains of empty choices", {"regex": "((|){5000}[^])*a[^]{11}"}
    yield "chains of options", {"regex": "([^](x?){5000})*a[^]{11}"}
    yield "options before many classes", {"regex": "(" + "".join(f"[{c}{d}]?" for c in LETTERS for d in "0123456789") +
                                          "){10}"}
    sets = "".join(f"[{c}{d}]" for c in string.printable[:62] for d in string.printable[:62])
    yield "3,000 sets", {"regex": sets[:16000]}
    yield "3,000 sets, again and again", {"regex": f"({sets[:12000]}){{2,4}}"}
    scripts = ("Latin", "Han", "Arabic", "Common", "Inherited", "Greek", "Cyrillic", "Devanagari")
    yield "ranges of scripts", {"regex": "".join(
        rf"[\p{{sc={scripts[i % 8]}}}\u{{{0x10000 + i * 97:x}}}]" for i in range(550))}
    yield "properties", {"regex": "".join(rf"[\p{{L}}\u{{{0x10000 + i * 97:x}}}]" for i in range(900))}
    yield "rows of a decoder", {"regex": "[" + "".join(chr(0x4E00 + 67 * i) for i in range(250)) + "]*[" + "".join(
        chr(0x20000 + 61 * i) for i in range(2700)) + "]*"}
    yield "decoders by the dozen", {"schema": {"prefixItems": [
        {"type": "string", "pattern": "[" + "".join(chr(0x20000 + (67 + k) * i) for i in range(250)) + "]"}
        for k in range(200)]}}
    yield "250 classes", {"regex": "(" + "|".join(f"{chr(0x100 + i)}{chr(0x100 + i * 7 % 250)}" for i in range(250)) +
                          ")*x[^]{9}"}
    yield "long period", {"schema": {"type": "string", "pattern": "^(a{3989})*$", "maxLength": 100000}}
    yield "two periods", {"schema": {"type": "string", "pattern": "^((a{61})*|(b{59})*)$", "minLength": 3000}}
    yield "many rows", {"schema": {"type": "string", "pattern": "^((a{61})*(b{59})*|c)$", "minLength": 3,
                                   "maxLength": 8000}}
    yield "few states, many rows", {"schema": {"type": "string", "pattern": "^(a{7}|b{11})*(c{13})*$", "minLength": 3,
                                               "maxLength": 8190}}
    yield "long word behind many", {"schema": {"type": "string", "pattern": "^(a*b){2900}$", "minLength": 2}}
    yield "dead ends", {"regex": f"(a*b){{1900}}{chr(0xE000)}"}
    yield "groups in groups", {"regex": "(" * 99 + "ab?" * 3500 + ")x?" * 99}
    yield "counts in counts", {"regex": "(" * 90 + "ab" * 4000 + "){1,2}" * 90}
    yield "white space", {"json_object": True, "whitespace_pattern": "(" + "[ \t]?[\n\r]?" * 70 + ")*"}
    yield "2,000 patterns", {"schema": {"prefixItems": [{"type": "string", "pattern": f"^a{i}$"} for i in range(2000)]}}
    yield "excluded words", {"schema": {"type": "string", "not": {"enum": words(9000, 8)}}}


def hostile_grammars():
    many = 'root ::= "a"\n' + "\n".join(f"r{i} ::= " + "root " * 20 for i in range(1100))
    yield "rules that are used often", {"grammar": many}
    yield "small rules written into others", {"grammar": "root ::= " + "a " * 40000 + "\na ::= " + "[ab]? " * 290}
    yield "long sequence", {"grammar": "root ::= " + '"a" b? ' * 15000 + '\nb ::= "b" root*'}
    yield "long sequence of sets", {"grammar": "root ::= " + "[ab]" * 32000}
    yield "long choice", {"grammar": "root ::= " + " | ".join(f'"{w}"' for w in words(9000, 7))}
    names = colliding_names(3800)
    yield "names of one bucket", {"grammar": "root ::= " + " | ".join(names) + "".join(f'\n{n} ::= "a"' for n in names)}
    yield "rules in a row", {"grammar": "root ::= r0\n" + "".join(
        f'r{i} ::= "a" r{i + 1} r{i + 1} | "b" root\n' for i in range(900)) + 'r900 ::= "x"'}
    yield "rules in a row, backwards", {"grammar": 'r900 ::= "x"\n' + "".join(
        f'r{i} ::= "a" r{i + 1} r{i + 1} | "b" root\n' for i in range(899, -1, -1)) + "root ::= r0"}
    yield "doubled again and again", {"grammar": "root ::= r0\n" + "".join(
        f"r{i} ::= r{i + 1} r{i + 1}\n" for i in range(60)) + "r60 ::= " + "[ab]? " * 900}
    yield "comments", {"grammar": ("# " + "x" * 60 + "\n") * 1000 + "root ::= " + '("a" |\n# c\n "b")' * 3000}


def hostile_objects():
    yield "dependent schemas, 14 KB", {"schema": chain(400)}
    yield "dependent schemas, 102 KB", {"schema": chain(2800)}
    yield "dependent schemas and keys", {"schema": chain(150, properties={f"p{i}": {} for i in range(20)})}
    yield "dependent on each other", {"schema": {"dependentRequired": {
        f"k{i}": [f"k{i - 1}"] for i in range(1000, 0, -1)}, "required": ["k1000"]}}
    yield "alternatives of objects", {"schema": {"allOf": [{"anyOf": [
        {"required": [f"a{i}"]}, {"not": {"required": [f"a{i}"]}}]} for i in range(8)] + [
            {"properties": {f"p{i}": {"type": "string"} for i in range(2000)}, "required": [f"p{i}" for i in range(2000)]},
            {"properties": {f"p{i}": {"minLength": 1} for i in range(2000)}}]}}
    yield "200 branches", {"schema": {"oneOf": [
        dict(named(words(40), {}), required=[w]) for w in words(200)]}}
    yield "one key in 3,000 schemas", {"schema": {"allOf": [named(["a", "b", "c"], {"minLength": i})
                                                            for i in range(3000)]}}
    yield "many schemas of many keys", {"schema": {"allOf": [named(words(50), {}) for _ in range(700)]}}
    yield "names of one bucket", {"schema": named(colliding_names(20000), True)}
    yield "required names of one bucket", {"schema": {"required": colliding_names(20000)}}
    yield "pattern for each key", {"schema": {"patternProperties": {f"^{w}": {} for w in words(60)},
                                              "properties": {w: {} for w in words(5000)}}}
    yield "words of many runs", {"schema": {"patternProperties": {"^[" + "".join(
        chr(0x100 + 2 * i) for i in range(127)) + "]?(" + "abcdefghij" * 90 + ")?$": {}}, "additionalProperties": False}}
    yield "names by length", {"schema": {"propertyNames": {"anyOf": [{"minLength": i % 3, "maxLength": 900 + i % 7}
                                                                     for i in range(60)]}}}
    yield "classes of keys", {"schema": {"patternProperties": {c: {"minLength": i} for i, c in enumerate(LETTERS[:11])}}}
    yield "unevaluated keys", {"schema": {"unevaluatedProperties": False, "allOf": [named([w], {}) for w in words(4000)]}}
    yield "unevaluated keys again and again", {"schema": {
        "$defs": dict({f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(16)}, d16=named("ab", {})),
        "$ref": "#/$defs/d0", "unevaluatedProperties": False, "unevaluatedItems": False}}
    yield "one key in 4,000 closed schemas", {"schema": {"allOf": [
        dict(named(["a"], {}), additionalProperties={"minLength": i % 3}) for i in range(4000)]}}
    yield "members of one object", {"schema": {f"x{i}": 1 for i in range(36000)}}
    yield "members in reverse", {"schema": {f"{i:06}": 1 for i in range(40000, 0, -1)}}
    yield "annotations again and again", {"schema": {
        "$defs": {"a": dict({f"x{i}": 1 for i in range(9000)}, type="string")}, "allOf": [{"$ref": "#/$defs/a"}] * 9000}}


def hostile_values():
    yield "references to many definitions", {"schema": {
        "$defs": {f"d{i:05}": {"minLength": i} for i in range(7000)},
        "prefixItems": [{"$ref": f"#/$defs/d{i:05}"} for i in range(6999, 0, -1)]}}
    yield "references to items", {"schema": {"x": [{"minLength": i} for i in range(9000)],
                                             "prefixItems": [{"$ref": f"#/x/{i}"} for i in range(8999, 0, -1)]}}
    yield "identifiers", {"schema": {"$defs": {f"d{i}": {"$id": f"u{i:05}", "minLength": i} for i in range(5000)},
                                     "prefixItems": [{"$ref": f"u{i:05}"} for i in range(5000)]}}
    yield "tuple of 80,000", {"schema": {"prefixItems": [True] * 80000}}
    yield "tuples together", {"schema": {"allOf": [{"prefixItems": [True] * 900} for _ in range(90)]}}
    digits = "7" * 100000
    yield "long number", {"text": f'{{"minimum":{digits},"enum":[{",".join(map(str, range(9000)))}]}}'}
    yield "long fraction", {"text": f'{{"type":"number","allOf":[{{"minimum":0.{digits}}},{{"maximum":0.8{digits}}}]}}'}
    yield "long numbers compared", {"text": '{"enum":[%s],"const":1}' % ",".join(
        f"1{'0' * 900}{i}" for i in range(500))}
    yield "small exponent", {"text": '{"type":"number","minimum":1e-300,"maximum":1e-299,"not":{"enum":[%s]}}' % ",".join(
        f"{i}e-300" for i in range(10, 9000))}
    yield "excluded values", {"schema": {"not": {"enum": list(range(9999))}, "anyOf": [{"title": ""}] * 4000}}
    yield "excluded values, two types", {"schema": {
        "allOf": [{"not": {"enum": [str(i) for i in range(3000)]}}] * 4, "anyOf": [{"minimum": i} for i in range(2000)]}}
    yield "unique values", {"schema": {"items": {"enum": words(9900, 6)}, "uniqueItems": True}}
    yield "values of wide fan-out", {"schema": {"enum": [chr(0x100 + i % 1500) + chr(0x100 + i // 7) for i in
                                                         range(9999)]}}
    yield "lists of values", {"schema": {"allOf": [{"enum": list(range(k, 2000 + k))} for k in range(12)]}}
    yield "values that are objects", {"schema": {"enum": [{w: i for w in words(10)} for i in range(1500)]}}
    yield "alternatives of one", {"schema": {"anyOf": [{"type": "string", "minLength": i} for i in range(4000)]}}
    yield "alternatives of alternatives", {"schema": {"allOf": [{"anyOf": [{"minLength": i}, {"maxLength": i + k}]}
                                                                for i in range(8) for k in (0,)]}}
    yield "containers in containers", {"schema": {"$defs": {f"d{i}": {
        "items": {"$ref": f"#/$defs/d{(i + 1) % 600}"}, "minItems": 1, "type": "array"} for i in range(600)},
        "$ref": "#/$defs/d0"}}
    yield "no end", {"schema": {"$defs": {f"d{i}": dict(named("ab", {"$ref": f"#/$defs/d{(i + 1) % 900}"}), required=["a"])
                                          for i in range(900)}, "$ref": "#/$defs/d0"}}
    yield "choices", {"choice": [f"{i:04}" * 1000 for i in range(1000)]}
    yield "anything but", {"schema": {"not": {"anyOf": [{"required": [f"a{i}"]} for i in range(3000)]},
                                      "required": [f"b{i}" for i in range(3000)]}}


def hostile():
    """name -> request: they may be refused, but at a bounded cost."""
    for cases in (hostile_expressions, hostile_grammars, hostile_objects, hostile_values):
        yield from cases()


def line(request):
    """As a line of the filter. A text is a schema as it is written, which Python would not write so."""
    if "text" in request:
        return b'{"texts":[],"schema":' + request["text"].encode() + b"}"
    return json.dumps(dict(request, texts=[]), ensure_ascii=False).encode()
