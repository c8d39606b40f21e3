import pytest
from tokenizer_folders import LLAMA2, PHI3, SMOLLM2

from engine.data import ChatTemplate, Message
from engine.data.template import DEFAULT_TEMPLATE
from engine.errors import EngineError

CHAT = [Message("user", "Hi <b> “ä”"), Message("assistant", "Yes")]


def test_smollm2_as_hugging_face_writes_it():
    text = ChatTemplate(SMOLLM2).render(CHAT[:1], add_generation_prompt=True)
    assert text == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM<|im_end|>\n"
        "<|im_start|>user\nHi <b> “ä”<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ messages[0] | tojson }}", '{"role": "user", "content": "Hi <b> “ä”"}'),
        ("{{ {'b': 1, 'a': [2]} | tojson(indent=1) }}", '{\n "b": 1,\n "a": [\n  2\n ]\n}'),
        (
            "{% for m in messages %}{% if loop.index == 2 %}{% break %}{% endif %}{{ m.role }}{% endfor %}",
            "user",
        ),
        ("{% if true %}\n  {% set x = 1 %}\nx\n{% endif %}\n", "x\n"),
        ("{% generation %}{{ messages[1].content }}{% endgeneration %}!", "Yes!"),
        ("{{ tools is none }}{{ tools is defined }}{{ nothing }}", "TrueTrue"),
        (
            "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = 2 %}{% endfor %}{{ ns.n }}",
            "2",
        ),
        (
            "{% macro say(m) %}{{ m.role }};{% endmacro %}{{ say(messages[0]) }}{{ say(messages[1]) }}",
            "user;assistant;",
        ),
    ],
)
def test_the_dialect_of_hugging_face(source, text):
    assert ChatTemplate(source).render(CHAT) == text


def test_the_date_is_the_same_in_all_renderings():
    template = ChatTemplate("{{ strftime_now('%Y-%m-%d %H:%M:%S.%f') }}")
    assert template.render(CHAT) == template.render(CHAT)
    assert template.render(CHAT)[:2] == "20"


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('Only one user, please') }}",
        "{% for i in range(10**9) %}{% endfor %}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% set x = 1 %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{% set big = 'x' * 4000000 %}{% for i in range(9999) %}{{ big }}{% endfor %}",
        "{{ 1 / 0 }}",
        "{{ messages[0].content.nothing.more }}",
        "{{ messages + 1 }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{% include 'other' %}",
        "{{ nothing() }}",
        "{{ '%d' % 'a' }}",
    ],
)
def test_a_template_that_fails_or_runs_away_is_a_sentence(source):
    with pytest.raises(EngineError, match=r"refuses this conversation: .") as caught:
        ChatTemplate(source).render(CHAT)
    assert caught.value.hint


def test_the_reason_of_a_refusal_is_passed_on():
    with pytest.raises(EngineError, match="Only one user, please"):
        ChatTemplate("{{ raise_exception('Only one user, please.') }}").render(CHAT)


@pytest.mark.parametrize("source", ["{% for %}", "{{ a", "{% nothing %}", "{{ a | nofilter }}"])
def test_what_is_no_template_is_refused_when_read(source):
    with pytest.raises(EngineError, match="can't be read"):
        ChatTemplate(source)


def test_the_token_that_closes_an_answer_is_found():
    names = ["<|im_start|>", "<|im_end|>", "<|end|>", "<|user|>", "<|assistant|>", "</s>", "<s>"]
    assert ChatTemplate(SMOLLM2, eos_token="</s>", added_tokens=names).ends == {"<|im_end|>", "</s>"}
    assert ChatTemplate(PHI3, eos_token="</s>", added_tokens=names).ends == {"<|end|>", "</s>"}
    assert ChatTemplate(LLAMA2, bos_token="<s>", eos_token="</s>", added_tokens=names).ends == {"</s>"}


def test_a_header_is_not_taken_for_the_end_of_an_answer():
    source = "{% for m in messages %}<|{{ m.role }}|>{{ m.content + '\n' }}{% endfor %}<|assistant|>"
    assert ChatTemplate(source, added_tokens=["<|user|>", "<|assistant|>"]).ends == set()


def test_the_default_ends_answers_and_opens_them():
    template = ChatTemplate(DEFAULT_TEMPLATE, bos_token="<s>", eos_token="</s>", is_default=True)
    chat = [Message("system", "Be short."), *CHAT]
    assert template.render(chat) == "<s>Be short.\n\nUser:\nHi <b> “ä”\n\nAssistant:\nYes</s>\n\n"
    assert template.render(chat[:2], add_generation_prompt=True).endswith("“ä”\n\nAssistant:\n")
