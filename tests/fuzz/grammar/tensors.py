# ruff: noqa: E501  (one rule, one line)
"""Expressions and statements with tensors: views, changes in place, modules, gradient mode, random numbers. Most tensors have shape (3,)."""

from .scope import Chooser

METHODS = (
    "clone()", "abs()", "view(3)", "neg()", "detach()", "flip(0)", "roll(1)", "cumsum(0)", "softmax(0)", "clamp(-1, 1)", "reshape(-1)",
    "contiguous()", "sort().values", "to(torch.float64).float()", "int().float()", "unsqueeze(0).squeeze(0)", "data", "T", "double()",
    "view(3, 1).sum(1)", "unsqueeze(1).expand(3, 2).sum(1)", "diag().sum(0)", "square()", "exp().log()", "max(0)[0].expand(3)",
    "unbind()[1].expand(3)", "split(2)[0].sum().expand(3)", "chunk(3)[2].repeat(3)", "half().float()", "masked_fill(MASK, 0.5)",
    "index_select(0, torch.tensor([2, 1, 0]))", "new_zeros(3)", "bool().float()", "sum(0, keepdim=True).repeat(3)",
)  # fmt: skip
IN_PLACE = (
    "add_(1)", "mul_(2)", "sub_(0.5)", "zero_()", "neg_()", "fill_(2)", "clamp_(0, 1)", "abs_()", "sqrt_()", "masked_fill_(MASK, 1)",
    "data.add_(1)", "detach().mul_(2)", "view(3, 1).add_(1)", "sigmoid_()", "unsqueeze(0).add_(1)", "index_fill_(0, torch.tensor([1]), 4)",
)  # fmt: skip
NUMBERS = (
    "shape[0]", "numel()", "dim()", "size(0)", "size(-1)", "stride(0)", "sum().item()", "tolist()[0]", "__len__()", "argmax().item()",
    "storage_offset()", "element_size()", "max().int().item()", "ndim",
)  # fmt: skip
TRUTHS = (
    "is_contiguous()", "requires_grad", "any()", "all().item()", "dtype is torch.float32", "is_floating_point()", "sum() > 1",
    "device.type == 'cpu'", "is_leaf", "_is_view()", "equal(torch.zeros(3))", "shape == (3,)", "isnan().any()", "grad is None",
)  # fmt: skip
# Whether these raise hangs on the data ({t}: a tensor, {n}: an int that may be out of range) or shows only when the operator runs.
FAILING = (
    "{t}.index_select(0, torch.tensor([0, 1, {n}]))", "{t}.gather(0, torch.tensor([{n}, 1, 2]))", "{t}[torch.tensor([{n}, 0, 1])]",
    "torch.take({t}, torch.tensor([{n}, 0, 1]))", "torch.nn.functional.embedding(torch.tensor([{n}, 0, 1]), {t}.reshape(-1, 1))[:, 0]",
    "torch.linalg.inv({t} * torch.eye(3) * {n})[0]", "torch.linalg.cholesky(torch.eye(3) * {n})[1]", "torch.linalg.solve(torch.eye(3) * {n}, {t})",
    "({t}.int() // torch.tensor([1, {n}, 2])).float()", "({t}.int() % torch.tensor([1, {n}, 2])).float()",
    "torch.zeros(3).scatter(0, torch.tensor([{n}, 1, 0]), {t})", "torch.zeros(3).index_add_(0, torch.tensor([0, {n}, 1]), {t})",
    "torch.zeros(1).expand(3).add_({t})", "torch.nn.functional.cross_entropy({t}.view(1, 3), torch.tensor([{n}])).expand(3)",
    "{t}.index_copy(0, torch.tensor([{n}]), torch.ones(1))", "torch.nn.functional.one_hot(torch.tensor([{n}, 0, 1]), 3).float().sum(0)",
    "torch.zeros(3).index_put_((torch.tensor([{n}]),), torch.ones(1))", "torch.bincount(torch.tensor([{n}, 1, 2]), minlength=3)[:3].float()",
)  # fmt: skip


class Tensors(Chooser):
    """What a program does with tensors."""

    def failing(self, tensor, number):
        """An operator that raises on some data."""
        return self.pick(FAILING).format(t=tensor, n=number)

    def e_tensor(self, s, depth):
        if depth <= 0 or not s.names["tensor"]:
            return self.variable(s, "tensor", "torch.ones(3)")
        d = depth - 1
        e = lambda kind="tensor": getattr(self, "e_" + kind)(s, d)  # noqa: E731
        v = lambda: self.variable(s, "tensor", "torch.ones(3)")  # noqa: E731
        number = lambda: self.pick([lambda: e("int"), e, lambda: e("float"), lambda: "2"])()  # noqa: E731
        return self.pick([
            v,
            lambda: f"({e()} {self.pick(['+', '-', '*', '/', '//', '%', '**'])} {number()})",
            lambda: f"({e('int')} {self.pick(['+', '-', '*', '/'])} {e()})",
            lambda: f"{e()}.{self.pick(METHODS)}",
            lambda: f"{e()}.{self.pick(METHODS)}",
            lambda: f"{v()}.{self.pick(IN_PLACE)}",
            lambda: f"torch.{self.pick(['relu', 'sin', 'sigmoid', 'zeros_like', 'clone'])}({e()})",
            lambda: f"torch.stack([{e()}, {e()}]).sum(0)",
            lambda: f"torch.cat([{e()}, {e()}])[1:4]",
            lambda: f"torch.{self.pick(['maximum', 'minimum', 'add', 'mul', 'atan2'])}({e()}, {e()})",
            lambda: f"torch.add({e()}, {e()}, alpha={e('int')})",
            lambda: f"torch.add({e()}, 1, out={v()})",
            lambda: f"torch.outer({e()}, {e()}){self.pick(['[0]', '.diagonal()', '.sum(1)', '[:, 1]', '.T[2]'])}",
            lambda: f"stop({self.tag()}, {e()})",
            lambda: f"torch.where({e()} > 0, {e()}, {e()})",
            lambda: f"({e()} if {self.expr(s, 'bool', d)} else {e()})",
            lambda: f"{e()}[{self.pick(['[2, 0, 1]', ':', '...', 'None, :', '-3:'])}]",
            lambda: f"torch.full((3,), float({e('int')}))",
            lambda: f"torch.arange({self.pick(['3.', '0., 6, 2'])})",
            lambda: f"torch.tensor([float({e('int')}), 1., 2.])",
            lambda: f"torch.{self.pick(['rand(3)', 'randn(3)', 'rand_like(' + e() + ')'])}",
            lambda: f"MODULE({e()})",
            lambda: f"MODULE.{self.pick(['weight', 'seen', 'weight.data', 'weight.detach()'])}",
            lambda: f"({e()} @ {e()}) * {e()}",
            lambda: f"[{e()}, {e()}][{e('int')} % 2]",
            lambda: f"{{0: {e()}, 1: {e()}}}.get({e('int')}, {e()})",
            lambda: f"(lambda q: {self.pick(['q', 'q * 2', 'q.add_(1)', 'stop(' + self.tag() + ', q)'])})({e()})",
            lambda: f"functools.reduce(torch.add, [{e()}, {e()}])",
            lambda: f"sum([{e()}, {e()}])",
            lambda: f"torch.stack([x * {e('int')} for x in {e()}])",
            lambda: f"max({e()}, {e()}, key=lambda q: float(q.sum()))",
            lambda: self.failing(e(), self.pick([lambda: "2", lambda: e("int"), lambda: "7"])()),
        ])()  # fmt: skip

    def tensor_int(self, s, d):
        return f"int({self.e_tensor(s, d)}.{self.pick(NUMBERS)})"

    def tensor_bool(self, s, d):
        t = self.e_tensor(s, d)
        other = self.e_tensor(s, 0)
        return self.pick(
            [f"{t}.{self.pick(TRUTHS)}", f"bool({t}.{self.pick(TRUTHS)})", f"{t} is {other}", f"{t}.sum() > {other}[0]"]
        )

    def printed_tensor(self, s):
        """`print` of a tensor or of numbers of one."""
        t = self.e_tensor(s, 1)
        what = self.pick([
            f"{t}.detach()", t, f"{t}.sum().item()", f"f'{{{t}.sum().item():.2f}}'", f"f'{{{t}.mean()}}'", f"str({t}.detach())",
            f"[{t}.sum().item(), {self.e_tensor(s, 0)}.max().item()]", f"{t}.sum().item() + {self.choose(3)}, {t}.shape",
        ])  # fmt: skip
        return f"print({self.expr(s, 'int', 0)}, {what}, file=OUT)"

    def branch(self, s, t):
        """A branch on data, or a loop that data end, in one of the ways that people write them."""
        condition = f"{t}.{self.pick(['sum() > 0', 'max() < 2', 'any()', 'mean() >= 0.5', '[0] > 1'])}"
        one, other = self.e_tensor(s, 1), self.e_tensor(s, 1)
        name = self.fresh("t")
        self.pick([self.chosen, self.chosen, self.writing_sides, self.left_early, self.until_data_end])(
            s, t, name, condition, one, other
        )
        s.add("tensor", name)

    def chosen(self, s, t, name, condition, one, other):
        """Sides that give values to names."""
        form = self.choose(5)
        if form == 0:
            self.put(f"{name} = {one} if {condition} else {other}")
        elif form == 1:
            self.put(f"{name}, n = {t}, 1")
            self.put(f"if {condition}: {name}, n = {one}, 2")
            self.put(f"{name} = {name} * n")
        elif form == 2:
            self.put(f"if {condition}: {name} = {one}")
            self.put(f"else: {name} = {other}")
        elif form == 3:
            self.put(f"if {condition}: pair = [{one}, {other}]")
            self.put(f"else: pair = [{other}, {t}]")
            self.put(f"{name} = pair[0] * pair[1]")
        else:
            self.put(f"{name} = {t}")
            self.put(f"for _ in range({self.choose(3)}):")
            self.put(f"    {name} = {name} * 2 if {name}.sum() < 3 and {condition} else {name} - 1")

    def writing_sides(self, s, t, name, condition, one, other):
        """Sides that change tensors and objects."""
        self.put(f"{name} = {self.pick([t, t + '.clone()', t + ' * 1', t + '.view(3)'])}")
        change = lambda value: self.pick([  # noqa: E731
            f"{name}.{self.pick(IN_PLACE)}",
            f"{name}[{self.pick(['0', '1:', ':'])}] {self.pick(['=', '+='])} 2",
            f"{name} *= 2",
            f"GL.append({value})",
            f"l0.append({self.choose(3)})",
            f"GD[{self.choose(3)}] = {value}",
            f"MODULE.seen = {value}",
            f"{t}.mark = {self.choose(3)}",
            f"{name} = {value}",
            "del l0[:1]",
            "pass",
        ])  # fmt: skip
        for head in (f"if {condition}:", "else:")[: 1 + self.choose(2)]:
            self.put(head)
            for value in (one, other)[: 1 + self.choose(2)]:
                self.put(f"    {change(value)}")

    def left_early(self, s, t, name, condition, one, other):
        """A function that returns from a side."""
        function = self.fresh("f")
        inside = condition.replace(t, "q", 1)
        self.put(f"def {function}(q):")
        self.put(f"    if {inside}: return {self.pick(['q * 2', 'q', one, '(q, 1)[0]'])}")
        self.put(f"    {self.pick(['q = q + 1', 'pass', 'l0.append(2)'])}")
        self.put(f"    return {self.pick(['q - 1', other])}")
        self.put(f"{name} = {function}({t})")

    def until_data_end(self, s, t, name, condition, one, other):
        """A loop whose turns data count."""
        self.put(f"{name}, n = {t}.detach().abs(), 0")
        turn = self.pick(
            [
                f"{name} = {name} + 1",
                f"{name} = {name} + 1; n += 1",
                f"{name}, n = {name} + 0.5, n + 2",
                f"{name}.add_(1)",
            ]
        )
        end = f"{name}.sum() >= 9"
        form = self.choose(5)
        if form == 0:
            self.put(f"while {name}.sum() < 9: {turn}")
        elif form == 1:
            tests = [f"{name}.sum() < 9", self.pick(["n < 6", f"{name}.max() < 4", f"({name} < 5).all()"])]
            self.put(f"while {' and '.join(tests[:: self.pick([1, -1])])}: {turn}; n += 1")
        elif form == 2:
            self.put(f"for n in {self.pick(['range(5)', 'range(7, 0, -2)', 'range(1)', 'range(12)'])}:")
            self.put(f"    {turn.partition('; ')[0].replace(', n', '').replace(', n + 2', '')}")
            self.put(f"    if {end}: break")
            if self.choose(2):
                self.put(f"    {self.pick([f'{name} = {name} + 0.25', turn.partition('; ')[0], 'pass'])}")
        elif form == 3:
            self.put("while True:")
            self.put(f"    {turn}; n += 1")
            self.put(f"    if n > 4 or {end}: break")
        else:
            self.put("while True:")
            self.put(f"    {turn}")
            self.put(f"    if {name}.sum() >= 9 or {name}.isnan().any(): break")
        self.put(f"{name} = {name} + n")

    def s_tensor(self, s):
        t = self.variable(s, "tensor", "torch.ones(3)")
        e = lambda kind="int": getattr(self, "e_" + kind)(s, 1)  # noqa: E731
        own = [n for n in s.names["tensor"] if n in s.own]
        form = self.choose(18)
        if form >= 16:
            self.branch(s, t)
        elif form < 3:
            name = self.fresh("t")
            self.put(f"{name} = {self.e_tensor(s, 2)}")
            s.add("tensor", name)
        elif form == 3:
            name = self.fresh("t")
            self.put(
                f"{name} = {t}{self.pick(['[1:]', '.view(3)', '[:]', '.detach()', '[::2]', '.view(1, 3)[0]', '.data'])}"
            )
            s.add("tensor", name)
        elif form == 4:
            self.put(f"{t}.{self.pick(['add_', 'mul_', 'sub_', 'copy_', 'div_'])}({e('tensor')})")
        elif form == 5:
            self.put(
                f"{t}[{self.pick(['0', '-1', '1:', 'MASK', '...', e()])}] = {self.pick([e, lambda: e('float'), lambda: '0'])()}"
            )
        elif form == 6:
            self.put(
                f"{t}[{self.pick([':', '1:', '[0, 2]'])}] {self.pick(['=', '+=', '*='])} {self.pick(['2', t + '[0].item()', e('float')])}"
            )
        elif form == 7 and own:
            self.put(f"{self.pick(own)} {self.pick(['+=', '*=', '-=', '/=', '**='])} {self.pick([e('tensor'), '2'])}")
        elif form == 8:
            self.put(f"{self.pick(['GL', 'l0'])}.append({e('tensor')})")
        elif form == 9:
            self.put(f"{t}.{self.pick(IN_PLACE)}")
        elif form == 10:
            self.put(
                f"with torch.{self.pick(['no_grad()', 'enable_grad()', 'set_grad_enabled(' + e('bool') + ')'])}: {t} = MODULE({t})"
            )
        elif form == 11:
            self.put(
                self.pick([
                    f"a, b, *l0 = {t}.tolist()",
                    f"{t}.mark = {e()}",
                    f"stop({self.tag()}, getattr({t}, 'mark', None))",
                    f"MODULE.seen = {t}",
                    f"MODULE.extra = {e('tensor')}",
                    f"MODULE.weight.data.mul_({e()})",
                    f"stop({self.tag()}, [float(x) for x in {t}])",
                    f"torch.manual_seed({e()})",
                    "torch.set_grad_enabled(True)",
                    f"GD[{e()}] = {t}",
                    f"stop({self.tag()}, ({t}.shape, {t}.dtype, {t}.requires_grad))",
                    f"for x in {t}: GL.append(x.item())",
                    f"{t}.grad = {e('tensor')}",
                    f"del {t}.mark",
                    f"MODULE({t}).sum().backward()",
                ])
            )  # fmt: skip
        elif form == 12:
            self.put(f"{t}[torch.tensor([{e()}])] {self.pick(['=', '='])} {self.pick(['2.', e('float')])}")
        elif form == 13:
            name = self.fresh("t")
            self.put("try:")
            self.put(f"    {name} = {self.failing(t, e())}")
            self.put(f"    {self.pick(['GL', 'l0'])}.append({name})")
            self.put("except (IndexError, RuntimeError) as error:")
            self.put(f"    {self.pick(['GL.append(str(error))', 'l0.append(1)', 'stop(' + self.tag() + ', error)'])}")
        else:
            self.put(f"stop({self.tag()}, {self.e_tensor(s, 2)})")
