from datetime import datetime

import pytest

from gateway.api import TemplateRefused
from gateway.prompt.template import ChatTemplate

HELLO = [{"role": "user", "content": "hi"}]


def render(source: str) -> str:
    at = datetime(2026, 3, 4)
    return ChatTemplate.build(source, {"bos_token": "<s>"}, now=lambda: at).render(HELLO)


def test_a_template_sees_tokens_dates_and_messages() -> None:
    source = "{{ bos_token }}{{ strftime_now('%d %B %Y') }} {{ messages[0]['content'] }}"
    assert render(source) == "<s>04 March 2026 hi"


def test_blocks_are_trimmed_as_transformers_does() -> None:
    assert render("{% for m in messages %}\n    {% if true %}\nx{% endif %}\n{% endfor %}") == "x"


def test_generation_blocks_and_loop_controls_are_understood() -> None:
    source = "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}"
    assert render(source + "{% break %}{% endfor %}") == "hi"


def test_json_keeps_its_letters() -> None:
    assert render("{{ {'a': 'é<'} | tojson }}") == '{"a": "é<"}'


def test_a_template_that_raises_refuses_with_its_own_words() -> None:
    with pytest.raises(TemplateRefused, match="roles must alternate"):
        render("{{ raise_exception('roles must alternate') }}")


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ cycler.__init__.__globals__ }}",
    ],
)
def test_a_template_cannot_leave_its_sandbox(source: str) -> None:
    with pytest.raises(TemplateRefused):
        render(source)


def test_developers_speak_as_the_system_where_a_template_does_not_know_them() -> None:
    message = [{"role": "developer", "content": "x"}]
    assert ChatTemplate.build("{{ messages[0].role }}", {}).render(message) == "system"
    knows = "{{ messages[0].role }}{# developer #}"
    assert ChatTemplate.build(knows, {}).render(message) == "developer"
