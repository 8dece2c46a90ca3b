"""``make drill-backup``: backups are made of a broker under load that is killed, and each of them is restored.

It is a drill (docs/drills.md) beside which ``txbroker backup create`` runs all the time. When it is over, each backup
that was made is restored, and takes the place of the lost broker while old clients still work with that. It is judged
as a drill is, by the same ledgers, of which only what was answered before the backup's command began is promised.
"""
