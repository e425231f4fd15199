"""The structured trace log: line format, index, following a log that still grows. Never imports torch."""
