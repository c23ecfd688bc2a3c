"""`regard serve`: a web page and a REST API for trained runs."""
