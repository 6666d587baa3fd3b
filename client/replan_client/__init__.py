"""What a training job installs: an HTTP client for RePlan's service, and the programs that its workers run."""
