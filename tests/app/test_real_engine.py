"""The window with the real engine on a tiny random model: every child process is our own command line."""

import json

import numpy as np
import pytest
from PySide6.QtWidgets import QApplication
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from app import places
from app.theme import theme
from app.window import MainWindow

TEMPLATE = (
    "{% for message in messages %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
HIDDEN, INNER, HEADS, LAYERS, VOCABULARY = 32, 64, 4, 2, 400


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A Llama of two layers with random weights, in Hugging Face's layout."""
    folder = tmp_path_factory.mktemp("tiny")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(places.SAMPLE_DATA.read_text(encoding="utf-8").splitlines(), trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    special = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(special))
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": HIDDEN,
        "intermediate_size": INNER, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS, "head_dim": HIDDEN // HEADS, "vocab_size": tokenizer.get_vocab_size(),
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 512,
        "tie_word_embeddings": True, "eos_token_id": 2, "bos_token_id": 1,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    random = np.random.default_rng(0)
    shapes = {"model.embed_tokens": (tokenizer.get_vocab_size(), HIDDEN)}
    for layer in range(LAYERS):
        place = f"model.layers.{layer}"
        shapes |= {f"{place}.self_attn.{name}_proj": (HIDDEN, HIDDEN) for name in "qkvo"}
        shapes |= {f"{place}.mlp.{name}_proj": (INNER, HIDDEN) for name in ("gate", "up")}
        shapes[f"{place}.mlp.down_proj"] = (HIDDEN, INNER)
    weights = {f"{name}.weight": random.normal(0, 0.05, shape).astype(np.float32) for name, shape in shapes.items()}
    norms = ["model.norm"]
    norms += [
        f"model.layers.{layer}.{name}_layernorm" for layer in range(LAYERS) for name in ("input", "post_attention")
    ]
    weights |= {f"{name}.weight": np.ones(HIDDEN, np.float32) for name in norms}
    save_file(weights, str(folder / "model.safetensors"), metadata={"format": "pt"})
    return folder


@pytest.fixture
def window(qtbot, tiny, data, ready):
    theme().install(QApplication.instance())
    window = MainWindow(places.settings())
    window.setObjectName("main")
    qtbot.addWidget(window)
    window.show()
    qtbot.waitUntil(lambda: window.session.shelf.listed, timeout=60_000)
    window.open_data(tiny)  # a folder with a model, dropped, is a model
    window.session.change(steps=3, max_length=128, batch_size=2)
    window.open_data(data("letters.jsonl"))
    qtbot.waitUntil(lambda: window.session.blocker() is None, timeout=60_000)
    return window


def test_check_preview_train_and_talk(window, qtbot):
    qtbot.waitUntil(lambda: bool(window.data_page.views), timeout=60_000)
    assert any(token.trained for token in window.data_page.views[0].tokens)
    training = window.session.training
    with qtbot.waitSignal(training.ended, timeout=120_000):
        window.bar.start.click()
    assert [notice.message for notice in window.training_page.notices.shown if notice.is_failure] == []
    assert len(training.history["loss"]) == 3
    assert {phase.name for phase in training.history.phases} == {"forward", "head", "backward"}
    with qtbot.waitSignal(window.talk_page.answered, timeout=60_000):
        exchange = window.talk_page.ask("A table for two")
        qtbot.waitUntil(lambda: exchange.complete[False], timeout=60_000)
    assert exchange.complete[True]
