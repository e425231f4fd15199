"""What is wrong, why, and the fix. Never imports torch at module level."""
