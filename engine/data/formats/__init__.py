"""How data sets lie on people's disks: one module for each format."""
