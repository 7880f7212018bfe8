"""What schemathesis.toml cannot say; loaded by schemathesis itself."""

from typing import Any

import schemathesis


@schemathesis.hook
def before_call(_context: object, case: schemathesis.Case, _kwargs: dict[str, Any]) -> None:
    """Write whole numbers without a fraction.

    JSON Schema takes 12.0 for an integer and has no words to refuse it. The product refuses it: a float above 2^53 is
    another id than the one that was meant. tests/seize/test_requests.py holds that.
    """
    case.body = whole(case.body)


def whole(value: Any) -> Any:
    """The same JSON with 12 for 12.0."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: whole(member) for name, member in value.items()}
    return [whole(member) for member in value] if isinstance(value, list) else value


@schemathesis.hook
def before_load_schema(_context: object, document: dict[str, Any]) -> None:
    """Take the document for complete: an answer with a member that it does not describe is a failure here.

    For integrators it says the contrary, that more may follow: that is what lets the product grow.
    """
    for name, schema in document["components"]["schemas"].items():
        if "properties" in schema and name != "Problem":
            schema["additionalProperties"] = False
    for path in document["paths"].values():
        for operation in path.values():
            for response in operation["responses"].values():
                for content in response.get("content", {}).values():
                    if "allOf" in content["schema"]:  # a problem and what this status adds to it
                        content["schema"]["unevaluatedProperties"] = False
