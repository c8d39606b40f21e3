"""Data on its way into the engine: file, rows, conversations, rendered text, token ids, split, batches."""

from engine.data.check import examine
from engine.data.conversation import Comparison, Conversation, Message
from engine.data.dataset import Dataset, load_dataset
from engine.data.folders import folder_parts
from engine.data.preview import preview, preview_rows
from engine.data.problems import Problem
from engine.data.read import Row
from engine.data.render import Rendered, render
from engine.data.report import report
from engine.data.rows import Rows, load_rows, usable_rows
from engine.data.source import Source, open_source
from engine.data.split import own_rows_sentence, split
from engine.data.template import ChatTemplate
from engine.data.tokenize import Example, Item, Pair, tokenize
from engine.data.tokenizer import TextTokenizer, load_tokenizer

__all__ = [
    "ChatTemplate",
    "Comparison",
    "Conversation",
    "Dataset",
    "Example",
    "Item",
    "Message",
    "Pair",
    "Problem",
    "Rendered",
    "Row",
    "Rows",
    "Source",
    "TextTokenizer",
    "examine",
    "folder_parts",
    "load_dataset",
    "load_rows",
    "load_tokenizer",
    "open_source",
    "own_rows_sentence",
    "preview",
    "preview_rows",
    "render",
    "report",
    "split",
    "tokenize",
    "usable_rows",
]
