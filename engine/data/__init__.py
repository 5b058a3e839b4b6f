"""Data sets, their partition over clients, and the transforms of a batch."""
