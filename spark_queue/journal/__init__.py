"""The journal on Delta: message tables that anybody may publish to, and a control log that one coordinator writes.

`PROTOCOL.md` specifies the stored form. The layout of the code, from the bottom:

- `store`, `store_files`: where things stand; whole objects, put-if-absent, syncing to the disk. Nothing else touches obstore.
- `delta`: one commit as a compare-and-swap, with our mark; a checkpoint. `transaction`: a transaction id alone; `log_listing`:
  which versions a log has.
- `log_entry`: one `_delta_log/N.json` as we read it, and in the control log write it, ourselves. `repair`: after a power loss.
- `schema`: columns as Arrow and Delta have them; `message_table`: the table of a message type.
- `record_blocks`: where the control log's records stand, in entries and data files; `record_table`: records as rows of them;
  `control_compaction`: merging small files. `control_table`: the log read to its end; `control_checkpoint`: its checkpoints.
- `snapshot`: the state at one record as a file, so that a start reads only later records; `state_codec`: as bytes.
- `control_log`: append, then check that the head and the epoch are still one's own; else the coordinator ends.
- `message_log`: versions forward, in the only order there is; changes of strangers are named. `log_looks`: when to look for more.
- `rows` → `stored_rows` → `staging` → `commit`, in front of them `publisher`: from a caller's rows to one atomic commit that is
  known from its repeat; values go through `conversion`, `casting`, `python_values` and `json_bodies`. Staging runs on executors too
  and loads pyarrow only, and obstore where the journal is in an object store.
- `entering`: how messages join; `traits`: the facts that queues need of them; `expressions`: the check of those; `message_file`:
  their columns; `pieces`: which rows of which files a lease means.
- `reader`: a journal's id and definitions, which is all that publishers load; `creation`: making one; `open`: opening it with what
  a coordinator has.
- `upkeep`: keeping the logs short; `message_upkeep`, `message_compaction`, `message_work`: the same for the files of messages.

What can go wrong, and what happens then:

- Two writers of the control log: the swap refuses one, or the check after it does; it ends. Nothing it did not commit counts.
- A commit whose reply is lost: a coordinator ends, and the next one finds it in the log; a publisher looks for its token.
- A commit that lands on a version that was cleaned away: only a look at the log then shows success.
- A process dies half-way: its staged files are invisible; its commits are whole.
- A stranger appends: recorded, without bookmarks. A stranger rewrites: reading stops there, by name.
- Power is lost: the head entry may be torn and is set aside; anything more is damage, by name.
"""
