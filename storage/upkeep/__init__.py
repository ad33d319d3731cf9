"""Background work on logs and stores: retention, compaction, giving space back."""
