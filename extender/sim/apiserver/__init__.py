"""An API server for a few resources, over HTTP: requests, routes, and the server itself."""
