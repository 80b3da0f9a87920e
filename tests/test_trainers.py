"""Libraries that train run the code of a module that `dynamo_lite.compile` has made; where they ask for torch's class of compiled modules,
it is one.

What a library does is tested with the library, where it is installed; `test_what_trainers_ask` needs none.
"""

import importlib
import textwrap

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import dynamo_lite
from dynamo_lite.testing import CompileCounter
from tests.helpers import processes

X, Y = torch.randn(8, 4), torch.randn(8, 2)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 2)

    def forward(self, x):
        return torch.relu(self.linear(x))


def installed(name):
    """The library; the test is skipped where it is missing, or broken as its requirements are others here."""
    try:
        return importlib.import_module(name)
    except Exception as error:
        return pytest.skip(f"{name}: {type(error).__name__}: {error}")


def run(text):
    """In a process of its own: whether torch._dynamo is loaded is a matter of the process."""
    done = processes.run(["-c", textwrap.dedent(text)], timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.split()


SETUP = """
import sys, torch, dynamo_lite
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 2)
    def forward(self, x):
        return self.linear(x)
"""


def test_what_trainers_ask():
    from torch._dynamo import OptimizedModule

    counter, original = CompileCounter(), Net()
    compiled = dynamo_lite.compile(original, backend=counter)
    assert isinstance(compiled, OptimizedModule) and isinstance(compiled, Net)
    assert not isinstance(original, OptimizedModule)
    assert compiled._orig_mod is original and compiled.__class__ is Net
    assert list(compiled.state_dict()) == list(original.state_dict()) == ["linear.weight", "linear.bias"]
    compiled.eval()
    assert original.training is compiled.training is False
    compiled.note = 1
    del compiled.note
    assert not hasattr(original, "note")
    assert bool(compiled)
    with pytest.raises(TypeError, match=r"object of type 'Net' has no len\(\)"):
        len(compiled)
    assert len(dynamo_lite.compile(nn.Sequential(original), backend="eager")) == 1
    assert torch.equal(compiled(X), original(X)) and counter.frame_count == 1
    compiled._orig_mod = original
    assert dict(original.named_children()) == {"linear": original.linear}
    with pytest.raises(AttributeError, match="cannot be exchanged"):
        compiled._orig_mod = Net()
    step = compiled.dynamo_ctx(original.forward)
    assert torch.equal(step(X), original(X))


def test_nothing_of_torchs_compiler_is_imported():
    assert run(
        SETUP + 'dynamo_lite.compile(Net(), backend="eager")(torch.ones(1, 4)); print("torch._dynamo" in sys.modules)'
    ) == ["False"]


def test_modules_compiled_before_torchs_compiler_is_imported():
    text = """
    compiled = dynamo_lite.compile(Net(), backend="eager")
    compiled(torch.ones(1, 4))
    from torch._dynamo import OptimizedModule
    compiled.eval()
    print(isinstance(compiled, OptimizedModule), isinstance(compiled, Net), compiled.__class__ is Net, bool(compiled), compiled.training)
    import torch.distributed.checkpoint.state_dict
    print(compiled(torch.ones(1, 4)).shape[0], any(type(f).__module__.startswith("dynamo_lite") for f in sys.meta_path))
    """
    assert run(SETUP + textwrap.dedent(text)) == ["True", "True", "True", "True", "False", "1", "False"]


def test_a_question_for_a_module_does_not_import_it():
    """`find_spec` of a module that is waited for; the names are expected when it is imported."""
    text = """
    import importlib.util
    compiled = dynamo_lite.compile(Net(), backend="eager")
    print(importlib.util.find_spec("torch.distributed.checkpoint.state_dict") is not None)
    import torch.distributed.checkpoint.state_dict as state_dicts
    print(state_dicts._get_fqns(compiled, "linear.weight"))
    """
    assert run(SETUP + textwrap.dedent(text)) == ["True", "{'linear.weight'}"]


def lightning_module(pl):
    class Lit(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = Net()

        def forward(self, x):
            return self.net(x)

        def training_step(self, batch, index):
            x, y = batch
            return nn.functional.mse_loss(self(x), y)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    return Lit()


def trained(trainer, model):
    """The weights before and after."""
    before = [p.detach().clone() for p in model.parameters()]
    trainer.fit(model, DataLoader(TensorDataset(X, Y), batch_size=4))
    return before, [p.detach() for p in model.parameters()]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["lightning.pytorch", "pytorch_lightning"])
def test_lightning_trains_a_compiled_module(name, tmp_path):
    pl = installed(name)
    counter = CompileCounter()
    settings = {
        "accelerator": "cpu", "max_epochs": 2, "logger": False, "enable_checkpointing": False, "enable_progress_bar": False,
        "enable_model_summary": False, "default_root_dir": tmp_path,
    }  # fmt: skip
    torch.manual_seed(0)
    eager = lightning_module(pl)
    torch.manual_seed(0)
    model = lightning_module(pl)
    trained(pl.Trainer(**settings), eager)
    before, after = trained(pl.Trainer(**settings), dynamo_lite.compile(model, backend=counter))
    assert counter.frame_count > 0
    assert not all(map(torch.equal, before, after))
    for one, other in zip(after, eager.parameters(), strict=True):
        torch.testing.assert_close(one, other.detach())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["lightning.fabric", "lightning_fabric"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_fabric_runs_a_compiled_module(name, when):
    fabric_package = installed(name)
    counter, model = CompileCounter(), Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    fabric = fabric_package.Fabric(accelerator="cpu", devices=1)
    if when == "before":
        # Otherwise Fabric takes the module out and compiles it with torch.compile.
        module, optimizer = fabric.setup(dynamo_lite.compile(model, backend=counter), optimizer, _reapply_compile=False)
    else:
        module, optimizer = fabric.setup(model, optimizer)
        module = dynamo_lite.compile(module, backend=counter)
    before = model.linear.weight.detach().clone()
    loss = nn.functional.mse_loss(module(X), Y)
    fabric.backward(loss)
    optimizer.step()
    assert counter.frame_count > 0 and not torch.equal(before, model.linear.weight)


@pytest.mark.filterwarnings("ignore")
def test_accelerate_runs_a_compiled_module():
    accelerate = installed("accelerate")
    counter, model = CompileCounter(), Net()
    compiled = dynamo_lite.compile(model, backend=counter)
    accelerator = accelerate.Accelerator(cpu=True)
    module, optimizer, loader = accelerator.prepare(
        compiled, torch.optim.SGD(model.parameters(), lr=0.1), DataLoader(TensorDataset(X, Y), batch_size=4)
    )
    before = model.linear.weight.detach().clone()
    for x, y in loader:
        optimizer.zero_grad()
        accelerator.backward(nn.functional.mse_loss(module(x), y))
        optimizer.step()
    assert counter.frame_count > 0 and not torch.equal(before, model.linear.weight)
    assert accelerator.unwrap_model(module, keep_torch_compile=False) is model


@pytest.mark.filterwarnings("ignore")
def test_transformers_trainer_runs_a_compiled_module(tmp_path):
    transformers = installed("transformers")
    installed("transformers.trainer")
    installed("accelerate")

    class WithLoss(Net):
        def forward(self, x, labels=None):
            out = super().forward(x)
            return {"loss": nn.functional.mse_loss(out, labels), "logits": out}

    counter, model = CompileCounter(), WithLoss()
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), max_steps=2, per_device_train_batch_size=4, report_to=[], use_cpu=True, save_strategy="no",
        disable_tqdm=True, remove_unused_columns=False,
    )  # fmt: skip
    data = [{"x": x, "labels": y} for x, y in zip(X, Y, strict=True)]
    before = model.linear.weight.detach().clone()
    transformers.Trainer(model=dynamo_lite.compile(model, backend=counter), args=arguments, train_dataset=data).train()
    assert counter.frame_count > 0 and not torch.equal(before, model.linear.weight)


@pytest.mark.filterwarnings("ignore")
def test_ignite_runs_a_compiled_module():
    engine = installed("ignite.engine")
    counter, model = CompileCounter(), Net()
    trainer = engine.create_supervised_trainer(
        dynamo_lite.compile(model, backend=counter), torch.optim.SGD(model.parameters(), lr=0.1), nn.functional.mse_loss
    )
    before = model.linear.weight.detach().clone()
    trainer.run(DataLoader(TensorDataset(X, Y), batch_size=4), max_epochs=1)
    assert counter.frame_count > 0 and not torch.equal(before, model.linear.weight)


def test_state_dicts_of_distributed_checkpoints():
    """Model and optimizer, with the names of the original, whichever is imported first."""
    text = """
    from torch.distributed.checkpoint import state_dict as dcp
    class Outer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = dynamo_lite.compile(Net(), backend="eager")
        def forward(self, x):
            return self.inner(x)
    for net in (dynamo_lite.compile(Net(), backend="eager"), Outer(), dynamo_lite.compile(Outer(), backend="eager")):
        optimizer = torch.optim.Adam(net.parameters())
        net(torch.ones(1, 4)).sum().backward()
        optimizer.step()
        model, state = dcp.get_state_dict(net, optimizer)
        model = {k: v.clone() for k, v in model.items()}
        plain = [name for name, _ in net.named_parameters()]
        same = sorted(state["state"]) == sorted(plain) and set(plain) <= set(model)
        dcp.set_state_dict(net, optimizer, model_state_dict={k: v + 1 for k, v in model.items()}, optim_state_dict=state)
        loaded = all(torch.equal(v, model[k] + 1) for k, v in dcp.get_model_state_dict(net).items())
        print(same, loaded, any("_orig_mod" in name for name in model))
    """
    for first in ("", "import torch.distributed.checkpoint.state_dict, torch._dynamo\n"):
        assert run(first + SETUP + textwrap.dedent(text)) == ["True", "True", "False"] * 3
