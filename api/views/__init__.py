"""What people look at: the overview of all jobs, who runs where, drawings of plans, and what would happen if more failed."""
