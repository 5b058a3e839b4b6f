"""The processes that run experiments: task, job, worker and the embedded mode."""
