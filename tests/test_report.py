"""The report of a study: what it says first, what it proves, in both languages, and to whom."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from string import Formatter

import pytest
import report_materials as made
from click.testing import CliRunner
from made_reports import memory_report, training_report
from recorded_studies import a_store, clean_surroundings, record

import trainperf_mlflow as tp
from trainperf_mlflow.api import pages
from trainperf_mlflow.cli import cli
from trainperf_mlflow.decisions import memory_budget, memory_strategy
from trainperf_mlflow.decisions.evidence import OPEN_REASONS, RESTS_ON_GAINS
from trainperf_mlflow.decisions.reasons import REASONS, conclude
from trainperf_mlflow.decisions.study import decide_study
from trainperf_mlflow.errors import Interrupted, PlanError
from trainperf_mlflow.reporting.note import run_note
from trainperf_mlflow.reporting.report import page
from trainperf_mlflow.reporting.report.content import report_content
from trainperf_mlflow.reporting.report.material import Material
from trainperf_mlflow.reporting.report.parts import Table
from trainperf_mlflow.reporting.report.pull_request import markdown_page
from trainperf_mlflow.reporting.report.texts import TEXTS, Words
from trainperf_mlflow.reporting.table import to_text
from trainperf_mlflow.results.estimates import Noise
from trainperf_mlflow.tracking.store import Store

LANGUAGES = ("en", "zh")
HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "\"'`|</td></style>{{ 7*7 }}",
    "\u202eאבג 🚀 $x$ [a](javascript:b) https://evil.example/" + "x" * 250,
)


class Seen(HTMLParser):
    """What a page has: text by section, tags, and all that it could load or lead to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.sections: dict[str, str] = {}
        self.order: list[str] = []
        self.tags: list[str] = []
        self.targets: list[str] = []
        self.handlers: list[str] = []
        self.style = ""
        self._within, self._style = "head", False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append(tag)
        self._style = tag == "style"
        if tag == "section":
            self._within = given.get("id") or "verdict"
            self.order.append(self._within)
        self.targets += [v or "" for k, v in attrs if k in ("src", "href", "srcset", "action")]
        self.handlers += [key for key, _ in attrs if key.startswith("on")]

    def handle_endtag(self, tag: str) -> None:
        self._style = False

    def handle_data(self, data: str) -> None:
        if self._style:
            self.style += data
            return
        self.sections[self._within] = " ".join(
            [*self.sections.get(self._within, "").split(), *data.split()]
        )


def html(material: Material, lang: str = "en") -> str:
    return page.html_page(report_content(material, lang))  # type: ignore[arg-type]


def markdown(material: Material, lang: str = "en") -> str:
    return markdown_page(report_content(material, lang))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def seen() -> Seen:
    return Seen(html(made.whole()))


# --- what a reader finds -----------------------------------------------------------------------


def test_the_verdict_comes_first_with_how_sure_it_is_and_what_to_do_next(seen: Seen) -> None:
    assert seen.order[:3] == ["verdict", "question", "results"]
    verdict = seen.sections["verdict"]
    assert verdict.startswith(
        "Which of bf16, checkpoint gives less time per step, at a cost that is worth it? Accept"
    )
    assert "Keep bf16." in verdict
    assert "Time per step saves 20.0 % interval [1" in verdict
    assert "Peak memory saves 21.9 % 640.0 to 500.0 MiB" in verdict
    assert "How sure confirmed: the same at both ends" in verdict
    assert "Next keep the change" in verdict
    assert "What would settle it" not in verdict


def test_every_variant_has_its_numbers_with_their_interval_and_its_decision(seen: Seen) -> None:
    results = seen.sections["results"]
    assert re.search(r"baseline 50\.00 50\.00 to 50\.10 in 3 repeats", results)
    assert re.search(
        r"bf16 best Accept faster confirmed 40\.00 saves (?:9\.9|10\.0)\d ms "
        r"20\.0 % \[1\d\.\d, 2\d\.\d\]",
        results,
    )
    assert re.search(
        r"checkpoint Reject slower confirmed 62\.00 costs 1[12]\.\d\d ms 24\.\d % \[2", results
    )
    assert "by the fixed thresholds of the policy training" in results


def test_the_change_and_the_proof_that_it_took_effect_are_told(seen: Seen) -> None:
    change = seen.sections["change"]
    assert "bf16 precision fp32 on yes, seen on the live training seen in its kernels" in change


def test_phases_memory_hypothesis_and_statements_are_told_where_they_are_known(seen: Seen) -> None:
    assert "backward 2" in seen.sections["phases"]
    assert "at the peak baseline bf16 parameters 100.0 100.0" in seen.sections["memory"]
    assert "The change was meant to relieve: backward." in seen.sections["hypothesis"]
    assert "bf16: supported" in seen.sections["hypothesis"]
    assert "In the baseline, backward takes the most time." in seen.sections["bottleneck"]
    assert "phases/phases.json" in seen.sections["bottleneck"]


def test_thresholds_have_their_source_and_what_was_not_checked_is_said(seen: Seen) -> None:
    rule = seen.sections["rule"]
    assert "min_gain 5 default of this toolkit" in rule
    assert "max_cost 30 set for this study" in rule
    assert "nothing was traced (trainperf profile 01234567)" in seen.sections["unchecked"]
    assert "no phases" not in seen.sections["unchecked"]


def test_it_can_be_repeated_and_checked(seen: Seen) -> None:
    assert "trainperf measure --candidate bf16 --goal step_time" in seen.sections["again"]
    assert "ab" * 32 in seen.sections["evidence"]
    assert "CPU a processor" in seen.sections["noise"]
    assert "pairs of neighbouring blocks: 12, of processes: 3;" in seen.sections["noise"]


def test_a_study_without_phases_says_so_and_has_no_empty_section() -> None:
    sections = Seen(html(made.bare())).sections
    assert "no phases were measured (trainperf phase 01234567)" in sections["unchecked"]
    assert {"phases", "memory"}.isdisjoint(sections)
    assert "bf16: not shown" in sections["hypothesis"]
    assert "No file was listed." in sections["evidence"]


def test_too_few_repeats_for_an_interval_say_what_would_settle_it() -> None:
    sections = Seen(html(made.bare(repeats=1))).sections
    assert "What would settle it at least 3 repeats in pairs" in sections["verdict"]


def test_what_would_settle_an_open_study_is_told_in_both_languages() -> None:
    material = made.whole()
    decision = material.comparison.decision.model_copy(
        update={
            "decision": "tune",
            "reason": "gain_not_confirmed",
            "confidence": "unconfirmed",
            "numbers": {"more_pairs": 8.0},
        }
    )
    comparison = material.comparison.model_copy(update={"decision": decision})
    material = replace(material, comparison=comparison)
    assert "about 8 more pairs of blocks" in Seen(html(material)).sections["verdict"]
    assert "大约再测 8 对测量块" in Seen(html(material, "zh")).sections["verdict"]


@pytest.mark.parametrize(
    "reason", [r for r, known in REASONS.items() if known.decision in ("tune", "reject")]
)
def test_more_pairs_are_asked_for_only_where_an_interval_leaves_it_open(reason: str) -> None:
    material = made.whole()
    left_open = reason in (*OPEN_REASONS, *RESTS_ON_GAINS)
    decision = conclude(reason, "why", "goal", numbers={"more_pairs": 60.0})
    comparison = material.comparison.model_copy(update={"decision": decision})
    content = report_content(replace(material, comparison=comparison))
    assert ("pairs" in content.verdict.settle) == left_open
    assert content.verdict.next


def test_no_page_asks_for_more_pairs_of_a_change_that_was_not_in_effect() -> None:
    measured = tuple(
        each.model_copy(update={"effect_verified": each.role == "baseline"})
        for each in made.values()
    )
    material = made.bare()
    comparison = decide_study(material.study, measured)
    assert comparison.decision.reason == "change_without_effect"
    material = replace(material, comparison=comparison, variants=measured)
    for text in (html(material), markdown(material), to_text(comparison), run_note(comparison)):
        assert "settle" not in text.replace(".settle", "")
        assert "more pairs" not in text


def test_what_is_confirmed_says_what_disturbed_it() -> None:
    material = made.whole()
    noise = Noise(level="noisy", text="", blocks=36, disturbed_blocks=11, measured_again=0)
    candidates = tuple(
        item.model_copy(update={"time": item.time and item.time.model_copy(update=aside)})
        for item, aside in zip(
            material.comparison.candidates, ({"set_aside": 4, "pairs": 8}, {}), strict=True
        )
    )
    comparison = material.comparison.model_copy(update={"noise": noise, "candidates": candidates})
    disturbed = replace(material, comparison=comparison)
    assert (
        "- **How sure**: confirmed, though something outside disturbed 11 of 36 blocks; "
        "4 of 12 pairs set aside\n"
    ) in markdown(disturbed)
    sure = "已证实，但 36 个测量块中有 11 个受到外部干扰；12 对中有 4 对不计入"
    assert sure in markdown(disturbed, "zh")


def test_what_was_trained_is_said_with_its_sizes_as_far_as_they_are_known() -> None:
    material = made.whole()
    assert report_content(material).sizes == "quick, on cpu"
    variants = tuple(
        each.model_copy(update={"config": {"batch_size": 4 + place, "seq_len": 96}})
        for place, each in enumerate(material.study.variants)
    )
    workload = material.study.workload.model_copy(
        update={
            "facts": {"parameters": 1510016},
            "identity": {"device": {"type": "cpu", "name": "a processor"}},
        }
    )
    study = material.study.model_copy(update={"variants": variants, "workload": workload})
    sized = replace(material, study=study)
    said = "1.51 M parameters, batch size 4, 5, 6, sequence length 96, on cpu (a processor)"
    assert f"quick: {said}" in Seen(html(sized)).sections["verdict"]
    assert f"\nquick: {said}\n" in markdown(sized)
    assert "参数量 1.51 M，批量 4, 5, 6，序列长度 96" in markdown(sized, "zh")


@pytest.mark.parametrize("lang", LANGUAGES)
def test_its_words_are_explained_at_its_end(lang: str) -> None:
    seen = Seen(html(made.bare(), lang))
    assert seen.order[-1] == "words"
    terms = [name for name in TEXTS if name.startswith("term.")]
    assert len(terms) == 13
    for name in terms:
        means = Words(lang)(name.replace("term.", "means."))  # type: ignore[arg-type]
        assert means in seen.sections["words"].replace("&#39;", "'"), name


# --- both languages ----------------------------------------------------------------------------


def gaps(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name}


def test_both_languages_have_every_sentence_with_the_same_gaps() -> None:
    for name, text in TEXTS.items():
        assert text.en, name
        assert text.zh, name
        assert gaps(text.en) == gaps(text.zh), name
    same = {"SHA-256", "CPU"}
    left = [n for n, t in TEXTS.items() if t.en == t.zh and re.search(r"[a-z]{3}", t.en)]
    assert [name for name in left if TEXTS[name].en not in same | {"[{low}, {high}] MiB"}] == [
        "interval.row"
    ]


def test_every_next_action_that_a_rule_may_ask_for_has_words() -> None:
    rules = (memory_budget.RULES, memory_strategy.RULES)
    actions = {reason.next_action for reason in REASONS.values()}
    actions |= {action for rule in rules for action in rule.next_actions.values()}
    actions.add("retain_phase_evidence_and_do_not_adopt_at_fixed_workload")  # of a close
    assert [action for action in sorted(actions) if f"next.{action}" not in TEXTS] == []


def test_the_chinese_report_has_no_english_of_its_own() -> None:
    seen = Seen(html(made.whole(), "zh"))
    verdict = seen.sections["verdict"]
    assert verdict.startswith(
        "bf16, checkpoint 之中，哪一项能以值得的代价缩短单步时间？ 采纳 保留 bf16。"
    )
    assert "目标达成，且没有违反任何约束" in verdict
    # What is left are commands, codes and names.
    known = "bf checkpoint trainperf measure candidate goal step time compare profile quick stdlib "
    known += "min max gain cost eval loss delta pct met keep change abcdef flow report "
    known += "convergence steps cpu"
    for section in ("verdict", "question", "rule", "again", "unchecked"):
        words = set(re.findall(r"[a-z]{3,}", seen.sections[section])) - {"d" * 64, "d" * 61 + "..."}
        assert words - set(known.split()) == set(), section


def test_every_sentence_is_asked_for_somewhere() -> None:
    folder = Path(page.__file__).parent
    sources = [*folder.glob("*.py"), *folder.glob("templates/*.html")]
    code = "".join(path.read_text("utf-8") for path in sources)
    whole = set(re.findall(r"[\"']([a-z0-9_.]+)[\"']", code))
    built = set(re.findall(r"f[\"']([a-z_.]+)\.\{", code))  # f"phase.{phase}"
    built |= set(re.findall(r"words\.of\(\"([a-z]+)\"", code)) | {"category", "phase"}
    assert [n for n in TEXTS if n not in whole and n.rpartition(".")[0] not in built] == []


def test_words_ask_for_sentences_that_exist() -> None:
    with pytest.raises(KeyError):
        Words("en")("no such sentence")
    assert Words("zh").of("next", "an_unknown_action") == "an_unknown_action"


# --- safe and alone ----------------------------------------------------------------------------


@pytest.mark.parametrize("lang", LANGUAGES)
def test_nothing_is_loaded_and_nothing_runs(lang: str) -> None:
    seen = Seen(html(made.whole(), lang))
    assert len([t for t in seen.targets if t.startswith("data:image/png;base64,")]) == 8
    assert [t for t in seen.targets if not t.startswith("data:image/png;base64,")] == []
    assert {"script", "link", "iframe", "object", "form", "base"}.isdisjoint(seen.tags)
    assert not re.search(r"url\(|@import|https?:", seen.style)


@pytest.fixture(scope="module")
def hostile() -> Material:
    material = made.bare(("baseline \x1b[31m", *HOSTILE[:2]), name=HOSTILE[2], label=HOSTILE[0])
    study = material.study.model_copy(update={"command": "``` " + HOSTILE[0] + "\n" + HOSTILE[1]})
    return replace(material, study=study)


@pytest.mark.parametrize("lang", LANGUAGES)
def test_hostile_names_are_text_on_the_page(hostile: Material, lang: str) -> None:
    text = html(hostile, lang)
    seen = Seen(text)
    assert "img" not in seen.tags
    assert seen.handlers == []
    assert seen.targets == []
    assert HOSTILE[0] in seen.sections["results"]
    assert "{{ 7*7 }}" in seen.sections["results"]
    assert not re.search("[\u202a-\u202e\u2066-\u2069\x00-\x08\x1b]", text)
    assert "x" * 130 not in text


def test_hostile_names_are_text_in_markdown(hostile: Material) -> None:
    text = markdown(hostile)
    before, fence, rest = text.partition("````")
    assert fence
    assert "<img" not in before
    assert not re.search(r"(?<!\\)\]\(javascript", before)
    assert "https://evil" not in before
    assert "```` " not in rest  # the command cannot end its own fence
    assert "\x1b" not in text
    rows = [line for line in before.splitlines() if line.startswith("|")]
    columns = {len(re.findall(r"(?<!\\)\|", row)) for row in rows}
    assert len(columns) == 1
    assert len(rows) == 5


def test_markdown_is_short_and_has_one_table() -> None:
    text = markdown(made.whole())
    assert text.startswith("### ✅ Accept: a study\n\n**Keep bf16.**")
    assert len(text) < 4000
    assert len(re.findall(r"^\| ---", text, re.MULTILINE)) == 1
    assert "| variant | decision | time per step, ms |" in text
    assert "```sh\ntrainperf measure --candidate bf16 --goal step_time\n```" in text
    assert "- **How sure**: confirmed" in text


def test_a_study_of_a_hundred_repeats_stays_small() -> None:
    pictures = {path: png * 100_000 for path, png in made.whole().pictures.items()}
    material = replace(made.bare(repeats=100), pictures=pictures)
    assert len(html(material)) < 5_000_000
    repeats = [
        part
        for section in report_content(material).sections
        for part in section.parts
        if isinstance(part, Table) and part.folded
    ]
    assert [len(table.rows) for table in repeats] == [300]


# --- from and to MLflow ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reports")


@pytest.fixture
def store(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    clean_surroundings(monkeypatch, folder)
    return a_store(folder)


def files(store: Store, study_id: str) -> set[str]:
    return {item.path for item in store.client.list_artifacts(study_id)}


def run(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == code, done.output
    return done.output


def test_an_imported_report_says_what_such_a_file_cannot_show(store: Store, folder: Path) -> None:
    made_reports = {"training.json": training_report(), "strategies.json": memory_report()}
    for name, made_report in made_reports.items():
        (folder / name).write_text(json.dumps(made_report), "utf-8")
    outcomes = tp.import_reports(*(folder / name for name in made_reports))
    for name, lang, outcome in zip(made_reports, LANGUAGES, outcomes, strict=True):
        assert {"report.html", "report.md"} <= files(store, outcome.study_id)
        sections = Seen(tp.report(outcome.study_id, lang=lang)).sections
        words = Words(lang)  # type: ignore[arg-type]
        assert words("unchecked.imported") in sections["unchecked"]
        assert f"trainperf import {name}" in sections["again"]
        assert f"evidence/source/{name}" in sections["evidence"]
        assert words("rule.bare") in sections["rule"]
        # Nobody here has seen on which text a published loss was taken.
        assert words("quality.checked") not in sections["quality"]
    assert words("quality.imported") in sections["quality"]


def test_a_compared_study_has_its_report_which_follows_what_is_decided(store: Store) -> None:
    study_id = record(store, "compared").study_id
    comparison = tp.compare(study_id)
    assert {"report.html", "report.md"} <= files(store, study_id)
    kept = Path(store.client.download_artifacts(study_id, "report.html")).read_text("utf-8")
    seen = Seen(kept)
    assert Words("en")(f"decision.{comparison.decision.decision}") in seen.sections["verdict"]
    assert any(target.startswith("data:") for target in seen.targets)
    assert "result.json bf16 #1" in seen.sections["evidence"]
    assert "report.html" not in seen.sections["evidence"]


def test_the_command_writes_a_file_or_to_stdout(store: Store, folder: Path) -> None:
    record(store, "told")
    assert run("report", "told") == "report-told.html is written\n"
    assert (folder / "report-told.html").read_text("utf-8").startswith("<!doctype html>")
    assert run("report", "told", "--format", "markdown").startswith("### ")
    assert 'lang="zh-CN"' in run("report", "told", "--lang", "zh", "--output", "-")
    run("report", "told", "--format", "markdown", "--output", "told.md")
    assert (folder / "told.md").read_text("utf-8") == tp.report("told", "markdown")
    run("report", "told", "--output", str(folder), code=2)
    run("report", "told", "--lang", "fr", code=2)


def test_an_undecided_study_and_unknown_words_are_refused(store: Store) -> None:
    from recorded_studies import a_study

    from trainperf_mlflow.tracking.recorder import Recorder

    recorder = Recorder.start(store, a_study("open"))
    recorder.kill()
    with pytest.raises(PlanError, match=r"not decided yet.*trainperf compare"):
        tp.report(recorder.study_id)
    with pytest.raises(PlanError, match="unknown format 'pdf'; known: html, markdown"):
        tp.report("told", "pdf")
    with pytest.raises(PlanError, match="unknown lang 'fr'; known: en, zh"):
        tp.report("told", lang="fr")


def test_a_report_that_cannot_be_written_is_a_warning_and_an_interrupt_is_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    study_id = record(store, "unlucky").study_id
    comparison = tp.load_comparison(study_id)
    warnings: list[str] = []

    def fail(*given: object) -> str:
        raise ZeroDivisionError("no page")

    monkeypatch.setattr(pages, "page_of", fail)
    pages.attach_report(store, comparison, warnings.append)
    (warning,) = warnings
    assert warning.startswith("the report could not be written (ZeroDivisionError: no page)")
    assert "report.html" not in files(store, study_id)

    def interrupt(*given: object) -> str:
        raise Interrupted(2)

    monkeypatch.setattr(pages, "page_of", interrupt)
    with pytest.raises(Interrupted):
        pages.attach_report(store, comparison, warnings.append)
