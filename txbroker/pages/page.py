"""Pages from templates: each extends ``page.html`` of this room, which has the look that all pages share."""

from __future__ import annotations

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

SHARED = "txbroker.pages"


def render(package: str, template: str, **values: object) -> str:
    """Return a page made of a template of ``package``; what it shows is escaped unless it is ``Markup``.

    A value that the template names and that is not given raises ``jinja2.UndefinedError``.
    """
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package, ""), PackageLoader(SHARED, "")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["number"] = "{:,}".format
    return environment.get_template(template).render(values)
