"""The page for people: what queues hold and what happened to them, in a browser (`sparkq dashboard`).

It reads logs as views do. `log_reader` reads a control log forward, `following` keeps one folded state for each journal, and
`history` keeps what charts are made of. `pages` and its neighbours turn that into figures, `templates` into HTML. `guard` stands
before all of it: who may see a page, and from where. What changes something goes through `changes`, which calls the client.
"""
