"""What no schema says: a key is used for one request, and no text in the database has a zero byte."""

import uuid

import schemathesis


@schemathesis.hook
def before_call(context, case, kwargs):
    data = case.meta.phase.data if case.meta else None
    if getattr(data, "parameter", None) == "Authorization":
        return
    headers = case.headers or {}
    key = headers.get("Idempotency-Key")
    if isinstance(key, str) and 1 <= len(key) <= 255 and key.isascii() and key.isprintable():
        headers["Idempotency-Key"] = uuid.uuid4().hex
    if isinstance(case.body, dict) and "fingerprint" in case.body and isinstance(case.body.get("key"), str) and case.body["key"]:
        case.body["key"] = uuid.uuid4().hex


def has_zero(value):
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, list):
        return any(has_zero(item) for item in value)
    if isinstance(value, dict):
        return any(has_zero(key) or has_zero(item) for key, item in value.items())
    return False


@schemathesis.hook
def filter_body(context, body):
    return not has_zero(body)


@schemathesis.hook
def filter_query(context, query):
    return not has_zero(dict(query or {}))


@schemathesis.hook
def filter_path_parameters(context, path_parameters):
    return not has_zero(dict(path_parameters or {}))
