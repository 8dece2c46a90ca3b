"""The pages of the shop: what orders there are, what was done for them, and a form to place one."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from django.http import HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET, require_POST

from examples.shop.orders.models import Charge, Customer, Letter, Order, Parcel, Product, Suggestion
from examples.shop.orders.rows import SoldOut, UnknownProduct

STEPS = {"charged": Charge, "shipped": Parcel, "asked": Letter, "suggested": Suggestion}
SHOWN = 25
"""How many orders the page has."""


@require_GET
def index(request: Any) -> Any:
    """Show the newest orders."""
    orders = list(Order.objects.order_by("-placed_at")[:SHOWN])
    done = {name: times_done(step, orders) for name, step in STEPS.items()}
    return render(
        request,
        "orders/index.html",
        {
            "steps": list(STEPS),
            "totals": {"orders": Order.objects.count(), **{n: s.objects.count() for n, s in STEPS.items()}},
            "orders": [(order, [done[name][order.number] for name in STEPS]) for order in orders],
            "customers": Customer.objects.order_by("name"),
            "products": Product.objects.order_by("name"),
            "number": uuid.uuid4(),
            "refused": request.GET.get("refused"),
        },
    )


def times_done(step: Any, orders: list[Any]) -> Counter[uuid.UUID]:
    """Return how often a step was done for each of the orders."""
    found = step.objects.filter(order__in=[order.number for order in orders])
    return Counter(found.values_list("order", flat=True))


@require_POST
def order(request: Any, place: Callable[[str, str, str], bool]) -> HttpResponse:
    """Place what the form says, and answer: a browser with the page, programs with 201, or 200 if it was there."""
    form = request.POST
    try:
        number = str(uuid.UUID(form.get("number", "")))
        is_new = place(number, form.get("customer", ""), form.get("product", ""))
    except (ValueError, UnknownProduct):
        return refusal(request, 400, "the order has no number, or no product that there is")
    except SoldOut as error:
        return refusal(request, 409, f"there is no {error} left")
    if is_browser(request):
        return HttpResponseRedirect("/")
    return JsonResponse({"number": number}, status=201 if is_new else 200)


def refusal(request: Any, status: int, why: str) -> HttpResponse:
    """Say why an order was refused: a browser sees it on the page."""
    if is_browser(request):
        return HttpResponseRedirect(f"/?{urlencode({'refused': why})}")
    return JsonResponse({"refused": why}, status=status)


def is_browser(request: Any) -> bool:
    """Return whether the answer is to be a page."""
    return "text/html" in request.headers.get("Accept", "")
