"""Jobs, what fails in them, and the epochs that follow: the part of the service that training runs depend on."""
