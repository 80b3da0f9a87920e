"""Models of generators: suspended frames, made in the traced code or outside.

Entry: `generator.GeneratorVariable`. Tests: `tests/variables/`.
"""
