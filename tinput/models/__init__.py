"""From a name to a runnable first block: where a model's files are, which bytes of them, transformers' own module.

files.py       a name -> a folder and its configuration: a bundled model, a folder, a model on the Hub
tokenizers.py  its tokenizer
sources.py     its tensors, from whichever of the three below has them
weights.py     from safetensors in a folder
pickles.py     from PyTorch's own format, if that was asked for
remote.py      from the Hub, the rows and tensors that are asked for and no more
headers.py     which bytes of a safetensors file hold which tensor
scales.py      FP8 numbers and their scales
named.py       tensors by the names of transformers' module, renamed and converted
skeleton.py    transformers' module, in which only what a run touches is ever loaded
copying.py     a copy of it, quickly
tree.py        the tensors among a call's arguments
memory.py      what was freed in pieces, handed back to the system

Below `remote.py`, each knowing those after it:

hub.py         a model on the Hub at one commit, its small files
ranges.py      byte ranges of one of its files
spans.py       byte ranges as such: which make one request, where the bytes of an answer go
store.py       byte ranges kept on disk
asking.py      asking until there is an answer, and what to say when there is none
progress.py    how far a long read is
"""
