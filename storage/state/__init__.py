"""What is known of one partition besides its batches: epochs, producers, aborted transactions."""
