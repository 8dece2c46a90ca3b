"""What the broker achieves, each figure beside a limit of the machine that was measured in the same run."""
