"""Topic to table and back: jobs on Spark that keep tables in step with topics, each record exactly once.

A TOML file declares which topics go into which tables (`config`). For each table there is one streaming query (`sync`)
whose batches are decoded (`ottla.pipeline.values`) and written (`delta`, `parquet`) so that a batch that is repeated
after a kill changes nothing. `checkpoint` is what a job remembers of itself, `preflight` what is checked before it
starts, `progress` what a person can watch. `publish` goes the other way.
"""
