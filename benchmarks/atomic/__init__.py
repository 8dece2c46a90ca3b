"""The benchmark of `txbroker.atomic`: a row and a message in one block, beside what else could be done."""
