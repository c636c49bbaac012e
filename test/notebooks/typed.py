"""Everything that `import potluck` offers has a docstring, and its arguments and results have types."""

import inspect
import sys
import typing

import potluck

wrong = []


def check(name, function):
    if not inspect.getdoc(function):
        wrong.append(f"{name}: no docstring")
    try:
        typing.get_type_hints(function)
    except Exception as error:
        wrong.append(f"{name}: {error}")
    signature = inspect.signature(function)
    wrong.extend(f"{name}: {p.name} has no type" for p in signature.parameters.values() if p.name not in ("self", "cls") and p.annotation is p.empty)
    if signature.return_annotation is signature.empty and not name.endswith(".__init__"):
        wrong.append(f"{name}: its result has no type")


names = [name for name in potluck.__all__ if name != "lib"]
for name in names:
    value = getattr(potluck, name)
    if inspect.isfunction(value):
        check(name, value)
        continue
    if not inspect.getdoc(value):
        wrong.append(f"{name}: no docstring")
    if issubclass(value, (tuple, Exception)):
        continue  # an Event's and a Status's fields are in their docstrings
    for member, what in vars(value).items():
        what = what.__func__ if isinstance(what, (classmethod, staticmethod)) else what.fget if isinstance(what, property) else what
        if inspect.isfunction(what) and not member.startswith("_"):
            check(f"{name}.{member}", what)
print("\n".join(wrong))
sys.exit(bool(wrong) or len(names) < 20)
