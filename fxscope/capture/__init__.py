"""Inside the user's program: launching it, the recording backend, launch counters, torch hooks. Imports nothing of fxscope but names."""
