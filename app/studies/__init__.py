"""What the papers say, as data: published numbers with their place, unit and status."""
