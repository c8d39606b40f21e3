"""Data on its way into the engine: file, rows, conversations, rendered text, token ids, split, batches."""

from engine.data.check import Conversation, Message, examine
from engine.data.dataset import Dataset, load_dataset, report
from engine.data.preview import preview, preview_rows
from engine.data.problems import Problem
from engine.data.read import Row, read_rows
from engine.data.render import Rendered, render
from engine.data.split import own_rows_sentence, split
from engine.data.template import ChatTemplate
from engine.data.tokenize import Example, tokenize
from engine.data.tokenizer import TextTokenizer, load_tokenizer

__all__ = [
    "ChatTemplate",
    "Conversation",
    "Dataset",
    "Example",
    "Message",
    "Problem",
    "Rendered",
    "Row",
    "TextTokenizer",
    "examine",
    "load_dataset",
    "load_tokenizer",
    "own_rows_sentence",
    "preview",
    "preview_rows",
    "read_rows",
    "render",
    "report",
    "split",
    "tokenize",
]
