"""Programs with libraries that stand on torch: library → a function that imports it and gives its programs by name.

A program is what makes a module or function, and what makes its arguments for a size (0 or 1).
"""

from __future__ import annotations

import torch
from torch import nn

rand = torch.randn


def einops():
    import einops
    from einops.layers.torch import EinMix, Rearrange, Reduce

    def packed(x, y):
        together, shapes = einops.pack([x, y], "b * d")
        return einops.unpack(together * 2, shapes, "b * d")

    def images(size):
        return (rand(2 + size, 3, 4, 6 + 2 * size),)

    def mixer():
        return nn.Sequential(
            Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=2, q=2),
            EinMix("b n c -> b n d", weight_shape="c d", bias_shape="d", c=12, d=5),
            Reduce("b n d -> b d", "mean"),
        )

    return {
        "rearrange": (lambda: lambda x: einops.rearrange(x, "b c (h p) w -> b (h w) (p c)", p=2) * 2, images),
        "reduce": (
            lambda: lambda x: [einops.reduce(x, "b c ... -> b c", how) for how in ("mean", "max", "sum")],
            images,
        ),
        "repeat": (lambda: lambda x: einops.repeat(x, "b c h w -> b c (h n) w", n=3).cos(), images),
        "pack": (lambda: packed, lambda size: (rand(2, 3), rand(2, 4 + size, 3))),
        "einsum": (lambda: lambda x: einops.einsum(x, x, "b c h w, b c h v -> b w v").softmax(-1), images),
        "layers": (mixer, images),
    }


def torchmetrics():
    import torchmetrics
    from torchmetrics.functional import classification, image, regression

    def scores(size):
        return rand(8 + size, 3).softmax(-1), torch.arange(8 + size) % 3

    def counted():
        metric = torchmetrics.Accuracy(task="multiclass", num_classes=3)

        def step(scores, labels):
            metric.update(scores, labels)
            return metric.compute()

        return step

    def pairs(size):
        return rand(6 + size, 2), rand(6 + size, 2)

    return {
        "accuracy": (lambda: lambda p, t: classification.multiclass_accuracy(p, t, num_classes=3), scores),
        "f1": (lambda: lambda p, t: classification.multiclass_f1_score(p, t, num_classes=3, average="macro"), scores),
        "confusion": (lambda: lambda p, t: classification.multiclass_confusion_matrix(p, t, num_classes=3), scores),
        "object": (counted, scores),
        "mse": (lambda: regression.mean_squared_error, pairs),
        "cosine": (lambda: regression.cosine_similarity, pairs),
        "ssim": (
            lambda: image.structural_similarity_index_measure,
            lambda size: (torch.rand(2, 1, 16 + size, 16), torch.rand(2, 1, 16 + size, 16)),
        ),
    }


def torch_geometric():
    from torch_geometric import nn as layers
    from torch_geometric import utils

    def graph(size):
        nodes = 8 + 3 * size
        return rand(nodes, 8), torch.randint(0, nodes, (2, 20 + 5 * size))

    def mlp(n):
        return nn.Sequential(nn.Linear(n, 8), nn.ReLU(), nn.Linear(8, 6))

    programs = {
        "GCN": lambda: layers.GCNConv(8, 6),
        "GAT": lambda: layers.GATConv(8, 3, 2, dropout=0.3),
        "GATv2": lambda: layers.GATv2Conv(8, 3, 2),
        "SAGE": lambda: layers.SAGEConv(8, 6, aggr="max", project=True),
        "GIN": lambda: layers.GINConv(mlp(8), train_eps=True),
        "transformer": lambda: layers.TransformerConv(8, 3, 2, beta=True, dropout=0.2),
        "edge": lambda: layers.EdgeConv(mlp(16)),
        "chebyshev": lambda: layers.ChebConv(8, 6, 3),
        "APPNP": lambda: layers.APPNP(3, 0.1, dropout=0.2),
        "GEN": lambda: layers.GENConv(8, 6, learn_t=True),
        "model": lambda: layers.GraphSAGE(8, 6, 2, 3, dropout=0.2),
        "top-k": lambda: lambda x, edges: layers.TopKPooling(8)(x, edges)[0].shape,
        "softmax": lambda: lambda x, edges: utils.softmax(x[edges[0]], edges[1], num_nodes=x.size(0)),
        "dense": lambda: lambda x, edges: utils.to_dense_adj(edges, max_num_nodes=x.size(0)) @ x,
    }
    return {name: (make, graph) for name, make in programs.items()}


def diffusers():
    import diffusers

    def unet():
        return diffusers.UNet2DModel(
            sample_size=8,
            block_out_channels=(8, 16),
            norm_num_groups=4,
            layers_per_block=1,
            down_block_types=("DownBlock2D", "AttnDownBlock2D"),
            up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        )

    def sampler(scheduler):
        def make():
            torch.manual_seed(0)
            net, steps = nn.Conv2d(3, 3, 3, padding=1), scheduler()

            def sample(x):
                steps.set_timesteps(4)
                for t in steps.timesteps:
                    x = steps.step(net(x), t, x).prev_sample
                return x

            return sample

        return make

    def noise(size):
        return (rand(1 + size, 3, 8, 8),)

    def vae():
        return diffusers.AutoencoderKL(block_out_channels=(8,), norm_num_groups=4, latent_channels=2)

    return {
        "unet": (unet, lambda size: (rand(1 + size, 3, 8, 8), torch.tensor(5))),
        "vae": (vae, noise),
        "ddim": (sampler(diffusers.DDIMScheduler), noise),
        "euler": (sampler(diffusers.EulerDiscreteScheduler), noise),
        "dpm": (sampler(diffusers.DPMSolverMultistepScheduler), noise),
        "unipc": (sampler(diffusers.UniPCMultistepScheduler), noise),
    }


def gpytorch():
    import gpytorch
    from gpytorch.distributions import MultivariateNormal

    class Exact(gpytorch.models.ExactGP):
        def __init__(self, kernel):
            x = torch.linspace(0, 1, 6)
            super().__init__(x, x.sin(), gpytorch.likelihoods.GaussianLikelihood())
            self.mean, self.kernel = gpytorch.means.ConstantMean(), gpytorch.kernels.ScaleKernel(kernel)

        def forward(self, x):
            return MultivariateNormal(self.mean(x), self.kernel(x))

    def loss(kernel):
        def make():
            model = Exact(kernel())
            likelihood = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
            return lambda x: likelihood(model.train()(model.train_inputs[0]), model.train_targets) * x.sum()

        return make

    kernels = gpytorch.kernels
    return {
        "rbf": (loss(kernels.RBFKernel), lambda size: (rand(3 + size),)),
        "matern": (loss(lambda: kernels.MaternKernel(nu=1.5)), lambda size: (rand(3 + size),)),
        "product": (loss(lambda: kernels.RBFKernel() * kernels.PeriodicKernel()), lambda size: (rand(3 + size),)),
    }


def tensordict():
    from tensordict import TensorDict
    from tensordict.nn import TensorDictModule, TensorDictSequential

    def dicts(size):
        return (TensorDict({"a": rand(3 + size, 2), "n": {"b": rand(3 + size, 4)}}, batch_size=[3 + size]),)

    def changed(td):
        td["c"] = td["a"] * 2
        return td.select("c", ("n", "b")).apply(torch.sin).to_dict()

    def of_modules():
        torch.manual_seed(0)
        first = TensorDictModule(nn.Linear(2, 3), ["a"], ["h"])
        model = TensorDictSequential(first, TensorDictModule(lambda h: h.relu(), ["h"], ["out"]))
        return lambda td: model(td)["out"]

    return {
        "arithmetic": (lambda: lambda td: (td * 2 + td).sum(), dicts),
        "changed": (lambda: changed, dicts),
        "stacked": (lambda: lambda td: torch.stack([td, td])[0, 1:].exp()["n", "b"], dicts),
        "modules": (of_modules, dicts),
    }


def peft():
    from peft import IA3Config, LoraConfig, get_peft_model

    def adapted(config):
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 3)

            def forward(self, x):
                return self.second(self.first(x).relu())

        return lambda: get_peft_model(Net(), config)

    both = ["first", "second"]
    programs = {
        "lora": LoraConfig(target_modules=both, r=2, lora_dropout=0.1),
        "dora": LoraConfig(target_modules=both, r=2, use_dora=True),
        "ia3": IA3Config(target_modules=both, feedforward_modules=["second"]),
    }
    return {name: (adapted(config), lambda size: (rand(3 + size, 4),)) for name, config in programs.items()}


def torchdiffeq():
    from torchdiffeq import odeint

    def solved(method, **options):
        def make():
            torch.manual_seed(0)
            field, times = nn.Linear(2, 2), torch.linspace(0, 1, 4)
            return lambda y: odeint(lambda t, y: field(y).tanh() * (1 + t), y, times, method=method, **options)

        return make

    programs = {"euler": solved("euler"), "rk4": solved("rk4"), "dopri5": solved("dopri5", rtol=1e-2, atol=1e-2)}
    return {name: (make, lambda size: (rand(3 + size, 2),)) for name, make in programs.items()}


def neuralop():
    from neuralop.models import FNO

    def grids(size):
        return (rand(2, 1, 16 + 8 * size, 16 + 8 * size),)

    return {"FNO": (lambda: FNO((8, 8), 1, 1, 8, n_layers=2), grids)}


def vit_pytorch():
    from vit_pytorch import SimpleViT, ViT

    sizes = {"image_size": 16, "patch_size": 8, "num_classes": 5, "dim": 16, "depth": 2, "heads": 2, "mlp_dim": 16}

    def images(size):
        return (rand(2 + size, 3, 16, 16),)

    return {"vit": (lambda: ViT(**sizes, dropout=0.1), images), "simple": (lambda: SimpleViT(**sizes), images)}


def x_transformers():
    from x_transformers import Decoder, TransformerWrapper

    def model(**options):
        layers = Decoder(dim=16, depth=2, heads=2, **options)
        return TransformerWrapper(num_tokens=20, max_seq_len=16, attn_layers=layers)

    def tokens(size):
        return (torch.randint(0, 20, (2, 6 + size)),)

    return {
        "decoder": (model, tokens),
        "rotary": (lambda: model(rotary_pos_emb=True, use_rmsnorm=True), tokens),
        "alibi": (lambda: model(alibi_pos_bias=True, ff_glu=True), tokens),
    }


def denoising_diffusion_pytorch():
    from denoising_diffusion_pytorch import GaussianDiffusion, Unet

    def diffusion():
        net = Unet(dim=8, dim_mults=(1, 2), flash_attn=False)
        return GaussianDiffusion(net, image_size=8, timesteps=6, sampling_timesteps=3)

    def sampler():
        model = diffusion()
        return lambda x: model.sample(batch_size=x.size(0)) + x

    return {
        "loss": (diffusion, lambda size: (torch.rand(2 + size, 3, 8, 8),)),
        "sampler": (sampler, lambda size: (torch.rand(1 + size, 3, 8, 8),)),
    }


LIBRARIES = (
    einops,
    torchmetrics,
    torch_geometric,
    diffusers,
    gpytorch,
    tensordict,
    peft,
    torchdiffeq,
    neuralop,
    vit_pytorch,
    x_transformers,
    denoising_diffusion_pytorch,
)
