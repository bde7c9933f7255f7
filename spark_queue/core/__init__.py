"""The core: every decision about leases, backlogs, returns and removals, and nothing else.

Three rules hold here:

1. No Spark, Delta, socket, file, clock, random number or log. Time is handed in as ``now_ms``; traits that need a message's
   body are computed outside and handed in.
2. State changes only by folding records. A command decides, makes records and folds them; recovery, views of the past and
   `verify` fold the same records with the same code, so live and recovered state cannot differ.
3. Every rule of a queue lives here and nowhere else. Shells ask, commit the records, and answer.

Reading order, each package with its own:

- `records`: the stored form of everything that happens;
- `definitions`: the configuration: the table of keys, and the check of definition files;
- `bitmaps`: sets of bookmarks, and values of each message;
- `message_files`: which row of which file is which message;
- `state`: what the log says of the journal and of one queue; `folds`: what each kind of record changes;
- `deciding`: every command, and what falls due by itself;
- `commands`, `replies`: what is asked and answered; `engine`: where both meet the state; `creation`: how a journal begins;
- `retention`: which messages may be let go; `log_tail`: a state of some time ago, and every record since.
"""
