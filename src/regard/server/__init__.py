"""`regard serve`: opened runs behind a page and a REST API."""
