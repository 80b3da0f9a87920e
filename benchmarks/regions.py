"""Equal layers compiled once, under `inductor` with empty caches: what the first call costs, and what each later call loses.

Input: models with equal layers and without, in sizes at which a call takes some ten milliseconds. Output: a table, and
`results/regions-DATE.json` with `.md`: processor seconds of the first call beyond an eager one, for graphs as a whole, cut where
`regions="auto"` says so, and torch.compile; milliseconds per call of the two ways, in turns in one process, and their ratio with its
p-value (above 1: the cut graph is faster). Each first call is measured in a process of its own with caches of its own.

`--first`: only the first calls, of what `regions="auto"` does and of torch.compile.

    python -m benchmarks.regions [--models bert,llama] [--training] [--first] [--no-save]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from .training import processor_seconds

Record = dict[str, Any]
SIDES = ("whole", "auto", "torch.compile")
LENGTH, BATCH, WIDTH = 64, 1, 256
HEADS = {"hidden_size": WIDTH, "num_attention_heads": 4, "intermediate_size": 4 * WIDTH}
ROUNDS, BUDGET = 60, 15.0  # at most so many rounds, in so many seconds
TRAINED = ("bert", "gpt2", "llama", "vit", "resnet50", "t5")


def models() -> dict[str, Callable[[], tuple[Any, dict[str, Any]]]]:
    """Name → what makes a module and its keyword arguments."""
    import torch

    from examples.models import Recommender, import_torchvision

    import_torchvision()
    import transformers as tf

    def text(cls: str, config: Any, **more: Any) -> tuple[Any, dict[str, Any]]:
        model = getattr(tf, cls)(config)
        return model, {"input_ids": torch.randint(config.vocab_size, (BATCH, LENGTH)), **more}

    def decoder(layers: int, cls: str = "Llama") -> tuple[Any, dict[str, Any]]:
        config = getattr(tf, f"{cls}Config")(
            **HEADS, num_hidden_layers=layers, vocab_size=1000, num_key_value_heads=2, head_dim=64, use_cache=False
        )
        return text(f"{cls}ForCausalLM", config)

    def t5() -> tuple[Any, dict[str, Any]]:
        config = tf.T5Config(
            d_model=WIDTH, d_ff=4 * WIDTH, d_kv=64, num_heads=4, num_layers=6, vocab_size=1000, use_cache=False
        )
        return text("T5ForConditionalGeneration", config, decoder_input_ids=torch.randint(1000, (BATCH, LENGTH)))

    def whisper() -> tuple[Any, dict[str, Any]]:
        layers = {
            f"{part}_{key}": n
            for part in ("encoder", "decoder")
            for key, n in (("layers", 4), ("attention_heads", 4), ("ffn_dim", 1024))
        }
        config = tf.WhisperConfig(
            d_model=WIDTH, **layers, vocab_size=1000, max_source_positions=100, use_cache=False, pad_token_id=0
        )
        ids = torch.randint(1000, (2, 32))
        return tf.WhisperForConditionalGeneration(config), {
            "input_features": torch.randn(2, 80, 200),
            "decoder_input_ids": ids,
        }

    def image(name: str, size: int = 96, **changes: Any) -> tuple[Any, dict[str, Any]]:
        import timm

        return timm.create_model(name, **changes), {"x": torch.randn(2, 3, size, size)}

    return {
        "bert": lambda: text("BertModel", tf.BertConfig(**HEADS, num_hidden_layers=12, vocab_size=1000)),
        "gpt2": lambda: text(
            "GPT2LMHeadModel", tf.GPT2Config(n_embd=WIDTH, n_layer=12, n_head=4, vocab_size=1000, use_cache=False)
        ),
        "t5": t5,
        "llama": lambda: decoder(12),
        "qwen3_28": lambda: decoder(28, "Qwen3"),
        "whisper": whisper,
        "vit": lambda: image("vit_small_patch16_224", img_size=96),
        "swin": lambda: image("swin_tiny_patch4_window7_224", 224),
        "convnext": lambda: image("convnext_atto"),
        "resnet50": lambda: image("resnet50"),
        "hrnet_w18": lambda: image("hrnet_w18_small"),
        "dlrm": lambda: (Recommender(), {"dense": torch.randn(512, 13), "sparse": torch.randint(100, (512, 26, 3))}),
        "mobilenet": lambda: image("mobilenetv3_small_100"),
        "unet": lambda: (unet(), {"x": torch.randn(2, 4, 32, 32), "time": torch.rand(2)}),
    }


def unet(width: int = 32, levels: int = 3, blocks: int = 2) -> Any:
    """The shape of a diffusion UNet (Ho et al. 2020): residual blocks that a time embedding shifts, half the resolution at each level, and
    connections from the way down to the way up."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, inputs: int, outputs: int) -> None:
            super().__init__()
            self.first = nn.Sequential(nn.GroupNorm(4, inputs), nn.SiLU(), nn.Conv2d(inputs, outputs, 3, padding=1))
            self.time = nn.Linear(width, outputs)
            self.second = nn.Sequential(nn.GroupNorm(4, outputs), nn.SiLU(), nn.Conv2d(outputs, outputs, 3, padding=1))
            self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

        def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
            return self.skip(x) + self.second(self.first(x) + self.time(time)[:, :, None, None])

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            widths = [width * 2**level for level in range(levels)]
            self.embed = nn.Sequential(nn.Linear(1, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
            self.enter = nn.Conv2d(4, width, 3, padding=1)
            self.down, self.up, channels = nn.ModuleList(), nn.ModuleList(), [width]
            for now in widths:
                for _ in range(blocks):
                    self.down.append(Block(channels[-1], now))
                    channels.append(now)
            inside = channels[-1]
            for now in reversed(widths):
                for _ in range(blocks):
                    self.up.append(Block(inside + channels.pop(), now))
                    inside = now
            self.leave = nn.Sequential(nn.GroupNorm(4, inside), nn.SiLU(), nn.Conv2d(inside, 4, 3, padding=1))

        def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
            embedded, x, kept = self.embed(time[:, None]), self.enter(x), []
            for number, block in enumerate(self.down):
                x = block(nn.functional.avg_pool2d(x, 2) if number and number % blocks == 0 else x, embedded)
                kept.append(x)
            for number, block in enumerate(self.up):
                x = nn.functional.interpolate(x, scale_factor=2.0) if number and number % blocks == 0 else x
                x = block(torch.cat([x, kept.pop()], 1), embedded)
            return self.leave(x)

    return UNet()


def made(name: str, training: bool) -> tuple[Any, Callable[[Callable[..., Any]], Any]]:
    """The module, and what makes a call of a compiled form of it: inference, or forward and backward pass."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, inputs = models()[name]()
    model.train(training)

    def call(forward: Callable[..., Any]) -> Any:
        if not training:
            with torch.no_grad():
                return forward(**inputs)
        result = forward(**inputs)
        first = result if isinstance(result, torch.Tensor) else result[0]
        model.zero_grad(set_to_none=True)
        first.float().square().mean().backward()
        return first

    return model, call


def compiled(side: str, model: Any) -> Callable[..., Any]:
    import torch

    import dynamo_lite

    if side == "torch.compile":
        return torch.compile(model, backend="inductor")
    return dynamo_lite.compile(model, backend="inductor", regions="auto" if side == "auto" else False)


def first_call(name: str, side: str, training: bool) -> Record:
    """In the process that is measured."""
    model, call = made(name, training)
    call(model)
    started = processor_seconds()
    call(model)
    eager = processor_seconds() - started
    forward = compiled(side, model)
    started = processor_seconds()
    call(forward)
    return {"seconds": processor_seconds() - started - eager, "regions": told()}


def told() -> list[str]:
    """The regions that graphs were cut into."""
    from dynamo_lite.record import log

    return [text for frame in log.snapshot() for graph in frame.graphs for text in graph.notes.get("regions", ())]


def later_calls(name: str, training: bool) -> Record:
    """Both ways in turns: milliseconds per call, and whether the results are equal."""
    from dynamo_lite.testing import differences

    from .common import take_turns
    from .significance import compare

    model, call = made(name, training)
    forwards = {side: compiled(side, model) for side in SIDES[:2]}
    results = [call(forward) for forward in forwards.values() for _ in range(2)][1::2]

    def block(side: str) -> Callable[[], float]:
        def run() -> float:
            started = time.perf_counter()
            for _ in range(calls):
                call(forwards[side])
            return (time.perf_counter() - started) / calls

        return run

    calls = 1
    calls = math.ceil(0.05 / block("whole")())
    times = take_turns({side: block(side) for side in forwards}, ROUNDS, budget=BUDGET)
    found = compare(times["whole"], times["auto"])
    medians = {f"{side} ms": 1e3 * statistics.median(seconds) for side, seconds in times.items()}
    off = [] if training and model.training else [str(text) for text in differences(*results, tol=1e-3)]
    return {**medians, "speed": found.speedup, "p": found.p, "differences": off[:3]}


def in_process(*arguments: str) -> Record:
    """What a new process with empty caches measures."""
    with tempfile.TemporaryDirectory(prefix="regions-") as folder:
        environment = {
            **os.environ,
            "DYNAMO_LITE_CACHE": "0",
            "TORCHINDUCTOR_CACHE_DIR": os.path.join(folder, "torch"),
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
        }
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.regions", "--measure", *arguments]
        done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def row(name: str, training: bool, first_only: bool) -> Record:
    """One model."""
    kind = "training" if training else ""
    firsts = {side: in_process("first", name, side, kind) for side in SIDES[first_only:]}
    found = {side: firsts[side]["seconds"] for side in firsts}
    cut = firsts["auto"]["regions"]
    later = in_process("later", name, kind) if cut and not first_only else {}
    return {"model": name, **found, "ratio": found["auto"] / found["torch.compile"], "regions": cut, **later}


HEADER = """| model | whole | auto | torch.compile | auto to torch.compile | regions | whole, ms per call | auto | speed |
|---|---:|---:|---:|---:|---|---:|---:|---:|"""


def line(found: Record) -> str:
    """One row of the table."""
    seconds = [f"{found[side]:.1f} s" if side in found else "" for side in SIDES]
    cells = [found["model"], *seconds, f"{found['ratio']:.2f}", ", ".join(found["regions"]) or "none"]
    if "speed" in found:
        from .significance import verdict

        cells += [f"{found['whole ms']:.2f}", f"{found['auto ms']:.2f}", f"{found['speed']:.3f} {verdict(found['p'])}"]
    else:
        cells += ["", "", ""]
    return f"| {' | '.join(cells)} |"


def summary(rows: list[Record]) -> str:
    """Geometric means."""
    cut = [found["speed"] for found in rows if "speed" in found]
    ratios = (found["ratio"] for found in rows)
    speed = f"; speed of the cut graphs {statistics.geometric_mean(cut):.3f}, least {min(cut):.3f}" if cut else ""
    return f"Geometric mean, first call to torch.compile's: {statistics.geometric_mean(ratios):.3f}{speed}."


def main() -> None:
    """Measure, print, write."""
    if sys.argv[1:2] == ["--measure"]:
        kind, name, *rest = sys.argv[2:]
        measured = first_call(name, rest[0], bool(rest[1])) if kind == "first" else later_calls(name, bool(rest[0]))
        print(json.dumps(measured))
        return
    from .common import RESULTS, surroundings

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", default="")
    parser.add_argument("--training", action="store_true")
    parser.add_argument("--first", action="store_true", help="only the first calls")
    parser.add_argument("--no-save", action="store_true", help="print only")
    options = parser.parse_args()
    names = options.models.split(",") if options.models else list(TRAINED if options.training else models())
    about = surroundings(1)
    print(HEADER, flush=True)
    rows: list[Record] = []
    for name in names:
        rows.append(row(name, options.training, options.first))
        print(line(rows[-1]), flush=True)
    print(summary(rows))
    if options.no_save:
        return
    kind = "-training" * options.training + "-first" * options.first
    stem = RESULTS / f"regions{kind}-{time.strftime('%Y%m%d')}"
    facts = ", ".join(f"{key} {value}" for key, value in about.items())
    stem.with_suffix(".json").write_text(json.dumps({"environment": about, "rows": rows}, indent=1) + "\n")
    stem.with_suffix(".md").write_text(
        "\n".join([f"# regions\n\n{facts}\n", HEADER, *map(line, rows), f"\n{summary(rows)}\n"])
    )


if __name__ == "__main__":
    main()
