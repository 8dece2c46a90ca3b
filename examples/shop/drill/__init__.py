"""``make drill-shop``: the shop at work while any of its parties is killed, again and again."""
