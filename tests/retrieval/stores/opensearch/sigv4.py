"""AWS Signature Version 4 as the receiver checks it: from what arrived, not from what was meant.

Written from the published algorithm and without botocore, so that it can disagree with it.
"""

import hashlib
import hmac
from collections.abc import Mapping
from urllib.parse import quote

ACCESS_KEY = "AKIDEXAMPLE"
SECRET_KEY = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"

HOP_BY_HOP = frozenset(
    {
        *("connection", "keep-alive", "te", "trailer", "trailers", "transfer-encoding", "upgrade"),
        *("proxy-authenticate", "proxy-authorization"),
        *("content-length", "accept", "accept-encoding", "user-agent"),
    }
)
"""What pools, load balancers and proxies may rewrite on the way."""


def complaint(
    method: str, raw_path: str, query: str, headers: Mapping[str, str], body: bytes, *, service: str
) -> str | None:
    """Why the request would be answered 403, or None."""
    lower = {name.lower(): value for name, value in headers.items()}
    scheme, _, rest = lower.get("authorization", "").partition(" ")
    if scheme != "AWS4-HMAC-SHA256":
        return "not signed"
    parts = dict(part.strip().split("=", 1) for part in rest.split(","))
    names = parts["SignedHeaders"].split(";")
    if rewritten := HOP_BY_HOP & set(names):
        return f"signs {', '.join(sorted(rewritten))}"
    digest = hashlib.sha256(body).hexdigest()
    if lower.get("x-amz-content-sha256") != digest or "x-amz-content-sha256" not in names:
        return "x-amz-content-sha256 is not the body's, or not signed"
    if "host" not in names or "x-amz-date" not in names:
        return "host and x-amz-date must be signed"
    canonical = "\n".join(
        [
            method,
            quote(raw_path, safe="/-_.~"),
            "&".join(sorted(query.split("&"))) if query else "",
            *(f"{name}:{' '.join(lower[name].split())}" for name in names),
            "",
            ";".join(names),
            digest,
        ]
    )
    scope = parts["Credential"].removeprefix(f"{ACCESS_KEY}/")
    if not scope.endswith(f"/{service}/aws4_request"):
        return f"wrong credential scope {parts['Credential']}"
    expected = signature(canonical, scope, lower["x-amz-date"])
    return None if parts["Signature"] == expected else "the signature does not match"


def signature(canonical: str, scope: str, date: str) -> str:
    """`scope` is day/region/service/aws4_request, which the key is derived along."""
    hashed = hashlib.sha256(canonical.encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{date}\n{scope}\n{hashed}"
    key = f"AWS4{SECRET_KEY}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.new(key, text.encode(), "sha256").hexdigest()
