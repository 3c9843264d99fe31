#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes unicode_data.h: where the reference tokenizer library sees characters otherwise than utf8proc does.

The classes are not taken from a Unicode file but asked of the library itself (PyPI `tokenizers`,
its regular expressions, Digits, Punctuation, Whitespace, Lowercase and NF* components), one code
point at a time, because what counts is what it answers. Needs: pip install tokenizers unicodedata2,
and a Python whose own unicodedata is of the Unicode version of the PCRE2 and utf8proc that we refine (14.0).

    python3 gen_unicode.py > unicode_data.h
"""
import ctypes
import string
import unicodedata

import unicodedata2
from tokenizers import Regex, __version__, normalizers, pre_tokenizers as pre

CATEGORIES = ("Cn Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po "
              "Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co").split()
SCRIPTS = ("Arabic Armenian Bengali Bopomofo Cyrillic Devanagari Ethiopic Georgian Greek Gujarati "
           "Gurmukhi Han Hangul Hebrew Hiragana Kannada Katakana Khmer Lao Latin Malayalam Mongolian "
           "Myanmar Oriya Sinhala Tamil Telugu Thai Tibetan").split()
ALL = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
WORD, PUNCT, BERT_DROP, BERT_MARK = 0x40, 0x80, 0x800, 0x1000


def chunks():
    for low in range(0, 0x110000, 0x1000):
        part = [c for c in range(low, low + 0x1000) if not 0xD800 <= c <= 0xDFFF]
        if part:
            yield part


def kept(component):
    """The code points a splitting component keeps."""
    out = set()
    for part in chunks():
        for _, (begin, end) in component.pre_tokenize_str("".join(map(chr, part))):
            out.update(part[begin:end])
    return out


def matching(pattern):
    return kept(pre.Split(Regex(pattern), "removed", invert=True))


def isolated(component):
    """The code points a component isolates between two letters."""
    out = set()
    for part in chunks():
        text = "".join("a" + chr(c) for c in part) + "a"
        for _, (begin, end) in component.pre_tokenize_str(text):
            if end - begin == 1 and begin % 2 == 1:
                out.add(part[begin // 2])
    return out


def word_characters():
    out = set()
    for part in chunks():
        text = "".join("a" + chr(c) + "a " for c in part)
        for _, (begin, end) in pre.Whitespace().pre_tokenize_str(text):
            if end - begin == 3:
                out.add(part[begin // 4])
    return out


def dropped(**settings):
    """The code points that BertNormalizer with these settings leaves nothing of."""
    off = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    normalize = normalizers.BertNormalizer(**{**off, **settings}).normalize_str
    return {c for c in ALL if normalize("a" + chr(c) + "b") == "ab"}


def pcre2_matching(pattern):
    """The code points one character of which PCRE2 matches."""
    lib = ctypes.CDLL("libpcre2-8.so.0")
    lib.pcre2_compile_8.restype = lib.pcre2_match_data_create_8.restype = ctypes.c_void_p
    lib.pcre2_get_ovector_pointer_8.restype = ctypes.POINTER(ctypes.c_size_t)
    code, offset = ctypes.c_int(), ctypes.c_size_t()
    utf_ucp = 0x00080000 | 0x00020000
    compiled = lib.pcre2_compile_8(pattern.encode(), ctypes.c_size_t(len(pattern)), utf_ucp,
                                   ctypes.byref(code), ctypes.byref(offset), None)
    regex = ctypes.c_void_p(compiled)
    data = ctypes.c_void_p(lib.pcre2_match_data_create_8(1, None))
    out = set()
    for c in ALL:
        text = chr(c).encode()
        size, start = ctypes.c_size_t(len(text)), ctypes.c_size_t(0)
        if lib.pcre2_match_8(regex, text, size, start, 0, data, None) > 0:
            out.add(c)
    return out


def knows_combining_class(nfd, c, ccc):
    """Whether the reference reorders c, whose combining class is ccc today."""
    other = "\u0316" if ccc == 1 else "\u0334"
    text = "a" + (other + chr(c) if ccc == 1 else chr(c) + other)
    return nfd(text) != text


def ranges(code_points):
    out = []
    for c in sorted(code_points):
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def expected(c, category, extra):
    """The flags that unicode.c sets by category, but for those of `extra`."""
    flags = WORD if category[0] in "LM" or category in ("Nd", "Nl", "Pc") or c in extra else 0
    if category[0] == "P" or (c < 0x80 and chr(c) in string.punctuation):
        flags |= PUNCT
    if category in ("Cc", "Cf", "Co") and c not in (9, 10, 13):
        flags |= BERT_DROP
    return flags | (BERT_MARK if category == "Mn" else 0)


def triples(rows):
    return [f"{{0x{a:x}, 0x{b:x}, {k}}}" for a, b, k in rows]


def emit(name, ctype, words, per_line, comment):
    print(f"\n/* {comment} */\nstatic const {ctype} {name}[] = {{")
    for i in range(0, len(words), per_line):
        print("    " + " ".join(w + "," for w in words[i:i + per_line]))
    print("};")


def main():
    category = {}
    for k in CATEGORIES:
        if k not in ("Cn", "Cs"):
            category.update((c, k) for c in matching(r"\p{%s}" % k))
    white, word, punct = matching(r"\s"), word_characters(), isolated(pre.Punctuation())
    assert white == set(ALL) - kept(pre.WhitespaceSplit())
    assert isolated(pre.Digits(True)) == {c for c, k in category.items() if k in ("Nd", "Nl", "No")}

    nfd, nfc, nfkd = (getattr(normalizers, n)().normalize_str for n in ("NFD", "NFC", "NFKD"))
    bert_drop, bert_mark = dropped(clean_text=True), dropped(strip_accents=True)
    inert, joining = set(), set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))
    for c in ALL:
        ccc = unicodedata2.combining(chr(c))
        knows = ccc and knows_combining_class(nfd, c, ccc)
        has = unicodedata2.decomposition(chr(c)) or 0xAC00 <= c <= 0xD7A3
        if (ccc and not knows) or (has and nfkd(chr(c)) == chr(c)):
            inert.add(c)
        pair = unicodedata2.decomposition(chr(c)).split()
        if len(pair) == 2 and nfc(chr(c)) == chr(c) and nfd(chr(c)) != chr(c):
            joining.add(int(pair[1], 16))
    joining = {c for c in joining if nfc(chr(c)) == chr(c) and
               not (unicodedata2.combining(chr(c)) and c not in inert)}

    word_extra = matching(r"\w")
    word_extra -= {c for c, k in category.items() if k[0] in "LM" or k in ("Nd", "Nl", "Pc")}
    wide_extra = {c for c in word_extra if c > 0xFF}
    older, more = [], []
    for c in ALL:
        flags = ((WORD if c in word else 0) | (PUNCT if c in punct else 0) |
                 (BERT_DROP if c in bert_drop else 0) | (BERT_MARK if c in bert_mark else 0))
        wanted = expected(c, category.get(c, "Cn"), wide_extra)
        if flags & ~wanted:
            more.append((c, flags & ~wanted))
        gone = wanted & ~flags
        if not (wanted | flags) & ~WORD:
            continue
        assert not gone or gone == wanted & ~WORD, hex(c)
        if gone and older and older[-1][2]:
            older[-1][1] = c
        elif gone or older:
            older.append([c, c, bool(gone)])
    newer = []
    for k in CATEGORIES:
        changed = [c for c in ALL
                   if category.get(c, "Cn") == k and unicodedata.category(chr(c)) != k]
        newer += [(a, b, CATEGORIES.index(k)) for a, b in ranges(changed)]
    lower = normalizers.Lowercase().normalize_str
    extra_lower = [(c, ord(lower(chr(c)))) for c in ALL
                   if len(lower(chr(c))) == 1 and lower(chr(c)) != chr(c).lower()]

    print("/* SPDX-License-Identifier: MIT */")
    print("/*\n * Where the reference tokenizer library differs from utf8proc and PCRE2. By gen_unicode.py")
    print(f" * from tokenizers {__version__}; do not edit. Included by unicode.c alone.\n */")
    print("#pragma once")
    print("/* clang-format off */")
    emit("uni_older", "struct tok_uni_range", triples((a, b, 0) for a, b, gone in older if gone), 4,
         "Where punctuation, marks and formats are newer than the library's splitters and BERT's rules.")
    emit("uni_more", "struct tok_uni_range", triples((c, c, hex(flags)) for c, flags in more), 3,
         "Flags that the category does not give: first, last, flags.")
    emit("uni_joining", "struct tok_uni_range", triples((a, b, 0) for a, b in ranges(joining)), 4,
         "Of combining class 0, and joined to the character before by NFC.")
    emit("uni_newer", "struct tok_uni_range", triples(sorted(newer)), 4,
         "Where the category differs from Unicode 14 (PCRE2 10.42, utf8proc 2.8): first, last, category.")
    emit("uni_regex_word_extra", "struct tok_uni_range", triples((a, b, 0) for a, b in ranges(word_extra)), 4,
         "Matched by the word class of the reference's regular expressions besides L, M, Nd, Nl, Pc.")
    emit("uni_inert", "struct tok_uni_range", triples((a, b, 0) for a, b in ranges(inert)), 4,
         "Code points newer than the reference's normalization: left alone by it.")
    emit("uni_extra_lower", "struct tok_uni_pair", [f"{{0x{a:x}, 0x{b:x}}}" for a, b in extra_lower], 4,
         "Lowercase mappings newer than Unicode 14: from, to.")
    scripts = []
    for i, name in enumerate(SCRIPTS):
        ours, theirs = pcre2_matching(r"\p{sc:%s}" % name), matching(r"\p{%s}" % name)
        assert ours <= theirs, name
        scripts += [(a, b, i) for a, b in ranges(theirs - ours)]
    emit("uni_script_names", "char *const", [f'"{name}"' for name in SCRIPTS], 6,
         "Scripts that patterns may name; PCRE2 10.42 agrees on them but for the next table.")
    emit("uni_newer_script", "struct tok_uni_range", triples(scripts), 4,
         "Members of a script that Unicode 14 lacks: first, last, index of the script.")


if __name__ == "__main__":
    main()
