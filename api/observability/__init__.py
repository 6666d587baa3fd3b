"""What the service tells about itself: logs, metrics, and the middleware that gives every request an id."""
