"""
`make pictures`: draws the pictures of the pages from a real run of the daemon, beside writers on PostgreSQL and a
Prometheus that scrapes it.

`live` is the run, `dashboard` asks Prometheus for what the panels show, `chart` draws them, `terminal` keeps what
commands print.
"""
