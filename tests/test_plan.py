from __future__ import annotations

from pathlib import Path

import pytest

from trainperf_mlflow.cli.flags import plan_from_flags
from trainperf_mlflow.errors import PlanError
from trainperf_mlflow.plan import Candidate, Plan, choices, make_plan, parse_candidate
from trainperf_mlflow.shortforms import parse_seconds, parse_settings, parse_value, read_plan


def from_yaml(folder: Path, text: str) -> Plan:
    path = folder / "study.yaml"
    path.write_text(text, encoding="utf-8")
    return make_plan(read_plan(path))


def changed(**plan: object) -> dict[str, tuple[dict[str, object], str | None]]:
    made = make_plan(plan)
    return {v.name: (v.changed, v.changed_variable) for v in made.variants()[1:]}


# --- what a plan means --------------------------------------------------------------------------


def test_an_empty_plan_is_the_quick_workload():
    plan = make_plan({})
    (baseline,) = plan.variants()
    assert plan.workload_name == "quick"
    assert (plan.fixed_warmup, plan.fixed_iters, plan.blocks_per_repeat) == (None, None, 4)
    assert plan.looks == (3,)
    assert baseline.config["model"] == "tiny"
    assert baseline.config["precision"] == "fp32"


@pytest.mark.parametrize(
    ("workload", "length"), [("smoke", 256), ("pressure", 768), ("pressure_1024", 1024)]
)
def test_the_published_workloads_keep_their_numbers(workload, length):
    plan = make_plan({"workload": workload})
    config = plan.variants()[0].config
    assert (plan.fixed_warmup, plan.fixed_iters) == (2, 5)
    assert (config["batch_size"], config["seq_len"], config["learning_rate"]) == (1, length, 1e-5)


def test_steps_that_the_user_gives_are_fixed_whatever_the_workload():
    plan = make_plan({"task": "my:task", "warmup": 1, "iters": 7})
    assert (plan.fixed_warmup, plan.fixed_iters) == (1, 7)


def test_only_a_time_budget_with_open_blocks_lets_a_study_go_on():
    assert make_plan({"max_time": "10m"}).looks == (3, 4, 6, 8)
    assert make_plan({"max_time": "10m", "repeats": 5}).looks == (5, 6, 8)
    assert make_plan({"max_time": "10m", "blocks": 4}).looks == (3,)


def test_a_candidate_is_the_baseline_with_one_variable_changed():
    assert changed(candidates=["bf16", "hybrid", "wide:batch_size=16", "seq_len=64"]) == {
        "bf16": ({"precision": "bf16"}, "precision"),
        "hybrid": ({"checkpoint": True, "offload": True}, "hybrid"),
        "wide": ({"batch_size": 16}, "batch_size"),
        "seq_len=64": ({"seq_len": 64}, "seq_len"),
    }


def test_candidates_start_from_set_and_baseline():
    plan = make_plan(
        {"set": {"batch_size": 8}, "baseline": {"precision": "bf16"}, "candidates": ["checkpoint"]}
    )
    baseline, candidate = plan.variants()
    assert baseline.config["batch_size"] == candidate.config["batch_size"] == 8
    assert candidate.config["precision"] == "bf16"
    assert candidate.changed == {"checkpoint": True}


def test_a_strategy_with_settings_of_its_own_keeps_what_its_name_says():
    assert changed(candidates=["checkpoint:offload=true"]) == {
        "checkpoint": ({"checkpoint": True, "offload": True}, "hybrid")
    }
    assert changed(candidates=["compile:compile=max-autotune"])["compile"][0] == {
        "compile": "max-autotune"
    }
    with pytest.raises(PlanError, match=r"'bf16' changes 2 variables \(batch_size, precision\)"):
        make_plan({"candidates": ["bf16:batch_size=16"]})


def test_a_task_of_the_users_own_takes_any_setting():
    assert changed(
        task="mine.training:make", set={"x": 1}, candidates=["x=true", "f:x=1.0", "new:y=null"]
    ) == {
        "x=true": ({"x": True}, "x"),
        "f": ({"x": 1.0}, "x"),
        "new": ({"y": None}, "y"),
    }


def test_a_probe_measures_its_candidates_or_the_baselines_configuration():
    names = [v.name for v in make_plan({"probe": True, "candidates": ["bf16"]}).variants()]
    assert names == ["bf16"]
    assert [v.name for v in make_plan({"probe": True}).variants()] == ["baseline"]


def test_the_goal_chooses_its_policy_unless_one_is_named():
    assert make_plan({}).policy_name == "training"
    assert make_plan({"goal": "peak_mem"}).policy_name == "goal"
    assert make_plan({"goal": "peak_mem", "policy": "training"}).policy_name == "training"


def test_a_plan_survives_the_json_that_a_study_keeps():
    plan = make_plan(
        {
            "candidates": ["bf16", "w:batch_size=16"],
            "max_time": "2h",
            "goal": "step_time",
            "threshold": {"min_gain": 3},
        }
    )
    assert make_plan(plan.model_dump(mode="json")) == plan


# --- files and flags ----------------------------------------------------------------------------

YAML = """
study: nightly
workload: quick
model: tiny
set: {learning_rate: 1e-5, compile: off}
baseline:
  batch_size: 16
candidates:
  - bf16
  - wide:seq_len=256
  - name: mine
    config: {optimizer: sgd}
repeats: 5
blocks: 2
warmup: auto
max_time: 15m
seed: 010
goal: step_time
threshold: {min_gain: 3}
hypothesis: forward
label: ci
"""


def test_a_file_and_flags_give_the_same_plan(tmp_path):
    flags = {
        "study": "nightly",
        "workload": "quick",
        "model": "tiny",
        "settings": ("learning_rate=1e-5,compile=off",),
        "baseline": "batch_size=16",
        "candidate": ("bf16;wide:seq_len=256", "mine:optimizer=sgd"),
        "repeats": "5",
        "blocks": "2",
        "warmup": "auto",
        "max_time": "15m",
        "seed": "10",
        "goal": "step_time",
        "thresholds": ("min_gain=3",),
        "hypothesis": "forward",
        "label": "ci",
    }
    assert from_yaml(tmp_path, YAML) == plan_from_flags(None, flags)


@pytest.mark.parametrize(
    "text",
    ["1e-5", "off", "yes", "1_000", "true", "null", "010x", "2024-01-01", "1.5", "-3", "~x", "<<"],
)
def test_a_value_in_a_file_is_what_the_same_value_on_the_command_line_is(tmp_path, text):
    path = tmp_path / "plan.yaml"
    path.write_text(f"set: {{x: {text}}}", encoding="utf-8")
    assert read_plan(path)["set"]["x"] == parse_value(text)


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_bytes(b"\xef\xbb\xbfworkload: smoke")
    assert read_plan(path) == {"workload": "smoke"}


def test_short_forms_of_a_candidate():
    assert parse_candidate("bf16") == Candidate(name="bf16")
    assert parse_candidate("w : a=1,b=x:y") == Candidate(name="w", config={"a": 1, "b": "x:y"})
    assert parse_candidate("data=C:/texts").config == {"data": "C:/texts"}


def test_a_comma_separates_settings_only_before_the_next_key():
    assert parse_settings('data=a,b.txt,x=[1,2],y={"k": 1}') == {
        "data": "a,b.txt",
        "x": [1, 2],
        "y": {"k": 1},
    }


@pytest.mark.parametrize("text", ["", "x", "=1", "a=1,a=2"])
def test_settings_that_are_not_key_value_are_refused(text):
    with pytest.raises(ValueError, match=r"KEY=VALUE|given twice"):
        parse_settings(text)


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("1.5m", 90), ("2h", 7200)])
def test_durations(text, seconds):
    assert parse_seconds(text) == seconds


def test_choices_are_the_words_that_a_field_takes():
    assert choices("hypothesis") == ["data", "forward", "backward", "optimizer", "memory"]


# --- what is refused, and how it is told --------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("wrkload: quick", "unknown key 'wrkload' (did you mean 'workload'?); known: study, task"),
        ("workload: quik", "unknown workload 'quik' (did you mean 'quick'?)"),
        ("candidates: [chekpoint]", "unknown strategy 'chekpoint' (did you mean 'checkpoint'?)"),
        ("candidates: bf16", "candidates = 'bf16': give a list"),
        ("candidates: [1]", "candidates.0 = 1: give a mapping"),
        ("candidates: [{name: x, confg: {}}]", "'candidates.0.confg' (did you mean 'config'?)"),
        ("candidates: [bf16, bf16]", "candidate 'bf16' is given twice; names must differ"),
        ("candidates: ['baseline:seq_len=3']", "cannot be named 'baseline'"),
        ("candidates: ['w:precision=fp32']", "'w' does not differ from the baseline"),
        (
            "candidates: ['w:batch_size=16,seq_len=64']",
            "'w' changes 2 variables (batch_size, seq_len), so no difference could be attributed",
        ),
        (
            "candidates: ['w:batchsize=4']",
            "candidate 'w': unknown key 'batchsize' (did you mean 'batch_size'?)",
        ),
        ("set: {batchsize: 4}", "the baseline's configuration: unknown key 'batchsize'"),
        ("set: {batch_size: 0}", "batch_size = 0: give 1 or more"),
        ("set: {batch_size: -3}", "batch_size = -3: give 1 or more"),
        ("set: {batch_size: 1000001}", "batch_size = 1000001: give 1000000 or less"),
        ("set: {batch_size: many}", "batch_size = 'many': give a whole number"),
        ("set: {batch_size: 2.0}", "batch_size = 2.0: give a whole number"),
        ("set: {batch_size: true}", "batch_size = True: give a whole number"),
        ("set: {checkpoint: 1}", "checkpoint = 1: give true or false"),
        ("set: {learning_rate: .nan}", "learning_rate = nan cannot be kept; give a finite"),
        ("set: {learning_rate: 1e999}", "learning_rate = inf cannot be kept"),
        ("set: {learning_rate: 0}", "learning_rate = 0: give more than 0"),
        ("set: {precision: bf15}", "choose one of fp32, bf16, fp16, amp (did you mean 'bf16'?)"),
        ("set: {'a b': 1}", "'a b' is not a usable key"),
        (f"set: {{data: {'x' * 3000}}}", "the value of data is over 2000 characters"),
        ("model: a\nset: {model: b}", "model is given twice"),
        ("repeats: 0", "repeats: 0 cannot be used; give a whole number from 1 to 1000"),
        ("repeats: 1e9", "give a whole number from 1 to 1000"),
        ("repeats: auto", "repeats: 'auto' cannot be used"),
        ("blocks: x", "blocks: 'x' cannot be used; give a whole number from 1 to 4, or auto"),
        ("warmup: -1", "give a whole number from 0 to 100000, or auto"),
        ("iters: 0", "give a whole number from 1 to 100000, or auto"),
        ("seed: -1", "give a whole number from 0 to 2147483647"),
        ("max_time: soon", "max_time: 'soon' is no duration; write 90s, 15m or 2h"),
        ("max_time: 0", "max_time = 0.0: give more than 0"),
        ("max_time: 1:30", "'1:30' is no duration"),
        ("isolation: proces", "choose one of auto, process, resident (did you mean 'process'?)"),
        ("device: GPU 0", "'GPU 0' is no device; give auto, cpu, cuda, cuda:1"),
        ("probe: yes", "probe = 'yes': give true or false"),
        ("goal: steptime", "unknown goal 'steptime' (did you mean 'step_time'?)"),
        ("policy: trainng", "unknown policy 'trainng' (did you mean 'training'?)"),
        ("policy: goal", "the policy 'goal' needs a goal"),
        ("hypothesis: fwd", "choose one of data, forward"),
        ("threshold: {min_time: 1}", "(did you mean 'min_time_delta_ms'?)"),
        ("threshold: {min_gain: 3}", "of the policy 'training' (it belongs to the policy 'goal')"),
        ("threshold: {min_time_delta_ms: .inf}", "give a finite number"),
        (
            "threshold: {min_time_delta_ms: fast}",
            "threshold.min_time_delta_ms = 'fast': give a number",
        ),
        ("study: ' '", "study: is empty"),
        ('study: "a\\nb"', "holds control characters or line breaks; remove them"),
        ('study: "\\u202Eb"', "holds control characters"),
        (f"study: {'n' * 300}", "give at most 250 characters"),
        ("model: ''", "model = '': give at least 1 character"),
        ("task: training.py", "neither 'causal_lm' nor of the form MODULE:FACTORY"),
        (
            "task: 'a:b'\nmodel: x\nworkload: quick",
            "workload, model: only the built-in task has this",
        ),
    ],
)
def test_bad_values_are_refused_with_value_and_remedy(tmp_path, text, message):
    with pytest.raises(PlanError) as caught:
        from_yaml(tmp_path, text)
    assert message in str(caught.value)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "but holds nothing"),
        (b"- bf16", "must be a mapping of keys to values"),
        (b"a: [", "is not valid YAML: line 1"),
        (b"a: 1\nb: 2\na: 3", "line 3, column 1: key 'a' is given twice"),
        (b"set: {x: 1, x: 2}", "key 'x' is given twice"),
        (b"1: 2", "key 1 is not a text; put it in quotes"),
        (b"a: &x [1]\nb: *x", "line 2, column 4: aliases (*name) are not read"),
        (b"a: !!python/object/apply:os.system ['true']", "is not read; write a plain value"),
        (b"a: !!timestamp x", "is not read"),
        (b"a: !!int x", "is not valid YAML"),
        (b"a: " + b"9" * 5000, "is not valid YAML"),
        (b"a: 1\n---\nb: 2", "is not valid YAML: line 2"),
        (b"\xff\xfe\x00", "is not UTF-8 text; save it as UTF-8"),
        (b"a: " + b"[" * 50_000, "is nested too deeply"),
        (b"a: \x00", "is not valid YAML"),
        (b"#" * 1_000_001, "is larger than 1000000 bytes"),
    ],
)
def test_files_that_are_no_plan_are_refused_in_one_line(tmp_path, content, message):
    path = tmp_path / "plan.yaml"
    path.write_bytes(content)
    with pytest.raises(PlanError) as caught:
        read_plan(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_endless_or_missing_file_is_refused(tmp_path):
    with pytest.raises(PlanError, match="is larger than"):
        read_plan(Path("/dev/zero"))
    with pytest.raises(PlanError, match="cannot be read: No such file"):
        read_plan(tmp_path / "none.yaml")
    with pytest.raises(PlanError, match="cannot be read: Is a directory"):
        read_plan(tmp_path)


def test_all_problems_are_told_at_once_and_none_at_great_length():
    with pytest.raises(PlanError) as caught:
        make_plan({"repeats": 0, "seed": "x" * 1_000_000, "y" * 1_000_000: 1})
    message = str(caught.value)
    assert "repeats: 0" in message
    assert "seed: 'xxx" in message
    assert "unknown key 'yyy" in message
    assert len(message) < 1500


def test_bytes_that_are_no_text_and_negative_thresholds_are_refused():
    with pytest.raises(PlanError, match="UTF-8"):
        make_plan({"candidates": ["bf16"], "task": "a:b", "set": {"y": "\udcff"}})
    with pytest.raises(PlanError, match="0 or more"):
        make_plan({"candidates": ["bf16"], "threshold": {"min_time_delta_ms": -1.0}})
