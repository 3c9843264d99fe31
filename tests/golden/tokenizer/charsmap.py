# SPDX-License-Identifier: MIT
"""Writes SentencePiece's precompiled map of characters, for rules of our own."""
import base64
import struct

RULES = {"\t": " ", "\n": " ", "\r": " ", "\u00a0": " ", "\u3000": " ", "\u0000": "", "\u200b": "", "\u001f": "",
         "\u0085": " ", "\u2028": " ", "\ufeff": "", "e\u0301": "é", "a\u0308": "ä", "か\u3099": "が", "ﬁ": "fi",
         "½": "1/2", "²": "2", "Ⅷ": "VIII", "\u2126": "Ω", "ſ": "s", "\u0344": "\u0308\u0301", "ß": "ss", "ſ\u0323": "X",
         "…": "...", "カ": "ｶ", "K": "K", "\u32ff": "令和", "\ufdfa": "x" * 40, "\u00a9\u200d": "(c)", "b\u0301": "B"}


class Builder:
    """A double array: the child of place p under byte c is at p ^ offset(p) ^ c; 0 holds the value."""

    def __init__(self):
        self.units, self.taken, self.bases = {0: 0}, {0}, {0}

    def place(self, at, node):
        base = 1
        while base in self.bases or any(base ^ c in self.taken for c in node):
            base += 1
        self.bases.add(base)
        self.taken.update(base ^ c for c in node)
        self.units[at] |= (at ^ base) << 10 | (0 in node) << 8
        for c, child in node.items():
            self.units[base ^ c] = child | 1 << 31 if c == 0 else c
        for c, child in node.items():
            if c:
                self.place(base ^ c, child)


def charsmap(rules):
    values, offsets, trie = b"", {}, {}
    for key, value in rules.items():
        if value not in offsets:
            offsets[value] = len(values)
            values += value.encode() + b"\0"
        node = trie
        for c in key.encode():
            if c:  # a text's NUL ends every key
                node = node.setdefault(c, {})
        if node is not trie:
            node[0] = offsets[value]
    builder = Builder()
    builder.place(0, trie)
    units = [builder.units.get(i, 0) for i in range((max(builder.units) | 255) + 1)]
    return base64.b64encode(struct.pack("<I", 4 * len(units)) + struct.pack(f"<{len(units)}I", *units) + values).decode()
