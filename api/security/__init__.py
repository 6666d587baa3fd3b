"""Who may ask for what, and how much: API keys, scopes, rate limits, and the middleware that holds every route to them."""
