"""httpx without TLS: its plain functions read the machine's certificates at every call."""

from functools import partial

import httpx

get = partial(httpx.get, verify=False)
post = partial(httpx.post, verify=False)
put = partial(httpx.put, verify=False)
request = partial(httpx.request, verify=False)
stream = partial(httpx.stream, verify=False)
