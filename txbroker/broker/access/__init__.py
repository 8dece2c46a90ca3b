"""Who comes in and what they may do: logins that become sessions, rules, quotas, and the audit of all this."""
