"""How the outside sees what is stored: the same shapes in REST, events, pages and the Python client."""
