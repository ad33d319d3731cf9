"""Looking at the files of a store without running it."""
