import pytest
from tokenizer_folders import LLAMA2, PHI3, SMOLLM2

from engine.data import ChatTemplate, Conversation, Message, Problem, render
from engine.data.render import render_prompt
from engine.data.template import DEFAULT_TEMPLATE
from engine.errors import EngineError

MULTI_TURN = [
    ("system", "Answer in one word."),
    ("user", "Capital of Italy?"),
    ("assistant", "Rome."),
    ("user", "And of Spain?"),
    ("assistant", "Madrid."),
]
TOKENS = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|user|>", "<|assistant|>", "<|end|>"]
# Mistral's: the system message stands before the last question.
MOVING = (
    "{% set system = messages[0].content if messages[0].role == 'system' else '' %}{{ bos_token }}"
    "{% for m in messages if m.role != 'system' %}{% if m.role == 'user' %}[INST] "
    "{{ system + '\n\n' if system and loop.index0 == 2 else '' }}{{ m.content }} [/INST]"
    "{% else %}{{ ' ' + m.content + eos_token }}{% endif %}{% endfor %}"
)
# Qwen3's: reasoning is written anew in the last answer, dropped from earlier ones.
THINKING = (
    "{% for m in messages %}{% if m.role == 'assistant' %}{% set answer = m.content %}{% set thought = '' %}"
    "{% if '</think>' in answer %}"
    "{% set thought = answer.split('</think>')[0].split('<think>')[-1].strip('\n') %}"
    "{% set answer = answer.split('</think>')[-1].lstrip('\n') %}{% endif %}{{ '<|im_start|>assistant\n' }}"
    "{% if loop.last %}{{ '<think>\n' + thought + '\n</think>\n\n' }}{% endif %}{{ answer + '<|im_end|>\n' }}"
    "{% else %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endif %}{% endfor %}"
)
TRIMMING = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{{ (m.content | trim) + '<|im_end|>\n' }}{% endfor %}"
)
PLAIN = "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}"


def make(source, **options):
    return ChatTemplate(source, bos_token="<s>", eos_token="</s>", added_tokens=TOKENS, **options)


def chat(*turns):
    return Conversation(1, "messages", tuple(Message(*turn) for turn in turns), "")


def trained(conversation, template):
    rendered = render(conversation, template)
    assert not isinstance(rendered, Problem), rendered.message
    assert rendered.text == template.render(conversation.messages)
    return [rendered.text[start:end] for start, end in rendered.trained]


@pytest.mark.parametrize(
    ("source", "first", "second"),
    [
        (SMOLLM2, "Rome.<|im_end|>", "Madrid.<|im_end|>"),
        (TRIMMING, "Rome.<|im_end|>", "Madrid.<|im_end|>"),
        (PHI3, "Rome.<|end|>", "Madrid.<|end|>"),
        (LLAMA2, "Rome. </s>", "Madrid. </s>"),
        (MOVING, "Rome.</s>", "Madrid.</s>"),
        (PLAIN, "Rome.", "Madrid."),
        (THINKING, "Rome.<|im_end|>", "Madrid.<|im_end|>"),
        (DEFAULT_TEMPLATE, "Rome.</s>", "Madrid.</s>"),
    ],
)
def test_answers_and_their_end_tokens_are_trained_and_nothing_else(source, first, second):
    assert trained(chat(*MULTI_TURN), make(source)) == [first, second]
    assert trained(chat(*MULTI_TURN[1:3]), make(source)) == [first]
    # A last question is context that nothing answers.
    assert trained(chat(*MULTI_TURN[1:4]), make(source)) == [first]


@pytest.mark.parametrize("source", [SMOLLM2, TRIMMING, PHI3, LLAMA2, MOVING, PLAIN, DEFAULT_TEMPLATE])
def test_contents_that_look_like_the_template_do_not_mislead_it(source):
    template = make(source)
    tricks = [
        "<|im_end|>\n<|im_start|>assistant\nRome.<|im_end|>\n",
        "[/INST] Rome. </s><s>[INST]",
        "user",
        "assistant: Rome.\nuser: a\n",
        "qzContent0zq qzContent1zq qzAnswer",
        "{{ messages }} {% if %}",
        "Rome.",
        "\\1 \\g<0>",
    ]
    for trick in tricks:
        for answer in tricks:
            conversation = chat(("user", trick), ("assistant", answer), ("user", answer), ("assistant", "Yes."))
            rendered = render(conversation, template)
            answers = [rendered.text[start:end] for start, end in rendered.trained]
            assert [text.startswith(said.strip()) for text, said in zip(answers, (answer, "Yes."), strict=True)]
            assert answers[0].startswith(answer.strip())
            assert answers[1].startswith("Yes.")
            contents = [rendered.text[start:end].strip() for start, end in rendered.contents]
            assert contents == [trick.strip(), answer.strip(), answer.strip(), "Yes."]


@pytest.mark.parametrize("content", [" Rome.\n", "\n\nRome.", "Rome.   ", "\tRome. Roma.\u00a0"])
def test_a_template_that_trims_contents_is_followed(content):
    for source in (TRIMMING, LLAMA2):
        (answer,) = trained(chat(("user", " Italy?\n"), ("assistant", content)), make(source))
        assert answer.startswith(content.strip())
    assert trained(chat(("user", " Italy?\n"), ("assistant", content)), make(SMOLLM2)) == [content + "<|im_end|>"]


def test_reasoning_is_trained_where_the_template_keeps_it():
    thought = "<think>\nItaly is in Europe.\n</think>\n\nRome."
    turns = [("user", "Italy?"), ("assistant", thought), ("user", "Spain?"), ("assistant", thought)]
    assert trained(chat(*turns), make(THINKING)) == ["Rome.<|im_end|>", thought + "<|im_end|>"]
    assert trained(chat(*turns), make(SMOLLM2)) == [thought + "<|im_end|>"] * 2
    assert trained(chat(("user", "a"), ("assistant", "<think>b</think>c")), make(THINKING)) == [
        "<think>\nb\n</think>\n\nc<|im_end|>"
    ]


@pytest.mark.parametrize("content", ["</think>", "<think>", "a</think>b</think>c", "<think></think>", "a<think>"])
def test_odd_reasoning_is_followed_or_refused(content):
    for source in (SMOLLM2, THINKING):
        rendered = render(chat(("user", "a"), ("assistant", content)), make(source))
        assert rendered.code == "template" if isinstance(rendered, Problem) else rendered.trained


def test_a_content_written_otherwise_is_found_all_the_same():
    source = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | tojson }}<|im_end|>\n{% endfor %}"
    assert trained(chat(("user", 'a"'), ("assistant", 'b"c')), make(source)) == ['b\\"c']


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (
            "{% for m in messages if m.role != 'assistant' %}{{ m.content }}{% endfor %}",
            "leaves out the assistant",
        ),
        (
            "{% for m in messages if m.role != 'system' %}{{ m.content + '\n' }}{% endfor %}",
            "leaves out the system",
        ),
        ("{% for m in messages %}{{ m.content + m.content }}{% endfor %}", "repeats the assistant"),
        ("{% for m in messages %}{{ m.content | length }} {{ m.content }}{% endfor %}", "can't be followed"),
        ("{% for m in messages %}{{ m.content | upper }};{% endfor %}", "leaves out"),
        ("{% for m in messages %}{{ m.content[:16] }}\n{% endfor %}", "changes what"),
        ("{{ raise_exception('System role not supported') }}", "System role not supported"),
        ("fixed text", "leaves out"),
    ],
)
def test_a_template_that_hides_the_answer_is_a_problem_of_the_row(source, reason):
    turns = chat(("system", "Be short, and be kind."), ("user", "Hello?"), ("assistant", "Hello."))
    problem = render(turns, make(source))
    if reason == "changes what":
        problem = render(chat(("user", "a" * 40), ("assistant", "b\n" * 40)), make(source))
    assert isinstance(problem, Problem)
    assert (problem.line, problem.severity, problem.code) == (1, "error", "template")
    assert reason in problem.message


@pytest.mark.parametrize(
    ("text", "expected"), [("Once.", "Once.</s>"), ("Once.</s>", "Once.</s>"), (" a\n", " a\n</s>")]
)
def test_a_plain_text_is_trained_whole_with_one_end(text, expected):
    rendered = render(Conversation(1, "text", (), text), make(SMOLLM2))
    assert rendered.text == expected
    assert rendered.trained == ((0, len(expected)),)
    assert rendered.with_bos
    assert render(Conversation(1, "text", (), text), ChatTemplate(PLAIN)).text == text


def test_a_prompt_opens_the_answer_or_says_why_not():
    rendered = render_prompt([Message("user", "Hi")], make(SMOLLM2))
    assert rendered.text.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    assert [rendered.text[start:end] for start, end in rendered.contents] == ["Hi"]
    with pytest.raises(EngineError, match="must alternate"):
        render_prompt([Message("assistant", "Hi")], make(LLAMA2))


CALLING = (
    "{% if tools %}<tools>{{ tools | tojson }}</tools>\n{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{{ m.content }}{% for call in m.tool_calls %}<call>{{ call.function | tojson }}</call>{% endfor %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CALLS = '[{"type": "function", "function": {"name": "look_up", "arguments": {"tree": "oak"}}}]'


@pytest.mark.parametrize("said", ["", "Let me see. "])
def test_tool_calls_are_trained_as_the_template_writes_them(said):
    template = ChatTemplate(CALLING, ends=["<|im_end|>"], added_tokens=["<|im_start|>", "<|im_end|>"])
    turns = (
        Message("user", "Oak?"),
        Message("assistant", said, CALLS),
        Message("tool", "Quercus", "", '{"tool_call_id": "1"}'),
        Message("assistant", "Quercus it is."),
    )
    rendered = render(Conversation(1, "messages", turns, "", tools='[{"name": "look_up"}]'), template)
    trained = [rendered.text[start:end] for start, end in rendered.trained]
    call = '{"name": "look_up", "arguments": {"tree": "oak"}}'
    assert trained == [f"{said}<call>{call}</call><|im_end|>", "Quercus it is.<|im_end|>"]
    assert rendered.text.startswith('<tools>[{"name": "look_up"}]</tools>')


@pytest.mark.parametrize(
    ("source", "calls", "reason"),
    [
        (CALLING.replace("m.tool_calls", "[]"), CALLS, "does not write the tool calls of message 2"),
        (CALLING, CALLS.replace("oak", "<|im_end|>"), "hold a special token"),
    ],
)
def test_tool_calls_that_can_not_be_learned_are_named(source, calls, reason):
    template = ChatTemplate(source, ends=["<|im_end|>"], added_tokens=["<|im_start|>", "<|im_end|>"])
    turns = (Message("user", "Oak?"), Message("assistant", "", calls))
    problem = render(Conversation(7, "messages", turns, ""), template)
    assert isinstance(problem, Problem)
    assert (problem.code, problem.line) == ("template", 7)
    assert reason in problem.message
