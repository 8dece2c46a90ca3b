"""What the simulation expects of rights, rules and quotas."""
