"""YAML as specs and sweeps are written in it: every field once, and nothing read as another number than it looks."""

import re
from typing import Any, ClassVar

import yaml

DEPTH_LIMIT = 32
VALUE_LIMIT = 30_000
"""Values that a document may hold, at all depths together; a sweep of 2,000 written-out combinations needs so many."""


class Unreadable(yaml.YAMLError):
    """YAML, but none that is read here."""


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Plain values without dates, base-60 and octal numbers: 22:00, 2027-01-31 and 010 stay texts, 1e-3 is a number."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {
        first: [
            (tag, pattern) for tag, pattern in entries if tag.rsplit(":", 1)[-1] not in {"timestamp", "int", "float"}
        ]
        for first, entries in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:
        """A field that is given twice is refused; YAML would take the last one without a word."""
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"the field {key.value!r} is given twice", problem_mark=key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?(?:0|[1-9][0-9]*)$"), list("-+0123456789"))
Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?$"),
    list("-+.0123456789"),
)


_PLAINLY = {
    "did not find expected ',' or '}'": "a comma or the closing } is missing",
    "did not find expected ',' or ']'": "a comma or the closing ] is missing",
    "did not find expected key": "no field `name: value` was found here; compare the indentation with the line above",
    "did not find expected '-' indicator": "every entry of this list must begin with -",
    "could not find expected ':'": "a field needs a colon and a space after its name",
    "mapping values are not allowed in this context": "a colon is not expected here; put the text into quotes, "
    "or compare the indentation with the line above",
    "found unexpected end of stream": "the text ends before a quote is closed",
    "found character that cannot start any token": "a value cannot begin like this; put it into quotes, "
    "and indent with spaces, not with tabs",
    "found a tab character that violates indentation": "indent with spaces, not with tabs",
}
"""What the parser finds wrong, for people."""


def what_is_wrong(error: Exception) -> tuple[int | None, str]:
    """The line of a text that could not be read, from 1, and the reason."""
    mark = getattr(error, "problem_mark", None)
    reason = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    reason = str(reason).partition("\n")[0]
    opened = re.search(r"flow|quoted", getattr(error, "context", None) or "")
    began = f"; it was opened in line {error.context_mark.line + 1}" if opened else ""  # type: ignore[attr-defined]
    return None if mark is None else mark.line + 1, f"{_PLAINLY.get(reason, reason)}{began}"


def read(text: str) -> Any:
    """The values of a text; raises yaml.YAMLError. Nothing is built before the text is known to be small and plain."""
    values, shares = 0.0, [1.0]  # the share of each open collection: a name and its value are one value together
    try:
        for event in yaml.parse(text, Loader=Loader):
            if isinstance(event, yaml.AliasEvent):
                # a small text could grow without limit
                raise Unreadable(f"YAML aliases (*{event.anchor}) are not read; write the value out")
            if isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent):
                values += shares[-1]
                if event.tag is not None:
                    raise Unreadable(f"YAML tags ({_short(event.tag)}) are not read; write the value without it")
            if isinstance(event, yaml.CollectionStartEvent):
                shares.append(0.5 if isinstance(event, yaml.MappingStartEvent) else 1.0)
            elif isinstance(event, yaml.CollectionEndEvent):
                shares.pop()
            if len(shares) - 1 > DEPTH_LIMIT:
                raise Unreadable(f"YAML may be nested {DEPTH_LIMIT} levels deep at most")
            if values > VALUE_LIMIT:
                raise Unreadable(f"YAML may hold {VALUE_LIMIT} values at most")
        return yaml.load(text, Loader=Loader)  # noqa: S506 a safe loader with fewer tags
    except (ValueError, RecursionError) as error:  # an integer of thousands of digits
        raise Unreadable(str(error)) from None


def _short(tag: str) -> str:
    return tag.replace("tag:yaml.org,2002:", "!!")[:80]
