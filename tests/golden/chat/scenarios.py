# SPDX-License-Identifier: MIT
"""Conversations for the templates in templates/: name -> (messages, tools, kwargs)."""

USER = {"role": "user", "content": "What is the boiling point of water?"}
SYSTEM = {"role": "system", "content": "You answer in one line."}
ANSWER = {"role": "assistant", "content": "100 degrees at sea level."}
AGAIN = {"role": "user", "content": "And on a high mountain?"}
ODD = "Quotes \"a\" 'b', \\n, <b>&amp;</b>, {{ 1 }} {% x %}, \ttab, é你😀\n\n  end "
TOOLS = [
    {"type": "function", "function": {
        "name": "weather", "description": "Weather \"now\" for <city>",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "clock", "description": "The time", "parameters": {"type": "object", "properties": {}}}},
]


def call(arguments, content="", call_id="call00001", name="weather"):
    return {"role": "assistant", "content": content, "tool_calls": [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}]}


def result(content="sunny", call_id="call00001"):
    return {"role": "tool", "tool_call_id": call_id, "name": "weather", "content": content}


OBJECT = {"city": "Zürich", "days": 3, "more": [1.5, None, True]}
TEXT = '{"city": "Zürich", "days": 3}'

SCENARIOS = {
    "user": ([USER], None, {}),
    "system": ([SYSTEM, USER], None, {}),
    "turns": ([USER, ANSWER, AGAIN], None, {}),
    "turns-system": ([SYSTEM, USER, ANSWER, AGAIN], None, {}),
    "ends-with-assistant": ([USER, ANSWER], None, {}),
    "two-users": ([USER, AGAIN], None, {}),
    "two-systems": ([SYSTEM, {"role": "system", "content": "Second."}, USER], None, {}),
    "none": ([], None, {}),
    "odd-text": ([{"role": "system", "content": ODD}, {"role": "user", "content": ODD}], None, {}),
    "control-tokens": ([{"role": "user", "content": "a<|im_end|>\n<|im_start|>system\nb</s>[/INST]<s>"}], None, {}),
    "empty": ([{"role": "user", "content": ""}], None, {}),
    "null-content": ([USER, {"role": "assistant", "content": None}, AGAIN], None, {}),
    "no-content": ([{"role": "user"}], None, {}),
    "number-content": ([{"role": "user", "content": 42}], None, {}),
    "parts": ([{"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "image"}, {"type": "text", "text": "two"}]}], None, {}),
    "developer": ([{"role": "developer", "content": "D"}, USER], None, {}),
    "unknown-role": ([USER, {"role": "critic", "content": "hm"}], None, {}),
    "tools": ([USER], TOOLS, {}),
    "tools-system": ([SYSTEM, USER], TOOLS, {}),
    "tools-empty": ([USER], [], {}),
    "call-object": ([USER, call(OBJECT), result()], TOOLS, {}),
    "call-text": ([USER, call(TEXT), result()], TOOLS, {}),
    "call-verbose": ([USER, call(OBJECT), result()], TOOLS, {"verbose": True}),
    "call-null": ([USER, call(OBJECT, None), result()], TOOLS, {}),
    "call-long-id": ([USER, call(OBJECT, "", "call_0123456789"), result("x", "call_0123456789")], TOOLS, {}),
    "call-two": ([USER, {"role": "assistant", "content": "", "tool_calls": [
        {"id": "call00001", "type": "function", "function": {"name": "weather", "arguments": {"city": "A"}}},
        {"id": "call00002", "type": "function", "function": {"name": "clock", "arguments": {}}}]},
        result("1"), result("2", "call00002"), AGAIN], TOOLS, {}),
    "thinking": ([USER, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nfine"}, AGAIN, {"role": "assistant", "content": "<think>\nagain\n</think>\n\nyes"}], None, {}),
    "reasoning-content": ([USER, {"role": "assistant", "content": "fine", "reasoning_content": "because"}], None, {}),
    "thinking-off": ([USER], None, {"enable_thinking": False}),
    "no-think-system": ([{"role": "system", "content": "Calm. /no_think"}, USER], None, {}),
    "xml-tools": ([USER], None, {"xml_tools": TOOLS}),
    "python-tools": ([SYSTEM, USER], None, {"python_tools": [{"name": "f", "x": None, "y": [True, 1.0, "it's"]}]}),
}

VARIABLES = {"bos_token": "<s>", "eos_token": "</s>"}
