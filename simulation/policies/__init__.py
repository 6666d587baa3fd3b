"""Ways to survive failures, each as a cost model: what it does at each change, how long that takes, how fast it goes on."""
