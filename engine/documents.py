"""YAML as specs and sweeps are written in it: every field once, and nothing read as another number than it looks."""

import re
from typing import Any, ClassVar

import yaml


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Plain values without dates, base-60 and octal numbers: 22:00, 2027-01-31 and 010 stay texts, 1e-3 is a number."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {
        first: [
            (tag, pattern) for tag, pattern in entries if tag.rsplit(":", 1)[-1] not in {"timestamp", "int", "float"}
        ]
        for first, entries in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:
        """A field that stands twice is refused; YAML would take the last one without a word."""
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"the field {key.value!r} stands there twice", problem_mark=key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?(?:0|[1-9][0-9]*)$"), list("-+0123456789"))
Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?$"),
    list("-+.0123456789"),
)


def read(text: str) -> Any:
    """The values of a text; raises yaml.YAMLError."""
    return yaml.load(text, Loader=Loader)  # noqa: S506 a safe loader with fewer tags
