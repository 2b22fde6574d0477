"""The rules of ``x-kubernetes-validations`` are enforced, with kube-apiserver's messages."""

from __future__ import annotations

from typing import Any

import pytest

from devcluster_tests.client import Client, ClientResponse
from kubestow_devcluster.apiserver.resources.validation_rules import TIME_LIMIT, ValidationRules

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TRAINS = "/apis/rail.example.com/v1/namespaces/default/trains"
INTEGER, STRING = {"type": "integer"}, {"type": "string"}


def rule(text: str, message: str = "", **more: Any) -> dict[str, Any]:
    return {"rule": text, **({"message": message} if message else {}), **more}


def ruled(schema: dict[str, Any], *rules: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "x-kubernetes-validations": list(rules)}


def spec_of(*rules: dict[str, Any], **properties: Any) -> dict[str, Any]:
    fields = {"cars": INTEGER, "min": INTEGER, "line": STRING, "load": {"type": "number"}, **properties}
    return ruled({"type": "object", "properties": fields}, *rules)


async def define(client: Client, spec: dict[str, Any], *root_rules: dict[str, Any], **more: Any) -> ClientResponse:
    status = {"type": "object", "properties": {"cars": INTEGER}, **more.pop("status", {})}
    schema = ruled({"type": "object", "properties": {"spec": spec, "status": status}}, *root_rules)
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    version["subresources"] = {"status": {}}
    names = {"plural": "trains", "kind": "Train"}
    body = {"group": "rail.example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    return await client.post(DEFINITIONS, {"metadata": {"name": "trains.rail.example.com"}, "spec": body})


def train(name: str = "t", **spec: Any) -> dict[str, Any]:
    head = {"apiVersion": "rail.example.com/v1", "kind": "Train"}
    return {**head, "metadata": {"name": name}, "spec": spec}


def causes(response: ClientResponse) -> list[tuple[str, str]]:
    assert response.status == 422, response.content
    return [(cause["field"], cause["message"]) for cause in response.json["details"]["causes"]]


@pytest.mark.parametrize(
    ("one", "spec", "field", "message"),
    [
        (rule("self.cars >= self.min", "too short"), {"cars": 1, "min": 2}, "spec", "Invalid value: too short"),
        (
            rule("self.cars >= self.min"),
            {"cars": 1, "min": 2},
            "spec",
            "Invalid value: failed rule: self.cars >= self.min",
        ),
        (
            rule("self.cars >= 3", "no", messageExpression="'has ' + string(self.cars) + ' cars'"),
            {"cars": 1},
            "spec",
            "Invalid value: has 1 cars",
        ),
        (rule("self.cars >= 3", "no", messageExpression="self.line"), {"cars": 1}, "spec", "Invalid value: no"),
        (
            rule("self.cars >= 3", "few", fieldPath=".cars", reason="FieldValueForbidden"),
            {"cars": 1},
            "spec.cars",
            "Forbidden: few",
        ),
        (rule("has(self.line)", "named", reason="FieldValueRequired"), {}, "spec", "Required value: named"),
        (
            rule("self.cars >= 3"),
            {},
            "spec",
            'Invalid value: "object": no such key: cars evaluating rule: self.cars >= 3',
        ),
        (rule("self.load / 2.0 > 1.0", "light"), {"load": 2}, "spec", "Invalid value: light"),
        (rule("self.line.matches('^[a-z]+$')", "case"), {"line": "A"}, "spec", "Invalid value: case"),
    ],
)
async def test_an_object_that_breaks_a_rule_is_rejected(
    client: Client, one: dict[str, Any], spec: dict[str, Any], field: str, message: str
) -> None:
    assert "Warning" not in (await define(client, spec_of(one))).headers
    assert causes(await client.post(TRAINS, train(**spec))) == [(field, message)]


async def test_an_object_that_keeps_all_rules_is_stored(client: Client) -> None:
    await define(client, spec_of(rule("self.cars >= self.min"), rule("self.?line.orValue('x').size() < 5")))
    assert (await client.post(TRAINS, train(cars=3, min=2))).status == 201


async def test_rules_see_the_fields_of_the_schema_by_escaped_names(client: Client) -> None:
    fields = {"max-cars": INTEGER, "in": INTEGER, "a__b": INTEGER, "x/y.z": INTEGER}
    text = "self.max__dash__cars + self.__in__ + self.a__underscores__b + self.x__slash__y__dot__z == 10"
    await define(client, spec_of(rule(text, "sum"), **fields))
    body: dict[str, Any] = {"max-cars": 1, "in": 2, "a__b": 3, "x/y.z": 4}
    assert (await client.post(TRAINS, train(**body))).status == 201
    assert causes(await client.post(TRAINS, train("u", **{**body, "in": 3}))) == [("spec", "Invalid value: sum")]


async def test_rules_of_items_values_and_the_whole_object_name_their_place(client: Client) -> None:
    small = ruled(INTEGER, rule("self < 10", "large"))
    lists = {"sizes": {"type": "array", "items": small}, "by": {"type": "object", "additionalProperties": small}}
    both = {"type": "object", "allOf": [ruled({}, rule("self.cars != 7", "seven"))]}
    spec = {**spec_of(**lists), **both}
    await define(client, spec, rule("self.metadata.name != 'bad' && self.kind == 'Train'", "name"))
    rejected = await client.post(TRAINS, train("bad", cars=7, sizes=[1, 20], by={"a": 30}))
    assert causes(rejected) == [
        ("<nil>", "Invalid value: name"),
        ("spec", "Invalid value: seven"),
        ("spec.sizes[1]", "Invalid value: 20: large"),
        ("spec.by[a]", "Invalid value: 30: large"),
    ]


async def test_transition_rules_compare_with_the_old_value(client: Client) -> None:
    line = ruled(STRING, rule("self == oldSelf", "immutable"))
    cars = {
        "type": "array",
        "items": {
            "type": "object",
            "required": ["id"],
            "properties": {"id": STRING, "seats": ruled(INTEGER, rule("self >= oldSelf", "shrinks"))},
        },
    }
    cars |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"]}
    await define(client, spec_of(line=line, list=cars))
    created = await client.post(TRAINS, train(line="a", list=[{"id": "1", "seats": 4}]))
    assert created.status == 201
    rejected = await client.patch(f"{TRAINS}/t", {"spec": {"line": "b"}})
    assert causes(rejected) == [("spec.line", 'Invalid value: "b": immutable')]
    moved = {"spec": {"list": [{"id": "0", "seats": 1}, {"id": "1", "seats": 3}]}}
    assert causes(await client.patch(f"{TRAINS}/t", moved)) == [("spec.list[1].seats", "Invalid value: 3: shrinks")]
    grown = {"spec": {"list": [{"id": "0", "seats": 1}, {"id": "1", "seats": 5}]}}
    assert (await client.patch(f"{TRAINS}/t", grown)).status == 200


async def test_a_rule_with_an_optional_old_self_applies_to_creation(client: Client) -> None:
    text = "oldSelf.hasValue() ? self >= oldSelf.value() : self == 1 // grows"
    await define(client, spec_of(cars=ruled(INTEGER, rule(text, "grows", optionalOldSelf=True))))
    assert causes(await client.post(TRAINS, train(cars=2))) == [("spec.cars", "Invalid value: 2: grows")]
    assert (await client.post(TRAINS, train(cars=1))).status == 201
    assert (await client.patch(f"{TRAINS}/t", {"spec": {"cars": 3}})).status == 200
    assert causes(await client.patch(f"{TRAINS}/t", {"spec": {"cars": 2}})) == [
        ("spec.cars", "Invalid value: 2: grows")
    ]


async def test_an_unchanged_value_that_breaks_a_new_rule_can_stay(client: Client) -> None:
    await define(client, spec_of())
    await client.post(TRAINS, train(cars=1))
    path = f"{DEFINITIONS}/trains.rail.example.com"
    versions = (await client.get(path)).json["spec"]["versions"]
    schema = versions[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    schema["cars"] = ruled(INTEGER, rule("self > 2", "short"))
    assert (await client.patch(path, {"spec": {"versions": versions}})).status == 200
    assert (await client.patch(f"{TRAINS}/t", {"spec": {"min": 1}})).status == 200
    assert causes(await client.patch(f"{TRAINS}/t", {"spec": {"cars": 2}})) == [
        ("spec.cars", "Invalid value: 2: short")
    ]


async def test_rules_and_schema_apply_to_the_status(client: Client) -> None:
    await define(client, spec_of(), status={"x-kubernetes-validations": [rule("self.cars > 0", "none")]})
    await client.post(TRAINS, train())
    rejected = await client.patch(f"{TRAINS}/t/status", {"status": {"cars": 0}})
    assert causes(rejected) == [("status", "Invalid value: none")]
    rejected = await client.patch(f"{TRAINS}/t/status", {"status": {"cars": "x"}})
    assert [field for field, _ in causes(rejected)] == ["status.cars", "<nil>"]
    assert (await client.patch(f"{TRAINS}/t/status", {"status": {"cars": 1}})).status == 200


async def test_rules_are_not_evaluated_on_an_object_with_wrong_types(client: Client) -> None:
    await define(client, spec_of(rule("self.cars > 2")))
    (_, wrong_type), (field, message) = causes(await client.post(TRAINS, train(cars="x")))
    assert "must be of type integer" in wrong_type
    assert (field, message.startswith("Invalid value: null: some validation rules were not checked")) == ("<nil>", True)


@pytest.mark.parametrize(
    ("one", "field", "problem"),
    [
        (rule("self.cars >"), "rule", "Syntax error"),
        (rule("self.wheels > 1"), "rule", "<input>:1:5: undefined field 'wheels'\n | self.wheels > 1\n | ....^"),
        (rule("self.line > 1"), "rule", "found no matching overload for '_>_' applied to '(string, int)'"),
        (rule("wheels > 1"), "rule", "undeclared reference to 'wheels' (in container '')"),
        (rule("true", messageExpression="self.wheels"), "messageExpression", "messageExpression compilation failed"),
        (rule(" "), "rule", "rule is not specified"),
        (rule("1"), "rule", "cel expression must evaluate to a bool"),
        (rule("true", messageExpression="1"), "messageExpression", "messageExpression must evaluate to a string"),
        (rule("true", reason="Because"), "reason", 'Unsupported value: "Because"'),
        (rule("true", fieldPath=".wheels"), "fieldPath", "must be a valid path"),
        (rule("true", fieldPath="cars"), "fieldPath", "must be a valid path"),
        (rule("true", optionalOldSelf=True), "optionalOldSelf", "may not be set if oldSelf is not used in rule"),
        (rule("true\n"), "", ""),
        (rule("true &&\ntrue"), "message", "message must be specified if rule contains line breaks"),
        (rule("true", "a\nb"), "message", "must not contain line breaks"),
    ],
)
async def test_a_definition_with_a_mistake_in_a_rule_is_rejected(
    client: Client, one: dict[str, Any], field: str, problem: str
) -> None:
    response = await define(client, spec_of(one))
    if not field:
        assert response.status == 201
        return
    path = "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0]"
    assert [(place, problem in text) for place, text in causes(response)] == [(f"{path}.{field}", True)]


async def test_old_values_of_list_items_without_keys_cannot_be_used(client: Client) -> None:
    items = {"type": "array", "items": ruled(INTEGER, rule("self >= oldSelf"))}
    ((_, message),) = causes(await define(client, spec_of(sizes=items)))
    assert "oldSelf cannot be used on the uncorrelatable portion of the schema" in message


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("self.sizes.isSorted()", "undeclared reference to 'isSorted'"),
        ("self.departs < timestamp('2030-01-01T00:00:00Z')", "departs is a time or duration"),
        (" + ".join(["self.cars"] * 26) + " > 0", "more than 24 additions"),
    ],
)
async def test_a_rule_that_the_library_cannot_evaluate_gets_a_warning(client: Client, text: str, problem: str) -> None:
    times = {"departs": {"type": "string", "format": "date-time"}, "sizes": {"type": "array", "items": INTEGER}}
    created = await define(client, spec_of(rule(text), rule("self.cars > 0", "none"), **times))
    assert created.status == 201
    warning = created.headers["Warning"]
    assert "properties[spec].x-kubernetes-validations[0].rule: kubestow does not enforce this rule" in warning
    assert problem in warning
    body = {"departs": "2040-01-01T00:00:00Z", "sizes": [2, 1]}
    assert (await client.post(TRAINS, train("a", cars=1, **body))).status == 201
    assert causes(await client.post(TRAINS, train("b", cars=0, **body))) == [("spec", "Invalid value: none")]


async def test_a_rule_that_takes_too_long_rejects_the_object(client: Client) -> None:
    numbers = {"type": "array", "items": INTEGER}
    await define(client, spec_of(rule("self.n.all(x, self.n.all(y, x + y >= 0))"), n=numbers))
    assert (await client.post(TRAINS, train(n=list(range(50))))).status == 201
    rejected = causes(await client.post(TRAINS, train("u", n=list(range(1000)))))
    assert [message.partition(": ")[2] for _, message in rejected] == [
        '"object": validation failed due to running out of cost budget, no further validation rules will be run'
    ]


@pytest.mark.parametrize(
    "text",
    [
        "self.replace('', self).size() > 0",
        "cel.bind(a, self + self, cel.bind(b, a + a, cel.bind(c, b + b, b + c + c + c + c + c))).size() > 0",
    ],
)
def test_a_rule_that_could_build_very_long_strings_is_not_evaluated(text: str) -> None:
    rules = ValidationRules(ruled(STRING, rule(text)))
    assert rules.validate("x" * 50, None, []) == []
    (error,) = rules.validate("x" * 2_000_000, None, [])
    assert "running out of cost budget" in error.message


def test_a_string_that_is_not_of_its_format_fails_a_rule_about_bytes() -> None:
    rules = ValidationRules(ruled({"type": "string", "format": "byte"}, rule("self == b'hi'", "greet")))
    assert rules.validate("aGk=", None, []) == []
    assert [error.message for error in rules.validate("!", None, [])] == ['Invalid value: "!": greet']


def test_the_rules_of_one_object_stop_at_the_time_limit() -> None:
    times = iter((0.0, TIME_LIMIT / 2, TIME_LIMIT * 2))
    items = {"type": "array", "items": ruled(INTEGER, rule("self > 0"))}
    errors = ValidationRules(items).validate([1, 2, 3], None, [], cpu_time=lambda: next(times))
    assert [error.field for error in errors] == ["<nil>"]
    assert "running out of cost budget" in errors[0].message
