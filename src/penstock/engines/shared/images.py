"""Reduce a failed image pull to the registry's own answer."""

from __future__ import annotations

import re

FAILING = ("ErrImagePull", "ImagePullBackOff", "ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed")
NEVER = ("InvalidImageName", "ErrImageNeverPull")
"""Answers that no second try changes."""

_PASSED_ON = re.compile(
    r'^(?:Back-off pulling image "[^"]*"|ErrImagePull|ImagePullBackOff|rpc error: code = \w+ desc = '
    r'|[Ff]ailed to pull (?:and unpack )?image "[^"]*"|failed to resolve (?:reference|image) "[^"]*"'
    r"|failed to resolve image|failed to do request|(?:Head|Get) \"[^\"]*\"|failed to authorize"
    r"|failed to fetch (?:anonymous|oauth) token|failed to copy|httpReadSeeker: failed open"
    r'|Failed to apply default image tag "[^"]*"|couldn\'t parse image name "[^"]*")(?:: |(?<=desc = )|$)'
)
_FROM_PORT = re.compile(r"(?<= )\S+:\d+->(?=\S)")
"""The port of whoever asked: another each time, which would make the same failure look new."""
_ANSWERS = (
    (re.compile(r": not found$|manifest unknown|MANIFEST_UNKNOWN|NAME_UNKNOWN"), "the registry has no such image"),
    (
        re.compile(r"401 Unauthorized|authorization failed|no basic auth credentials|authentication required", re.I),
        "the registry asks for credentials",
    ),
    (re.compile(r"403 Forbidden|denied", re.I), "the registry refuses access"),
    (re.compile(r"429 Too Many Requests|toomanyrequests", re.I), "the registry limits how often images are pulled"),
    (re.compile(r"no such host"), "there is no such registry"),
    (
        re.compile(r"connection refused|i/o timeout|no route to host|network is unreachable"),
        "the registry is not there",
    ),
    (re.compile(r"no space left on device"), "the node's disk is full"),
)


def describe_pull_failure(image: str, reason: str, message: str) -> str:
    """Describe a failed pull in one sentence without its full stop."""
    if reason == "ErrImageNeverPull":
        return f"the image {image} is not on the node, and may not be pulled"
    answer = answer_of(message)
    if reason == "InvalidImageName":
        return f"'{image}' is not the name of an image" + (f": {answer}" if answer else "")
    meaning = next((words for pattern, words in _ANSWERS if pattern.search(answer)), None)
    if not answer:
        return f"the image {image} cannot be pulled"
    return f"the image {image} cannot be pulled: " + (f"{meaning} ({answer})" if meaning else answer)


def answer_of(message: str) -> str:
    while found := _PASSED_ON.match(message):
        if not found.end():
            break
        message = message[found.end() :]
    return _FROM_PORT.sub("", message).strip().rstrip(".")
