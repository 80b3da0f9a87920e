"""The zoo's catalogue, one measurement of it, and the report."""

from importlib.util import find_spec

import pytest
import torch

if find_spec("transformers") is None or find_spec("timm") is None:
    pytest.skip("transformers or timm is not installed", allow_module_level=True)

from benchmarks import (
    zoo_engines,
    zoo_inputs,
    zoo_measure,
    zoo_report,
    zoo_shapes,
    zoo_timm,
    zoo_transformers,
)


def test_the_catalogue_has_models_of_every_kind():
    hf, timm = zoo_transformers.MODELS, zoo_timm.MODELS
    assert len(hf) >= 45
    assert len(timm) >= 60
    assert not set(hf) & set(timm)
    assert sum(entry.train for entry in [*hf.values(), *timm.values()]) >= 25
    assert {"mobilebert", "longformer", "reformer"} <= set(hf)
    assert {"hrnet_w18", "cait_m36_384", "volo_d1_224", "res2net101_26w_4s", "pnasnet5large"} <= set(timm)


def test_narrow_keeps_the_depth():
    from transformers import CLIPConfig

    config = zoo_inputs.narrow(CLIPConfig, vision_config={"image_size": 32}, projection_dim=8)
    assert (config.vision_config.num_hidden_layers, config.text_config.num_hidden_layers) == (12, 12)
    assert (config.vision_config.hidden_size, config.vision_config.image_size, config.projection_dim) == (64, 32, 8)
    assert config.text_config.eos_token_id < config.text_config.vocab_size


@pytest.mark.parametrize("kind", ["inference", "training"])
def test_a_model_is_measured(kind):
    record = zoo_measure.measure("hf", "distilbert", "dynamo_lite", kind)
    assert record["pass"], record
    assert (record["graphs"], record["again"]) == (1, 0)
    if kind == "inference":
        assert (record["second"], record["third"]) == (1, 0)


def test_sizes_are_measured():
    record = zoo_measure.measure("hf", "distilbert", "dynamo_lite", "shapes")
    assert record["pass"], record
    assert record["axes"].keys() == {"batch", "length"}
    assert all(axis["counts"] == [1, 1, *[0] * 11] and axis["guards"] > 100 for axis in record["axes"].values())


def test_sizes_that_a_model_does_not_take():
    model = torch.nn.Linear(3, 2)

    def make(batch, length=0):
        return {"input": torch.ones(batch, 3 + length)}

    record = zoo_shapes.shapes(
        zoo_engines.engine_of("dynamo_lite"), zoo_inputs.Entry(lambda: (model, make), axes=("length",))
    )
    assert record["axes"].keys() == {"batch"}
    assert [text.split(":")[0] for text in record["refused"]] == ["length 3", "length 8"]


def test_an_export_is_measured():
    record = zoo_measure.measure("hf", "distilbert", "dynamo_lite", "export")
    assert record["pass"] and record["varies"], record


def test_what_fails_is_a_record_too():
    record = zoo_measure.guarded("hf", "no such model", "dynamo_lite", "inference")
    assert not record["pass"]
    assert record["error"].startswith("KeyError")


def test_the_report_names_what_torch_does_better():
    ours = {"pass": True, "graphs": 2, "ops": 5, "again": 0, "second": 1, "third": 1, "trace": 1.0}
    theirs = {**ours, "graphs": 1, "third": 0, "trace": 4.0}
    wrong = {"pass": False, "error": "ValueError: no"}
    models = {
        "a": {"dynamo_lite": {"inference": ours}, "torch.compile": {"inference": theirs}},
        "b": {"dynamo_lite": {"inference": theirs, "training": wrong}, "torch.compile": {"inference": ours}},
    }
    report = zoo_report.table({"models": models, "environment": {"date": "today"}})
    assert "| a | pass / pass | 2 / 1 | 5 / 5 | 1 / 1 | 1 / 0 | 1.00 / 4.00 | 0.25 |" in report
    assert "more graphs than torch.compile: a\n" in report
    assert "more recompilations than torch.compile: a\n" in report
    assert "graphs 3 / 3" in report
    assert "- b, dynamo_lite, training: ValueError: no" in report


def test_the_report_on_sizes_and_exports():
    good = {"graphs": 1, "change": 1, "more": 0, "guards": 9, "trace": 0.5}
    bad = {**good, "more": 2}
    mine = {"shapes": {"pass": True, "axes": {"batch": good, "length": bad}}, "export": {"pass": True, "varies": False}}
    other = {"shapes": {"pass": True, "axes": {"batch": good}}, "export": {"pass": True, "varies": True}}
    models = {"a": {"dynamo_lite": mine, "torch.compile": other}}
    report = zoo_report.table({"models": models, "environment": {"date": "today"}})
    assert (
        "shapes, dynamo_lite: 1 of 2 axes with one recompilation at the first change and none after it; not: a length\n"
        in report
    )
    assert (
        "shapes, torch.compile: 1 of 1 axes with one recompilation at the first change and none after it; not: none\n"
        in report
    )
    assert "| a | batch | pass / pass | 1 / 1 | 1 / 1 | 0 / 0 | 9 / 9 | 0.50 / 0.50 |" in report
    assert (
        "export, of 1, beside torch.export: whole and right 1 / 1, also for another batch size 0 / 1; only torch.export has: a\n"
        in report
    )
    assert "| a | pass / pass | **fail** / pass |" in report
