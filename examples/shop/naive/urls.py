"""The addresses of the shop's pages: the pages are the same, placing an order is not."""

from __future__ import annotations

from django.urls import path

from examples.shop.naive.placing import place
from examples.shop.orders import views

urlpatterns = [path("", views.index), path("orders", views.order, {"place": place})]
