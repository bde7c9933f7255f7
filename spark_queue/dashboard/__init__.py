"""The page for people: the content of queues and its history, in a browser (`sparkq dashboard`).

It looks at logs that `spark_queue.following` follows. `app` has the path of each page; `journal_site` and the pages of a journal,
a queue and its messages (`findings`, `letters`, `life`) turn logs into figures, `charts`, `templating` and folder `templates` into
HTML. `guard`, `sessions` and `connections` stand before all of it: they admit visitors, and refuse others. Changes go through
`changes`, which calls the client.
"""
