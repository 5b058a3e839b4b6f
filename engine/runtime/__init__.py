"""What runs a spec: the loop, its clients, devices, checkpoints and tests."""
