"""How an index chooses its own settings: by quality that is measured and work that is counted, never by the clock.

`building` is the way in, for `ClassIndex`. It parts the sample of queries (`query_sample`), lets `chooser` try settings
(`plans`) at their price (`prices`) by the ranks that winners get (`winner_ranks`) until the user's `wishes` are met,
and has the result measured by `judge`.
"""
