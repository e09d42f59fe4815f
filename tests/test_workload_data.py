from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
import torch

from trainperf_mlflow.errors import PlanError
from trainperf_mlflow.workloads import data

CPU = torch.device("cpu")


def windows(count: int = 7, seq_len: int = 4) -> torch.Tensor:
    return torch.arange(count * seq_len, dtype=torch.uint8).view(count, seq_len)


def test_the_random_batch_is_the_one_of_the_source() -> None:
    generator = torch.Generator(device="cpu").manual_seed(42)
    expected = torch.randint(0, 151936, (1, 256), generator=generator)
    assert torch.equal(data.random_batch(151936, 1, 256, 42), expected)


def test_the_random_validation_batch_does_not_depend_on_the_batch_size() -> None:
    validation = data.random_validation(256, 16, 42)
    assert validation.shape == (data.RANDOM_VALIDATION_ROWS, 16)
    assert not torch.equal(validation, data.random_batch(256, data.RANDOM_VALIDATION_ROWS, 16, 42))


def test_the_standard_library_is_read_the_same_way_each_time() -> None:
    text = data.read_text("stdlib")
    assert len(text) == data.STDLIB_CHARS
    assert text == data.read_text("stdlib")
    assert "def " in text


def test_every_window_comes_once_per_epoch_in_seeded_order() -> None:
    def rows(seed: int) -> list[int]:
        batches = data.TextBatches(windows(6), 2, seed, CPU, 0)
        return [int(row[0]) // 4 for _ in range(6) for row in batches.next()]

    first = rows(1)
    assert sorted(first[:6]) == sorted(first[6:]) == list(range(6))
    assert first[:6] != first[6:]
    assert first == rows(1) != rows(2)


def test_workers_deliver_the_same_batches_as_plain_indexing() -> None:
    plain = data.TextBatches(windows(), 2, 3, CPU, 0)
    loaded = data.TextBatches(windows(), 2, 3, CPU, 2)
    try:
        for _ in range(5):
            batch = loaded.next()
            assert torch.equal(batch, plain.next())
            assert batch.dtype is torch.int64
    finally:
        loaded.close()
    assert list(islice(loaded._batches, 1)) == []


def test_validation_is_a_held_out_tail_of_fixed_size() -> None:
    tokens = torch.arange(4 * 20 + 3) % 256
    for batch_size in (1, 5):
        text = data.split(tokens, batch_size, 4, "t")
        assert text.validation.shape == (data.TEXT_VALIDATION_ROWS, 4)
        assert torch.equal(text.validation, tokens[48:80].view(8, 4))
        assert torch.equal(text.windows, tokens[:48].view(12, 4))


def test_text_shorter_than_a_batch_and_validation_is_refused() -> None:
    data.split(torch.zeros(40), 2, 4, "t.txt")
    with pytest.raises(PlanError, match=r"'t.txt' has 39 tokens; .* 2 x 4 .* need 40"):
        data.split(torch.zeros(39), 2, 4, "t.txt")


def test_bytes_are_the_tokens_where_there_is_no_tokenizer() -> None:
    assert data.tokenize("aé", 256, None, "t").tolist() == [97, 195, 169]


def test_a_vocabulary_below_256_cannot_take_bytes() -> None:
    with pytest.raises(PlanError, match="needs a vocabulary of 256 tokens, the model has 100"):
        data.tokenize("a", 100, None, "t.txt")


def test_the_token_hash_depends_on_content_alone() -> None:
    small = torch.tensor([1, 2, 3], dtype=torch.uint8)
    assert data.tokens_sha256(small) == data.tokens_sha256(small.long())
    assert data.tokens_sha256(small) != data.tokens_sha256(small.flip(0))


def test_jsonl_yields_its_text_fields(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "one", "id": 1}\n\n{"text": "two"}\n')
    assert data.read_text(str(file)) == "one\ntwo"


def test_a_text_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "a.TXT"
    file.write_bytes(b"\xef\xbb\xbfhello")
    assert data.read_text(str(file)) == "hello"


def test_a_longer_file_is_cut_between_two_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "MAX_TEXT_BYTES", 4)
    file = tmp_path / "a.txt"
    file.write_text("aéé")  # 5 bytes; the limit falls into the last character
    assert data.read_text(str(file)) == "aé"


def test_a_longer_jsonl_file_loses_its_cut_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "MAX_TEXT_BYTES", 20)
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "a"}\n{"text": "b"}\n')
    assert data.read_text(str(file)) == "a"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.txt", b"", "is empty"),
        ("blank.txt", b" \n\t\n", "holds no text"),
        ("binary.txt", b"ab\0cd", "is binary"),
        ("latin.txt", b"caf\xe9 au lait", r"not UTF-8 text \(byte 3\)"),
        ("cut.txt", b"caf\xc3", "not UTF-8"),
        ("broken.jsonl", b'{"text": "a"}\n{"text": \n', "line 2 is not valid JSON"),
        ("other.jsonl", b'{"text": "a"}\n\n{"body": "b"}\n', "line 3 has no text field"),
        ("list.jsonl", b"[1]\n", "line 1 has no text field"),
        ("nothing.jsonl", b"\n\n", "holds no text"),
        ("table.csv", b"a,b\n", "unknown data .* known: random, stdlib"),
    ],
)
def test_a_file_that_holds_no_usable_text_is_refused(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(PlanError, match=message):
        data.read_text(str(file))


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"cannot be read: No such file"):
        data.read_text(str(tmp_path / "none.txt"))
    (tmp_path / "folder.txt").mkdir()
    with pytest.raises(PlanError, match="is a folder"):
        data.read_text(str(tmp_path / "folder.txt"))
    with pytest.raises(PlanError, match="unknown data 'wikitext'"):
        data.read_text("wikitext")
