"""Plans made before they are needed: one template for each failure key that a job's tolerance covers."""
