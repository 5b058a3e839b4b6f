"""What a spec may say, and what is wrong with one that cannot run."""
