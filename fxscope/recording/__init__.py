"""What happened, as records. Never imports torch."""
