"""The web service: settings, store, REST, pages, events, and the fedarena command."""
