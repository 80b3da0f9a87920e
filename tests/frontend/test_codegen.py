"""What code generation knows of the objects that the new code holds. Needs no torch."""

from dynamo_lite.frontend import codegen
from tests.helpers.program_texts import agrees


def test_what_the_new_code_holds_keeps_its_identity_while_the_code_is_written(monkeypatch):
    """A tracker that died would leave its id, and the local that holds its object, to another one."""
    checked = []

    def assemble(self):
        alive = {id(each) for each in self.named}
        checked.append(len(self.loaded))
        assert {*self.loaded, *self.sources, *self.replay.updated} <= alive
        return original(self)

    original = codegen.Codegen.assemble
    monkeypatch.setattr(codegen.Codegen, "assemble", assemble)
    agrees("""
    def program(l, n, o):
        found = {n + x for x in l}
        o['v'] = stop(1, found)
        return [n + 4, n + 9, found]
    def make_args(k):
        return [[4, 5, 0, 3], k, {}]
    """)
    assert max(checked) > 3
