"""What all tests share: the profiles of Hypothesis.

`ci`, the default, draws the same examples on every run, so that a red test is red for everyone. `dev` looks
for new ones: `.venv/bin/python -m pytest --hypothesis-profile dev`.
"""

from hypothesis import HealthCheck, settings

# Two workers on two busy cores make any deadline a coin toss.
settings.register_profile("ci", derandomize=True, deadline=None, database=None, print_blob=True)
settings.register_profile(
    "dev", max_examples=1000, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("ci")
