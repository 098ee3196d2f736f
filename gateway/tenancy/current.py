"""The tab of the request that is being served, for whoever plans an answer to it.

A context variable, so that no endpoint can forget to pass it on and answer at nobody's expense.
"""

from contextvars import ContextVar
from dataclasses import replace

from gateway.asks import Ask
from gateway.tenancy.api import Tab

tab: ContextVar[Tab | None] = ContextVar("tab", default=None)


def charged(ask: Ask) -> Ask:
    """The ask on its own tab, or else on that of the request, and of its tenant."""
    found = ask.tab or tab.get()
    return ask if found is None else replace(ask, tab=found, tenant=found.caller.tenant)
