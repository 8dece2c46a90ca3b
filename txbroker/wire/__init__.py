"""The wire protocol: requests, answers, their bytes, and how errors travel."""
