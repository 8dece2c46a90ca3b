"""The addresses of the shop's pages."""

from __future__ import annotations

from django.urls import path

from examples.shop.orders import views
from examples.shop.orders.placing import place

urlpatterns = [path("", views.index), path("orders", views.order, {"place": place})]
