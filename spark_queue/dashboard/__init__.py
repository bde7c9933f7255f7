"""The page for people: what queues hold and what happened to them, in a browser (`sparkq dashboard`).

It looks at logs that `spark_queue.following` follows. `app` says which path shows what; `journal_site` and the pages of a journal,
a queue and its messages (`findings`, `letters`, `life`) turn logs into figures, `charts`, `templating` and folder `templates` into
HTML. `guard`, `sessions` and `connections` stand before all of it: who may see a page, and from where. What changes something goes
through `changes`, which calls the client.
"""
