"""The terminal app. It only shows: every number comes from fxscope."""
