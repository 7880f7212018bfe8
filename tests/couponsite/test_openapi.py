"""The OpenAPI document: committed as generated, complete, true to the parsers, and served from this host alone."""

import io
import json
import re
from html.parser import HTMLParser
from itertools import count
from pathlib import Path

import jsonschema
import pytest
import yaml
from django.core.management import call_command
from django.urls import get_resolver
from drf_spectacular.drainage import reset_generator_stats

from couponsite import schema
from seize.problems import CATALOGUE, CONTENT_TYPE
from seize.requests import RequestInvalid, seize_request_parse

ROOT = Path(__file__).resolve().parents[2]
COMMITTED = ROOT / "docs" / "openapi.yaml"
RENEW = ".venv/bin/python manage.py spectacular --validate --fail-on-warn --file docs/openapi.yaml"
PAGES = ("/market/docs/", "/market/docs/redoc/")


@pytest.fixture(scope="module")
def document() -> dict:
    return yaml.safe_load(COMMITTED.read_text())


def operations(document: dict):
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def narrowed(response: dict) -> dict:
    """What a problem's response adds to the component."""
    problem, own = response["content"][CONTENT_TYPE]["schema"]["allOf"]
    assert problem == {"$ref": "#/components/schemas/Problem"}
    return own["properties"]


def validator(document: dict, schema: dict) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator({**schema, "components": document["components"]})


class TestCommittedDocument:
    def test_it_is_what_the_code_generates(self):
        generated = io.StringIO()
        reset_generator_stats()
        call_command("spectacular", "--validate", "--fail-on-warn", stdout=generated)
        assert generated.getvalue().strip() == COMMITTED.read_text().strip(), f"Renew it, and look at the diff: {RENEW}"

    def test_it_has_every_route_below_market_but_its_own_and_no_other(self, document):
        own = {"/market/schema", "/market/docs/", "/market/docs/redoc/"}
        routes = {"/" + re.sub(r"<\w+:(\w+)>", r"{\1}", route) for route in routes_below(get_resolver())}
        assert {route for route in routes if route.startswith("/market")} - own == set(document["paths"])

    def test_every_code_that_an_answer_can_have_is_there_and_no_other(self, document):
        of_operations = set()
        for _name, operation in operations(document):
            for status, response in operation["responses"].items():
                if status >= "4":
                    of_operations |= set(narrowed(response)["code"]["enum"])
        # The wrong method is nobody's operation; "pending" is told of coupons, as the reason in a list.
        elsewhere = {"METHOD_NOT_ALLOWED", "COUPON_PENDING"}
        assert not of_operations & elsewhere
        assert set(CATALOGUE) - elsewhere <= of_operations <= set(CATALOGUE)
        assert document["components"]["schemas"]["Problem"]["properties"]["code"]["enum"] == list(CATALOGUE)

    def test_every_refusal_is_a_problem_with_its_status_codes_and_headers(self, document):
        checked = count()
        for name, operation in operations(document):
            assert {"400", "406", "408", "413", "500", "503"} <= operation["responses"].keys(), name
            assert ("401" in operation["responses"]) or operation["security"] == [{}], name
            assert ("415" in operation["responses"]) is ("requestBody" in operation), name
            for status, response in operation["responses"].items():
                assert response["headers"]["X-Request-ID"] == {"$ref": "#/components/headers/RequestId"}
                if status < "4":
                    continue
                next(checked)
                own = narrowed(response)
                assert own["status"]["const"] == int(status)
                assert {CATALOGUE[code][0].value for code in own["code"]["enum"]} == {int(status)}
                assert ("WWW-Authenticate" in response["headers"]) is (status == "401")
                assert status != "503" or response["headers"]["Retry-After"] == {
                    "$ref": "#/components/headers/RetryAfter"
                }
        assert next(checked) > 50

    def test_every_operation_is_named_summed_up_and_in_a_group(self, document):
        ids = [operation["operationId"] for _name, operation in operations(document)]
        assert len(ids) == len(set(ids))
        tags = {tag["name"] for tag in document["tags"]}
        for name, operation in operations(document):
            assert len(operation["tags"]) == 1, name
            assert set(operation["tags"]) <= tags, name
            assert operation["summary"], name
            assert operation["description"].endswith("."), name

    def test_every_example_is_valid_by_its_own_schema(self, document):
        examined = count()
        for name, operation in operations(document):
            for place in (operation.get("requestBody", {}), *operation["responses"].values()):
                for content in place.get("content", {}).values():
                    assert content["examples"], name
                    for example in content["examples"].values():
                        validator(document, content["schema"]).validate(example["value"])
                        next(examined)
        assert next(examined) > 60

    def test_every_link_leads_to_an_operation_with_parameters_that_it_has(self, document):
        by_id = {operation["operationId"]: operation for _name, operation in operations(document)}
        links = [
            link
            for operation in by_id.values()
            for response in operation["responses"].values()
            for link in response.get("links", {}).values()
        ]
        assert len(links) >= 9
        for link in links:
            target = by_id[link["operationId"]]
            assert link.get("parameters", {}).keys() <= {parameter["name"] for parameter in target["parameters"]}
            assert ("requestBody" in link) is ("requestBody" in target)

    def test_bodies_with_an_unknown_member_are_said_to_be_refused(self, document):
        for name, operation in operations(document):
            for content in operation.get("requestBody", {}).get("content", {}).values():
                shape = content["schema"]["$ref"].rpartition("/")[2]
                assert document["components"]["schemas"][shape]["additionalProperties"] is False, name

    @pytest.mark.parametrize(
        "body",
        [
            *({"id": value} for value in ("1", "9", "10", "12", str(2**62), str(2**63 - 1), 1, 2**63 - 1)),
            *({"id": value} for value in ("", "0", "012", "-1", "+1", "1.0", " 1", "1 ", "１", str(2**63), "9" * 19)),
            *({"id": value} for value in ("10000000000000000000", 0, -1, 2**63, 1.5, True, None, [], {})),
            *({"id": "1", "seq": value} for value in (1, 2, 1_000_000, 0, -1, 1_000_001, "1", 1.5, True, None)),
            *({"id": str(2**63 - 1 + delta)} for delta in (-9, -8, -7, -6, -1, 1, 2, 10, 200, 3000)),
            {},
            {"seq": 1},
            {"id": "1", "user_id": 7},
        ],
        ids=json.dumps,
    )
    def test_seize_request_is_valid_exactly_when_the_parser_takes_it(self, document, body):
        valid = validator(document, {"$ref": "#/components/schemas/SeizeRequest"}).is_valid(body)
        try:
            seize_request_parse(json.dumps(body).encode())
        except RequestInvalid:
            taken = False
        else:
            taken = True
        assert valid is taken


def routes_below(resolver, prefix: str = ""):
    for pattern in resolver.url_patterns:
        route = prefix + str(pattern.pattern)
        if hasattr(pattern, "url_patterns"):
            yield from routes_below(pattern, route)
        else:
            yield route


class TestServedDocument:
    def test_it_is_the_committed_one_and_made_once_whoever_asks(self, api, monkeypatch):
        schema._documents.cache_clear()
        made = []
        real = schema.Generator.get_schema
        monkeypatch.setattr(schema.Generator, "get_schema", lambda self, **given: made.append(1) or real(self, **given))
        chinese = api.get("/market/schema", HTTP_ACCEPT_LANGUAGE="zh-CN")
        assert chinese.content.decode().strip() == COMMITTED.read_text().strip()
        assert api.get("/market/schema").content == chinese.content
        assert api.get("/market/schema", HTTP_ACCEPT="application/json").status_code == 200
        assert made == [1]

    @pytest.mark.parametrize(
        ("accept", "kind"),
        [
            ("*/*", "application/yaml"),
            ("application/yaml", "application/yaml"),
            ("application/vnd.oai.openapi", "application/vnd.oai.openapi"),
            ("application/json", "application/json"),
            ("application/vnd.oai.openapi+json", "application/vnd.oai.openapi+json"),
            ("application/json, */*", "application/json"),
        ],
    )
    def test_format_is_chosen_by_accept(self, api, document, accept, kind):
        response = api.get("/market/schema", HTTP_ACCEPT=accept)
        assert (response.status_code, response["Content-Type"]) == (200, kind)
        assert "Accept" in response["Vary"]
        assert yaml.safe_load(response.content) == document  # JSON is YAML

    def test_same_document_again_is_304(self, api):
        first = api.get("/market/schema")
        again = api.get("/market/schema", HTTP_IF_NONE_MATCH=first["ETag"])
        assert (again.status_code, again.content, again["ETag"]) == (304, b"", first["ETag"])
        json_too = api.get("/market/schema", HTTP_IF_NONE_MATCH=first["ETag"], HTTP_ACCEPT="application/json")
        assert json_too.status_code == 200

    @pytest.mark.parametrize("path", ["/market/schema", *PAGES])
    @pytest.mark.parametrize(
        ("method", "accept", "status", "code"),
        [("get", "image/png", 406, "NOT_ACCEPTABLE"), ("post", "*/*", 405, "METHOD_NOT_ALLOWED")],
    )
    def test_what_it_refuses_it_refuses_by_a_problem_in_json(self, api, path, method, accept, status, code):
        response = getattr(api, method)(path, HTTP_ACCEPT=accept)
        assert (response.status_code, response["Content-Type"]) == (status, CONTENT_TYPE)
        assert response.json()["code"] == code
        assert response["Allow"] == "GET, HEAD, OPTIONS"


class Loaded(HTMLParser):
    """What a page loads, and what it says inline."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.inline: list[str] = []
        self.tag = ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tag = tag
        self.addresses += [value for name, value in attrs if name in ("src", "href", "spec-url")]
        self.inline += [name for name, _value in attrs if name.startswith("on") or name == "style"]

    def handle_data(self, data):
        if self.tag in ("script", "style") and data.strip():
            self.inline.append(data)


class TestPages:
    @pytest.mark.parametrize("path", PAGES)
    def test_page_loads_from_this_host_only_and_has_nothing_inline(self, client, path):
        response = client.get(path)
        assert response.status_code == 200
        loaded = Loaded(response.content.decode())
        assert len(loaded.addresses) >= 4
        assert [address for address in loaded.addresses if not re.match(r"/(static|market)/", address)] == []
        assert loaded.inline == []
        policy = response["Content-Security-Policy"]
        assert "default-src 'none'; script-src 'self';" in policy
        assert "connect-src 'self';" in policy

    def test_static_host_may_be_another_one_and_is_named(self, client, settings):
        settings.STATIC_HOST = "https://cdn.example"
        policy = client.get("/market/docs/")["Content-Security-Policy"]
        assert "script-src 'self' https://cdn.example;" in policy
        assert "connect-src 'self';" in policy

    def test_script_of_swagger_ui_shows_this_document_and_asks_no_validator(self, client):
        response = client.get("/market/docs/", {"script": ""})
        script = response.content.decode()
        assert response["Content-Type"] == "application/javascript"
        assert 'url: "/market/schema"' in script
        assert '"validatorUrl": null' in script
        assert "csrftoken" not in response.cookies

    def test_every_front_serves_the_pages_and_the_document(self, fronts):
        from tests.seize.servers import ask, raw_request

        for path in ("/market/schema", *PAGES):
            request = raw_request("GET", path, headers=(("Host", "localhost"), ("Accept", "*/*")))
            replies = [ask(server.port, request, method="GET") for server in fronts.values()]
            assert [reply.status for reply in replies] == [200, 200, 200]
            assert replies[0].body == replies[1].body == replies[2].body
